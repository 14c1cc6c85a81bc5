"""Turn a model that answers with probabilities into an oracle of logits, within the range where these are known.

A network is piecewise linear before its softmax, not after. Far from the data the probabilities round to 0 and 1, so
queries stay in a cube around the data, chosen so that even at its corners the probabilities determine the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from neurecover.certificate import Check
from neurecover.data import Oracle
from neurecover.data.oracles.frame import Frame
from neurecover.data.oracles.probabilities import (
    Probabilities,
    are_probabilities,
    may_be_probability,
    read_probabilities,
)
from neurecover.exceptions import RefusedError, UnsolvableError
from neurecover.queries.box.black_box import budget_ended
from neurecover.queries.box.limits import Limits
from neurecover.queries.box.resolution import PLACES
from neurecover.queries.diagnosis import draw_neighbours
from neurecover.queries.options import ClassifierOptions, QueryOptions


@dataclass(frozen=True, eq=False)
class Classifier:
    """How the answers are read: unchanged, or as `probabilities` within `limits`; `ask` returns their logits.

    `failure` says why this could not be determined. `beyond` records queries whose probabilities determine no logits.
    `pairs` (n, p) are the model's raw answers to pairs of neighbours, if there are any; a step function shows there.
    """

    ask: Callable[[np.ndarray], np.ndarray]
    probabilities: Probabilities | None
    limits: Limits
    queries: int
    reach: float = np.inf
    failure: str | None = None
    beyond: list[float] = field(default_factory=list)
    pairs: np.ndarray | None = None

    @property
    def rounding(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The rounding of logits, if the probabilities lie on a grid."""
        read = self.probabilities
        return None if read is None or not read.grid.any() else read.rounding

    def nearer(self) -> Classifier | None:
        """Return this classifier with half the range if a query went too far; None if none did or bounds were given."""
        if not self.beyond or np.isinf(self.reach):
            return None
        self.beyond.clear()
        limits = Limits(2.0 * self.limits.rows, self.limits.options)
        return replace(self, limits=limits, reach=0.5 * self.reach)

    def check(self) -> Check | None:
        """Return a check that says that the network's outputs are logits; None if they are the model's own outputs."""
        read = self.probabilities
        if read is None:
            return None
        what = "log p/(1 − p)" if read.n_logits == 1 else "log p_j/p_1, with zero for the first class"
        digits = "" if not read.grid.any() else f", which lie on a grid of {read.grid.max():.1g},"
        reach = "" if np.isinf(self.reach) else f" They are known up to {self.reach:.3g} from the centre of the inputs."
        sentence = f"The answers are probabilities{digits} and the outputs found are their logits {what}.{reach}"
        return Check("probabilities", True, None, None, sentence)


def read_classifier(
    oracle: Oracle, frame: Frame | None, limits: Limits, budget: int | None, given: QueryOptions
) -> Classifier:
    """Find out whether the answers are probabilities and, if so, in which range they determine logits."""
    rng, options = np.random.default_rng(0), given.classifier
    asked, pairs = 0, None

    def query(Z: np.ndarray) -> np.ndarray:
        nonlocal asked
        Z = limits.pull_inside(Z)
        X = Z if frame is None else frame.inputs(Z)
        if budget is not None and asked + len(Z) > budget:
            raise UnsolvableError(budget_ended(budget, asked, len(Z)))
        asked += len(Z)
        return oracle.ask_as_it_is(X.astype(np.float32).astype(float) if oracle.single else X)

    d = oracle.n_inputs
    try:
        pairs = query(draw_neighbours(d, given.looks))
        read = _recognise(query, pairs, oracle.logits, d, options, rng)
        if read is None:
            return Classifier(oracle.ask, None, limits, asked, pairs=pairs)
        reach = np.inf if limits else _reach(query, read, d, options)
    except RefusedError:  # far queries are refused, so the model itself limits the range
        return Classifier(oracle.ask, None, limits, asked, pairs=pairs)
    except UnsolvableError as error:
        return Classifier(oracle.ask, None, limits, asked, failure=str(error), pairs=pairs)
    within = limits or Limits.cube(d, reach, limits.options)
    beyond: list[float] = []

    def ask(X: np.ndarray) -> np.ndarray:
        Y = oracle.ask_as_it_is(X)
        if read.clipped(Y):
            # At the limits of the probabilities, the logits have kinks that belong to no unit.
            beyond.append(reach)
            raise RefusedError("Probabilities are 0 or 1 to all digits within the range: query nearer, with like=X.")
        return read.logits(Y)

    return Classifier(ask, read, within, asked, reach, beyond=beyond, pairs=pairs)


def _recognise(
    query: Callable[[np.ndarray], np.ndarray],
    first: np.ndarray,
    told: bool,
    d: int,
    options: ClassifierOptions,
    rng: np.random.Generator,
) -> Probabilities | None:
    """Return how the answers encode probabilities, None if they are none; `told` says that they are known to be."""
    if not told and not (first.max() <= 1.0 and (first.min() >= 0.0 or are_probabilities(first))):
        return None
    scale = np.repeat(options.scales, options.each)[:, None]
    Y = query(scale * rng.standard_normal((len(scale), d)))
    if not told and np.isin(Y, (0.0, 1.0)).all():
        return None  # labels
    if told or are_probabilities(Y) or (may_be_probability(Y) and _straighter(query, d, options)):
        read = read_probabilities(Y)
        if _has_plateaus(Y, read, options):
            raise UnsolvableError(
                "The probabilities are the same over whole ranges of inputs, as after calibration by isotonic "
                "regression: query the model before its calibration."
            )
        return read
    return None


def _has_plateaus(Y: np.ndarray, read: Probabilities, options: ClassifierOptions) -> bool:
    """Return whether two or more probabilities strictly between 0 and 1 were each answered to several random queries.

    One such value may come from a network all of whose units are inactive. On a coarse grid values coincide by chance.
    """
    if read.grid.max(initial=0.0) > options.fine:
        return False
    values, counts = np.unique(Y, axis=0, return_counts=True)
    inside = read.usable(values) & (read.classes(values).min(axis=1) > options.extreme)
    tied = counts[inside & (counts > 1)]
    return len(tied) > 1 and int(tied.sum()) >= options.tied


def _straighter(query: Callable[[np.ndarray], np.ndarray], d: int, options: ClassifierOptions) -> bool:
    """Return whether, on short segments, the logits of the answers are closer to linear than the answers."""
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(np.vander(PLACES / PLACES[-1] - 0.5, 2))[0]
    for length in options.lengths:
        start, along = rng.standard_normal((2, options.segments, 1, d))
        P = query((start + length * PLACES[:, None] * along).reshape(-1, d)).reshape(options.segments, len(PLACES))
        P = P[(P.min(axis=1) > options.doubt) & (P.max(axis=1) < 1.0 - options.doubt)].astype(np.float64)
        if not len(P):
            continue
        # Divided by the range of each, so that both bends are relative to a line of slope one.
        bends = []
        for Y in (P, np.log(P) - np.log1p(-P)):
            left = Y - Y @ basis @ basis.T
            bends.append(np.median(np.abs(left).max(axis=1) / np.maximum(np.ptp(Y, axis=1), 1e-300)))
        if bends[0] > options.straighter * bends[1]:
            return True
    return False


def _reach(query: Callable[[np.ndarray], np.ndarray], read: Probabilities, d: int, options: ClassifierOptions) -> float:
    """Return the size of a cube at whose corners all logits are known."""
    rng = np.random.default_rng(2)
    signs = rng.choice([-1.0, 1.0], (options.corners, d))
    low, high = np.zeros(options.corners), np.full(options.corners, options.farthest)
    good = read.usable(query(high[:, None] * signs))
    low[good] = high[good]
    near = np.full(options.corners, options.farthest / 2.0**20)
    for _ in range(options.halvings):
        t = np.where(good, high, np.sqrt(np.maximum(low, near) * high))
        usable = read.usable(query(t[:, None] * signs))
        low, high = np.where(usable, t, low), np.where(usable, high, t)
    reach = options.inside * float(low.min())
    if reach == 0.0:
        raise UnsolvableError(
            "The probabilities are 0 and 1, or clipped, around the inputs: query where the classes are in doubt, with "
            "like=X. If they were calibrated by isotonic regression, query the model before that."
        )
    return reach
