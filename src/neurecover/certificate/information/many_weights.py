"""What the samples say of more weights than a matrix of all pairs of them could be formed for.

The readout is eliminated, and the information of the hidden weights of all layers is the S of `fit.products`, known by
its products with vectors. Three things are asked of it by conjugate gradients with the preconditioner C.

*Is every weight seen?* Of a solution z ~ N(0, C⁻¹) that is known beforehand, S x = S z is solved. In the coordinates
C^½ the error is q(μ) ẑ along an eigenvector of the eigenvalue μ of C⁻¹S, with ẑ ~ N(0, 1) and a polynomial q, q(0) = 1:
along an eigenvector that is not seen nothing is ever found. An error of length η as a whole says that |q(μ)| < ½ for
every μ, but for a chance of 4 η/√(2π) that some ẑ lies within 2 η of zero. The roots θ of q being known,
q(μ) ≥ 1 − μ Σ 1/θ below them, so that then

    μ ≥ 1 / (2 Σ 1/θ).

*Is every equation contradicted by others?* and *What does rounding leave?* The least-squares solution δ = F⁻¹Jᵀε for
noise ε ~ N(0, I) has covariance F⁻¹, and what it leaves, (I − H) ε, a mean square of 1 minus the leverage
(`sole_equations`). It is solved for again from what is left until a round explains no more than `settled` of the
squares: an equation that is met whatever it says would not be told from others by a solution that is half found. One
that does not settle says nothing. Among a million equations one seems to be met by chance: where any does, one draw
more has to agree.

S vanishes along the free scales G of the units (`models.free_directions`), of which smooth activations have none: z and
x have no part along them.
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
from neurecover.models import Composite, DeepNetwork, Model, Network, as_student, free_directions, free_parameters
from neurecover.solve import afford
from neurecover.solve.conjugate import Operator, Solution, conjugate_gradients


@dataclass(frozen=True, eq=False)
class ManyWeights:
    """`weakest` bounds the eigenvalues of C⁻¹S from below, 0 where something is not seen.

    `moves` (P, draws) are errors of the parameters of `model` for noise of variance one, in the order of
    `models.parameters`, those of its `free` ones; `n_alone` equations are contradicted by no others.
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
    """Return whether the model has layers alone, with derivatives, and the samples fit in memory."""
    if isinstance(model, Composite) or not model.activation.differentiable or samples.base.streams:
        return False
    return 4 * samples.count() * (model.n_inputs + 1) <= options.most_bytes


def by_products(
    network: Network | DeepNetwork, bias: bool, samples: Source, options: CertificateOptions = DEFAULTS
) -> ManyWeights:
    """Return the answers for a network.

    In single precision outputs have to be of a size whose square is neither zero nor infinite: with outputs `size`
    times smaller a hidden weight moves `size` times as far for the same noise.
    """
    arrays = [network.layers[-1][0], *([] if network.C is None else [network.C])]
    size = max(float(np.abs(array).max(initial=0.0)) for array in arrays) or 1.0
    student, held = as_student(network, bias), Samples.of(samples, bias)
    point = Point(replace(held, Y=held.Y / size), replace(student, theta=student.theta / size), FitOptions())
    free, order = free_parameters(network, bias), student.parameter_order
    G = _free_scales(network, free)
    moves, n_alone, weakest = np.zeros((len(free), options.draws)), 0, 0.0
    if point.fits_single:
        system = System(Products(point, double=True), G[free][np.argsort(order)[: student.size]], options.by_products)
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


def _free_scales(network: Network | DeepNetwork, free: np.ndarray) -> np.ndarray:
    """Return the directions (parameters, g) that change no output and move free parameters alone."""
    G = free_directions(network)
    fixed = np.ones(len(G), dtype=bool)
    fixed[free] = False
    return G[:, ~np.any(G[fixed] != 0.0, axis=0)]


class System:
    """S by its products at a point, its free scales G (hidden weights, g) and its preconditioner."""

    def __init__(self, products: Products, G: np.ndarray, options: ProductOptions) -> None:
        self.products, self.options, self.G = products, options, G
        self.inverse = np.linalg.pinv(G.T @ G) @ G.T
        self.precondition: Operator = products.preconditioner(options.damping)

    @cached_property
    def roots(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """U and R of every layer, whose part of C⁻¹ is UUᵀ ⊗ RRᵀ."""
        products = self.products
        units = [products.unit_root(layer, self.options.damping) for layer in range(products.student.depth)]
        return [(unit, products.read_root(layer)) for layer, unit in enumerate(units)]

    def weakest(self, rng: np.random.Generator) -> float:
        """Return the lower bound on μ, or 0 where a known solution is not found to η."""
        student, options = self.products.student, self.options
        if self.products.Q.shape[1] < student.widths[-1]:  # single precision does not tell its units apart
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
        """Return the hidden part of the least-squares solution for `noise` (n, p); None where it does not settle.

        With g = S e left of the equations, what is missing explains e·S e ≤ g·C⁻¹g / μ, and about what the next round
        does.
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
        """Return the part of a step that is across the free scales."""
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
