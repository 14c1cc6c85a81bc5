"""The result of an extraction by queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import DeepNetwork, Network
from neurecover.queries.weighted import Weighted


@dataclass(frozen=True, eq=False)
class Extraction:
    """A network that reproduces the oracle, and how well.

    `residual` is the largest |oracle(x) − network(x)|, relative to the size of the answers there, over held-out queries
    near the origin and far from it. `resolution` is the rounding of the answers on the same scale; `exact` says whether
    rounding, of the answers and of the weights computed from them, explains the residual. `errors` (k,) are the
    expected errors of the hidden rows, scaled to length one. `unreached` has one sentence for each kind of unit that
    the queries could not determine, `notes` has further remarks. `weighted` is the fit that gives error bars when
    answers are coarse. `signs_proved` says that a complete search found no other signs of the units.
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
    signs_proved: bool = False
