"""Units that are on, or off, in fewer samples than they have weights.

A wide student fits such a unit's samples S with several units of its own, no two of which are one. Away from S the
others are a network by themselves, without an affine part where the unit is off there. Once it is found, what it leaves
on S is r = A_u h with h > 0: it gives A_u up to scale, which samples of S belong to one unit where there are several,
and the equations and inequalities

    w·x̃ = h on its samples,        w·x̃ ≤ 0 on all others,

of which a solution is the unit, arbitrary in the directions that S does not show. A unit that switches away from S too
may need samples of S for some of its weights; then a few of them are not explained before all units are fitted to all.

A wide student that has not come to an end for such units has its residual where they are: with the samples that it fits
worst among S the others are soon exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.data import ArraySource, Source
from neurecover.models import Network, Student
from neurecover.refine.descent import EXACT, Descent
from neurecover.refine.narrowing import lean, narrow
from neurecover.refine.rare_rows import switched_off
from neurecover.refine.rare_steady import switched_by_others
from neurecover.refine.settling import Finished, polish, settle
from neurecover.refine.shrink import keep_units
from neurecover.refine.task import Task
from neurecover.solve import Deadline

SHOWS = 1e-9  # of the largest output: what is more than rounding
ONE_WAY = 1e-6  # by how much directions of r that belong to one unit differ
NEARLY, WORST = 1e-6, 0.05  # Σ r² / Σ y² of a student that may be without such units, and the share that it fits worst
ROUNDS, STEPS = 4, 15  # in which that share is set aside, and steps in each
MOST = 0.25  # share of the samples that such units may be on in, all of them together
UNEXPLAINED = 0.1  # share of what the others leave that may be no unit's
LARGEST = 2_000_000  # inequalities times weights that a linear programme takes


def with_units_of_few_rows(source: Source, task: Task, wide: Descent, deadline: Deadline) -> Finished | None:
    """The network behind a wide student that fits nearly, if it has such units and they are found; else None."""
    student, k = wide.student, task.n_hidden
    if k is None or not task.bias or task.activation.name != "relu" or task.n_samples * (task.n_inputs + 1) > LARGEST:
        return None
    if wide.relative_rss > NEARLY:
        return None
    X, Y = source.collect()
    few, rows = _of_few(student.V @ student.extended(X).T > 0.0, student.V.shape[1], student.affine)
    if not few.any():
        return None
    others = keep_units(student, np.flatnonzero(~few))
    if wide.relative_rss >= EXACT:
        rows |= _worst(student, X, Y, ~rows)
    for _ in range(ROUNDS):
        if np.mean(rows) > MOST or deadline.passed:
            return None
        away = ArraySource(X[~rows], Y[~rows])
        fit = Descent(away, others, deadline=deadline).advance(STEPS)
        if fit.relative_rss < EXACT:
            break
        others = fit.student
        rows |= _worst(others, X, Y, ~rows)
    else:
        return None
    smaller = replace(task, n_hidden=None, n_samples=int(np.sum(~rows)))
    slim = lean(away, fit, smaller, deadline)
    if not slim.large or slim.student.n_hidden > k:  # one by one takes long
        slim, _ = narrow(away, slim, smaller, deadline)
    settled = settle(away, smaller, slim, deadline)
    if not settled.exact or not settled.sign_choices:
        return None
    settled = replace(settled, network=switched_by_others(settled.network, X, Y, ~rows))
    # Pieces of them are left in the other samples, and may be on in more than they have weights.
    few, more = (_few_of(settled.network, X, margin) for margin in (1, 2))
    whole = _completed(settled, _without(settled.network, few), X, Y, k, deadline)
    if whole is None and np.any(more & ~few):
        whole = _completed(settled, _without(settled.network, more), X, Y, k, deadline)
    return whole


def fitted_once_more(source: Source, task: Task, found: Finished, deadline: Deadline) -> Finished | None:
    """The same network with such units fitted anew to these samples; None where it has none, or this is not enough."""
    network = found.network
    if not task.bias or task.activation.name != "relu" or task.n_samples * (task.n_inputs + 1) > LARGEST:
        return None
    X, Y = source.collect()
    few = _few_of(network, X, 1)
    return _completed(found, _without(network, few), X, Y, network.n_hidden, deadline) if few.any() else None


def _few_of(network: Network, X: np.ndarray, margin: int) -> np.ndarray:
    return _of_few(network.W @ X.T + network.b[:, None] > 0.0, margin * (X.shape[1] + 1), affine=False)[0]


def _without(network: Network, units: np.ndarray) -> Network:
    return replace(network, W=network.W[~units], b=network.b[~units], A=network.A[:, ~units])


def _worst(student: Student, X: np.ndarray, Y: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The samples that a student fits worst, WORST of those it is fitted to."""
    missed = np.linalg.norm(Y - student(X), axis=1)
    return missed > np.quantile(missed[among], 1.0 - WORST)


def _completed(
    found: Finished, others: Network, X: np.ndarray, Y: np.ndarray, k: int, deadline: Deadline
) -> Finished | None:
    network = with_rest(others, X, Y, k) if others.n_hidden < k else others
    if network is None or network.n_hidden > k:
        return None
    rss, total = (float(np.sum(values**2)) for values in (network(X) - Y, Y))
    whole = replace(found, network=network, rss=rss, relative_rss=rss / total)
    if not whole.exact:
        whole = polish(ArraySource(X, Y), whole, True, deadline)
    return whole if whole.exact else None


def _of_few(on: np.ndarray, D: int, affine: bool) -> tuple[np.ndarray, np.ndarray]:
    """Units that are on in fewer than D samples, by `on` (m, n), and the samples in which one of them is.

    Beside an affine part a unit may be turned, and is on on the side with fewer samples.
    """
    n = on.shape[1]
    if affine:
        on = np.where((2 * np.count_nonzero(on, axis=1) < n)[:, None], on, ~on)
    few = np.count_nonzero(on, axis=1) < D
    return few, on[few].any(axis=0)


def with_rest(
    network: Network, X: np.ndarray, Y: np.ndarray, k: int, unexplained: float = UNEXPLAINED
) -> Network | None:
    """The network with a unit more for every direction in which it errs; None where they explain too little of it.

    `unexplained` is the share of the samples on which it errs that may be no unit's. A unit that one sample alone shows
    may look the other way, with another network beside it.
    """
    rest = Y - network(X)
    size, floor = np.linalg.norm(rest, axis=1), SHOWS * np.abs(Y).max(initial=0.0)
    shown = np.flatnonzero(size > floor)
    ways, members = _directions(rest[shown] / size[shown, None])
    ways, members = ways[: k - network.n_hidden], members[: k - network.n_hidden]
    if len(ways) == 0:
        return None
    H = np.zeros((len(X), len(ways)))
    if np.linalg.matrix_rank(ways) == len(ways):  # both of two units may be on
        H[shown] = np.linalg.lstsq(ways.T, rest[shown].T, rcond=None)[0].T
    else:
        H[shown] = np.where(members.T, size[shown, None], 0.0)
    explained = (np.linalg.norm(H @ ways - rest, axis=1) <= floor) & (H.min(axis=1) >= -floor)
    if np.mean(~explained[shown]) > unexplained:
        return None
    extended, V = np.hstack([X, np.ones((len(X), 1))]), []
    for h in H.T:
        on, off = explained & (h > floor), explained & (h <= floor)
        V.append(switched_off(extended[on], h[on], extended[off], np.zeros(np.count_nonzero(off))))
    W, A = np.vstack([network.W, np.array(V)[:, :-1]]), np.hstack([network.A, ways.T])
    return Network(W, np.append(network.b, np.array(V)[:, -1]), A, network.c, network.activation)


def _directions(units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions (g, p) that two rows or more of (m, p) have, by their number, and which rows do, (g, m)."""
    left, found = np.arange(len(units)), []
    while len(left):
        same = np.linalg.norm(units - units[left[0]], axis=1) <= ONE_WAY
        found += [same] if np.count_nonzero(same) > 1 else []
        left = left[~same[left]]
    members = np.array(sorted(found, key=np.count_nonzero, reverse=True), dtype=bool).reshape(len(found), len(units))
    return np.array([units[np.argmax(same)] for same in members]).reshape(len(found), units.shape[1]), members
