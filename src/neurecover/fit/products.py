"""S as an operator, for students with too many weights to form it: products in single precision at a point.

    S v = Jᵀ(u − P u),    u = J v,        P u = X (XᵀX)⁻¹Xᵀu + Q Qᵀu,        Q = (H − X B) T,    B = (XᵀX)⁻¹XᵀH,

X being the columns of c₀ that the readout reads and H those of hidden units. T leaves out combinations of units that
single precision cannot tell from zero: duplicates, of which a student wider than its teacher has many at the end. Along
them the readout stays where it is, which is still a step downhill. Gates and values are those of the point.

The preconditioner of a layer is a Kronecker product, exact where gates and inputs are independent,

    (Σ u uᵀ − n ū ūᵀ) ⊗ E[c cᵀ],        u = ∂y/∂z,

with the mean taken away where there are skips, because then the readout explains ū c. Where conjugate gradients run out
of products the units' own blocks take over (`UnitBlocks`). The gradient is double, so that the end of a descent is as
accurate as a double-precision one; only the way there is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from neurecover.fit.point import Point
from neurecover.solve import ConjugateSystem, Readout, damping_diagonal
from neurecover.solve.conjugate import Operator

ROWS = 1_024  # at a time, so that what is multiplied stays in the cache: speed alone


class Products:
    """S at a point, its diagonal and its preconditioner.

    T may be as large as `single`^(−½), so features in single precision would leave 1e-4 in place of zero. Q is
    therefore formed from features in double precision, and contains no direction that no sample shows.
    """

    def __init__(self, point: Point) -> None:
        self.point, samples, self.weigh = point, point.samples, point.samples.weigh
        self.student = point.student.cast(np.float32)
        self.values = point.values.cast(samples.single)
        self._project()
        self._units = [self._unit_factor(layer) for layer in range(self.student.depth)]
        self.diagonal = np.concatenate(
            [
                np.outer(scale, damping_diagonal(moments.diagonal(), point.options.single)).ravel()
                for moments, (_, scale) in zip(self._moments, self._units)
            ]
        )

    def rows(self) -> Iterator[slice]:
        """Yield blocks of samples that fit in the cache."""
        n = len(self.values.F)
        return (slice(start, start + ROWS) for start in range(0, n, ROWS))

    def _project(self) -> None:
        """Form Q and (XᵀX)⁻¹."""
        base, hidden = self.student.reads(self.student.depth)
        gram = self.point.gram
        inverse = Readout(gram[:base, :base]).solve(np.eye(base)) if base else gram[:0, :0]
        B = inverse @ gram[:base, base:]
        left = gram[base:, base:] - gram[base:, :base] @ B
        scale = np.sqrt(gram.diagonal()[base:])
        scale = np.where(scale > 0.0, scale, 1.0)
        sizes, vectors = np.linalg.eigh(left / scale / scale[:, None])
        kept = sizes > self.point.options.single
        T = vectors[:, kept] / np.sqrt(sizes[kept]) / scale[:, None]
        self.base, self.inverse, self._T, self._B = base, inverse.astype(np.float32), T, B
        self.Q = np.empty((len(self.values.F), T.shape[1]), dtype=np.float32)
        values = self.point.values
        for rows in self.rows():
            rest = values.H[rows, hidden] - values.F[rows, :base] @ B
            self.Q[rows] = self.weigh(rest, rows) @ T

    def by_outputs(self) -> Iterator[list[np.ndarray]]:
        """Yield u_l of every layer, √w included, output by output."""
        return (self.student.backward(self.values, G) for G in self.point.samples.seeds(np.float32))

    def _unit_factor(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the units' factor of the Kronecker product of a layer (m, m), and the scale of its diagonal (m,)."""
        m = self.student.widths[layer]
        second, means = np.zeros((m, m)), np.zeros((m, m))
        for u in (by_layer[layer] for by_layer in self.by_outputs()):
            mean = u.mean(axis=0, dtype=np.float64)
            second, means = second + (u.T @ u).astype(np.float64), means + len(u) * np.outer(mean, mean)
        factor = second - means if self.student.skips else second
        scale = second.diagonal()
        return factor, np.maximum(scale, self.point.options.unused * scale.max(initial=1e-300))

    @cached_property
    def _moments(self) -> list[np.ndarray]:
        """E[c cᵀ] of what every layer reads."""
        n, moments = len(self.values.F), [self.point.samples.moments / len(self.values.F)]
        for layer in range(1, self.student.depth):
            base, below = self.student.reads(layer)
            width = base + below.stop - below.start
            total = np.zeros((width, width))
            for rows in self.rows():
                c = self.weigh(np.hstack([self.values.F[rows, :base], self.values.H[rows, below]]), rows)
                total += c.T @ c
            moments.append(total / n)
        return moments

    def read_root(self, layer: int) -> np.ndarray:
        """Return R with RRᵀ = E[c cᵀ]⁻¹ of what a layer reads, but for a small ridge."""
        if layer == 0:
            return self.point.samples.inverse_root
        moments, single = self._moments[layer], self.point.options.single
        return np.linalg.inv(
            np.linalg.cholesky(moments + single * np.diag(damping_diagonal(moments.diagonal(), single)))
        ).T

    @cached_property
    def _inverse_moments(self) -> list[np.ndarray]:
        roots = map(self.read_root, range(self.student.depth))
        return [(root @ root.T).astype(np.float32) for root in roots]

    def product(self, v: np.ndarray) -> np.ndarray:
        """Return S v in three passes over the samples."""
        return self.backward(self.unexplained(self.forward(v)))

    def forward(self, step: np.ndarray) -> np.ndarray:
        """Return u (n, p), the change of the outputs for a small step of the hidden weights, given in any shape."""
        parts = self.student.split(step.ravel())
        return np.vstack(
            [self.weigh(self.student.tangent(self.values.rows(rows), parts), rows) for rows in self.rows()]
        )

    def backward(self, u: np.ndarray) -> np.ndarray:
        """Return the transpose of `forward`, flat."""
        total = np.zeros(self.student.size, dtype=np.float32)
        for rows in self.rows():
            total += self.student.gradient(self.values.rows(rows), self.weigh(u[rows], rows))
        return total

    def _along(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Xᵀu and Qᵀu."""
        weighed = self.weigh(u)  # in the shape in which the long side is copied least
        return (weighed.T @ self.values.F[:, : self.base]).T, (u.T @ self.Q).T

    def unexplained(self, u: np.ndarray) -> np.ndarray:
        """Return (I − P) u (n, p): what no readout explains."""
        base, units = self._along(u)
        return u - self.weigh(self.values.F[:, : self.base] @ (self.inverse @ base)) - self.Q @ units

    def readout_of(self, u: np.ndarray) -> np.ndarray:
        """Return the readout (q, p) that fits u (n, p) best."""
        base, along = self._along(u)
        units = self._T @ along.astype(np.float64)
        return np.vstack([self.inverse.astype(np.float64) @ base.astype(np.float64) - self._B @ units, units])

    def unit_root(self, layer: int, damping: float) -> np.ndarray:
        """Return U (m, m) such that a layer's preconditioner is UUᵀ ⊗ E[c cᵀ]⁻¹."""
        factor, scale = self._units[layer]
        root = 1.0 / np.sqrt(scale)
        values, vectors = np.linalg.eigh(factor * root * root[:, None] + damping * np.eye(len(root)))
        return root[:, None] * vectors / np.sqrt(np.maximum(values, max(self.point.options.floor, damping)))

    def preconditioner(self, damping: float) -> Operator:
        """Return C⁻¹ for a C near S + λD."""
        roots = [self.unit_root(layer, damping) for layer in range(self.student.depth)]
        lefts = [(root @ root.T).astype(np.float32) for root in roots]

        def apply(v: np.ndarray) -> np.ndarray:
            parts = zip(lefts, self.student.split(v), self._inverse_moments)
            return np.concatenate([(left @ part @ right).ravel() for left, part, right in parts])

        return apply

    def unit_correlations(self, layer: int) -> np.ndarray:
        """Return the units' factor of a layer scaled to a unit diagonal."""
        factor, _ = self._units[layer]
        scale = np.sqrt(np.maximum(factor.diagonal(), 1e-300))
        return factor / scale / scale[:, None]


class UnitBlocks:
    """A preconditioner from every unit's own block of S, for inputs that depend on which units are on.

    The Kronecker product takes gates and inputs for independent. Pixels and counts are not: where a unit is on some of
    them hardly vary, and along those conjugate gradients take hundreds of products. A unit's own block shows them,

        B_j = M_j − N_jᵀ M⁻¹ N_j,   M_j = Σ ω_j c cᵀ,   N_j = ‖A_j‖ Σ g_j c cᵀ,   M = Σ c cᵀ,   ω_j = Σ_o (∂y_o/∂z_j)²,

    the second term for one layer where the readout reads c. With L_j L_jᵀ = B_j + λD_j, and K the units' factor of the
    Kronecker product scaled to a unit diagonal, C = L (K ⊗ 1) Lᵀ with L = diag(L_1, …, L_m) is the Kronecker product
    again where all B_j are in proportion. Blocks cost as much as some forty products, twice that with an affine part
    (measured at D = 785), and change little from step to step, so they are kept.
    """

    def __init__(self, products: Products) -> None:
        student = products.student
        self.blocks = [np.zeros((*V.shape, V.shape[1])) for V in student.V]
        squares = [np.zeros((len(products.values.F), m), dtype=np.float32) for m in student.widths]
        for by_layer in products.by_outputs():
            for total, u in zip(squares, by_layer):
                total += u * u
        for layer, omega in enumerate(squares):
            self._add(products, layer, omega)
        if student.depth == 1 and products.base == student.n_base:
            self._take_explained(products, np.sum(student.top.astype(np.float64) ** 2, axis=1))

    def _add(self, products: Products, layer: int, omega: np.ndarray) -> None:
        base, below = products.student.reads(layer)
        for rows in products.rows():
            c = products.values.F[rows, :base]
            c = np.hstack([c, products.values.H[rows, below]]) if layer else c
            for block, weight in zip(self.blocks[layer], np.sqrt(omega[rows]).T):
                seen = weight != 0.0
                part = weight[seen, None] * c[seen]
                block += part.T @ part

    def _take_explained(self, products: Products, size: np.ndarray) -> None:
        """Subtract from every unit's block what the readout explains."""
        inverse, F = np.linalg.inv(products.point.samples.moments), products.values.F
        gates = products.weigh(products.values.gates[0])
        for block, gate, weight in zip(self.blocks[0], gates.T, size):
            cross = np.zeros_like(block)
            for rows in products.rows():
                part = gate[rows, None] * F[rows]
                cross += products.weigh(F[rows], rows).T @ part
            block -= weight * (cross.T @ inverse @ cross)

    def preconditioner(self, products: Products, damping: float) -> Operator:
        """Return C⁻¹ for these products and the damping of the step."""
        diagonals, parts, options = products.student.split(products.diagonal), [], products.point.options
        for layer, (blocks, diagonal) in enumerate(zip(self.blocks, diagonals)):
            ridge = max(damping, options.single) * diagonal
            damped = [Readout(block + np.diag(extra)) for block, extra in zip(blocks, ridge)]
            inverse = np.array([one.whiten(np.eye(len(one.factor))) for one in damped], dtype=np.float32)
            values, vectors = np.linalg.eigh(products.unit_correlations(layer))
            parts.append((inverse, (vectors / np.maximum(values, options.floor) @ vectors.T).astype(np.float32)))

        def apply(v: np.ndarray) -> np.ndarray:
            out = []
            for (inverse, between), part in zip(parts, products.student.split(v)):
                scaled = np.matmul(inverse, part[:, :, None])[:, :, 0]
                out.append(np.matmul(inverse.transpose(0, 2, 1), (between @ scaled)[:, :, None]).ravel())
            return np.concatenate(out)

        return apply


class ProductSystem:
    """The equations of the step at a point, solved by conjugate gradients to its tolerance."""

    def __init__(self, point: Point) -> None:
        self.products, self.point, self._fresh = Products(point), point, False
        blocks = point.blocks
        self.equations = ConjugateSystem(
            self.products.product,
            point.gradient,
            self.products.diagonal,
            self.products.preconditioner if blocks is None else partial(blocks.preconditioner, self.products),
            tolerance=point.tolerance,
            max_products=point.options.products,
            deadline=point.deadline,
            dtype=np.float32,
        )

    def solve(self, damping: float) -> np.ndarray | None:
        """Return the step. If the Kronecker preconditioner fails, use the blocks of units, also for later steps."""
        step = self.equations.solve(damping)
        needed = sum(8 * V.shape[0] * V.shape[1] ** 2 for V in self.products.student.V)
        if self.equations.cut_short and not self._fresh and needed <= self.point.options.block_bytes:
            self.point.blocks, self._fresh = UnitBlocks(self.products), True
            self.equations.preconditioner = partial(self.point.blocks.preconditioner, self.products)
            step = self.equations.solve(damping)  # from where it ended
        return step

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """Return the decrease of Σr² that the linear model predicts."""
        return self.equations.predicted_decrease(step, damping)
