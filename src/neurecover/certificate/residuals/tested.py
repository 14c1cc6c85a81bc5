"""The rows on which residuals are tested, where outputs are rounded.

In all rows without an active unit the output is c, and it is rounded once: their residuals are one error and not many.
A test that counts them as many finds a step at the edge of that region, and refuses the right network. So one of these
rows stands for all. Rows without an active unit whose outputs differ from the most frequent ones stay: c does not
explain them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.certificate.information.matrix import Information
from neurecover.data import ArraySource, Source, reduce
from neurecover.models import Layered, Model
from neurecover.statistics import InformationSums


@dataclass(frozen=True, eq=False)
class Tested:
    """The rows, their information, and Σr² over their equations."""

    rows: Source
    information: Information
    rss: float
    n_equations: int

    @classmethod
    def of(cls, rows: Source, blank: InformationSums) -> Tested:
        """Sum what is needed of the rows."""
        sums = reduce(rows, blank)
        rr = sums.sums["rr"]
        return cls(rows, Information.of(sums), float(rr.sum()), sums.n * len(rr))


def without_shared_rounding(samples: Source, model: Model) -> Source:
    """Return the samples with one row for all in which no unit is active and the outputs are the same."""
    if samples.base.streams or not isinstance(model, Layered) or model.C is not None:
        return samples
    (X, Y), weight = samples.collect(), samples.weights()
    off = (model.activation(model.preactivations(X)[-1]) == 0.0).all(axis=1)
    values, counts = np.unique(Y[off], axis=0, return_counts=True)
    if counts.max(initial=0) < 2:
        return samples
    kept = ~(off & (values[np.argmax(counts)] == Y).all(axis=1))
    kept[np.argmin(kept)] = True
    found = ArraySource(X[kept], Y[kept], weight=None if weight is None else weight[kept])
    found.held = True
    return found
