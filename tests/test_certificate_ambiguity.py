"""Sign ambiguities and the population risk: against closed forms, quadrature and Monte Carlo."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import dblquad

from neurecover import simulate
from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.models import Network
from neurecover.models.risk import bivariate, population_risk, rectified_product, risk_bounds


def test_claim_4_8_is_found() -> None:
    for d, k, seed in ((2, 3, 0), (4, 4, 1), (5, 9, 2), (8, 20, 3)):
        first, second = simulate.sign_ambiguous(d, k, random_state=seed)
        found = sign_ambiguities(first)
        assert found.complete
        assert not found.unique
        assert found.signs.tolist() == [[1] * k, [-1] * k]
        X = np.random.default_rng(seed).standard_normal((200, d))
        for network in found.networks:
            np.testing.assert_allclose(network(X), first(X), atol=1e-12)
        np.testing.assert_allclose(found.networks[1].W, second.W)


def test_every_listed_assignment_is_the_same_function_and_none_is_missed() -> None:
    # Two disjoint triples that each cancel, with biases: the sets are the unions of them, four in all.
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((2, 4)) for _ in range(2)]
    W = np.vstack([np.vstack([pair, -pair.sum(axis=0)]) for pair in rows] + [rng.standard_normal((1, 4))])
    network = Network(W, rng.standard_normal(7), np.ones((1, 7)), [0.3])
    found = sign_ambiguities(network)
    assert len(found.signs) == 4
    assert found.complete
    X = rng.standard_normal((300, 4))
    for other in found.networks:
        np.testing.assert_allclose(other(X), network(X), atol=1e-12)
    # Brute force over all 2^7 choices agrees.
    bits = (np.arange(128)[:, None] >> np.arange(7)) & 1
    assert np.count_nonzero(np.linalg.norm(bits @ W, axis=1) < 1e-9) == 4


def test_independent_units_and_generic_overcomplete_ones_are_determined() -> None:
    for d, k, p in ((6, 6, 1), (4, 9, 1), (3, 12, 2)):
        assert sign_ambiguities(simulate.teacher(d, k, p, random_state=d)).unique


def test_mirror_images_do_not_count() -> None:
    first, _ = simulate.sign_ambiguous(3, 5, random_state=0)
    for spec in ("sigmoid", "abs", "power(2)"):
        assert sign_ambiguities(Network(first.W, None, first.A, activation=spec)).unique
    leaky = Network(first.W, None, first.A, activation="leaky_relu(0.2)")
    assert len(sign_ambiguities(leaky).signs) == 2


def test_units_that_do_nothing_do_not_count() -> None:
    network = simulate.teacher(4, 3, random_state=0)
    W, b, A = np.vstack([network.W, np.zeros(4)]), np.append(network.b, 1.0), np.hstack([network.A, [[2.0]]])
    assert sign_ambiguities(Network(W, b, A)).unique
    A[0, 0] = 0.0
    assert sign_ambiguities(Network(W, b, A)).unique


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
