"""Test whether the same weights explain the first rows and the later ones.

Samples are put together from files, days and versions of a model. If the weights change at row m, the residuals lack
the columns J of the rows after m. With F₂ = Σ JᵀJ and g₂ = Σ Jᵀr over these rows, and F over all rows, adding them
would lower Σr², to first order, by

    S = g₂ᵀ (F₂ − F₂ F⁻¹ F₂)⁻¹ g₂        [Chow 1960; Rao 1948].

Changes are tried at every eighth of the rows. If the F test rejects one, S is also compared with scores whose
covariance is summed row by row [Rao & Scott 1981], because noise that grows along the rows makes F reject as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.special import fdtrc

from neurecover.certificate.information.matrix import Information
from neurecover.certificate.residuals.nested import SEEN, f_test
from neurecover.data import Source
from neurecover.models import jacobian
from neurecover.statistics import InformationSums
from neurecover.statistics.base import by_root

PARTS = 8  # so that a change begins within a sixteenth of the rows from where one of them ends
BLOCK = 2**16  # rows read at a time, or fewer where their derivatives would take more than 64 MB


def constancy_test(information: Information, bias: bool, samples: Source, N: int, work: float, level: float) -> float:
    """Return the p-value of the hypothesis that the weights never change, from the clearest change at an eighth of the
    rows.

    The result is 1 if the test would take more than `work` multiplications.
    """
    P, n = len(information.free), samples.count()
    if work < N * P**2 + 10.0 * PARTS * P**3 or n < PARTS:  # an eigenvalue problem takes about 10 P³
        return 1.0
    sums = [InformationSums.of(information.model, bias) for _ in range(PARTS)]
    ends = n * np.arange(1, PARTS) // PARTS
    for first, X, Y, weight in _numbered(samples, BLOCK):
        cut = np.clip(ends - first, 0, len(X))
        for part, own in zip(sums, np.split(np.arange(len(X)), cut)):
            if len(own):
                part.update(X[own], Y[own], None if weight is None else weight[own])
    rss = sum(float(part.sums["rr"].sum()) for part in sums)
    F, g, tests = np.zeros((P, P)), np.zeros(P), []
    for part, end in zip(sums[:0:-1], ends[::-1]):
        added = part.information()
        F, g = F + added[0], g + added[1]
        later = replace(information, cross=F, own=F, score=np.concatenate([information.score[:P], g]))
        tests.append((f_test(later, np.eye(P), rss, N)[0], int(end), later))
    p_value, end, later = min(tests, key=lambda test: test[0])
    if p_value * len(tests) < level:
        p_value = max(p_value, _by_rows(later, samples, end, N))
    return min(1.0, p_value * len(tests))


def _by_rows(later: Information, samples: Source, end: int, N: int) -> float:
    """Return the p-value of a change from row `end` on, by the row-by-row covariance V of the scores.

    δ = M⁻¹g is the change, M its information. V is summed over the residuals that δ leaves, of which N has as many
    fewer as there are parameters on both sides. S = gᵀM⁻¹g is Σ λ χ²₁ with λ the eigenvalues of M⁻¹V, which is about
    tr(M⁻¹V) times an F variable: with (Σλ)²/Σλ² degrees of freedom, and 2 (Σw)²/Σw² in the denominator for tr(M⁻¹V) = Σ
    w over the rows.
    """
    P, p = len(later.free), later.model.n_outputs
    g, M = later.unexplained(np.eye(P))
    scale = np.sqrt(np.maximum(np.diag(later.own), 1e-300))
    values, vectors = np.linalg.eigh(M / scale / scale[:, None])
    half = (vectors / scale[:, None])[:, values > SEEN] / np.sqrt(values[values > SEEN])
    change = half @ (half.T @ g)
    V, fourth = np.zeros((half.shape[1],) * 2), 0.0
    for first, X, Y, weight in _numbered(samples, max(min(BLOCK, 2**23 // (p * P)), 1)):
        J, R = by_root(weight, jacobian(later.model, X)[:, :, later.free], Y - later.model(X))
        changed = (np.arange(first, first + len(X)) >= end)[:, None]
        own = np.einsum("nop,no->np", J, R - changed * (J @ change) + J @ (later.explained @ change))
        u = (changed * own - own @ later.explained) @ half
        V += u.T @ u
        fourth += float(np.sum(np.sum(u**2, axis=1) ** 2))
    left, mean = N - later.n_determinable - len(V), float(np.trace(V))
    if left < 1 or mean <= 0.0:
        return 1.0
    ratio = float(np.sum((half.T @ g) ** 2)) / (mean * N / left)
    return float(fdtrc(mean**2 / float(np.sum(V**2)), min(left, 2.0 * mean**2 / fourth), ratio))


def _numbered(samples: Source, size: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray | None]]:
    """Read blocks of rows (X, Y, weight), each with the number of its first row."""
    first = 0
    for X, Y, weight in samples.weighted_blocks(size):
        yield first, np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64), weight
        first += len(X)
