"""A network of several hidden layers from samples: search with skips, signs, fit without skips.

Without noise the first network whose residual is at the level of rounding ends the search. With noise nothing marks the
optimum, so the search ends when two runs from different starts arrive at the same one, and no wider student does much
better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.data import Source
from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.refine.deep_descent import DeepDescent, descend_deep
from neurecover.refine.deep_problem import EXACT, Problem, Progress
from neurecover.refine.deep_search import JOINT, Samples, candidates, narrow
from neurecover.refine.deep_settling import Settled, settle_deep
from neurecover.refine.deep_signs import with_skips
from neurecover.refine.deep_widths import guess_widths
from neurecover.refine.model_fit import model_rss
from neurecover.solve import Deadline

MAX_RUNS, FRESH_RUNS = 24, 3  # students taken to the end, in general and to rule a narrower network out
SEARCH_LOAD = 60  # samples per parameter that the search at given widths looks at; the last fits see all
SEARCH_SAMPLES = 20_000  # that the search for the widths looks at
NOISE = 1.5  # times the mean square error of a wide student, beyond which what is left is no noise
SAME = 0.1  # of one equation's share of Σ r²: two optima closer than this are one
UNDETERMINED = 1e-13  # smallest eigenvalue of the scaled information at which a weight is left open


@dataclass(frozen=True)
class DeepFinished:
    """The network at the end, and how it came about.

    relative_rss is Σ r² over Σ (y − ȳ)², or over Σ y² without biases. converged says that no step lowers Σ r² further.
    sign_choices counts the sign assignments that fit equally well, or as well as noise can tell: 1 when the signs are
    determined, 0 when there are too many to count. runs counts the students taken to the end, agreements those that
    ended at the optimum of the best; notes are sentences. determined says that the samples see every weight; an
    over-wide network has weights that they do not.
    """

    network: DeepNetwork
    relative_rss: float
    converged: bool
    sign_choices: int
    notes: tuple[str, ...]
    runs: int
    determined: bool
    agreements: int = 0

    @property
    def exact(self) -> bool:
        return self.relative_rss < EXACT


def finish_deep(
    source: Source,
    widths: tuple[int, ...] | None,
    activation: str | Activation,
    rng: np.random.Generator,
    deadline: Deadline,
    *,
    depth: int = 2,
    bias: bool = True,
    progress: Progress | None = None,
) -> DeepFinished:
    """The best network found before the deadline, on whitened samples; at least one run is always made.

    widths are the units of every hidden layer, lowest first; None finds them for the given depth.
    """
    activation = get(activation)
    _check(widths, activation, depth)
    problem = Problem.of(source, activation, bias, progress)
    if not problem.total > 0:
        raise UnsolvableError("The outputs are the same for every sample, so no weight can be seen in them.")
    if widths is None:
        return _find_widths(problem, depth, rng, deadline)
    return _solve(problem, tuple(widths), rng, deadline, MAX_RUNS)


def _solve(
    problem: Problem,
    widths: tuple[int, ...],
    rng: np.random.Generator,
    deadline: Deadline,
    max_runs: int,
    noiseless: bool = False,
) -> DeepFinished:
    """The best network of these widths; on samples known to be noiseless, runs that agree do not end the search."""
    n_numbers, total = problem.n_parameters(widths), problem.total
    samples = problem.samples(SEARCH_LOAD * n_numbers, rng)
    if samples.Y.size <= n_numbers:
        raise UnsolvableError(
            f"A network of {n_numbers} parameters needs more equations than that. Got {samples.Y.size} instead."
        )
    best: Settled | None = None
    runs, start_of_best, agreed = 0, 0, False
    for candidate in candidates(samples, widths, rng, deadline):
        runs += 1
        problem.progress("search", candidate.fit.relative_rss)
        # With its skips a student fits its samples at least as well as the network that it leads to.
        if best is None or candidate.fit.rss <= model_rss(samples.source, best.fit.network):
            settled = settle_deep(problem, candidate.fit, deadline)
            problem.progress("settle", settled.fit.rss / total)
            if best is not None and candidate.start != start_of_best:
                agreed = abs(settled.fit.rss - best.fit.rss) <= SAME * best.fit.rss / problem.n_equations
                agreed &= settled.fit.rss / total <= NOISE * candidate.wide_error
            if best is None or settled.fit.rss < best.fit.rss:
                best, start_of_best = settled, candidate.start
        if best.fit.rss < EXACT * total or (agreed and not noiseless) or runs >= max_runs or deadline.passed:
            break
    assert best is not None
    return _finished(best, total, runs, agreed)


def _find_widths(problem: Problem, depth: int, rng: np.random.Generator, deadline: Deadline) -> DeepFinished:
    """The narrowest widths that solve the problem, from a bound above.

    One unit less is tried on the network that there is, and afresh where that is of no use: a network may be exact and
    have a spare unit that no small change sets free.
    """
    samples = problem.samples(SEARCH_SAMPLES, rng)
    guess = guess_widths(samples, depth, rng, deadline)
    problem.progress(f"widths {guess.widths}", guess.fit.relative_rss)
    best = _solve(problem, guess.widths, rng, deadline, MAX_RUNS, guess.fit.relative_rss < EXACT)
    runs, tried = best.runs, set[tuple[int, ...]]()
    while not deadline.passed:
        fewer = [widths for widths in _one_unit_less(best.network.n_hidden) if widths not in tried]
        if not fewer:
            break
        others = [_shrunk(problem, samples, best, widths, deadline) for widths in fewer]
        other = min(others, key=lambda found: _criterion(problem, found))
        if _criterion(problem, other) >= _criterion(problem, best):
            max_runs = FRESH_RUNS if best.determined else MAX_RUNS
            other = _solve(problem, fewer[0], rng, deadline, max_runs, best.exact)
            tried.add(fewer[0])
        problem.progress(f"widths {other.network.n_hidden}", other.relative_rss)
        runs += other.runs
        if _criterion(problem, other) < _criterion(problem, best):
            best = other
    note = f"The widths {best.network.n_hidden} are the narrowest found to solve the problem."
    if deadline.passed:
        note = f"Time ran out before narrower widths than {best.network.n_hidden} were ruled out."
    elif not guess.clear:
        note = "No width showed the planes of a first layer, so the widths are a guess."
    return replace(best, runs=runs, notes=(note, *best.notes))


def _shrunk(
    problem: Problem, samples: Samples, found: DeepFinished, widths: tuple[int, ...], deadline: Deadline
) -> DeepFinished:
    """The network with the units that are worth least taken away, fitted anew."""
    start = DeepDescent(with_skips(found.network, problem.bias), np.inf, samples.total, 0)
    fit = narrow(samples, start, widths, deadline)
    fit = descend_deep(samples.source, fit.student, samples.total, JOINT, deadline)
    return _finished(settle_deep(problem, fit, deadline), problem.total, 1, False)


def _criterion(problem: Problem, found: DeepFinished) -> float:
    return problem.criterion(found.relative_rss, found.network.n_hidden)


def _one_unit_less(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to take one unit away, the top layer first."""
    return [
        tuple(k - (layer == chosen) for layer, k in enumerate(widths))
        for chosen in range(len(widths) - 1, -1, -1)
        if widths[chosen] > 1
    ]


def _finished(best: Settled, total: float, runs: int, agreed: bool) -> DeepFinished:
    fit, notes = best.fit, []
    relative = fit.rss / total
    if relative >= EXACT and agreed:
        notes.append("Two runs ended at the same least-squares optimum.")
    elif relative >= EXACT:
        notes.append(f"No two of the runs ended at the same optimum ({runs} made), so a better one may exist.")
    if fit.weakest < UNDETERMINED:
        notes.append(
            "Some weights are open: too few samples see a unit, or there are more units than the function needs."
        )
    if best.sign_choices != 1:
        notes.append(f"The signs of the units are open: {best.sign_choices or 'an unknown number of'} choices fit.")
    determined = fit.weakest >= UNDETERMINED
    return DeepFinished(
        fit.network, relative, fit.converged, best.sign_choices, tuple(notes), runs, determined, int(agreed)
    )


def _check(widths: tuple[int, ...] | None, activation: Activation, depth: int) -> None:
    if activation.homogeneity != 1.0 or not activation.odd_slope:
        raise ValueError(
            f"finish_deep expected relu or leaky relu, whose signs the skips carry. Got {activation} instead."
        )
    if widths is None and depth < 1:
        raise ValueError(f"depth expected at least one hidden layer. Got {depth} instead.")
    if widths is not None and (len(widths) < 1 or min(widths) < 1):
        raise ValueError(f"widths expected at least one unit in every hidden layer. Got {widths} instead.")
