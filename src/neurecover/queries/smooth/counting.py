"""Find the number of smooth units as the rank of a matrix.

The second derivatives along directions u at points x are

    ∂²y_o/∂u² (x) = Σ_j A_oj act″(z_j(x)) · (w_j·u)².

As a matrix with a row per point and output and a column per direction, they have as rank the number of units, if there
are more rows and columns than units.
"""

from __future__ import annotations

import numpy as np

from neurecover.activations import Activation
from neurecover.queries.box.black_box import Box
from neurecover.queries.smooth.options import SmoothOptions

OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0])  # and 0: a second difference that is right to the fourth order
WEIGHTS = np.array([-1.0, 16.0, 16.0, -1.0]) / 12.0  # of the values there; −30/12 at 0


def count_units(box: Box, activation: Activation, rng: np.random.Generator) -> int | None:
    """Return the number of units; None if that takes too many queries, or if the singular values have no gap.

    The fourth-order differences do not apply to activations whose second derivative jumps, such as elu.
    """
    options, d, p = box.options.smooth, box.n_inputs, box.n_outputs
    if not _bends_smoothly(activation):
        return None
    X, U, found = np.zeros((0, d)), np.zeros((0, d)), np.zeros((0, p, 0))
    m = options.directions
    while m * options.filled <= d * (d + 1) // 2:
        n_points = int(np.ceil(options.more * m / p))
        if 4 * m * n_points > min(options.counting, box.affordable):
            break
        points = rng.standard_normal((n_points - len(X), d))
        directions = rng.standard_normal((m - len(U), d))
        found = np.concatenate([found, _second_differences(box, points, U, options)])
        X, U = np.vstack([X, points]), np.vstack([U, directions])
        found = np.concatenate([found, _second_differences(box, X, directions, options)], axis=2)
        rank = _rank(found.reshape(-1, m), options)
        if rank is not None:
            return rank
        m *= 2
    return None


def _bends_smoothly(activation: Activation) -> bool:
    """Return whether act″ is continuous at zero, where pieces meet: act′(h) − 2 act′(0) + act′(−h) = o(h)."""
    slopes = activation.derivative(np.array([-1e-3, 0.0, 1e-3]))
    return bool(abs(slopes[0] - 2.0 * slopes[1] + slopes[2]) < 1e-5)


def _second_differences(box: Box, X: np.ndarray, U: np.ndarray, options: SmoothOptions) -> np.ndarray:
    """Return the second differences (n, p, m) at X (n, d) along U (m, d)."""
    h, d, p = options.step, box.n_inputs, box.n_outputs
    if not len(X) or not len(U):
        return np.zeros((len(X), p, len(U)))
    asked = X[:, None, None] + h * OFFSETS[:, None, None] * U
    answers = box(asked.reshape(-1, d)).reshape(len(X), len(OFFSETS), len(U), p)
    middle = box(X)
    differences = np.einsum("f,nfmp->npm", WEIGHTS, answers) - WEIGHTS.sum() * middle[:, :, None]
    return np.asarray(differences / h**2)


def _rank(M: np.ndarray, options: SmoothOptions) -> int | None:
    """Return where the singular values of M end, if that is clear and well before the last."""
    sizes = np.linalg.svd(M / np.maximum(np.linalg.norm(M, axis=0), 1e-300), compute_uv=False)
    ratios = sizes[:-1] / np.maximum(sizes[1:], 1e-300)
    ends = np.flatnonzero((ratios > options.gap) & (sizes[1:] < options.nothing * sizes[0])) + 1
    return int(ends[0]) if len(ends) and ends[0] <= options.filled * M.shape[1] else None
