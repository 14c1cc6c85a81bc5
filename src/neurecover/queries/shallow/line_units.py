"""Units from one line: its kinks give positions, gradients beside the kinks give directions.

Along x + t v let the kinks be at t_j, with jumps of slope S_j (p,). With w_j scaled so that w_j·v = 1 the gradients in
two pieces of the line differ by

    G_{r'} − G_r = Σ_{r ≤ j < r'} S_j w_jᵀ,                                             p × d equations,

so a group of up to p kinks between two pieces can be solved for its w_j at once. One output needs a gradient in every
piece, p outputs in about every p-th; the widest pieces are taken, where steps are longest. Units that are already known
are moved to the left side. Units in a group that is too large or too nearly dependent stay unknown and are left for
another line.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import choose_steps, draw_basis, measure_gradients
from neurecover.queries.box.regions import Regions
from neurecover.queries.lines.kinks import Kinks
from neurecover.queries.shallow.options import ShallowOptions
from neurecover.queries.shallow.planes import Planes


@dataclass(frozen=True, eq=False)
class LineUnits:
    """The new units of one line as `planes` (their L and c are zero) and the `regions` measured for them.

    `explained` (m,) says for which kinks of the line the unit is known now, `seen` (k,) which of the previously known
    units had a kink in the expected place.
    """

    planes: Planes
    regions: Regions
    explained: np.ndarray
    seen: np.ndarray


def find_units_on_line(
    box: Box,
    x: np.ndarray,
    v: np.ndarray,
    kinks: Kinks,
    known: Planes,
    *,
    rng: np.random.Generator,
    only: slice = slice(None),
) -> LineUnits:
    """Find the units behind the kinks of the line x + t v, or `only` some, that are not among the `known` ones."""
    options = box.options.shallow
    explained, seen = match_kinks(kinks, x, v, known, options)
    unknown = np.zeros_like(explained)
    unknown[only] = ~explained[only]
    pieces = _choose_pieces(kinks, unknown, box.n_outputs, _usable_pieces(kinks, v, options), options.fill)
    regions = (
        _measure_pieces(box, x, v, kinks, pieces, rng) if len(pieces) > 1 else Regions.empty(len(x), box.n_outputs)
    )
    found = [Planes.empty(len(x), box.n_outputs)]
    on = (regions.points @ known.W[seen].T + known.b[seen] > 0).astype(float)
    for r, (left, right) in enumerate(itertools.pairwise(pieces)):
        new = left + np.flatnonzero(unknown[left:right])
        if not 0 < len(new) <= box.n_outputs or not kinks.resolved[new].all():
            continue
        difference = regions.gradients[r + 1] - regions.gradients[r]
        difference = difference - (known.J[:, seen] * (on[r + 1] - on[r])) @ known.W[seen]
        rows, error = _solve_group(kinks.jumps[new], difference, regions.sigma[r : r + 2])
        size = np.linalg.norm(rows, axis=1)
        good = error < options.worst * size
        found.append(_make_planes(rows[good], size[good], error[good], kinks, new[good], x))
        explained[new[good]] = True
    return LineUnits(Planes.join(found), regions, explained, seen)


def match_kinks(
    kinks: Kinks, x: np.ndarray, v: np.ndarray, known: Planes, options: ShallowOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return which kinks (m,) are explained by known units, and which units (k,) explain one by its place and size.

    A unit crosses the line at t = −(w·x + b)/(w·v) and changes its slope by J |w·v|. Kinks too close to be told apart
    appear as one, so several units in one place may explain a kink by the sum of their jumps.
    """
    explained, seen = np.zeros(len(kinks.positions), dtype=bool), np.zeros(len(known), dtype=bool)
    if not len(known) or not len(explained):
        return explained, seen
    speed = known.W @ v
    t = -(known.W @ x + known.b) / speed
    jump = known.J.T * np.abs(speed)[:, None]
    length = np.linalg.norm(v)
    slack = options.slack * known.error * (np.linalg.norm(x) + np.abs(t) * length) / np.abs(speed) + 1e-12 * (
        1.0 + np.abs(t)
    )
    turned = options.slack * known.error * length * np.linalg.norm(known.J, axis=0)
    coarse = options.slack * (kinks.slope_noise[1:] + kinks.slope_noise[:-1])
    near = np.minimum(kinks.widths[1:], kinks.widths[:-1])
    apart = np.abs(kinks.positions[:, None] - t)
    place = (coarse * near)[:, None] / np.maximum(np.linalg.norm(jump, axis=1), 1e-300)
    off = np.linalg.norm(kinks.jumps[:, None, :] - jump, axis=2)
    fits = (apart < slack + place) & (off < turned + coarse[:, None])
    for i, j in sorted(zip(*np.nonzero(fits)), key=lambda pair: apart[pair]):
        if not explained[i] and not seen[j]:
            explained[i] = seen[j] = True
    for i in np.flatnonzero(~explained):
        here = np.flatnonzero(~seen & (apart[i] < slack + 0.5 * near[i]))
        total = np.linalg.norm(kinks.jumps[i] - jump[here].sum(axis=0))
        if len(here) > 1 and total < turned[here].sum() + coarse[i]:
            explained[i], seen[here] = True, True
    return explained, seen


def _usable_pieces(kinks: Kinks, v: np.ndarray, options: ShallowOptions) -> np.ndarray:
    """Return which pieces are wide enough for a gradient that resolves the kinks beside it, (m + 1,)."""
    jump = np.abs(kinks.jumps).max(axis=1)
    beside = np.maximum(np.concatenate([[0.0], jump]), np.concatenate([jump, [0.0]]))
    # A step is `step` of half the width times ‖v‖; the rounding of d components is compared with a jump over ‖v‖.
    rounding = kinks.slope_noise / options.step * np.sqrt(len(v))
    return rounding < options.worst * beside


def _choose_pieces(kinks: Kinks, unknown: np.ndarray, p: int, usable: np.ndarray, fill: float) -> np.ndarray:
    """Choose the pieces of the line in which gradients are measured.

    Within a long run of unknown kinks they lie a group of kinks apart; a short run has one before it and one behind it.
    """
    last = len(unknown)
    usable = usable.copy()
    usable[[0, last]] = True
    able, group = np.flatnonzero(usable), max(1, int(fill * p))
    pieces: list[int] = []
    for first, stop in _runs(unknown):
        apart = group if stop - first > group or stop - first == last else 1
        start = int(able[np.searchsorted(able, first, side="right") - 1])
        pieces += _pieces_of_run(kinks, usable, start, int(able[np.searchsorted(able, stop)]), apart)
    return np.unique(np.array(pieces, dtype=int))


def _runs(mask: np.ndarray) -> np.ndarray:
    """Return the start and the stop of every run of true entries, (r, 2)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(int)))
    return edges.reshape(-1, 2)


def _pieces_of_run(kinks: Kinks, usable: np.ndarray, first: int, last: int, group: int) -> list[int]:
    """Return usable pieces from `first` to `last`, about `group` kinks apart and the widest there."""
    pieces = [first]
    while pieces[-1] < last:
        here = pieces[-1]
        reach = np.arange(here + max(1, int(np.ceil(0.6 * group))), min(here + group, last) + 1)
        reach = reach[usable[reach]] if len(reach) else reach
        if here + group >= last:
            pieces.append(last)
        elif len(reach):
            pieces.append(int(reach[np.argmin(kinks.slope_noise[reach])]))
        else:
            pieces.append(here + 1 + int(np.argmax(usable[here + 1 :])))
    return pieces


def _measure_pieces(
    box: Box, x: np.ndarray, v: np.ndarray, kinks: Kinks, pieces: np.ndarray, rng: np.random.Generator
) -> Regions:
    """Measure a gradient in the middle of each piece; the slope of the line is its component along v."""
    options = box.options.shallow
    length = float(np.linalg.norm(v))
    basis = draw_basis(rng, len(v), first=v)[:, 1:]
    points = x + kinks.centres[pieces, None] * v
    values, slopes = kinks.values[pieces], kinks.slopes[pieces]
    steps = 0.5 * kinks.widths[pieces] * length * options.step
    steps = choose_steps(box, points, values, basis, steps, rng=rng)
    measured = measure_gradients(box, points, basis, steps, rng=rng, values=values)
    gradients = measured.full() + (slopes / length)[:, :, None] * (v / length)
    sigma = measured.noise * np.sqrt(2.0) / np.abs(measured.steps).min(axis=1, initial=np.inf)
    sigma = np.where(measured.sound, sigma, np.inf) if len(v) > 1 else kinks.slope_noise[pieces] / length
    return Regions(points, values, gradients, measured.noise, sigma)


def _solve_group(jumps: np.ndarray, difference: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve Σ_j S_j w_jᵀ = difference (p, d) for the rows w_j (g, d); return them and their errors (g,)."""
    inverse = np.linalg.pinv(jumps.T)
    error = np.linalg.norm(inverse, axis=1) * np.linalg.norm(sigma) * np.sqrt(difference.shape[1])
    return inverse @ difference, error


def _make_planes(
    rows: np.ndarray, size: np.ndarray, error: np.ndarray, kinks: Kinks, which: np.ndarray, x: np.ndarray
) -> Planes:
    """Return the units `which` with rows scaled to length one."""
    W = rows / size[:, None]
    b = -(W @ x + kinks.positions[which] / size)
    J = kinks.jumps[which].T * size
    p, d = kinks.slopes.shape[1], len(x)
    return Planes(W, b, J, np.zeros((p, d)), np.zeros(p), error / size)
