"""What the samples say of more weights than a matrix of all pairs of them could be formed for.

For one hidden layer the readout is eliminated, and the information of the hidden weights is the S of `fit.products`,
known by its products with vectors. Three questions are put to it by conjugate gradients with the preconditioner C.

*Is every weight seen?* Of a solution z ~ N(0, C⁻¹) that is known beforehand, S x = S z is solved. In the coordinates
C^½ the error is q(μ) ẑ along an eigenvector of the eigenvalue μ of C⁻¹S, with ẑ ~ N(0, 1) and a polynomial q, q(0) = 1:
along an eigenvector that is not seen nothing is ever found. An error of length η as a whole says that |q(μ)| < ½ for
every μ, but for a chance of 4 η/√(2π) that some ẑ lies within 2 η of zero. The roots θ of q being known,
q(μ) ≥ 1 − μ Σ 1/θ below them, so that then

    μ ≥ 1 / (2 Σ 1/θ).

*Is every equation contradicted by others?* and *What does rounding leave?* The least-squares solution δ = F⁻¹Jᵀε for
noise ε ~ N(0, I) has covariance F⁻¹, and what it leaves, (I − H) ε, a mean square of 1 minus the leverage (`alone`).
It is solved for again from what is left until a round explains no more than SETTLED of the squares: an equation that is
met whatever it says would not be told from others by a solution that is half found. One that does not settle says
nothing. Among a million equations one seems to be met by chance: where any does, one draw more has to agree.

S vanishes along the rows of V, the scales that the readout takes up: z and x have no part along them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.certificate.alone import DRAWS
from neurecover.data import Source
from neurecover.fit.options import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.products import Products
from neurecover.fit.samples import Samples
from neurecover.models import Network, as_student, free_parameters
from neurecover.solve import afford
from neurecover.solve.conjugate import Solution, conjugate_gradients

MOST_BYTES = 2**30  # for the inputs in single precision
CHANCE = 1e-6  # with which a direction that is not seen is taken for one that is
FOUND = CHANCE * np.sqrt(2.0 * np.pi) / 4.0  # η
ROUNDS, PRODUCTS = 8, 150  # single precision gains a few digits a round
GAIN = 1e-3  # of the residual, in a round
AIM = 0.7  # of what a round has to gain to be the last one
NOTHING = 1e-9  # what rounding makes of μ = 0: (6e-8)² of a unit, over the FLOOR of C, in a sum of some terms
DAMPING = 1e-6  # in the preconditioner alone, whose matrix may be singular where S is not
ALONE = 1e-4  # mean of ((I − H) ε)² over the draws that counts as none; by chance it is as small once in 4e7 times
SETTLED = 0.1 * ALONE  # squares that a round explains, over all equations: what is left to find in any one is less
WIDEN = 2.4  # √(DRAWS / χ²) at 5 %: a root mean square over four draws, widened, is an upper bound in 95 of 100 cases


@dataclass(frozen=True, eq=False)
class ManyWeights:
    """`weakest` bounds the eigenvalues of C⁻¹S from below, 0 where something is not seen.

    `moves` (P, DRAWS) are errors of the parameters of `model` for noise of variance one, in the order of
    `models.parameters`, those of its `free` ones; `n_alone` equations are contradicted by no others.
    """

    model: Network
    free: np.ndarray
    n_determinable: int
    weakest: float
    n_alone: int
    moves: np.ndarray

    def largest_errors(self, moved: np.ndarray, variance: float) -> np.ndarray:
        """Upper bounds on the variances of parameters, from draws of their errors (parameters, DRAWS)."""
        return WIDEN**2 * variance * np.mean(moved**2, axis=1)


def can_be_tested(network: Network, samples: Source) -> bool:
    """Whether its activation leaves the scales of units open and nothing else, and the samples fit in memory."""
    if network.activation.homogeneity is None or network.activation.name == "exp" or samples.base.streams:
        return False
    return 4 * samples.count() * (network.n_inputs + 1) <= MOST_BYTES and network.C is None


def by_products(network: Network, bias: bool, samples: Source) -> ManyWeights:
    """The answers for a network.

    In single precision outputs have to be of a size whose square is neither zero nor infinite: with outputs `size`
    times smaller a hidden weight moves `size` times as far for the same noise.
    """
    size = float(np.abs(network.A).max(initial=0.0)) or 1.0
    student = as_student(network, bias)
    student = replace(student, theta=student.theta / size)
    held = Samples.of(samples, bias)
    held = replace(held, Y=held.Y / size)
    system = Products(Point(held, student, FitOptions()), double=True)
    rng, k = np.random.default_rng(0), network.n_hidden
    free = free_parameters(network, bias)
    n_determinable = len(free) - k
    resolved = system.Q.shape[1] == k
    weakest = _weakest(system, rng) if resolved else 0.0
    moves, n_alone = np.zeros((len(free), DRAWS)), 0
    left = np.zeros(held.Y.shape)
    for draw in range(DRAWS + 1 if weakest > 0.0 else 0):
        if draw == DRAWS and n_alone == 0:
            break
        noise = rng.standard_normal(left.shape, dtype=np.float32)
        step = _fitted(system, noise, weakest)
        if step is None:
            weakest = 0.0
            break
        rest = noise - system.forward(step)
        if draw < DRAWS:
            move = np.concatenate([step.ravel().astype(np.float64) / size, system.readout_of(rest).T.ravel()])
            moves[:, draw] = move[student.parameter_order]
        left += system.unexplained(rest) ** 2
        n_alone = int(np.count_nonzero(left < (draw + 1) * ALONE))
    return ManyWeights(network, free, n_determinable, weakest, n_alone, moves)


def _weakest(system: Products, rng: np.random.Generator) -> float:
    """The lower bound on μ, or 0 where a known solution is not found to FOUND."""
    shape = system.student.V[0].shape
    units, inputs = system.unit_root(0, DAMPING), system.point.samples.inverse_root
    back = np.linalg.inv(units), np.linalg.inv(inputs)

    def length(step: np.ndarray) -> float:
        return float(np.linalg.norm(back[0] @ step @ back[1].T))

    error = _across(system, (units @ rng.standard_normal(shape) @ inputs.T).astype(np.float32))
    inverses = 0.0
    for _ in range(ROUNDS):
        size = length(error)
        if size <= FOUND:
            bound = 1.0 / (2.0 * inverses)
            return bound if bound > NOTHING else 0.0
        solution = _solved(system, system.product(error.ravel()))
        error = _across(system, error - solution.x.reshape(shape))
        if length(error) > 0.5 * size:
            break
        inverses += float(np.sum(1.0 / np.maximum(solution.ritz_values, 1e-12)))
    return 0.0


def _fitted(system: Products, noise: np.ndarray, weakest: float) -> np.ndarray | None:
    """The hidden part (k, D) of the least-squares solution for `noise` (n, p); None where it does not settle.

    With g = S e left of the equations, what is missing explains e·S e ≤ g·C⁻¹g / μ, and about what the next round does.
    """
    step, precondition = np.zeros(system.student.V[0].shape, dtype=np.float32), system.preconditioner(DAMPING)
    for _ in range(ROUNDS):
        g = _across(system, system.backward(system.unexplained(noise - system.forward(step))).reshape(step.shape))
        settled = SETTLED * weakest / max(float(np.vdot(g, precondition(g.ravel()))), 1e-300)
        if settled >= 1.0:
            return step
        x = _across(system, _solved(system, g.ravel(), AIM * np.sqrt(settled)).x.reshape(step.shape))
        step += x
        if abs(float(np.vdot(x, g))) <= SETTLED:
            return step
    return None


def _across(system: Products, step: np.ndarray) -> np.ndarray:
    """The part of a step (k, D) that is across the rows of V."""
    V = system.student.V[0]
    along = (V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)).astype(np.float32)
    return step - np.einsum("jd,jd->j", step, along)[:, None] * along


def _solved(system: Products, right: np.ndarray, tolerance: float = GAIN) -> Solution:
    """S x = right but for `tolerance` of the right side, in single precision whatever the size of the right side."""
    size = np.float32(np.linalg.norm(right) or 1.0)

    def product(v: np.ndarray) -> np.ndarray:
        afford(4.0 * len(system.values.F) * v.size)
        return system.product(v)

    solved = conjugate_gradients(
        product,
        right / size,
        system.preconditioner(DAMPING),
        tolerance=max(tolerance, GAIN),
        max_products=PRODUCTS,
    )
    return Solution(size * solved.x, size * solved.residual, solved.lengths, solved.ratios)
