"""Students with skips at the teacher's widths, found layer by layer.

1. A student wider than the teacher is warmed up by Adam and fitted by Gauss–Newton steps. If it is stuck, the next one
   keeps the more useful half to all of the teacher's number of units in every layer and has fresh ones for the rest.
2. Once the planes of the first layer are right, the k₁ largest jumps stand clear of the others, long before the
   residual is small. The other units of that layer are taken away.
3. The layers above are narrowed too. Where that costs, as it does where the wide fit has made one unit out of several,
   they are found anew: the same problem with one layer less, on the inputs (h₁, x) whitened.
4. All layers are fitted together, in double precision and to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np

from neurecover.activations import Activation
from neurecover.data import ArraySource, Source, Whitening
from neurecover.models.deep_student import DeepStudent
from neurecover.refine.deep_adam import warm_up
from neurecover.refine.deep_descent import DeepDescent, Effort, descend_deep
from neurecover.refine.deep_narrow import with_fresh_units, without, worth
from neurecover.refine.deep_planes import first_planes
from neurecover.solve import Deadline

WIDER = 1.5  # units of the student per unit of the teacher, and one more
LOAD = 0.5  # parameters of the student per equation, at the most
ADAM_STEPS = 2500
WIDE = Effort(iterations=50, target=1e-18, patience=10, slow=0.9, single=True)
REFIT = Effort(iterations=6, target=1e-18, single=True)
JOINT = Effort(iterations=100, patience=10, slow=0.98)
PATIENCE = 6  # hops without progress before a fresh start
PROGRESS = 0.95
CLEAR = 2.5  # ratio of the smallest jump that is kept to the largest that is not
GOOD = 1e-6  # relative Σ r² at which the planes are tried whatever their jumps
FREE = 2.0  # how much of the noise a parameter takes up, at the most
UPPER_TRIES = 6
AGREE = 1e-2  # of Σ r²: two fits that are closer are taken for the same


@dataclass(frozen=True)
class Samples:
    """X (n, d) whitened and Y (n, p) in memory, and the total that residuals are compared with."""

    X: np.ndarray
    Y: np.ndarray
    total: float
    bias: bool
    activation: Activation

    @property
    def source(self) -> Source:
        return ArraySource(self.X, self.Y)

    def wider(self, widths: tuple[int, ...]) -> tuple[int, ...]:
        """The widths of a student for a teacher of these widths: WIDER times, or as many as LOAD leaves room for."""
        for factor in np.linspace(WIDER, 1.0, 6):
            wide = tuple(int(np.ceil(factor * k)) + (factor > 1.0) for k in widths)
            columns, size = self.X.shape[1] + self.bias, 0
            for m in wide:
                size, columns = size + m * columns, columns + m
            if size + columns * self.Y.shape[1] <= LOAD * self.Y.size:
                break
        return wide

    def empty(self, depth: int) -> DeepStudent:
        """A student without units."""
        D = self.X.shape[1] + self.bias
        return DeepStudent(self.activation, (np.zeros((0, D)),) * depth, np.zeros((D, self.Y.shape[1])), self.bias)


@dataclass(frozen=True)
class Candidate:
    """A student at the teacher's widths, and the fresh start that it comes from: those of one start are relatives.

    wide_error is the least mean square error of a wide student so far, per degree of freedom and over the mean of y².
    Noise cannot be much larger.
    """

    fit: DeepDescent
    start: int
    wide_error: float


def candidates(
    samples: Samples, widths: tuple[int, ...], rng: np.random.Generator, deadline: Deadline
) -> Iterator[Candidate]:
    """Students of these widths without end, each fitted as far as it goes.

    A start is given up when it leads to the same student twice, or when its hops gain nothing any more.
    """
    error = np.inf
    for start in count():
        best: DeepDescent | None = None
        found: list[float] = []
        for fit in wide_fits(samples, widths, rng, deadline):
            error = min(error, _error(samples, fit))
            if best is None or fit.rss < best.rss:
                best = fit
            if len(widths) > 1 and not planes_are_clear(samples, fit, widths[0]):
                continue
            completed = complete(samples, fit, widths, rng, deadline)
            yield Candidate(completed, start, error)
            if any(abs(completed.rss - rss) <= AGREE * rss for rss in found):
                break
            found.append(completed.rss)
        if not found:
            assert best is not None
            yield Candidate(complete(samples, best, widths, rng, deadline), start, error)


def _error(samples: Samples, fit: DeepDescent) -> float:
    n_parameters = fit.student.n_hidden_weights + fit.student.readout.size
    return fit.relative_rss * samples.Y.size / max(samples.Y.size - n_parameters, 1)


def wide_fits(
    samples: Samples, widths: tuple[int, ...], rng: np.random.Generator, deadline: Deadline
) -> Iterator[DeepDescent]:
    """One fresh wide student and hops from the best so far, until PATIENCE of them in a row gain nothing."""
    wide = samples.wider(widths)
    best = wide_fit(samples, with_fresh_units(samples.empty(len(widths)), wide, rng), rng, deadline)
    yield best
    failures = 0
    while failures < PATIENCE and not deadline.passed:
        keep = tuple(int(rng.integers((k + 1) // 2, k + 1)) for k in widths)
        kept = narrow(samples, best, keep, deadline, replace(REFIT, iterations=0)).student
        fit = wide_fit(samples, with_fresh_units(kept, wide, rng), rng, deadline)
        yield fit
        failures = 0 if fit.rss < PROGRESS * best.rss else failures + 1
        best = min(best, fit, key=lambda fit: fit.rss)


def wide_fit(samples: Samples, start: DeepStudent, rng: np.random.Generator, deadline: Deadline) -> DeepDescent:
    """Adam, then Gauss–Newton steps. One layer needs no Adam."""
    if start.depth > 1:
        centre = samples.Y.mean(axis=0) if samples.bias else 0.0
        size = np.sqrt(samples.total / samples.Y.size)
        readout, top = start.readout / size, start.widths[-1]
        if not readout[:top].any():
            readout[:top] = rng.standard_normal((top, start.n_outputs)) / np.sqrt(top)
        start = warm_up(
            samples.X, (samples.Y - centre) / size, replace(start, readout=readout), ADAM_STEPS, rng, deadline
        )
    start = replace(start, readout=np.zeros_like(start.readout))
    return descend_deep(samples.source, start, samples.total, WIDE, deadline)


def planes_are_clear(samples: Samples, fit: DeepDescent, n_planes: int) -> bool:
    """Whether the jumps say which planes are the first layer's, or the fit is so good that they must be there."""
    if fit.relative_rss < GOOD:
        return True
    jumps = first_planes(fit.student, samples.X).jumps
    return len(jumps) >= n_planes and (len(jumps) == n_planes or jumps[n_planes - 1] > CLEAR * jumps[n_planes])


def complete(
    samples: Samples, fit: DeepDescent, widths: tuple[int, ...], rng: np.random.Generator, deadline: Deadline
) -> DeepDescent:
    """From a wide fit to a student of these widths: the first layer, the ones above, all together."""
    source, total = samples.source, samples.total
    lower = narrow(samples, fit, (widths[0], *fit.student.widths[1:]), deadline)
    direct = descend_deep(source, narrow(samples, lower, widths, deadline).student, total, JOINT, deadline)
    if len(widths) == 1 or direct.rss <= _allowed(samples, lower, widths):
        return direct
    anew = descend_deep(source, on_planes(samples, lower, widths, rng, deadline).student, total, JOINT, deadline)
    return min(direct, anew, key=lambda fit: fit.rss)


def _allowed(samples: Samples, lower: DeepDescent, widths: tuple[int, ...]) -> float:
    """Σ r² of a student of these widths that lost nothing but parameters, each with FREE times its share of noise."""
    spare = sum(lower.student.widths) - sum(widths)
    columns = len(lower.student.readout) + samples.Y.shape[1]
    return max(lower.rss * (1.0 + FREE * spare * columns / samples.Y.size), WIDE.target * lower.total)


def on_planes(
    samples: Samples, lower: DeepDescent, widths: tuple[int, ...], rng: np.random.Generator, deadline: Deadline
) -> DeepDescent:
    """The layers above a given first one, found anew."""
    V = lower.student.hidden[0]
    d = samples.X.shape[1]
    Z = samples.X @ V[:, :d].T + (V[:, d] if samples.bias else 0.0)
    features = np.hstack([samples.activation(Z), samples.X])
    whitening = _whitening(features, samples.bias)
    inner = replace(samples, X=whitening.inputs(features))
    best: DeepDescent | None = None
    for candidate in islice(candidates(inner, widths[1:], rng, deadline), UPPER_TRIES):
        upper = candidate.fit
        agreed = best is not None and abs(upper.rss - best.rss) <= AGREE * best.rss
        if best is None or upper.rss < best.rss:
            best = upper
        if agreed or best.rss <= _allowed(samples, lower, widths) or deadline.passed:
            break
    assert best is not None
    above = _unwhitened(best.student, whitening)
    joined = replace(above, hidden=(V, *above.hidden))
    return descend_deep(samples.source, joined, samples.total, REFIT, deadline)


def narrow(
    samples: Samples, fit: DeepDescent, widths: tuple[int, ...], deadline: Deadline, effort: Effort = REFIT
) -> DeepDescent:
    """Units that are worth least taken away one by one, with a few steps after each."""
    while True:
        student = fit.student
        surplus = [layer for layer, k in enumerate(widths) if student.widths[layer] > k]
        if not surplus:
            return fit
        worths = {layer: worth(student, samples.X, layer) for layer in surplus}
        layer = min(surplus, key=lambda layer: float(worths[layer].cost.min()))
        unit = int(np.argmin(worths[layer].cost))
        student = without(student, layer, unit, worths[layer].regression[:, unit])
        fit = descend_deep(samples.source, student, samples.total, effort, deadline)


def _whitening(features: np.ndarray, bias: bool) -> Whitening:
    """Zero mean and unit covariance; without biases a constant cannot be taken out, and second moments stand in."""
    mean = features.mean(axis=0) if bias else np.zeros(features.shape[1])
    centred = features - mean
    return Whitening.of(mean, centred.T @ centred / len(features))


def _unwhitened(student: DeepStudent, whitening: Whitening) -> DeepStudent:
    """The same function of the inputs before whitening."""
    B = whitening.unit_map() if student.bias else whitening.matrix
    r = B.shape[1]

    def mapped(rows: np.ndarray) -> np.ndarray:
        return np.hstack([rows[:, :-r], rows[:, -r:] @ B.T])

    return replace(student, hidden=tuple(mapped(V) for V in student.hidden), readout=mapped(student.readout.T).T)
