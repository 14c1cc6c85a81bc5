"""What is known of a box after it was asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import DeepNetwork, Network
from neurecover.queries.weighted import Weighted


@dataclass(frozen=True, eq=False)
class Extraction:
    """A network that answers as the box does.

    `residual` is the largest |box(x) − network(x)|, relative to the size of the answers there, over fresh questions
    near the origin and far from it. `resolution` is the rounding of the box's answers on the same scale, so a residual
    near it is rounding, and `exact` says whether it is explained by rounding, that of the answers and what it left in
    the weights. `errors` (k,) are those to expect of the rows of W, which have length one, from the rounding of what
    they were computed from. `unreached` has a sentence for each kind of unit that could not be seen, or hardly, and
    `notes` what else the reader should know. `weighted` is the fit that gives error bars where answers are coarse.
    """

    network: Network | DeepNetwork
    queries: int
    residual: float
    resolution: float
    exact: bool
    errors: np.ndarray
    unreached: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    weighted: Weighted | None = None
