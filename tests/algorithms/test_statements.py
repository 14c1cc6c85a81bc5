"""What the papers state about tensors, weights, inputs and labels, as functions."""

from math import factorial

import numpy as np
import pytest

import neurecover as nr
from neurecover.simulate import sample, teacher


@pytest.mark.parametrize(("d", "k", "p", "ell"), [(4, 4, 1, 1), (3, 3, 2, 1), (3, 5, 1, 2), (2, 4, 1, 3)])
def test_algorithm_1_inverts_lemma_3_5(d: int, k: int, p: int, ell: int) -> None:
    for seed in range(3):
        truth = teacher(d, k, p, kind="orthonormal" if k <= d else "sphere", random_state=seed)
        tensors = nr.hermite_tensors(truth, 2 * ell + 2)
        assert tensors[2].shape == (p, d, d)
        found = nr.units_from_tensors(tensors, ell, random_state=seed)
        c = nr.compare(found, truth, up_to_sign=ell > 1)
        # Conditions of W^⊙ℓ down to 1e-3 cost as many digits, and Algorithm 2 divides once more.
        assert max(c.weight_error, c.bias_error) < 1e-5
    with pytest.raises(ValueError, match="needs tensors of orders"):
        nr.units_from_tensors({j: tensors[j] for j in (1, 2)}, ell)


def test_coefficients_of_a_rectified_unit() -> None:
    """Against quadrature: E[relu(g + b) He_j(g)] by Gauss's rule on either side of the kink."""
    b = 0.4
    g, weight = np.polynomial.legendre.leggauss(200)
    g, weight = 6.0 * (g + 1.0) - b, 6.0 * weight  # from the kink to 12 beyond
    density = np.exp(-0.5 * g**2) / np.sqrt(2.0 * np.pi)
    h = nr.hermite_coefficients("relu", b, 5)
    for j in range(6):
        He = np.polynomial.hermite_e.HermiteE.basis(j)(g)
        assert h[j] == pytest.approx(np.sum(weight * density * (g + b) * He), abs=1e-10 * factorial(j))


def test_the_least_singular_value_of_the_powers() -> None:
    net = teacher(3, 5, random_state=0)
    W = net.W / np.linalg.norm(net.W, axis=1, keepdims=True)
    columns = np.array([np.kron(w, w) for w in W]).T
    assert nr.power_singular_value(net) == pytest.approx(np.linalg.svd(columns, compute_uv=False)[-1])
    assert nr.power_singular_value(net, 1) == 0.0
    assert nr.power_singular_value(np.eye(4)) == pytest.approx(1.0)


def test_signs_where_the_offset_is_fixed() -> None:
    """w₁ + w₂ = w₃ leaves the signs open if c takes up b₁ + b₂ − b₃, and if that is zero [ATV21, eq. 5 with ξᵢ]."""
    W, A = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, -1.0]]
    for b, ways in (([0.3, 0.2, 0.1], 1), ([0.3, 0.2, 0.5], 2)):
        net = nr.Network(W, b, A)
        assert len(nr.sign_ambiguities(net).signs) == 2
        fixed = nr.sign_ambiguities(net, offset=False)
        assert len(fixed.signs) == ways
        X = np.random.default_rng(0).standard_normal((50, 2))
        for other in fixed.networks:
            np.testing.assert_allclose(other(X), net(X), atol=1e-12)
            np.testing.assert_allclose(other.c, 0.0, atol=1e-12)


def test_labels_of_a_halfspace() -> None:
    """The programme's solution is the mean of y x: no vector of the unit ball has a larger Σ y (w·x)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4_000, 5))
    w = np.eye(5)[0]
    labels = np.where(np.maximum(X @ w, 0.0) + rng.standard_normal(4_000) > 0.3, 1.0, -1.0)
    found = nr.halfspace_direction(X, labels)
    others = rng.standard_normal((1_000, 5))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    assert labels @ X @ found >= (labels @ X @ others.T).max()
    assert found @ w > 0.97
    assert nr.halfspace_error_bound(4_000, 5, 1.0, 10.0) > nr.halfspace_error_bound(400_000, 5, 1.0, 10.0)


def test_shares_of_halfspaces() -> None:
    X = np.random.default_rng(0).standard_normal((4_000, 3))
    assert 0.45 < nr.least_share(X, 0) <= 0.5
    assert nr.least_share(np.abs(X), 0) == 0.0
    # inf_v Pr[v·x > 0] = Φ(−‖mean‖) for Gaussian inputs: 0.159 at distance 1, with a standard error of 0.006.
    assert nr.least_share(X + np.eye(3)[0], 0) == pytest.approx(0.159, abs=0.025)


def test_incoherence_is_one_at_best_and_large_where_a_row_stands_alone() -> None:
    flat = np.ones((8, 4))
    assert nr.incoherence(flat) == pytest.approx(1.0)
    spike = np.zeros((8, 4))
    spike[0, 0] = 1.0
    assert nr.incoherence(spike) == pytest.approx(32.0)


def test_checks_of_the_statements_are_in_the_certificate() -> None:
    truth = teacher(4, 2, 12, bias=0.0, random_state=0)
    X, Y = sample(truth, 400, random_state=0)
    r = nr.recover(X, Y, 2, method="sparse_noise", bias=False, random_state=0)
    assert any(check.name == "incoherence" and check.figure >= 1.0 for check in r.certificate.checks)
    few = nr.recover(X[:60], Y[:60], 2, method="sign_patterns", bias=False, random_state=0)
    assert any(check.name == "every halfspace" for check in few.certificate.checks)


def test_details_come_with_the_map_to_the_inputs() -> None:
    truth = teacher(4, 3, random_state=1)
    X, Y = sample(truth, 20_000, random_state=1)
    e = nr.estimate(3.0 * X + 1.0, Y, 3, method="hermite", random_state=0)
    fit = e.details.fit
    assert e.whitening is not None
    W = fit.W @ e.details.basis.T @ e.details.whitening.matrix.T @ e.whitening.matrix.T
    cosines = np.abs(W / np.linalg.norm(W, axis=1, keepdims=True) @ e.network.normal_form().W.T)
    assert cosines.max(axis=0).min() > 1.0 - 1e-9
