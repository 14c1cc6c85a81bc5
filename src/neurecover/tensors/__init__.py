"""Tools on bare symmetric tensors: packing, decomposition, simultaneous diagonalisation, moment-space fit."""

from neurecover.tensors.diagonalise import Congruence, joint_diagonalise
from neurecover.tensors.moment_fit import (
    MomentFit,
    fit_moments,
    moment_risk,
    network_moments,
)
from neurecover.tensors.overcomplete import SymmetricComponents, decompose, flattening_rank, slices
from neurecover.tensors.packing import (
    contract,
    flatten,
    indices,
    inner,
    monomials,
    multiplicities,
    n_packed,
    pack,
    rank_one,
    root_multiplicities,
    symmetric_power,
    unpack,
)
from neurecover.tensors.pencils import Components, jennrich
from neurecover.tensors.power import PowerComponents, power_method, whitening
from neurecover.tensors.power_sums import PowerSum, best_weights, fit_power_sum
from neurecover.tensors.subspace import Span, noise_norm, span

__all__ = [
    "Components",
    "Congruence",
    "MomentFit",
    "PowerComponents",
    "PowerSum",
    "Span",
    "SymmetricComponents",
    "best_weights",
    "contract",
    "decompose",
    "fit_moments",
    "fit_power_sum",
    "flatten",
    "flattening_rank",
    "indices",
    "inner",
    "jennrich",
    "joint_diagonalise",
    "moment_risk",
    "monomials",
    "multiplicities",
    "n_packed",
    "network_moments",
    "noise_norm",
    "pack",
    "power_method",
    "rank_one",
    "root_multiplicities",
    "slices",
    "span",
    "symmetric_power",
    "unpack",
    "whitening",
]
