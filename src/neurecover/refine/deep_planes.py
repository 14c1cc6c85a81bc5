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

from neurecover.models.deep_student import DeepStudent, Pass
from neurecover.solve import afford

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
    values = student.forward(X)
    Z = X @ V[:, : student.n_inputs].T + (V[:, -1] if student.bias else 0.0)
    weights = np.exp(-0.5 * (Z / NEAR) ** 2)

    def sizes(leaders: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Σ over samples near a leader's plane, and over outputs, of the squared jump of its members together."""
        total, near = np.zeros(len(leaders)), weights[:, leaders]
        for output in range(student.n_outputs):
            together = (_jumps(student, values, output)[:, seen] * norm) @ members
            total += np.einsum("nj,nj->j", together**2, near)
        return total

    every = np.arange(len(V))
    alone = sizes(every, np.eye(len(V)))
    unit = V / np.linalg.norm(V, axis=1, keepdims=True)
    same = np.abs(unit @ unit.T) > SAME_PLANE
    left, kept, members = list(np.argsort(-alone)), [], []
    while left:
        j = left[0]
        kept.append(j)
        members.append(np.isin(every, left) & same[j])
        left = [i for i in left if not same[j, i]]
    leaders = np.array(kept, dtype=int)
    jumps = np.sqrt(sizes(leaders, np.array(members, dtype=float).reshape(len(kept), len(V)).T) / len(X))
    order = np.argsort(-jumps, kind="stable")
    return Planes(V[leaders[order]], jumps[order])


def _jumps(student: DeepStudent, values: Pass, output: int) -> np.ndarray:
    """∂y_o/∂h_1 of one output, (n, m)."""
    own, m = student.own(0), student.widths[0]
    afford(4.0 * len(values.features) * student.n_hidden_weights)
    jumps = np.tile(student.readout[own, output], (len(values.features), 1))
    for layer, U in enumerate(student.backward(values, output)[1:], start=1):
        at = own.start - student.below(layer).start
        jumps += U @ student.hidden[layer][:, at : at + m]
    return jumps
