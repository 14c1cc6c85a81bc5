"""What is known of a box after it was asked."""

from __future__ import annotations

from dataclasses import dataclass

from neurecover.models import Network


@dataclass(frozen=True, eq=False)
class Extraction:
    """A network with one hidden layer that answers as the box does.

    `residual` is the largest |box(x) − network(x)|, relative to the size of the answers there, over fresh questions near
    the origin and far from it. `resolution` is the rounding of the box's answers on the same scale, so a residual near
    it is rounding. `expected_error` is the error to expect of a row of W of length one, from the rounding of what the row
    was computed from. `unreached` has a sentence for each kind of unit that may be there and could not be seen, `notes` what
    else the reader should know.
    """

    network: Network
    queries: int
    residual: float
    resolution: float
    expected_error: float
    unreached: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
