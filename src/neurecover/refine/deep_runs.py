"""Runs at given widths, until one of them is known to be the last.

Without noise the first network whose residual is at the level of rounding ends the search. With noise nothing marks the
optimum, so the search ends when two runs from different starts arrive at the same one, and no wider student does much
better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.refine.deep_problem import EXACT, Problem, n_parameters
from neurecover.refine.deep_search import Samples, candidates
from neurecover.refine.deep_settling import Settled, settle_deep, settled_on
from neurecover.refine.model_fit import model_rss
from neurecover.refine.optima import one_optimum
from neurecover.solve import Deadline

MAX_RUNS = 24  # students taken to the end
NOISE = 1.5  # times the mean square error of a wide student, beyond which what is left is no noise
CLOSE = 50.0  # shares of Σ r² that one dent of it may lie above another on the samples of the search (measured: 30)


@dataclass(frozen=True)
class Runs:
    """The best network of so many runs, and whether two of them ended at its optimum.

    unrivalled says that no other faint unit does as well (`deep_faint`).
    """

    best: Settled
    relative_rss: float
    n_runs: int
    agreed: bool
    unrivalled: bool = True

    @property
    def widths(self) -> tuple[int, ...]:
        return self.best.fit.network.n_hidden

    @property
    def exact(self) -> bool:
        return self.relative_rss < EXACT


def search(
    problem: Problem,
    samples: Samples,
    widths: tuple[int, ...],
    rng: np.random.Generator,
    deadline: Deadline,
    max_runs: int = MAX_RUNS,
    noiseless: bool = False,
) -> Runs:
    """The best network of these widths, sought on `samples` and fitted to all that the problem has.

    On samples known to be noiseless, runs that agree do not end the search.
    """
    n_equations = problem.n_samples * problem.source.n_outputs
    n_numbers = n_parameters(samples.X.shape[1], widths, samples.Y.shape[1], samples.bias)
    if samples.Y.size <= n_numbers:
        raise UnsolvableError(
            f"A network of {n_numbers} parameters needs more equations than that. Got {samples.Y.size} instead."
        )
    best: Settled | None = None
    runs, start_of_best, agreed = 0, 0, False
    least = np.inf  # Σ r² of the best on the samples of the search
    for candidate in candidates(samples, widths, rng, deadline):
        runs += 1
        problem.progress("search", candidate.fit.relative_rss)
        # With its skips a student fits its samples at least as well as the network that it leads to.
        if best is None or candidate.fit.rss <= least:
            settled = settle_deep(samples, candidate.fit, deadline)
            if best is None or settled.fit.rss <= least * (1.0 + CLOSE / samples.Y.size):
                if len(samples.X) < problem.n_samples:
                    settled = settled_on(problem.source, settled, problem.total, problem.bias, deadline)
                if best is not None and candidate.start != start_of_best:
                    pair, sums = (settled.fit.network, best.fit.network), (settled.fit.rss, best.fit.rss)
                    agreed = one_optimum(problem.source, *pair, *sums, n_equations)
                    agreed &= settled.fit.rss / problem.total <= NOISE * candidate.wide_error
                if best is None or settled.fit.rss < best.fit.rss:
                    best, start_of_best = settled, candidate.start
                    least = model_rss(samples.source, settled.fit.network)
            problem.progress("settle", settled.fit.rss / problem.total)
        exact = best.fit.rss < EXACT * problem.total
        if exact or (agreed and not noiseless) or runs >= max_runs or deadline.passed:
            break
    assert best is not None
    return Runs(best, best.fit.rss / problem.total, runs, agreed)
