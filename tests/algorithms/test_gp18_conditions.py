"""The conditions of [GP18] against what they are conditions of."""

from math import comb

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.algorithms.gp18.conditions import (
    even_margins,
    linear_coefficients,
    mean_activation,
    nonlinear_share,
    planned_threshold,
    product_bound,
)
from neurecover.models import Polynomial
from neurecover.simulate.composites import products


def test_the_bound_on_products_is_their_mean_for_orthonormal_units_and_above_it_for_others() -> None:
    rho = mean_activation(1.2)
    assert product_bound(np.eye(4), 1.2, 3) == pytest.approx(rho**3, rel=1e-12)
    W = np.array([[1.0, 0.0], [0.6, 0.8]])
    X = np.random.default_rng(0).standard_normal((400_000, 2))
    H = np.maximum(X @ W.T - 1.2, 0.0).prod(axis=1)
    # Its relative error is below √(E[H²]/n)/E[H], a few per cent.
    error = 5.0 * H.std() / np.sqrt(len(H))
    assert product_bound(W, 1.2, 2) > H.mean() + error
    # As printed, ρ(t, 1) κ ρ(t, ‖W‖), it is no bound.
    assert rho * np.sqrt(product_bound(W, 1.2, 2)) < H.mean() - error


@pytest.mark.parametrize("activation", ["relu", "step", "sigmoid"])
def test_planned_thresholds_are_where_the_bound_meets_the_share(activation: str) -> None:
    W = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0][:4]
    t = planned_threshold(W, activation, 0.3)
    assert nonlinear_share(W, t, activation) == pytest.approx(0.3, rel=1e-6)
    mu = mean_activation(t, 1.0, activation)
    assert sum(comb(4, m) * mu ** (m - 1) for m in (2, 3, 4)) == pytest.approx(0.3, rel=1e-6)  # κ = ‖W‖ = 1
    assert planned_threshold(W, activation, 0.1) > t
    with pytest.raises(ValueError, match="dependent"):
        planned_threshold(np.ones((3, 2)) / np.sqrt(2.0))


def test_linear_coefficients_gather_from_all_terms() -> None:
    """Σ_{S ∋ i} c_S μ^{|S|}: of products of two and three of four units, three pairs and three triples have a unit."""
    upper = products(4, 3, linear=0.0, product=2.0)
    np.testing.assert_allclose(linear_coefficients(upper, 0.1), np.full((1, 4), 2.0 * (3 * 0.1**2 + 3 * 0.1**3)))


@pytest.mark.parametrize("product", [0.2, 3.0])
def test_even_margins_are_those_of_the_quartic_on_the_sphere(product: float) -> None:
    """E[f He₄(z·x)] by the expansion of He₄ along both axes; between them it is (α₁ + α₂ + γ)/4."""
    upper = Polynomial([[1, 0], [0, 1], [1, 1]], [[1.0, 0.7, product]])
    h = np.asarray(get("abs").hermite(0.0, 4))

    def quartic(z: np.ndarray) -> float:
        total = 0.0
        for a in range(5):
            axes = [1.0 * (h[a] * (a == 4)), 0.7 * h[4 - a] * (a == 0), product * h[a] * h[4 - a]]
            total += comb(4, a) * z[0] ** a * z[1] ** (4 - a) * sum(axes)
        return total / np.sqrt(24.0)

    alpha = quartic(np.array([1.0, 0.0])), quartic(np.array([0.0, 1.0]))
    gamma = 4.0 * quartic(np.array([1.0, 1.0]) / np.sqrt(2.0)) - sum(alpha)
    margins = even_margins(upper, "abs")
    assert margins[0, 1] == pytest.approx(np.sign(h[4]) * (sum(alpha) - gamma), rel=1e-12)
    assert margins[0, 1] == margins[1, 0]
    with pytest.raises(ValueError, match="u\\(−z\\) = u\\(z\\)"):
        even_margins(upper, "relu")
