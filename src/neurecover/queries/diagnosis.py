"""Recognise oracles that are not networks, by a few hundred queries: steps, inputs without effect, windows.

Trees, nearest neighbours and calibration by isotonic regression answer with steps. A step keeps its height on ever
shorter segments, while a slope leaves 2^-n of its change after n halvings.
"""

from __future__ import annotations

import numpy as np

from neurecover.data.oracles.diagnosis import describe_classes
from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.resolution import check_repeatable
from neurecover.queries.options import DiagnosisOptions


def draw_neighbours(d: int, options: DiagnosisOptions) -> np.ndarray:
    """Draw points (2 n, d): n of N(0, I), and then a neighbour of each."""
    x, v = np.random.default_rng(0).standard_normal((2, options.pairs, d))
    return np.vstack([x, x + options.near * v])


def diagnose_steps(box: Box, pairs: np.ndarray) -> str | None:
    """Return a sentence if the answers are piecewise constant, else None; 450 queries if most neighbours get the same
    answer.

    `pairs` (2 n, p) are the answers to them.
    """
    options, rng = box.options.looks, np.random.default_rng(1)
    first, second = np.split(pairs, 2)
    if np.mean(np.all(first == second, axis=1)) < options.same:
        return None
    ends = box.limits.pull_inside(2.0 * rng.standard_normal((2, options.segments, box.n_inputs)))
    t = np.linspace(0.0, 1.0, options.points)[:, None, None]
    X = ends[0] + t * (ends[1] - ends[0])
    Y = box(X.reshape(-1, box.n_inputs)).reshape(options.points, options.segments, -1)
    if len(np.unique(Y)) == 2:
        return describe_classes(Y.reshape(-1, Y.shape[2]))
    change = np.abs(np.diff(Y, axis=0)).max(axis=2)
    where, every = change.argmax(axis=0), np.arange(options.segments)
    low, high = X[where, every], X[where + 1, every]
    f_low, f_high, whole = Y[where, every], Y[where + 1, every], change.max(axis=0)
    for _ in range(options.steps):
        middle = 0.5 * (low + high)
        f = box(middle)
        left = np.abs(f - f_low).max(axis=1) > np.abs(f_high - f).max(axis=1)
        low, high = np.where(left[:, None], low, middle), np.where(left[:, None], middle, high)
        f_low, f_high = np.where(left[:, None], f_low, f), np.where(left[:, None], f, f_high)
    seen = whole > 0.0
    jumps = np.abs(f_high - f_low).max(axis=1) > options.jump * whole
    if not seen.any() or np.mean(jumps[seen]) < options.jumps:
        return None
    if np.mean(_half_way(box, low, high)[seen & jumps]) > options.whole:
        return (
            "The model takes whole numbers alone: its answers are those to the inputs rounded. Give samples of whole "
            "numbers to neurecover.recover(X, Y)."
        )
    if np.array_equal(Y, np.rint(Y)):
        return (
            "The answers are whole numbers, as labels or rounded values: query what they are rounded from. Between "
            "two of them nothing shows."
        )
    if len(np.unique(Y)) > options.points and np.array_equal(Y, _in_bfloat16(Y)):
        return (
            "The answers have the eight binary digits of bfloat16 and change in steps of that size: too few to see "
            "units. Query the model in single precision."
        )
    if Y.min() >= 0.0 and Y.max() <= 1.0:
        return (
            "The answers are steps between 0 and 1, as of a classifier of trees or nearest neighbours, or of "
            "probabilities calibrated by isotonic regression: query the model before its calibration. Steps show no "
            "weights."
        )
    return (
        "The model is piecewise constant, as decision trees, forests, boosted trees and nearest neighbours are: it is "
        "no neural network, and its answers show no weights."
    )


def diagnose_changes(box: Box, rng: np.random.Generator) -> str | None:
    """Return a sentence if some queries are answered differently again, as with a little dropout left on; else None."""
    X = box.limits.pull_inside(rng.standard_normal((box.options.looks.repeated, box.n_inputs)))
    if 2 * len(X) > box.affordable:
        return None
    with box.counting("kind of model"):
        try:
            check_repeatable(box, X, box(X), box.options.box)
        except UnsolvableError as changes:
            return str(changes)
    return None


def diagnose_bounded(box: Box, rng: np.random.Generator) -> str | None:
    """Return a sentence if, far from the origin, most outputs take one of two values and keep it farther out; else
    None.

    A third value between the two is the answer of a network whose units are all inactive.
    """
    options = box.options.looks
    if box.limits or box.affordable < 2 * options.segments:
        return None
    X = rng.standard_normal((options.segments, box.n_inputs))
    with box.counting("kind of model"):
        near, far = (box(distance * X) for distance in options.far)
    low, high = float(far.min()), float(far.max())
    at_limits = (far == far.min(axis=0)) | (far == far.max(axis=0))
    if not np.array_equal(near, far) or np.any(np.ptp(far, axis=0) == 0.0) or np.mean(at_limits) < options.limits:
        return None
    return (
        f"Far out the answers are {low:g} and {high:g} and hardly anything between: the model clips its answers, or "
        "they saturate. Query it before that, or where its answers are not at their limits, with bounds=(low, high) or "
        "like=X."
    )


def diagnose_inputs(box: Box) -> tuple[str | None, str | None]:
    """Return two sentences, found by moving one input at a time: on inputs without effect, and on inputs read in
    sequence.

    Either is None if it does not apply. The first may be said of any model; the second is a reason why extraction
    failed.
    """
    options, d, rng = box.options.looks, box.n_inputs, np.random.default_rng(0)
    if d > options.most_inputs or box.affordable < options.moves * (d + 1):
        return None, None
    X = box.limits.pull_inside(rng.standard_normal((options.moves, d)))
    moved = box.limits.pull_inside((X[:, None, :] + np.eye(d)).reshape(-1, d))
    Y, Z = box(X), box(moved).reshape(options.moves, d, -1)
    effect = np.sqrt(np.mean((Z - Y[:, None]) ** 2, axis=(0, 2)))
    without_effect = window = None
    unused = np.flatnonzero(effect == 0.0)
    if 0 < len(unused) < d:
        named = ", ".join(f"x{j}" for j in unused[:8]) + (", …" if len(unused) > 8 else "")
        without_effect = f"The model does not use its inputs {named}: leave them out, holding them fixed."
    if d >= 6 and effect.min() > 0.0:
        rank = np.corrcoef(np.arange(d), np.argsort(np.argsort(effect)))[0, 1]
        third = d // 3
        ratio = float(effect[-third:].mean() / effect[:third].mean())
        if abs(rank) > options.order and max(ratio, 1.0 / ratio) > options.decay:
            end = "last" if ratio > 1.0 else "first"
            window = (
                f"The effect of the inputs falls with their distance from the {end} one. If this is a recurrent model "
                "that reads them as a window, query a single step of it, from state to state: a window is not "
                "extracted."
            )
    return without_effect, window


def _in_bfloat16(Y: np.ndarray) -> np.ndarray:
    """Return the answers without the binary digits that bfloat16, the upper half of single precision, does not have."""
    return (np.ascontiguousarray(Y, dtype=np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def _half_way(box: Box, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return a mask (n,) of the pairs of points between which an input is rounded to different whole numbers."""
    first, last = box.inputs(low), box.inputs(high)
    return np.asarray(np.any(np.rint(first) != np.rint(last), axis=1))
