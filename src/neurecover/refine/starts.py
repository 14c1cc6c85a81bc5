"""Where descents begin: hidden weights V (m, D) for inputs with zero mean and unit covariance.

Three kinds of fresh units, one after the other: at random, chosen greedily from a pool of random ones, and at random
through samples, which puts kinks where the inputs are whatever their distribution.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.data import Source, reduce, subsample
from neurecover.models import Student
from neurecover.statistics import ReadoutSums

POOL = 10  # random candidates per unit that is chosen


def random_units(rng: np.random.Generator, n_hidden: int, n_inputs: int, bias: bool) -> np.ndarray:
    """Directions uniform on the sphere; with `bias`, kinks a standard Gaussian distance from the origin."""
    V = rng.standard_normal((n_hidden, n_inputs + bias))
    return V / np.linalg.norm(V[:, :n_inputs], axis=1, keepdims=True)


def units_through_samples(source: Source, rng: np.random.Generator, n_hidden: int) -> np.ndarray:
    """Directions uniform on the sphere, each with its kink at a sample: b = −w·x_i."""
    if n_hidden == 0:
        return np.empty((0, source.n_inputs + 1))
    X, _ = subsample(source, n_hidden, int(rng.integers(2**31))).collect()
    W = random_units(rng, len(X), source.n_inputs, bias=False)
    return np.hstack([W, -np.einsum("ij,ij->i", W, X)[:, None]])


def greedy_units(source: Source, student: Student, n_keep: int) -> np.ndarray:
    """The units of a pool, the student's hidden ones, that explain the outputs best when taken one by one.

    Forward selection on Σ h hᵀ and Σ h y: the feature that lowers Σ r² most is next, and what it explains is taken out
    of all others. The affine part is there from the start.
    """
    sums = reduce(source, ReadoutSums(replace(student, readout=np.zeros_like(student.readout)))).sums
    G, g = sums["hh"].copy(), sums["hr"].copy()
    floor = 1e-10 * np.diag(G)
    chosen: list[int] = []
    for step in range(len(G) - student.n_hidden + n_keep):
        size = np.diag(G)
        gain = np.einsum("jo,jo->j", g, g) / np.where(size > floor, size, np.inf)
        given = student.n_hidden + step  # the affine part's features follow the units
        j = given if given < len(G) else int(np.argmax(gain[: student.n_hidden]))
        if given >= len(G):
            chosen.append(j)
        if G[j, j] > floor[j]:
            column = G[:, j] / G[j, j]
            g = g - np.outer(column, g[j])
            G = G - np.outer(column, G[j])
    return student.V[chosen]


def scaled_units(V: np.ndarray, n_inputs: int) -> np.ndarray:
    """The same kinks with unit w, so that old units and new ones start on equal terms."""
    norm = np.linalg.norm(V[:, :n_inputs], axis=1, keepdims=True)
    return V / np.where(norm > 0, norm, 1.0)
