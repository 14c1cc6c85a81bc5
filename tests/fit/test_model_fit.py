"""The fit of all parameters of any network: to rounding from near, and what it leaves alone."""

import numpy as np
import pytest

from neurecover.data import ArraySource, reduce
from neurecover.fit.model_fit import can_be_fitted, fit_model
from neurecover.matching import compare
from neurecover.models import Composite, DeepNetwork, Model, are_biases, jacobian, parameters, with_parameters
from neurecover.simulate import composite_teacher, products, teacher, tower, union
from neurecover.solve import Deadline
from neurecover.statistics import InformationSums
from students import network


def deep(seed: int) -> DeepNetwork:
    rng = np.random.default_rng(seed)
    first, second = (rng.standard_normal((5, 4)), 0.3 * rng.standard_normal(5)), rng.standard_normal((3, 5))
    # Every unit of the second layer is on for about half of the inputs.
    X = np.random.default_rng(9).standard_normal((1_000, 4))
    middle = np.median(np.maximum(X @ first[0].T + first[1], 0.0) @ second.T, axis=0)
    return DeepNetwork([first, (second, -middle), (rng.standard_normal((2, 3)), rng.standard_normal(2))])


MODELS: dict[str, Model] = {
    "shallow": teacher(4, 3, 2, random_state=0),
    "deep": deep(1),
    "polynomial": composite_teacher(4, 3, products(3), threshold=0.3, random_state=0),
    "sigmoid": teacher(4, 3, activation="sigmoid", random_state=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_from_near_to_rounding(name: str) -> None:
    truth = MODELS[name]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 4))
    theta = parameters(truth)
    start = with_parameters(truth, theta * (1.0 + 1e-3 * rng.standard_normal(len(theta))))
    fit = fit_model(ArraySource(X, truth(X)), start)
    assert fit.converged
    assert fit.relative_rss < 1e-26
    fresh = rng.standard_normal((500, 4))
    np.testing.assert_allclose(fit.network(fresh), truth(fresh), atol=1e-9 * np.abs(truth(fresh)).max())


def test_the_optimum_under_noise_has_no_gradient() -> None:
    truth = MODELS["shallow"]
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2_000, 4))
    source = ArraySource(X, truth(X) + 0.1 * rng.standard_normal((2_000, 2)))
    fit = fit_model(source, truth)
    sums = InformationSums.of(fit.network)
    sums.update(*source.collect())
    F, g = sums.information()
    size = np.sqrt(np.diag(F) * sums.sums["rr"].sum())
    assert np.abs(g / np.maximum(size, 1e-300)).max() < 1e-4
    assert fit.rss < sums.sums["rr"].sum() * (1 + 1e-12)


def test_biases_stay_where_they_are() -> None:
    truth = deep(2)
    truth = with_parameters(truth, np.where(are_biases(truth), 0.0, parameters(truth)))
    X = np.random.default_rng(0).standard_normal((2_000, 4))
    start = with_parameters(truth, np.where(are_biases(truth), 0.0, parameters(truth) * 1.001))
    fit = fit_model(ArraySource(X, truth(X)), start, bias=False)
    assert fit.relative_rss < 1e-26
    assert np.all(parameters(fit.network)[are_biases(truth)] == 0.0)


def test_what_has_no_derivative_is_not_fitted_and_time_is_kept() -> None:
    assert not can_be_fitted(composite_teacher(3, 2, union(), activation="step", random_state=0))
    assert not can_be_fitted(Composite(np.eye(2), 0.5, lambda H: H))
    assert can_be_fitted(composite_teacher(3, 2, tower(2, (3,), random_state=0), random_state=0))
    truth = MODELS["deep"]
    X = np.random.default_rng(0).standard_normal((500, 4))
    start = with_parameters(truth, 1.1 * parameters(truth))
    fit = fit_model(ArraySource(X, truth(X)), start, Deadline.after(0.0))
    assert not fit.converged
    np.testing.assert_array_equal(parameters(fit.network), parameters(start))


@pytest.mark.parametrize(
    ("sizes", "activation", "bias", "affine"),
    [
        ((4, 5, 4, 1), "relu", True, False),
        ((4, 4, 3, 2), "leaky_relu(0.2)", False, False),
        ((4, 4, 2), "relu", True, True),
    ],
)
def test_sums_of_a_network_are_those_of_its_jacobian_and_lead_back_to_it(
    sizes: tuple[int, ...], activation: str, bias: bool, affine: bool
) -> None:
    truth = network(sizes, 1, activation, bias, affine)
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1_000, 4))
    Y = truth(X) + rng.standard_normal((1_000, sizes[-1]))
    sums = reduce(ArraySource(X, Y), InformationSums.of(truth))
    J, R = jacobian(truth, X), Y - truth(X)
    F, g = sums.information()
    np.testing.assert_allclose(F, np.einsum("noi,noj->ij", J, J), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(g, np.einsum("noi,no->i", J, R), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(sums.sums["rr"], np.sum(R**2, axis=0))
    theta = parameters(truth)
    moved = theta + 1e-3 * rng.standard_normal(theta.shape) * (theta != 0)
    fit = fit_model(ArraySource(X, truth(X)), with_parameters(truth, moved), bias=bias)
    assert fit.converged
    assert compare(fit.network, truth).weight_error < 1e-10
