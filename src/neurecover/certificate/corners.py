"""Whether the kinks are sharp: next to them a residual that is noise has no sign of its own.

A smooth function in place of max(z, 0), say log(1 + e^{sz})/s, differs from it next to z = 0 alone and to one side, so
that r·A_j is of one sign for the samples nearest to the kink of every unit j. There are few of them, which sums of
products hardly see beside heavy tails; signs do. The very nearest say nothing: where a sample with r·A_j < 0 switches,
Σ r² has a crease downwards, in which least squares ends with as many as D samples of a unit, and one with r·A_j > 0 a
ridge, which it keeps away from. So the first BESIDE·D are passed over, but for too many of r·A_j > 0, and of the next m
to every kink the number with r·A_j > 0 is held against the share q_j of all samples,

    z = Σ_j (count_j − m q_j) / √(Σ_j m q_j (1 − q_j)),

standard normal under noise that is independent from sample to sample, whatever its distribution.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc

from neurecover.data import Source
from neurecover.models import Network
from neurecover.solve import afford

BESIDE = 4  # times the weights of a unit; with noise as large as the signal 2 D leave a mean of −0.9 in z (measured)
NEAREST = (4, 8, 16, 32)
FEWEST = 12  # samples in the count, for the normal distribution to hold
MOST = 0.2  # of the samples: farther ones are not next to a kink


def corner_test(white: Network, samples: Source) -> float:
    """The probability, if the residual is noise, of signs at the kinks that are as much of one kind, for any m."""
    n, k = samples.count(), white.n_hidden
    passed = BESIDE * (white.n_inputs + 1)
    sizes = [m for m in NEAREST if m <= MOST * n and m * k >= FEWEST]
    if not sizes:
        return 1.0
    afford(4.0 * n * k * white.n_inputs)
    near, positive, share = np.full((k, 0), np.inf), np.zeros((k, 0), dtype=bool), np.zeros(k)
    for X, Y in samples.blocks(16_384):
        X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
        signs = (white.A.T @ (Y - white(X)).T) > 0.0
        share += signs.sum(axis=1) / n
        near = np.hstack([near, np.abs(white.preactivations(X)[0].T)])
        positive = np.hstack([positive, signs])
        kept = np.argsort(near, axis=1, kind="stable")[:, : passed + sizes[-1]]
        near, positive = np.take_along_axis(near, kept, axis=1), np.take_along_axis(positive, kept, axis=1)
    worst, tests = 0.0, [(0, m) for m in sizes] + [(passed, m) for m in sizes if passed + m <= MOST * n]
    for first, m in tests:
        spread = np.sqrt(m * np.sum(share * (1.0 - share)))
        above = float(np.count_nonzero(positive[:, first : first + m]) - m * share.sum())
        apart = abs(above) if first else above
        # Less half a count: the sum is of whole numbers.
        worst = max(worst, max(apart - 0.5, 0.0) / max(float(spread), 1e-300))
    return min(1.0, len(tests) * float(erfc(worst / np.sqrt(2.0))))
