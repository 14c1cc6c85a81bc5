"""Arbitrary inputs, few units: enumerate the patterns of units being on, solve a linear program for each [BJW18,
Alg. 1, 2].

With rank(Y) = k the hidden rows relu(wᵢ·x) lie in the span of the outputs: they are Q z for z in R^k, Q (n, k) a
basis. A pattern S is the set of samples where a unit is on, and the unit exists exactly when some z and v have

    q_j·z = v·x_j ≥ 1  for j in S,        q_j·z = 0 and v·x_j ≤ 0  for j not in S.

Every such Q z is non-negative, so z is in the cone {z : Q z ≥ 0}, pointed because Q has rank k, and S is the
support on one of its faces. That is what is enumerated here: the extreme rays, each the null vector of k − 1 rows
of Q, C(m, k − 1) of them for m distinct directions, and the unions of their supports. The paper's count is C(2n,
k), over all sign patterns of the span.

For a pattern the equations are one null-space computation. Where it is a line, its direction is the unit, at full
accuracy; where it is larger, a linear program (HiGHS) finds a feasible point in it that is independent of the units
found before: in z that is a linear objective, so that 2k programs do what Remark 1 takes 2n for. The form "paper"
(`programs_of_remark_1`) enumerates the sign patterns of Lemma 1, C(2n, k) systems of tight constraints, and solves
those 2n programs for each.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np

from neurecover.activations import get
from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.bjw18.common import units_of_rank
from neurecover.algorithms.bjw18.options import EXACT, SOLVED, EnumerationOptions
from neurecover.algorithms.bjw18.patterns import output_span, with_outputs
from neurecover.algorithms.bjw18.statements import least_share
from neurecover.certificate import Check
from neurecover.data import Source
from neurecover.exceptions import UnsolvableError
from neurecover.models import Model, Network
from neurecover.results import Estimate
from neurecover.search import Task

BATCH = 4_096  # null vectors at a time
OPTIONS = EnumerationOptions()
RELU = get("relu")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PatternSearch:
    """The network of the units found, the relative residual on the samples, and how many patterns there were.

    `unique` tells for every unit whether its pattern leaves its weights no freedom; `alternatives` counts the patterns
    beyond those used that a ReLU unit in the span of the outputs has, too: other networks that fit.
    """

    network: Network
    residual: float
    n_patterns: int
    unique: tuple[bool, ...]
    alternatives: int

    @property
    def exact(self) -> bool:
        return self.residual <= EXACT

    @property
    def determined(self) -> bool:
        """Whether no other network of this width gives these outputs, as far as the patterns looked at tell."""
        return self.exact and all(self.unique) and self.alternatives == 0


def n_rays(n: int, k: int) -> int:
    """Return how many null vectors are tried for n samples: C(n, k − 1)."""
    return comb(n, k - 1)


def seconds(n: int, k: int, options: EnumerationOptions = OPTIONS) -> float:
    """Return about how long the enumeration takes."""
    return n_rays(n, k) * options.seconds_per_ray * max(1.0, n / 100.0)


def sign_patterns(
    X: np.ndarray,
    Y: np.ndarray,
    k: int,
    options: EnumerationOptions = OPTIONS,
) -> PatternSearch:
    """Find a ReLU network of k units with Y = act(X Wᵀ) Aᵀ for any X (n, d), Y (n, p) of rank k."""
    Q = output_span(Y, k).Q
    patterns = face_patterns(Q, options.faces)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    unique: list[bool] = []
    alternatives = 0
    for count, pattern in enumerate(patterns):
        if len(found) == k and count >= options.checked:
            break
        basis = np.array([z for z, _ in found]).reshape(-1, k)
        if len(found) == k:
            alternatives += any(True for _ in _units_of(X, Q, pattern, basis[:0]))
            continue
        for z, v, alone in _units_of(X, Q, pattern, basis):
            found.append((z, v))
            unique.append(alone)
            if len(found) == k:
                break
    W = np.array([v for _, v in found]).reshape(-1, X.shape[1])
    return PatternSearch(*with_outputs(X, Y, W, RELU), len(patterns), tuple(unique), alternatives)


def programs_of_remark_1(X: np.ndarray, Y: np.ndarray, k: int) -> PatternSearch:
    """Find k ReLU units by [BJW18, Alg. 1 and 2] as printed: every pattern of Lemma 1, 2n programs each."""
    Q = output_span(Y, k).Q
    patterns = tight_patterns(Q)
    rows: list[np.ndarray] = []
    found: list[np.ndarray] = []
    for _ in range(k):
        known = np.array(rows).reshape(-1, len(Q))
        point = next((p for on in patterns if (p := _iterative_program(X, Q, on, known)) is not None), None)
        if point is None:
            break
        found.append(point)
        rows.append(np.maximum(X @ point, 0.0))
    W = np.array(found).reshape(-1, X.shape[1])
    return PatternSearch(*with_outputs(X, Y, W, RELU), len(patterns), (False,) * len(W), 0)


def tight_patterns(Q: np.ndarray) -> list[np.ndarray]:
    """Return the sign patterns, masks (n,), of all Q z with k of the constraints Q z ≥ 1 or Q z ≤ 0 tight [Lemma 1]."""
    n, k = Q.shape
    masks = {}
    for rows in itertools.combinations(range(n), k):
        system = Q[list(rows)]
        if np.linalg.cond(system) > 1e12:
            continue
        for right in itertools.product((0.0, 1.0), repeat=k):
            on = Q @ np.linalg.solve(system, np.array(right)) > SOLVED
            if on.any():
                masks[on.tobytes()] = on
    return list(masks.values())


def _iterative_program(X: np.ndarray, Q: np.ndarray, on: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """Return w of a unit with this pattern whose row is independent of the rows known (m, n), or None [BJW18, Alg. 1].

    A first program has the constraints of the pattern alone: where it is infeasible, so are the 2n of Remark 1, which
    add [f_S(y)(I − P)]_t ≥ 1 or ≤ −1 for one t, y = w X.
    """
    from scipy.optimize import linprog

    (n, k), d = Q.shape, X.shape[1]
    equal = np.vstack(
        [
            np.hstack([X[on], -Q[on]]),
            np.hstack([np.zeros((n - on.sum(), d)), Q[~on]]),
        ]
    )
    side = np.where(on, -1.0, 1.0)[:, None] * np.hstack([X, np.zeros((n, k))])
    bounds = np.where(on, -1.0, 0.0)
    free = [(None, None)] * (d + k)

    def solve(more: np.ndarray, least: float) -> np.ndarray | None:
        A_ub = np.vstack([side, -more]) if len(more) else side
        b_ub = np.append(bounds, -least) if len(more) else bounds
        answer = linprog(np.zeros(d + k), A_ub, b_ub, equal, np.zeros(n), bounds=free, method="highs")
        return np.asarray(answer.x[:d]) if answer.status == 0 else None

    first = solve(np.zeros((0, d + k)), 0.0)
    if first is None or len(known) == 0:
        return first
    P = known.T @ np.linalg.pinv(known.T)
    values = np.hstack([(np.eye(n) - P) @ (on[:, None] * X), np.zeros((n, k))])
    for t in range(n):
        for sign in (1.0, -1.0):
            point = solve(sign * values[t : t + 1], 1.0)
            if point is not None:
                return point
    return None


def face_patterns(Q: np.ndarray, most: int = OPTIONS.faces) -> list[np.ndarray]:
    """Return the supports, as masks (n,), of the faces of the cone {z : Q z ≥ 0}: rays first, then by size."""
    rays = list(dict.fromkeys(support.tobytes() for support in _ray_supports(Q)))
    masks = [np.frombuffer(ray, dtype=bool) for ray in rays]
    faces = dict.fromkeys(rays)
    fresh = rays
    while fresh and len(faces) < most:
        unions = {(np.frombuffer(face, dtype=bool) | mask).tobytes() for face in fresh for mask in masks}
        fresh = [union for union in unions if union not in faces]
        faces.update(dict.fromkeys(fresh))
    larger = sorted((np.frombuffer(face, dtype=bool) for face in list(faces)[len(rays) :]), key=lambda m: int(m.sum()))
    return masks + larger[:most]


def _ray_supports(Q: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the support of Q z for every extreme ray z, some of them more than once."""
    k = Q.shape[1]
    rows = _distinct_directions(Q)
    total = comb(len(rows), k - 1)
    combinations = itertools.combinations(range(len(rows)), k - 1)
    done = 0
    while batch := list(itertools.islice(combinations, BATCH)):
        if k == 1:
            Z = np.ones((1, 1))
        else:
            # The last right singular vector of k − 1 rows is orthogonal to all of them.
            _, s, right = np.linalg.svd(rows[np.array(batch)], full_matrices=True)
            Z = right[s[:, -1] > 1e-9, -1]
        values = Q @ Z.T
        for sign in (1.0, -1.0):
            for column in np.flatnonzero((sign * values).min(axis=0) >= -SOLVED):
                yield sign * values[:, column] > SOLVED
        done += len(batch)
        _log.info("%d of %d null vectors", done, total)


def _distinct_directions(Q: np.ndarray) -> np.ndarray:
    """Return one unit row for every line through the origin on which rows of Q lie."""
    lengths = np.linalg.norm(Q, axis=1)
    unit = Q[lengths > SOLVED] / lengths[lengths > SOLVED, None]
    kept: list[np.ndarray] = []
    for row in unit:
        if not kept or np.abs(np.array(kept) @ row).max() < 1.0 - 1e-13:
            kept.append(row)
    return np.array(kept)


def _units_of(
    X: np.ndarray, Q: np.ndarray, on: np.ndarray, found: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yield (z, v, unique) of units with this pattern whose z is independent of those found (m, k)."""
    k, d = Q.shape[1], X.shape[1]
    equations = np.block([[Q[~on], np.zeros((np.count_nonzero(~on), d))], [Q[on], -X[on]]])
    scale = np.concatenate([np.ones(k), np.full(d, 1.0 / max(float(np.sqrt(np.mean(X**2))), 1e-300))])
    N = scale[:, None] * _null_space(equations * scale)
    if N.shape[1] == 0:
        return
    if N.shape[1] == 1:
        for t in (N[:, 0], -N[:, 0]):
            if _feasible(X, Q, on, t[:k], t[k:]) and _independent(found, t[:k]):
                yield t[:k], t[k:], True
        return
    for objective in _complement(found, k):
        for sign in (1.0, -1.0):
            point = _program(X, Q, on, N, sign * objective)
            if point is not None and _independent(found, point[:k]):
                yield point[:k], point[k:], False
                found = np.vstack([found, point[:k]])


def _program(X: np.ndarray, Q: np.ndarray, on: np.ndarray, N: np.ndarray, objective: np.ndarray) -> np.ndarray | None:
    """Return the point of null space N with largest objective·z that satisfies Algorithm 1; None if there is none."""
    from scipy.optimize import linprog

    k = Q.shape[1]
    inequalities = np.vstack([-Q[on] @ N[:k], X[~on] @ N[k:]])
    bounds = np.concatenate([-np.ones(np.count_nonzero(on)), np.zeros(np.count_nonzero(~on))])
    answer = linprog(-objective @ N[:k], A_ub=inequalities, b_ub=bounds, bounds=(-1e4, 1e4), method="highs")
    return N @ answer.x if answer.status == 0 else None


def _feasible(X: np.ndarray, Q: np.ndarray, on: np.ndarray, z: np.ndarray, v: np.ndarray) -> bool:
    values, off = Q[on] @ z, X[~on] @ v
    size = float(np.abs(values).max(initial=0.0))
    return bool(values.min(initial=np.inf) > 0.0 and off.max(initial=-np.inf) <= SOLVED * size)


def _independent(found: np.ndarray, z: np.ndarray) -> bool:
    if len(found) == 0:
        return bool(np.linalg.norm(z) > 0.0)
    rest = z - found.T @ np.linalg.lstsq(found.T, z, rcond=None)[0]
    return bool(np.linalg.norm(rest) > 1e-6 * np.linalg.norm(z))


def _complement(found: np.ndarray, k: int) -> np.ndarray:
    """Return an orthonormal basis, as rows, of what is orthogonal to the z found."""
    return _null_space(found).T if len(found) else np.eye(k)


def _null_space(M: np.ndarray) -> np.ndarray:
    """Return a basis of the null space, as columns. The matrix is padded so that the singular vectors are complete."""
    m = M.shape[1]
    _, s, right = np.linalg.svd(np.vstack([M, np.zeros((m, m))]), full_matrices=False)
    return right[s <= 1e-10 * max(float(s[0]), 1e-300)].T


def _refuse(task: Task) -> str | None:
    if task.bias:
        return "sign_patterns is for networks without biases: pass bias=False (--no-bias)."
    if str(task.activation) != "relu":
        return f"sign_patterns needs relu: its programs are linear only then. Got {task.activation} instead."
    k = task.n_hidden
    if k is not None and k > task.n_outputs:
        return (
            f"sign_patterns needs rank(Y) = k, that is at least as many outputs as units. Got {k} units and "
            f"{task.n_outputs} outputs instead."
        )
    return None if k is None else _too_many(task.n_samples, k)


def _too_many(n: int, k: int, options: EnumerationOptions = OPTIONS) -> str | None:
    time = seconds(n, k, options)
    if time <= options.seconds:
        return None
    return (
        f"sign_patterns would try {n_rays(n, k):.2g} null vectors for {k} units and {n} samples, about {time:.2g} s, "
        f"more than its budget of {options.seconds:g} s. Give fewer samples, or take exact_tensor for Gaussian inputs."
    )


def _run(call: Call) -> Estimate:
    X, Y = call.source.collect()
    k, options = units_of_rank(call.task.n_hidden, Y), call.options_as(EnumerationOptions)
    if (reason := _too_many(len(X), k, options)) is not None:
        raise UnsolvableError(reason)
    if call.form == PAPER:
        return _as_printed(X, Y, k, options.systems)
    cost = f"{n_rays(len(X), k)} null vectors at the most, about {seconds(len(X), k, options):.1g} s"
    _log.info("sign_patterns: %s", cost)
    search = sign_patterns(X, Y, k, options=options)
    note = (
        f"{cost}; {search.n_patterns} patterns, {search.network.n_hidden} of {k} units, residual {search.residual:.1e}"
    )
    if not search.exact:
        return Estimate(None, (f"no {k} ReLU units give these outputs: {note}",), details=search)
    if not search.determined:
        note += (
            f"; the samples do not determine the weights: {search.unique.count(False)} units have freedom left, and "
            f"{search.alternatives} more patterns fit"
        )
    return Estimate(search.network, (note,), details=search)


def _as_printed(X: np.ndarray, Y: np.ndarray, k: int, most: int) -> Estimate:
    systems = comb(len(X), k) * 2**k
    if systems > most:
        raise UnsolvableError(
            f"Lemma 1 solves {systems:.2g} systems for {k} units and {len(X)} samples, more than {most:g}: give "
            "fewer samples, or take form='best'."
        )
    search = programs_of_remark_1(X, Y, k)
    note = f"{systems} systems, {search.n_patterns} patterns, {search.network.n_hidden} of {k} units, residual "
    note += f"{search.residual:.1e}; as printed, nothing says whether other networks fit"
    return Estimate(search.network if search.exact else None, (note,), details=search)


def _diagnose(network: Model, source: Source, rng: np.random.Generator) -> tuple[Check, ...]:
    """Return a check whether every halfspace holds as many inputs as [BJW18, Corollary 1] asks for."""
    X, _ = source.collect()
    k = sum(len(W) for W in network.hidden_weights)
    share, wanted = least_share(X, rng), k * np.log(1.0 / OPTIONS.delta) / len(X)
    sentence = f"Some halfspace holds {share:.1%} of the inputs or fewer; Corollary 1 asks for about {wanted:.1%}."
    return (Check("every halfspace", share >= wanted, share, wanted, sentence),)


ALGORITHM = Algorithm(
    name="sign_patterns",
    paper="BJW18, Algorithms 1 and 2",
    assumes="any inputs, no biases, no noise; relu; outputs of rank k; few units and samples, C(n, k − 1) null vectors",
    refuse=_refuse,
    run=_run,
    forms=(BEST, PAPER),
    options={BEST: EnumerationOptions, PAPER: EnumerationOptions},
    diagnose=_diagnose,
)
