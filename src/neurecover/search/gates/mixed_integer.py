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
    values, largest = (state.Y[rows] - state.c).ravel(), float(state.Z[state.explained].max(initial=1e-300))
    slack = TOLERANCE * float(np.abs(values).max(initial=1e-300))
    one, above = sparse.identity(n), sparse.kron(sparse.identity(len(rows)), state.A)
    limits: dict[str, float] = {"node_limit": state.options.nodes}
    if deadline.moment is not None:
        limits["time_limit"] = deadline.seconds_left
    for M in (farther * largest for farther in FARTHEST):
        blocks = [  # of θ, h, s and g
            [sparse.csr_matrix(-slope.reshape(n, t)), one, -one, None],
            [None, one, None, -M * one],
            [None, None, one, M * one],
            [None, above, None, None],
            *[[sparse.csr_matrix(sides), None, None, None]] * (len(sides) > 0),
        ]
        low = np.concatenate([start.ravel(), np.full(2 * n, -np.inf), values - slack, np.full(len(sides), -np.inf)])
        high = np.concatenate([start.ravel(), np.repeat([0.0, M], n), values + slack, edges])
        found = milp(
            np.zeros(t + 3 * n),
            constraints=LinearConstraint(sparse.bmat(blocks, format="csr"), low, high),
            integrality=np.repeat([0, 1], [t + 2 * n, n]),
            bounds=Bounds(np.repeat([-np.inf, 0.0], [t, 3 * n]), np.repeat([np.inf, M, 1.0], [t, 2 * n, n])),
            options=limits,
        )
        if found.x is not None or found.status != INFEASIBLE:
            break
    return None if found.x is None else found.x[:t]
