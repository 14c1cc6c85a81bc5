"""Transform samples to zero mean and unit covariance, and networks found on them back to the original inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data.source import Source
from neurecover.data.views.view import Seen, View
from neurecover.models import Composite, Model
from neurecover.statistics import Statistic, Together


@dataclass(frozen=True)
class Whitening:
    """z = (x − mean) @ matrix with mean (d,) and matrix (d, r); r < d if the inputs span fewer than d dimensions.

    A unit w_z·z + b_z is the unit w·x + b with w = matrix w_z and b = b_z − w·mean.
    """

    mean: np.ndarray
    matrix: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, covariance: np.ndarray) -> Whitening:
        """Return the whitening for these moments; directions whose variance is at the level of rounding are left out.

        Rounding alone gives an input of size |mean| + σ a variance of about (1e-15)² (|mean| + σ)². Inputs are scaled
        to a common size before the directions are judged.
        """
        size = np.sqrt(np.diag(covariance))
        noise = 1e-14 * np.abs(mean)
        inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > noise)
        values, vectors = np.linalg.eigh(covariance * inverse * inverse[:, None])
        kept = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
        return cls(mean, vectors[:, kept] / np.sqrt(values[kept]) * inverse[:, None])

    @property
    def rank(self) -> int:
        return self.matrix.shape[1]

    def inputs(self, X: np.ndarray) -> np.ndarray:
        """Return z for every row of X."""
        return (np.asarray(X, dtype=np.float64) - self.mean) @ self.matrix


class Mapped(View):
    """A view of `parent` with whitened inputs."""

    def __init__(self, parent: Source, whitening: Whitening) -> None:
        super().__init__(parent, "whitened", parent.n_samples)
        self._whitening, self.input_names = whitening, tuple(f"z{j}" for j in range(whitening.rank))

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        return self._whitening.inputs(X), Y, None


class Whitened(Together):
    """Statistics that whiten the inputs of their samples first."""

    def __init__(self, whitening: Whitening, **parts: Statistic) -> None:
        super().__init__(**parts)
        self.whitening = whitening
        self.row_bytes += 8 * sum(whitening.matrix.shape)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        super().update(self.whitening.inputs(X), Y, weight)


def unwhiten(model: Model, whitening: Whitening) -> Model:
    """Convert a network on whitened inputs into the same function of the original inputs.

    w = matrix w_z, b = b_z − w·mean in the first layer. An affine term changes likewise: C = C_z matrixᵀ,
    c = c_z − C mean.
    """
    if isinstance(model, Composite):
        W = model.W @ whitening.matrix.T
        return Composite(W, model.threshold + W @ whitening.mean, model.upper, model.activation)
    (V, b), *above = model.layers
    W = V @ whitening.matrix.T
    layers = [(W, b - W @ whitening.mean), *above]
    if model.C is None:
        return model.with_layers(layers, None)
    C, (A, c) = model.C @ whitening.matrix.T, layers[-1]
    return model.with_layers([*layers[:-1], (A, c - C @ whitening.mean)], C)
