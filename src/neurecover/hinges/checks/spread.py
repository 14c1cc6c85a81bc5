"""Is the noise alike everywhere? The score test of Breusch and Pagan with Koenker's studentising.

The squares of the residuals are regressed on 1, z and z²; n R² is χ² with two degrees of freedom where the variance
does not depend on z, whatever the noise's kurtosis [Koenker, 1981].
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincc

_FEWEST = 8  # rows, below which nothing can be said of the variance's dependence on z


def unequal_noise(z: np.ndarray, residual: np.ndarray, weight: np.ndarray) -> float:
    """Return the p-value of a variance that is alike for residuals (n,) at z (n,), each row standing for `weight`."""
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
