"""Exponential units over disjoint sets of inputs, from tilted means [GP18, Theorem 9].

u(a) = e^a with disjoint 0/1 weights and positive coefficients. g(z) = E[f(x) e^{z·x}] e^{−‖z‖²/2} = E[f(x + z)] is a
positive sum of exponentials of Σ_{p∈S} z_p; it is convex, so that on the simplex {z ≥ 0, Σ z = R} its mass gathers on
one unit, and −γ‖z‖² spreads it evenly over that unit's inputs. (The paper subtracts λ‖z‖₁ instead; but g outgrows it,
so the maximum there is at infinity. λ is the multiplier of the constraint used here.)

Curvature shows the same with no search. ∂g/∂zᵢ is the sum of the terms that have i, and ∂²g/∂zᵢ∂zⱼ the sum of those
that have both i and j, so that

    ∂ᵢ∂ⱼg / √(∂ᵢg ∂ⱼg) = 1 within a unit, and less across two,

and the inputs whose ratio is 1 are the units; one that has it with no other is a unit by itself. At z = −b·1 a term of
m inputs counts e^{m/2 − bm}, so that products count less than single units, and its estimate varies less because
e^{z·x} falls where f rises; inputs outside the term make it vary more, by e^{b²} each. Of b = 0, 0.2, …, 0.8 only 0.4
found all units at six sizes from 8 to 16 inputs (n = 100,000, ten seeds each); the simplex needs a radius made for its
size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.gp18.cliques import BinaryUnits, cliques_of
from neurecover.algorithms.gp18.common import own_inputs, refuse_unless
from neurecover.algorithms.gp18.options import EXPONENTIAL, ExponentialOptions
from neurecover.data import Source, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.results import Estimate
from neurecover.statistics.base import Statistic


class TiltedMeans(Statistic):
    """Sums of f(x) e^{z·x − ‖z‖²/2} and of it times x − z and (x − z)(x − z)ᵀ − I: g, its slope and curvature at z."""

    def __init__(self, z: np.ndarray) -> None:
        self.z = np.array(z, dtype=float)
        self.settings = {"z": self.z}
        d = len(self.z)
        sizes = {"value": (), "gradient": (d,), "second": (d, d)}
        self.sums = {"n": np.zeros((), dtype=np.int64), **{name: np.zeros(size) for name, size in sizes.items()}}
        self.row_bytes = 8 * (2 * d + 2)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X = np.asarray(X, dtype=np.float64)
        tilt = np.exp(X @ self.z - 0.5 * float(self.z @ self.z)) * Y[:, 0]
        tilt = tilt if weight is None else tilt * weight
        moved = X - self.z
        self._count(len(X), weight)
        self.sums["value"] += tilt.sum()
        self.sums["gradient"] += tilt @ moved
        self.sums["second"] += (moved * tilt[:, None]).T @ moved - tilt.sum() * np.eye(len(self.z))


def exponential_cliques(
    source: Source, n_hidden: int | None = None, options: ExponentialOptions = EXPONENTIAL
) -> BinaryUnits:
    """Return the units as the cliques of the curvature of g over its slopes at −base·1, n_hidden of them if given.

    An input whose slope is less than a tenth of the largest belongs to no unit, as in the paper's search.
    """
    means = reduce(source, TiltedMeans(np.full(source.n_inputs, -options.base)))
    slope, value, second = means.average("gradient"), float(means.average("value")), means.average("second")
    if not value > 0.0 or not slope.max() > 0.0:
        raise UnsolvableError("Theorem 9 needs outputs with a positive mean, which grow with some input. Got none.")
    used = np.flatnonzero(slope > options.idle * slope.max())
    ratio = second[np.ix_(used, used)] / np.sqrt(np.outer(slope[used], slope[used]))
    values = np.sort(np.append(ratio[np.triu_indices(len(used), 1)], 1.0))[::-1]
    # Cuts below values that may be 1, the widest gap first; the topmost leaves every input a unit of its own.
    above = np.minimum(values[values >= options.one], 1.0)
    below = np.maximum(np.append(values[1:], 0.0)[: len(above)], options.floor)
    for place in np.argsort(-above / below):
        W = cliques_of(ratio > np.sqrt(above[place] * below[place]), smallest=1)
        if W is not None and n_hidden in (None, len(W)):
            units = np.zeros((len(W), source.n_inputs))
            units[:, used] = W
            return BinaryUnits(units, float(above[place] / below[place]))
    raise UnsolvableError(
        f"The curvature does not fall into {n_hidden or ''} cliques, so the weights are not disjoint 0/1 vectors, or "
        "the samples too few."
    )


@dataclass(frozen=True)
class Tilt:
    """How the search looks: z on −base·1 plus the simplex of the given radius R, −γ‖z‖² with γ = spread·g(−base·1)/R².

    After the shift f is the same sum of exponentials with smaller coefficients for products. They are estimated with
    far less variance, because e^{z·x} falls where f rises.
    """

    base: float = 0.6
    radius: float = 1.25
    spread: float = 0.1
    steps: int = 40


def exponential_units(source: Source, rng: np.random.Generator) -> BinaryUnits:
    """Find the units of f = P(e^{w₁·x}, …), disjoint 0/1 weights and positive P, one by one [GP18, Theorem 9].

    Every step is a pass over the samples. Inputs of a unit that was found are left out of the next search, which ends
    when no gradient is left above a tenth of the first.
    """
    d, tilt = source.n_inputs, Tilt()
    start = reduce(source, TiltedMeans(np.full(d, -tilt.base)))
    g0, first = float(start.average("value")), start.average("gradient")
    if not g0 > 0.0:
        raise UnsolvableError(f"Theorem 9 needs outputs with a positive mean. Got {g0:.3g} instead.")
    free = np.ones(d, dtype=bool)
    rows, gaps = [], []
    while free.any() and first[free].max() > 0.1 * first.max():
        z, gradient = _simplex_maximum(source, free, rng, tilt, tilt.spread * g0 / tilt.radius**2)
        support = free & (z > 0.3 * z.max())
        rest = free & ~support
        if rest.any():
            gaps.append(float(gradient[support].min() / max(np.abs(gradient[rest]).max(), 1e-300)))
        rows.append(support.astype(float))
        free &= ~support
    return BinaryUnits(np.array(rows).reshape(-1, d), min(gaps, default=np.inf))


def _simplex_maximum(
    source: Source, free: np.ndarray, rng: np.random.Generator, tilt: Tilt, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return a maximum of g(z − base·1) − γ‖z‖² on {z ≥ 0, Σz = R} over the free inputs, and ∇g there."""
    z = np.where(free, rng.uniform(0.5, 1.5, len(free)), 0.0)
    z *= tilt.radius / z.sum()
    gradient = np.zeros(len(free))
    for step in range(tilt.steps):
        gradient = reduce(source, TiltedMeans(z - tilt.base)).average("gradient")
        ascent = gradient - 2.0 * gamma * z
        size = np.abs(ascent[free]).max()
        new = z + 0.5 * tilt.radius / (1.0 + 0.2 * step) * np.where(free, ascent, 0.0) / max(size, 1e-300)
        new = _onto_simplex(np.where(free, new, -np.inf), tilt.radius)
        if np.abs(new - z).max() < 1e-3 * tilt.radius:
            break
        z = new
    return z, gradient


def _onto_simplex(v: np.ndarray, radius: float) -> np.ndarray:
    """Return the point of {z ≥ 0, Σz = R} nearest to v; entries of −∞ become 0."""
    ordered = np.sort(v[np.isfinite(v)])[::-1]
    excess = (np.cumsum(ordered) - radius) / np.arange(1, len(ordered) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(v - shift, 0.0)


def _run(call: Call) -> Estimate:
    own = own_inputs(call.source)
    k = call.task.n_hidden
    if call.form == PAPER:
        units = exponential_units(own.source, call.rng)
        signal = "gradients"
    else:
        units = exponential_cliques(own.source, k)
        signal = "correlations"
    counted = "" if k in (None, len(units.W)) else f" where {k} were asked for"
    note = f"{len(units.W)} units{counted}; {signal} inside a unit exceed those outside by a factor of {units.gap:.2f}."
    network = own.composite(units.W, np.zeros(len(units.W)), call.task.activation)
    return Estimate(network, (note,), details=units)


ALGORITHM = Algorithm(
    name="exponential",
    paper="GP18, Theorem 9",
    assumes="standard Gaussian inputs; units e^(w·x) with disjoint 0/1 weights; positive coefficients above them",
    refuse=lambda task: refuse_unless("exponential", task, ("exp",)),
    run=_run,
    forms=(BEST, PAPER),
    finds="composite",
)
