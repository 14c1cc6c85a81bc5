"""Deep teachers y = upper(u(W x − t)) with high thresholds [GP18].

Uppers: polynomials with a linear part, products and higher powers; the OR of step units; towers of sigmoid or ReLU
layers.
"""

from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation
from neurecover.exceptions import did_you_mean
from neurecover.models import Composite, DeepNetwork, Or, Polynomial, Upper
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate import matrices
from neurecover.simulate._checks import positive_integer

KINDS = ("sphere", "orthonormal", "tilted")
_TILT = 0.15  # standard deviation added to the entries: about 0.15 √d rad from orthonormal


def composite_teacher(
    n_inputs: int,
    n_hidden: int,
    upper: Upper,
    *,
    threshold: float | ArrayLike = 1.5,
    kind: str = "sphere",
    activation: str | Activation = "relu",
    random_state: RandomStateLike = None,
) -> Composite:
    """Draw a first layer of unit vectors below the given upper part.

    kind "sphere" draws the rows of W uniformly, "orthonormal" makes W Wᵀ = I (k ≤ d), and "tilted" adds 0.15·N(0, 1) to
    the entries of an orthonormal W and normalises its rows, for a condition number of about 2. threshold is one
    number or one per unit.
    """
    d, k = positive_integer("n_inputs", n_inputs), positive_integer("n_hidden", n_hidden)
    if kind not in KINDS:
        raise ValueError(
            f"kind must be one of {', '.join(KINDS)}. Got {kind!r} instead.{did_you_mean(str(kind), KINDS)}"
        )
    if kind != "sphere" and k > d:
        raise ValueError(f"kind={kind!r} needs at most as many units as inputs. Got {k} units and {d} inputs.")
    rng = as_generator(random_state, "simulate.composite_teacher")
    W = matrices.unit_rows(rng, k, d) if kind == "sphere" else matrices.orthonormal(rng, k, d)
    if kind == "tilted":
        W = matrices.normalised(W + _TILT * rng.standard_normal((k, d)))
    return Composite(W, threshold, upper, activation)


def products(
    n_hidden: int, degree: int = 2, *, linear: float | ArrayLike = 1.0, product: float = 1.0, constant: float = 0.0
) -> Polynomial:
    """Return constant + Σ cᵢ hᵢ + product·Σ_S ∏_{j∈S} hⱼ over all sets of 2 to `degree` units.

    `linear` is cᵢ, one number or one per unit; 0 leaves the linear part out. degree=1 is the linear part alone.
    """
    k = positive_integer("n_hidden", n_hidden)
    sets = [S for size in range(2, positive_integer("degree", degree) + 1) for S in combinations(range(k), size)]
    exponents = np.zeros((1 + k + len(sets), k), dtype=int)
    exponents[1 : k + 1] = np.eye(k, dtype=int)
    for row, S in enumerate(sets, start=k + 1):
        exponents[row, list(S)] = 1
    coefficients = np.concatenate([[constant], np.broadcast_to(linear, k), np.full(len(sets), product)])
    return Polynomial(exponents, coefficients)


def powers(n_hidden: int, degree: int = 3, *, power: float = 0.5, product: float = 0.5) -> Polynomial:
    """Return Σᵢ hᵢ + power·Σᵢ (hᵢ² + … + hᵢ^degree) + product·Σ_{i<j} hᵢhⱼ: powers of one variable [GP18, B.7]."""
    base = products(n_hidden, 2, product=product)
    k = base.exponents.shape[1]
    higher = np.concatenate([m * np.eye(k, dtype=int) for m in range(2, positive_integer("degree", degree) + 1)])
    return Polynomial(
        np.concatenate([base.exponents, higher]), np.concatenate([base.coefficients[0], np.full(len(higher), power)])
    )


def union() -> Or:
    """Return the OR of step units."""
    return Or()


def tower(
    n_hidden: int,
    widths: tuple[int, ...],
    *,
    activation: str | Activation = "relu",
    bias: float = 0.3,
    signs: str = "positive",
    random_state: RandomStateLike = None,
) -> DeepNetwork:
    """Draw layers of the given widths above the hidden values, then one output: h → A act(B h + b) and so on.

    Weights are uniform in [0.5, 1.5]/√(fan-in) and biases uniform in [0, bias]; signs="mixed" gives both random signs.
    Positive weights make the tower monotone with a linear part at h = 0.
    """
    if signs not in ("positive", "mixed"):
        raise ValueError(f"signs must be 'positive' or 'mixed'. Got {signs!r} instead.")
    rng = as_generator(random_state, "simulate.tower")
    sizes = [positive_integer("n_hidden", n_hidden), *(positive_integer("width", width) for width in widths)]

    def draw(low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.uniform(low, high, shape)
        return values if signs == "positive" else values * rng.choice([-1.0, 1.0], shape)

    layers = [
        (draw(0.5, 1.5, (width, fan_in)) / np.sqrt(fan_in), draw(0.0, bias, (width,)))
        for fan_in, width in pairwise(sizes)
    ]
    A = draw(0.5, 1.5, (1, sizes[-1])) / np.sqrt(sizes[-1])
    return DeepNetwork([*layers, (A, None)], activation)
