"""Two units with the same boundary plane: together they may be one unit plus a linear function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.certificate.information.normal_form import hidden_names
from neurecover.certificate.verdict import ParameterArrays
from neurecover.models import Composite, Model

PAIRS = 2**18  # weights of pairs of units that are compared at a time


@dataclass(frozen=True)
class NearestPlanes:
    """The two units of a layer whose planes are least apart, in standard errors."""

    apart: float
    pair: tuple[int, int]


def nearest_planes(normal: Model, errors: ParameterArrays, same: float) -> NearestPlanes:
    """Return the two units of one layer whose boundary planes are nearest, in standard errors, whatever their signs.

    `same` is added to every standard error, so that a difference of that size does not count.
    """
    least = NearestPlanes(np.inf, (0, 0))
    if not normal.activation.odd_slope or normal.activation.homogeneity != 1.0 or isinstance(normal, Composite):
        return least
    arrays, names = normal.to_arrays(), hidden_names(normal)
    for W, b in zip(names[::2], names[1::2]):
        V = np.column_stack([arrays[W], arrays[b]])
        variances = np.column_stack([errors[W], errors[b]]) ** 2 + same**2
        some = max(1, PAIRS // max(V.size, 1))
        for first in range(0, len(V), some):
            own = slice(first, first + some)
            spread = np.sqrt(variances[own, None] + variances)
            equal, mirrored = (np.max(np.abs(V[own, None] - sign * V) / spread, axis=2) for sign in (1.0, -1.0))
            apart = np.minimum(equal, mirrored)
            np.fill_diagonal(apart[:, first:], np.inf)
            if apart.min() < least.apart:
                i, j = np.unravel_index(np.argmin(apart), apart.shape)
                pair = min(first + int(i), int(j)), max(first + int(i), int(j))
                least = NearestPlanes(float(apart[i, j]), pair)
    return least
