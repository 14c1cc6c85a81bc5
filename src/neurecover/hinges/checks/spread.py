"""Test whether the variance of the noise depends on x: the score test of Breusch and Pagan, studentised by Koenker.

The squared residuals are regressed on 1, z and z². If the variance does not depend on z, n R² is χ² with two degrees of
freedom, whatever the kurtosis of the noise [Koenker, 1981].
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincc

_FEWEST = 8  # rows, below which nothing can be said of the variance's dependence on z


def unequal_noise(z: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> float:
    """Return the p-value of the hypothesis that residuals (n,) at z (n,) have one variance; row i stands for weight_i
    rows.
    """
    n = float(weight.sum())
    X = np.vander(z, 3)
    root = np.sqrt(weight)
    squares = residual**2 - float(weight @ residual**2) / n
    total = float(weight @ squares**2)
    if n < _FEWEST or total <= 0.0:
        return 1.0
    misfit = squares - X @ np.linalg.lstsq(root[:, None] * X, root * squares, rcond=None)[0]
    explained = 1.0 - float(weight @ misfit**2) / total
    return float(gammaincc(1.0, 0.5 * n * max(explained, 0.0)))
