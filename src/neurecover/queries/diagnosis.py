"""Oracles that are no networks, told from them by a few hundred queries: steps, inputs without effect, windows.

Trees, nearest neighbours and calibration by isotonic regression answer with steps: a step keeps its height however
closely it is looked at, while a slope leaves 2^-n of its change after n halvings.
"""

from __future__ import annotations

import numpy as np

from neurecover.data.oracles.diagnosis import describe_classes
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.resolution import DIFFERENT


def diagnose_steps(box: Box) -> str | None:
    """Return a sentence if the answers are steps, or differ when asked again, else None; 16 queries, 500 at a sign."""
    options, rng = box.options.looks, np.random.default_rng(0)
    x, v = rng.standard_normal((2, options.pairs, box.n_inputs))
    asked = box.limits.pull_inside(np.vstack([x, x + options.near * v]))
    answers = box(asked)
    if np.abs(box(asked) - answers).max() > options.repeat * max(float(np.abs(answers).max()), 1e-300):
        return DIFFERENT
    first, second = np.split(answers, 2)
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
    if _rounds_inputs(box, rng):
        return (
            "The model takes whole numbers alone: its answers are those to the inputs rounded. Give samples of whole "
            "numbers to neurecover.recover(X, Y)."
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


def diagnose_inputs(box: Box) -> list[str]:
    """Return sentences on inputs without effect and on inputs that are read in order, from moving each by itself."""
    options, d, rng = box.options.looks, box.n_inputs, np.random.default_rng(0)
    if d > options.most_inputs or box.affordable < options.moves * (d + 1):
        return []
    X = box.limits.pull_inside(rng.standard_normal((options.moves, d)))
    moved = box.limits.pull_inside((X[:, None, :] + np.eye(d)).reshape(-1, d))
    Y, Z = box(X), box(moved).reshape(options.moves, d, -1)
    effect = np.sqrt(np.mean((Z - Y[:, None]) ** 2, axis=(0, 2)))
    said = []
    unused = np.flatnonzero(effect == 0.0)
    if 0 < len(unused) < d:
        named = ", ".join(f"x{j}" for j in unused[:8]) + (", …" if len(unused) > 8 else "")
        said.append(f"The model does not use its inputs {named}: leave them out, holding them fixed.")
    if d >= 6 and effect.min() > 0.0:
        rank = np.corrcoef(np.arange(d), np.argsort(np.argsort(effect)))[0, 1]
        third = d // 3
        ratio = float(effect[-third:].mean() / effect[:third].mean())
        if abs(rank) > options.order and max(ratio, 1.0 / ratio) > options.decay:
            end = "last" if ratio > 1.0 else "first"
            said.append(
                f"The effect of the inputs falls with their distance from the {end} one, as of a recurrent model that "
                "reads a window: such a model is not extracted. Query a single step of it, from state to state."
            )
    return said


def _rounds_inputs(box: Box, rng: np.random.Generator) -> bool:
    """Return whether the answers to inputs and to the whole numbers nearest to them are the same."""
    if box.frame is not None:
        return False
    X = 3.0 * rng.standard_normal((box.options.looks.segments, box.n_inputs))
    same = np.all(box(X) == box(np.rint(X)), axis=1)
    return bool(same.mean() > 0.9)
