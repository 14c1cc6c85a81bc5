"""Algorithms for symmetric tensors: packing, decomposition, simultaneous diagonalisation, fit to moments."""

from neurecover.tensors.diagonalise import joint_diagonalise
from neurecover.tensors.moment_fit import (
    fit_moments,
    network_moments,
)
from neurecover.tensors.overcomplete import decompose, flattening_values, slices
from neurecover.tensors.packing import (
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
    whitened,
)
from neurecover.tensors.power_sums import best_weights, fit_power_sum
from neurecover.tensors.subspace import Span, noise_norm, span, whitening

__all__ = [
    "Span",
    "best_weights",
    "decompose",
    "fit_moments",
    "fit_power_sum",
    "flatten",
    "flattening_values",
    "indices",
    "inner",
    "joint_diagonalise",
    "monomials",
    "multiplicities",
    "n_packed",
    "network_moments",
    "noise_norm",
    "pack",
    "rank_one",
    "root_multiplicities",
    "slices",
    "span",
    "symmetric_power",
    "unpack",
    "whitened",
    "whitening",
]
