"""Find repeated rows, which add no evidence for an exact network, and repeated outputs, which show a grid of values."""

from __future__ import annotations

import numpy as np

from neurecover.data.source import Source
from neurecover.data.sources.arrays import ArraySource
from neurecover.statistics import OutputPrecision


def first_occurrences(rows: np.ndarray) -> np.ndarray:
    """Return the indices, in order, of the rows (n, q) that no earlier row equals.

    Equal rows agree in every column. If the values of one of the tested columns are all different, no two rows are
    equal. Otherwise only the rows whose value in the last tested column is repeated are compared in full.
    """
    n, q = rows.shape
    for j in range(0, q, max(1, q // 4)):
        _, group, counts = np.unique(rows[:, j], return_inverse=True, return_counts=True)
        if len(counts) == n:
            return np.arange(n)
    shared = np.flatnonzero(counts[group] > 1)
    _, first = np.unique(rows[shared], axis=0, return_index=True)
    repeated = np.setdiff1d(np.arange(len(shared)), first)
    return np.delete(np.arange(n), shared[repeated])


def groups_of_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first occurrence of every distinct row (m,), and for each row its distinct row (n,)."""
    first = first_occurrences(rows)
    if len(first) == len(rows):
        return first, np.arange(len(rows))
    _, begins, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, np.searchsorted(first, begins)[group.ravel()]


def without_repeats(source: ArraySource) -> ArraySource:
    """Return every distinct sample (x, y) once, in the order of first occurrence; the weights of copies are summed."""
    rows, weight = np.hstack(source.collect()), source.weights()
    kept = first_occurrences(rows)
    if len(kept) == len(rows):
        return source
    if weight is None:
        return source.select(kept)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return source.select(kept).with_weight(np.bincount(group.ravel(), weight)[np.argsort(first)])


def distinct_inputs(source: Source, most_bytes: int) -> Source:
    """Return one sample for every distinct x if the samples fit in memory, else the source itself."""
    if source.n_inputs == 0 or 8 * source.count() * source.n_inputs > most_bytes:
        return source
    X, Y = source.collect()
    kept, weight = first_occurrences(X), source.weights()
    if len(kept) == len(X):
        return source
    return ArraySource(X[kept], Y[kept], origin=source.origin, weight=None if weight is None else weight[kept])


def with_gaps(precision: OutputPrecision, Y: np.ndarray) -> OutputPrecision:
    """Add to the precision the step of a coarse grid, which shows in outputs most of whose values are repeated."""
    columns = np.sort(np.asarray(Y, dtype=np.float64), axis=0)
    gaps, ties = np.zeros(Y.shape[1]), np.ones(Y.shape[1], dtype=int)
    for j in np.flatnonzero(np.any(columns[1:] == columns[:-1], axis=0)):
        values, counts = np.unique(columns[:, j], return_counts=True)
        gaps[j], ties[j] = _gap(values, counts), counts.max()
    coarser = gaps > 2.0 * precision.step
    names = tuple(f"steps of {gap:.2g}" if new else name for new, gap, name in zip(coarser, gaps, precision.names))
    return OutputPrecision(names, np.where(coarser, gaps, precision.step), len(Y), ties)


def _gap(values: np.ndarray, counts: np.ndarray) -> float:
    """Return the median gap between values if most are repeated, else 0; the most frequent value is ignored."""
    if len(values) < 3:
        return 0.0
    others = np.delete(counts, np.argmax(counts))
    repeated = others[others > 1].sum() > others.sum() / 2
    return float(np.median(np.diff(values))) if repeated else 0.0
