"""Samples biased towards large outputs [GP18, B.6].

Sigmoid units with a high threshold are small almost everywhere, and so is f. Kept with probability f(x)/max f,
samples are distributed like f(x) φ(x)/E[f], under which E[h(x)] is E[f h]/E[f] in the original distribution: the
Hermite coefficients of f, scaled by 1/E[f], are plain means over the kept inputs. A device that stores only kept
samples thereby stores those that matter.
"""

import numpy as np

from neurecover.data import Source
from neurecover.data.source import Blocks


class Rejected(Source):
    """The rows of a source with one non-negative output, each kept with probability y/ceiling, their output set to 1.

    The choice depends on the seed and the row alone, so that every pass keeps the same rows. Coefficients of the kept
    rows are averaged, not regressed (`HermiteSums(..., regress=-1)`): their inputs are no longer Gaussian.
    """

    def __init__(self, parent: Source, ceiling: float, seed: int) -> None:
        if parent.n_outputs != 1:
            raise ValueError(f"Rejection goes by one output. Got {parent.n_outputs}; give one at a time.")
        if not ceiling > 0.0:
            raise ValueError(
                f"ceiling needs to be a positive number, at least the largest output. Got {ceiling} instead."
            )
        self._parent, self._ceiling, self._seed = parent, ceiling, seed
        self.origin = f"{parent.origin} (rejection)"
        self.input_names, self.output_names = parent.input_names, parent.output_names
        self.n_samples = None

    def _blocks(self, rows: int) -> Blocks:
        rng = np.random.default_rng(self._seed)
        for X, Y in self._parent.blocks(rows):
            chance = Y[:, 0] / self._ceiling
            if chance.min() < 0.0 or chance.max() > 1.0:
                raise ValueError(
                    f"Rejection needs outputs from 0 to the ceiling {self._ceiling:g}. Got one of "
                    f"{Y.min() if chance.min() < 0.0 else Y.max():g} instead."
                )
            kept = rng.random(len(X)) < chance
            yield X[kept], np.ones((int(kept.sum()), 1))
