"""The method `hermite` from samples: coefficients with errors, units, affine parts, the start for the finisher."""

from math import factorial

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from neurecover import simulate
from neurecover.activations import get
from neurecover.algorithms import Call
from neurecover.algorithms.atv21.coefficients import (
    affordable_regression,
    estimate_coefficients,
    gaussian_test,
    low_coefficients,
)
from neurecover.algorithms.atv21.learner import (
    ALGORITHM,
    learn,
    output_weights,
)
from neurecover.algorithms.atv21.looks import looks, sharper_coefficients
from neurecover.algorithms.atv21.printed import PrintedOptions, printed_units
from neurecover.algorithms.atv21.steps import Units, population_coefficients
from neurecover.algorithms.atv21.units import seen_units
from neurecover.data import ArraySource, reduce
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate, recover, run_algorithm
from neurecover.reproduce.atv21 import cosines, worst_cosine
from neurecover.search import Task
from neurecover.search.network import search_network
from neurecover.simulate import sample, teacher
from neurecover.solve import Deadline
from neurecover.statistics.moments.hermite import n_features
from neurecover.statistics.moments.truncated import TruncatedSums
from neurecover.tensors import inner, n_packed

RELU = get("relu")


def data(truth: Network, n: int, seed: int = 0, **how: object) -> ArraySource:
    return ArraySource(*simulate.sample(truth, n, random_state=seed, **how))  # type: ignore[arg-type]


def test_errors_are_those_of_the_coefficients() -> None:
    ratios = []
    for seed in range(8):
        truth = simulate.teacher(4, 4, random_state=seed)
        c = estimate_coefficients(data(truth, 10_000, seed), 4, np.random.default_rng(seed))
        exact = population_coefficients(truth, (1, 2, 3, 4))
        gaps = [(c.tensors[j] - T / c.scale[:, None]) / c.errors[j] for j, T in exact.items()]
        factorials = (1, 2, 6, 24)
        ratios.append([inner(g, g, 4, j)[0] / f / n_packed(4, j) for g, j, f in zip(gaps, (1, 2, 3, 4), factorials)])
    # The errors have heavy tails, so the medians are compared.
    assert np.all(np.abs(np.log(np.median(ratios, axis=0))) < np.log(2.0))


def test_low_orders_gain_from_what_is_known_already() -> None:
    truth = simulate.teacher(30, 3, random_state=0)
    source, rng = data(truth, 10_000), np.random.default_rng(0)
    close = Network(truth.W + 0.02, truth.b, truth.A)
    exact = population_coefficients(truth, (1, 2))
    gaps = []
    for network in (None, close):
        c = low_coefficients(source, rng, network)
        errors = {j: c.tensors[j] * c.scale[:, None] - T for j, T in exact.items()}
        gaps.append([float(inner(E, E, 30, j)[0]) for j, E in errors.items()])
    assert np.all(np.array(gaps[1]) < 0.1 * np.array(gaps[0]))


def test_the_regression_that_samples_and_time_carry() -> None:
    assert affordable_regression(16 * n_features(5, 4), 5, 4) == 4
    assert affordable_regression(16 * n_features(5, 4) - 1, 5, 4) == 3
    assert affordable_regression(10, 5, 4) == -1
    assert affordable_regression(1_000_000, 16, 4) < 4


def test_directions_beat_the_papers_form() -> None:
    ours, paper = [], []
    for seed in range(3):
        truth = simulate.teacher(5, 5, random_state=seed)
        source = data(truth, 20_000, seed)
        rng = np.random.default_rng(seed)
        ours.append(worst_cosine(learn(source, RELU, np.random.default_rng(seed), n_hidden=5).network.W, truth))
        c = estimate_coefficients(source, 4, rng, regress=-1)
        nothing = PrintedOptions(eta_1=0.0, eta_2=0.0, eta_3=0.0)
        paper.append(worst_cosine(printed_units(c, c.tensors, 1, RELU, rng, 5, nothing).W, truth))
    assert np.median(ours) > 0.99
    assert np.median(paper) < 0.95


def test_any_gaussian() -> None:
    rng = np.random.default_rng(0)
    plain, mean, L = simulate.teacher(5, 4, random_state=1), rng.standard_normal(5), rng.standard_normal((5, 5))
    # The same units in other coordinates: W L⁻¹(x − mean) + b.
    W = np.linalg.solve(L.T, plain.W.T).T
    truth = Network(W, plain.b - W @ mean, plain.A)
    found = learn(data(truth, 20_000, inputs=simulate.Gaussian(mean, L @ L.T)), RELU, rng, n_hidden=4)
    X = mean + rng.standard_normal((2_000, 5)) @ L.T
    assert np.mean((found.network(X) - truth(X)) ** 2) < 1e-3 * np.var(truth(X))
    assert worst_cosine(found.network.W @ L, plain) > 0.99


def test_fewer_units_than_dimensions() -> None:
    truth = simulate.teacher(40, 3, random_state=0)
    found = learn(data(truth, 20_000), RELU, np.random.default_rng(0), n_hidden=3)
    angles = subspace_angles(found.whitening.matrix @ found.basis, truth.W.T)
    assert found.basis.shape == (40, 3)
    assert angles.max() < 0.05
    assert worst_cosine(found.network.W, truth) > 0.99


def test_the_span_of_few_units_is_looked_at_again_and_is_part_of_their_errors() -> None:
    """From the first span alone the worst unit was off by 2e-3 to 1e-2, with errors of 1e-4 given for it."""
    ratios = []
    for seed in range(4):
        truth = simulate.teacher(7, 2, random_state=seed)
        found = learn(data(truth, 20_000), RELU, np.random.default_rng(0), n_hidden=2)
        error = compare(found.network, truth).weight_error
        assert error < 1e-3
        ratios.append(error / found.direction_errors.max())
    assert 0.2 < np.median(ratios) < 3.0


@pytest.mark.parametrize(("d", "k"), [(5, 3), (20, 3), (4, 4)])
def test_the_number_of_units(d: int, k: int) -> None:
    truth = simulate.teacher(d, k, random_state=1, kind="orthonormal")
    assert learn(data(truth, 20_000), RELU, np.random.default_rng(0)).fit.W.shape[0] == k


def test_units_that_never_switch_become_affine() -> None:
    plain = simulate.teacher(6, 5, random_state=0, kind="orthonormal", bias=0.4)
    truth = Network(plain.W, [6.0, -6.0, *plain.b[2:]], plain.A)
    found = learn(data(truth, 30_000), RELU, np.random.default_rng(0), n_hidden=5)
    assert len(found.fit.W) == 3
    assert found.fit.affine
    assert found.network.n_hidden == 5
    assert worst_cosine(found.network.W, truth.take([2, 3, 4])) > 0.99
    c = compare(found.network, truth)
    assert c.output_mse < 1e-3


@pytest.mark.parametrize(
    ("spec", "bias"), [("leaky_relu(0.2)", True), ("sigmoid", True), ("power(2)", True), ("relu", False)]
)
def test_other_activations_and_no_biases(spec: str, bias: bool) -> None:
    kind = "gaussian" if spec == "sigmoid" else "orthonormal"
    truth = simulate.teacher(4, 4, 2, random_state=0, activation=spec, bias=0.5 * bias, kind=kind)
    found = learn(data(truth, 20_000), get(spec), np.random.default_rng(0), n_hidden=4, bias=bias)
    assert worst_cosine(found.network.W, truth) > 0.97
    X = np.random.default_rng(1).standard_normal((2_000, 4))
    assert compare(found.network, truth).output_mse < 0.01 * np.var(truth(X))
    if not bias:
        assert not np.any(found.network.b)
        assert not np.any(found.network.c)


def test_more_units_than_dimensions() -> None:
    truth = simulate.teacher(4, 7, random_state=0)
    found = learn(data(truth, 40_000), RELU, np.random.default_rng(0), n_hidden=7)
    assert max(found.coefficients.tensors) == 6
    assert np.median(np.abs(truth.W @ found.network.W.T).max(axis=1)) > 0.95


def test_the_gaussian_test() -> None:
    truth = simulate.teacher(6, 3, random_state=0)
    values = [gaussian_test(data(truth, 2_000, seed)).p_value for seed in range(60)]
    assert 0.25 < np.mean(values) < 0.75
    assert sum(p < 0.05 for p in values) <= 9
    for inputs in ("laplace", "uniform", "exponential", "student(5)", "skewed(4)"):
        test = gaussian_test(data(truth, 5_000, inputs=inputs))
        assert not test.gaussian
        assert "not Gaussian" in test.sentence


def test_more_units_than_inputs_are_found_from_samples() -> None:
    found = []
    for seed in range(100, 102):
        truth = simulate.teacher(6, 9, random_state=seed)
        network = learn(data(truth, 40_000, seed), RELU, np.random.default_rng(seed), n_hidden=9).network
        found.append(int(np.count_nonzero(cosines(network.W, truth) >= 0.99)))
    assert sum(count == 9 for count in found) >= 1


def test_what_a_network_leaves_sharpens_the_coefficients() -> None:
    truth = simulate.teacher(5, 7, random_state=1)
    source, rng = data(truth, 10_000, 1), np.random.default_rng(1)
    close = Network(truth.W + 0.02 * rng.standard_normal((7, 5)), truth.b, truth.A)
    exact = population_coefficients(truth, tuple(range(7)))
    plain = estimate_coefficients(source, 6, rng)
    sharp = sharper_coefficients(source, close, np.eye(5), 6, rng)
    for j in range(2, 7):
        gaps = [c.tensors[j] * c.scale[:, None] - exact[j] for c in (plain, sharp)]
        squares = [float(inner(gap, gap, 5, j)[0]) for gap in gaps]
        assert squares[1] < 0.1 * squares[0]
        # The errors it states are those it has: the mean square of N coordinates within a factor of two.
        own = squares[1] / factorial(j) / n_packed(5, j)
        assert 0.5 < own / (sharp.errors[j] * sharp.scale[0]) ** 2 < 2.0


def test_looks_go_to_order_six_for_many_units_only() -> None:
    assert looks(100_000, 15, crowded=True) == (4, 6)
    assert looks(100_000, 12, crowded=False) == (4, 4)
    assert looks(100_000, 40, crowded=False) == ()


def test_least_squares_in_a_ball() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((500, 4)), rng.standard_normal((500, 2))
    Y += X[:, :2] * 3.0
    sums = reduce(ArraySource(X, Y), TruncatedSums(lambda X: X, 4, 2, np.inf))
    free = sums.solution()
    np.testing.assert_allclose(free, np.linalg.lstsq(X, Y, rcond=None)[0], atol=1e-10)
    bound = sums.solution(1.0)
    np.testing.assert_allclose(np.linalg.norm(bound, axis=0), 1.0, rtol=1e-9)
    # On the sphere the gradient points along β: the condition of a constrained minimum.
    gradient = X.T @ (Y - X @ bound)
    cosines = np.sum(gradient * bound, axis=0) / np.linalg.norm(gradient, axis=0)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-9)


def test_truncation_leaves_out_what_is_large() -> None:
    X = np.array([[1.0], [2.0], [1000.0]])
    Y = np.array([[2.0], [4.0], [0.0]])
    sums = reduce(ArraySource(X, Y), TruncatedSums(lambda X: X, 1, 1, 10.0))
    assert int(sums.sums["kept"]) == 2
    assert sums.solution()[0, 0] == pytest.approx(2.0)


def test_algorithm_5_leaves_out_samples_beyond_tau() -> None:
    truth = simulate.teacher(4, 3, random_state=0)
    X, Y = simulate.sample(truth, 5_000, random_state=0)
    units = Units(truth.W, truth.b, truth.A)
    features = np.column_stack([truth.hidden(X), np.ones(len(X))])
    tau = float(np.quantile(np.linalg.norm(features, axis=1), 0.9))
    beyond = np.linalg.norm(features, axis=1) >= tau
    spoilt = ArraySource(X, np.where(beyond[:, None], 1e3, Y))
    network = output_weights(spoilt, units, RELU, affine=False, bound=tau)
    np.testing.assert_allclose(network.A, truth.A, atol=1e-9)
    assert np.abs(output_weights(spoilt, units, RELU, affine=False).A - truth.A).max() > 1.0


def test_algorithm_5_solves_the_output_weights() -> None:
    truth = simulate.teacher(4, 3, random_state=0)
    source = data(truth, 5_000)
    c = estimate_coefficients(source, 4, np.random.default_rng(0))
    fit = seen_units(c, RELU, np.random.default_rng(0), most=3)
    network = output_weights(source, Units(fit.W, fit.b, fit.A), RELU, affine=False)
    X, Y = source.collect()
    residual = Y - network(X)
    hidden = np.column_stack([network.hidden(X), np.ones(len(X))])
    assert np.abs(hidden.T @ residual).max() < 1e-8 * np.abs(hidden.T @ Y).max()


def task(truth: Network, n: int, k: int | None, bias: bool = True) -> Task:
    return Task(truth.activation, truth.n_inputs, truth.n_outputs, n, bias, k)


def test_the_estimate_starts_the_finisher_at_the_answer() -> None:
    for seed in range(3):
        truth = simulate.teacher(6, 6, random_state=seed)
        source, rng = data(truth, 10_000, seed), np.random.default_rng(seed)
        wanted = task(truth, 10_000, 6)
        estimate = run_algorithm(ALGORITHM, Call(source, wanted, rng, Deadline()))
        assert estimate.network is not None
        rows = np.column_stack([estimate.network.W, estimate.network.b])
        done = search_network(source, wanted, rng, Deadline(), [rows, *estimate.starts])
        assert done.exact
        assert compare(done.network, truth).weight_error < 1e-10


@pytest.mark.parametrize("n", [30, 200])
def test_few_samples_are_survived(n: int) -> None:
    for d, k in ((4, 4), (1, 2), (3, None)):
        truth = simulate.teacher(d, k or 3, random_state=0)
        estimate = run_algorithm(
            ALGORITHM, Call(data(truth, n), task(truth, n, k), np.random.default_rng(0), Deadline())
        )
        assert "Gaussian" in estimate.notes[0]
        assert len(estimate.notes) > 1


def test_same_seed_same_estimate() -> None:
    truth = simulate.teacher(4, 3, random_state=0)
    first, second = (
        run_algorithm(
            ALGORITHM, Call(data(truth, 3_000), task(truth, 3_000, 3), np.random.default_rng(5), Deadline())
        ).network
        for _ in range(2)
    )
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.W, second.W)


def test_what_the_method_refuses() -> None:
    truth = simulate.teacher(3, 3, random_state=0)
    for spec in ("identity", "square", "step"):
        refused = ALGORITHM.refuse(Task(get(spec), 3, 1, 100, True, 3))
        assert refused is not None
        assert spec in refused
    for spec in ("relu", "sigmoid", "exp", "abs", "power(3)", "leaky_relu(0.1)"):
        assert ALGORITHM.refuse(Task(get(spec), 3, 1, 100, True, 3)) is None
        assert ALGORITHM.refuse(Task(get(spec), 3, 1, 100, False, 3)) is None
    linear = ArraySource(np.random.default_rng(0).standard_normal((500, 3)), np.zeros((500, 1)))
    estimate = run_algorithm(ALGORITHM, Call(linear, task(truth, 500, 3), np.random.default_rng(0), Deadline()))
    assert estimate.network is None


def test_no_time_no_work() -> None:
    truth = simulate.teacher(3, 3, random_state=0)
    estimate = run_algorithm(
        ALGORITHM, Call(data(truth, 500), task(truth, 500, 3), np.random.default_rng(0), Deadline.after(0.0))
    )
    assert estimate.network is None
    assert "time" in estimate.notes[-1]


def test_a_fit_beyond_the_limit_is_looked_at_again() -> None:
    """χ² just above what errors explain: a second look brings the error from 0.1 to a thousandth."""
    truth = teacher(6, 9, random_state=2014)
    X, Y = sample(truth, 60_000, random_state=2014)
    e = estimate(X, Y, 9, method="hermite", random_state=2014)
    assert compare(e.network, truth).weight_error < 0.01


def test_recovery_says_whether_the_inputs_are_gaussian() -> None:
    truth = teacher(3, 2, random_state=0)
    for inputs, gaussian in (("gaussian", True), (simulate.Laplace(), False)):
        X, Y = sample(truth, 4_000, inputs=inputs, random_state=1)
        checks = recover(X, Y, 2, method="hermite", random_state=0).certificate.checks
        assert [check.passed for check in checks if check.name == "Gaussian inputs"] == [gaussian]


def test_errors_of_the_directions_are_those_that_are_stated() -> None:
    """The root mean square over 24 units of ‖δw‖ over its standard error: one, give or take a factor of two."""
    ratios = []
    for seed in range(8):
        truth = teacher(3, 3, random_state=40 + seed)
        X, Y = sample(truth, 10_000, noise=0.2, random_state=seed)
        e = estimate(X, Y, 3, method="hermite", random_state=seed)
        found = e.details
        if len(found.fit.W) < 3:
            continue
        W = found.rows(np.column_stack([found.fit.W, found.fit.b]), bias=False) @ e.whitening.matrix.T
        W, true = (V / np.linalg.norm(V, axis=1, keepdims=True) for V in (W, truth.W))
        gaps = np.minimum(*(np.linalg.norm(W[:, None] + sign * true, axis=2).min(axis=1) for sign in (1.0, -1.0)))
        ratios += list(gaps / found.direction_errors)
    assert len(ratios) >= 15
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 2.0
