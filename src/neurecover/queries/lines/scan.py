"""A random line through the inputs and all its kinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.black_box import Box
from neurecover.queries.lines.kinks import Kinks, find_kinks


class NotPiecewiseLinearError(UnsolvableError):
    """The oracle is not piecewise linear, so that no other line would help."""


@dataclass(frozen=True, eq=False)
class Scan:
    """The line x + t v and its kinks."""

    x: np.ndarray
    v: np.ndarray
    kinks: Kinks


def scan_line(box: Box, rng: np.random.Generator, farther: float = 1.0, towards: np.ndarray | None = None) -> Scan:
    """Find all kinks on a random line, or on one from edge to edge if the oracle has limits.

    `farther` multiplies the usual length. `towards` (d,) is the end of a line within limits. Raise
    NotPiecewiseLinearError if the oracle is not piecewise linear along the line.
    """
    options = box.options.lines
    if box.limits:
        start, stop = box.limits.draw_ends(rng)
        stop = stop if towards is None else towards
        x, v, far = 0.5 * (start + stop), 0.5 * (stop - start), 1.0
    else:
        x, v = 0.5 * rng.standard_normal(box.n_inputs), rng.standard_normal(box.n_inputs)
        far = farther * (options.far_coarse if box.coarse else options.far)
    kinks = find_kinks(box, x, v, -far, far, most=options.most)
    if not kinks.complete:
        raise NotPiecewiseLinearError(
            f"Along a line the oracle is curved, or has more kinks than {options.most} queries can find: "
            "it is not a piecewise linear network, or far too wide a one."
        )
    blurred = int(np.count_nonzero(~kinks.resolved))
    if not box.coarse and blurred > 2 + len(kinks.resolved) // 4:
        raise NotPiecewiseLinearError(
            f"The answers of the oracle jump, or bend smoothly, in {blurred} places along a line: "
            "it is not a piecewise linear network."
        )
    box.record_line(x, v, kinks.positions)
    return Scan(x, v, kinks)
