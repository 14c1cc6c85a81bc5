"""The smallest unit that the samples would show.

Size: without noise, the unit's contribution to an output must be above rounding. With noise of standard deviation σ the
criterion for the width, N·log Σr² + (parameters)·log N, keeps a unit if the mean square of its contribution exceeds
σ² (D + p) log(N)/n.

Angle: two units at an angle φ differ from one unit only in the samples between their kinks, about m·φ/(φ₀ √D) if m
samples lie within φ₀ of a kink. Without noise as many such samples are needed as a unit needs at its kink. With noise,
the residual of one unit in place of two, a/2·(δ − |z|) for |z| < δ = φ g/2 and g, z ~ N(0, 1), must have that size:

    E = a² E[δ³]/(6 √(2π)) = a² φ³ √(8/π)/(48 √(2π)) ≈ a² φ³/75.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Composite, Model
from neurecover.statistics import SerialResiduals, UnitsOn, weights_per_unit


@dataclass(frozen=True)
class Visible:
    """The smallest visible unit: the size of its contribution to an output, its angle to others, and the samples at its
    kink.
    """

    size: float
    angle: float
    samples: int


def visible_unit(
    white: Model, close: UnitsOn, needed: np.ndarray, rounding: np.ndarray, serial: SerialResiduals | None
) -> Visible:
    """Return the smallest further unit that would have been noticed, for a network on whitened inputs.

    `close` counts the samples near the kinks, `needed` (units,) is the number that a kink needs, `rounding` (p,) is the
    rounding of every output, and `serial` has the residuals if there is noise.
    """
    k, p = len(white.hidden_weights[0]), white.n_outputs
    D = int(weights_per_unit(white)[0]) if k else 1
    sides = close.sums
    near = np.maximum(sides["n"] - sides["on"] - sides["off"], 1)[:k]
    angle = float(np.max(close.near * np.sqrt(D) * needed[:k] / near, initial=0.0))
    size = float(rounding.max())
    if serial is not None:
        variance = float(serial.sums["squared"].max()) / serial.n
        size = float(np.sqrt(variance * (D + p) * np.log(serial.n * p) / serial.n))
        angle = max(angle, float(np.max((75.0 * size**2 / _strength(white) ** 2) ** (1 / 3), initial=0.0)))
    return Visible(size, min(angle, np.pi / 2), int(needed.max(initial=0)))


def _strength(white: Model) -> np.ndarray:
    """Return ‖A_j‖‖w_j‖ of every unit of the first layer, where A are the weights of the layer above it."""
    W = white.hidden_weights[0]
    # For a composite only the lowest layer is known.
    above = np.ones((1, len(W))) if isinstance(white, Composite) else white.layers[1][0]
    return np.maximum(np.linalg.norm(above, axis=0) * np.linalg.norm(W, axis=1), 1e-300)
