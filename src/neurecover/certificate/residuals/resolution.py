"""What a unit must be like for given samples to show it.

Size: without noise its part of an output is above rounding; with noise of standard deviation σ the criterion that finds
the width, N·log Σr² + (parameters)·log N, keeps it if the mean square of its part exceeds σ² (D + p) log(N)/n.

Angle: two units at an angle φ are one unit for all samples but those between their kinks, about m·φ/(φ₀ √D) where m lie
within φ₀ of a kink. That they are two is seen by as many samples as a unit needs at its kink. With noise, the part that
one unit in place of two leaves, a/2·(δ − |z|) where |z| < δ = φ g/2 and g, z ~ N(0, 1), has to be of the size above:

    E = a² E[δ³]/(6 √(2π)) = a² φ³ √(8/π)/(48 √(2π)) ≈ a² φ³/75.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Composite, Model
from neurecover.statistics import SerialResiduals, UnitsOn, weights_per_unit


@dataclass(frozen=True)
class Visible:
    """What a unit must have to be seen: the size of its part of an output, an angle to others, samples at its kink."""

    size: float
    angle: float
    samples: int


def visible_unit(
    white: Model, close: UnitsOn, needed: np.ndarray, rounding: np.ndarray, serial: SerialResiduals | None
) -> Visible:
    """Return the smallest further unit that the samples would have shown, for a network on whitened inputs.

    `close` counts the samples near the kinks, `needed` (units,) says how many a kink needs, `rounding` (p,) is that of
    every output, and `serial` has the residuals if there is noise.
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
    """Return ‖A_j‖‖w_j‖ of every unit of the first layer, with the weights above in place of A."""
    W = white.hidden_weights[0]
    # Of a composite nothing is known but its lowest layer.
    above = np.ones((1, len(W))) if isinstance(white, Composite) else white.layers[1][0]
    return np.maximum(np.linalg.norm(above, axis=0) * np.linalg.norm(W, axis=1), 1e-300)
