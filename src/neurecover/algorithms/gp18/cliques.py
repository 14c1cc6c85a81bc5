"""Exponential units over disjoint sets of inputs, seen as cliques of correlated inputs [GP18, Theorem 8 and Alg. 3].

u(a) = e^{ρ(a − t)} with disjoint 0/1 weights. Inputs i ≠ j are correlated through f, E[f xᵢxⱼ], more strongly within
the support of one unit than across two; the graph of the strong correlations falls into one clique per unit. (The
paper's exponent −ρ|S|(t − ρd)/2 should read −ρ|S|(t − ρd/2): every unit contributes e^{−ρt}·e^{ρ²d/2}.)

Within one unit the part of f that is linear in the units gives E[f xᵢ] = ρ C and E[f xᵢxⱼ] = ρ² C with the same C, so
their ratio estimates ρ. The upper part absorbs the factor e^{−ρt}, so thresholds are returned as 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.algorithms.base import Algorithm, Call
from neurecover.algorithms.gp18.common import own_inputs, refuse_unless
from neurecover.algorithms.gp18.landscape.step_one import hermite_coefficients
from neurecover.data import split
from neurecover.exceptions import UnsolvableError
from neurecover.results import Estimate
from neurecover.tensors import unpack


@dataclass(frozen=True)
class BinaryUnits:
    """Disjoint 0/1 weights W (k, d); `gap` is the ratio of the weakest used signal to the strongest unused one."""

    W: np.ndarray
    gap: float


@dataclass(frozen=True)
class CliqueRecord:
    """The units, and the estimate of ρ."""

    units: BinaryUnits
    rate: float


def correlation_cliques(
    second: np.ndarray, error: np.ndarray | None = None, n_hidden: int | None = None, unequal: float = 4.0
) -> BinaryUnits:
    """Return the units from E[f(x)(x xᵀ − I)] (d, d) [GP18, Alg. 3 and Theorem 8].

    The threshold on the correlations is put into the widest relative gap that leaves cliques, n_hidden of them if that
    is given. All correlations within a unit are equal by symmetry, so that cliques whose correlations differ by more
    than `unequal` standard errors (d, d) are several units that share products, and a higher threshold is tried.
    """
    strength = np.abs(second)
    values = np.sort(strength[np.triu_indices(len(second), 1)])[::-1]
    if len(values) < 2 or values[0] == 0.0:
        raise UnsolvableError("No two inputs are correlated through the outputs.")
    floor = 1e-12 * values[0]
    ratios = (values[:-1] + floor) / (values[1:] + floor)
    for place in np.argsort(ratios)[::-1][:20]:
        W = cliques_of(strength > np.sqrt(values[place] * max(values[place + 1], 1e-300)))
        if W is None or len(W) == 0 or n_hidden not in (None, len(W)):
            continue
        if error is None or all(_even(second, error * unequal, row > 0.0) for row in W):
            return BinaryUnits(W, float(ratios[place]))
    raise UnsolvableError(
        f"No threshold splits the correlations into {n_hidden or ''} cliques, so the weights are not disjoint 0/1 "
        "vectors, or the samples too few."
    )


def _even(second: np.ndarray, error: np.ndarray, members: np.ndarray) -> bool:
    """Return whether the correlations within a clique are equal up to their standard errors."""
    inside = np.ix_(members, members)
    pairs = np.triu_indices(int(members.sum()), 1)
    values = second[inside][pairs]
    return float(np.std(values)) <= float(np.sqrt(np.mean(error[inside][pairs] ** 2)))


def cliques_of(graph: np.ndarray, smallest: int = 2) -> np.ndarray | None:
    """Return disjoint cliques of `smallest` or more vertices as 0/1 rows; None if the graph has any other component."""
    graph = graph | np.eye(len(graph), dtype=bool)
    members = np.unique(graph, axis=0)  # in a union of cliques every vertex has the whole of its clique for a row
    if np.any(members.sum(axis=0) != 1):
        return None
    return members[members.sum(axis=1) >= smallest].astype(float)


def _rate(first: np.ndarray, second: np.ndarray, W: np.ndarray) -> float:
    """Return ρ as the ratio of second to first coefficients within the units."""
    size = W.sum(axis=1)
    pairs = (np.einsum("ki,ij,kj->k", W, second, W) - W @ np.diag(second)) / (size * (size - 1.0))
    singles = (W @ first) / size
    return float(np.median(pairs / np.where(singles == 0.0, np.inf, singles)))


def _run(call: Call) -> Estimate:
    own = own_inputs(call.source)
    d = own.source.n_inputs
    halves = split(own.source, 0.5, int(call.rng.integers(2**31)))
    tensors = [hermite_coefficients(half, call.task.n_samples // 2, 2)[0] for half in halves]
    first, other = (unpack(T[2][0], d, 2) for T in tensors)
    second = 0.5 * (first + other)
    units = correlation_cliques(second, 0.5 * np.abs(first - other), call.task.n_hidden)
    rate = _rate(0.5 * (tensors[0][1] + tensors[1][1])[0], second, units.W)
    if not rate > 0.0:
        raise UnsolvableError(f"Exponential units need a positive rate. The correlations show {rate:.3g} instead.")
    note = f"{len(units.W)} cliques; correlations inside exceed others by a factor of {units.gap:.2f}; rate {rate:.3g}."
    network = own.composite(rate * units.W, np.zeros(len(units.W)), call.task.activation)
    return Estimate(network, (note,), details=CliqueRecord(units, rate))


ALGORITHM = Algorithm(
    name="cliques",
    paper="GP18, Theorem 8 and Algorithm 3",
    assumes="standard Gaussian inputs; exponential units with disjoint 0/1 weights; linear terms above products",
    refuse=lambda task: refuse_unless("cliques", task, ("exp",)),
    run=_run,
    finds="composite",
)
