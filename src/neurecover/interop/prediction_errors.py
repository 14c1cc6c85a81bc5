"""Standard errors of the predictions of a fitted network.

With J = ∂y/∂θ at the fit and residuals r, the parameters have the covariance

    C = F⁺ (Σ_i Jᵢᵀ rᵢ rᵢᵀ Jᵢ) F⁺ · n/(n − P/p),        F = Σ_i Jᵢᵀ Jᵢ,

whether the noise is the same everywhere or not, and the prediction at x has diag(J(x) C J(x)ᵀ). With weights w of the
samples, √w J and √w r are in place of J and r. Directions of θ that change no output are in the null space of both F
and J(x), so the pseudo-inverse leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data import Whitening, unwhiten
from neurecover.models import DeepNetwork, Layered, Network, jacobian
from neurecover.statistics.base import by_root

_BLOCK = 2**22  # numbers in a block of J
_NULL = 1e-13  # of the largest eigenvalue of F scaled to unit diagonal


@dataclass(frozen=True, eq=False)
class PredictionErrors:
    """The `root` (P, q) of C = root rootᵀ at `network`, whose inputs are (x − mean) / size."""

    network: Layered
    mean: np.ndarray
    size: np.ndarray
    root: np.ndarray

    @classmethod
    def of(
        cls, network: Network | DeepNetwork, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None
    ) -> PredictionErrors:
        """Compute C from the samples (n, d) and (n, p) that the network was fitted to, and their weights (n,)."""
        if weight is not None:
            X, Y, weight = X[weight > 0.0], Y[weight > 0.0], weight[weight > 0.0]
        mean, size = X.mean(axis=0), X.std(axis=0)
        size = np.where(size > 0.0, size, 1.0)
        # z = (x − mean)/size are the inputs x = (z + mean/size)·size: a whitening that goes the other way.
        inner = unwhiten(network, Whitening(-mean / size, np.diag(size)))
        assert isinstance(inner, Layered)
        P, (n, p) = inner.n_parameters, Y.shape
        F, meat = np.zeros((P, P)), np.zeros((P, P))
        for rows in _blocks(n, p * P):
            J = jacobian(inner, (X[rows] - mean) / size)
            J, R = by_root(None if weight is None else weight[rows], J, Y[rows] - network(X[rows]))
            scores = np.einsum("npk,np->nk", J, R)
            flat = J.reshape(-1, P)
            F += flat.T @ flat
            meat += scores.T @ scores
        scale = np.sqrt(np.diag(F))
        scale = np.where(scale > 0.0, scale, 1.0)
        values, vectors = np.linalg.eigh(F / scale / scale[:, None])
        kept = values > _NULL * values.max(initial=0.0)
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / scale / scale[:, None]
        spread, directions = np.linalg.eigh(inverse @ meat @ inverse)
        root = directions * np.sqrt(np.maximum(spread, 0.0) * n / max(n - P / p, 1.0))
        return cls(inner, mean, size, root)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the standard errors (n, p) of the predictions at X (n, d)."""
        p, P = self.network.n_outputs, self.network.n_parameters
        errors = np.empty((len(X), p))
        for rows in _blocks(len(X), p * P):
            J = jacobian(self.network, (X[rows] - self.mean) / self.size)
            errors[rows] = np.linalg.norm(J @ self.root, axis=2)
        return errors


def _blocks(n: int, width: int) -> list[slice]:
    rows = max(_BLOCK // width, 1)
    return [slice(start, start + rows) for start in range(0, n, rows)]
