"""The population risk in moment space: identities, derivatives, and recovery of networks from exact moments."""

from collections.abc import Mapping
from functools import reduce
from math import factorial

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss, hermeval
from scipy.optimize import linear_sum_assignment

from neurecover.activations import get, scaled_hermite
from neurecover.tensors import fit_moments, fit_power_sum, inner, network_moments, unpack
from neurecover.tensors.moment_fit import scaled_profile, unit_profile
from neurecover.tensors.power_sums import PowerPoint, Profile, Target, constant

Network = tuple[np.ndarray, np.ndarray, np.ndarray]


def network(seed: int, k: int, r: int, p: int = 1, norms: tuple[float, float] = (1.0, 1.0)) -> Network:
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((k, r))
    W *= (rng.uniform(*norms, k) / np.linalg.norm(W, axis=1))[:, None]
    A = rng.choice([-1.0, 1.0], (p, k)) * rng.uniform(0.5, 1.5, (p, k))
    return W, rng.normal(0.0, 0.7, k), A


def perturbed(W: np.ndarray, b: np.ndarray, size: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1000 + seed)
    k, r = W.shape
    return W + size / np.sqrt(r) * rng.standard_normal((k, r)), b + size * rng.standard_normal(k)


def parameter_error(found: Network, truth: Network) -> float:
    """The largest deviation of any parameter, up to permutation and the sign of (w, b)."""
    cosines = found[0] @ truth[0].T / np.linalg.norm(found[0], axis=1)[:, None]
    i, j = linear_sum_assignment(-np.abs(cosines))
    sign = np.sign(cosines[i, j])
    return max(
        float(np.abs(found[0][i] * sign[:, None] - truth[0][j]).max()),
        float(np.abs(found[1][i] * sign - truth[1][j]).max()),
        float(np.abs(found[2][:, i] - truth[2][:, j]).max()),
    )


def quadrature(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n², 2) and weights of E over N(0, I₂)."""
    g, w = hermegauss(n)
    nodes = np.stack(np.meshgrid(g, g, indexing="ij"), axis=-1).reshape(-1, 2)
    return nodes, np.outer(w, w).ravel() / (2.0 * np.pi)


def test_moments_are_expectations_of_hermite_products() -> None:
    W, b, A = network(0, 3, 2, p=2, norms=(0.4, 1.8))
    X, w = quadrature()
    Y = get("sigmoid")(X @ W.T + b) @ A.T
    moments = network_moments(W, b, A, get("sigmoid"), (0, 1, 2, 3, 4))
    for j in range(5):
        full, expected = unpack(moments[j], 2, j), np.empty((2, *(2,) * j))
        for index in np.ndindex((2,) * j):
            He = np.prod([hermeval(X[:, m], np.eye(j + 1)[index.count(m)]) for m in range(2)], axis=0)
            expected[(..., *index)] = (w * He) @ Y
        np.testing.assert_allclose(full, expected, atol=1e-8)


def test_moments_are_the_dense_sums_of_the_lemma() -> None:
    # [ATV21, Lemma 3.5]
    W, b, A = network(1, 4, 3, p=2)
    h = get("relu").hermite(b, 4)
    moments = network_moments(W, b, A, get("relu"), (1, 2, 3, 4))
    for j in range(1, 5):
        dense = sum(np.multiply.outer(A[:, i] * h[j, i], reduce(np.multiply.outer, [W[i]] * j)) for i in range(4))
        np.testing.assert_allclose(unpack(moments[j], 3, j), dense, atol=1e-13)


def test_the_norm_of_a_homogeneous_units_row_is_a_factor() -> None:
    W, b, A = network(2, 4, 3, norms=(0.5, 2.0))
    s = np.linalg.norm(W, axis=1)
    for spec, power in (("relu", 1.0), ("power(2)", 2.0), ("step", 0.0)):
        ours = network_moments(W, b, A, get(spec), (0, 1, 2, 3))
        unit = network_moments(W / s[:, None], b / s, A * s**power, get(spec), (0, 1, 2, 3))
        for j in range(4):
            np.testing.assert_allclose(ours[j], unit[j], rtol=1e-12, atol=1e-14)


def moment_risk(first: Mapping[int, np.ndarray], second: Mapping[int, np.ndarray], r: int) -> np.ndarray:
    """Return Σⱼ ‖Tⱼ − T̂ⱼ‖_F² / j! of every output, over the orders of `first` [ATV21, Prop. 3.6]."""
    terms = [inner(first[j] - second[j], first[j] - second[j], r, j) / factorial(j) for j in sorted(first)]
    return np.sum(terms, axis=0)


def test_the_risk_is_the_mean_squared_difference() -> None:
    # [ATV21, Prop. 3.6]; for these sigmoids the orders above 12 hold less than 1e-7.
    first, second = network(3, 3, 2, p=2), network(4, 4, 2, p=2)
    orders = tuple(range(13))
    X, w = quadrature()
    difference = [get("sigmoid")(X @ W.T + b) @ A.T for W, b, A in (first, second)]
    expected = w @ (difference[0] - difference[1]) ** 2
    T, S = (network_moments(*net, get("sigmoid"), orders) for net in (first, second))
    np.testing.assert_allclose(moment_risk(T, S, 2), expected, rtol=1e-6)
    lower = moment_risk({j: T[j] for j in (1, 2, 3)}, S, 2)
    assert np.all(lower < moment_risk(T, S, 2))


@pytest.mark.parametrize("spec", ["sigmoid", "exp"])
def test_coefficients_of_scaled_units(spec: str) -> None:
    b, s = np.array([-1.0, 0.3, 2.0, 0.0]), np.array([0.2, 1.0, 2.5, 6.0])
    F = scaled_hermite(get(spec), b, s, 6)
    np.testing.assert_allclose(F[:, 1], get(spec).hermite(b[1], 6), rtol=1e-12, atol=1e-13)
    if spec == "exp":
        j = np.arange(7)[:, None]
        np.testing.assert_allclose(F, s**j * np.exp(b + s * s / 2), rtol=1e-9)


POINTS: list[tuple[str, Profile, int]] = [
    ("constant", constant, 0),
    ("relu", unit_profile(get("relu")), 1),
    ("leaky_relu(0.1)", unit_profile(get("leaky_relu(0.1)")), 1),
    ("sigmoid", scaled_profile(get("sigmoid")), 2),
]


@pytest.mark.parametrize(("name", "profile", "m"), POINTS)
@pytest.mark.parametrize("orders", [(0, 1, 2, 3, 4), (2, 3), (4,), (1,)])
def test_gradient_and_inner_products_match_finite_differences(
    name: str, profile: Profile, m: int, orders: tuple[int, ...]
) -> None:
    k, r, q = 3, 3, 3 + m
    rng = np.random.default_rng(5)
    truth = network(6, k, r, p=2)
    tensors = network_moments(*truth, get("relu"), orders)
    target = Target.of(tensors, r, {j: 1.0 / factorial(j) for j in orders})
    point = PowerPoint(target, profile, network(7, k, r)[0], 0.5 * rng.standard_normal((k, m)), np.full(m, 5.0))
    step = 1e-5
    moved = [(point.moved(s), point.moved(-s)) for s in step * np.eye(k * q).reshape(k * q, k, q)]
    jacobian = np.array([(a.features - b.features) / (2.0 * step) for a, b in moved])
    inner = point.inner_products()
    np.testing.assert_allclose(inner.K, point.features @ point.features.T, atol=1e-12)
    expected = np.einsum("in,yjn->iy", point.features, jacobian).reshape(k, k, q)
    np.testing.assert_allclose(inner.C, expected, atol=1e-7)
    # ⟨∂φᵢ, ∂φₗ⟩: a parameter moves the feature of its own unit alone
    own = np.array([J[n // q] for n, J in enumerate(jacobian)])
    np.testing.assert_allclose(inner.B.reshape(k * q, k * q), own @ own.T, atol=1e-7)
    if np.linalg.matrix_rank(point.features, tol=1e-3) == k:
        slope = np.array([(a.loss - b.loss) / (2.0 * step) for a, b in moved])
        np.testing.assert_allclose(-2.0 * point.gradient().ravel(), slope, atol=1e-7)


@pytest.mark.parametrize(("spec", "needed"), [("relu", 10), ("leaky_relu(0.1)", 10), ("sigmoid", 9)])
@pytest.mark.parametrize("orders", [(0, 1, 2, 3, 4), (2, 3, 4)])
@pytest.mark.parametrize("p", [1, 3])
def test_networks_come_back_from_exact_moments(spec: str, needed: int, orders: tuple[int, ...], p: int) -> None:
    act, solved = get(spec), 0
    for seed in range(10):
        truth = network(seed, 6, 6, p, norms=(1.0, 1.0) if act.homogeneity else (0.7, 1.5))
        start = perturbed(*truth[:2], 0.2, seed)
        fit = fit_moments(network_moments(*truth, act, orders), *start, act)
        close = parameter_error((fit.W, fit.b, fit.A), truth) < (1e-10 if act.homogeneity else 1e-8)
        solved += close
        assert not close or fit.loss < 1e-25
    assert solved >= needed


def test_more_units_than_dimensions() -> None:
    solved = 0
    for seed in range(5):
        truth = network(seed, 12, 8)
        start = perturbed(*truth[:2], 0.2, seed)
        fit = fit_moments(network_moments(*truth, get("relu"), (2, 3, 4)), *start, get("relu"))
        solved += parameter_error((fit.W, fit.b, fit.A), truth) < 1e-10
    assert solved == 5


def test_random_starts_for_several_outputs() -> None:
    # Without orders 0 and 1 the sign of a unit is free and cannot be wrong; measured 29 of 30.
    solved = 0
    for seed in range(10):
        truth = network(seed, 8, 8, p=4)
        start = network(100 + seed, 8, 8)
        fit = fit_moments(network_moments(*truth, get("relu"), (2, 3, 4)), start[0], start[1], get("relu"))
        solved += parameter_error((fit.W, fit.b, fit.A), truth) < 1e-10
    assert solved >= 8


def test_the_error_grows_like_the_noise() -> None:
    medians = []
    for level in (1e-7, 1e-6, 1e-5):
        errors = []
        for seed in range(8):
            truth = network(seed, 5, 5)
            T = network_moments(*truth, get("relu"), (2, 3, 4))
            rng = np.random.default_rng(seed)
            T = {j: T[j] + level * rng.standard_normal(T[j].shape) for j in T}
            fit = fit_moments(T, truth[0], truth[1], get("relu"))
            errors.append(parameter_error((fit.W, fit.b, fit.A), truth))
        medians.append(np.median(errors))
    assert np.all(np.abs(np.diff(np.log10(medians)) - 1.0) < 0.1)


def test_the_loss_is_the_risk_of_the_fit() -> None:
    truth = network(8, 5, 4)
    orders = (0, 1, 2, 3)
    T = network_moments(*truth, get("relu"), orders)
    fit = fit_moments(T, *network(9, 2, 4)[:2], get("relu"))
    ours = network_moments(fit.W, fit.b, fit.A, get("relu"), orders)
    assert fit.loss == pytest.approx(moment_risk(T, ours, 4)[0], rel=1e-10)
    weighted = fit_moments(T, fit.W, fit.b, get("relu"), weights={0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}, max_iterations=0)
    assert weighted.loss == pytest.approx(2.0 * fit.loss, rel=1e-8)


def test_rotating_the_moments_rotates_the_fit() -> None:
    # Five units fitted by four: the optimum is not the truth, but it turns with it.
    W, b, A = network(10, 5, 5)
    A[:, 4] *= 1e-2
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    plain, turned = (
        fit_moments(network_moments(V, b, A, get("relu"), (2, 3, 4)), V[:4], b[:4], get("relu")) for V in (W, W @ Q.T)
    )
    assert plain.loss > 1e-8
    assert turned.loss == pytest.approx(plain.loss, rel=1e-9)
    assert parameter_error((turned.W, turned.b, turned.A), (plain.W @ Q.T, plain.b, plain.A)) < 1e-5


def test_lost_biases_stop_at_the_limit() -> None:
    # One unit more than the truth has: the search would like to send it to infinity.
    for seed in range(5):
        truth = network(seed, 3, 3)
        fit = fit_moments(
            network_moments(*truth, get("relu"), (0, 1, 2, 3, 4)), *network(50 + seed, 5, 3)[:2], get("relu")
        )
        assert np.all(np.isfinite(fit.A))
        assert np.abs(fit.b).max() <= 5.0


def test_what_is_not_a_moment_is_refused() -> None:
    W, b, A = network(12, 3, 3)
    T = network_moments(W, b, A, get("relu"), (2, 3))
    with pytest.raises(ValueError, match="finite"):
        fit_moments({2: T[2] * np.nan}, W, b, get("relu"))
    with pytest.raises(ValueError, match="finite and not zero"):
        fit_moments(T, 0.0 * W, b, get("relu"))
    with pytest.raises(ValueError, match="At least one tensor"):
        fit_power_sum({}, W)
    with pytest.raises(ValueError, match="positive"):
        fit_moments(T, W, b, get("relu"), weights={2: 0.0})
