"""The last stage of every method, and a method by itself: over-parameterise, fit, shrink, fix the signs, fit again.

Without noise the first student whose residual is at the level of rounding ends the search. With noise nothing marks the
optimum, so the search ends when two descents, shrunk independently, arrive at the same one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import Source, reduce
from neurecover.network import Network
from neurecover.refine.descent import Descent
from neurecover.refine.search import Deadline, Task, descend, hops
from neurecover.refine.shrink import elimination_order, keep_units, merged
from neurecover.refine.signs import find_flips, likely_flips
from neurecover.statistics import PreactivationRange, Student

EXACT = 1e-20  # Σ r² / Σ y² below which a fit is taken for noiseless and goes the exact way
REDUNDANT = 1e-10  # Σ r² / Σ y² that dropping a duplicate may cost in a path computed with a ridge
MAX_DESCENTS = 400
LIKELY, FITTED = 24, 3  # choices of signs tried on noisy samples, and how many of them are fitted to the end
UNSETTLED = 4  # exact fits whose signs stay open before one is returned as it is
SAME = 0.1  # of one degree of freedom's share of Σ r²: two optima closer than this are one
NARROWING = (3, 6, 12, 25, 50, 100, 200)  # after so many descents that were not exact, the best is shrunk

Progress = Callable[[str, float], object]


@dataclass(frozen=True)
class Finished:
    """The network at the end, `rss` on the samples given, and how it came about.

    sign_choices counts the sign assignments that fit equally well (1 when the signs are determined, 0 when the search
    for them was too large or none fits and an affine part had to stay, as pairs of units).
    """

    network: Network
    rss: float
    relative_rss: float
    sign_choices: int
    descents: int
    agreements: int
    converged: bool

    @property
    def exact(self) -> bool:
        return self.relative_rss < EXACT


def finish(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterable[np.ndarray] = (),
    progress: Progress = lambda stage, rss: None,
) -> Finished:
    """The best network found on the source before the deadline; at least one descent is always made."""
    best: Finished | None = None
    wide: Descent | None = None
    agreements = unsettled = 0
    for count, descent in enumerate(_descents(source, task, rng, deadline, iter(starts), progress), start=1):
        progress("search", descent.relative_rss)
        exact = descent.relative_rss < EXACT
        if wide is None or descent.rss < wide.rss:
            wide = descent
        last = count >= MAX_DESCENTS or deadline.passed
        if not (exact or count in NARROWING or last):
            continue
        candidate = settle(source, task, narrow(source, wide, task, deadline), deadline)
        progress("shrink", candidate.relative_rss)
        if exact:
            unsettled += not (candidate.exact and candidate.sign_choices)
        else:
            agreements = agreements + 1 if best is not None and _same(candidate, best, task) else 0
        if best is None or _better(candidate, best, task):
            best = candidate
        best = replace(best, descents=count, agreements=agreements)
        wide = None
        if last or agreements or (best.exact and best.sign_choices) or unsettled > UNSETTLED:
            break
    assert best is not None
    return best


def _descents(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterator[np.ndarray],
    progress: Progress,
) -> Iterator[Descent]:
    """Descents without end, at the width for a known k or at the one that `_grow` settles on."""
    if task.n_hidden is not None:
        width = task.width(task.prefers_affine())
    else:
        first = _grow(source, task, rng, deadline, starts, progress)
        yield first
        width = first.student.n_hidden
    yield from hops(source, task, width, rng, deadline, starts)


def _grow(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterator[np.ndarray],
    progress: Progress,
) -> Descent:
    """The best of three descents at 6 units, at 12, and so on, until one is exact or twice the units are not worth it.

    Worth is the Bayesian information criterion, N·log Σr² + (parameters)·log N.
    """
    widest = max(task.widest(task.prefers_affine()), 1)
    width, best = min(6, widest), None
    while True:
        champion: Descent | None = None
        for descent in itertools.islice(hops(source, task, width, rng, deadline, starts), 3):
            progress(f"search with {width} units", descent.relative_rss)
            if descent.relative_rss < EXACT:
                return descent
            if champion is None or descent.rss < champion.rss:
                champion = descent
        assert champion is not None
        if best is not None and _criterion(champion, task) >= _criterion(best, task):
            return best
        if width == widest or deadline.passed:
            return champion
        best, width = champion, min(2 * width, widest)


def _criterion(descent: Descent, task: Task) -> float:
    return _bayes(descent.relative_rss, descent.student.V.size + descent.student.readout.size, task)


def _bayes(relative_rss: float, n_parameters: int, task: Task) -> float:
    """N·log Σr² + (parameters)·log N, up to a constant; less is better."""
    N = task.n_samples * task.n_outputs
    return float(N * np.log(max(relative_rss, EXACT)) + n_parameters * np.log(N))


def narrow(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Descent:
    """Take units away: all at once where the fit is exact, then one by one with a refit after each.

    With the width unknown a unit may go if Σ r² stays exact, or grows by less than a parameter's worth of noise would
    explain under the Bayesian information criterion, (D + p)·log(N)/N with N = n·p.
    """
    floor = EXACT * descent.total
    if descent.rss < floor:
        descent = next(filter(lambda fewer: fewer.rss < floor, _all_at_once(source, descent, task, deadline)), descent)
    N = task.n_samples * task.n_outputs
    slack = 1.0 + (task.n_inputs + task.bias + task.n_outputs) * np.log(N) / N
    while descent.student.n_hidden > (task.n_hidden or 0):
        if deadline.passed:
            order, _ = elimination_order(source, descent.student)
            keep = descent.student.n_hidden if task.n_hidden is None else task.n_hidden
            return Descent(source, keep_units(descent.student, np.sort(order[len(order) - keep :])))
        fewer = descend(source, _one_less(source, descent.student), deadline)
        if task.n_hidden is None and fewer.rss > max(floor, slack * descent.rss):
            break
        descent = fewer
    return descent


def _all_at_once(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Iterator[Descent]:
    """Fits with all superfluous units merged or dropped, by several ideas of what is superfluous.

    An exact student without an affine part may have made one of pairs of units that look opposite ways, so it is tried
    with an affine part too.
    """
    forms = [descent.student]
    if task.can_be_affine and not descent.student.affine:
        forms.append(_with_affine(descent.student))
    for form, angle in itertools.product(forms, (0.1, 0.01, 0.001)):
        student = merged(form, angle)
        order, path = elimination_order(source, student)
        n_keep = int(np.count_nonzero(path > REDUNDANT * descent.total))
        n_keep = n_keep if task.n_hidden is None else min(n_keep, task.n_hidden)
        yield descend(source, keep_units(student, np.sort(order[len(order) - n_keep :])), deadline)


def _with_affine(student: Student) -> Student:
    k = student.n_hidden
    zeros = np.zeros((student.n_inputs, student.n_outputs))
    return replace(student, readout=np.vstack([student.readout[:k], zeros, student.readout[k:]]), affine=True)


def _one_less(source: Source, student: Student) -> Student:
    """The better of two: without the least useful unit, or with the two closest ones merged."""
    order, _ = elimination_order(source, student)
    dropped = keep_units(student, np.sort(order[1:]))
    unit = student.V / np.maximum(np.linalg.norm(student.V, axis=1, keepdims=True), 1e-300)
    cosine = unit @ unit.T
    closeness = np.abs(cosine) if student.affine else cosine
    np.fill_diagonal(closeness, -1.0)
    joined = merged(student, float(np.arccos(np.clip(closeness.max(initial=-1.0), -1.0, 1.0))) + 1e-9)
    if joined.n_hidden != student.n_hidden - 1:
        return dropped
    return min((dropped, joined), key=lambda s: Descent(source, s).rss)


def settle(source: Source, task: Task, descent: Descent, deadline: Deadline) -> Finished:
    """Turn the units round so that no affine part is left, fit once more and write the result as a network."""
    student = descent.student
    sign_choices = 1
    if student.affine and student.n_hidden == 0:
        sign_choices = 0
    elif student.affine:
        settled, sign_choices = _without_affine(source, descent, deadline)
        allowed = max(
            EXACT * descent.total, descent.rss * (1.0 + 4.0 * task.n_inputs * task.n_outputs / task.n_samples)
        )
        if settled.rss <= allowed:
            descent = settled
        else:
            sign_choices = 0
    else:
        descent = descend(source, student, deadline, patient=True)
    return Finished(
        as_network(_away_from_samples(source, descent.student)),
        descent.rss,
        descent.relative_rss,
        sign_choices,
        0,
        0,
        bool(descent.finished),
    )


def _without_affine(source: Source, descent: Descent, deadline: Deadline) -> tuple[Descent, int]:
    """The fit with the units turned as the affine part says, and how many ways of turning them fit as well.

    Without noise the equations decide. With noise the likeliest choices are tried on the samples: the best few by the
    readout alone are fitted to the end.
    """
    student = descent.student
    d, k = student.n_inputs, student.n_hidden
    slope = student.activation.odd_slope or 0.0
    problem = (student.A, student.V[:, :d], -student.readout[k : k + d].T, slope)
    if descent.rss < EXACT * descent.total:
        search = find_flips(*problem, tolerance=1e-6)
        settled = descend(source, _turned(student, search.flips[0], slope), deadline, patient=True)
        return settled, len(search.flips) if search.complete else 0
    tried = (Descent(source, _turned(student, flip, slope)) for flip in likely_flips(*problem, LIKELY))
    fitted = [
        descend(source, start.student, deadline, patient=True) for start in sorted(tried, key=lambda t: t.rss)[:FITTED]
    ]
    best = min(fitted, key=lambda fit: fit.rss)
    doubt = best.rss * (1.0 + 10.0 / best.n_equations)  # ten degrees of freedom: odds of e⁵ under Gaussian noise
    rivals = [fit for fit in fitted if fit.rss <= doubt and not _same_units(fit.student, best.student)]
    return best, 1 + len(rivals)


def _same_units(a: Student, b: Student) -> bool:
    """Whether every unit of a has one of b within a tenth of a radian: a descent may turn a unit back by itself."""
    A, B = (s.V / np.maximum(np.linalg.norm(s.V, axis=1, keepdims=True), 1e-300) for s in (a, b))
    return bool(np.all((A @ B.T).max(axis=1, initial=-1.0) > np.cos(0.1)))


def _turned(student: Student, flip: np.ndarray, slope: float) -> Student:
    """The student without its affine part, the given units turned round: act(z) = act(−z) + m z."""
    d, k = student.n_inputs, student.n_hidden
    readout = np.delete(student.readout, np.s_[k : k + d], axis=0)
    if student.bias:
        readout[-1] += slope * (student.A[:, flip] @ student.V[flip, d])
    return replace(student, V=np.where(flip[:, None], -student.V, student.V), readout=readout, affine=False)


def _away_from_samples(source: Source, student: Student) -> Student:
    """Units that no sample switches, moved so far that others will not either: where their kink lies is unknown.

    A unit that is on for every sample is a linear function of them: b grows by t and c shrinks by A_j·slope·t. One
    that is off for every sample adds nothing, and its column of A becomes zero.
    """
    act = student.activation
    if not student.bias or act.homogeneity != 1.0 or not act.odd_slope:
        return student
    extremes = reduce(source, PreactivationRange(student)).sums
    on, off = -extremes["lowest"] > 0, extremes["highest"] <= 0
    V, readout = student.V.copy(), student.readout.copy()
    shift = np.where(on, extremes["highest"], 0.0)
    V[:, -1] += shift
    readout[-1] -= student.A @ shift  # act(z + t) = act(z) + t where z > 0
    if act.odd_slope == 1.0:
        readout[: student.n_hidden][off] = 0.0
    return replace(student, V=V, readout=readout)


def as_network(student: Student) -> Network:
    """The student as a network; a linear part becomes pairs of units, m z = act(z) − act(−z)."""
    d, k = student.n_inputs, student.n_hidden
    W, A = student.V[:, :d], student.A
    b = student.V[:, d] if student.bias else np.zeros(k)
    c = student.readout[-1] if student.bias else np.zeros(student.n_outputs)
    if student.affine:
        left, values, right = np.linalg.svd(student.readout[k : k + d].T, full_matrices=False)
        rank = int(np.count_nonzero(values > 1e-12 * values.max(initial=1e-300)))
        part = left[:, :rank] * values[:rank] / (student.activation.odd_slope or 1.0)
        W = np.vstack([W, right[:rank], -right[:rank]])
        A = np.hstack([A, part, -part])
        b = np.concatenate([b, np.zeros(2 * rank)])
    return Network(W, b, A, c, student.activation)


def polish(source: Source, found: Finished, bias: bool, deadline: Deadline) -> Finished:
    """The same units fitted to these samples, to the end."""
    network = found.network
    V = np.hstack([network.W, network.b[:, None]]) if bias else network.W
    readout = np.vstack([network.A.T, network.c[None]]) if bias else network.A.T
    descent = descend(source, Student(network.activation, V, readout, bias, affine=False), deadline, patient=True)
    return replace(
        found,
        network=as_network(_away_from_samples(source, descent.student)),
        rss=descent.rss,
        relative_rss=descent.relative_rss,
        converged=bool(descent.finished),
    )


def _same(a: Finished, b: Finished, task: Task) -> bool:
    # Σ r² is smooth only between the kinks, so one optimum has many shallow pits.
    share = b.rss / (task.n_samples * task.n_outputs)
    return a.network.n_hidden == b.network.n_hidden and abs(a.rss - b.rss) <= SAME * share


def _better(a: Finished, b: Finished, task: Task) -> bool:
    # Between fits that are both exact the narrower network is the better one: an affine part costs units.
    if a.exact and b.exact:
        return a.network.n_hidden < b.network.n_hidden
    return _bayes(a.relative_rss, a.network.n_parameters, task) < _bayes(b.relative_rss, b.network.n_parameters, task)
