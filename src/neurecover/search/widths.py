"""Find the widths of the hidden layers if they are not given.

Wide students of m units in every layer are fitted for m = 6, 12, 24, …, until one is exact, until the residual is small
and the costs of its first layer's units fall into two groups, the units of the teacher and the unnecessary ones, or
until twice the units do not pay. Then units are removed one at a time. Students are compared by the Bayesian
information criterion,

    N·log Σr² + (parameters)·log N,        Σr² no less than what counts as exact,

of the networks that they lead to. Skips stand in for units, so a student may need fewer units than its network; because
it fits at least as well, most networks need not be tried. Then the best network is tried with one unit less and one
more in every layer, as long as that improves the criterion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from neurecover.fit.descent import Fit, descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import as_network, as_student
from neurecover.search import WidthOptions
from neurecover.search.find import Runs, search, settled_on
from neurecover.search.race import Setting, has_skips, n_weights, race
from neurecover.search.settle import Settled, settle
from neurecover.search.units import n_useful, narrow, one_less, with_fresh, with_most_useful, worth


def find_network(samples: Samples, setting: Setting, depth: int) -> tuple[Runs, str]:
    """Return the narrowest network found that solves the problem, and a sentence about its widths."""
    part = samples if depth == 1 else samples.some(setting.options.widths.rows, setting.rng)
    path, clear, n_fits = guess_widths(part, setting, depth)
    fit, last_drop = best_on(path, setting)
    setting.tell(f"widths {fit.student.widths}", fit.relative)
    noiseless = fit.relative < part.level(setting.task.level)
    best = search(part, setting, fit.student.widths, setting.options.widths.runs, noiseless, fit)
    best = to_neighbours(part, setting, replace(best, last_drop=last_drop, n_fits=best.n_fits + n_fits))
    if not (best.exact or best.agreements):  # with a unit too many no two fits agree; without it they may
        again = search(part, setting, best.fit.student.widths, first=best.fit)
        best = replace(again, last_drop=best.last_drop, n_fits=best.n_fits + again.n_fits)
        best = to_neighbours(part, setting, best)
    note = f"The widths {best.fit.student.widths} are the narrowest found to solve the problem."
    if setting.deadline.passed:
        note = f"Time ran out before narrower widths than {best.fit.student.widths} were ruled out."
    elif not clear:
        note = "No width showed the planes of a first layer, so the widths are a guess."
    if part is not samples:
        whole = settled_on(samples, best.fit, setting)
        best = replace(best, best=whole, exact=whole.fit.relative < samples.level(setting.task.level))
    return best, note


def criterion(fit: Fit, setting: Setting, n_parameters: int | None = None) -> float:
    """Return the criterion N·log Σr² + (parameters)·log N, the same Σr² for all exact fits; less is better [Schwarz
    1978].
    """
    samples = fit.point.samples
    N, floor = samples.n_equations, samples.level(setting.task.level)
    P = fit.student.n_parameters if n_parameters is None else n_parameters
    return float(N * np.log(max(fit.relative, floor)) + P * np.log(N))


def _price(before: Fit, after: Fit, setting: Setting) -> float:
    """Return what the removed unit was worth per parameter: N·log(Σr² after / before) over their number."""
    gone = max(before.student.n_parameters - after.student.n_parameters, 1)
    same = after.student.n_parameters
    return (criterion(after, setting, same) - criterion(before, setting, same)) / gone


def guess_widths(samples: Samples, setting: Setting, depth: int) -> tuple[list[Fit], bool, int]:
    """Return a wide fit after each of its units was removed in turn, whether planes or rounding showed the number of
    units, and how many wide fits were made.
    """
    options, how = setting.options, setting.options.widths
    exact, n_fits = samples.level(setting.task.level), 0
    best, clear = None, depth == 1
    for m in _sizes(samples, setting, depth):
        large = depth == 1 and m * samples.F.shape[1] > options.fit.dense
        target = max(exact, options.nearly) if large else exact
        champion: Fit | None = None
        stuck, patience = 0, how.fits if depth == 1 else how.hops
        for _, fit in race(samples, setting, (m,) * depth, (m,) * depth, options.enough):
            n_fits += 1
            planes = n_planes(fit.point, how) if depth > 1 and fit.relative < how.left_over else None
            if planes is not None or fit.relative < target:
                return _slimmed(fit, planes or m, setting), True, n_fits
            stuck = 0 if champion is None or fit.rss < options.progress * champion.rss else stuck + 1
            champion = fit if champion is None or fit.rss < champion.rss else champion
            if stuck >= patience:
                break
        assert champion is not None
        if best is not None and criterion(champion, setting) >= criterion(best, setting):
            clear = True
            break
        best = champion if best is None or champion.rss < best.rss else best
        if setting.deadline.passed:
            break
    assert best is not None
    return _slimmed(best, best.student.widths[0], setting), clear, n_fits


def _sizes(samples: Samples, setting: Setting, depth: int) -> Iterator[int]:
    """Yield widths per layer, each twice the last, as long as there are samples for such students."""

    def too_many(m: int) -> bool:
        size = n_weights(samples.F.shape[1], (m,) * depth, samples.Y.shape[1])[1]
        return size > setting.options.load * samples.n_equations

    m = next((m for m in range(setting.options.widths.first, 1, -1) if not too_many(m)), 1)
    yield m
    while not too_many(2 * m):
        m *= 2
        yield m


def n_planes(point: Point, how: WidthOptions) -> int | None:
    """Return the number of units of the first layer above the widest gap between their costs, if that gap is wide.

    Spare units make up for one another, so all below the gap together cost no more than the fit has left over.
    """
    costs, left_over = [], point.loss
    while point.student.widths[0] > 1:
        cost, student = one_less(point, [0])
        costs.append(cost)
        point = Point(point.samples, student, point.options, point.deadline)
    costs.append(float(worth(point, 0).cost.min()))
    steps = np.maximum(np.array(costs), how.free * max(costs))
    ratios = steps[1:] / np.maximum.accumulate(steps)[:-1]
    ratios[np.cumsum(steps)[:-1] > max(left_over, how.nothing * max(costs))] = 0.0
    return len(ratios) - int(np.argmax(ratios)) if ratios.max(initial=0.0) >= how.split else None


def slim(fit: Fit, setting: Setting) -> Fit:
    """Return an exact fit with as few units as the criterion allows."""
    return best_on(_slimmed(fit, fit.student.widths[0], setting), setting)[0]


def best_on(path: list[Fit], setting: Setting) -> tuple[Fit, float]:
    """Return the fit with the best criterion, and what the last unit removed before it was worth in units of its
    parameters' noise. With one layer the skips are an affine part, which is worth the same beside any number of units.
    """
    values = [criterion(fit, setting) for fit in path]
    best = max(number for number, value in enumerate(values) if value == min(values))
    if path[0].student.depth > 1:
        bounds = [criterion(fit, setting, setting.task.n_parameters(fit.student.widths)) for fit in path]
        least = np.inf
        for number in sorted(range(len(path)), key=lambda number: bounds[number]):
            if bounds[number] >= least or setting.deadline.passed:
                break
            value = criterion(settle(path[number], setting).fit, setting)
            best, least = (number, value) if value < least else (best, least)
    return path[best], _price(path[best - 1], path[best], setting) if best else 0.0


def _slimmed(fit: Fit, first: int, setting: Setting) -> list[Fit]:
    """Narrow the first layer to `first` units, then all of them unit by unit until the criterion has clearly risen."""
    samples, options, how, depth = fit.point.samples, setting.options.fit, setting.options.widths, fit.student.depth
    if first < fit.student.widths[0]:
        fit = _narrowed(fit.point, (first, *fit.student.widths[1:]), setting, how.slow)
    if depth == 1 and fit.relative < setting.options.nearly:
        fit = with_most_useful(fit, n_useful(fit.point), samples.level(setting.task.level))
    best, path = fit, [fit]
    while sum(fit.student.widths) > depth and not setting.deadline.passed:
        _, student = one_less(fit.point, [layer for layer, m in enumerate(fit.student.widths) if m > 1])
        fit = descend(samples, student, options, setting.deadline, steps=None if depth == 1 else how.path_steps)
        path.append(fit)
        if criterion(fit, setting) <= criterion(best, setting):
            best = fit
        elif depth == 1 or fit.rss > how.fallen * best.rss + how.lost * samples.total:
            break
    return path


def _narrowed(point: Point, widths: tuple[int, ...], setting: Setting, slow: float | None) -> Fit:
    """Return the fit at these widths, with the cheapest units removed."""
    how = setting.options.widths
    student = narrow(point, widths, how.narrow_steps)[0].student
    return descend(point.samples, student, point.options, setting.deadline, steps=how.fit_steps, slow=slow)


def to_neighbours(samples: Samples, setting: Setting, best: Runs) -> Runs:
    """Return the best network after moving, while the criterion improves, to one unit less or more in some layer.

    Less is tried first. An exact network needs no more; nor does one hidden layer, whose skips are an affine part and
    stand in for no unit but one that is always active.
    """
    how, depth, worth_of = setting.options.widths, best.fit.student.depth, criterion(best.fit, setting)
    while not setting.deadline.passed:
        widths = best.fit.student.widths
        found = [_changed(samples, setting, best, way) for way in _ways(widths, -1)]
        worse = min((criterion(one.fit, setting) for one in found), default=np.inf) >= worth_of
        if worse and depth > 1 and not best.exact:
            found += [_changed(samples, setting, best, way) for way in _ways(widths, 1) for _ in range(how.more)]
        other = min(found, key=lambda one: criterion(one.fit, setting), default=best)
        if criterion(other.fit, setting) >= worth_of:
            break
        setting.tell(f"widths {other.fit.student.widths}", other.fit.relative)
        fewer = sum(other.fit.student.widths) < sum(widths)
        best = replace(other, last_drop=_price(best.fit, other.fit, setting) if fewer else 0.0)
        worth_of = criterion(best.fit, setting)
    return best


def _ways(widths: tuple[int, ...], change: int) -> list[tuple[int, ...]]:
    """Return the widths with `change` added to one layer, for every layer that keeps a unit, the top layer first."""
    ways = (tuple(k + change * (layer == chosen) for layer, k in enumerate(widths)) for chosen in range(len(widths)))
    return [way for way in ways if min(way) > 0][::-1]


def _changed(samples: Samples, setting: Setting, runs: Runs, widths: tuple[int, ...]) -> Runs:
    """Return the network with fresh units added, or with those worth least removed, fitted again."""
    student = runs.fit.student
    if not student.skips and has_skips(setting, student.depth):
        student = as_student(as_network(student), bool(student.bias), skips=True)
    point = Point(samples, with_fresh(student, widths, setting.draw), setting.options.fit, setting.deadline)
    fit = _narrowed(point, widths, setting, None if runs.exact else setting.options.widths.slow)
    # With its skips a student fits at least as well as the network that it leads to.
    if criterion(fit, setting, setting.task.n_parameters(widths)) >= criterion(runs.fit, setting):
        return Runs(Settled(fit, (), 0), runs.n_fits, 0, False)
    settled = settled_on(samples, fit, setting)
    return Runs(settled, runs.n_fits, 0, settled.fit.relative < samples.level(setting.task.level))
