"""Hermite features and coefficients against polynomials, quadrature, lemmas and each other."""

from collections.abc import Callable
from itertools import combinations_with_replacement, permutations
from math import factorial, prod

import numpy as np
import pytest
from numpy.polynomial import hermite_e

from neurecover.models import Network
from neurecover.simulate import sample, teacher
from neurecover.statistics import HermiteCoefficients, HermiteSums, regression_degree
from neurecover.statistics.moments.hermite import hermite_features, n_features, root_factorials


def _indices(r: int, degree: int) -> list[tuple[int, ...]]:
    """Sorted index tuples by degree, then in lexicographic order."""
    return [a for j in range(degree + 1) for a in combinations_with_replacement(range(r), j)]


def _alpha_factorial(indices: tuple[int, ...]) -> int:
    return prod(factorial(indices.count(i)) for i in set(indices))


def _hermite_product(Z: np.ndarray, indices: tuple[int, ...]) -> np.ndarray:
    """∏ᵢ He_{αᵢ}(zᵢ), not normalised."""
    value = np.ones(len(Z))
    for i in set(indices):
        value *= hermite_e.hermeval(Z[:, i], [0] * indices.count(i) + [1])
    return value


def _rank_one(w: np.ndarray, order: int) -> np.ndarray:
    """The distinct entries of w^{⊗order}."""
    return np.array([prod(w[i] for i in a) for a in combinations_with_replacement(range(len(w)), order)])


def _full(packed: np.ndarray, r: int, order: int) -> np.ndarray:
    """The symmetric tensor of one output, from its distinct entries."""
    tensor = np.empty((r,) * order)
    for value, indices in zip(packed, combinations_with_replacement(range(r), order), strict=True):
        for permuted in permutations(indices):
            tensor[permuted] = value
    return tensor


def _population(net: Network, order: int) -> np.ndarray:
    """Σᵢ aᵢ h_j(bᵢ) wᵢ^{⊗j} for unit rows [ATV21, Lemma 3.5], (p, …)."""
    h = net.activation.hermite(net.b, order)[order]
    return (net.A * h) @ np.array([_rank_one(w, order) for w in net.W])


def _estimate(X: np.ndarray, Y: np.ndarray, degree: int, regress: int | None = None) -> HermiteCoefficients:
    statistic = HermiteSums(X.shape[1], Y.shape[1], degree, regress)
    for rows in np.array_split(np.arange(len(X)), 3):
        statistic.update(X[rows], Y[rows])
    return statistic.coefficients()


@pytest.mark.parametrize(("r", "degree"), [(1, 6), (2, 5), (3, 4), (5, 4), (7, 2), (4, 1), (3, 0)])
def test_features_are_normalised_products_in_the_stated_order(r: int, degree: int) -> None:
    Z = np.random.default_rng(0).standard_normal((20, r))
    features = hermite_features(Z, degree)
    indices = _indices(r, degree)
    assert len(features) == len(indices) == n_features(r, degree)
    for feature, a in zip(features, indices, strict=True):
        expected = _hermite_product(Z, a) / np.sqrt(_alpha_factorial(a))
        np.testing.assert_allclose(feature, expected, rtol=1e-12, atol=1e-12)
    last = [a for a in indices if len(a) == degree]
    np.testing.assert_allclose(root_factorials(r, degree), np.sqrt([_alpha_factorial(a) for a in last]))


@pytest.mark.parametrize(("r", "degree"), [(1, 8), (2, 5), (3, 4)])
def test_features_are_orthonormal_under_the_gaussian(r: int, degree: int) -> None:
    # Gauss–Hermite quadrature with degree + 1 nodes is exact for products of two features.
    nodes, weights = hermite_e.hermegauss(degree + 1)
    Z = np.stack(np.meshgrid(*[nodes] * r, indexing="ij"), axis=-1).reshape(-1, r)
    measure = prod(np.meshgrid(*[weights / weights.sum()] * r, indexing="ij")).ravel()
    features = hermite_features(Z, degree)
    np.testing.assert_allclose((features * measure) @ features.T, np.eye(len(features)), atol=1e-12)


def test_without_regression_the_coefficients_are_the_plain_means() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((50, 3)), rng.standard_normal((50, 2))
    coefficients = _estimate(X, Y, 4, regress=-1)
    for j in range(5):
        means = [Y.T @ _hermite_product(X, a) / 50 for a in combinations_with_replacement(range(3), j)]
        np.testing.assert_allclose(coefficients.packed(j), np.transpose(means), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(coefficients.residual_variance, np.mean(Y**2, axis=0), rtol=1e-12)
    assert coefficients.freedom == 50


@pytest.mark.parametrize("regress", [0, 1, 2, 3, 4])
def test_regression_is_least_squares_and_the_rest_averages_its_residual(regress: int) -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    coefficients = _estimate(X, Y, 4, regress)
    features = hermite_features(X, 4).T
    Fq = n_features(3, regress)
    beta = np.linalg.lstsq(features[:, :Fq], Y, rcond=None)[0]
    residual = Y - features[:, :Fq] @ beta
    expected = np.vstack([beta, features[:, Fq:].T @ residual / 200])
    np.testing.assert_allclose(coefficients.values, expected.T, atol=1e-11)
    np.testing.assert_allclose(coefficients.residual_variance, np.mean(residual**2, axis=0), rtol=1e-10)
    assert coefficients.freedom == 200 - Fq


@pytest.mark.parametrize("inputs", ["gaussian", "laplace", "uniform"])
def test_a_polynomial_is_regressed_exactly_whatever_the_sample(inputs: str) -> None:
    # y = a (w·x + b)⁴ with ‖w‖ = 1 has T_j = a · 4!/(4−j)! · E[(g + b)^{4−j}] w^{⊗j}.
    rng = np.random.default_rng(3)
    d, n = 4, 300
    w, a, b = np.array([0.6, 0.0, -0.8, 0.0]), np.array([1.5, -0.5]), np.array([0.7, -1.0])
    X = {"gaussian": rng.standard_normal, "laplace": lambda size: rng.laplace(size=size)}.get(
        inputs, lambda size: rng.uniform(-2, 2, size)
    )((n, d))
    Y = a * ((X @ w)[:, None] + b) ** 4
    coefficients = _estimate(X, Y, 4)
    powers = [b**4 + 6 * b**2 + 3, b**3 + 3 * b, b**2 + 1, b, np.ones(2)]
    for j in range(5):
        scale = a * factorial(4) / factorial(4 - j) * powers[j]
        np.testing.assert_allclose(coefficients.packed(j), np.outer(scale, _rank_one(w, j)), atol=1e-10)
    assert coefficients.residual_variance.max() < 1e-12 * np.mean(Y**2)


def test_relu_coefficients_approach_the_population_within_their_standard_errors() -> None:
    net = teacher(4, 6, 2, random_state=0)
    X, Y = sample(net, 60_000, noise=0.3, random_state=1)
    coefficients = _estimate(X, Y, 4)
    error = np.sqrt(coefficients.residual_variance / coefficients.freedom)[:, None]
    scores = np.hstack(
        [(coefficients.packed(j) - _population(net, j)) / error / root_factorials(4, j) for j in range(5)]
    )
    assert np.abs(scores).max() < 5
    assert 0.8 < np.sqrt(np.mean(scores**2)) < 1.4


def _relative_errors(n: int, d: int, noise: float, regress: int, seeds: int) -> np.ndarray:
    """Error of every order 0 … 4, per seed: ‖T̂_j − T_j‖ over distinct entries, (seeds, 5)."""
    errors = []
    for seed in range(seeds):
        net = teacher(d, d, random_state=seed)
        coefficients = _estimate(*sample(net, n, noise=noise, random_state=seed), degree=4, regress=regress)
        errors.append([np.linalg.norm(coefficients.packed(j) - _population(net, j)) for j in range(5)])
    return np.array(errors)


def test_every_tier_of_regression_beats_the_plain_mean() -> None:
    plain = _relative_errors(5_000, 5, 0.0, -1, seeds=20)
    # Ratios of root mean squares of orders 1 to 4 over 20 seeds, measured at 0.35–0.44, 0.16–0.28 and 0.11–0.18.
    for regress, largest in ((1, 0.6), (2, 0.4), (4, 0.25)):
        errors = _relative_errors(5_000, 5, 0.0, regress, seeds=20)
        ratio = np.sqrt(np.mean(errors**2, axis=0) / np.mean(plain**2, axis=0))
        assert np.all(ratio[1:] < largest)
        assert ratio[0] < 1
        # All orders together, no seed is better off with the plain mean.
        assert np.all(np.linalg.norm(errors, axis=1) < np.linalg.norm(plain, axis=1))


@pytest.mark.parametrize("n", [60, 150, 450, 1_100])
@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_the_chosen_degree_is_no_worse_than_the_plain_mean(n: int, noise: float) -> None:
    regress = regression_degree(n, 5, 4)
    assert regress >= 1
    chosen, plain = (_relative_errors(n, 5, noise, q, seeds=20) for q in (regress, -1))
    assert np.all(np.mean(chosen[:, 1:] ** 2, axis=0) < np.mean(plain[:, 1:] ** 2, axis=0))


def test_plain_means_of_the_projected_gaussian_are_projected_means() -> None:
    # He_j(Pᵀx) = He_j(x) contracted with P in every index, for orthonormal columns: sample by sample.
    rng = np.random.default_rng(5)
    d, r = 5, 3
    P = np.linalg.qr(rng.standard_normal((d, r)))[0]
    X, Y = rng.standard_normal((40, d)), rng.standard_normal((40, 2))
    projected = HermiteSums(d, 2, 4, regress=-1, projection=P)
    projected.update(X, Y)
    small, large = projected.coefficients(), _estimate(X, Y, 4, regress=-1)
    for j in range(5):
        for output in range(2):
            tensor = _full(large.packed(j)[output], d, j)
            for _ in range(j):
                tensor = np.tensordot(tensor, P, axes=(0, 0))  # the contracted index goes last
            np.testing.assert_allclose(_full(small.packed(j)[output], r, j), tensor, atol=1e-11)


def test_regression_in_the_span_of_the_units_is_exact_for_a_polynomial() -> None:
    rng = np.random.default_rng(6)
    d, r, mean = 6, 2, np.arange(6.0)
    P = np.linalg.qr(rng.standard_normal((d, r)))[0]
    w = np.array([0.6, 0.8])
    X = rng.standard_normal((100, d)) + mean
    Y = ((X - mean) @ P @ w)[:, None] ** 3
    statistic = HermiteSums(d, 1, 3, projection=P, mean=mean)
    statistic.update(X, Y)
    coefficients = statistic.coefficients()
    # E[g³ He_j(g)] = 0, 3, 0, 6
    for j, value in enumerate((0.0, 3.0, 0.0, 6.0)):
        np.testing.assert_allclose(coefficients.packed(j), value * _rank_one(w, j)[None], atol=1e-10)


@pytest.mark.parametrize("regress", [-1, 1, 3])
def test_several_outputs_are_each_output_alone(regress: int) -> None:
    net = teacher(3, 4, 3, random_state=0)
    X, Y = sample(net, 400, random_state=1)
    together = _estimate(X, Y, 3, regress)
    for output in range(3):
        alone = _estimate(X, Y[:, [output]], 3, regress)
        np.testing.assert_allclose(together.values[[output]], alone.values, rtol=1e-10, atol=1e-12)
        assert together.residual_variance[output] == pytest.approx(alone.residual_variance[0], rel=1e-9)


def test_regression_degree() -> None:
    # r = 10: 1, 11, 66, 286, 1001 features up to degree 0, 1, 2, 3, 4; eight samples for each.
    for n, q in ((7, -1), (8, 0), (88, 1), (8 * 66 - 1, 1), (528, 2), (2288, 3), (8007, 3), (8008, 4), (10**9, 4)):
        assert regression_degree(n, 10, 4) == q
    assert regression_degree(10**9, 10, 2) == 2
    # Full regression at r = 16 takes 2·188 MB; half a byte less falls to degree 3.
    needed = 16 * n_features(16, 4) ** 2
    assert regression_degree(10**9, 16, 4, needed) == 4
    assert regression_degree(10**9, 16, 4, needed - 1) == 3
    assert regression_degree(10**9, 200, 4) == 0


def _columns_repeated(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((500, 2))[:, [0, 1, 1]]


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.standard_normal((n_features(3, 3) - 1, 3)),
        lambda rng: rng.standard_normal((n_features(3, 3) - 1, 3)).repeat(9, axis=0),
        lambda rng: rng.choice([-1.0, 1.0], (500, 3)),
        lambda rng: rng.choice([-1.0, 0.0, 1.0], (500, 3)) * 1.1,
        _columns_repeated,
    ],
    ids=["too few", "too few, repeated", "two values", "three values", "a subspace"],
)
def test_samples_that_do_not_determine_the_regression_are_refused(
    draw: Callable[[np.random.Generator], np.ndarray],
) -> None:
    X = draw(np.random.default_rng(0))
    statistic = HermiteSums(3, 1, 3)
    statistic.update(X, X[:, :1])
    message = rf"up to degree 3 has 20 features, and {len(X)} samples do not determine them.*Lower `regress`"
    with pytest.raises(ValueError, match=message):
        statistic.coefficients()


def test_what_the_sums_refuse() -> None:
    with pytest.raises(ValueError, match=r"regress must be between −1 and degree = 2\. Got 3\."):
        HermiteSums(3, 1, 2, regress=3)
    with pytest.raises(ValueError, match=r"degree needs to be 0 or more\. Got -1 instead"):
        HermiteSums(3, 1, -1)
    with pytest.raises(ValueError, match=r"projection needs shape \(3, r\)\. Got \(2, 3\) instead"):
        HermiteSums(3, 1, projection=np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"mean needs shape \(3,\)\. Got \(1,\) instead"):
        HermiteSums(3, 1, mean=np.zeros(1))
    with pytest.raises(ValueError, match=r"at least one sample\. Got none"):
        HermiteSums(3, 1).coefficients()
    X = np.random.default_rng(0).standard_normal((50, 3))
    with pytest.raises(ValueError, match=r"from order 0 to 2\. Got 3 instead"):
        _estimate(X, X, 2).packed(3)
