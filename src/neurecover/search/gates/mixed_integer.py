"""Which units are on in rows that do not tell by themselves, all of these rows at once: a mixed-integer program.

Every unit has z = x̃·(v + N θ), N spanning what is open. For every row that is left and every unit

    h − s = z,    0 ≤ h ≤ M g,    0 ≤ s ≤ M (1 − g),    g in {0, 1},    A h = y − c,

with z ≤ 0 in the rows of E where the unit is off. A solution is as accurate as the solver's tolerance; with its gates g
the equations are linear in θ, and a step of least squares gives the last digits.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from neurecover.search.gates.state import State
from neurecover.solve import Deadline

FARTHEST = (2.0, 20.0)  # M over the largest value of a unit in E: the larger, the less the solver sees through it
TOLERANCE = 1e-7  # of the largest output, to which equations are met: about that of the solver
INFEASIBLE = 2  # the status that `scipy.optimize.milp` gives


def by_program(state: State, deadline: Deadline, sure: bool = True) -> State | None:
    """Explain rows of one kind, as many as a program takes, the largest kind first; then all that are left.

    Its solution is believed if the equations of its gates have no other and are more than it takes. With `sure` False
    any is, that of all rows first: fewer leave more choice.
    """
    rows, most = state.left, state.options.gates // max(len(state.V), 1)
    if not most or len(state.A) == 1:  # one equation for all gates of a row says nothing
        return None
    _, kind, count = np.unique(state.X[rows] != 0.0, axis=0, return_inverse=True, return_counts=True)
    groups = [rows[kind.ravel() == which][:most] for which in np.argsort(-count, kind="stable")]
    kinds, every = groups[: state.options.programs], [rows] * (len(groups) > 1 and len(rows) <= most)
    for group in kinds + every if sure else every + kinds:
        new = None if deadline.passed else _with_gates(state, group, sure, deadline)
        if new is not None and new.n_explained > state.n_explained:
            return new
    return None


def _with_gates(state: State, rows: np.ndarray, sure: bool, deadline: Deadline) -> State | None:
    # z = start + slope·θ in these rows, (rows, units) and (rows, units, θ of all units), and planes·θ ≤ edges in E.
    start, rounding = state.X[rows] @ state.V.T, state.options.rounding
    ends = np.cumsum([len(N) for N in state.free])
    slope, planes, edges = np.zeros((*start.shape, int(ends[-1]))), [], []
    for u, (N, end) in enumerate(zip(state.free, ends)):
        slope[:, u, end - len(N) : end] = state.X[rows] @ N.T
        off = state.X[state.explained & (state.Z[:, u] <= 0.0)]
        moves = np.zeros((len(off), int(ends[-1])))
        moves[:, end - len(N) : end] = off @ N.T
        moving = np.abs(moves).max(axis=1, initial=0.0) > rounding
        planes.append(moves[moving])
        edges.append(-(off @ state.V[u])[moving])
    used = np.abs(slope).max(axis=(0, 1), initial=0.0) > rounding
    if not used.any():
        return None
    slope, sides = slope[:, :, used], np.vstack(planes)[:, used]
    theta = _solution(state, rows, start, slope, sides, np.concatenate(edges), deadline)
    if theta is None:
        return None
    z, values = start + slope @ theta, state.Y[rows] - state.c

    def gated(least: float) -> tuple[np.ndarray, np.ndarray]:
        """Return ∂z/∂θ and ∂y/∂θ, a row for every unit and for every output, of units with z above `least`."""
        on = slope * (z > least)[:, :, None]
        return on.reshape(z.size, -1), np.einsum("ok,rkt->rot", state.A, on).reshape(values.size, -1)

    # A solver goes on to where a unit has z = 0, so one that is there may be on as well.
    wanted, told = map(np.linalg.matrix_rank, gated(-10.0 * TOLERANCE * float(np.abs(z).max())))
    if sure and (told < wanted or told == values.size):
        return None
    theta = theta + np.linalg.lstsq(gated(0.0)[1], (values - np.maximum(z, 0.0) @ state.A.T).ravel(), rcond=rounding)[0]
    return state.with_values(rows, np.where(z > 0.0, np.maximum(start + slope @ theta, 0.0), 0.0))


def _solution(
    state: State,
    rows: np.ndarray,
    start: np.ndarray,
    slope: np.ndarray,
    sides: np.ndarray,
    edges: np.ndarray,
    deadline: Deadline,
) -> np.ndarray | None:
    """Return θ, if the solver finds one within its nodes, and within the deadline if there is one."""
    n, t = start.size, slope.shape[2]
    values = (state.Y[rows] - state.c).ravel()
    slack = TOLERANCE * float(np.abs(values).max(initial=1e-300))
    above, eye = sparse.kron(sparse.identity(len(rows)), state.A), sparse.identity(n)
    limits: dict[str, float] = {"node_limit": state.options.nodes}
    if deadline.moment is not None:
        limits["time_limit"] = deadline.seconds_left

    def constraint(blocks: list[object], low: object, high: object) -> LinearConstraint:
        """Return low ≤ Σ blocks·(θ, h, s, g) ≤ high, None for a block of zeros."""
        height = next(block.shape[0] for block in blocks if block is not None)  # type: ignore[attr-defined]
        zeros = [sparse.csr_matrix((height, width)) for width in (t, n, n, n)]
        return LinearConstraint(sparse.hstack([z if b is None else b for b, z in zip(blocks, zeros)]), low, high)

    for farther in FARTHEST:
        M = farther * float(state.Z[state.explained].max(initial=1e-300))
        constraints = [
            constraint([sparse.csr_matrix(-slope.reshape(n, t)), eye, -eye, None], start.ravel(), start.ravel()),
            constraint([None, eye, None, -M * eye], -np.inf, 0.0),
            constraint([None, None, eye, M * eye], -np.inf, M),
            constraint([None, above, None, None], values - slack, values + slack),
            constraint([sparse.csr_matrix(sides), None, None, None], -np.inf, edges),
        ]
        found = milp(
            np.zeros(t + 3 * n),
            constraints=constraints if len(sides) else constraints[:-1],
            integrality=np.repeat([0, 1], [t + 2 * n, n]),
            bounds=Bounds(np.repeat([-np.inf, 0.0], [t, 3 * n]), np.repeat([np.inf, M, 1.0], [t, 2 * n, n])),
            options=limits,
        )
        if found.x is not None or found.status != INFEASIBLE:
            break
    return None if found.x is None else found.x[:t]
