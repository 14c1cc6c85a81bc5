"""Equations that no other equation could contradict.

If a sample alone determines a direction of the weights, any value of its output is fitted: its leverage h = J F⁻¹ Jᵀ
is one, and an error δ in the output leaves a residual (1 − h) δ of zero. Without noise a wrong network satisfies such
an equation as well as the right one, so weights that depend on it are not determined. With H = J F⁻¹ Jᵀ over all
equations and g standard normal

    E[((I − H) g)ᵢ²] = 1 − hᵢ,

which a few draws of g distinguish from zero; if they find zero, as many further draws must confirm it. Jᵀg and J δ take
as long as a pass through the network, and need no Jacobian.

Linearly dependent outputs, such as a total and its parts, add no information. If the rank of A is below p and below the
number of units, the equations are those of independent combinations of outputs, Qᵀy with an orthonormal Q whose first
columns span A. With more outputs than units each output does add information: whether all agree on h. With an affine
term (A | C) replaces A.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurecover.certificate.information.tangent import Formed, Tangent, tangent_at
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.data import Source
from neurecover.models import Composite, DeepNetwork, Model, Network, jacobian
from neurecover.solve import afford

BLOCK = 16 * 2**20  # bytes of the arrays that are formed at a time


def sole_equations(
    model: Model, free: np.ndarray, root: np.ndarray, samples: Source, options: CertificateOptions = DEFAULTS
) -> np.ndarray:
    """Return the rows (m, P) of the Jacobian of those equations that no other equation could contradict.

    The columns are the `free` parameters. `root` (P, q) satisfies root rootᵀ = F⁺, a generalised inverse of F = Σ JᵀJ
    over these samples.
    """
    draws, p, formed = options.draws, model.n_outputs, isinstance(model, Composite)
    units, d = sum(len(W) for W in model.hidden_weights), model.n_inputs
    per_sample = 4 * draws * (p * len(free) if formed else model.n_parameters)
    rows, at = max(1, BLOCK // (8 * (p * len(free) if formed else units + d + p))), tangent_at(model)

    def read() -> Iterator[Tangent | Formed]:
        for X, _ in samples.blocks(rows):
            afford(2.0 * per_sample * len(X))
            yield at(np.asarray(X, dtype=np.float64))

    Q = _independent(model, options)
    held = list(read()) if samples.count() <= rows else None
    rng = np.random.default_rng(0)

    def drawn() -> list[np.ndarray]:
        """Return the mean of ((I − H) g)² over a few g, (n, p) for every block."""
        left = [rng.standard_normal((draws, len(block.X), p)) for block in held or read()]
        for again in range(2):  # the second time removes the rounding errors of the first
            gradient = sum(block.backward(g)[:, free] for block, g in zip(held or read(), left))
            steps = np.zeros((draws, model.n_parameters))
            steps[:, free] = (gradient @ root) @ root.T
            left = [g - block.forward(steps) for block, g in zip(held or read(), left)]
            if not again and all(np.mean(g**2, axis=0).min(initial=1.0) > options.clear for g in left):
                break
        return [np.mean((g @ Q) ** 2, axis=0) for g in left]

    squares = drawn()
    if any(square.min(initial=1.0) < options.alone for square in squares):
        squares = [(first + second) / 2.0 for first, second in zip(squares, drawn())]
    found = [np.zeros((0, len(free)))]
    for block, square in zip(held or read(), squares):
        sample, output = np.nonzero(square < options.alone)
        if len(sample):
            J = jacobian(model, block.X[sample])[:, :, free]
            found.append(np.einsum("mo,mop->mp", Q.T[output], J))
    return np.vstack(found)


def _independent(model: Model, options: CertificateOptions) -> np.ndarray:
    """Return the orthonormal Q (p, p) of independent combinations of outputs; the identity if no output depends on
    others.
    """
    if isinstance(model, Composite) or n_independent(model, options) == model.n_outputs:
        return np.eye(model.n_outputs)
    return np.linalg.svd(_readout(model))[0]


def n_independent(model: Network | DeepNetwork, options: CertificateOptions = DEFAULTS) -> int:
    """Return the number of independent outputs: the rank of A, or p if A has full rank."""
    A = _readout(model)
    rank = int(np.linalg.matrix_rank(A, tol=options.dependent * np.linalg.norm(A)))
    return rank if rank < min(A.shape) else len(A)


def _readout(model: Network | DeepNetwork) -> np.ndarray:
    A = model.layers[-1][0]
    return A if model.C is None else np.hstack([A, model.C])
