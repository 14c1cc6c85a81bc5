"""Whether the kinks are sharp: next to them a residual that is noise has no sign of its own.

A smooth function in place of max(z, 0), say log(1 + e^{sz})/s, differs from it next to z = 0 alone and to one side, so
that r·A_j is of one sign for the samples nearest to the kink of every unit j. There are few of them, which sums of
products hardly see beside heavy tails; signs do. The very nearest say nothing: where a sample with r·A_j < 0 switches,
Σ r² has a crease downwards, in which least squares ends with as many as D samples of a unit, and one with r·A_j > 0 a
ridge, which it keeps away from. So the first `beside`·D are passed over, but for too many of r·A_j > 0, and of the next
m to every kink the number with r·A_j > 0 is held against the share q_j of all samples,

    z = Σ_j (count_j − m q_j) / √(Σ_j m q_j (1 − q_j)),

standard normal under noise that is independent from sample to sample, whatever its distribution. That takes an A_j that
is the same for all samples: of a deep network the units of the last hidden layer are asked.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc

from neurecover.certificate.options import CornerOptions
from neurecover.data import Source
from neurecover.models import DeepNetwork, Network
from neurecover.solve import afford


def corner_test(white: Network | DeepNetwork, samples: Source, options: CornerOptions | None = None) -> float:
    """Return the probability, if the residual is noise, of signs at the kinks as much of one kind, for any m."""
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
        # Less half a count: the sum is of whole numbers.
        worst = max(worst, max(apart - 0.5, 0.0) / max(float(spread), 1e-300))
    return min(1.0, len(tests) * float(erfc(worst / np.sqrt(2.0))))
