"""Theorems 8 to 10 and the search of Section 3."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.algorithms.gp18.cliques import correlation_cliques
from neurecover.algorithms.gp18.even import even_units
from neurecover.algorithms.gp18.exponential import (
    TiltedMeans,
    exponential_cliques,
    exponential_units,
)
from neurecover.algorithms.gp18.steep import correlation, gradient_search, jump_order
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.simulate import matrices
from neurecover.simulate.composites import composite_teacher, products
from neurecover.statistics import HermiteSums
from neurecover.tensors import rank_one, unpack

W3 = np.array([[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]], dtype=float)


def as_set(W: np.ndarray) -> set[tuple[float, ...]]:
    return set(map(tuple, W))


def test_correlations_follow_the_corrected_exponent() -> None:
    """E[f xᵢxⱼ] = ρ² e^{−ρ(t − ρ m/2)} within a unit of m inputs, for the linear part [GP18, D.1 corrected]."""
    rho, t = 0.4, 2.0
    X = np.random.default_rng(0).standard_normal((200_000, 7))
    f = np.exp(rho * (X @ W3.T - t)).sum(axis=1)
    T2 = unpack(reduce(ArraySource(X, f), HermiteSums(7, 1, 2)).coefficients().packed(2)[0], 7, 2)
    assert T2[0, 1] == pytest.approx(rho**2 * np.exp(-rho * (t - rho * 2 / 2)), rel=0.03)
    assert abs(T2[0, 2]) < 0.003


def test_cliques() -> None:
    second = W3.T @ W3 + 0.1 * np.ones((7, 7))
    found = correlation_cliques(second)
    assert as_set(found.W) == as_set(W3)
    assert found.gap > 5
    chain = np.eye(4) + np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
    with pytest.raises(UnsolvableError, match="disjoint"):
        correlation_cliques(chain)
    with pytest.raises(UnsolvableError, match="No two inputs"):
        correlation_cliques(np.eye(3))


def test_unequal_correlations_are_not_one_clique() -> None:
    """Three units with products between them: the widest gap is the one to the input that no unit has."""
    used = W3.sum(axis=0)
    second = W3.T @ W3 + 0.3 * np.outer(used, used) + 1e-6
    assert len(correlation_cliques(second).W) == 1
    assert as_set(correlation_cliques(second, np.full((7, 7), 0.01)).W) == as_set(W3)
    assert as_set(correlation_cliques(second, n_hidden=3).W) == as_set(W3)


def test_tilted_means_are_shifted_means() -> None:
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((400_000, 3)), np.array([0.3, -0.2, 0.1])
    f = lambda x: np.exp(0.3 * x[:, 0]) + x[:, 1] ** 2  # noqa: E731
    tilted = reduce(ArraySource(X, f(X)), TiltedMeans(z))
    assert tilted.average("value") == pytest.approx(f(X + z).mean(), rel=0.01)
    assert tilted.average("gradient")[1] == pytest.approx(2 * z[1], abs=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_exponential_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60_000, 7))
    f = products(3, product=0.1)(np.exp(X @ W3.T))
    assert as_set(exponential_units(ArraySource(X, f), rng).W) == as_set(W3)
    assert as_set(exponential_cliques(ArraySource(X, f)).W) == as_set(W3)


def test_tilted_correlations_are_the_curvature_of_the_shifted_mean() -> None:
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((400_000, 3)), np.array([-0.3, -0.2, 0.1])
    f = np.exp(0.3 * X[:, 0] + 0.2 * X[:, 1]) + X[:, 2] ** 2
    second = reduce(ArraySource(X, f), TiltedMeans(z)).average("second")
    tilt = np.exp(0.3 * z[0] + 0.2 * z[1] + 0.5 * (0.3**2 + 0.2**2))  # E of e^{a·(x + z)}
    expected = tilt * np.outer([0.3, 0.2, 0.0], [0.3, 0.2, 0.0]) + np.diag([0.0, 0.0, 2.0])
    np.testing.assert_allclose(second, expected, atol=0.03)


@pytest.mark.parametrize(("d", "k", "size"), [(12, 4, 3), (12, 3, 4)])
def test_exponential_cliques_at_other_sizes(d: int, k: int, size: int) -> None:
    rng = np.random.default_rng(0)
    W = np.zeros((k, d))
    W[np.repeat(np.arange(k), size), rng.permutation(d)[: k * size]] = 1.0
    X = rng.standard_normal((60_000, d))
    f = products(k, product=0.3)(np.exp(X @ W.T))
    assert as_set(exponential_cliques(ArraySource(X, f)).W) == as_set(W)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 2, 3)])
def test_exponential_units_of_one_input(sizes: tuple[int, ...]) -> None:
    """Within a unit ∂ᵢ∂ⱼg = √(∂ᵢg ∂ⱼg), so that inputs that share nothing but products are units by themselves."""
    W = np.zeros((3, 9))
    W[np.repeat(np.arange(3), sizes), np.arange(sum(sizes))] = 1.0
    X = np.random.default_rng(3).standard_normal((60_000, 9))
    assert as_set(exponential_cliques(ArraySource(X, products(3)(np.exp(X @ W.T)))).W) == as_set(W)


def test_exponential_units_refuse_negative_outputs() -> None:
    X = np.random.default_rng(0).standard_normal((500, 3))
    with pytest.raises(UnsolvableError, match="positive mean"):
        exponential_units(ArraySource(X, -np.ones(500)), np.random.default_rng(0))
    with pytest.raises(UnsolvableError, match="positive mean"):
        exponential_cliques(ArraySource(X, -np.ones(500)))


def test_even_units_from_exact_moments_with_cross_terms() -> None:
    """T₄ = Σ αᵢ wᵢ⁴ + cross terms γ sym(wᵢwᵢwⱼwⱼ), γ < α: the corrected form of [GP18, D.3]."""
    rng = np.random.default_rng(0)
    W = matrices.orthonormal(rng, 3, 5)
    alpha = np.array([1.0, 0.8, 1.2])
    T = rank_one(W, 4, alpha)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        # 12 sym(w w v v) = (w+v)⁴ + (w−v)⁴ − 2w⁴ − 2v⁴, and sym(w w v v)(z⁴) = (w·z)²(v·z)²
        pair = np.array([W[i] + W[j], W[i] - W[j], W[i], W[j]])
        T = T + 0.7 * rank_one(pair, 4, np.array([1.0, 1.0, -2.0, -2.0])) / 12
    found = even_units(T, 5, 3, rng)
    assert np.abs(W @ found.W.T).max(axis=1).min() > 1 - 1e-8


def test_even_units_from_samples() -> None:
    rng = np.random.default_rng(1)
    W = matrices.orthonormal(rng, 3, 4)
    X = rng.standard_normal((60_000, 4))
    f = products(3)(np.abs(X @ W.T))
    T4 = reduce(ArraySource(X, f), HermiteSums(4, 1, 4)).coefficients().packed(4)[0]
    assert np.abs(W @ even_units(T4, 4, 3, rng, sign=-1.0).W.T).max(axis=1).min() > 0.99


@pytest.mark.parametrize("order", [1, 2])
def test_correlation_gradient_against_differences(order: int) -> None:
    rng = np.random.default_rng(0)
    X, f = rng.standard_normal((500, 3)), rng.standard_normal(500)
    z, s, e = np.array([0.6, 0.8, 0.0]), 0.7, 1e-6
    _, dz, ds = correlation(z, s, X, f, 0.3, order)
    numeric = [
        (correlation(z + e * v, s, X, f, 0.3, order)[0] - correlation(z - e * v, s, X, f, 0.3, order)[0]) / (2 * e)
        for v in np.eye(3)
    ]
    np.testing.assert_allclose(dz, numeric, rtol=1e-5, atol=1e-7)
    numeric_s = (correlation(z, s + e, X, f, 0.3, order)[0] - correlation(z, s - e, X, f, 0.3, order)[0]) / (2 * e)
    assert ds == pytest.approx(numeric_s, rel=1e-5)


@pytest.mark.parametrize(("activation", "n"), [("step", 50_000), ("relu", 40_000)])
def test_gradient_search_needs_no_linear_term(activation: str, n: int) -> None:
    upper = products(3, linear=0.0)  # X₁X₂ + X₁X₃ + X₂X₃ alone
    truth = composite_teacher(3, 3, upper, threshold=0.5, kind="orthonormal", activation=activation, random_state=0)
    X = np.random.default_rng(0).standard_normal((n, 3))
    found = gradient_search(ArraySource(X, truth(X)), activation, 3, np.random.default_rng(0))
    cos = truth.W @ found.W.T
    assert cos.max(axis=1).min() > 0.98
    np.testing.assert_allclose(found.threshold, 0.5, atol=0.1)


def test_gradient_search_finds_nothing_where_nothing_is_abrupt() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 2))
    for f in (np.tanh(X[:, 0]), rng.standard_normal(20_000)):
        with pytest.raises(UnsolvableError, match="no direction stands out"):
            gradient_search(ArraySource(X, f), "relu", 2, rng)


def test_gradient_search_of_many_inputs_takes_place_in_the_span_of_the_units() -> None:
    """Twelve inputs have 250,000 starts; the span of three units, seen through three orders, has few."""
    truth = composite_teacher(
        12, 3, products(3, linear=0.0), threshold=0.5, kind="orthonormal", activation="step", random_state=0
    )
    X = np.random.default_rng(0).standard_normal((50_000, 12))
    found = gradient_search(ArraySource(X, truth(X)), "step", 3, np.random.default_rng(0))
    assert (truth.W @ found.W.T).max(axis=1).min() > 0.98
    np.testing.assert_allclose(found.threshold, 0.5, atol=0.1)


def test_gradient_search_knows_units_that_bend() -> None:
    upper = products(3, linear=0.0)
    truth = composite_teacher(3, 3, upper, threshold=0.5, kind="orthonormal", activation="abs", random_state=0)
    X = np.random.default_rng(0).standard_normal((40_000, 3))
    found = gradient_search(ArraySource(X, truth(X)), "abs", 3, np.random.default_rng(0))
    assert np.abs(truth.W @ found.W.T).max(axis=1).min() > 0.98


@pytest.mark.parametrize(
    ("activation", "order"),
    [
        *(("step", 1), ("relu", 2), ("leaky_relu(0.2)", 2), ("abs", 2)),
        *((name, None) for name in ("identity", "square", "power(2)", "power(0.5)", "tanh")),
    ],
)
def test_the_derivative_that_jumps(activation: str, order: int | None) -> None:
    assert jump_order(get(activation)) == order


def test_gradient_search_refuses() -> None:
    X = np.zeros((10, 9))
    with pytest.raises(ValueError, match="within reach"):
        gradient_search(ArraySource(X, np.zeros(10)), "step", 7, np.random.default_rng(0))
    with pytest.raises(ValueError, match="jump"):
        gradient_search(ArraySource(X, np.zeros(10)), "sigmoid", 1, np.random.default_rng(0))
