"""Find one further unit of the last hidden layer from the residuals of a network.

If the network lacks one unit, its residual is a relu(θ·φ) + (α·φ), where the affine part is what the other units have
compensated. A regression on φ, and on φ where θ·φ > 0, is repeated until the set of answers with θ·φ > 0 no longer
changes.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.queries.deep.boundaries.boundary import Boundary, triangle
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.deep.units import Unit


def find_faint_unit(network: DeepNetwork, answers: Answers, n: int, options: DeepOptions) -> Unit | None:
    """Return a unit that explains most of the residuals; None if there is none.

    The search begins with the n answers whose residuals are largest on the active side.
    """
    X, noise = answers.X, answers.noise
    below = network.hidden(X)[-2] if network.depth > 1 else X
    phi = np.column_stack([below, np.ones(len(X))])
    left = (answers.Y - network(X)) / noise[:, None]
    a = np.linalg.svd(left - np.median(left, axis=0), full_matrices=False)[2][0]
    along = left @ a
    # The side of a unit that is hardly ever active, or inactive, has a few large residuals.
    along, a = (along, a) if np.sum(along**3) > 0.0 else (-along, -a)
    f, target = phi.shape[1], along
    n = max(n, 2 * f)
    if n > len(X) // 2:
        return None
    rows = phi / noise[:, None]
    first = np.argsort(-along)[:n]
    theta = _regress(rows, target, np.linalg.lstsq(rows[first], target[first], rcond=1e-12)[0], options)
    on = phi @ theta > 0.0
    if not on.any() or on.all():
        return None
    length = float(np.linalg.norm(theta[:-1]))
    theta = theta / length
    R = triangle(np.vstack([rows[on] * length, np.eye(f) / options.wide]))
    boundary = Boundary(R, R @ theta, length * float(np.linalg.norm(a)), options)
    return Unit(boundary, np.zeros(f, dtype=bool), X[int(np.argmin(np.abs(phi @ theta)))])


def _regress(rows: np.ndarray, target: np.ndarray, theta: np.ndarray, options: DeepOptions) -> np.ndarray:
    """Return θ of target ≈ relu(rows·θ) + rows·α, by damped Gauss–Newton steps from θ."""
    f = rows.shape[1]
    for _ in range(options.faint_steps):
        on = rows @ theta > 0.0
        if np.count_nonzero(on) < f + 3 or on.all():
            break
        new = np.linalg.lstsq(np.column_stack([rows * on[:, None], rows]), target, rcond=1e-10)[0][:f]
        theta, change = theta + 0.7 * (new - theta), float(np.linalg.norm(new - theta))
        if change < 1e-9 * np.linalg.norm(theta):
            break
    return theta
