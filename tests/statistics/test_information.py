"""The sums of least squares against Jacobians that are differences of the network's own outputs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.models import (
    DeepNetwork,
    Network,
    Student,
    are_biases,
    as_network,
    as_student,
    network_of,
    parameters,
    with_constant,
    with_parameters,
)
from neurecover.statistics import InformationSums, ReadoutSums
from neurecover.statistics.base import FEW, row_products
from neurecover.statistics.fits.hidden_gradient import HiddenGradient
from neurecover.statistics.fits.information import GatedSums
from neurecover.statistics.fits.regions import divide

N, D = 60, 3
STEP = 1e-5
WIDTHS = {1: (4,), 2: (4, 3)}
ACTIVATIONS = ("relu", "sigmoid", "leaky_relu(0.1)", "power(2)")
each = pytest.mark.parametrize


def _network(activation: str, depth: int, bias: bool, affine: bool, p: int) -> Network | DeepNetwork:
    rng = np.random.default_rng(p)
    layers, below = [], D
    for width in (*WIDTHS[depth], p):
        layers.append((rng.standard_normal((width, below)), rng.standard_normal(width) if bias else np.zeros(width)))
        below = width
    return network_of(layers, get(activation), rng.standard_normal((p, D)) if affine else None)


def _samples(network: Network | DeepNetwork) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs that no difference carries across a kink, outputs at a distance from the network's, and weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8 * N, D))
    X = X[np.abs(np.hstack(network.preactivations(X))).min(axis=1) > 1e-3][:N]
    return X, network(X) + rng.standard_normal((N, network.n_outputs)), rng.uniform(0.5, 3.0, N)


def _differences(network: Network | DeepNetwork, X: np.ndarray, bias: bool, probes: np.ndarray) -> np.ndarray:
    """∂ output / ∂ free parameters by central differences, then the probes' values on every output; (n, p, P)."""
    theta, p = parameters(network), network.n_outputs
    free = np.flatnonzero(np.ones(len(theta), dtype=bool) if bias else ~are_biases(network))
    columns = []
    for step in STEP * np.eye(len(theta))[free]:
        forwards, backwards = with_parameters(network, theta + step), with_parameters(network, theta - step)
        columns.append((forwards(X) - backwards(X)) / (2 * STEP))
    for output, probe in product(range(p), probes):
        value = network.activation(X @ probe[:D] + (probe[D] if bias else 0.0))
        columns.append(value[:, None] * np.eye(p)[output])
    return np.stack(columns, axis=-1)


def _close(actual: np.ndarray, expected: np.ndarray) -> None:
    # Central differences of smooth functions of size ~10 err by STEP² or by 1e-15/STEP, times n terms.
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max(initial=1.0))


@each("activation", ACTIVATIONS)
@each("depth", (1, 2))
@each("bias", (True, False))
@each("affine", (True, False))
@each("p", (1, 3))
@each("weighted", (False, True))
@each("n_probes", (0, 2))
def test_sums_are_those_of_the_jacobian(
    activation: str, depth: int, bias: bool, affine: bool, p: int, weighted: bool, n_probes: int
) -> None:
    network = _network(activation, depth, bias, affine, p)
    X, Y, weight = _samples(network)
    probes = np.random.default_rng(4).standard_normal((n_probes, D + bias))
    sums = InformationSums.of(network, bias, probes)
    sums.update(X, Y, weight if weighted else None)
    J, R, w = _differences(network, X, bias, probes), Y - network(X), weight if weighted else np.ones(N)
    F, g = sums.information()
    _close(F, np.einsum("n,noi,noj->ij", w, J, J))
    _close(g, np.einsum("n,noi,no->i", w, J, R))
    np.testing.assert_allclose(sums.sums["rr"], w @ R**2, rtol=1e-11)
    assert (sums.n, sums.size) == (N, len(F))
    np.testing.assert_array_equal(sums.free, np.flatnonzero(~are_biases(network) | bias))


@each("affine", (True, False))
@each("bias", (True, False))
@each("p", (1, 3))
@each("activation", ACTIVATIONS)
def test_one_layer_has_the_sums_of_any_network_to_rounding(activation: str, p: int, bias: bool, affine: bool) -> None:
    network = _network(activation, 1, bias, affine, p)
    rng = np.random.default_rng(5)
    X, Y, probes = rng.standard_normal((500, D)), rng.standard_normal((500, p)), rng.standard_normal((2, D + bias))
    gated, rows = InformationSums.of(network, bias, probes), InformationSums(network, bias, probes)
    assert isinstance(gated, GatedSums)
    assert not isinstance(rows, GatedSums)
    for sums in (gated, rows):
        sums.update(X, Y)
    for one, other in zip(gated.information(), rows.information()):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12 * np.abs(other).max())


def _student(depth: int, bias: bool, skips: bool, p: int) -> Student:
    rng = np.random.default_rng(p)
    V, base, columns = [], D + bias, D + bias
    for width in WIDTHS[depth]:
        V.append(rng.standard_normal((width, columns)))
        columns = columns + width if skips else bias + width
    return Student(get("relu"), tuple(V), rng.standard_normal((columns, p)), base, int(bias), skips)


@each("weighted", (False, True))
@each("depth", (1, 2))
@each("bias", (True, False))
@each("skips", (True, False))
def test_readout_sums_and_the_hidden_gradient(depth: int, bias: bool, skips: bool, weighted: bool) -> None:
    student = _student(depth, bias, skips, 2)
    rng = np.random.default_rng(6)
    X, Y, w = rng.standard_normal((N, D)), rng.standard_normal((N, 2)), rng.uniform(0.5, 3.0, N)
    F, weight = with_constant(X, bias), w if weighted else None
    w = w if weighted else np.ones(N)

    def rss(step: np.ndarray) -> float:
        return float(w @ np.sum((Y - student.moved(step)(F)) ** 2, axis=1))

    # With an identity for a readout the student returns what its readout reads.
    h, R = replace(student, theta=np.eye(len(student.theta)))(F), Y - student(F)
    readout, gradient = ReadoutSums(student), HiddenGradient(student)
    for sums in (readout, gradient):
        sums.update(X, Y, weight)
        assert float(sums.sums["rr"]) == pytest.approx(rss(np.zeros(student.size)), rel=1e-12)
        assert sums.n == N
    np.testing.assert_allclose(readout.sums["hh"], h.T @ (w[:, None] * h), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(readout.sums["hr"], h.T @ (w[:, None] * R), rtol=1e-10, atol=1e-11)
    direction = rng.standard_normal(student.size)
    slope = (rss(1e-7 * direction) - rss(-1e-7 * direction)) / 2e-7
    assert slope == pytest.approx(-2.0 * gradient.sums["descent"] @ direction, rel=1e-5)


@each("depth", (1, 2))
@each("bias", (True, False))
@each("affine", (True, False))
def test_the_parameters_of_a_student_in_the_order_of_its_network(depth: int, bias: bool, affine: bool) -> None:
    network = _network("relu", depth, bias, affine, 2)
    student = as_student(network, bias)
    flat = np.concatenate([*(V.ravel() for V in student.V), student.theta.T.ravel()])
    kept = ~are_biases(network) | bias
    np.testing.assert_array_equal(flat[student.parameter_order], parameters(network)[kept])
    np.testing.assert_array_equal(parameters(as_network(student)), parameters(network))


@each("columns", [1, FEW, FEW + 1])
def test_products_of_rows_are_the_upper_triangle_of_outer_products(columns: int) -> None:
    Z = np.random.default_rng(columns).standard_normal((5, columns))
    outer = Z[:, None] * Z
    np.testing.assert_array_equal(row_products(Z), outer[np.triu_indices(5)])
    np.testing.assert_array_equal(row_products(Z, "a test"), outer[np.triu_indices(5)])


@each("activation", ["relu", "leaky_relu(0.1)", "abs"])
@each("n_probes", [0, 2])
def test_sums_by_region_are_those_over_pairs_of_units(
    activation: str, n_probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows on the kinks among them, and a bias, so that some region is met by many rows."""
    network = _network(activation, 1, True, False, 2)
    network = with_parameters(network, np.round(parameters(network)))
    rng = np.random.default_rng(3)
    X, Y = rng.integers(-2, 3, (2_000, D)).astype(float), rng.standard_normal((2_000, 2))
    probes = rng.standard_normal((n_probes, D + 1))
    monkeypatch.setattr("neurecover.statistics.fits.regions.CALL", 0.0)
    assert divide(network.preactivations(X)[0], D + 1) is not None
    by_region = InformationSums.of(network, True, probes)
    by_region.update(X, Y)
    monkeypatch.setattr("neurecover.statistics.fits.information.divide", lambda Z, n_inputs: None)
    monkeypatch.setattr("neurecover.statistics.fits.gate_pairs.PIECE", 100_000)
    by_pairs = InformationSums.of(network, True, probes)
    by_pairs.update(X, Y)
    for name, value in by_pairs.sums.items():
        np.testing.assert_allclose(by_region.sums[name], value, rtol=1e-12, atol=1e-10, err_msg=name)


def test_many_regions_are_not_worth_sorting() -> None:
    Z = np.random.default_rng(0).standard_normal((1_000, 10))
    assert divide(Z, 10) is None
    few = divide(Z[:, :3], 50)
    assert few is not None
    assert np.all(np.diff(few.starts) > 0)
    np.testing.assert_array_equal(np.sort(few.order), np.arange(1_000))
