"""Test whether residuals of neighbouring inputs are correlated.

With e = M ε the residuals after m columns are projected out and B the matrix of neighbours, r = e'Be/e'e has under
independent normal noise the moments E r = tr(MB)/ν and Var r = 2 (ν tr(MBMB) − tr(MB)²)/(ν² (ν + 2)), ν = n − m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr


@dataclass(frozen=True)
class Serial:
    """The lag-one correlation of the residuals in the order of x, its z-score and the one-sided p-value."""

    correlation: float
    z: float
    p_value: float


def serial_correlation(columns: np.ndarray, residual: np.ndarray) -> Serial:
    """Test residuals (n,) of a fit with the columns (n, m), both in the order of x."""
    n = len(residual)
    Q, R = np.linalg.qr(columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny))
    Q = Q[:, np.abs(np.diag(R)) > 1e-9]
    dof = n - Q.shape[1]
    square = float(residual @ residual)
    if dof < 4 or square <= 0.0:
        return Serial(0.0, 0.0, 1.0)
    e = residual - Q @ (Q.T @ residual)
    r = float(e[1:] @ e[:-1]) / float(e @ e)
    # B has ½ beside the diagonal: tr B = 0, tr B² = (n − 1)/2.
    BQ = np.zeros_like(Q)
    BQ[:-1] += 0.5 * Q[1:]
    BQ[1:] += 0.5 * Q[:-1]
    small = Q.T @ BQ
    first = -float(np.trace(small))
    second = 0.5 * (n - 1) - 2.0 * float(np.sum(BQ**2)) + float(np.sum(small * small.T))
    mean = first / dof
    variance = 2.0 * (dof * second - first**2) / (dof**2 * (dof + 2.0))
    z = (r - mean) / np.sqrt(max(variance, np.finfo(float).tiny))
    return Serial(r, float(z), float(ndtr(-z)))
