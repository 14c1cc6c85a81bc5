"""Equations that no other equation could contradict.

Whatever a sample says is fitted where it is the only one to say it: its leverage h = J F⁻¹ Jᵀ is one, and the residual
(1 − h) δ of an answer that is off by δ says nothing. Without noise an invented network passes such an equation as well
as the right one, so what rests on it is not determined. With H = J F⁻¹ Jᵀ over all equations and g standard normal

    E[((I − H) g)ᵢ²] = 1 − hᵢ,

which a few draws of g tell from zero; where they say that it is, as many draws again have to agree. For one hidden
layer Jᵀg and J δ take time n·k·(D + p) and no Jacobian.

Outputs that depend on each other, such as a total beside its parts, repeat what the others say: where the rank of A is
below p and the number of units, equations are those of combinations of outputs that do not, Qᵀy with orthonormal Q
whose first columns span A. With more outputs than units each says something of its own: whether they agree on h. With
an affine term (A | C) is in place of A.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurecover.data import Source
from neurecover.models import DeepNetwork, Model, Network, jacobian
from neurecover.solve import afford

DRAWS = 4  # of g: their mean square is below 1e-3 of its expectation twice in 1e6 times, below 1e-6 twice in 1e12
ALONE = 1e-6  # 1 − h: rounding leaves 1e-15 of an output, so that one in 1e9 wrong answers passes
CLEAR = 1e-3  # far above what rounding leaves
DEPENDENT = 1e-9  # singular value of A, relative, that counts as zero
BLOCK = 16 * 2**20  # bytes of what is formed at a time


def alone(model: Model, free: np.ndarray, root: np.ndarray, samples: Source) -> np.ndarray:
    """The rows (m, P) of the Jacobian by the `free` parameters whose equation no other one contradicts.

    root (P, q) is such that root rootᵀ is a generalised inverse of F = Σ JᵀJ over these samples.
    """
    p, d, units = model.n_outputs, model.n_inputs, sum(len(W) for W in model.hidden_weights)
    per_sample = 4 * DRAWS * units * (d + p + 1) if isinstance(model, Network) else 4 * DRAWS * p * len(free)
    rows = max(1, BLOCK // (8 * (p * len(free) if not isinstance(model, Network) else units + d + p)))

    def read() -> Iterator[_Shallow | _Any]:
        for X, _ in samples.blocks(rows):
            afford(2.0 * per_sample * len(X))
            X = np.asarray(X, dtype=np.float64)
            yield _Shallow(model, X) if isinstance(model, Network) else _Any(model, X)

    Q = _independent(model)
    held = list(read()) if samples.count() <= rows else None
    rng = np.random.default_rng(0)

    def drawn() -> list[np.ndarray]:
        """The mean of ((I − H) g)² over a few g, (n, p) for every block."""
        left = [rng.standard_normal((DRAWS, len(block.X), p)) for block in held or read()]
        for again in range(2):  # the second time takes out what rounding has left of the first
            gradient = sum(block.backward(g)[:, free] for block, g in zip(held or read(), left))
            steps = np.zeros((DRAWS, model.n_parameters))
            steps[:, free] = (gradient @ root) @ root.T
            left = [g - block.forward(steps) for block, g in zip(held or read(), left)]
            if not again and all(np.mean(g**2, axis=0).min(initial=1.0) > CLEAR for g in left):
                break
        return [np.mean((g @ Q) ** 2, axis=0) for g in left]

    squares = drawn()
    if any(square.min(initial=1.0) < ALONE for square in squares):
        squares = [(first + second) / 2.0 for first, second in zip(squares, drawn())]
    found = [np.zeros((0, len(free)))]
    for block, square in zip(held or read(), squares):
        sample, output = np.nonzero(square < ALONE)
        if len(sample):
            J = jacobian(model, block.X[sample])[:, :, free]
            found.append(np.einsum("mo,mop->mp", Q.T[output], J))
    return np.vstack(found)


def _independent(model: Model) -> np.ndarray:
    """Q (p, p), the identity where no output depends on others."""
    if not isinstance(model, Network | DeepNetwork) or n_independent(model) == model.n_outputs:
        return np.eye(model.n_outputs)
    return np.linalg.svd(_readout(model))[0]


def n_independent(model: Network | DeepNetwork) -> int:
    """How many outputs do not depend on each other; all of them where each unit could have one to itself."""
    A = _readout(model)
    rank = int(np.linalg.matrix_rank(A, tol=DEPENDENT * np.linalg.norm(A)))
    return rank if rank < min(A.shape) else len(A)


def _readout(model: Network | DeepNetwork) -> np.ndarray:
    A = model.layers[-1][0]
    return A if model.C is None else np.hstack([A, model.C])


class _Any:
    """Some samples, with the Jacobian of any network there."""

    def __init__(self, model: Model, X: np.ndarray) -> None:
        self.X, self.J = X, jacobian(model, X)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Jᵀ g for g (draws, n, p), a row each."""
        return np.tensordot(g, self.J, axes=2)

    def forward(self, steps: np.ndarray) -> np.ndarray:
        """J δ for every row δ of `steps`, (draws, n, p)."""
        return np.moveaxis(self.J @ steps.T, 2, 0)


class _Shallow:
    """The same for one hidden layer, without its Jacobian."""

    def __init__(self, model: Network, X: np.ndarray) -> None:
        self.X, self.A, self.affine = X, model.A, model.C is not None
        Z = model.preactivations(X)[0]
        self.slope, self.H = model.activation.derivative(Z), model.activation(Z)

    def backward(self, g: np.ndarray) -> np.ndarray:
        gated = self.slope * (g @ self.A)
        hidden, readout = (gated.transpose(0, 2, 1) @ self.X, gated.sum(axis=1)), g.transpose(0, 2, 1) @ self.H
        affine = (g.transpose(0, 2, 1) @ self.X,) if self.affine else ()
        return np.hstack([part.reshape(len(g), -1) for part in (*hidden, readout, *affine, g.sum(axis=1))])

    def forward(self, steps: np.ndarray) -> np.ndarray:
        (p, k), d = self.A.shape, self.X.shape[1]
        W, b, A, C, c = np.split(steps, np.cumsum([k * d, k, p * k, p * d * self.affine]), axis=1)
        moved = self.slope * (self.X @ W.reshape(-1, k, d).transpose(0, 2, 1) + b[:, None])
        outputs = moved @ self.A.T + self.H @ A.reshape(-1, p, k).transpose(0, 2, 1) + c[:, None]
        return outputs + self.X @ C.reshape(-1, p, d).transpose(0, 2, 1) if self.affine else outputs
