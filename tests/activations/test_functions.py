"""`Activation.from_function`: what is found from the values of a function, against the named one that it is."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import Activation, get
from neurecover.models import Network

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0.0),
    "leaky_relu(0.1)": lambda z: np.where(z > 0, z, 0.1 * z),
    "abs": np.abs,
    "square": np.square,
    "identity": lambda z: 1.0 * z,
    "power(3)": lambda z: np.maximum(z, 0.0) ** 3,
    "step": lambda z: np.where(z > 0, 1.0, 0.0),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "tanh": np.tanh,
    "softplus": lambda z: np.logaddexp(0.0, z),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "exp": np.exp,
}


@pytest.mark.parametrize("spec", FUNCTIONS)
def test_symmetries_are_those_of_the_named_one(spec: str) -> None:
    act, named = Activation.from_function(FUNCTIONS[spec]), get(spec)
    assert act.homogeneity == pytest.approx(named.homogeneity, abs=1e-9)
    assert act.reflection == pytest.approx(named.reflection, abs=1e-12)
    assert act.odd_slope == pytest.approx(named.odd_slope, abs=1e-12)
    assert act.rectified == named.rectified


@pytest.mark.parametrize("spec", [spec for spec in FUNCTIONS if spec != "step"])
def test_derivative_by_differences(spec: str) -> None:
    act = Activation.from_function(FUNCTIONS[spec])
    z = np.concatenate([np.linspace(-5, 5, 401), [-1e-9, 1e-9, -1e-4, 1e-4]])
    slope, size = get(spec).derivative(z), np.maximum(np.abs(get(spec)(z)), 1.0)
    # Five values err by h⁴ of the fifth derivative over 30 (over 5 beside zero), and by ε/h of act.
    assert np.max(np.abs(act.derivative(z) - slope) / size) < 2e-11
    given = Activation.from_function(FUNCTIONS[spec], derivative=get(spec).derivative)
    np.testing.assert_array_equal(given.derivative(z), slope)


@pytest.mark.parametrize("spec", [spec for spec in FUNCTIONS if spec != "step"])
def test_coefficients_by_quadrature_and_inverse_by_bisection(spec: str) -> None:
    act, b = Activation.from_function(FUNCTIONS[spec]), np.linspace(-4, 4, 17)
    expected = get(spec).hermite(b, 8)
    assert np.max(np.abs(act.hermite(b, 8) - expected) / np.maximum(1, np.abs(expected))) < 1e-11
    z = np.array([1e-3, 0.5, 1.0, 3.7])
    np.testing.assert_allclose(act.inverse(act(z)), z, rtol=1e-11)


def test_a_table_of_values() -> None:
    at = np.linspace(-10, 10, 4001)
    act = Activation.from_function(lambda z: np.interp(z, at, np.sinh(at)), name="table")
    z = np.linspace(0.1, 4, 50)
    # Straight lines between points h apart err by h²/8 of the second derivative.
    np.testing.assert_allclose(act(z), np.sinh(z), rtol=0.005**2 / 8)
    np.testing.assert_allclose(act.inverse(act(z)), z, rtol=1e-12)
    assert str(act) == "function(table)"


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda z: 1.0, "one finite number for each"),
        (lambda z: np.log(z - 5), "12 not finite"),
        (np.sort, "each number by itself"),
        (lambda z: z.no_such_thing, "take an array"),
        (3.0, "take an array"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_no_function_of_numbers_is_refused(f: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Activation.from_function(f)  # type: ignore[arg-type]


def test_an_inverse_that_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="Give its inverse"):
        Activation.from_function(np.cos).inverse(0.5)
    with pytest.raises(ValueError, match="Got -1 instead"):
        Activation.from_function(FUNCTIONS["relu"]).inverse(-1.0)
    np.testing.assert_allclose(Activation.from_function(np.cos, inverse=np.arccos).inverse(0.5), np.pi / 3)


def test_a_network_of_ones_own_function_is_saved_and_read_back(tmp_path: Path) -> None:
    act = Activation.from_function(np.arctan)
    network = Network([[1.0, 2.0]], [0.5], [[3.0]], None, act)
    network.save(tmp_path / "net.npz")
    X = np.random.default_rng(0).standard_normal((5, 2))
    np.testing.assert_array_equal(nr.load(tmp_path / "net.npz", activation=act)(X), network(X))
    with pytest.raises(ValueError, match="function of your own"):
        nr.load(tmp_path / "net.npz")


@pytest.mark.parametrize("f", [np.arctan, lambda z: np.maximum(np.expm1(z), 0.0), lambda z: np.maximum(z, 0.0)])
def test_recovery_with_ones_own_function(f: Callable[[np.ndarray], np.ndarray]) -> None:
    act = Activation.from_function(f)
    truth = nr.simulate.teacher(4, 3, activation=act, random_state=1)
    X, Y = nr.simulate.sample(truth, 400, random_state=1)
    found = nr.recover(X, Y, 3, activation=act, random_state=0)
    assert found.certificate.verdict == "exact"
    assert nr.compare(found.network, truth).weight_error < 1e-10
