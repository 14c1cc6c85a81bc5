"""Moments and residual sums against direct computations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurecover.simulate import sample, teacher
from neurecover.statistics import Moments, Residuals
from neurecover.statistics.base import unpack_symmetric

D, P = 4, 2
LETTERS = "abcd"


def _samples(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((n, D)) + 0.5, rng.exponential(size=(n, P))


def _tensor(Z: np.ndarray, order: int) -> np.ndarray:
    """E[z ⊗ … ⊗ z], in full."""
    axes = LETTERS[:order]
    return np.einsum(",".join(f"n{a}" for a in axes) + f"->{axes}", *[Z] * order) / len(Z)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("origin", [None, np.linspace(-1, 1, D + P)])
def test_moments_are_those_of_the_full_tensor(order: int, origin: np.ndarray | None) -> None:
    X, Y = _samples()
    Z = np.hstack([X, Y]) - (0 if origin is None else origin)
    moments = Moments(D, P, order, origin)
    moments.update(X, Y)
    i, j = np.triu_indices(D + P)
    packed = {
        1: lambda T: T,
        2: lambda T: T[i, j],
        3: lambda T: T[:, i, j],
        4: lambda T: T[i, j][:, i, j],
    }
    for lower in range(1, order + 1):
        np.testing.assert_allclose(moments.moment(lower), packed[lower](_tensor(Z, lower)), rtol=1e-11)


def test_means_covariances_and_their_blocks() -> None:
    X, Y = _samples()
    moments = Moments(D, P, origin=np.full(D + P, 0.3))
    moments.update(X, Y)
    joint = np.hstack([X, Y])
    np.testing.assert_allclose(moments.mean, joint.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(joint.T, bias=True), rtol=1e-10, atol=1e-13)
    X, Y = X - 0.3, Y - 0.3
    n = len(X)
    np.testing.assert_allclose(moments.xx, X.T @ X / n, rtol=1e-12)
    np.testing.assert_allclose(moments.yx, Y.T @ X / n, rtol=1e-12)
    np.testing.assert_allclose(moments.yy, Y.T @ Y / n, rtol=1e-12)


def test_an_origin_near_the_mean_saves_the_digits_of_the_covariance() -> None:
    X, Y = _samples()
    X = X + 1e7
    near = np.append(np.full(D, 1e7), np.zeros(P))
    exact = np.cov(np.hstack([X - 1e7, Y]).T, bias=True)
    errors = []
    for origin in (None, near):
        moments = Moments(D, P, origin=origin)
        moments.update(X, Y)
        errors.append(np.abs(moments.covariance - exact).max())
    assert errors[1] < 1e-12 < 1e-4 < errors[0]


def test_what_moments_refuse() -> None:
    with pytest.raises(ValueError, match=r"order needs to be 1, 2, 3 or 4\. Got 5 instead"):
        Moments(D, P, order=5)
    with pytest.raises(ValueError, match=r"origin needs shape \(6,\)\. Got \(4,\) instead"):
        Moments(D, P, origin=np.zeros(D))
    moments = Moments(D, P, order=2)
    with pytest.raises(ValueError, match=r"orders 1 to 2\. Got 3 instead"):
        moments.moment(3)
    with pytest.raises(ValueError, match=r"at least one sample\. Got none"):
        _ = moments.mean


@given(st.integers(1, 60))
@settings(deadline=None)
def test_unpacking_inverts_packing(q: int) -> None:
    matrix = np.random.default_rng(q).standard_normal((q, q))
    matrix += matrix.T
    np.testing.assert_array_equal(unpack_symmetric(matrix[np.triu_indices(q)]), matrix)


def test_residual_sums_against_numpy() -> None:
    net = teacher(D, 5, P, random_state=0)
    X, Y = sample(net, 300, noise=0.1, random_state=1)
    Y += 5.0
    statistic = Residuals(net, P, width=net.n_hidden, origin=np.array([5.0, 4.0]))
    for rows in np.array_split(np.arange(len(X)), 7):
        statistic.update(X[rows], Y[rows])
    R = Y - net(X)
    np.testing.assert_allclose(statistic.sums["residual"], R.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(statistic.sums["residual_squared"], (R**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(statistic.sums["residual_max"], np.abs(R).max(axis=0))
    assert statistic.mse == pytest.approx(np.mean(R**2), rel=1e-12)
    np.testing.assert_allclose(statistic.output_variance, Y.var(axis=0), rtol=1e-11)


def test_residuals_of_the_true_network_are_zero() -> None:
    net = teacher(D, 5, P, random_state=0)
    statistic = Residuals(net, P)
    statistic.update(*sample(net, 50, random_state=1))
    assert statistic.mse == statistic.sums["residual_max"].max() == 0.0


def test_what_residuals_refuse() -> None:
    X, Y = _samples(10)
    with pytest.raises(ValueError, match=r"predict needs to return shape \(10, 1\).*Got \(10,\) instead"):
        Residuals(lambda X: X[:, 0], 1).update(X, Y[:, :1])
    with pytest.raises(ValueError, match=r"origin needs shape \(2,\)"):
        Residuals(lambda X: X, P, origin=np.zeros(1))
    with pytest.raises(ValueError, match=r"at least one sample\. Got none"):
        _ = Residuals(lambda X: X, P).mse
