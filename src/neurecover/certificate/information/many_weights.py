"""Test the information of the samples about so many weights that their information matrix cannot be formed.

The readout is eliminated, and the information of the hidden weights of all layers is the S of `fit.products`, known by
its products with vectors. Three things are asked of it by conjugate gradients with the preconditioner C.

*Is every weight seen?* Draw a solution z ~ N(0, C⁻¹) and solve S x = S z. In the coordinates C^½ the error along an
eigenvector with eigenvalue μ of C⁻¹S is q(μ) ẑ, with ẑ ~ N(0, 1) and a polynomial q, q(0) = 1: along an eigenvector
that is not seen, the solution is never found. If the total error has length η, then |q(μ)| < ½ for every μ, except with
the probability 4 η/√(2π) that some ẑ lies within 2 η of zero. Below the known roots θ of q,
q(μ) ≥ 1 − μ Σ 1/θ, so that then

    μ ≥ 1 / (2 Σ 1/θ).

*Could other equations contradict each equation?* and *How large are the errors from rounding?* The least-squares
solution δ = F⁻¹Jᵀε for noise ε ~ N(0, I) has covariance F⁻¹, and its residual (I − H) ε has a mean square of 1 minus
the leverage (`sole_equations`). The solution is refined from the residual until a round explains no more than `settled`
of the squares, because a half-converged solution would not show which equations are always satisfied. A solution that
does not settle is not used. Among a million equations one seems to be satisfied by chance, so such a finding must be
confirmed by one more draw.

S vanishes along the free scales G of the units (`models.free_directions`), which smooth activations do not have; z and
x have no component along them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from neurecover.certificate.options import DEFAULTS, CertificateOptions, ProductOptions
from neurecover.data import Source
from neurecover.fit import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.products import Products
from neurecover.fit.samples import Samples
from neurecover.models import Composite, DeepNetwork, Model, Network, as_student, free_directions_among, free_parameters
from neurecover.solve import afford
from neurecover.solve.conjugate import Operator, Solution, conjugate_gradients


@dataclass(frozen=True, eq=False)
class ManyWeights:
    """`weakest` bounds the eigenvalues of C⁻¹S from below; it is 0 if some direction is not seen.

    `moves` (P, draws) are errors of the `free` parameters of `model` for noise of variance one, in the order of
    `models.parameters`; `n_alone` is the number of equations that no other could contradict.
    """

    model: Network | DeepNetwork
    free: np.ndarray
    n_determinable: int
    weakest: float
    n_alone: int
    moves: np.ndarray
    widen: float

    def largest_errors(self, moved: np.ndarray, variance: float) -> np.ndarray:
        """Return upper bounds on the variances of parameters, from draws of their errors (parameters, draws)."""
        return self.widen**2 * variance * np.mean(moved**2, axis=1)


def can_be_tested(model: Model, samples: Source, options: ProductOptions) -> bool:
    """Return whether the model consists of differentiable layers only, and the samples fit in memory."""
    if isinstance(model, Composite) or not model.activation.differentiable or samples.base.streams:
        return False
    return 4 * samples.count() * (model.n_inputs + 1) <= options.most_bytes


def by_products(
    network: Network | DeepNetwork, bias: bool, samples: Source, options: CertificateOptions = DEFAULTS
) -> ManyWeights:
    """Measure what `ManyWeights` holds of a network, by products with its information alone.

    In single precision the squares of the outputs must not overflow or underflow, so the outputs are divided by `size`;
    the same noise then moves a hidden weight `size` times as far.
    """
    arrays = [network.layers[-1][0], *([] if network.C is None else [network.C])]
    size = max(float(np.abs(array).max(initial=0.0)) for array in arrays) or 1.0
    student, held = as_student(network, bias), Samples.of(samples, bias)
    point = Point(replace(held, Y=held.Y / size), replace(student, theta=student.theta / size), FitOptions())
    free, order = free_parameters(network, bias), student.parameter_order
    G = free_directions_among(network, free)
    moves, n_alone, weakest = np.zeros((len(free), options.draws)), 0, 0.0
    if point.fits_single:
        system = System(Products(point), G[free][np.argsort(order)[: student.size]], options.by_products)
        rng = np.random.default_rng(0)
        weakest = system.weakest(rng)
    left = np.zeros(held.Y.shape)
    for draw in range(options.draws + 1 if weakest > 0.0 else 0):
        if draw == options.draws and n_alone == 0:
            break
        noise = rng.standard_normal(left.shape, dtype=np.float32)
        step = system.fitted(noise, weakest)
        if step is None:
            weakest = 0.0
            break
        rest = noise - system.products.forward(step)
        if draw < options.draws:
            readout = system.products.readout_of(rest)
            moves[:, draw] = np.concatenate([step.astype(np.float64) / size, readout.T.ravel()])[order]
        left += system.products.unexplained(rest) ** 2
        n_alone = int(np.count_nonzero(left < (draw + 1) * options.by_products.alone))
    n_determinable = len(free) - G.shape[1]
    return ManyWeights(network, free, n_determinable, weakest, n_alone, moves, options.by_products.widen)


class System:
    """The matrix S at a point, given by its products, with its free scales G (hidden weights, g) and preconditioner."""

    def __init__(self, products: Products, G: np.ndarray, options: ProductOptions) -> None:
        self.products, self.options, self.G = products, options, G
        self.inverse = np.linalg.pinv(G.T @ G) @ G.T
        self.precondition: Operator = products.preconditioner(options.damping)

    @cached_property
    def roots(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """U and R of every layer; the layer's block of C⁻¹ is UUᵀ ⊗ RRᵀ."""
        products = self.products
        units = [products.unit_root(layer, self.options.damping) for layer in range(products.student.depth)]
        return [(unit, products.read_root(layer)) for layer, unit in enumerate(units)]

    def weakest(self, rng: np.random.Generator) -> float:
        """Return the lower bound on μ, or 0 if a known solution is not found to within η."""
        student, options = self.products.student, self.options
        if self.products.Q.shape[1] < student.widths[-1]:  # single precision cannot distinguish its units
            return 0.0
        drawn = [(U @ rng.standard_normal(V.shape) @ R.T).ravel() for (U, R), V in zip(self.roots, student.V)]
        error, inverses = self._across(np.concatenate(drawn)), 0.0
        for _ in range(options.rounds):
            size = self._length(error)
            if size <= options.found:
                bound = 1.0 / (2.0 * inverses)
                return bound if bound > options.nothing else 0.0
            solution = self._solved(self.products.product(error))
            error = self._across(error - solution.x)
            if self._length(error) > 0.5 * size:
                break
            inverses += float(np.sum(1.0 / np.maximum(solution.ritz_values, 1e-12)))
        return 0.0

    def fitted(self, noise: np.ndarray, weakest: float) -> np.ndarray | None:
        """Return the hidden part of the least-squares solution for `noise` (n, p); None if it does not settle.

        With g = S e the remaining right-hand side, the missing part e would explain e·S e ≤ g·C⁻¹g / μ, which is about
        what the next round explains.
        """
        products, settled = self.products, self.options.settled
        step = np.zeros(products.student.size, dtype=np.float32)
        for _ in range(self.options.rounds):
            g = self._across(products.backward(products.unexplained(noise - products.forward(step))))
            share = settled * weakest / max(float(np.vdot(g, self.precondition(g))), 1e-300)
            if share >= 1.0:
                return step
            x = self._across(self._solved(g, self.options.aim * np.sqrt(share)).x)
            step += x
            if abs(float(np.vdot(x, g))) <= settled:
                return step
        return None

    def _length(self, step: np.ndarray) -> float:
        """Return the length of a step in the coordinates C^½."""
        parts = zip(self.roots, self.products.student.split(step.astype(np.float64)))
        lengths = [np.linalg.norm(np.linalg.solve(U, np.linalg.solve(R, part.T).T)) for (U, R), part in parts]
        return float(np.linalg.norm(lengths))

    def _across(self, step: np.ndarray) -> np.ndarray:
        """Return the part of a step that is orthogonal to the free scales."""
        return (step - self.G @ (self.inverse @ step)).astype(np.float32)

    def _solved(self, right: np.ndarray, tolerance: float = 0.0) -> Solution:
        """Solve S x = right to a residual of `tolerance`·|right|, scaled to length one for single precision."""
        size, options = np.float32(np.linalg.norm(right) or 1.0), self.options

        def product(v: np.ndarray) -> np.ndarray:
            afford(4.0 * len(self.products.values.F) * v.size)
            return self.products.product(v)

        solved = conjugate_gradients(
            product,
            right / size,
            self.precondition,
            tolerance=max(tolerance, options.gain),
            max_products=options.products,
        )
        return Solution(size * solved.x, size * solved.residual, solved.lengths, solved.ratios)
