"""Tracing one unit's boundary through the cells of the known layers until all its weights are known.

Inside a cell the boundary is a hyperplane with normal J. Where it meets a known unit i, at a point c, φ is continuous
but its derivative changes by ψ mᵀ, m being the gradient of q_i: the new normal is

    J' = J + α m,    α = ψ·θ,

and α is the one new number. It is measured close behind c: in the direction n = J − (J·m) m / (m·m), along which q_i is
constant, the boundary lies at t = −α q_i / (J·n). If ψ·θ follows from the equations so far, the crossing needs no
queries. A kink before c and one behind it, at a distance s, give ψ·θ with the standard error ‖J‖ √(σ² + σ'²) / s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.boundary import Boundary
from neurecover.queries.deep.boundaries.meeting import find_meeting_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.lines.segments import LocalKinks, confirm_kinks, find_local_kinks


class _NothingToLearnError(Exception):
    """Raised at a crossing where no kink can be measured, which neither confirms nor refutes the boundary."""


class _BentError(Exception):
    """Raised where the oracle is straight, but not constant, in the place of the boundary: it is a deeper unit's."""


@dataclass(frozen=True, eq=False)
class _Position:
    """A point of the boundary and the units that are positive in the cell around it."""

    x: np.ndarray
    positive: np.ndarray


@dataclass(frozen=True, eq=False)
class _Crossing:
    """The first known unit along `direction`, met at `point`; `slack` is the distance from there to the next one."""

    unit: int
    point: np.ndarray
    direction: np.ndarray
    slack: float


def trace(
    box: Box, known: KnownLayers, boundary: Boundary, x: np.ndarray, rng: np.random.Generator, *, patience: int = 60
) -> Boundary:
    """Return the boundary with as many weights as can be reached from its point x; complete if all could.

    Tracing ends if the boundary is not found behind three crossings in a row: it has bent at an unknown unit, so it
    belongs to a deeper layer or a layer below is incomplete. It also ends after `patience` walks in a row without a new
    weight.
    """
    options = known.options
    start = _Position(x, known.values(x[None])[0] > 0.0)
    places, lost, idle = [start], 0, 0
    while not boundary.complete and lost < options.lost and idle < patience:
        here = places[int(rng.integers(len(places)))] if rng.random() < 0.5 else places[-1]
        walk = _Walk(box, known, boundary, rng)
        reached = walk.walk_to_unknown(here)
        if reached is None:
            idle += 1
            continue
        position, crossing = reached
        try:
            grown, arrived = walk.learn(position, crossing)
        except _NothingToLearnError:
            idle += 1
            continue
        except _BentError:
            return boundary
        if grown is None:
            lost += 1
            idle += 1
        elif arrived is not None:
            boundary, idle, lost = grown, 0, 0
            places.append(arrived)
    return boundary if lost >= options.lost else _fill_gaps(box, known, boundary, rng)


def _fill_gaps(box: Box, known: KnownLayers, boundary: Boundary, rng: np.random.Generator) -> Boundary:
    """Return the boundary with the weights that no walk reached, measured where it meets their units."""
    if boundary.complete or known.unsigned is not None:
        return boundary
    for unit in np.flatnonzero(boundary.unseen[: known.n_top]):
        index = known.n_units - known.n_top + int(unit)
        for point in find_meeting_points(known, boundary, int(unit), rng):
            walk = _Walk(box, known, boundary, rng)
            grown = walk.learn_at(point, index)
            if grown is not None:
                boundary = grown
                break
    return boundary


@dataclass(frozen=True, eq=False)
class _Walk:
    """Walks along a boundary."""

    box: Box
    known: KnownLayers
    boundary: Boundary
    rng: np.random.Generator

    def walk_to_unknown(self, here: _Position) -> tuple[_Position, _Crossing] | None:
        """Walk along the boundary, without queries, to the first crossing that the equations do not determine."""
        options = self.known.options
        target = self._choose_target()
        for _ in range(options.walk):
            crossing = self._next_crossing(here, target)
            if crossing is None:
                return None
            flipped = here.positive.copy()
            flipped[crossing.unit] ^= True
            cell = self.known.cell(flipped)
            if not self.boundary.knows(cell.Phi @ crossing.direction):
                return here, crossing
            here_next = self._step_behind(crossing, flipped)
            if here_next is None:
                return None
            here = here_next
        return None

    def learn(self, here: _Position, crossing: _Crossing) -> tuple[Boundary | None, _Position | None]:
        """Measure the weight on the crossed unit by kinks before and behind it; the boundary is None if a kink is
        missing.
        """
        options = self.known.options
        flipped = here.positive.copy()
        flipped[crossing.unit] ^= True
        old, new = self.known.cell(here.positive), self.known.cell(flipped)
        m, J, c, u = old.Q[crossing.unit], self.boundary.normal(old), crossing.point, crossing.direction
        n = J - m * ((J @ m) / (m @ m))
        length, coarse = float(np.linalg.norm(J)), self.box.coarse
        if not float(np.linalg.norm(n)) > (options.oblique_coarse if coarse else options.oblique) * length:
            raise _NothingToLearnError
        n /= np.linalg.norm(n)
        radius = float(self.box.clear_radius(c[None], self.boundary.jump)[0])
        for bends in options.bends:
            # How far to look along n for the largest bend, in units of the distance behind c.
            reach = bends * abs(m @ u) * length / (float(np.linalg.norm(m)) * abs(J @ n))
            room = self._free_way(old.Q, old.Q @ c + old.q0, new.Q, u, n, reach, crossing)
            for behind in options.behind_coarse if coarse else options.behind:
                way = min(room, behind * radius / max(1.0, reach / 4.0))
                if way * reach < (options.shortest_coarse if coarse else options.shortest) * radius:
                    raise _NothingToLearnError
                kinks = self._find_pair(c, u, n, way, reach)
                if kinks is None:
                    continue
                (first, sigma), (second, other) = kinks
                row = (self.known.features(second[None]) - self.known.features(first[None]))[0] / way
                # What the known layers are off by changes with the slope of the features between the two.
                error = max(length * float(np.hypot(sigma, other)) / way + self.known.error, options.least_slope)
                if self.boundary.spread(row[None])[0] < 3.0 * error:
                    raise _NothingToLearnError
                grown = self.boundary.with_equations(row[None], np.zeros(1), np.array([error]))
                return grown, _Position(second, flipped)
        return None, None

    def _find_pair(
        self, c: np.ndarray, u: np.ndarray, n: np.ndarray, way: float, reach: float
    ) -> tuple[tuple[np.ndarray, float], tuple[np.ndarray, float]] | None:
        """Return the kinks before the crossing c and behind it, with their errors; None if one is not there."""
        before = self._find_kink(c - way * u, n, 0.5 * way * reach, known=not self.box.coarse)
        if before is None:
            return None
        first, kink = before
        behind = self._find_kink(first + 2.0 * way * u, n, way * reach)
        if behind is None:
            return None
        second, other = behind
        # n lies along q_i = 0, so the unit bends the oracle by the same on either side.
        change = float(np.linalg.norm(other.jump[0] - kink.jump[0]))
        noise = self.box.options.deep.same_bend if self.box.coarse else np.inf
        if change > noise * float(np.linalg.norm(kink.jump[0])):
            return None
        return (first, float(kink.sigma[0])), (second, float(other.sigma[0]))

    def learn_at(self, point: np.ndarray, unit: int) -> Boundary | None:
        """Measure the weight on a unit at a point where the boundary crosses that unit's own."""
        positive = self.known.values(point[None])[0] > 0.0
        positive[unit] = False
        cell = self.known.cell(positive)
        m, J = cell.Q[unit], self.boundary.normal(cell)
        if not J @ J > 0.0 or not self.boundary.knows(cell.Phi @ J / np.linalg.norm(J)):
            return None
        u = m - J * ((J @ m) / (J @ J))
        if not np.linalg.norm(u) > 1e-6 * np.linalg.norm(m):
            return None
        crossing = _Crossing(unit, point, u / np.linalg.norm(u), np.inf)
        try:
            return self.learn(_Position(point, positive), crossing)[0]
        except (_NothingToLearnError, _BentError):
            return None

    def _find_kink(
        self, x: np.ndarray, n: np.ndarray, radius: float, known: bool = False
    ) -> tuple[np.ndarray, LocalKinks] | None:
        """Return the kink on the segment x + t n, |t| ≤ radius, and its place; None if there is not exactly one.

        Raise _BentError if there clearly is none although the boundary is `known` at x.
        """
        options = self.known.options
        X, V, R = x[None], n[None], np.array([radius])
        if not self.known.limits.contains(np.vstack([x - radius * n, x + radius * n])).all():
            return None
        found = find_local_kinks(self.box, X, V, R, options.arm)
        if (
            known
            and found.straight[0]
            and not found.flat[0]
            and radius > self.box.clear_radius(X, self.boundary.jump)[0]
        ):
            raise _BentError
        if found.straight[0] or not confirm_kinks(self.box, X, V, R, found, options.arm)[0]:
            return None
        return x + found.position[0] * n, found

    @staticmethod
    def _free_way(
        old: np.ndarray, q: np.ndarray, new: np.ndarray, u: np.ndarray, n: np.ndarray, reach: float, crossing: _Crossing
    ) -> float:
        """Return the distance that queries may go before and behind the crossing without reaching another known unit.

        The known units have the values q there.
        """
        speed = np.maximum(np.abs(old @ u) + reach * np.abs(old @ n), np.abs(new @ u) + reach * np.abs(new @ n))
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.abs(q) / speed
        room[crossing.unit] = np.inf
        return 0.7 * float(np.min(room[~np.isnan(room)], initial=np.inf))

    def _choose_target(self) -> int | None:
        """Return a unit to head for, or None: usually one of the top known layer whose weight is unknown."""
        kind = self.rng.random()
        if kind < 0.2:
            return None
        if kind < 0.3:
            return int(self.rng.integers(self.known.n_units))
        unseen = np.flatnonzero(self.boundary.unseen[: self.known.n_top])
        if not unseen.size:
            return None
        return self.known.n_units - self.known.n_top + int(self.rng.choice(unseen))

    def _next_crossing(self, here: _Position, target: int | None) -> _Crossing | None:
        """Return the first known unit on a walk from here, towards the target if given; None if it is too far."""
        cell = self.known.cell(here.positive)
        J = self.boundary.normal(cell)
        q = cell.Q @ here.x + cell.q0
        u = self.rng.standard_normal(len(here.x)) / np.sqrt(len(here.x))
        if target is not None and np.any(cell.Q[target]):
            m = cell.Q[target]
            u = 0.3 * u - np.sign(q[target]) * m / np.linalg.norm(m)
        u -= J * ((J @ u) / (J @ J))
        u /= np.linalg.norm(u)
        speed = cell.Q @ u
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where((q > 0.0) == (speed < 0.0), -q / speed, np.inf)
        times[~(times > 0.0)] = np.inf
        if not len(times):
            return None
        order = np.argsort(times)[:2]
        first = float(times[order[0]])
        second = float(times[order[1]]) if len(order) > 1 else np.inf
        farthest = float(self.known.limits.distances_to_edge(here.x[None], u[None])[1][0])
        if not first < min(30.0 * (1.0 + float(np.linalg.norm(here.x))), farthest):
            return None
        return _Crossing(int(order[0]), here.x + first * u, u, second - first)

    def _step_behind(self, crossing: _Crossing, flipped: np.ndarray) -> _Position | None:
        """Return a point of the boundary a little behind a crossing whose bend is known; None if there is no room."""
        cell = self.known.cell(flipped)
        J = self.boundary.normal(cell)
        if not J @ J > 0.0:
            return None
        m, u = cell.Q[crossing.unit], crossing.direction
        along = u - J * ((J @ u) / (J @ J))
        if (m @ along) * (m @ u) <= 0.0:
            # The boundary folds back here: follow m on it instead.
            along = np.sign(m @ u) * (m - J * ((J @ m) / (J @ J)))
        along /= np.linalg.norm(along)
        q, speed = cell.Q @ crossing.point + cell.q0, cell.Q @ along
        q[crossing.unit] = np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.abs(q / speed).min(initial=np.inf)
        step = min(0.3 * room, 0.3, 0.3 * float(self.known.limits.room(crossing.point[None])[0]))
        if step < 1e-6:
            return None
        return _Position(crossing.point + step * along, flipped)
