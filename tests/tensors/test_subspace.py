"""The span of the units: exact tensors, noisy ones, and pure noise."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from neurecover.activations import get
from neurecover.statistics.moments.hermite import root_factorials
from neurecover.tensors import n_packed, network_moments, noise_norm, span


def moments(seed: int, d: int, k: int, p: int, orders: tuple[int, ...]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    rng = np.random.default_rng(seed)
    W, b, A = rng.standard_normal((k, d)), rng.normal(0, 0.7, k), rng.standard_normal((p, k))
    return W, network_moments(W, b, A, get("relu"), orders)


def noise(rng: np.random.Generator, d: int, p: int, orders: tuple[int, ...]) -> dict[int, np.ndarray]:
    # Independent errors of the coefficients of normalised features: T_α = √α!·coefficient.
    return {j: root_factorials(d, j) * rng.standard_normal((p, n_packed(d, j))) for j in orders}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("p", "orders"), [(1, (2,)), (1, (1, 2)), (3, (1, 2, 3)), (6, (1,))])
def test_exact_tensors_give_the_span(seed: int, p: int, orders: tuple[int, ...]) -> None:
    W, T = moments(seed, d=9, k=4, p=p, orders=orders)
    found = span(T, 9, 0.0)
    assert found.basis.shape == (9, 4)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(4), atol=1e-13)
    assert subspace_angles(found.basis, W.T).max() < 1e-10


def test_the_error_of_the_span_grows_like_the_noise() -> None:
    angles = []
    for level in (1e-6, 1e-5, 1e-4):
        worst = []
        for seed in range(10):
            W, T = moments(seed, d=9, k=4, p=2, orders=(1, 2))
            E = noise(np.random.default_rng(100 + seed), 9, 2, (1, 2))
            found = span({j: T[j] + level * E[j] for j in T}, 9, level)
            assert found.basis.shape[1] == 4
            worst.append(subspace_angles(found.basis, W.T).max())
        angles.append(np.median(worst))
    assert np.all(np.abs(np.diff(np.log10(angles)) - 1.0) < 0.05)


@pytest.mark.parametrize(
    ("d", "p", "orders"), [(8, 1, (1, 2)), (8, 4, (1, 2)), (10, 2, (1, 2, 3)), (20, 1, (1, 2)), (6, 1, (2, 3, 4))]
)
def test_pure_noise_has_rank_zero_and_the_threshold_is_not_idle(d: int, p: int, orders: tuple[int, ...]) -> None:
    largest = []
    for seed in range(50):
        found = span(noise(np.random.default_rng(seed), d, p, orders), d, 1.0, false_alarm=0.01)
        assert found.basis.shape == (d, 0)
        largest.append(found.singular_values[0])
    # The bound on the mean is not exceeded, nor is it twice what is needed.
    assert np.mean(largest) < noise_norm(d, list(orders), p, 1.0) < 2.0 * np.mean(largest)


def test_outputs_are_measured_in_their_own_noise() -> None:
    W, T = moments(0, d=8, k=3, p=2, orders=(1, 2))
    sigma = np.array([1e-4, 1e2])
    E = noise(np.random.default_rng(1), 8, 2, (1, 2))
    noisy = {j: T[j] + sigma[:, None] * E[j] for j in T}
    found = span(noisy, 8, sigma)
    assert found.basis.shape[1] == 3
    assert subspace_angles(found.basis, W.T).max() < 0.05
    scaled = span({j: noisy[j] / sigma[:, None] for j in noisy}, 8, 1.0)
    np.testing.assert_allclose(found.singular_values, scaled.singular_values, rtol=1e-12)


def test_a_rotation_of_the_tensors_rotates_the_span() -> None:
    rng = np.random.default_rng(2)
    W, b, A = rng.standard_normal((3, 7)), rng.standard_normal(3), rng.standard_normal((1, 3))
    Q = np.linalg.qr(rng.standard_normal((7, 7)))[0]
    plain = span(network_moments(W, b, A, get("relu"), (1, 2)), 7, 0.0)
    turned = span(network_moments(W @ Q.T, b, A, get("relu"), (1, 2)), 7, 0.0)
    np.testing.assert_allclose(turned.singular_values[:3], plain.singular_values[:3], rtol=1e-12)
    assert subspace_angles(turned.basis, Q @ plain.basis).max() < 1e-10


def test_a_given_rank_is_kept() -> None:
    _, T = moments(3, d=6, k=4, p=1, orders=(1, 2))
    assert span(T, 6, 0.0, rank=2).basis.shape == (6, 2)


def test_bad_arguments_are_refused() -> None:
    _, T = moments(4, d=5, k=2, p=2, orders=(0, 1, 2))
    with pytest.raises(ValueError, match=r"Got orders \[0, 1, 2\] instead"):
        span(T, 5, 0.0)
    with pytest.raises(ValueError, match="positive, or all zero"):
        span({1: T[1]}, 5, np.array([0.0, 1.0]))
