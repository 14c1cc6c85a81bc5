"""Weights that change along the rows, and noise that does."""

import numpy as np
import pytest
from scipy.stats import binom, f

import neurecover as nr
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.residuals.constancy import PARTS, constancy_test
from neurecover.data import ArraySource, reduce
from neurecover.fit.model_fit import fit_model
from neurecover.models import jacobian
from neurecover.statistics import InformationSums


def p_of_change(network: nr.Network, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> float:
    samples = ArraySource(X, Y, weight=weight)
    information = Information.of(reduce(samples, InformationSums.of(network)))
    return constancy_test(information, True, samples, Y.size, 1e12, 1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_statistic_is_that_of_two_least_squares_problems(weighted: bool) -> None:
    """F of J alone against J and the same columns in later rows alone, where every eighth ends: the least of seven."""
    rng = np.random.default_rng(0)
    n, network = 240, nr.simulate.teacher(3, 2, 2, random_state=0)
    X, weight = rng.standard_normal((n, 3)), rng.uniform(0.5, 2.0, n) if weighted else None
    root = np.repeat(np.ones(n) if weight is None else np.sqrt(weight), 2)
    J = root[:, None] * jacobian(network, X).reshape(2 * n, -1)
    U = np.linalg.svd(J, full_matrices=False)[0][:, : network.n_parameters - network.n_hidden]
    r = rng.standard_normal(2 * n)
    r -= U @ (U.T @ r)
    tests = []
    for end in n * np.arange(1, PARTS) // PARTS:
        E = J * (np.arange(2 * n) >= 2 * end)[:, None]
        E -= U @ (U.T @ E)
        own, sizes, _ = np.linalg.svd(E, full_matrices=False)
        Q = own[:, sizes > 1e-8 * sizes[0]]
        S, q, left = float(np.sum((Q.T @ r) ** 2)), Q.shape[1], 2 * n - U.shape[1] - Q.shape[1]
        tests.append(f.sf((S / q) / ((r @ r - S) / left), q, left))
    found = p_of_change(network, X, network(X) + (r / root).reshape(n, 2), weight)
    np.testing.assert_allclose(found, min(1.0, (PARTS - 1) * min(tests)), rtol=1e-6)


@pytest.mark.parametrize("noise", ["one variance", "growing along the rows"])
def test_the_right_network_is_doubted_as_often_as_the_level_says(noise: str) -> None:
    """Forty fits at the level 1e-3; noise that grows twentyfold makes F alone object to one in ten of them."""
    doubted, runs = 0, 40
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        truth = nr.simulate.teacher(3, 2, random_state=seed).normal_form()
        X = rng.standard_normal((300, 3))
        size = np.linspace(0.1, 2.0, 300)[:, None] if noise != "one variance" else 1.0
        Y = truth(X) + 0.05 * size * rng.standard_normal((300, 1))
        doubted += p_of_change(fit_model(ArraySource(X, Y), truth).network, X, Y) < 1e-3
    assert doubted <= binom.ppf(1.0 - 1e-4, runs, 1e-3)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_network_that_changes_along_the_rows_is_not_certified(share: float) -> None:
    """One output weight of three changes by 1e-3, and there is no noise: the change is all that the fit leaves."""
    rng = np.random.default_rng(4)
    truth = nr.simulate.teacher(3, 3, random_state=4)
    later = nr.Network(truth.W, truth.b, truth.A + np.array([[1e-3, 0.0, 0.0]]), truth.c)
    X = rng.standard_normal((300, 3))
    Y = np.where(np.arange(300)[:, None] < share * 300, truth(X), later(X))
    found = nr.recover(X, Y, 3, random_state=0).certificate
    assert found.verdict == "approximate"
    mixed = rng.permutation(300)
    p = [p_of_change(fit_model(ArraySource(A, B), truth).network, A, B) for A, B in ((X, Y), (X[mixed], Y[mixed]))]
    assert p[0] < 1e-3
    assert p[1] > 1e-3  # in any order of the rows it is one more part of the residual
