"""A network of several hidden layers from samples: search with skips, signs, fit without skips.

Without noise the first network whose residual is at the level of rounding ends the search. With noise nothing marks the
optimum, so the search ends when two runs arrive at the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation, get
from neurecover.data import ArraySource, Source, reduce, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.refine.deep_descent import DeepDescent
from neurecover.refine.deep_joint import JointFit, fit_network, network_rss
from neurecover.refine.deep_search import Samples, candidates
from neurecover.refine.deep_signs import count_signs, without_skips
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

EXACT = 1e-20  # relative Σ r² below which a fit is taken for noiseless
MAX_RUNS = 24
SEARCH_LOAD = 60  # samples per parameter of the network that the search looks at; the last fits see all
SAME = 0.1  # of one degree of freedom's share of Σ r²: two optima closer than this are one
DOUBT = 10.0  # degrees of freedom: odds of e⁵ between two choices of signs under Gaussian noise
FITTED = 3  # choices of signs fitted to the end on noisy samples
UNDETERMINED = 1e-13  # smallest eigenvalue of the scaled information at which a weight is left open

Progress = Callable[[str, float], object]


@dataclass(frozen=True)
class DeepFinished:
    """The network at the end, and how it came about.

    relative_rss is Σ r² over Σ (y − ȳ)², or over Σ y² without biases. converged says that no step lowers Σ r² further.
    sign_choices counts the sign assignments that fit equally well, or as well as noise can tell: 1 when the signs are
    determined, 0 when there are too many to count. runs counts the students taken to the end. notes are plain sentences.
    """

    network: DeepNetwork
    relative_rss: float
    converged: bool
    sign_choices: int
    notes: tuple[str, ...]
    runs: int

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
    if widths is None:
        raise NotImplementedError
    return solve_widths(source, widths, activation, rng, deadline, bias, progress or (lambda stage, rss: None))


def solve_widths(
    source: Source,
    widths: tuple[int, ...],
    activation: Activation,
    rng: np.random.Generator,
    deadline: Deadline,
    bias: bool,
    progress: Progress,
    max_runs: int = MAX_RUNS,
) -> DeepFinished:
    """The best network of these widths."""
    samples = _samples(source, n_parameters(source, widths, bias), activation, bias, rng)
    total = output_total(source, bias)
    if not total > 0:
        raise UnsolvableError("The outputs are the same for every sample, so no weight can be seen in them.")
    best: _Settled | None = None
    share = SAME / (source.n_outputs * (source.n_samples or len(samples.X)))
    runs = agreements = 0
    for candidate in candidates(samples, widths, rng, deadline):
        runs += 1
        progress("search", candidate.relative_rss)
        settled = _settle(source, candidate, total, deadline)
        progress("settle", settled.fit.rss / total)
        if best is not None and abs(settled.fit.rss - best.fit.rss) <= share * best.fit.rss:
            agreements += 1
        elif best is None or settled.fit.rss < best.fit.rss:
            agreements = 0
        if best is None or settled.fit.rss < best.fit.rss:
            best = settled
        if best.fit.rss < EXACT * total or agreements or runs >= max_runs or deadline.passed:
            break
    assert best is not None
    return _finished(best, total, runs, agreements)


@dataclass(frozen=True)
class _Settled:
    fit: JointFit
    sign_choices: int


def _settle(source: Source, candidate: DeepDescent, total: float, deadline: Deadline) -> _Settled:
    """The student as a network without skips, fitted on all samples.

    Without noise the equations of the signs decide. With noise the likeliest signs are tried on the samples, and the
    best few are fitted to the end.
    """
    exact = candidate.relative_rss < EXACT
    student = candidate.student
    networks = without_skips(student, exact)
    if len(networks) > FITTED:
        networks = sorted(networks, key=lambda network: network_rss(source, network))[:FITTED]
    fits = [fit_network(source, network, total, student.bias, deadline) for network in networks]
    best = min(fits, key=lambda fit: fit.rss)
    if best.rss < EXACT * total:
        return _Settled(best, count_signs(best.network))
    N = source.n_outputs * (source.n_samples or 1)
    rivals = {
        round(float(np.log(fit.rss / best.rss)) * N / SAME) for fit in fits if fit.rss <= best.rss * (1 + DOUBT / N)
    }
    return _Settled(best, len(rivals))


def _finished(best: _Settled, total: float, runs: int, agreements: int) -> DeepFinished:
    fit, notes = best.fit, []
    relative = fit.rss / total
    if relative >= EXACT and agreements:
        notes.append("Two runs ended at the same least-squares optimum.")
    elif relative >= EXACT:
        notes.append(f"No two of {runs} runs ended at the same optimum, so a better one may exist.")
    if fit.weakest < UNDETERMINED:
        notes.append("These samples leave some weights open: the network may have more units than the function needs.")
    if best.sign_choices != 1:
        notes.append(f"The signs of the units are open: {best.sign_choices or 'an unknown number of'} choices fit.")
    return DeepFinished(fit.network, relative, fit.converged, best.sign_choices, tuple(notes), runs)


def n_parameters(source: Source, widths: tuple[int, ...], bias: bool) -> int:
    """How many numbers a network of these widths has."""
    sizes = (source.n_inputs, *widths, source.n_outputs)
    return sum((below + bias) * above for below, above in zip(sizes[:-1], sizes[1:]))


def output_total(source: Source, bias: bool) -> float:
    """Σ (y − ȳ)² over samples and outputs, or Σ y² for a network without constants."""
    p = source.n_outputs

    def about(origin: np.ndarray) -> Residuals:
        return reduce(source, Residuals(lambda X: np.zeros((len(X), p)), p, origin=origin))

    origin = np.zeros(p)
    if bias:
        origin = about(origin).average("output")
    return float(about(origin).sums["output_squared"].sum())


def _samples(source: Source, n_numbers: int, activation: Activation, bias: bool, rng: np.random.Generator) -> Samples:
    """As many samples in memory as the search needs."""
    wanted = SEARCH_LOAD * n_numbers
    seed = int(rng.integers(2**31))
    chosen = source if source.n_samples is not None and source.n_samples <= wanted else subsample(source, wanted, seed)
    X, Y = chosen.collect()
    if Y.size <= n_numbers:
        raise UnsolvableError(
            f"A network of {n_numbers} parameters needs more equations than that. Got {Y.size} instead."
        )
    return Samples(X, Y, output_total(ArraySource(X, Y), bias), bias, activation)


def _check(widths: tuple[int, ...] | None, activation: Activation, depth: int) -> None:
    if activation.homogeneity != 1.0 or not activation.odd_slope:
        raise ValueError(
            f"finish_deep expected relu or leaky relu, whose signs the skips carry. Got {activation} instead."
        )
    if widths is None and depth < 1:
        raise ValueError(f"depth expected at least one hidden layer. Got {depth} instead.")
    if widths is not None and (len(widths) < 1 or min(widths) < 1):
        raise ValueError(f"widths expected at least one unit in every hidden layer. Got {widths} instead.")
