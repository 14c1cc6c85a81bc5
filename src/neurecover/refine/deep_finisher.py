"""A network of several hidden layers from samples: search with skips, signs, fit without skips.

The search looks at a part of the samples; the network that it ends at is then fitted to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.data import Source
from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.refine.deep_descent import DeepDescent, descend_deep
from neurecover.refine.deep_faint import with_faint_units_sought
from neurecover.refine.deep_problem import EXACT, Problem, Progress, criterion, n_parameters
from neurecover.refine.deep_runs import MAX_RUNS, Runs, search
from neurecover.refine.deep_search import JOINT, Samples, narrow
from neurecover.refine.deep_settling import settle_deep, settled_on
from neurecover.refine.deep_signs import with_skips
from neurecover.refine.deep_widths import guess_widths
from neurecover.solve import Deadline

FRESH_RUNS = 3  # students taken to the end to rule a narrower network out
SEARCH_LOAD = 60  # samples per parameter that the search at given widths looks at; the last fits see all
SEARCH_SAMPLES = 20_000  # that the search for the widths looks at
UNDETERMINED = 1e-13  # smallest eigenvalue of the scaled information at which a weight is left open


@dataclass(frozen=True)
class DeepFinished:
    """The network at the end, and how it came about.

    relative_rss is Σ r² over Σ (y − ȳ)², or over Σ y² without biases. converged says that no step lowers Σ r² further.
    sign_choices counts the sign assignments that fit equally well, or as well as noise can tell: 1 when the signs are
    determined, 0 when there are too many to count. runs counts the students taken to the end, agreements those that
    ended at the optimum of the best; notes are sentences. determined says that the samples see every weight; an
    over-wide network has weights that they do not. unrivalled is False where another faint unit does as well.
    """

    network: DeepNetwork
    relative_rss: float
    converged: bool
    sign_choices: int
    notes: tuple[str, ...]
    runs: int
    determined: bool
    agreements: int = 0
    unrivalled: bool = True

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
        raise UnsolvableError(
            "The outputs are the same for every sample and show no weight: give inputs that spread wider."
        )
    if widths is None:
        return _find_widths(problem, depth, rng, deadline)
    size = n_parameters(source.n_inputs, tuple(widths), source.n_outputs, bias)
    samples = problem.samples(SEARCH_LOAD * size, rng)
    runs = search(problem, samples, tuple(widths), rng, deadline)
    return _finished(with_faint_units_sought(problem, runs, rng, deadline))


def _find_widths(problem: Problem, depth: int, rng: np.random.Generator, deadline: Deadline) -> DeepFinished:
    """The narrowest widths that solve the problem, from a bound above.

    One unit less is tried on the network that there is, and afresh where that is of no use: a network may be exact and
    have a spare unit that no small change sets free.
    """
    samples = problem.samples(SEARCH_SAMPLES, rng)
    guess = guess_widths(samples, depth, rng, deadline)
    tell, whole = problem.progress, problem.part(samples)
    tell(f"widths {guess.widths}", guess.fit.relative_rss)
    best = search(whole, samples, guess.widths, rng, deadline, noiseless=guess.fit.relative_rss < EXACT)
    n_runs, tried = best.n_runs, set[tuple[int, ...]]()
    while not deadline.passed:
        fewer = [widths for widths in _one_unit_less(best.widths) if widths not in tried]
        if not fewer:
            break
        others = [_shrunk(samples, best, widths, deadline) for widths in fewer]
        other = min(others, key=lambda found: _criterion(samples, found))
        if _criterion(samples, other) >= _criterion(samples, best):
            max_runs = FRESH_RUNS if best.best.fit.weakest >= UNDETERMINED else MAX_RUNS
            other = search(whole, samples, fewer[0], rng, deadline, max_runs, best.exact)
            tried.add(fewer[0])
        tell(f"widths {other.widths}", other.relative_rss)
        n_runs += other.n_runs
        if _criterion(samples, other) < _criterion(samples, best):
            best = other
    note = f"The widths {best.widths} are the narrowest found to solve the problem."
    if deadline.passed:
        note = f"Time ran out before narrower widths than {best.widths} were ruled out."
    elif not guess.clear:
        note = "No width showed the planes of a first layer, so the widths are a guess."
    if len(samples.X) < problem.n_samples:
        settled = settled_on(problem.source, best.best, problem.total, problem.bias, deadline)
        best = replace(best, best=settled, relative_rss=settled.fit.rss / problem.total)
    best = with_faint_units_sought(problem, best, rng, deadline)
    finished = _finished(replace(best, n_runs=n_runs))
    return replace(finished, notes=(note, *finished.notes))


def _shrunk(samples: Samples, found: Runs, widths: tuple[int, ...], deadline: Deadline) -> Runs:
    """The network with the units that are worth least taken away, fitted anew."""
    start = DeepDescent(with_skips(found.best.fit.network, samples.bias), np.inf, samples.total, 0)
    fit = narrow(samples, start, widths, deadline)
    fit = descend_deep(samples.source, fit.student, samples.total, JOINT, deadline)
    settled = settle_deep(samples, fit, deadline)
    return Runs(settled, settled.fit.rss / samples.total, 1, False)


def _criterion(samples: Samples, found: Runs) -> float:
    return criterion(found.relative_rss, found.best.fit.network.n_parameters, samples.Y.size)


def _one_unit_less(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to take one unit away, the top layer first."""
    return [
        tuple(k - (layer == chosen) for layer, k in enumerate(widths))
        for chosen in range(len(widths) - 1, -1, -1)
        if widths[chosen] > 1
    ]


def _finished(found: Runs) -> DeepFinished:
    best, runs, relative, notes = found.best, found.n_runs, found.relative_rss, []
    fit = best.fit
    if relative >= EXACT and found.agreed:
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
        fit.network,
        relative,
        fit.converged,
        best.sign_choices,
        tuple(notes),
        runs,
        determined,
        int(found.agreed),
        found.unrivalled,
    )


def _check(widths: tuple[int, ...] | None, activation: Activation, depth: int) -> None:
    if activation.homogeneity != 1.0 or not activation.odd_slope:
        raise ValueError(
            f"Several hidden layers are recovered for relu and leaky_relu units. Got {activation} instead; one hidden "
            "layer takes any activation."
        )
    if widths is None and depth < 1:
        raise ValueError(f"depth expected at least one hidden layer. Got {depth} instead.")
    if widths is not None and (len(widths) < 1 or min(widths) < 1):
        raise ValueError(f"widths expected at least one unit in every hidden layer. Got {widths} instead.")
