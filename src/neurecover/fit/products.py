"""S as an operator, for students with too many weights to form it: products in single precision at a point.

    S v = Jᵀ(u − P u),    u = J v,        P u = X (XᵀX)⁻¹Xᵀu + Q Qᵀu,        Q = (H − X B) T,    B = (XᵀX)⁻¹XᵀH,

X being the columns of c₀ that the readout reads and H those of hidden units. T leaves out combinations of units that
single precision cannot tell from zero: duplicates, of which a student wider than its teacher has many at the end. Along
them the readout stays where it is, which is still a step downhill. Gates and values are those of the point.

The preconditioner of a layer is a Kronecker product, exact where gates and inputs are independent,

    (Σ u uᵀ − ρ n ū ūᵀ) ⊗ E[c cᵀ],        u = ∂y/∂z,

with the mean taken away because the readout explains ū c as far as it reads c: the share ρ of it. Where conjugate
gradients run out of products the units' own blocks take over (`unit_blocks`). The gradient is double, so that the end
of a descent is as accurate as a double-precision one; only the way there is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from neurecover.fit.point import Point, Readout
from neurecover.fit.unit_blocks import UnitBlocks
from neurecover.solve import ConjugateSystem
from neurecover.solve.conjugate import Operator

RESOLVED = 1e-6  # squared length, relative to its parts, of a combination of units that single precision resolves
FLOOR = 1e-4  # of the preconditioner's eigenvalues, relative to the diagonal: below, independence is no guide
ROWS = 1_024  # at a time: what is multiplied stays in the cache


class Products:
    """S at a point, its diagonal and its preconditioner.

    T is as large as RESOLVED^(−½), and of features in single precision leaves 1e-4 where there is nothing; with
    `double` Q is formed from those in double precision, so that it shows no direction that no sample shows.
    """

    def __init__(self, point: Point, double: bool = False) -> None:
        self.point, samples, self._double = point, point.samples, double
        self.student = point.student.cast(np.float32)
        self.values = point.values.cast(samples.single)
        self.root = None if samples.root is None else samples.root.astype(np.float32)
        self._project()
        self._units = [self._unit_factor(layer) for layer in range(self.student.depth)]
        self.diagonal = np.concatenate(
            [np.outer(scale, _sizes(self._moments(layer))).ravel() for layer, (_, scale) in enumerate(self._units)]
        )

    def rows(self) -> Iterator[slice]:
        """Yield the samples, as many at a time as stay in the cache."""
        n = len(self.values.F)
        return (slice(start, start + ROWS) for start in range(0, n, ROWS))

    def _weigh(self, values: np.ndarray, rows: slice) -> np.ndarray:
        return values if self.root is None else self.root[rows] * values

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
        kept = sizes > RESOLVED
        T = vectors[:, kept] / np.sqrt(sizes[kept]) / scale[:, None]
        self.base, self.inverse, self._T, self._B = base, inverse.astype(np.float32), T, B
        if not self._double:
            T, B = T.astype(np.float32), B.astype(np.float32)
        self.Q = np.empty((len(self.values.F), T.shape[1]), dtype=np.float32)
        values = self.point.values if self._double else self.values
        for rows in self.rows():
            rest = values.H[rows, hidden] - values.F[rows, :base] @ B
            self.Q[rows] = self._weigh(rest, rows) @ T

    @cached_property
    def explained(self) -> float:
        """ρ, the share of c₀ that the features explain: the mean over directions of equal spread."""
        n, D = self.values.F.shape
        if self.base == D:
            return 1.0
        along = np.zeros((self.Q.shape[1], D))
        for rows in self.rows():
            along += self.Q[rows].T @ self._weigh(self.values.F[rows], rows)
        return min((float(np.sum((along @ self.point.samples.inverse_root) ** 2)) / n + self.base) / D, 1.0)

    def by_outputs(self) -> Iterator[list[np.ndarray]]:
        """Yield u_l of every layer, √w included, output by output."""
        n, p = len(self.values.F), self.student.n_outputs
        for output in range(p):
            G = np.zeros((n, p), dtype=np.float32)
            G[:, output] = 1.0 if self.root is None else self.root[:, 0]
            yield self.student.backward(self.values, G)

    def _unit_factor(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the units' factor of the Kronecker product of a layer (m, m), and the scale of its diagonal (m,)."""
        n = len(self.values.F)
        if self.student.depth == 1:
            gates, top = self.values.gates[0], self.point.student.top
            gates = gates if self.root is None else self.root * gates
            weights, gram = top @ top.T, (gates.T @ gates).astype(np.float64)
            mean = (gates if self.root is None else self.root * gates).mean(axis=0, dtype=np.float64)
            second = weights * gram
            factor = second - self.explained * weights * (n * np.outer(mean, mean))
        else:
            m = self.student.widths[layer]
            second, means = np.zeros((m, m)), np.zeros((m, m))
            for u in (by_layer[layer] for by_layer in self.by_outputs()):
                mean = u.mean(axis=0, dtype=np.float64)
                second, means = second + (u.T @ u).astype(np.float64), means + n * np.outer(mean, mean)
            factor = second - means if self.student.skips else second
        scale = second.diagonal()
        return factor, np.maximum(scale, 1e-8 * scale.max(initial=1e-300))

    def _moments(self, layer: int) -> np.ndarray:
        """Return E[c cᵀ] of what a layer reads."""
        return self._read_moments[layer]

    @cached_property
    def _read_moments(self) -> list[np.ndarray]:
        n, moments = len(self.values.F), [self.point.samples.moments / len(self.values.F)]
        for layer in range(1, self.student.depth):
            base, below = self.student.reads(layer)
            width = base + below.stop - below.start
            total = np.zeros((width, width))
            for rows in self.rows():
                c = self._weigh(np.hstack([self.values.F[rows, :base], self.values.H[rows, below]]), rows)
                total += c.T @ c
            moments.append(total / n)
        return moments

    def read_root(self, layer: int) -> np.ndarray:
        """Return R with RRᵀ = E[c cᵀ]⁻¹ of what a layer reads, as the preconditioner has it."""
        if layer == 0:
            return self.point.samples.inverse_root
        moments = self._read_moments[layer]
        return np.linalg.inv(np.linalg.cholesky(moments + 1e-6 * np.diag(_sizes(moments)))).T

    @cached_property
    def _inverse_moments(self) -> list[np.ndarray]:
        root = self.point.samples.inverse_root
        above = self._read_moments[1:]
        inverses = [root @ root.T, *(np.linalg.inv(one + 1e-6 * np.diag(_sizes(one))) for one in above)]
        return [inverse.astype(np.float32) for inverse in inverses]

    def product(self, v: np.ndarray) -> np.ndarray:
        """Return S v in two passes over the samples."""
        u = np.empty((len(self.values.F), self.student.n_outputs), dtype=np.float32)
        along, step = self._nothing_along(), self.student.split(v)
        for rows in self.rows():
            u[rows] = self._weigh(self.student.tangent(self.values.rows(rows), step), rows)
            self._add_along(along, u, rows)
        fit, total = (self.inverse @ along[0], along[1]), np.zeros(self.student.size, dtype=np.float32)
        for rows in self.rows():
            total += self.student.gradient(self.values.rows(rows), self._weigh(self._left(u, rows, fit), rows))
        return total

    def _nothing_along(self) -> tuple[np.ndarray, np.ndarray]:
        p = self.student.n_outputs
        return np.zeros((self.base, p), dtype=np.float32), np.zeros((self.Q.shape[1], p), dtype=np.float32)

    def _add_along(self, along: tuple[np.ndarray, np.ndarray], u: np.ndarray, rows: slice) -> None:
        base, units = along  # in the shape in which the long side is copied least
        base += (self._weigh(u[rows], rows).T @ self.values.F[rows, : self.base]).T
        units += (u[rows].T @ self.Q[rows]).T

    def _left(self, u: np.ndarray, rows: slice, fit: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return u[rows] - self._weigh(self.values.F[rows, : self.base] @ fit[0], rows) - self.Q[rows] @ fit[1]

    def _along(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Xᵀu and Qᵀu."""
        along = self._nothing_along()
        for rows in self.rows():
            self._add_along(along, u, rows)
        return along

    def forward(self, step: np.ndarray) -> np.ndarray:
        """Return u (n, p), by how much outputs change for a small step of the hidden weights, in any shape."""
        parts = self.student.split(step.ravel())
        return np.vstack(
            [self._weigh(self.student.tangent(self.values.rows(rows), parts), rows) for rows in self.rows()]
        )

    def backward(self, u: np.ndarray) -> np.ndarray:
        """Return the transpose of `forward`, flat."""
        total = np.zeros(self.student.size, dtype=np.float32)
        for rows in self.rows():
            total += self.student.gradient(self.values.rows(rows), self._weigh(u[rows], rows))
        return total

    def unexplained(self, u: np.ndarray) -> np.ndarray:
        """Return (I − P) u (n, p): what no readout explains."""
        base, units = self._along(u)
        fit = self.inverse @ base, units
        return np.vstack([self._left(u, rows, fit) for rows in self.rows()])

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
        return root[:, None] * vectors / np.sqrt(np.maximum(values, max(FLOOR, damping)))

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


def _sizes(moments: np.ndarray) -> np.ndarray:
    """Return E[c²] of every column, more than nothing for a unit below that is never on."""
    sizes = moments.diagonal()
    return np.maximum(sizes, 1e-6 * sizes.max(initial=1e-300))


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
        """Return the step; where the Kronecker product leads nowhere, with blocks, which later steps keep."""
        step = self.equations.solve(damping)
        if self.equations.cut_short and not self._fresh and UnitBlocks.fit_in(self.products):
            self.point.blocks, self._fresh = UnitBlocks(self.products), True
            self.equations.preconditioner = partial(self.point.blocks.preconditioner, self.products)
            step = self.equations.solve(damping)  # from where it ended
        return step

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """Return what the linear model says Σr² falls by."""
        return self.equations.predicted_decrease(step, damping)
