"""Students with skips at the teacher's widths, found layer by layer.

One layer: a wide fit that is exact, or the best of several, is narrowed at once. Several layers: once the planes of the
first layer are right, the jumps of the gradient across them stand clear of the others, long before the residual is
small. The first layer is narrowed to them, then the layers above. Where that costs, as it does where the wide fit has
made one unit out of several, the layers above are found anew: they are the same problem with one layer less, on the
inputs c₁ = (1, x, h₁). One layer is where the recursion ends. Then all layers are fitted together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from neurecover.fit.descent import Fit, descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.search import SearchOptions
from neurecover.search.gates.few_rows import with_units_of_few_rows
from neurecover.search.race import Setting, has_skips, n_weights, race, wider
from neurecover.search.units import n_useful, narrow, with_most_useful, worth


@dataclass(frozen=True, eq=False)
class Candidate:
    """A student of the wanted widths, the wide fit and the fresh start it comes from, and the number of fits so far.

    `least` is the least Σr² per degree of freedom of a wide student so far: the noise cannot be much larger.
    """

    fit: Fit
    wide: Fit
    start: int
    number: int
    least: float


def candidates(samples: Samples, setting: Setting, widths: tuple[int, ...], level: float = 0.0) -> Iterator[Candidate]:
    """Yield students of these widths, each fitted as far as it goes; at least one.

    `level` is the Σr²/Σy² at which the layers below were fitted, which the layers above cannot improve.
    """
    options, depth = setting.options, len(widths)
    wide = wider(samples, widths, options, has_skips(setting, depth))
    size = n_weights(samples.F.shape[1], wide, samples.Y.shape[1])[0]
    exact = samples.level(setting.task.level)
    enough = options.nearly if depth == 1 and size > options.fit.dense else options.enough
    level = max(exact, enough, level)
    best: Fit | None = None
    least, last, found, ended, number = np.inf, 0, list[float](), -1, 0
    fits = race(samples, setting, widths, wide, enough, lambda start: start == ended)
    for number, (start, fit) in enumerate(fits, start=1):
        if depth > 1 and start > last:  # the start before this one is over
            if best is not None and not found and last != ended:
                yield Candidate(complete(best, setting, widths), best, last, number, least)
            last, best, found = start, None, []
        least = min(least, fit.point.share)
        best = fit if best is None or fit.rss < best.rss else best
        if depth == 1:
            wanted = fit.relative < level or number in options.completed
            done = complete(best, setting, widths) if wanted else None
            if done is None or done.relative >= exact:  # an exact wide fit may have such units in several pieces each
                done = with_units_of_few_rows(fit, setting) or done
            if done is not None:
                yield Candidate(done, fit, start, number, least)
                best = None
        elif fit.relative < level or planes_are_clear(fit.point, setting, widths[0]):
            done = complete(fit, setting, widths)
            yield Candidate(done, fit, start, number, least)
            if any(abs(done.rss - rss) <= options.agree * rss for rss in found):
                ended = start
            found.append(done.rss)
        if number >= options.max_fits:
            break
    if best is not None and not found:
        yield Candidate(complete(best, setting, widths), best, last, number, least)


def planes_are_clear(point: Point, setting: Setting, n_planes: int) -> bool:
    """Return whether the costs of units fall in two groups: cheap ones beyond the planes sought, and dear ones."""
    if (good := point.relative < setting.options.good) or setting.deadline.passed:
        return good
    few, dearest = narrow(point, (n_planes, *point.student.widths[1:]))
    return float(worth(few, 0).cost.min()) > setting.options.clear**2 * dearest


def allowed(point: Point, widths: tuple[int, ...], options: SearchOptions) -> float:
    """Return the Σr² of a student that was narrowed to these widths and lost only spare units, with the noise that each
    of their parameters had absorbed.
    """
    spare = sum(point.student.widths) - sum(widths)
    columns = len(point.student.theta) + point.R.shape[1]
    return max(point.loss * (1.0 + options.spare * spare * columns / point.R.size), point.options.fitted * point.scale)


def complete(fit: Fit, setting: Setting, widths: tuple[int, ...]) -> Fit:
    """Narrow a wide fit to a student of these widths: the first layer, then those above it, then fit all layers
    together.
    """
    if len(widths) == 1:
        return lean(fit, setting, widths)
    samples, options, deadline = fit.point.samples, setting.options, setting.deadline

    def fitted(point: Point) -> Fit:
        return descend(
            samples, point.student, options.fit, deadline, steps=options.joint_steps, slow=options.joint_slow
        )

    lower = narrow(fit.point, (widths[0], *fit.student.widths[1:]), options.first_steps)[0]
    target, steps = options.fit.fitted, options.lower_steps
    lower = descend(samples, lower.student, options.fit, deadline, steps=steps, target=target).point
    best = fitted(narrow(lower, widths, options.upper_steps)[0])
    limit = allowed(lower, widths, options)
    if best.rss <= limit or deadline.passed:
        return best
    V = lower.student.V[0]
    first = replace(lower.student, V=(V,), theta=lower.student.theta[: lower.student.n_base + len(V)])
    values = first.forward(samples.F)
    inner = replace(samples, F=np.hstack([values.F, values.H]))
    above = candidates(inner, setting.above(inner), widths[1:], limit / samples.total)
    for upper in (candidate.fit.student for candidate in islice(above, options.upper_tries)):
        student = replace(upper, V=(V, *upper.V), n_base=samples.F.shape[1])
        joined = fitted(Point(samples, student, options.fit, deadline))
        agreed = abs(joined.rss - best.rss) <= options.agree * best.rss
        best = min(best, joined, key=lambda one: one.rss)
        if agreed or best.rss <= limit or deadline.passed:
            break
    return best


def lean(fit: Fit, setting: Setting, widths: tuple[int, ...]) -> Fit:
    """Remove all unnecessary units of one layer at once and fit the others again; an exact fit may then lose more
    units.
    """
    if fit.relative < setting.options.nearly:
        level = fit.point.samples.level(setting.task.level)
        fit = with_most_useful(fit, min(n_useful(fit.point), widths[0]), level)
    if fit.student.widths[0] <= widths[0]:
        return fit
    return descend(fit.point.samples, narrow(fit.point, widths)[0].student, setting.options.fit, setting.deadline)
