"""Kinks of a piecewise linear function along a line.

On t ↦ f(x + t v) every interval [a, b] carries the values f(a), f(b) and the slopes just inside its two ends. If the
four agree with one straight line there is no kink between them. If the two tangents meet at some t* in between, and f
agrees with them at t* − ε and t* + ε, the interval has one kink, at t*. (Agreement at t* itself would prove nothing:
two kinks may cancel there.) Otherwise the interval is split, but never at t*, where a kink would spoil the new slopes.
All intervals of one level are queried in one batch.

What counts as agreement follows from the rounding of the answers. A slope is taken over the fraction η of an interval
of length L, so extrapolating it over L multiplies the rounding e of two answers by 2/η.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.box.resolution import check_repeatable


@dataclass(frozen=True, eq=False)
class Kinks:
    """The kinks of f(x + t v) at `positions` (m,), in order, and the m + 1 linear pieces around them.

    Piece i is `values[i]` + (t − `centres[i]`)·`slopes[i]` on [edges[i], edges[i + 1]], with values and slopes (m + 1,
    p); `slope_noise` (m + 1,) is the expected rounding of a slope. `resolved` (m,) is False where several kinks may be
    too close to be told apart. `complete` is False if the search was given up.
    """

    positions: np.ndarray
    edges: np.ndarray
    centres: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    slope_noise: np.ndarray
    resolved: np.ndarray
    complete: bool
    queries: int

    @property
    def jumps(self) -> np.ndarray:
        """The change of slope at every kink, (m, p)."""
        return np.diff(self.slopes, axis=0)

    @property
    def widths(self) -> np.ndarray:
        """The lengths of the pieces, (m + 1,)."""
        return np.diff(self.edges)


def find_kinks(
    box: Box,
    x: np.ndarray,
    v: np.ndarray,
    start: float,
    stop: float,
    *,
    most: int = 20_000,
) -> Kinks:
    """Find all kinks of the oracle along x + t v for start ≤ t ≤ stop.

    The search is given up after `most` queries, or when it has met curves and hardly any kinks.
    """
    if not start < stop:
        raise ValueError(f"expected start < stop. Got {start:g} and {stop:g} instead.")
    line = _Line(box, np.asarray(x, dtype=float), np.asarray(v, dtype=float))
    before = box.queries
    positions, resolved, complete = _search(line, start, stop, most)
    return _measure_pieces(line, start, stop, positions, resolved, complete, before)


@dataclass(frozen=True)
class _Answers:
    """Values (n, p) and their rounding (n,)."""

    f: np.ndarray
    noise: np.ndarray


@dataclass(frozen=True)
class _Line:
    """The oracle along x + t v."""

    box: Box
    x: np.ndarray
    v: np.ndarray

    def __call__(self, t: np.ndarray) -> _Answers:
        X = self.x + t[:, None] * self.v
        Y = self.box(X)
        noise = self.box.noise(X, Y)
        return _Answers(Y, noise)

    @property
    def fraction(self) -> float:
        """The length of the arm over which a slope is measured, as a share of its interval: short to avoid kinks,
        longer for coarse answers.
        """
        options = self.box.options.lines
        return options.arm_coarse if self.box.coarse else options.arm

    @property
    def reach(self) -> float:
        """The |t| at which t v becomes longer than x; beyond it answers grow like |t|."""
        return float(np.linalg.norm(self.x) / np.linalg.norm(self.v))

    def rungs(self, start: float, stop: float) -> np.ndarray:
        """Return the ends of the first intervals. Coarse answers get many, because far from the origin they would hide
        kinks near it.
        """
        options = self.box.options.lines
        if not self.box.coarse:
            return np.array([start, stop])
        out = (self.reach or 1.0) * options.ratio ** np.arange(20)
        ladder = np.concatenate([-out[::-1], out])
        inner = ladder[(ladder > start + 0.1 * out[0]) & (ladder < stop - 0.1 * out[0])]
        return np.concatenate([[start], inner, [stop]])

    def shortest(self, t: np.ndarray) -> np.ndarray:
        """Return the length below which an interval at t is not split: its points would hardly differ."""
        return self.box.options.lines.shortest * self.box.resolution * (self.reach + np.abs(t))


@dataclass(frozen=True)
class _Intervals:
    """Intervals [a, b] with values fa, fb, their rounding na, nb, and slopes sa, sb at the ends over arms ha, hb (nan:
    unknown).
    """

    a: np.ndarray
    b: np.ndarray
    fa: np.ndarray
    fb: np.ndarray
    na: np.ndarray
    nb: np.ndarray
    sa: np.ndarray
    sb: np.ndarray
    ha: np.ndarray
    hb: np.ndarray

    def take(self, index: np.ndarray) -> _Intervals:
        """Return some of the intervals."""
        return _Intervals(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.a)

    @property
    def noise(self) -> np.ndarray:
        """The larger rounding of the two values, (n,)."""
        return np.maximum(self.na, self.nb)


def _search(line: _Line, start: float, stop: float, most: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the positions of the kinks, which of them are resolved, and whether the search was completed."""
    options = line.box.options.lines
    before, limit = line.box.queries, line.box.queries + most
    rng = np.random.default_rng(0)
    work, looked = _first_intervals(line, start, stop), False
    found: list[np.ndarray] = []
    blurred: list[np.ndarray] = []
    for _ in range(options.levels):
        work = _measure_slopes(line, work)
        tolerance = options.safety * work.noise / line.fraction
        work, tolerance = _keep_bent(work, tolerance)
        narrow = work.b - work.a < line.shortest(work.a)
        blurred.append(0.5 * (work.a + work.b)[narrow])
        work, tolerance = work.take(~narrow), tolerance[~narrow]
        if not len(work) or line.box.queries + 6 * len(work) > limit:
            break
        asked, n_found = line.box.queries - before, sum(map(len, found))
        if _is_hopeless(asked, n_found, options.patience):
            break
        if not looked and asked > options.doubt * (1 + n_found):
            looked = True
            _look_again(line, work)
        meeting, candidate = _find_meeting(work, tolerance, line.fraction)
        single = candidate.copy()
        single[candidate] = _confirm(line, work.take(candidate), tolerance[candidate], meeting[candidate])
        found.append(meeting[single])
        where = _choose_split_points(work, meeting, candidate, line.fraction, rng)
        work = _split(line, work.take(~single), where[~single])
    positions = np.concatenate([*found, *blurred])
    resolved = np.repeat([True, False], [sum(map(len, found)), sum(map(len, blurred))])
    order = np.argsort(positions)
    return positions[order], resolved[order], not len(work)


def _is_hopeless(queries: int, found: int, patience: int) -> bool:
    """Return whether so many queries without more kinks show that the oracle is curved.

    After q queries there are about q/3 intervals. If there are m ≤ 2q kinks, at least every hundredth interval contains
    exactly one kink, which is then found (Poisson: λ e^{−λ} with λ = 3m/q ≤ 6).
    """
    return queries > patience and found < queries / 300


def _look_again(line: _Line, work: _Intervals) -> None:
    """Raise UnsolvableError if some of the answers at the ends of the intervals are different now."""
    again = work.take(np.arange(min(len(work), line.box.options.lines.repeated)))
    check_repeatable(line.box, line.x + again.a[:, None] * line.v, again.fa, line.box.options.box)


def _first_intervals(line: _Line, start: float, stop: float) -> _Intervals:
    """Query the ends of the first intervals."""
    t = line.rungs(start, stop)
    ends = line(t)
    f, noise = ends.f, ends.noise
    none, nan = np.full_like(f[1:], np.nan), np.full(len(t) - 1, np.nan)
    return _Intervals(t[:-1], t[1:], f[:-1], f[1:], noise[:-1], noise[1:], none, none, nan, nan)


def _measure_slopes(line: _Line, work: _Intervals) -> _Intervals:
    """Measure the unknown slopes, and those whose arm has become too long for a shorter interval."""
    arm = line.fraction * (work.b - work.a)
    left, right = ~(work.ha <= 8.0 * arm), ~(work.hb <= 8.0 * arm)
    inner = line(np.concatenate([(work.a + arm)[left], (work.b - arm)[right]])).f
    count = np.count_nonzero(left)
    sa, sb, ha, hb = work.sa.copy(), work.sb.copy(), work.ha.copy(), work.hb.copy()
    sa[left] = (inner[:count] - work.fa[left]) / arm[left, None]
    sb[right] = (work.fb[right] - inner[count:]) / arm[right, None]
    ha[left], hb[right] = arm[left], arm[right]
    return replace(work, sa=sa, sb=sb, ha=ha, hb=hb)


def _keep_bent(work: _Intervals, tolerance: np.ndarray) -> tuple[_Intervals, np.ndarray]:
    """Return the intervals in which f is not straight, with their tolerances."""
    length = (work.b - work.a)[:, None]
    sag = np.abs(work.fb - work.fa - work.sa * length).max(axis=1)
    turn = np.abs((work.sb - work.sa) * length).max(axis=1)
    bent = ~((sag < tolerance) & (turn < 2.0 * tolerance))
    return work.take(bent), tolerance[bent]


def _find_meeting(work: _Intervals, tolerance: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where the tangents at both ends meet (nan if nowhere), and whether that can be the only kink."""
    turn = work.sb - work.sa
    # fa + sa (t − a) = fb + sb (t − b) in every output, in the least-squares sense, with t counted from a.
    length = work.b - work.a
    rise = work.fa - work.fb + work.sb * length[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.sum(turn * rise, axis=1) / np.sum(turn * turn, axis=1)
        gap = np.abs(rise - turn * t[:, None]).max(axis=1)
    inside = (t > 1.01 * fraction * length) & (t < (1.0 - 1.01 * fraction) * length)
    return work.a + t, inside & (gap < tolerance)


def _confirm(line: _Line, work: _Intervals, tolerance: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return whether f follows the left tangent up to t* − ε and the right one from t* + ε."""
    turn = np.abs(work.sb - work.sa).max(axis=1)
    step = np.minimum(0.25 * np.minimum(t - work.a, work.b - t), 50.0 * tolerance / turn)
    f = line(np.concatenate([t - step, t + step])).f
    below, above = f[: len(t)], f[len(t) :]
    before = np.abs(below - work.fa - work.sa * (t - step - work.a)[:, None]).max(axis=1, initial=0.0)
    after = np.abs(above - work.fb - work.sb * (t + step - work.b)[:, None]).max(axis=1, initial=0.0)
    return (before < tolerance) & (after < tolerance)


def _choose_split_points(
    work: _Intervals, meeting: np.ndarray, candidate: np.ndarray, fraction: float, rng: np.random.Generator
) -> np.ndarray:
    """Choose where to split: beside a refuted meeting point, just inside an end close to it, else near the middle."""
    n, length = len(work), work.b - work.a
    part = rng.uniform(0.42, 0.58, n)
    with np.errstate(invalid="ignore"):
        relative = (meeting - work.a) / length
        beside = relative + rng.uniform(0.3, 1.0, n) * rng.choice([-1.0, 1.0], n) * fraction
        part = np.where(candidate & (np.abs(relative - 0.5) < 0.45), beside, part)
        near = fraction * 2.0 * rng.uniform(1.0, 1.1, n)
        part = np.where(np.abs(relative - 0.5 * fraction) < 0.51 * fraction, near, part)
        part = np.where(np.abs(relative - 1.0 + 0.5 * fraction) < 0.51 * fraction, 1.0 - near, part)
    return work.a + part * length


def _split(line: _Line, work: _Intervals, where: np.ndarray) -> _Intervals:
    """Query the split points and return both halves of every interval."""
    middle = line(where)
    nan, none = np.full(len(where), np.nan), np.full_like(work.sa, np.nan)
    left = (work.a, where, work.fa, middle.f, work.na, middle.noise, work.sa, none, work.ha, nan)
    right = (where, work.b, middle.f, work.fb, middle.noise, work.nb, none, work.sb, nan, work.hb)
    return _Intervals(*(np.concatenate(both) for both in zip(left, right)))


def _measure_pieces(
    line: _Line,
    start: float,
    stop: float,
    positions: np.ndarray,
    resolved: np.ndarray,
    complete: bool,
    before: int,
) -> Kinks:
    """Measure every piece from two points near its ends, and place the kinks where neighbouring pieces meet.

    A kink whose jump is within the rounding of the two slopes is dropped; its pieces are joined and measured again.
    """
    options = line.box.options.lines
    for left in range(options.passes - 1, -1, -1):
        edges = _piece_edges(positions, start, stop, line.reach)
        width = np.diff(edges)
        low, high = line(edges[:-1] + 0.1 * width), line(edges[1:] - 0.1 * width)
        slopes = (high.f - low.f) / (0.8 * width)[:, None]
        noise = 2.0 * np.maximum(low.noise, high.noise) / (0.8 * width)
        jump = np.abs(np.diff(slopes, axis=0)).max(axis=1, initial=0.0)
        real = jump > options.safety * (noise[1:] + noise[:-1])
        if real.all() or left == 0:
            break
        positions, resolved = positions[real], resolved[real]
    centres, values = 0.5 * (edges[1:] + edges[:-1]), 0.5 * (low.f + high.f)
    met = _intersect(centres, values, slopes)
    room = 0.2 * np.minimum(width[1:], width[:-1])
    positions = np.where(np.abs(met - positions) < room, met, positions)
    edges = np.concatenate([[edges[0]], positions, [edges[-1]]])
    queries = line.box.queries - before
    return Kinks(positions, edges, centres, values, slopes, noise, resolved, complete, queries)


def _piece_edges(positions: np.ndarray, start: float, stop: float, reach: float) -> np.ndarray:
    """Return the kinks and an outer end on either side, not far out, where answers are coarse."""
    if not len(positions):
        return np.array([start, stop])
    arm = np.ptp(positions) + reach + np.abs(positions).max()
    return np.concatenate([[max(start, positions[0] - arm)], positions, [min(stop, positions[-1] + arm)]])


def _intersect(centres: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return where every two neighbouring pieces meet, (m,)."""
    turn = np.diff(slopes, axis=0)
    rise = values[:-1] - values[1:] + slopes[1:] * np.diff(centres)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return centres[:-1] + np.sum(turn * rise, axis=1) / np.sum(turn * turn, axis=1)
