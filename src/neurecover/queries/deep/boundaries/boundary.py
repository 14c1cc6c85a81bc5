"""The knowledge so far of the boundary θ·φ(x) = 0 of one unit above the known layers.

Every answer gives linear equations for θ (f,), each with a standard error. They are stored as square-root information,

    R θ = z + ε,   ε ~ N(0, I):    θ̂ = R⁻¹ z,    Cov θ = R⁻¹ R⁻ᵀ,

beginning with R = I / wide. The length of θ has no meaning; it is fixed by a normal of length one at the first point.
So the errors of a row are those orthogonal to θ̂.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from neurecover.queries.deep.cells import Cell
from neurecover.queries.deep.options import DeepOptions


def triangle(A: np.ndarray) -> np.ndarray:
    """Return the upper triangular R of A = Q R."""
    return np.asarray(np.linalg.qr(A, mode="r"))


@dataclass(frozen=True, eq=False)
class Boundary:
    """R (f, f), upper triangular, and z (f,); `jump` is the length of the gradient's jump at the boundary."""

    R: np.ndarray
    z: np.ndarray
    jump: float
    options: DeepOptions

    @classmethod
    def unknown(cls, f: int, jump: float, options: DeepOptions) -> Boundary:
        """Return a boundary about which nothing is known."""
        return cls(np.eye(f) / options.wide, np.zeros(f), jump, options)

    @cached_property
    def theta(self) -> np.ndarray:
        """θ̂ (f,)."""
        return np.asarray(solve_triangular(self.R, self.z))

    @cached_property
    def root(self) -> np.ndarray:
        """The factor K (f, f) of the covariance K Kᵀ of θ."""
        return np.asarray(solve_triangular(self.R, np.eye(len(self.z))))

    @cached_property
    def errors(self) -> np.ndarray:
        """The standard errors (f,) of the weights across θ̂, relative to its length."""
        size = max(float(np.linalg.norm(self.theta)), 1e-300)
        along = self.theta / size
        across = self.root - np.outer(along, along @ self.root)
        return np.asarray(np.linalg.norm(across, axis=1) / size)

    def error(self, unseen: np.ndarray) -> float:
        """Return the standard error of the row without its unseen weights, relative to its length."""
        return float(np.linalg.norm(self.errors[~unseen]))

    @cached_property
    def unseen(self) -> np.ndarray:
        """A mask (f,) of the weights that the equations do not determine; the bias follows from any one point."""
        mask = np.asarray(np.linalg.norm(self.root, axis=1) > self.options.unseen)
        mask[-1] = False
        return mask

    @property
    def complete(self) -> bool:
        """Whether every weight is known."""
        return not self.unseen.any()

    def normal(self, cell: Cell) -> np.ndarray:
        """Return the gradient of θ·φ in a cell where the boundary is known."""
        return cell.Phi.T @ self.theta

    def spread(self, phi: np.ndarray) -> np.ndarray:
        """Return the standard errors (n,) of φ·θ for rows φ (n, f)."""
        return np.asarray(np.linalg.norm(phi @ self.root, axis=1))

    def knows(self, phi: np.ndarray) -> bool:
        """Return whether the equations determine φ·θ, for a change φ (f,) of the features."""
        return float(self.spread(phi[None])[0]) < self.options.known

    def with_equations(self, rows: np.ndarray, values: np.ndarray, sigma: np.ndarray) -> Boundary:
        """Return the boundary after the equations rows (n, f)·θ = values (n,), with standard errors sigma (n,)."""
        f = len(self.z)
        new = np.column_stack([rows, values]) / sigma[:, None]
        T = triangle(np.vstack([np.column_stack([self.R, self.z]), new]))
        return replace(self, R=T[:f, :f], z=T[:f, f])

    def loosened(self, weaken: np.ndarray, sure: float) -> Boundary:
        """Return the boundary with the information on every weight weakened by its factor (f,), and the scale kept."""
        R, size = self.R * weaken, float(np.linalg.norm(self.theta))
        return replace(self, R=R, z=R @ self.theta).with_equations(
            self.theta[None] / size, np.array([size]), np.array([sure * size])
        )

    def merged(self, other: Boundary, factor: float) -> Boundary:
        """Return the boundary known from both sets of equations; the other's θ is `factor` times this one's."""
        f = len(self.z)
        ours, theirs = np.column_stack([self.R, self.z]), np.column_stack([factor * other.R, other.z])
        T = triangle(np.vstack([ours, theirs]))
        return replace(self, R=T[:f, :f], z=T[:f, f])

    def forgetting(self, mask: np.ndarray) -> Boundary:
        """Return the boundary without all information on the weights in a mask (f,)."""
        K = np.hstack([self.root, self.options.wide * np.eye(len(self.z))[:, mask]])
        R = triangle(np.linalg.inv(triangle(K.T).T))
        return replace(self, R=R, z=R @ self.theta)

    def mapped(self, T: np.ndarray, least: float) -> Boundary:
        """Return the boundary of θ' = T θ, with T (g, f); `least` is a standard error that every weight has."""
        K = T @ self.root
        root = triangle(np.hstack([K, least * np.eye(len(T))]).T)  # Cov = rootᵀ root
        R = triangle(np.linalg.inv(root.T))
        return replace(self, R=R, z=R @ (T @ self.theta))


def start_boundary(
    cell: Cell, x: np.ndarray, normal: np.ndarray, jump: float, sigma: float, place: float, options: DeepOptions
) -> tuple[Boundary, float]:
    """Return the boundary through the point x with a given unit normal, and how badly the cell's equations contradict
    it.

    The equations are Φᵀθ = normal and φ(x)·θ = 0, with standard errors `sigma` of the normal's components and `place`
    of the point. The contradiction is the root mean square of the residuals over these errors.
    """
    phi = cell.Phi @ x + cell.phi0
    # A distant point has no more weight than the normal.
    size = max(1.0, float(np.linalg.norm(phi)))
    rows, values = np.vstack([cell.Phi.T, phi / size]), np.append(normal, 0.0)
    sigmas = np.append(np.full(len(normal), sigma), max(place, options.least_sigma) / size)
    boundary = Boundary.unknown(len(phi), jump, options).with_equations(rows, values, sigmas)
    return boundary, float(np.sqrt(np.mean(((rows @ boundary.theta - values) / sigmas) ** 2)))
