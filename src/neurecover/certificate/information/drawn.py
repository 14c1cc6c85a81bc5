"""Errors from draws of the posterior, for fits whose errors to first order may be too small.

An error of the draws is √E(θ − θ̂)² about the estimate θ̂, so that θ̂ ± 1.96 errors covers where the posterior is skewed
or has several tips. Other optima as good are no objection as long as these intervals hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.certificate.information.plane_posterior import Draws, order_and_side
from neurecover.certificate.information.standard_errors import Errors
from neurecover.certificate.verdict import ParameterArrays
from neurecover.data import Whitening
from neurecover.models import Network, parameters


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws, and errors that are no smaller than theirs and than those to first order."""

    draws: Draws
    errors: Errors

    @classmethod
    def of(cls, draws: Draws, first: Errors, normal: Network) -> Drawn:
        """Return the errors of draws about a network in normal form, on the same inputs."""
        draws = draws.about(normal)
        apart = draws.parameters() - parameters(normal)
        return cls(draws, first.at_least(np.mean(apart**2, axis=0), normal))


def largest_distance(
    nearby: tuple[np.ndarray, ...], network: Network, whitening: Whitening, errors: ParameterArrays
) -> float:
    """Return the most standard errors of a weight between the first of some optima and any other.

    They are units (k, r + 1) on whitened inputs, biases last; `network` has them on the inputs, and `errors` its own.
    """
    scale, moved = np.column_stack([errors["W"], errors["b"]]), []
    for units in nearby:
        planes = _on_inputs(units, whitening)
        order, side = order_and_side(planes, network)
        moved.append(side[:, None] * planes[order])
    first, *others = moved
    return max((float(np.max(np.abs(other - first) / scale)) for other in others), default=0.0)


def _on_inputs(units: np.ndarray, whitening: Whitening) -> np.ndarray:
    """Return units (k, d + 1) on the inputs, |w| = 1."""
    W = units[:, :-1] @ whitening.matrix.T
    rows = np.column_stack([W, units[:, -1] - W @ whitening.mean])
    return np.asarray(rows / np.linalg.norm(W, axis=1, keepdims=True))
