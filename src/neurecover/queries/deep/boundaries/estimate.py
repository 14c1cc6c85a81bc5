"""θ from kinks, each an equation φ(x*)·θ = 0 with its own standard error, some of which are not of this boundary.

A second kink near a point falsifies its position. Kinks far outside the error of what was known before are left out, if
they are few. The smallest sum of absolute residuals, by iterated least squares
weighted by the inverse residuals, leaves those aside; then the others are fitted by least squares, with their standard
errors widened to what the residuals show.
"""

from __future__ import annotations

import numpy as np

from neurecover.queries.deep.boundaries.boundary import Boundary


def estimate(start: Boundary, phi: np.ndarray, sigma: np.ndarray) -> Boundary:
    """Return the boundary after kinks with features phi (n, f) and standard errors sigma (n,) of φ·θ."""
    options = start.options
    if not len(phi):
        return start
    expected = np.hypot(start.spread(phi), sigma)
    near = np.abs(phi @ start.theta) <= options.unexpected * expected
    if np.count_nonzero(near) > options.expected * len(near):
        phi, sigma = phi[near], sigma[near]
    f = int(np.count_nonzero(np.any(phi != 0.0, axis=0)))
    if len(phi) > 1.3 * f + 3:
        # Enough kinks to do without the gradients that led to them, which may be off. Weights that fewer than three
        # kinks show stay as they were.
        weaken = np.where(np.count_nonzero(phi, axis=0) >= 3, options.weaken, 1.0)
        start = start.loosened(weaken, options.scale_error)
    zeros, size, off = np.zeros(len(phi)), sigma, np.abs(phi @ start.theta)
    boundary = start
    for _ in range(options.estimate_steps):
        before = off
        boundary = start.with_equations(phi, zeros, np.sqrt(sigma * size))
        off = np.abs(phi @ boundary.theta)
        size = np.maximum(off, sigma)
        if np.all(np.abs(off - before) < 0.1 * size):
            break
    scale = max(1.0, float(np.median(off / sigma)) / 0.5)
    for _ in range(4):
        kept = off < options.outlying * scale * sigma
        boundary = start.with_equations(phi[kept], zeros[kept], scale * sigma[kept])
        off = np.abs(phi @ boundary.theta)
        freedom = int(np.count_nonzero(kept)) - f + 1
        if freedom > 3:
            scale = max(1.0, float(np.sqrt(np.sum((off[kept] / sigma[kept]) ** 2) / freedom)))
    return start.with_equations(phi[kept], zeros[kept], scale * sigma[kept])
