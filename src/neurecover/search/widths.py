"""The widths of the hidden layers, where nobody gives them.

Wide students of m units in every layer are fitted for m = 6, 12, 24, … until one is exact, until the costs of its first
layer's units fall into two groups, the planes of the teacher and the spare ones, or until twice the units are not worth
it. Then units are taken away one at a time. Worth is the Bayesian information criterion,

    N·log Σr² + (parameters)·log N,        Σr² no less than what counts as exact,

and its least value on that path bounds the widths from above: an over-wide fit may be exact and keep a unit that cannot
be taken away. So the network at those widths is tried with one unit less, and afresh where that is of no use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from neurecover.fit.dense import dense_system
from neurecover.fit.descent import Fit, descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import as_network, as_student
from neurecover.search.candidates import Candidate, without_superfluous
from neurecover.search.find import Runs, search, settled_on
from neurecover.search.race import Setting, n_weights, race
from neurecover.search.settle import Settled
from neurecover.search.units import narrow, one_less, worth

FIRST = 6  # units per layer to begin with
FITS, HOPS = 3, 10  # wide fits of one size before the next, for one layer and for several
SPLIT = 16.0  # ratio of two neighbouring costs that divides planes from spare units: jumps enter squared
FRESH_RUNS = 3  # candidates that rule a narrower network out
OPEN = 1e-12  # eigenvalue of the scaled curvature at which a direction is left open
MOST_ROWS = 20_000  # that the search for several widths looks at
FALLEN, LOST = 4.0, 1e-2  # Σr² over the best, and over Σy², at which taking units away is given up


@dataclass(frozen=True, eq=False)
class Guess:
    """A wide fit with its surplus units gone, whether planes or rounding showed how many there are, and what the last
    unit that went was worth in units of its parameters' noise.
    """

    fit: Fit
    clear: bool
    last_drop: float
    n_fits: int


def find_network(samples: Samples, setting: Setting, depth: int) -> tuple[Runs, str]:
    """Return the narrowest network that solves the problem, as far as was tried, and a sentence about its widths."""
    part = samples if depth == 1 else samples.some(MOST_ROWS, setting.rng)
    guess = guess_widths(part, setting, depth)
    setting.tell(f"widths {guess.fit.student.widths}", guess.fit.relative)
    exact = part.level(setting.task.level)
    first = Candidate(guess.fit, guess.fit, -1, guess.n_fits, guess.fit.point.share)
    noiseless = guess.fit.relative < exact
    best = search(part, setting, guess.fit.student.widths, noiseless=noiseless, first=first)
    best = replace(best, last_drop=guess.last_drop)
    best = _one_unit_less(part, setting, best)
    note = f"The widths {best.fit.student.widths} are the narrowest found to solve the problem."
    if setting.deadline.passed:
        note = f"Time ran out before narrower widths than {best.fit.student.widths} were ruled out."
    elif not guess.clear:
        note = "No width showed the planes of a first layer, so the widths are a guess."
    if part is not samples:
        again = settled_on(samples, part, replace(first, fit=best.fit), setting)
        best = replace(best, best=again, exact=again.fit.relative < samples.level(setting.task.level))
    return best, note


def _one_unit_less(samples: Samples, setting: Setting, best: Runs) -> Runs:
    """Try narrower networks as long as the criterion says so."""
    tried = set[tuple[int, ...]]()
    while not setting.deadline.passed:
        widths = best.fit.student.widths
        fewer = [other for other in _fewer(widths) if other not in tried]
        if not fewer:
            break
        others = [_shrunk(samples, setting, best, other) for other in fewer]
        other = min(others, key=lambda runs: criterion(runs.fit, setting))
        if criterion(other.fit, setting) >= criterion(best.fit, setting):
            tried.add(fewer[0])
            if len(widths) == 1:
                break
            runs = FRESH_RUNS if _n_open(best.fit) == 0 else None
            other = search(samples, setting, fewer[0], runs, best.exact)
        setting.tell(f"widths {other.fit.student.widths}", other.fit.relative)
        count = best.n_runs + other.n_runs
        if criterion(other.fit, setting) < criterion(best.fit, setting):
            best = replace(other, last_drop=_worth(best.fit, other.fit, setting))
        best = replace(best, n_runs=count)
    return best


def _shrunk(samples: Samples, setting: Setting, runs: Runs, widths: tuple[int, ...]) -> Runs:
    """Return the network with the units that are worth least taken away, fitted anew."""
    options, deadline = setting.options.fit, setting.deadline
    student = runs.fit.student
    if not student.skips and (setting.task.can_be_affine or student.depth > 1):
        student = as_student(as_network(student), bool(student.bias), skips=True)
    point = narrow(Point(samples, student, options, deadline), widths, 6)[0]
    fit = descend(samples, point.student, options, deadline, steps=100, slow=None if runs.exact else 0.98)
    # With its skips a student fits at least as well as the network that it leads to.
    least = criterion(fit, setting) + (setting.task.n_parameters(widths) - fit.student.n_parameters) * np.log(
        samples.n_equations
    )
    if least >= criterion(runs.fit, setting):
        return Runs(Settled(fit, (), 0), 1, runs.n_fits, 0, False)
    settled = settled_on(samples, samples, Candidate(fit, fit, -1, 0, fit.point.share), setting)
    return Runs(settled, 1, runs.n_fits, 0, settled.fit.relative < samples.level(setting.task.level))


def _fewer(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return every way to take one unit away, the top layer first."""
    return [
        tuple(k - (layer == chosen) for layer, k in enumerate(widths))
        for chosen in range(len(widths) - 1, -1, -1)
        if widths[chosen] > 1
    ]


def criterion(fit: Fit, setting: Setting) -> float:
    """Return N·log Σr² + (parameters)·log N, all exact fits counting alike; less is better [Schwarz 1978]."""
    samples = fit.point.samples
    N, floor = samples.n_equations, samples.level(setting.task.level)
    return float(N * np.log(max(fit.relative, floor)) + fit.student.n_parameters * np.log(N))


def _worth(before: Fit, after: Fit, setting: Setting) -> float:
    """Return what the unit that went was worth: N·log(Σr² after / before) per parameter it had."""
    samples = after.point.samples
    floor = samples.level(setting.task.level)
    grown = np.log(max(after.relative, floor) / max(before.relative, floor))
    return float(samples.n_equations * grown / max(before.student.n_parameters - after.student.n_parameters, 1))


def guess_widths(samples: Samples, setting: Setting, depth: int) -> Guess:
    """Return a bound of the widths from above, with the fit that shows it."""
    best: Fit | None = None
    exact, n_fits = samples.level(setting.task.level), 0
    enough = max(exact, setting.options.nearly) if depth == 1 else exact
    for m in _sizes(samples, setting, depth):
        champion: Fit | None = None
        large = m * samples.F.shape[1] > setting.options.fit.dense
        target = enough if large else exact
        for _, fit in islice(race(samples, setting, (m,) * depth, (m,) * depth, 1e-26), FITS if depth == 1 else HOPS):
            n_fits += 1
            planes = None if depth == 1 else n_planes(fit.point)
            if planes is not None or fit.relative < target:
                return _slimmed(samples, setting, fit, planes or m, n_fits)
            champion = fit if champion is None or fit.rss < champion.rss else champion
        assert champion is not None
        if best is not None and depth == 1 and criterion(champion, setting) >= criterion(best, setting):
            break
        if best is None or champion.rss < best.rss:
            best = champion
        if setting.deadline.passed:
            break
    assert best is not None
    slim = _slimmed(samples, setting, best, best.student.widths[0], n_fits)
    return replace(slim, clear=depth == 1)


def _sizes(samples: Samples, setting: Setting, depth: int) -> Iterator[int]:
    """Yield widths per layer, each twice the last, as long as there are samples for such students."""
    m, p = FIRST, samples.Y.shape[1]
    most = setting.options.load * samples.n_equations
    while m > 1 and n_weights(samples.F.shape[1], (m,) * depth, p)[1] > most:
        m -= 1
    yield m
    while n_weights(samples.F.shape[1], (2 * m,) * depth, p)[1] <= most:
        m *= 2
        yield m


def n_planes(point: Point) -> int | None:
    """Return how many units of the first layer stand above the widest gap between their costs, if it is wide.

    Spare units make up for one another, so all below the gap together cost no more than the fit has left over.
    """
    costs, left_over = [], point.loss
    while point.student.widths[0] > 1:
        cost, student = one_less(point, [0])
        costs.append(cost)
        point = Point(point.samples, student, point.options, point.deadline)
    costs.append(float(worth(point, 0).cost.min()))
    steps = np.maximum(np.array(costs), 1e-18 * max(costs))
    ratios = steps[1:] / np.maximum.accumulate(steps)[:-1]
    ratios[np.cumsum(steps)[:-1] > max(left_over, 1e-12 * max(costs))] = 0.0
    widest = int(np.argmax(ratios)) if len(ratios) else 0
    return len(steps) - widest - 1 if len(ratios) and ratios[widest] >= SPLIT else None


def slim(fit: Fit, setting: Setting) -> Fit:
    """Return an exact fit with as few units as the criterion leaves it."""
    return _slimmed(fit.point.samples, setting, fit, fit.student.widths[0], 1).fit


def _slimmed(samples: Samples, setting: Setting, fit: Fit, first: int, n_fits: int) -> Guess:
    """Narrow the first layer to `first` units, then all of them to the least criterion."""
    options, deadline = setting.options.fit, setting.deadline
    depth = fit.student.depth
    if first < fit.student.widths[0]:
        point = narrow(fit.point, (first, *fit.student.widths[1:]), 6)[0]
        fit = descend(samples, point.student, options, deadline, steps=100, slow=0.98)
    best, last_drop = fit, 0.0
    if depth == 1:
        fit = best = without_superfluous(fit, setting)
    while sum(fit.student.widths) > depth and not deadline.passed:
        fewer = _one_less(fit, setting)
        if criterion(fewer, setting) <= criterion(best, setting):
            last_drop, best = _worth(best, fewer, setting), fewer
        elif depth == 1 or fewer.rss > FALLEN * best.rss + LOST * samples.total:
            break
        fit = fewer
    return Guess(best, True, last_drop, n_fits)


def _one_less(fit: Fit, setting: Setting) -> Fit:
    """Return the fit without the unit of all layers that is worth least."""
    widths = fit.student.widths
    _, student = one_less(fit.point, [layer for layer, m in enumerate(widths) if m > 1])
    steps = None if len(widths) == 1 else 30
    return descend(fit.point.samples, student, setting.options.fit, setting.deadline, steps=steps)


def _n_open(fit: Fit) -> int:
    """Return how many directions of the weights the samples leave open, the scales of units apart."""
    if fit.student.size > fit.point.options.dense_deep:
        return 0
    system = dense_system(fit.point)
    root = np.sqrt(system.D)
    values = np.linalg.eigvalsh(system.S / root / root[:, None])
    scales = sum(fit.student.widths) if fit.student.activation.homogeneity is not None else 0
    return max(int(np.count_nonzero(values < OPEN)) - scales, 0)
