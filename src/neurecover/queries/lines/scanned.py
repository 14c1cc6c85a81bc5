"""A searched part of a line, with the standard errors of its kinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.lines.kinks import Kinks


@dataclass(frozen=True, eq=False)
class Scanned:
    """A searched part of the line x + t v and its kinks; `sigma` (m,) are the standard errors of their places in t."""

    x: np.ndarray
    v: np.ndarray
    kinks: Kinks
    sigma: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, v: np.ndarray, kinks: Kinks) -> Scanned:
        """Return the part of a line with the errors of its kinks, those of both pieces over the jump between them."""
        jumps = np.maximum(np.linalg.norm(kinks.jumps, axis=1), 1e-300)
        ends = kinks.slope_noise * kinks.widths
        return cls(x, v, kinks, (ends[:-1] + ends[1:]) / jumps)
