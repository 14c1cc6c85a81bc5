"""One damped step of a Newton-like method."""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

_FLOOR = 1e-10  # of a unit diagonal: directions that nothing determines stay where they are


def damped_step(information: np.ndarray, gradient: np.ndarray, damping: float) -> np.ndarray:
    """δ of (H + μ diag H) δ = g for a positive semidefinite H, scaled to a unit diagonal first."""
    size = np.sqrt(np.maximum(np.diag(information), 0.0))
    inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 1e-150)
    matrix = information * inverse * inverse[:, None]
    matrix[np.diag_indices_from(matrix)] = 1.0 + damping + _FLOOR
    right = gradient * inverse
    try:
        return cho_solve(cho_factor(matrix), right) * inverse
    except LinAlgError:
        return right * inverse
