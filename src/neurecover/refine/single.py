"""The equations (S + λD) δ = g with products in single precision, for samples that are held in memory.

With the gates G = act′(X̃Vᵀ) kept from the last double-precision pass, the forward part of a product is
u = (G ∘ X̃δᵀ) Aᵀ, its projection ū = (I − P) u, and its backward part (G ∘ ūA)ᵀ X̃: two matrix products of n·m·D each.
P projects onto the features, first the affine ones X_a (columns of X̃), then what is left of the hidden units:

    P u = X_a (X_aᵀX_a)⁻¹ X_aᵀu + Q Qᵀu,    Q = (H − X_a B) T,    B = (X_aᵀX_a)⁻¹ X_aᵀH,    Tᵀ (HᵀH − HᵀX_a B) T = I.

T leaves out combinations of units that single precision cannot tell from zero: duplicates, of which a student that is
wider than its teacher has many at the end. Along them the readout stays where it is, which is still a step downhill.

The preconditioner is a Kronecker product, for the blocks of S are nearly so where gates and inputs are independent:

    S ≈ (AᵀA ∘ (E[ggᵀ] − ρ E[g] E[g]ᵀ)) ⊗ E[x̃x̃ᵀ].

Of g_j x̃ the projection takes away E[g_j] x̃ where the features explain x̃: all of it with an affine part, and without one
the share ρ that the hidden units explain by themselves.

With weights w of the samples the gates, X_a in the projection and Q have √w, and the residual in the gradient w.

The residual, the gradient g and the readout are computed in double precision, so the end of a descent is as accurate
as a double-precision one; only the way there is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from neurecover.models import Student
from neurecover.refine.held import Held
from neurecover.refine.unit_blocks import UnitBlocks
from neurecover.solve import ConjugateSystem, Deadline
from neurecover.solve.conjugate import Operator
from neurecover.statistics.unit_sums import forward

RESOLVED = 1e-6  # squared length, relative to its parts, of a combination of units that single precision resolves
FLOOR = 1e-4  # of the preconditioner's eigenvalues, relative to the diagonal: below, independence is no guide
MAX_PRODUCTS = 60
ROWS = 1_024  # per block: what is multiplied stays in the cache


@dataclass(frozen=True)
class _Projection:
    """T (m, r), B (a, m) and the factor of X_aᵀX_a; a is the number of affine features."""

    T: np.ndarray
    B: np.ndarray
    inverse: np.ndarray
    a: int

    @classmethod
    def of(cls, held: Held, student: Student, hh: np.ndarray) -> _Projection:
        m = student.n_hidden
        a = len(hh) - m
        units, cross, affine = hh[:m, :m], hh[m:, :m], hh[m:, m:]
        inverse = held.inverse_moments if a == student.V.shape[1] else np.linalg.inv(affine)
        B = inverse @ cross
        left = units - cross.T @ B
        scale = np.sqrt(np.diag(units))
        scale = np.where(scale > 0.0, scale, 1.0)
        values, vectors = np.linalg.eigh(left / scale / scale[:, None])
        kept = values > RESOLVED
        return cls(vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None], B, inverse, a)


class SingleProducts:
    """S, its gradient and its preconditioner at a student whose readout is the best for its hidden units.

    `hh` is Σ h hᵀ, (q, q); `diagonal` (m, D) is D.
    """

    def __init__(self, held: Held, student: Student, hh: np.ndarray) -> None:
        self.held, self.student = held, student
        self.projection = _Projection.of(held, student, hh)
        self._linearise()
        moments = held.second_moments / len(held.inputs)
        weights = student.A.T @ student.A
        gram = (self.gates.T @ self.gates).astype(np.float64)
        self._unit_scale = np.diag(weights) * np.diag(gram)
        self._unit_scale = np.maximum(self._unit_scale, 1e-8 * self._unit_scale.max(initial=1e-300))
        root = held.root_weight
        on = (self.gates if root is None else root * self.gates).sum(axis=0, dtype=np.float64)
        gram -= self._explained() * np.outer(on, on) / len(self.gates)
        self._kronecker = weights * gram
        self.own_weights = np.diag(weights)
        if student.n_outputs == 1:
            self.gates *= self._A[0]
            self.own_weights = np.ones_like(self.own_weights)
        self.diagonal = np.outer(self._unit_scale, np.diag(moments))

    def _explained(self) -> float:
        """ρ, the share of the inputs that the features explain: the mean over directions of equal spread."""
        D, a = self.student.V.shape[1], self.projection.a
        if a == D:
            return 1.0
        along = np.zeros((self.basis.shape[1], D))
        for rows in self.row_blocks():
            X, root = self.held.inputs[rows], self.held.root_weight
            along += self.basis[rows].T @ (X if root is None else root[rows] * X)
        return min((float(np.sum((along @ self.held.inverse_root) ** 2)) / len(self.gates) + a) / D, 1.0)

    def readout_of(self, u: np.ndarray) -> np.ndarray:
        """The readout (q, p) that fits u (n, p) best."""
        T, B, inverse, _ = vars(self.projection).values()
        along_affine, along_units = self._along_features(u)
        units = T @ along_units.astype(np.float64)
        return np.vstack([units, inverse @ along_affine.astype(np.float64) - B @ units])

    def _linearise(self) -> None:
        """One double-precision pass: the gradient, and in single precision the gates and Q."""
        student, held, P = self.student, self.held, self.projection
        n, (m, D) = len(held.inputs), student.V.shape
        self.gates = np.empty((n, m), dtype=np.float32)
        self.basis = np.empty((n, P.T.shape[1]), dtype=np.float32)
        self.gradient = np.zeros((m, D))
        B, T = P.B.astype(np.float32), P.T.astype(np.float32)
        self.affine = held.inputs[:, D - P.a :]
        root = held.root_weight
        if root is not None:
            self.affine = root * self.affine
        start = 0
        for X, Y, weight in held.weighted_blocks(ROWS):
            rows = slice(start, start + len(X))
            start = rows.stop
            Z, affine = forward(student, X)
            H = student.activation(Z)
            R = Y - H @ student.readout[:m] - affine
            gates = student.activation.derivative(Z)
            self.gates[rows] = gates
            rest = H.astype(np.float32)
            rest -= held.inputs[rows, D - P.a :] @ B
            if root is not None and weight is not None:
                self.gates[rows] *= root[rows]
                rest *= root[rows]
                R *= weight[:, None]
            np.matmul(rest, T, out=self.basis[rows])
            back = gates * (R @ student.A)
            self.gradient[:, : X.shape[1]] += back.T @ X
            if student.bias:
                self.gradient[:, -1] += back.sum(axis=0)
        self._A = student.A.astype(np.float32)
        self._inverse_affine = P.inverse.astype(np.float32)

    def forward(self, step: np.ndarray) -> np.ndarray:
        """u (n, p), by how much outputs change for a small step of the hidden weights (m, D)."""
        u = self._like_outputs()
        for rows in self.row_blocks():
            self._move(u, rows, step)
        return u

    def unexplained(self, u: np.ndarray) -> np.ndarray:
        """(I − P) u (n, p): what no readout explains."""
        fit, left = self._fit(self._along_features(u)), np.empty_like(u)
        for rows in self.row_blocks():
            left[rows] = self._left(u, rows, fit)
        return left

    def backward(self, u: np.ndarray) -> np.ndarray:
        """The transpose of `forward`, (m, D)."""
        total = np.zeros(self.student.V.shape, dtype=np.float32)
        for rows in self.row_blocks():
            total += self._back(u[rows], rows)
        return total

    def product(self, v: np.ndarray) -> np.ndarray:
        """S v, flat: forward, unexplained and backward in two passes over the inputs, a block while it is near."""
        step, u, along = v.reshape(self.student.V.shape), self._like_outputs(), self._nothing_along()
        for rows in self.row_blocks():
            self._move(u, rows, step)
            self._add_along(along, u, rows)
        fit, total = self._fit(along), np.zeros(self.student.V.shape, dtype=np.float32)
        for rows in self.row_blocks():
            total += self._back(self._left(u, rows, fit), rows)
        return total.ravel()

    def _like_outputs(self) -> np.ndarray:
        return np.empty((len(self.gates), self.student.n_outputs), dtype=np.float32)

    def _move(self, u: np.ndarray, rows: slice, step: np.ndarray) -> None:
        moved = self.held.inputs[rows] @ step.T
        if u.shape[1] == 1:
            u[rows, 0] = np.einsum("nm,nm->n", moved, self.gates[rows])
        else:
            moved *= self.gates[rows]
            np.matmul(moved, self._A.T, out=u[rows])

    def _fit(self, along: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(X_aᵀX_a)⁻¹ X_aᵀu and Qᵀu, with which P u = X_a (…) + Q (…)."""
        return self._inverse_affine @ along[0], along[1]

    def _left(self, u: np.ndarray, rows: slice, fit: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        affine, units = fit
        return u[rows] - self.affine[rows] @ affine - self.basis[rows] @ units

    def _back(self, u: np.ndarray, rows: slice) -> np.ndarray:
        gates = self.gates[rows]
        back = gates * u if u.shape[1] == 1 else (u @ self._A) * gates
        return back.T @ self.held.inputs[rows]

    def _along_features(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """X_aᵀu and Qᵀu."""
        along = self._nothing_along()
        for rows in self.row_blocks():
            self._add_along(along, u, rows)
        return along

    def _nothing_along(self) -> tuple[np.ndarray, np.ndarray]:
        p = self.student.n_outputs
        return np.zeros((self.projection.a, p), dtype=np.float32), np.zeros((self.basis.shape[1], p), dtype=np.float32)

    def _add_along(self, along: tuple[np.ndarray, np.ndarray], u: np.ndarray, rows: slice) -> None:
        for total, features in zip(along, (self.affine, self.basis)):
            total += (u[rows].T @ features[rows]).T  # the shape in which the long side is copied least

    def row_blocks(self) -> Iterator[slice]:
        """The samples, as many at a time as stay in the cache."""
        return (slice(start, start + ROWS) for start in range(0, len(self.gates), ROWS))

    def preconditioner(self, damping: float) -> Operator:
        """C⁻¹ for a C near S + λD."""
        units, _ = self.preconditioner_root(damping)
        left, right = (units @ units.T).astype(np.float32), self.held.inverse
        return lambda v: (left @ v.reshape(self.student.V.shape) @ right).ravel()

    def unit_correlations(self) -> np.ndarray:
        """The factor of the units, scaled to a unit diagonal."""
        scale = np.sqrt(np.maximum(np.diag(self._kronecker), 1e-300))
        return self._kronecker / scale / scale[:, None]

    def preconditioner_root(self, damping: float) -> tuple[np.ndarray, np.ndarray]:
        """U (m, m) and R (D, D) such that the preconditioner is C⁻¹ = UUᵀ ⊗ RRᵀ."""
        root = 1.0 / np.sqrt(self._unit_scale)
        scaled = self._kronecker * root * root[:, None]
        values, vectors = np.linalg.eigh(scaled + damping * np.eye(len(root)))
        units = root[:, None] * vectors / np.sqrt(np.maximum(values, max(FLOOR, damping)))
        return units, self.held.inverse_root


class SingleSystem:
    """The step's equations, solved by conjugate gradients to `tolerance`.

    They refer to the products, and nothing refers back: what a step has taken up is free as soon as it is made.
    Where the Kronecker product leads nowhere, `blocks` of the units take its place, for the next steps too.
    """

    def __init__(
        self,
        held: Held,
        student: Student,
        hh: np.ndarray,
        tolerance: float,
        deadline: Deadline,
        blocks: UnitBlocks | None = None,
    ) -> None:
        self.products, self.blocks = SingleProducts(held, student, hh), blocks
        self._fresh, self._deadline = False, deadline
        self.equations = ConjugateSystem(
            self.products.product,
            self.products.gradient.ravel(),
            self.products.diagonal.ravel(),
            self.products.preconditioner if blocks is None else partial(blocks.preconditioner, self.products),
            tolerance=tolerance,
            max_products=MAX_PRODUCTS,
            deadline=deadline,
            dtype=np.float32,
        )

    def solve(self, damping: float) -> np.ndarray | None:
        step = self.equations.solve(damping)
        hard = self.equations.cut_short and not self._fresh
        if hard and UnitBlocks.possible(self.products, self._deadline.seconds_left):
            self.blocks, self._fresh = UnitBlocks(self.products), True
            self.equations.preconditioner = partial(self.blocks.preconditioner, self.products)
            step = self.equations.solve(damping)  # from where it ended
        return step

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        return self.equations.predicted_decrease(step, damping)

    def follow(self, step: np.ndarray) -> np.ndarray:
        """The readout's part of the joint Gauss–Newton step whose hidden part is `step` (m, D)."""
        size = float(np.linalg.norm(step)) or 1.0
        return -size * self.products.readout_of(self.products.forward((step / size).astype(np.float32)))
