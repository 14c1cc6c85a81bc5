"""What is known so far about the boundary θ·φ(x) = 0 of one unit above the known layers.

Every answer gives linear equations for θ (f,). They are stored as a particular solution θ̂ and an orthonormal basis N
of all directions that no equation constrains yet,

    θ ∈ { θ̂ + N u }.

The boundary is known in the cells where Nᵀ φ vanishes; once N is empty, it is known everywhere. The scale of θ is fixed
by giving the normal at the first point length one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.deep.cells import Cell


@dataclass(frozen=True, eq=False)
class Boundary:
    """θ̂ (f,) and N (f, m)."""

    theta: np.ndarray
    free: np.ndarray

    @property
    def complete(self) -> bool:
        """Whether every weight is known."""
        return self.free.shape[1] == 0

    def normal(self, cell: Cell) -> np.ndarray:
        """Return the gradient of θ·φ in a cell where the boundary is known."""
        return cell.Phi.T @ self.theta

    def unknown(self, phi: np.ndarray) -> float:
        """Return the fraction of the direction φ that no equation constrains, between 0 and 1."""
        size = float(np.linalg.norm(phi))
        return float(np.linalg.norm(self.free.T @ phi)) / size if size > 0.0 else 0.0

    def unseen(self, tolerance: float) -> np.ndarray:
        """Return which weights (f,) have more than `tolerance` in the unconstrained directions."""
        return np.asarray(np.linalg.norm(self.free, axis=1) > tolerance)

    def with_equation(self, row: np.ndarray, value: float) -> Boundary:
        """Return the boundary after the equation row·θ = value, which must constrain a new direction."""
        seen = self.free.T @ row
        theta = self.theta + self.free @ (seen * ((value - row @ self.theta) / (seen @ seen)))
        # A reflection that maps `seen` to the first axis leaves the other m − 1 axes unconstrained.
        mirror = seen.copy()
        mirror[0] += np.copysign(np.linalg.norm(seen), seen[0])
        mirror /= np.linalg.norm(mirror)
        free = self.free - 2.0 * np.outer(self.free @ mirror, mirror)
        return Boundary(theta, free[:, 1:])


def start_boundary(cell: Cell, x: np.ndarray, normal: np.ndarray) -> tuple[Boundary, float]:
    """Return the boundary given its unit normal at one point x, and how far normal and point disagree with the cell.

    The equations are Φᵀθ = normal and φ(x)·θ = 0.
    """
    phi = cell.Phi @ x + cell.phi0
    # A distant point has no more weight than the normal.
    weight = 1.0 / max(1.0, float(np.linalg.norm(phi)))
    rows = np.vstack([cell.Phi.T, weight * phi])
    values = np.append(normal, 0.0)
    U, s, Vt = np.linalg.svd(rows, full_matrices=True)
    rank = int(np.count_nonzero(s > 1e-9 * s[0]))
    theta = Vt[:rank].T @ ((U[:, :rank].T @ values) / s[:rank])
    return Boundary(theta, Vt[rank:].T), float(np.linalg.norm(rows @ theta - values))
