"""Which units are on in rows that do not tell by themselves, all of these rows at once: a mixed-integer programme.

Every unit has z = known + T w with w = w₀ + Nθ, N spanning what the equations of other rows leave open. For every row i
that is left and every unit

    h − s = z,    0 ≤ h ≤ M g,    0 ≤ s ≤ M (1 − g),    g in {0, 1},    A h = y − c,

with z ≤ 0 in the rows where the unit is known to be off. A solution is as accurate as the solver's tolerance; with its
gates g the equations are linear in θ, and a step of least squares gives the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.solve import Deadline

MOST_GATES, MOST_GROUPS = 320, 3
SECONDS = 10.0
FARTHEST = (2.0, 10.0)  # M over the largest value that is known: the larger, the less the solver sees through it
TOLERANCE = 1e-7  # of the largest y, to which equations are met: about that of the solver
INFEASIBLE = 2  # the status that `scipy.optimize.milp` gives
MOVES = 1e-9  # of a weight's effect: less does not count


@dataclass(frozen=True, eq=False)
class Given:
    """z = known + T w in all rows, w + θ·free for the weights, and rows T_off with known_off + T_off w ≤ 0."""

    T: np.ndarray
    known: np.ndarray
    w: np.ndarray
    free: np.ndarray
    T_off: np.ndarray
    known_off: np.ndarray


def fill_in(H: np.ndarray, units: list[Given], A: np.ndarray, values: np.ndarray, deadline: Deadline) -> bool:
    """Values of the units (n, k) in rows of H that are nan, with values = A h (n, p); False where none fit.

    Where the rows are too many, or time does not suffice, those that show the same columns are taken by themselves, the
    largest group first. Fewer rows leave more choice, and one that others contradict is not seen to be wrong.
    """
    left = np.flatnonzero(np.isnan(H).any(axis=1))
    for rows in _groups(units[0].T[left] != 0.0, MOST_GATES // len(units))[: MOST_GROUPS + 1]:
        if _filled_in(H, left[rows], units, A, values, deadline):
            return True
    return False


def _groups(shown: np.ndarray, most: int) -> list[np.ndarray]:
    """All rows of `shown` (n, c) if they are no more than that, and at most so many of each kind."""
    if len(shown) == 0 or most == 0:
        return []
    _, kind, count = np.unique(shown, axis=0, return_inverse=True, return_counts=True)
    kinds = [np.flatnonzero(kind.ravel() == which)[:most] for which in np.argsort(-count, kind="stable")]
    return [np.arange(len(shown)), *kinds] if len(shown) <= most else kinds


def _filled_in(
    H: np.ndarray, rows: np.ndarray, units: list[Given], A: np.ndarray, values: np.ndarray, deadline: Deadline
) -> bool:
    # z = start + Σ θ·slope in these rows, (rows, units) and (rows, units, θ of all units)
    ends = np.cumsum([len(unit.free) for unit in units])
    start = np.stack([(unit.known + unit.T @ unit.w)[rows] for unit in units], axis=1)
    slope = np.zeros((*start.shape, int(ends[-1])))
    for u, (unit, end) in enumerate(zip(units, ends)):
        slope[:, u, end - len(unit.free) : end] = unit.T[rows] @ unit.free.T
    largest = max(float(np.abs(start).max()), float(np.nanmax(np.abs(H), initial=0.0)))
    for farther in FARTHEST:
        seconds = min(SECONDS, deadline.seconds_left)
        if seconds <= 0.0:
            return False
        theta, impossible = _solved(units, ends, start, slope, A, values[rows], farther * largest, seconds)
        if not impossible:
            break
    if theta is None:
        return False
    z = start + slope @ theta
    gated = np.einsum("ok,rkt->rokt", A, slope * (z > 0.0)[:, :, None]).sum(axis=2)
    left = values[rows] - np.maximum(z, 0.0) @ A.T
    theta += np.linalg.lstsq(gated.reshape(left.size, -1), left.ravel(), rcond=MOVES)[0]
    H[rows] = np.where(z > 0.0, np.maximum(start + slope @ theta, 0.0), 0.0)
    return True


def _solved(
    units: list[Given],
    ends: np.ndarray,
    start: np.ndarray,
    slope: np.ndarray,
    A: np.ndarray,
    values: np.ndarray,
    largest: float,
    seconds: float,
) -> tuple[np.ndarray | None, bool]:
    """θ of all units, if one was found, and whether there is none, which time that ran out does not say."""
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    size, count = start.size, int(ends[-1])
    eye, none = sparse.identity(size), sparse.csr_matrix((size, size))
    blank = sparse.csr_matrix((size, count))
    tolerance = TOLERANCE * np.abs(values).max(initial=1e-300)
    above = sparse.kron(sparse.identity(len(values)), A)
    constraints = [
        LinearConstraint(sparse.hstack([-slope.reshape(size, count), eye, -eye, none]), start.ravel(), start.ravel()),
        LinearConstraint(sparse.hstack([blank, eye, none, -largest * eye]), -np.inf, 0.0),
        LinearConstraint(sparse.hstack([blank, none, eye, largest * eye]), -np.inf, largest),
        LinearConstraint(
            sparse.hstack([sparse.csr_matrix((values.size, count)), above, sparse.csr_matrix((values.size, 2 * size))]),
            values.ravel() - tolerance,
            values.ravel() + tolerance,
        ),
    ]
    for unit, end in zip(units, ends):
        off = unit.T_off @ unit.free.T
        moves = np.abs(off).max(axis=1, initial=0.0) > MOVES
        if moves.any():
            rows = np.zeros((np.count_nonzero(moves), count + 3 * size))
            rows[:, end - len(unit.free) : end] = off[moves]
            constraints.append(
                LinearConstraint(sparse.csr_matrix(rows), -np.inf, -(unit.known_off + unit.T_off @ unit.w)[moves])
            )
    lower, upper = np.zeros(count + 3 * size), np.full(count + 3 * size, largest)
    lower[:count], upper[:count] = -np.inf, np.inf
    upper[count + 2 * size :] = 1.0
    whole = np.repeat([0, 1], [count + 2 * size, size])
    found = milp(
        np.zeros(len(lower)),
        constraints=constraints,
        integrality=whole,
        bounds=Bounds(lower, upper),
        options={"time_limit": seconds},
    )
    return None if found.x is None else found.x[:count], found.status == INFEASIBLE
