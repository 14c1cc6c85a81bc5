"""Whether a fit to noisy samples stands where it is: fits that begin a few standard errors away come back to it.

Standard errors take Σ r² for a parabola around its least value, and where samples are few it is none: it has pits, some
of them as deep, within the errors and beyond. From starts θ + 3 L ξ, with L Lᵀ = σ² (Σ JᵀJ)⁺ the covariance of the
parabola and ξ standard normal, the fit is made anew. A lower pit takes the place of the one that was found; one about
as deep that is elsewhere is a rival, between which and this one the samples do not decide.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from neurecover.data import Source, reduce
from neurecover.models import Network, are_biases, parameters, with_parameters
from neurecover.refine.settling import Finished, polish
from neurecover.refine.task import Task
from neurecover.solve import Deadline
from neurecover.statistics import ModelSums

STARTS, AWAY, ROUNDS = 8, 3.0, 4  # starts of a round, their distance in standard errors, lower pits that are followed
# The largest standard error of a unit row up to which nothing is tried: of 13 claims on Poisson counts the wrong ones
# had 0.07 and 0.08, and where there is a load of samples (`bench noise`) it is 0.004.
NARROW = 0.02
WORK = 2e9  # multiplications that Σ JᵀJ may take; beyond it nothing is tried
LOWER = 0.1  # of Σ r²/σ² by which a pit is lower
AS_DEEP = 10.0  # of Σ r²/σ² between two pits: odds of e⁵ under Gaussian noise
ELSEWHERE = 2.0  # standard errors, in some direction, between two pits


def lowest_pit(source: Source, found: Finished, task: Task, rng: np.random.Generator, deadline: Deadline) -> Finished:
    """The lowest pit around a fit to noisy samples, `unrivalled` if there is no other that is about as deep."""
    work = float(task.n_samples) * task.n_outputs * found.network.n_parameters**2
    if found.relative_rss < task.level or found.network.n_hidden == 0 or work > WORK:
        return found
    for _ in range(ROUNDS):
        around = _Parabola.around(source, replace(found, network=found.network.normal_form()), task.bias)
        if around is None or around.widest <= NARROW:
            return found
        tried: list[Finished] = []
        for _ in range(STARTS):
            if deadline.passed:
                return replace(found, unrivalled=False)
            start = replace(found, network=around.start(rng))
            tried.append(polish(source, start, task.bias, deadline))
        lowest = min(tried, key=lambda fit: fit.rss)
        if lowest.rss >= found.rss - LOWER * around.variance:
            rivals = [fit for fit in tried if fit.rss <= found.rss + AS_DEEP * around.variance]
            return replace(found, unrivalled=not any(around.distance(fit.network) > ELSEWHERE for fit in rivals))
        found = replace(found, network=lowest.network, rss=lowest.rss, relative_rss=lowest.relative_rss)
    return replace(found, unrivalled=False)


class _Parabola:
    """Σ r² as it looks from its least value: σ², the free parameters, and H with Σ JᵀJ = H Hᵀ."""

    def __init__(self, network: Network, variance: float, free: np.ndarray, half: np.ndarray, root: np.ndarray) -> None:
        self.network, self.variance, self.free, self.half, self.root = network, variance, free, half, root

    @classmethod
    def around(cls, source: Source, found: Finished, bias: bool) -> _Parabola | None:
        network = found.network
        free = np.ones(network.n_parameters, dtype=bool) if bias else ~are_biases(network)
        sums = reduce(source, ModelSums(network))
        values, vectors = np.linalg.eigh(sums.curvature()[np.ix_(free, free)])
        seen = values > 1e-12 * values[-1]
        freedom = sums.n * network.n_outputs - int(np.count_nonzero(seen))
        if freedom <= 0:
            return None
        roots = np.sqrt(values[seen])
        variance = float(sums.sums["rr"].sum()) / freedom
        return cls(network, variance, free, vectors[:, seen] * roots, vectors[:, seen] / roots)

    @property
    def widest(self) -> float:
        """The largest standard error of a weight of a unit row."""
        errors = np.zeros(self.network.n_parameters)
        errors[self.free] = np.sqrt(self.variance * np.einsum("ij,ij->i", self.root, self.root))
        return float(errors[: self.network.W.size].max())

    def start(self, rng: np.random.Generator) -> Network:
        """A network a few standard errors away."""
        theta = parameters(self.network)
        theta[self.free] += AWAY * np.sqrt(self.variance) * (self.root @ rng.standard_normal(self.root.shape[1]))
        return with_parameters(self.network, theta)

    def distance(self, other: Network) -> float:
        """√(δᵀ Σ JᵀJ δ)/σ, in standard errors along the direction in which the other network lies."""
        mine, other = self.network, other.normal_form()
        if other.n_hidden != mine.n_hidden:
            return np.inf
        V, U = np.column_stack([mine.W, mine.b]), np.column_stack([other.W, other.b])
        _, pairs = linear_sum_assignment(np.linalg.norm(V[:, None] - U, axis=2))
        apart = (parameters(other.take(pairs)) - parameters(mine))[self.free]
        return float(np.linalg.norm(self.half.T @ apart)) / float(np.sqrt(self.variance))
