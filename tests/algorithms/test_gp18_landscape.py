"""Landscapes, Hermite paths and their identities."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.algorithms.gp18.landscape.objectives import Landscape, one_by_one, simultaneous, units_of
from neurecover.algorithms.gp18.landscape.rejection import Rejected
from neurecover.algorithms.gp18.landscape.step_one import Directions, directions, hermite_coefficients, thresholds
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.simulate import matrices
from neurecover.simulate.composites import composite_teacher, powers, products
from neurecover.statistics import HermiteSums
from neurecover.tensors import rank_one, unpack


def exact(W: np.ndarray, c: np.ndarray, t: float = 1.5) -> dict[int, np.ndarray]:
    h = get("relu").hermite(-t, 4)
    return {j: rank_one(W, j, c * h[j]) for j in (1, 2, 3, 4)}


def distance(V: np.ndarray, W: np.ndarray) -> float:
    C = W @ V.T
    partner = np.argmax(np.abs(C), axis=1)
    assert len(set(partner)) == len(W)
    return float(np.linalg.norm(W - np.sign(C[np.arange(len(W)), partner])[:, None] * V[partner], axis=1).max())


@pytest.fixture
def case() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return matrices.unit_rows(rng, 5, 5), rng.uniform(0.5, 1.5, 5)


def test_gradients_and_hessians_against_differences(case: tuple[np.ndarray, np.ndarray]) -> None:
    T = exact(*case)
    L = Landscape.of(unpack(T[2], 5, 2), T[4])
    rng = np.random.default_rng(0)
    Z, e = rng.standard_normal((3, 5)), 1e-5
    _, gradient, hessian = L.all(Z)
    shifts = [e * v.reshape(3, 5) for v in np.eye(15)]
    numeric = np.array([(L.all(Z + s)[0] - L.all(Z - s)[0]) / (2 * e) for s in shifts])
    np.testing.assert_allclose(gradient.ravel(), numeric, rtol=1e-6, atol=1e-6)
    numeric = np.array([(L.all(Z + s)[1] - L.all(Z - s)[1]).ravel() / (2 * e) for s in shifts])
    np.testing.assert_allclose(hessian, numeric, rtol=1e-6, atol=1e-6)
    _, gradient, hessian = L.one(Z[0])
    numeric = np.array([(L.one(Z[0] + e * v)[0] - L.one(Z[0] - e * v)[0]) / (2 * e) for v in np.eye(5)])
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
    numeric = np.array([(L.one(Z[0] + e * v)[1] - L.one(Z[0] - e * v)[1]) / (2 * e) for v in np.eye(5)])
    np.testing.assert_allclose(hessian, numeric, rtol=1e-6, atol=1e-6)


def test_the_printed_psi_needs_a_minus() -> None:
    """He₄(v, v, w, w) of a sample is 2H₂H₂ + 2(v·w)² − 4(v·x)(w·x)(v·w)."""
    rng = np.random.default_rng(1)
    v, w, x = rng.standard_normal((3, 4))
    H2 = lambda z: ((z @ x) ** 2 - z @ z) / np.sqrt(2)  # noqa: E731
    eye = np.eye(4)
    xx = np.outer(x, x)
    pairs = sum(np.einsum(f"{a},{b}->abcd", xx, eye) for a, b in (("ab", "cd"), ("ac", "bd"), ("ad", "bc")))
    pairs = pairs + sum(np.einsum(f"{a},{b}->abcd", eye, xx) for a, b in (("ab", "cd"), ("ac", "bd"), ("ad", "bc")))
    ones = sum(np.einsum(f"{a},{b}->abcd", eye, eye) for a, b in (("ab", "cd"), ("ac", "bd"), ("ad", "bc")))
    He4 = np.einsum("a,b,c,d->abcd", x, x, x, x) - pairs + ones
    value = np.einsum("abcd,a,b,c,d", He4, v, v, w, w)
    assert value == pytest.approx(2 * H2(v) * H2(w) + 2 * (v @ w) ** 2 - 4 * (v @ x) * (w @ x) * (v @ w))


@pytest.mark.parametrize("solve", [one_by_one, simultaneous])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_exact_moments_give_the_units_from_every_start(solve, sign, case) -> None:  # type: ignore[no-untyped-def]
    W, c = case
    T = exact(W, c)
    for seed in range(10):
        V = solve(sign * unpack(T[2], 5, 2), sign * T[4], np.random.default_rng(seed))
        assert distance(V, W) < 1e-6


def test_minima_are_multiples_of_the_columns_of_the_inverse(case: tuple[np.ndarray, np.ndarray]) -> None:
    W, c = case
    columns = np.linalg.inv(np.sqrt(c)[:, None] * W).T
    np.testing.assert_allclose(units_of(3.0 * columns), W, atol=1e-12)
    T = exact(W, c)
    L = Landscape.of(unpack(T[2], 5, 2), T[4])
    z = columns[0] / np.sqrt(columns[0] @ L.M @ columns[0])
    _, gradient, _ = L.one(z)
    np.testing.assert_allclose(gradient - (gradient @ L.M @ z) / (z @ L.M @ L.M @ z) * L.M @ z, 0.0, atol=1e-10)


def test_the_landscape_refuses_mixed_signs(case: tuple[np.ndarray, np.ndarray]) -> None:
    W, c = case
    T = exact(W, c * [1, -1, 1, 1, 1])
    with pytest.raises(UnsolvableError, match="of one sign"):
        one_by_one(unpack(T[2], 5, 2), T[4], np.random.default_rng(0))


@pytest.mark.parametrize("path", ["tensor", "one_by_one", "simultaneous"])
def test_all_paths_find_fewer_units_than_inputs(path: str) -> None:
    rng = np.random.default_rng(2)
    W, c = matrices.unit_rows(rng, 4, 7), rng.uniform(0.5, 1.5, 4)
    T = exact(W, c)
    found = directions(T, 7, rng, path=path)  # the number of units from the rank
    assert found.W.shape == (4, 7)
    assert distance(found.W, W) < 1e-5
    np.testing.assert_allclose(thresholds(found, get("relu")), 1.5, atol=0.01)


@pytest.mark.parametrize("activation", ["relu", "step", "sigmoid"])
def test_signs_from_the_second_and_third_coefficients(activation: str) -> None:
    """Whatever the signs of the linear terms and of the rows that the decomposition happens to return."""
    rng = np.random.default_rng(4)
    W, c = matrices.unit_rows(rng, 4, 4), np.array([1.0, -0.7, 1.3, -1.0])
    h = get(activation).hermite(-2.0, 3)
    T = {j: rank_one(W, j, c * h[j]) for j in (1, 2, 3)}
    flipped = directions(T, 4, rng)
    for signs in (np.ones(4), np.array([1.0, -1.0, -1.0, 1.0])):
        turned = Directions(flipped.W * signs[:, None], {j: a * signs**j for j, a in flipped.weights.items()})
        np.testing.assert_allclose((W @ turned.signed(get(activation)).W.T).max(axis=1), 1.0, atol=1e-8)


def test_several_degrees_in_one_variable() -> None:
    """[GP18, B.7]: powers of a unit change its weight, not its direction."""
    truth = composite_teacher(5, 5, powers(5, 3), kind="orthonormal", random_state=0)
    X = np.random.default_rng(0).standard_normal((60_000, 5))
    T, error = hermite_coefficients(ArraySource(X, truth(X)), len(X), 3)
    found = directions(T, 5, np.random.default_rng(0), n_hidden=5, standard_error=error)
    assert np.abs(truth.W @ found.W.T).max(axis=1).min() > 0.97


def test_rejection_gives_scaled_coefficients() -> None:
    """[GP18, B.6]: plain means over kept samples are E[f h]/E[f]."""
    truth = composite_teacher(
        4, 4, products(4, 1), threshold=3.0, kind="orthonormal", activation="sigmoid", random_state=0
    )
    X = np.random.default_rng(0).standard_normal((200_000, 4))
    y = truth(X)
    kept = Rejected(ArraySource(X, y), float(y.max()), seed=1)
    sums = reduce(kept, HermiteSums(4, 1, 3, regress=-1))
    assert 1_000 < sums.n < 100_000
    assert reduce(kept, HermiteSums(4, 1, 1, regress=-1)).n == sums.n  # every pass keeps the same rows
    h = get("sigmoid").hermite(-3.0, 3)
    for j in (1, 2, 3):
        expected = rank_one(truth.W, j, np.full(4, h[j])) / (4 * h[0])
        np.testing.assert_allclose(sums.coefficients().packed(j)[0], expected, atol=6 * np.sqrt(6 / sums.n))
    with pytest.raises(ValueError, match="from 0 to the ceiling"):
        reduce(Rejected(ArraySource(X, y - 1.0), 1.0, seed=1), HermiteSums(4, 1, 1))


def test_too_many_units_and_pure_noise_are_refused() -> None:
    rng = np.random.default_rng(0)
    T = exact(matrices.unit_rows(rng, 3, 3), np.ones(3))
    with pytest.raises(ValueError, match="at most as many units"):
        directions(T, 3, rng, n_hidden=4)
    with pytest.raises(UnsolvableError, match="do not rise above"):
        directions(T, 3, rng, standard_error=10.0)
    assert isinstance(directions(T, 3, rng), Directions)
