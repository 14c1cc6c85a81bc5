"""From a fitted student to a network: turn the units so that no affine part is left, and fit to the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from neurecover.data import Source, reduce
from neurecover.data.weights import design_effect
from neurecover.models import Network, Student
from neurecover.refine.descent import EXACT, Descent
from neurecover.refine.narrowing import narrow
from neurecover.refine.search import DENSE_END, descend
from neurecover.refine.signs import find_flips, flips_beside_steady, likely_flips
from neurecover.refine.steady import steady_candidates
from neurecover.refine.task import Task
from neurecover.solve import Deadline, within
from neurecover.statistics import PreactivationRange

SIGNS = 1e-6  # relative misfit of the equations of signs of an exact fit
CLOSE = 1e-10  # Σ r² / Σ y² of a start that solves the equations of an exact fit
LIKELY, FITTED = 24, 3  # choices of signs tried on noisy samples, and how many of them are fitted to the end


@dataclass(frozen=True)
class Finished:
    """The network at the end, `rss` on the samples given, and how it came about.

    sign_choices counts the sign assignments that fit equally well (1 when the signs are determined, 0 when the search
    for them was too large or none fits and an affine part had to stay, as pairs of units). last_drop is what the last
    unit to be dropped was worth (see `finish.narrow`), unrivalled whether noisy samples tell it from other optima.
    """

    network: Network
    rss: float
    relative_rss: float
    sign_choices: int
    descents: int
    agreements: int
    converged: bool
    last_drop: float = 0.0
    unrivalled: bool = True

    @property
    def exact(self) -> bool:
        return self.relative_rss < EXACT


def settle(source: Source, task: Task, descent: Descent, deadline: Deadline) -> Finished:
    """Reverse units so that no affine part is left, fit once more and write the result as a network."""
    student = descent.student
    sign_choices = 1
    if student.affine and student.n_hidden == 0:
        sign_choices = 0
    elif student.affine:
        settled, sign_choices = _without_affine(source, task, descent, deadline)
        # The affine part gives up d·p parameters: noise lets Σ r²/σ² grow by χ² with as many degrees of freedom, times
        # the design effect where weights have nothing to do with the noise.
        freedom = task.n_inputs * task.n_outputs
        growth = max(4.0 * freedom, float(chdtri(freedom, 1e-6))) * design_effect(source)
        allowed = max(EXACT * descent.total, descent.rss * (1.0 + growth / task.n_samples))
        if settled.rss <= allowed:
            descent = settled
        else:
            sign_choices = 0
    else:
        descent = descend(source, student, deadline, patient=True)
    return Finished(
        as_network(away_from_samples(descent.student, reduce(source, PreactivationRange(descent.student)))),
        descent.rss,
        descent.relative_rss,
        sign_choices,
        0,
        0,
        not descent.running,
    )


def _without_affine(source: Source, task: Task, descent: Descent, deadline: Deadline) -> tuple[Descent, int]:
    """The fit with the units turned as the affine part says, and how many ways of turning them fit as well.

    Without noise the equations decide. With noise the likeliest choices are tried on the samples: the best few by the
    readout alone are fitted to the end.
    """
    student = descent.student
    d, k = student.n_inputs, student.n_hidden
    slope = student.activation.odd_slope or 0.0
    problem = (student.A, student.V[:, :d], -student.readout[k : k + d].T, slope)
    if descent.rss < EXACT * descent.total:
        search = find_flips(*problem, tolerance=SIGNS)
        unexplained = search.misfit[0] > SIGNS
        if unexplained and student.V.size <= DENSE_END:
            steady = _with_steady_unit(source, student, slope, deadline)
            steady = steady or _beside_one_that_is_on(source, task, descent, slope, deadline)
            if steady:
                return steady[0], len(steady)
        if descent.large and unexplained:  # no signs fit, and it would take long to see that again
            return descent, 0
        settled = descend(source, _turned(student, search.flips[0], slope), deadline, patient=True)
        if settled.rss < EXACT * settled.total:
            return settled, len(search.flips) if search.complete else 0
        steady = [] if unexplained else _with_steady_unit(source, student, slope, deadline)
        return (steady[0], len(steady)) if steady else (settled, 0)
    tried = [
        Descent(source, _turned(student, flip, slope)) for flip in within(deadline, likely_flips(*problem, LIKELY))
    ]
    likely = sorted(tried, key=lambda start: start.rss)[:FITTED]
    fitted = [descend(source, start.student, deadline, patient=True) for start in within(deadline, likely)]
    best = min(fitted, key=lambda fit: fit.rss)
    doubt = best.rss * (1.0 + 10.0 / best.n_equations)  # ten degrees of freedom: odds of e⁵ under Gaussian noise
    rivals = [fit for fit in fitted if fit.rss <= doubt and not _same_units(fit.student, best.student)]
    return best, 0 if deadline.passed else 1 + len(rivals)


def _beside_one_that_is_on(
    source: Source, task: Task, descent: Descent, slope: float, deadline: Deadline
) -> list[Descent]:
    """An exact fit in which one unit is on for every sample, and no other is superfluous, if there is one."""
    student = narrow(source, descent, replace(task, n_hidden=None), deadline)[0].student
    d, k, act = student.n_inputs, student.n_hidden, student.activation
    if not student.bias or act.homogeneity != 1.0 or k >= (task.n_hidden or np.inf):
        return []
    found = flips_beside_steady(student.A, student.V[:, :d], -student.readout[k : k + d].T, slope, SIGNS)
    if found is None:
        return []
    flips, a, w = found
    turned = _turned(student, flips, slope)
    V, readout = np.vstack([turned.V, np.append(-w, 0.0)]), np.insert(turned.readout, k, a, axis=0)
    V[k, d] = 1.0 + reduce(source, PreactivationRange(replace(turned, V=V, readout=readout))).sums["lowest"][k]
    fit = descend(source, replace(turned, V=V, readout=readout), deadline, patient=True)
    return [fit] if fit.relative_rss < EXACT else []


def _with_steady_unit(source: Source, student: Student, slope: float, deadline: Deadline) -> list[Descent]:
    """Exact fits in which one unit is off for very few samples, each with other signs."""
    exact = []
    for V in steady_candidates(source, student):
        if deadline.passed:
            break
        start = Descent(source, _turned(replace(student, V=V), np.zeros(len(V), dtype=bool), slope))
        if start.relative_rss < CLOSE:
            fit = descend(source, start.student, deadline, patient=True)
            exact += [fit] if fit.relative_rss < EXACT else []
    return exact


def _same_units(a: Student, b: Student) -> bool:
    """Whether every unit of a has one of b within a tenth of a radian: a descent may turn a unit back by itself."""
    A, B = (s.V / np.maximum(np.linalg.norm(s.V, axis=1, keepdims=True), 1e-300) for s in (a, b))
    return bool(np.all((A @ B.T).max(axis=1, initial=-1.0) > np.cos(0.1)))


def _turned(student: Student, flip: np.ndarray, slope: float) -> Student:
    """The student without its affine part, the given units reversed: act(z) = act(−z) + m z."""
    d, k = student.n_inputs, student.n_hidden
    readout = np.delete(student.readout, np.s_[k : k + d], axis=0)
    if student.bias:
        readout[-1] += slope * (student.A[:, flip] @ student.V[flip, d])
    return replace(student, V=np.where(flip[:, None], -student.V, student.V), readout=readout, affine=False)


def away_from_samples(student: Student, seen: PreactivationRange) -> Student:
    """Units that no sample switches, moved so far that others will not either: where their kink lies is unknown.

    A unit that is on for every sample is a linear function of them: b grows by t and c shrinks by A_j·slope·t. One
    that is off for every sample adds nothing, and its column of A becomes zero.
    """
    act = student.activation
    if not student.bias or act.homogeneity != 1.0 or not act.odd_slope:
        return student
    extremes = seen.sums
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


def as_student(network: Network, bias: bool) -> Student:
    """The network as a student without an affine part."""
    V = np.hstack([network.W, network.b[:, None]]) if bias else network.W
    readout = np.vstack([network.A.T, network.c[None]]) if bias else network.A.T
    return Student(network.activation, V, readout, bias, affine=False)


def polish(source: Source, found: Finished, bias: bool, deadline: Deadline) -> Finished:
    """The same units fitted to these samples, to the end."""
    descent = descend(source, as_student(found.network, bias), deadline, patient=True)
    return replace(
        found,
        network=as_network(away_from_samples(descent.student, reduce(source, PreactivationRange(descent.student)))),
        rss=descent.rss,
        relative_rss=descent.relative_rss,
        converged=not descent.running,
    )
