"""The planes of the first layer, from a wide student that fits well but not exactly.

The gradient of y jumps across the plane v·x̃ = 0 by the sum over the units that lie on it, w = ‖v‖ without the bias,

    jump_o(x) = Σ_j (∂y_o/∂h_j)(x) · ‖w_j‖,

whichever way they look: act(z) and act(−z) have the same kink. A plane of the teacher keeps its jump; a spare unit of
the student has none, and pairs of spare units on one plane cancel. The size of a jump is the mean of its square near
the plane, samples weighted by exp(−t²/2τ²) with their distance t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models.deep_student import DeepStudent

NEAR = 0.1  # τ, in standard deviations of the whitened inputs
SAME_PLANE = 0.99  # cosine between (w, b) of two units that stand for one plane


@dataclass(frozen=True)
class Planes:
    """Distinct planes V (m, D) with unit w, the largest jump first, and the size of each jump (m,)."""

    V: np.ndarray
    jumps: np.ndarray


def first_planes(student: DeepStudent, X: np.ndarray) -> Planes:
    """The distinct planes of the student's first layer on whitened samples X (n, d)."""
    V = student.hidden[0]
    norm = np.linalg.norm(V[:, : student.n_inputs], axis=1)
    seen = np.flatnonzero(norm > 0)
    V, norm = V[seen] / norm[seen, None], norm[seen]
    jumps = _jumps(student, X)[:, :, seen] * norm
    Z = X @ V[:, : student.n_inputs].T + (V[:, -1] if student.bias else 0.0)
    weights = np.exp(-0.5 * (Z / NEAR) ** 2)
    alone = np.einsum("noj,nj->j", jumps**2, weights)
    unit = V / np.linalg.norm(V, axis=1, keepdims=True)
    same = np.abs(unit @ unit.T) > SAME_PLANE
    left, kept, sizes = list(np.argsort(-alone)), [], []
    while left:
        j = left[0]
        members = [i for i in left if same[j, i]]
        together = jumps[:, :, members].sum(axis=2)
        kept.append(j)
        sizes.append(float(weights[:, j] @ (together**2).sum(axis=1)) / len(X))
        left = [i for i in left if not same[j, i]]
    order = np.argsort(-np.array(sizes), kind="stable")
    return Planes(V[np.array(kept, dtype=int)[order]], np.sqrt(np.array(sizes)[order]))


def _jumps(student: DeepStudent, X: np.ndarray) -> np.ndarray:
    """∂y_o/∂h_1, (n, p, m)."""
    values = student.forward(X)
    jumps = np.empty((len(X), student.n_outputs, student.widths[0]))
    own = student.own(0)
    for output in range(student.n_outputs):
        above = student.backward(values, output)[1:]
        jumps[:, output] = student.readout[own, output]
        for layer, U in enumerate(above, start=1):
            at = own.start - student.below(layer).start
            jumps[:, output] += U @ student.hidden[layer][:, at : at + student.widths[0]]
    return jumps
