"""Samples biased towards large outputs [GP18, B.6].

Sigmoid units with a high threshold are small almost everywhere, and so is f. Kept with probability f(x)/max f,
samples are distributed like f(x) φ(x)/E[f], under which E[h(x)] is E[f h]/E[f] in the original distribution: the
Hermite coefficients of f, scaled by 1/E[f], are plain means over the kept inputs. A device that stores only kept
samples thereby stores those that matter.

form="best" has all samples and keeps some of them by itself. form="paper" has the paper's oracle: every sample is one
that was kept, of inputs that were standard normal before. Their means are then the coefficients, so that they are read
as they are: whitened, they would have T₁ = 0 and T₂ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.gp18.common import OwnInputs, before_whitening, refuse_unless
from neurecover.algorithms.gp18.landscape.step_one import Directions, directions, hermite_coefficients, thresholds
from neurecover.data import Source
from neurecover.data.views.view import Seen, View
from neurecover.exceptions import UnsolvableError
from neurecover.results import Estimate
from neurecover.statistics.together import row_numbers


class Rejected(View):
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
        self.parent, self._ceiling, self._seed = parent, ceiling, seed
        self.origin = f"{parent.origin} (rejection)"
        self.input_names, self.output_names = parent.input_names, parent.output_names
        self.n_samples = None

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        chance = Y[:, 0] / self._ceiling
        if chance.min() < 0.0 or chance.max() > 1.0:
            raise ValueError(
                f"Rejection needs outputs from 0 to the ceiling {self._ceiling:g}. Got one of "
                f"{Y.min() if chance.min() < 0.0 else Y.max():g} instead."
            )
        kept = row_numbers(X, Y, self._seed) * 2.0**-64 < chance
        return X[kept], np.ones((int(kept.sum()), 1)), kept


class Kept(View):
    """Samples that an oracle has kept, with 1 for their output: their means are the coefficients of f over E[f]."""

    def __init__(self, parent: Source) -> None:
        self.parent = parent
        self.origin, self.n_samples = f"{parent.origin} (kept)", parent.n_samples
        self.input_names, self.output_names = parent.input_names, parent.output_names[:1]

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        return X, np.ones((len(X), 1)), None


@dataclass(frozen=True)
class RejectionRecord:
    """The directions found from the kept samples, and the number of kept samples."""

    step_one: Directions
    n_kept: int


def _run(call: Call) -> Estimate:
    act, d = call.task.activation, call.source.n_inputs
    low, high = _range(call.source)
    if low < 0.0 or not high > 0.0:
        raise UnsolvableError(f"Rejection needs outputs from 0 up. Got them from {low:.3g} to {high:.3g} instead.")
    own = before_whitening(call.source) if call.form == PAPER else OwnInputs(call.source, None)
    kept = Kept(own.source) if call.form == PAPER else Rejected(own.source, high, int(call.rng.integers(2**31)))
    n_kept = kept.count()
    # Regression would assume Gaussian inputs, which the kept ones are not.
    tensors, error = hermite_coefficients(kept, n_kept, 3, regress=-1)
    if call.form == PAPER:
        # The one output has no spread: a mean over n inputs of E[He_j²] = j!, which is 1 for normalised coefficients.
        error = np.full(1, 1.0 / np.sqrt(n_kept))
        d = own.source.n_inputs
    found = directions(tensors, d, call.rng, n_hidden=call.task.n_hidden, standard_error=error).signed(act)
    network = own.composite(found.W, thresholds(found, act), act)
    if call.form == PAPER:
        note = f"{len(found.W)} units from {n_kept} samples, all of them taken as kept by an oracle."
    else:
        note = (
            f"{len(found.W)} units from {n_kept} of {call.task.n_samples} samples, kept with probability y/{high:.3g}."
        )
    return Estimate(network, (note,), details=RejectionRecord(found, n_kept))


def _range(source: Source) -> tuple[float, float]:
    low, high = np.inf, -np.inf
    for _, Y in source.blocks(65_536):
        low, high = min(low, float(Y.min())), max(high, float(Y.max()))
    return low, high


ALGORITHM = Algorithm(
    name="rejection",
    paper="GP18, Appendix B.6",
    assumes="Gaussian inputs; outputs from 0 up; high thresholds; linear terms above step, relu or sigmoid; k ≤ d",
    refuse=lambda task: refuse_unless("rejection", task, ("step", "relu", "sigmoid", "power")),
    run=_run,
    forms=(BEST, PAPER),
    finds="composite",
)
