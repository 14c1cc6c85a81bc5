"""Students of several layers with skips: their sums, steps, narrowing and signs, against independent computations."""

from dataclasses import replace

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.data import ArraySource, reduce
from neurecover.matching import compare
from neurecover.models import DeepNetwork, jacobian, parameters, with_parameters
from neurecover.models.deep_student import DeepStudent
from neurecover.refine.deep_adam import warm_up
from neurecover.refine.deep_descent import Effort, descend_deep, solve_readout
from neurecover.refine.deep_likely_signs import Information
from neurecover.refine.deep_narrow import with_fresh_units, without, worth
from neurecover.refine.deep_planes import first_planes
from neurecover.refine.deep_signs import count_signs, likely_networks, without_skips
from neurecover.refine.model_fit import fit_model
from neurecover.solve import Deadline
from neurecover.statistics import ModelSums
from neurecover.statistics.deep_gauss_newton import DeepGaussNewtonSums, DeepReadoutSums

N, D = 400, 4
CASES = [("relu", (5, 4), 1, True), ("leaky_relu(0.2)", (4, 3), 2, False), ("relu", (4, 3, 3), 2, True)]
every_case = pytest.mark.parametrize(("activation", "widths", "p", "bias"), CASES)


def _student(activation: str, widths: tuple[int, ...], p: int, bias: bool, seed: int = 0) -> DeepStudent:
    rng = np.random.default_rng(seed)
    hidden, columns = [], D + bias
    for m in widths:
        hidden.append(rng.standard_normal((m, columns)) / np.sqrt(columns))
        columns += m
    return DeepStudent(get(activation), tuple(hidden), rng.standard_normal((columns, p)), bias)


def _samples(student: DeepStudent, seed: int = 1, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    Y = student(X)
    return X, Y + noise * rng.standard_normal(Y.shape)


def _network(activation: str, widths: tuple[int, ...], p: int, bias: bool, seed: int = 0) -> DeepNetwork:
    """Unit rows; with biases, units that are on for about half of the samples, so that every weight is seen."""
    rng = np.random.default_rng(seed)
    act, layers = get(activation), []
    H = rng.standard_normal((N, D))
    for k in widths:
        W = rng.standard_normal((k, H.shape[1]))
        W /= np.linalg.norm(W, axis=1, keepdims=True)
        b = bias * (0.3 * rng.standard_normal(k) - (H @ W.T).mean(axis=0))
        layers.append((W, b))
        H = act(H @ W.T + b)
    layers.append((rng.standard_normal((p, H.shape[1])), np.zeros(p)))
    return DeepNetwork(layers, activation)


def _moved(student: DeepStudent, delta: np.ndarray) -> DeepStudent:
    hidden, start = [], 0
    for V in student.hidden:
        hidden.append(V + delta[start : start + V.size].reshape(V.shape))
        start += V.size
    return replace(student, hidden=tuple(hidden))


@every_case
def test_the_sums_are_those_of_a_jacobian_by_differences(
    activation: str, widths: tuple[int, ...], p: int, bias: bool
) -> None:
    student = _student(activation, widths, p, bias)
    X, Y = _samples(student)
    P, h = student.n_hidden_weights, 1e-6
    J = np.stack([(_moved(student, h * e)(X) - _moved(student, -h * e)(X)) / (2 * h) for e in np.eye(P)], axis=2)
    # A sample within h of a kink has no derivative there; the sums are compared on the others.
    values = student.forward(X)
    smooth = np.ones(N, dtype=bool)
    for layer, V in enumerate(student.hidden):
        smooth &= np.abs(values.features[:, student.below(layer)] @ V.T).min(axis=1) > 1e-4
    X, Y, J = X[smooth], Y[smooth], J[smooth]
    C, R = student.forward(X).features, Y - student(X)
    sums = reduce(ArraySource(X, Y), DeepGaussNewtonSums(student))
    np.testing.assert_allclose(sums.curvature(), np.einsum("noi,noj->ij", J, J), rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(sums.sums["jr"], np.einsum("noi,no->i", J, R), rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(sums.sums["hj"], np.einsum("nq,noi->oqi", C, J), rtol=1e-6, atol=1e-4)
    single = reduce(ArraySource(X, Y), DeepGaussNewtonSums(student, 0.1, single=True))
    size = np.abs(sums.sums["jj"]).max()
    np.testing.assert_allclose(single.sums["jj"], sums.sums["jj"], atol=1e-4 * size)


def test_sums_of_parts_merge_into_the_whole() -> None:
    student, network = _student(*CASES[2]), _network(*CASES[2])
    X, Y = _samples(student)
    for statistic in (DeepReadoutSums(student), DeepGaussNewtonSums(student), ModelSums(network)):
        whole, first, second = statistic.blank(), statistic.blank(), statistic.blank()
        whole.update(X, Y)
        first.update(X[:150], Y[:150])
        second.update(X[150:], Y[150:])
        first.merge(second)
        for name, value in whole.sums.items():
            np.testing.assert_allclose(first.sums[name], value, rtol=1e-10, atol=1e-9, err_msg=name)
    with pytest.raises(ValueError, match="same arguments"):
        ModelSums(network).merge(ModelSums(_network(*CASES[2], seed=1)))


@every_case
def test_the_sums_of_a_network_are_those_of_its_jacobian(
    activation: str, widths: tuple[int, ...], p: int, bias: bool
) -> None:
    network = _network(activation, widths, p, bias)
    X, Y = _samples(_student(activation, widths, p, bias))
    sums = reduce(ArraySource(X, Y), ModelSums(network))
    J, R = jacobian(network, X), Y - network(X)
    np.testing.assert_allclose(sums.curvature(), np.einsum("noi,noj->ij", J, J), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(sums.sums["jr"], np.einsum("noi,no->i", J, R), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(sums.sums["rr"], np.sum(R**2, axis=0))


@every_case
def test_a_descent_returns_to_the_student_that_made_the_samples(
    activation: str, widths: tuple[int, ...], p: int, bias: bool
) -> None:
    student = _student(activation, widths, p, bias)
    X, Y = _samples(student, noise=0.0)
    rng = np.random.default_rng(3)
    start = _moved(student, 1e-3 * rng.standard_normal(student.n_hidden_weights))
    source, total = ArraySource(X, Y), float(np.sum(Y**2))
    before = solve_readout(source, start)[1]
    found = descend_deep(source, start, total, Effort(60), Deadline())
    assert before > 1e-10 * total
    assert found.relative_rss < 1e-26
    assert found.rss <= float(np.sum((Y - found.student(X)) ** 2)) + 1e-24 * total


def test_adam_lowers_the_loss_and_repeats_itself() -> None:
    student = _student("relu", (4, 3), 1, True)
    X, Y = _samples(student, noise=0.0)
    Y = (Y - Y.mean(axis=0)) / Y.std()
    start = _student("relu", (8, 6), 1, True, seed=9)
    first, second = (warm_up(X, Y, start, 400, np.random.default_rng(5), Deadline()) for _ in range(2))
    assert np.mean((first(X) - Y) ** 2) < 0.2 * np.mean(Y**2)
    np.testing.assert_array_equal(first.readout, second.readout)


def _with_unit(student: DeepStudent, layer: int, row: np.ndarray) -> DeepStudent:
    """One more unit in a layer, read by everything above with random weights."""
    grown = with_fresh_units(
        student, tuple(m + (at == layer) for at, m in enumerate(student.widths)), np.random.default_rng(0)
    )
    rng = np.random.default_rng(8)
    hidden, unit = list(grown.hidden), grown.widths[layer] - 1
    hidden[layer][unit] = row
    for above in range(layer + 1, grown.depth):
        hidden[above][:, grown.own(layer).start - grown.below(above).start + unit] = rng.standard_normal(
            len(hidden[above])
        )
    readout = grown.readout.copy()
    readout[grown.own(layer).start + unit] = 1.0
    return replace(grown, hidden=tuple(hidden), readout=readout)


@every_case
@pytest.mark.parametrize("factor", [2.0, -0.5])
def test_a_unit_that_repeats_another_goes_at_no_cost(
    activation: str, widths: tuple[int, ...], p: int, bias: bool, factor: float
) -> None:
    student = _student(activation, widths, p, bias)
    X, _ = _samples(student)
    for layer in range(student.depth):
        spare = _with_unit(student, layer, factor * student.hidden[layer][1])
        found = worth(spare, X, layer)
        unit = int(np.argmin(found.cost))
        scale = float(np.sum(spare(X) ** 2))
        assert unit in (1, spare.widths[layer] - 1)
        assert found.cost[unit] < 1e-16 * scale
        assert np.sort(found.cost)[2] > 1e-8 * scale
        less = without(spare, layer, unit, found.regression[:, unit])
        np.testing.assert_allclose(less(X), spare(X), atol=1e-6 * np.sqrt(scale / N))


def test_the_cost_of_a_top_unit_is_what_the_best_readout_loses() -> None:
    student = _student(*CASES[0])
    X, Y = _samples(student)
    source = ArraySource(X, Y)
    student, rss = solve_readout(source, student)
    found = worth(student, X, 1)
    for unit in range(student.widths[1]):
        _, after = solve_readout(source, without(student, 1, unit, found.regression[:, unit]))
        assert after - rss == pytest.approx(found.cost[unit], rel=1e-6)


@every_case
def test_fresh_units_change_nothing_until_they_are_read(
    activation: str, widths: tuple[int, ...], p: int, bias: bool
) -> None:
    student = _student(activation, widths, p, bias)
    X, _ = _samples(student)
    grown = with_fresh_units(student, tuple(2 * m for m in widths), np.random.default_rng(0))
    assert grown.widths == tuple(2 * m for m in widths)
    np.testing.assert_allclose(grown(X), student(X), atol=1e-12)


def test_planes_are_ordered_by_their_jump_and_cancelling_pairs_have_none() -> None:
    student = _student("relu", (3, 2), 1, True)
    X = np.random.default_rng(4).standard_normal((4_000, D))
    row = np.array([0.3, -1.0, 0.4, 0.2, 0.1])
    pair = _with_unit(_with_unit(student, 0, row), 0, row)
    hidden = [V.copy() for V in pair.hidden]
    at = pair.own(0).start - pair.below(1).start
    hidden[1][:, at + 4] = -hidden[1][:, at + 3]
    readout = pair.readout.copy()
    readout[pair.own(0).start + 4] = -readout[pair.own(0).start + 3]
    planes = first_planes(replace(pair, hidden=tuple(hidden), readout=readout), X)
    assert len(planes.V) == 4
    assert np.all(np.diff(planes.jumps) <= 0)
    assert planes.jumps[3] < 1e-12 * planes.jumps[2]
    np.testing.assert_allclose(planes.V[3] * np.sign(planes.V[3, 0]), row / np.linalg.norm(row[:D]))


def _as_student(network: DeepNetwork, flips: list[np.ndarray], bias: bool) -> DeepStudent:
    """The same function with the given units turned round and skips that make up for it."""
    slope = network.activation.odd_slope or 0.0
    rows = np.hstack([network.layers[0][0], network.layers[0][1][:, None]] if bias else [network.layers[0][0]])
    hidden = []
    for flip, (A, c) in zip(flips, network.layers[1:]):
        hidden.append(np.where(flip[:, None], -rows, rows))
        skips = slope * (A[:, flip] @ rows[flip])  # act(z) = act(−z) + m z
        if bias:
            skips[:, -1] += c
        rows = np.hstack([A, skips])
    return DeepStudent(network.activation, tuple(hidden), rows.T, bias)


@every_case
def test_skips_turn_into_signs(activation: str, widths: tuple[int, ...], p: int, bias: bool) -> None:
    network = _network(activation, widths, p, bias)
    X = np.random.default_rng(2).standard_normal((N, D))
    rng = np.random.default_rng(6)
    for _ in range(5):
        flips = [rng.random(m) < 0.5 for m in widths]
        student = _as_student(network, flips, bias)
        np.testing.assert_allclose(student(X), network(X), atol=1e-10)
        found = without_skips(student)
        assert len(found) == 1
        assert compare(found[0], network).weight_error < 1e-9
        np.testing.assert_allclose(found[0](X), network(X), atol=1e-9)
    assert count_signs(network) == 1


def test_the_likeliest_signs_under_noise_are_the_right_ones_and_their_distance_is_that_of_chance() -> None:
    right, distance, degrees = 0, 0.0, 0
    for seed in range(6):
        network = _network("relu", (4, 3), 2, True, seed)
        rng = np.random.default_rng([seed, 7])
        X = rng.standard_normal((3_000, D))
        Y = network(X)
        Y = Y + 0.05 * Y.std(axis=0) * rng.standard_normal(Y.shape)
        flips = [rng.random(m) < 0.5 for m in network.n_hidden]
        source, total = ArraySource(X, Y), float(np.sum(Y**2))
        fit = descend_deep(source, _as_student(network, flips, True), total, Effort(30), Deadline())
        information = Information(source, fit.student)
        likely = [information.likely(layer, 4) for layer in range(2)]
        found = all(np.array_equal(signs.flips[0], flip) for signs, flip in zip(likely, flips))
        if found:
            distance += sum(signs.misfit[0] for signs in likely)
            degrees += sum(signs.n_skips for signs in likely)
            assert compare(likely_networks(source, fit.student)[0], network).weight_error < 0.5
        right += found
    assert right >= 4  # a unit that is hardly ever off, or on, leaves its sign open
    assert 0.5 * degrees < distance < 2.0 * degrees  # χ² of about 100 degrees: five of its standard deviations are 0.7


def test_signs_that_are_open_are_counted() -> None:
    # The first layer's two units are opposite ways of one plane's complement: w₁ + w₂ = 0 for whatever reads both.
    network = DeepNetwork([([[1.0, 0.0], [-1.0, 0.0], [0.3, 1.0]], None), ([[1.0, 1.0, 0.5]], None), ([[2.0]], None)])
    assert count_signs(network) == 2


def _weakest(network: DeepNetwork, X: np.ndarray, bias: bool) -> float:
    """How well the samples determine the weights of this network; random ones of three narrow layers may be dead."""
    return fit_model(ArraySource(X, network(X)), network, bias=bias).weakest


@every_case
def test_a_network_is_fitted_back_to_rounding(activation: str, widths: tuple[int, ...], p: int, bias: bool) -> None:
    X = np.random.default_rng(2).standard_normal((2_000, D))
    networks = (_network(activation, widths, p, bias, seed) for seed in range(20))
    network = next(candidate for candidate in networks if _weakest(candidate, X, bias) > 1e-4)
    Y = network(X)
    theta = parameters(network)
    moved = theta + 1e-3 * np.random.default_rng(1).standard_normal(theta.shape) * (theta != 0)
    fit = fit_model(ArraySource(X, Y), with_parameters(network, moved), bias=bias)
    assert fit.converged
    assert compare(fit.network, network).weight_error < 1e-10
    if not bias:
        assert all(not b.any() for _, b in fit.network.layers)


def test_a_spare_unit_shows_in_the_information() -> None:
    network = _network("relu", (3, 2), 1, True)
    (W, b), (V, c), (A, e) = network.layers
    double = DeepNetwork([(W[[0, 1, 2, 2]], b[[0, 1, 2, 2]]), (np.hstack([V[:, :2], 0.5 * V[:, [2, 2]]]), c), (A, e)])
    X = np.random.default_rng(2).standard_normal((2_000, D))
    Y = network(X)
    assert fit_model(ArraySource(X, Y), network, bias=True).weakest > 1e-8
    assert fit_model(ArraySource(X, Y), double, bias=True).weakest < 1e-13
