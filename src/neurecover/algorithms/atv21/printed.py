"""[ATV21, Algorithms 4, 5 and 6] as printed: plain means, Jennrich's algorithm with one random pair, thresholds η.

Algorithm 4 decomposes T_{2ℓ+1} and T_{2ℓ+2}, leaves out singular values below η₁ and rank-one terms below η₂, takes
directions within η₃ of each other, up to sign, for one, and finds a and b by Algorithm 2. For ℓ = 1 Algorithm 6 fixes
the signs by Algorithm 3. Algorithm 5 regresses on both signs of every unit, x and 1 instead, over samples with
‖φ(x)‖ < τ and weights ‖β‖ ≤ √(8|S|) + m(1 + B), which gives at most |S| + 2 units (Claim B.5).

Two slips of the print are put right, because nothing can be computed otherwise: the second side of the flattenings in
steps 2 and 3 is j − ℓ, and Algorithm 2's recurrence is that of `recover_scalars`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.atv21.coefficients import Coefficients, estimate_coefficients
from neurecover.algorithms.atv21.options import DEFAULTS
from neurecover.algorithms.atv21.steps import Units, consolidate, order_one_weights, recover_scalars, tensor_directions
from neurecover.data import Source, reduce, split
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.statistics import Moments
from neurecover.statistics.moments.hermite import n_features
from neurecover.statistics.moments.truncated import TruncatedSums


@dataclass(frozen=True)
class PrintedOptions:
    """The parameters of Algorithms 4 to 6. None is derived: the paper gives them as polynomials without constants."""

    ell: int | None = None  # the least ℓ with m ≤ C(d + ℓ − 1, ℓ), beyond which the w^{⊗ℓ} are dependent
    eta_1: float | None = None  # the norm of the errors in flatten(T_j, ℓ, j − ℓ), estimated from halves
    eta_2: float | None = None  # the same: a term below it is not told from the errors
    eta_3: float = 0.2  # between the angles of units (0.5 and more) and of one unit's two estimates (0.1)
    tau: float | None = None  # 20 m (8|S| + d) B √log(m d B |S| / ε)
    radius: float | None = None  # √(8|S|) + m (1 + B)
    bound: float | None = None  # B ≥ |a_i|, |b_i|, given in the paper; here 10 times the outputs or 1
    epsilon: float = 0.01  # ε of τ, which hardly depends on it
    most_features: int = DEFAULTS.most_features  # of one sample; beyond, the tensors are too large


@dataclass(frozen=True)
class Printed:
    """The network of Algorithm 5, the units of Algorithm 4 it came from, and for ℓ = 1 the network of Algorithm 6."""

    network: Network
    units: Units
    coefficients: Coefficients
    ell: int
    full_rank: Network | None


def least_ell(m: int, d: int) -> int:
    """Return the least ℓ for which m tensors w^{⊗ℓ} can be independent: m ≤ C(d + ℓ − 1, ℓ)."""
    if d == 1 and m > 1:
        raise UnsolvableError(f"In one dimension all directions are the same: no order tells {m} units apart.")
    ell = 1
    while comb(d + ell - 1, ell) < m:
        ell += 1
    return ell


def algorithm_4(
    tensors: Mapping[int, np.ndarray],
    r: int,
    ell: int,
    activation: Activation,
    rng: np.random.Generator,
    most: int,
    *,
    eta_1: Mapping[int, float],
    eta_2: Mapping[int, float],
    eta_3: float,
) -> Units:
    """Return A and, up to sign, (w, b) of at most 2·`most` units; η₁ and η₂ by order, 2ℓ + 1 and 2ℓ + 2 [ATV21, Alg.
    4].
    """
    W = tensor_directions(
        tensors,
        r,
        ell,
        rng,
        threshold=eta_1,
        most=most,
        weakest=eta_2,
        same=eta_3,
        pairs=1,
        max_iterations=0,
    )
    return recover_scalars(W, tensors, ell, activation)


def algorithm_6(units: Units, T1: np.ndarray) -> Units:
    """Return the units of Algorithm 4 for ℓ = 1 with the signs of Σ z_i a_i w_i = T₁ [ATV21, Alg. 6, step 2]."""
    sign = np.where(order_one_weights(units, T1) < 0.0, -1.0, 1.0)
    return Units(units.W * sign[:, None], units.b * sign, units.A)


def algorithm_5(source: Source, units: Units, activation: Activation, m: int, options: PrintedOptions) -> Network:
    """Run the regression of [ATV21, Alg. 5, steps 3 and 4] on the features Z = ã σ(±(w̃·x + b̃)) and Z′ = (x, 1); the
    network has |S| + 2 units.

    Footnote 5: of the eight features of a unit two suffice, its (w, b) being known up to one sign.
    """
    W, b, (s, d) = units.W, units.b, units.W.shape
    B = options.bound
    if B is None:
        B = 10.0 * max(1.0, float(np.sqrt(np.diag(reduce(source, Moments(d, source.n_outputs)).yy).max())))
    # A term within its error may have any ã and b̃, ã = ζ₂ √2π e^{b̃²/2}; what is B-bounded has not.
    size = np.minimum(np.linalg.norm(units.A, axis=0), B)
    tau = 20.0 * m * (8.0 * s + d) * B * np.sqrt(np.log(max(m * d * B * s / options.epsilon, 2.0)))
    radius = np.sqrt(8.0 * s) + m * (1.0 + B)

    def features(X: np.ndarray) -> np.ndarray:
        z = X @ W.T + b
        return np.hstack([size * activation(z), size * activation(-z), X, np.ones((len(X), 1))])

    sums = TruncatedSums(features, 2 * s + d + 1, source.n_outputs, tau if options.tau is None else options.tau)
    beta = reduce(source, sums).solution(radius if options.radius is None else options.radius).T
    right, turned = size * beta[:, :s], size * beta[:, s : 2 * s]
    return consolidate(W, b, right, turned, beta[:, 2 * s : 2 * s + d], beta[:, -1], activation)


def learn_as_printed(
    source: Source,
    activation: Activation,
    rng: np.random.Generator,
    m: int,
    options: PrintedOptions | None = None,
) -> Printed:
    """Run [ATV21, Alg. 5] for standard Gaussian inputs: units from one half of the samples, regression on the other."""
    options, d = options or PrintedOptions(), source.n_inputs
    ell = least_ell(m, d) if options.ell is None else options.ell
    if n_features(d, 2 * ell + 2) > options.most_features:
        raise UnsolvableError(
            f"{m} units in {d} dimensions take ℓ = {ell}, tensors of order {2 * ell + 2} with "
            f"{n_features(d, 2 * ell + 2):,} entries, more than {options.most_features:,}."
        )
    first, second = split(source, 0.5, int(rng.integers(2**31)))
    c = estimate_coefficients(first, 2 * ell + 2, rng, regress=-1)
    tensors = {j: T * c.scale[:, None] for j, T in c.tensors.items()}
    units = printed_units(c, tensors, ell, activation, rng, m, options)
    network = algorithm_5(second, units, activation, m, options)
    fixed = full_rank(units, tensors, activation, m) if ell == 1 and len(units.W) else None
    return Printed(network, units, c, ell, fixed)


def full_rank(units: Units, tensors: Mapping[int, np.ndarray], activation: Activation, m: int) -> Network:
    """Return the network of Algorithm 6, which speaks of m units: of more, the strongest, which come first."""
    of_m = units if len(units.W) <= m else recover_scalars(units.W[:m], tensors, 1, activation)
    fixed = algorithm_6(of_m, tensors[1])
    return Network(fixed.W, fixed.b, fixed.A, None, activation)


def printed_units(
    c: Coefficients,
    tensors: Mapping[int, np.ndarray],
    ell: int,
    activation: Activation,
    rng: np.random.Generator,
    m: int,
    options: PrintedOptions,
) -> Units:
    """Run Algorithm 4 on estimated coefficients; η₁ and η₂, unless given, are the norms of the errors of each order."""
    size = float(np.linalg.norm(c.scale)) / np.sqrt(len(c.scale))
    derived = {j: size * c.error_norm(j, ell, rng) for j in (2 * ell + 1, 2 * ell + 2)}
    eta_1, eta_2 = (
        derived if given is None else dict.fromkeys(derived, given) for given in (options.eta_1, options.eta_2)
    )
    try:
        return algorithm_4(tensors, c.r, ell, activation, rng, m, eta_1=eta_1, eta_2=eta_2, eta_3=options.eta_3)
    except UnsolvableError:  # no term above the thresholds: S is empty, and Algorithm 5 regresses on x and 1
        return Units(np.zeros((0, c.r)), np.zeros(0), np.zeros((len(c.scale), 0)))
