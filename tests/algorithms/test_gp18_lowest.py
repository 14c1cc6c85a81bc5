"""What `recover_lowest_layer` claims: smooth upper layers, terms that no sample shows, and how upper parts compare."""

import re

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate import Certificate
from neurecover.models import Composite, DeepNetwork, Network, Polynomial, free_directions, jacobian
from neurecover.simulate.composites import composite_teacher, products, tower


def recovered(truth: Composite, n: int, seed: int = 0, **options) -> nr.Recovery:  # type: ignore[no-untyped-def]
    X = np.random.default_rng([seed, 1]).standard_normal((n, truth.n_inputs))
    return nr.recover_lowest_layer(X, truth(X), random_state=seed, **options)


def information(certificate: Certificate) -> list[bool]:
    return [check.passed for check in certificate.checks if check.name == "information"]


@pytest.mark.parametrize(
    ("top", "width", "n"),
    [
        ("sigmoid", 1, 8_000),
        ("tanh", 1, 8_000),
        ("softplus", 1, 8_000),
    ],
)
def test_a_smooth_upper_layer_is_certified(top: str, width: int, n: int) -> None:
    """The paper's own example, §1.1: P(X) = u(v·X − b) with u the sigmoid, and the sum of three of them."""
    truth = composite_teacher(6, 3, tower(3, (width,), activation=top, random_state=1), random_state=54)
    r = recovered(truth, n, upper="network", n_upper=width, upper_activation=top)
    assert r.certificate.verdict == "exact", r.certificate.reasons
    _agrees(r, truth)


@pytest.mark.slow
def test_three_smooth_units_above_are_certified_where_the_fit_converges() -> None:
    """The fit converged on half of the sets of samples that were tried; the others are not to be claimed.

    That none of twelve is solved has a chance of one in 4,000.
    """
    truth = composite_teacher(6, 3, tower(3, (3,), activation="sigmoid", random_state=1), random_state=54)
    for seed in range(12):
        r = recovered(truth, 40_000, seed, upper="network", n_upper=3, upper_activation="sigmoid")
        if r.certificate.verdict == "exact":
            _agrees(r, truth)
            return
        assert r.certificate.verdict == "approximate"
    pytest.fail("none of twelve sets of samples was solved")


def _agrees(r: nr.Recovery, truth: nr.Composite) -> None:
    comparison = nr.compare(r.network, truth)
    # Errors of rounding, which the weakest direction of the information magnifies by no more than 1e7 to be exact.
    assert comparison.max_angle < 1e-8
    assert comparison.output_weight_error < 1e-6
    assert len(comparison.layers) == 2


def test_terms_that_no_sample_shows_are_named_and_not_claimed() -> None:
    truth = composite_teacher(5, 3, products(3), threshold=2.0, random_state=105)
    r = recovered(truth, 20_000)
    assert r.certificate.verdict == "approximate"
    assert re.search(r"too few samples show h\d·h\d in \d", " ".join(r.certificate.reasons))
    assert "max_degree" in r.summary()
    assert not all(information(r.certificate))


@pytest.mark.parametrize(("degree", "terms"), [(3, 7), (2, 6)])
def test_terms_that_all_samples_show_are_exact_and_no_others_are_there(degree: int, terms: int) -> None:
    truth = composite_teacher(5, 3, products(3, degree), threshold=1.0, kind="tilted", random_state=2)
    r = recovered(truth, 8_000, n_hidden=3)
    assert r.certificate.verdict == "exact", r.certificate.reasons
    assert isinstance(r.network, Composite)
    assert isinstance(r.network.upper, Polynomial)
    assert r.network.upper.coefficients.shape == (1, terms)
    assert r.certificate.standard_errors is not None
    assert r.certificate.standard_errors["coefficients"].shape == (1, terms)
    far = 3.0 * np.random.default_rng(5).standard_normal((1_000, 5))
    np.testing.assert_allclose(r.network(far), truth(far), atol=1e-8 * np.abs(truth(far)).max())


def test_polynomial_tops_are_compared_by_their_coefficients() -> None:
    truth = composite_teacher(4, 3, products(3, 3, constant=0.5), random_state=0)
    assert isinstance(truth.upper, Polynomial)
    order = np.array([2, 0, 1])
    scale = np.array([2.0, 0.5, 3.0])  # of rows, handed to the coefficients
    powers = truth.upper.exponents[:, order]
    same = Composite(
        scale[:, None] * truth.W[order],
        scale * truth.threshold[order],
        Polynomial(powers, truth.upper.coefficients / np.prod(scale**powers, axis=1)),
    )
    comparison = nr.compare(same, truth)
    assert comparison.output_weight_error == pytest.approx(0.0, abs=1e-14)
    assert comparison.offset_error == pytest.approx(0.0, abs=1e-14)
    # Of seven coefficients of 1 beside the constant one is off by 0.7, and the constant by 0.1.
    coefficients = truth.upper.coefficients.copy()
    coefficients[0, [0, 3]] += [0.1, 0.7]
    off = nr.compare(Composite(truth.W, truth.threshold, Polynomial(truth.upper.exponents, coefficients)), truth)
    assert off.output_weight_error == pytest.approx(0.7 / np.sqrt(7))
    assert off.offset_error == pytest.approx(0.1 / np.hypot(np.sqrt(7), 0.5))
    fewer = nr.compare(truth.take([0, 1]), truth)  # four terms have the unit that is left out
    assert fewer.output_weight_error == pytest.approx(np.sqrt(4 / 7))


def exponential_composite(upper: str) -> Composite:
    rng = np.random.default_rng(0)
    tops = {
        "polynomial": products(3, 2),
        "network": Network(rng.standard_normal((2, 3)), rng.standard_normal(2), np.ones((1, 2)), activation="tanh"),
        "deep": DeepNetwork([(-np.ones((2, 3)), None), (np.ones((1, 2)), None)], "relu"),
    }
    return Composite(0.3 * rng.standard_normal((3, 4)), rng.standard_normal(3), tops[upper], "exp")


@pytest.mark.parametrize("upper", ["polynomial", "network", "deep"])
@pytest.mark.parametrize("lower", ["exp", "relu", "sigmoid"])
def test_the_normal_form_and_the_free_directions_leave_the_function(lower: str, upper: str) -> None:
    base = exponential_composite(upper)
    model = Composite(base.W, base.threshold, base.upper, lower)
    X = np.random.default_rng(1).standard_normal((50, 4))
    normal = model.normal_form()
    np.testing.assert_allclose(normal(X), model(X), rtol=1e-12)
    if lower == "exp":
        np.testing.assert_array_equal(normal.threshold, 0.0)
    if upper == "deep":
        np.testing.assert_allclose(np.linalg.norm(normal.hidden_weights[1], axis=1), 1.0)
    G = free_directions(model)
    free = (0 if lower == "sigmoid" else 3) + (2 if upper == "deep" else 0)
    assert G.shape[1] == free
    np.testing.assert_allclose(jacobian(model, X) @ G, 0.0, atol=1e-10)
