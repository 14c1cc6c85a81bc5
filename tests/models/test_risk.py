"""The population risk: against high-precision integrals, closed forms, quadrature and Monte Carlo."""

from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import dblquad
from scipy.special import expit, ndtr

from neurecover import simulate
from neurecover.activations import Activation
from neurecover.models import Network, replace_arrays
from neurecover.models.differences import NEAR, NEAR_SMOOTH
from neurecover.models.orthants import Correlation
from neurecover.models.risk import bivariate, population_risk, rectified_product, risk_bounds

SPECS = ["relu", "leaky_relu(0.2)", "abs", "power(3)", "step", "sigmoid"]
SIZES = [1e-3, 1e-9, 1e-12]
# act(z) = sign·act(−z) + constant + slope·z, written out by hand.
MIRROR = {
    "relu": (1, 0, 1.0),
    "leaky_relu(0.25)": (1, 0, 1.25),
    "abs": (1, 0, 0.0),
    "square": (1, 0, 0.0),
    "step": (-1, 1, 0.0),
    "sigmoid": (-1, 1, 0.0),
}


def tolerance(size: float) -> float:
    """The midpoint rule errs by some 1e-6; weights of size one are rounded by 1e-16, their moves by 1e-16/size."""
    return 1e-5 + 1e-15 / size


def exact_numbers(array: np.ndarray) -> np.ndarray:
    return np.vectorize(Decimal, otypes=[object])(array)


def precise_activation(act: Activation, z: np.ndarray) -> np.ndarray:
    if act.name == "sigmoid":
        return np.vectorize(lambda t: 1 / (1 + (-t).exp()), otypes=[object])(z)
    value = np.where(z > 0, Decimal(1), Decimal(act.left))
    return value * np.abs(z) ** int(act.exponent) if act.exponent else value


def precise_risk(first: Network, second: Network) -> float:
    """E[(f − g)²] for two inputs, f − g in decimal numbers of 40 digits and no difference taken by hand.

    The plane is cut along all kinks, and Gauss's rule integrates each piece: in x₂ between neighbouring lines, in x₁
    between the crossings of lines. Its error is below 1e-6 while no line is steep, |w₂| > 0.3 ‖w‖.
    """
    with localcontext() as context:
        context.prec = 40
        W, b = (exact_numbers(np.concatenate(pair)) for pair in ((first.W, second.W), (first.b, second.b)))
        A = np.hstack([exact_numbers(first.A), -exact_numbers(second.A)])
        c = exact_numbers(first.c) - exact_numbers(second.c)

        def square(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
            z = np.multiply.outer(x2, W[:, 1]) + (np.multiply.outer(x1, W[:, 0]) + b)
            values = (precise_activation(first.activation, z) @ A.T + c).astype(float)
            x1, x2 = np.asarray(x1, dtype=float), x2.astype(float)
            return np.mean(values**2, axis=-1) * np.exp(-0.5 * (x1**2 + x2**2)) / (2 * np.pi)

        if first.activation.name == "sigmoid":
            # The trapezoidal rule errs by exp(−2π·distance of the poles/step), here exp(−4π²/‖w‖).
            x = exact_numbers(np.arange(-7.5, 7.6, 0.5))
            return 0.25 * sum(float(np.sum(square(t, x))) for t in x)
        total, x = 0.0, exact_numbers(np.polynomial.legendre.leggauss(10)[0])
        weights = np.polynomial.legendre.leggauss(10)[1]
        for middle, half in pieces(crossings(W, b), 1.5):
            for x1, weight in zip(middle + half * x, float(half) * weights):
                cuts = pieces(-(b + W[:, 0] * x1) / W[:, 1], 2.5)
                x2 = np.concatenate([m + h * x for m, h in cuts])
                total += weight * float(square(x1, x2) @ np.concatenate([float(h) * weights for _, h in cuts]))
        return total


def crossings(W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x₁ at which two of the lines w·x + b = 0 cross."""
    i, j = np.triu_indices(len(b), 1)
    determinant = W[i, 0] * W[j, 1] - W[j, 0] * W[i, 1]
    cross = determinant != 0
    return (b[j] * W[i, 1] - b[i] * W[j, 1])[cross] / determinant[cross]


def pieces(cuts: np.ndarray, width: float) -> list[tuple[Decimal, Decimal]]:
    """Middle and half length of the intervals between the cuts in (−7.5, 7.5), none longer than the width."""
    grid = exact_numbers(np.arange(-7.5, 7.6, width))
    ends = sorted([*grid, *(t for t in cuts if abs(t) < 7.5)])
    return [((low + high) / 2, (high - low) / 2) for low, high in pairwise(ends) if high > low]


def gentle(rng: np.random.Generator, k: int) -> np.ndarray:
    """k rows of two weights, none steep."""
    return np.column_stack([rng.uniform(-1.5, 1.5, k), rng.choice([-1.0, 1.0], k) * rng.uniform(0.6, 1.5, k)])


def rescaled(network: Network, s: np.ndarray) -> Network:
    """The same function up to rounding, act(s z) = s^h act(z)."""
    h = network.activation.homogeneity
    if h is None:
        return network
    return Network(network.W * s[:, None], network.b * s, network.A / s**h, network.c, network.activation)


def moved(network: Network, size: float, rng: np.random.Generator) -> Network:
    W, b, A, c = (
        array + size * rng.standard_normal(array.shape) for array in (network.W, network.b, network.A, network.c)
    )
    return Network(W, b if network.b.any() else network.b, A, c, network.activation)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", SIZES)
def test_one_weight_moved(spec: str, size: float) -> None:
    rng = np.random.default_rng(0)
    for bias in (0.0, 1.0):
        W, b, A = gentle(rng, 4), bias * rng.standard_normal(4), rng.standard_normal((2, 4))
        changed = W.copy()
        changed[1, 0] += size
        network, other = (Network(V, b, A, activation=spec) for V in (W, changed))
        expected = precise_risk(network.take([1]), other.take([1]))
        assert population_risk(network, other) == pytest.approx(expected, rel=tolerance(size), abs=0.0)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", SIZES)
def test_all_weights_moved_permuted_and_rescaled(spec: str, size: float) -> None:
    rng = np.random.default_rng(1)
    bias = float(size in SIZES[::2])
    truth = Network(gentle(rng, 2), bias * rng.standard_normal(2), rng.standard_normal((2, 2)), [0.3, 0.1], spec)
    network = rescaled(moved(truth, size, rng).take([1, 0]), rng.uniform(0.3, 3.0, 2))
    expected = precise_risk(network, truth)
    assert population_risk(network, truth) == pytest.approx(expected, rel=tolerance(size), abs=0.0)
    assert population_risk(truth, network) == pytest.approx(expected, rel=tolerance(size), abs=0.0)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("gap", "size"), [(1e-7, 1e-9), (1e-9, 1e-8), (1e-8, 1e-12)])
def test_units_that_are_nearly_parallel_or_opposite(spec: str, gap: float, size: float) -> None:
    rng = np.random.default_rng(2)
    w = gentle(rng, 1)[0]
    W = np.array([w, w + gap * rng.standard_normal(2), -w + gap * rng.standard_normal(2)])
    truth = Network(W, [0.4, 0.4 + gap, -0.4 - 2.0 * gap], [[1.0, -0.7, 0.4]], activation=spec)
    network = moved(truth, size, rng).take([2, 0, 1])
    assert population_risk(network, truth) == pytest.approx(precise_risk(network, truth), rel=tolerance(size), abs=0.0)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [1e-6, 1e-12])
def test_a_unit_split_in_two(spec: str, size: float) -> None:
    rng = np.random.default_rng(3)
    W, b = gentle(rng, 2), rng.standard_normal(2)
    whole = Network(W, b, [[1.0, -0.5]], activation=spec)
    copy = W[0] + size * rng.standard_normal(2)
    split = Network(np.vstack([W, copy]), [*b, b[0] + size], [[0.25, -0.5, 0.75]], activation=spec)
    expected = precise_risk(split, whole)
    assert population_risk(split, whole) == pytest.approx(expected, rel=tolerance(size), abs=0.0)
    assert population_risk(whole, split) == pytest.approx(expected, rel=tolerance(size), abs=0.0)


@pytest.mark.parametrize("spec", list(MIRROR))
@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-12])
def test_mirror_images_of_the_same_function(spec: str, size: float) -> None:
    sign, constant, slope = MIRROR[spec]
    rng = np.random.default_rng(4)
    # The rows add up to zero exactly, so that the linear parts of the mirror images do.
    W = np.array([[0.5, 0.75], [0.25, -1.5], [-0.75, 0.75]])
    b = np.array([0.5, -0.25, 1.0])
    first = Network(W, b, np.ones((1, 3)), [0.25], spec)
    c = 0.25 + 3 * constant + slope * b.sum()
    second = Network(size * rng.standard_normal((3, 2)) - W, -b, sign * np.ones((1, 3)), [c], spec)
    if size == 0.0:
        assert population_risk(first, second) < 1e-30
    else:
        assert population_risk(first, second) == pytest.approx(
            precise_risk(first, second), rel=tolerance(size), abs=0.0
        )


@pytest.mark.parametrize("spec", [*SPECS, "identity", "exp", "power(0.5)", "power(6)"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_the_same_network_in_another_order_and_scale(spec: str, bias: float) -> None:
    rng = np.random.default_rng(5)
    network = Network(
        rng.standard_normal((7, 5)), bias * rng.standard_normal(7), rng.standard_normal((3, 7)), None, spec
    )
    nothing = Network(np.zeros((0, 5)), None, np.zeros((3, 0)), activation=spec)
    size = risk_bounds(network, nothing)[0]
    order = rng.permutation(7)
    assert population_risk(network, network) == 0.0
    assert population_risk(network, rescaled(network.take(order), 2.0 ** rng.integers(-9, 9, 7))) <= 1e-28 * size
    # A step whose weights are rounded turns its plane by 1e-16, and that is its risk.
    if spec not in ("step", "power(0.5)"):
        assert population_risk(network, rescaled(network.take(order), rng.uniform(0.1, 10.0, 7))) <= 1e-28 * size


@pytest.mark.parametrize("spec", [*SPECS, "exp", "power(2)"])
def test_small_moves_obey_the_law_of_small_moves(spec: str) -> None:
    """The risk is c·size² (c·size for a step) on either side of the distance where the method changes."""
    rng = np.random.default_rng(6)
    network = Network(
        0.5 * rng.standard_normal((6, 5)), rng.standard_normal(6), rng.standard_normal((2, 6)), None, spec
    )
    direction = rng.standard_normal(network.W.shape)
    near = NEAR if spec in ("relu", "leaky_relu(0.2)", "abs", "step") else NEAR_SMOOTH
    sizes = near * np.array([1e-6, 1e-3, 0.01, 0.1, 0.2, 0.4, 0.8, 1.6])
    risks = [
        population_risk(network, Network(network.W + t * direction, network.b, network.A, None, spec)) for t in sizes
    ]
    law = np.array(risks) / sizes ** (1 if spec == "step" else 2)
    # The next order of the expansion is `size` of it, with a factor of a few.
    assert np.all(np.abs(law / law[0] - 1.0) < tolerance(sizes[0]) + 10.0 * sizes)


def test_steep_sigmoids_that_nearly_agree() -> None:
    g = np.arange(-12.0, 12.0, 0.005)
    for slope in (0.05, 1.0, 4.0, 8.0):
        first, second = (Network([[slope, 0.0]], [b], [[1.0]], activation="sigmoid") for b in (0.5, 0.5 + 2.0**-30))
        z = slope * g + 0.5
        # act(z + t) − act(z) = t act′(z) up to t², and t = 2⁻³⁰ is exact.
        expected = 0.005 * np.sum(np.exp(-0.5 * g * g) * (expit(z) * expit(-z)) ** 2) / np.sqrt(2 * np.pi) * 2.0**-60
        assert population_risk(first, second) == pytest.approx(expected, rel=1e-7, abs=0.0)


def test_probabilities_keep_their_digits_at_full_correlation() -> None:
    """P(u < h, v < h) = Φ(h) − γ/2π e^{−h²/2} + O(γ³) for the angle γ, and so for −v; h ≠ k is ρ = 1 up to e^{−…}."""
    for h in (-1.3, 0.0, 0.2, 2.0):
        for angle in (1e-3, 1e-5, 1e-8, 1e-11, 1e-14):
            pair = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
            at = Correlation.between(pair[:1], pair[1:])
            loss = angle / (2 * np.pi) * np.exp(-0.5 * h * h)
            bound = angle**3 + 1e-15
            assert abs(bivariate(np.array(h), np.array(h), at) - (ndtr(h) - loss)) < bound
            # P(u < h, −v < −h) is what is missing.
            assert abs(bivariate(np.array(h), np.array(-h), at.opposite()) - loss) < bound
            if angle < 1e-4:
                assert abs(bivariate(np.array(h), np.array(h + 0.01), at) - ndtr(h)) < 1e-15
    for rho in (-0.4, 0.0, 0.9):
        assert bivariate(np.array(-0.0), np.array(0.7), rho) == bivariate(np.array(0.0), np.array(0.7), rho)


def test_bivariate_probability() -> None:
    def density(v: float, u: float, rho: float) -> float:
        return float(
            np.exp(-(u * u - 2 * rho * u * v + v * v) / (2 * (1 - rho**2))) / (2 * np.pi * np.sqrt(1 - rho**2))
        )

    for h, k, rho in (
        (0.3, -0.7, 0.4),
        (-1.2, -0.1, -0.8),
        (2.0, 1.0, 0.95),
        (0.0, 0.5, 0.3),
        (0.0, 0.0, -0.6),
        (-0.4, 0.0, 0.2),
    ):
        expected = dblquad(density, -10.0, h, -10.0, k, args=(rho,), epsabs=1e-13, epsrel=1e-13)[0]
        assert bivariate(np.array(h), np.array(k), np.array(rho)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_products_of_rectified_powers(power: int) -> None:
    # Integrate over u exactly where the other factor's conditional moment is smooth: a fine grid in u.
    for h, k, rho in (
        (0.3, -0.7, 0.4),
        (-1.2, -0.1, -0.8),
        (2.0, 1.0, 0.95),
        (0.0, 0.0, 0.5),
        (1.0, 1.0, 1.0),
        (0.5, -1.0, -1.0),
    ):
        x, w = np.polynomial.legendre.leggauss(400)
        u = -h + (x + 1.0) * 6.0  # from the kink on
        s = np.sqrt(1 - rho**2)
        g, gw = np.polynomial.legendre.leggauss(400)
        if s > 0:
            v = np.maximum(-k, rho * u[:, None] - 9.0 * s) + (g + 1.0) * 9.0 * s
            weight = 9.0 * s * gw * np.exp(-0.5 * ((v - rho * u[:, None]) / s) ** 2) / (s * np.sqrt(2 * np.pi))
            inner = np.sum(weight * (v + k) ** power * (v > -k), axis=1)
            expected = np.sum(6.0 * w * np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi) * (u + h) ** power * inner)
        else:
            low, high = (max(-h, -k), 12.0) if rho > 0 else (-h, max(k, -h))
            u = low + (x + 1.0) * (high - low) / 2.0
            expected = np.sum(
                (high - low) / 2.0 * w * np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi) * ((u + h) * (rho * u + k)) ** power
            )
        value = rectified_product(np.array(h), np.array(k), np.array(rho), power)
        assert value == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    "spec", ["relu", "leaky_relu(0.3)", "abs", "step", "power(2)", "square", "identity", "sigmoid", "exp"]
)
def test_the_risk_is_the_mean_square_difference(spec: str) -> None:
    first = simulate.teacher(3, 4, 2, random_state=0, activation=spec)
    second = simulate.teacher(3, 5, 2, random_state=1, activation=spec)
    second = Network(0.7 * second.W, second.b, second.A, [0.3, -0.2], activation=spec)
    risk = population_risk(first, second)
    X = np.random.default_rng(0).standard_normal((400_000, 3))
    squares = ((first(X) - second(X)) ** 2).mean(axis=1)
    assert abs(risk - squares.mean()) < 4.5 * squares.std() / np.sqrt(len(X))
    low, high = risk_bounds(first, second)
    assert low - 1e-10 * risk <= risk <= high + 1e-10 * risk


def test_smooth_units_against_quadrature() -> None:
    first, second = (simulate.teacher(2, 4, random_state=s, activation="sigmoid") for s in (0, 1))
    g, w = hermegauss(120)
    X = np.stack(np.meshgrid(g, g, indexing="ij"), axis=-1).reshape(-1, 2)
    expected = np.outer(w, w).ravel() @ (first(X) - second(X))[:, 0] ** 2 / (2 * np.pi)
    assert population_risk(first, second) == pytest.approx(expected, abs=1e-12)


def test_the_series_closes_in_on_the_closed_form() -> None:
    first, second = simulate.teacher(4, 5, random_state=0), simulate.teacher(4, 6, random_state=1)
    exact = population_risk(first, second)
    widths = []
    for degree in (4, 16, 64, 256):
        low, high = risk_bounds(first, second, degree)
        assert low <= exact + 1e-12
        assert high >= exact - 1e-12
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert low == pytest.approx(exact, rel=1e-4)


def test_equal_functions_have_no_risk() -> None:
    network = simulate.teacher(5, 7, 2, random_state=0)
    shuffled = network.take(np.random.default_rng(0).permutation(7))
    doubled = Network(2.0 * shuffled.W, 2.0 * shuffled.b, 0.5 * shuffled.A)
    assert population_risk(network, doubled) < 1e-13
    first, second = simulate.sign_ambiguous(4, 6, random_state=0)
    assert population_risk(first, second) < 1e-13
    moved = Network(network.W, network.b, network.A, [1.0, 0.0])
    assert population_risk(network, moved) == pytest.approx(0.5, abs=1e-12)


def test_a_rough_series_is_refused() -> None:
    first, second = (simulate.teacher(3, 3, random_state=s, activation="power(0.5)") for s in (0, 1))
    with pytest.raises(ValueError, match="risk_bounds"):
        population_risk(first, second)
    low, high = risk_bounds(first, second)
    assert 0.0 <= low < high
    with pytest.raises(ValueError, match="same n_inputs"):
        population_risk(first, simulate.teacher(4, 3))


AFFINE_SPECS = ["relu", "leaky_relu(0.2)", "step", "square", "power(3)", "sigmoid", "silu"]


def affine_pair(spec: str, seed: int = 0) -> tuple[Network, Network]:
    """Two networks of different units and different affine terms, three inputs and two outputs."""
    rng = np.random.default_rng(seed)
    first, second = (
        Network(*(0.5 * rng.standard_normal(s) for s in ((k, 3), k, (2, k), 2)), spec, rng.standard_normal((2, 3)))
        for k in (3, 4)
    )
    return first, second


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("spec", AFFINE_SPECS)
def test_affine_terms_against_monte_carlo(spec: str, one_sided: bool) -> None:
    first, second = affine_pair(spec)
    if one_sided:
        second = replace_arrays(second, C=None)
    risk = population_risk(first, second)
    X = np.random.default_rng(1).standard_normal((400_000, 3))
    squares = np.mean((first(X) - second(X)) ** 2, axis=1)
    # Five standard errors of the mean, which is known to about 1 % here: the affine terms are a large part of it.
    error = float(squares.std() / np.sqrt(len(X)))
    assert error < 0.02 * risk
    assert abs(float(squares.mean()) - risk) < 5.0 * error
    plain = population_risk(replace_arrays(first, C=None), replace_arrays(second, C=None))
    assert abs(plain - risk) > 10.0 * error
    low, high = risk_bounds(first, second)
    assert low <= risk * (1 + 1e-9)
    assert high >= risk * (1 - 1e-9)


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-12])
def test_an_affine_term_is_two_opposite_rectified_units(size: float) -> None:
    """C x = relu(C x) − relu(−C x), row by row: the same risk without a C; small differences keep their digits."""
    first, _ = affine_pair("relu")
    second = moved(first, size, np.random.default_rng(2))
    assert first.C is not None
    second = replace_arrays(second, C=first.C + size * np.random.default_rng(3).standard_normal((2, 3)))

    def written_out(network: Network) -> Network:
        assert network.C is not None
        W = np.vstack([network.W, network.C, -network.C])
        A = np.hstack([network.A, np.eye(2), -np.eye(2)])
        return Network(W, np.append(network.b, np.zeros(4)), A, network.c)

    expected = population_risk(written_out(first), written_out(second))
    assert population_risk(first, second) == pytest.approx(expected, rel=10 * tolerance(size))
    assert 1e-3 < expected / size**2 < 1e3


@pytest.mark.parametrize("spec", AFFINE_SPECS)
def test_what_differs_in_the_affine_term_alone(spec: str) -> None:
    """E[(D·x)²] = ‖D‖², the mean over outputs."""
    first, _ = affine_pair(spec)
    assert first.C is not None
    D = 1e-5 * np.random.default_rng(4).standard_normal((2, 3))
    second = replace_arrays(first, C=first.C + D)
    assert population_risk(first, second) == pytest.approx(np.sum(D**2) / 2.0, rel=1e-9)
    assert risk_bounds(first, replace_arrays(first, C=first.C + 1e3 * D), 0)[0] == pytest.approx(
        1e6 * np.sum(D**2) / 2.0, rel=1e-6
    )


@pytest.mark.parametrize("spec", ["relu", "leaky_relu(0.2)", "silu", "softplus"])
def test_networks_that_differ_in_the_signs_that_an_affine_term_frees_have_no_risk(spec: str) -> None:
    first, _ = affine_pair(spec)
    assert np.any(first.normal_form().W * first.W < 0.0)
    assert population_risk(first.normal_form(), first) < 1e-28
