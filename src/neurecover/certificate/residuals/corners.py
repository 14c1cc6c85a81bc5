"""Test whether the kinks are sharp: if the residual is noise, its signs near the kinks are random.

A smooth function in place of max(z, 0), say log(1 + e^{sz})/s, differs from it only near z = 0 and only in one
direction, so r·A_j has one sign for the samples nearest to the kink of every unit j. These samples are few, and under
heavy tails sums of products hardly show them, but signs do. The very nearest samples say nothing. Where a sample with
r·A_j < 0 switches, Σ r² has a downward crease, where least squares ends with up to D samples of a unit; where one with
r·A_j > 0 switches it has a ridge, which least squares avoids. So the first `beside`·D samples are skipped, except for
an excess of r·A_j > 0. Among the next m samples of every kink, the count with r·A_j > 0 is compared with the share q_j
among all samples,

    z = Σ_j (count_j − m q_j) / √(Σ_j m q_j (1 − q_j)),

which is standard normal for noise that is independent between samples, whatever its distribution. The test needs an A_j
that is the same for all samples, so in a deep network it uses the units of the last hidden layer.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc

from neurecover.certificate.options import CornerOptions
from neurecover.data import Source
from neurecover.models import DeepNetwork, Network
from neurecover.solve import afford


def corner_test(white: Network | DeepNetwork, samples: Source, options: CornerOptions | None = None) -> float:
    """Return the p-value of the signs near the kinks, corrected for the several m, if the residual is noise."""
    options = options or CornerOptions()
    n, A, n_weights = samples.count(), white.layers[-1][0], white.hidden_weights[-1].shape[1]
    k, passed = A.shape[1], options.beside * (n_weights + 1)
    sizes = [m for m in options.nearest if m <= options.most * n and m * k >= options.fewest]
    if not sizes:
        return 1.0
    afford(4.0 * n * k * n_weights)
    near, positive, share = np.full((k, 0), np.inf), np.zeros((k, 0), dtype=bool), np.zeros(k)
    for X, Y in samples.blocks(16_384):
        X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
        signs = (A.T @ (Y - white(X)).T) > 0.0
        share += signs.sum(axis=1) / n
        near = np.hstack([near, np.abs(white.preactivations(X)[-1].T)])
        positive = np.hstack([positive, signs])
        kept = np.argsort(near, axis=1, kind="stable")[:, : passed + sizes[-1]]
        near, positive = np.take_along_axis(near, kept, axis=1), np.take_along_axis(positive, kept, axis=1)
    worst, tests = 0.0, [(0, m) for m in sizes] + [(passed, m) for m in sizes if passed + m <= options.most * n]
    for first, m in tests:
        spread = np.sqrt(m * np.sum(share * (1.0 - share)))
        above = float(np.count_nonzero(positive[:, first : first + m]) - m * share.sum())
        apart = abs(above) if first else above
        # Continuity correction of half a count, because the sum is an integer.
        worst = max(worst, max(apart - 0.5, 0.0) / max(float(spread), 1e-300))
    return min(1.0, len(tests) * float(erfc(worst / np.sqrt(2.0))))
