"""Fewer units for the same function: merge what is one unit in several pieces, drop what does nothing.

Two units whose kinks no sample separates add up to one: Σ aᵢ relu(vᵢ·x̃) = relu((Σ aᵢvᵢ)·x̃) on these samples, and a
unit that looks the other way differs by an affine function, relu(−z) = relu(z) − z. A unit is worth the increase of Σ
r² when it is left out and the readout solved again, Θ_j² / (Σ h hᵀ)⁻¹_jj.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_solve

from neurecover.data import Source
from neurecover.models import Student
from neurecover.refine.held import readout_sums
from neurecover.refine.steps import ReadoutFactor


def keep_units(student: Student, units: np.ndarray) -> Student:
    """The student with only these hidden units, in this order; its affine part stays."""
    rows = np.concatenate([units, np.arange(student.n_hidden, len(student.readout))])
    return replace(student, V=student.V[units], readout=student.readout[rows])


def most_useful(source: Source, student: Student, n_keep: int) -> np.ndarray:
    """The units left after dropping, one at a time, the one whose loss raises Σ r² the least."""
    return elimination_order(source, student)[0][-n_keep:] if n_keep > 0 else np.empty(0, dtype=int)


def elimination_order(source: Source, student: Student) -> tuple[np.ndarray, np.ndarray]:
    """All hidden units from the least to the most useful, and Σ r² after each has gone with those before it."""
    sums = readout_sums(source, student)
    readout = ReadoutFactor(sums)
    scale = readout.scale
    C = cho_solve((readout.factor, True), np.eye(len(scale)))  # (Σ h hᵀ)⁻¹ in units of `scale`
    theta = (student.readout + readout.step) * scale[:, None]
    rss, order, path = readout.best_rss, [], []
    remaining = np.arange(student.n_hidden)
    while len(remaining):
        cost = np.einsum("jo,jo->j", theta[remaining], theta[remaining]) / C[remaining, remaining]
        j = remaining[np.argmin(cost)]
        rss += float(cost.min())
        order.append(j)
        path.append(rss)
        # Leaving j out moves the others along column j of the inverse (a rank-one update).
        column = C[:, j] / C[j, j]
        theta = theta - np.outer(column, theta[j])
        C = C - np.outer(column, C[j])
        remaining = remaining[remaining != j]
    return np.array(order, dtype=int), np.array(path)


def merged(student: Student, angle: float) -> Student:
    """One unit for every cluster of units whose (w, b) lie within `angle` of each other, up to sign if affine.

    The cluster's function on samples that do not separate its kinks is (Σ Aᵢ vᵢᵀ) x̃ on one side; its best single
    unit is the leading singular pair of that matrix.
    """
    V = student.V
    if len(V) < 2:
        return student
    unit = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
    cosine = unit @ unit.T
    if student.affine:
        cosine = np.abs(cosine)
    close = cosine > np.cos(angle)
    if np.count_nonzero(close) <= len(V):  # each to itself alone, the usual case
        return student
    from scipy.sparse.csgraph import connected_components

    n_clusters, label = connected_components(close, directed=False)
    kept, rows = [], []
    for cluster in range(n_clusters):
        members = np.flatnonzero(label == cluster)
        v, a = V[members[0]], student.readout[members[0]]
        if len(members) > 1:
            toward = np.where(unit[members] @ unit[members[0]] < 0, -1.0, 1.0)
            total = student.readout[members].T @ (toward[:, None] * V[members])  # Σ Aᵢ vᵢᵀ
            left, value, right = np.linalg.svd(total, full_matrices=False)
            side = 1.0 if right[0] @ v >= 0 else -1.0
            v, a = side * right[0], side * left[:, 0] * value[0]
        kept.append(v)
        rows.append(a)
    readout = np.vstack([np.array(rows), student.readout[student.n_hidden :]])
    return replace(student, V=np.array(kept), readout=readout)


def one_less(source: Source, student: Student) -> Student:
    """The better of two: without the least useful unit, or with the two closest ones merged."""
    order, _ = elimination_order(source, student)
    dropped = keep_units(student, np.sort(order[1:]))
    unit = student.V / np.maximum(np.linalg.norm(student.V, axis=1, keepdims=True), 1e-300)
    cosine = unit @ unit.T
    closeness = np.abs(cosine) if student.affine else cosine
    np.fill_diagonal(closeness, -1.0)
    joined = merged(student, float(np.arccos(np.clip(closeness.max(initial=-1.0), -1.0, 1.0))) + 1e-9)
    if joined.n_hidden != student.n_hidden - 1:
        return dropped
    return min((dropped, joined), key=lambda s: ReadoutFactor(readout_sums(source, s)).best_rss)
