"""Recovery end to end, and what is said where it cannot be had."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn.neural_network import MLPRegressor

import neurecover as nr
from neurecover.results import Recovery
from neurecover.simulate import Exponential, Gaussian, Perturbed, StudentT


def _exact(recovery: Recovery, truth: nr.Network, tolerance: float = 1e-10) -> bool:
    errors = nr.compare(recovery.network, truth)
    right = errors.weight_error <= tolerance and errors.bias_error <= tolerance and not any(errors.unmatched)
    assert right or recovery.certificate.verdict != "exact", recovery.summary()
    return right and recovery.certificate.verdict == "exact"


@pytest.mark.parametrize("told", [True, False])
def test_one_output_with_biases(told: bool) -> None:
    solved = 0
    for seed in range(10):
        truth = nr.simulate.teacher(8, 6, kind="gaussian", random_state=seed)
        X, Y = nr.simulate.sample(truth, 500, random_state=seed)
        solved += _exact(nr.recover(X, Y, 6 if told else None, random_state=seed), truth)
    assert solved == 10


@pytest.mark.parametrize("p", [3, 10])
@pytest.mark.parametrize("bias", [True, False])
def test_several_outputs(p: int, bias: bool) -> None:
    solved = 0
    for seed in range(5):
        truth = nr.simulate.teacher(6, 6, p, kind="orthonormal", bias=0.5 * bias, random_state=seed)
        X, Y = nr.simulate.sample(truth, 200, random_state=seed)
        solved += _exact(nr.recover(X, Y, 6, bias=bias, random_state=seed), truth)
    assert solved == 5


@pytest.mark.parametrize("activation", ["leaky_relu(0.1)", "sigmoid", "abs", "power(2)", "power(3)", "exp"])
def test_other_activations(activation: str) -> None:
    solved = 0
    for seed in range(4):
        truth = nr.simulate.teacher(5, 4, bias=0.5, activation=activation, random_state=seed)
        X, Y = nr.simulate.sample(truth, 600, random_state=seed)
        solved += _exact(nr.recover(X, Y, 4, activation=activation, random_state=seed), truth)
    assert solved >= 3


def test_more_units_than_dimensions() -> None:
    truth = nr.simulate.teacher(4, 10, kind="gaussian", random_state=0)
    X, Y = nr.simulate.sample(truth, 800, random_state=0)
    assert _exact(nr.recover(X, Y, 10, random_state=0), truth)


@pytest.mark.parametrize(
    "inputs",
    [
        Gaussian(mean=np.array([3.0, -100.0, 0.0, 0.0, 5.0]), covariance=np.diag([1.0, 1e4, 1e-6, 1.0, 4.0]) + 1e-7),
        StudentT(5),
        Exponential(),
        Perturbed(Gaussian(), np.diag([3.0, 1.0, 1.0, 1.0, 0.3]), 0.3),
    ],
    ids=["correlated and shifted", "heavy tails", "asymmetric", "mixture"],
)
def test_inputs_of_any_distribution_and_scale(inputs: nr.simulate.Distribution) -> None:
    rng = np.random.default_rng(0)
    X = inputs(rng, 600, 5)
    # Units whose kinks lie inside the samples, whatever their scale.
    directions = rng.standard_normal((4, 5)) / X.std(axis=0)
    truth = nr.Network(
        directions, -directions @ X.mean(axis=0) + 0.3 * rng.standard_normal(4), rng.standard_normal((1, 4))
    )
    recovery = nr.recover(X, truth(X), 4, random_state=0)
    assert _exact(recovery, truth.normal_form(), 1e-8)


def test_same_seed_same_answer_and_another_seed_the_same_network() -> None:
    truth = nr.simulate.teacher(6, 4, random_state=2)
    X, Y = nr.simulate.sample(truth, 400, random_state=2)
    first, again, other = (nr.recover(X, Y, 4, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.network.W, again.network.W)
    assert first.certificate.reasons == again.certificate.reasons
    assert nr.compare(first.network, other.network).weight_error < 1e-12


def test_noise_gives_error_bars_that_hold() -> None:
    inside = total = 0
    for seed in range(6):
        truth = nr.simulate.teacher(5, 3, kind="gaussian", random_state=seed).normal_form()
        X, Y = nr.simulate.sample(truth, 2_000, noise=0.1, random_state=seed)
        recovery = nr.recover(X, Y, 3, random_state=seed)
        assert recovery.certificate.verdict == "statistical", recovery.summary()
        assert recovery.certificate.noise_variance == pytest.approx(0.01, rel=0.15)
        errors, order = recovery.certificate.standard_errors, nr.compare(recovery.network, truth).permutation
        assert errors is not None
        inside += np.count_nonzero(np.abs(recovery.network.W[order] - truth.W) < 2 * errors.W[order])
        inside += np.count_nonzero(np.abs(recovery.network.b[order] - truth.b) < 2 * errors.b[order])
        inside += np.count_nonzero(np.abs(recovery.network.A[:, order] - truth.A) < 2 * errors.A[:, order])
        total += truth.W.size + truth.b.size + truth.A.size
    assert 0.88 < inside / total < 0.995  # 95 % of 126 dependent parameters, ± three binomial deviations


def test_the_number_of_units_is_found_under_noise() -> None:
    found = []
    for seed in range(5):
        truth = nr.simulate.teacher(5, 4, kind="gaussian", random_state=seed)
        X, Y = nr.simulate.sample(truth, 2_000, noise=0.1, random_state=seed)
        found.append(nr.recover(X, Y, random_state=seed).network.n_hidden)
    assert found.count(4) >= 4


def _samples(n: int = 300) -> tuple[nr.Network, np.ndarray, np.ndarray]:
    truth = nr.simulate.teacher(5, 4, random_state=0)
    return truth, *nr.simulate.sample(truth, n, random_state=0)


RNG = np.random.default_rng(5)
TRUTH, X, Y = _samples()
UNSOLVABLE = {
    "fewer samples than parameters": (X[:20], Y[:20], {"n_hidden": 4}, "cannot determine"),
    "constant outputs": (X, np.ones(300), {"n_hidden": 4}, "constant"),
    "zero outputs": (X, np.zeros(300), {}, "constant"),
    "constant inputs": (np.ones((300, 2)), Y, {}, "constant"),
    "duplicated column": (np.hstack([X, X[:, :1]]), Y, {"n_hidden": 4}, "span 5 of 6"),
    "more units than samples": (X, Y, {"n_hidden": 1_000}, "cannot determine"),
    "no time": (X, Y, {"n_hidden": 4, "time_budget": 0}, ""),
    "too few units": (X, Y, {"n_hidden": 3}, ""),
    "too many units": (X, Y, {"n_hidden": 6}, "6 units were asked for and 4"),
    "noise alone": (X, RNG.standard_normal(300), {"n_hidden": 2, "time_budget": 1.5}, ""),
    "a linear function": (X, X @ np.arange(5.0), {"n_hidden": 2}, ""),
    "another activation": (X, Y, {"n_hidden": 4, "activation": "sigmoid", "time_budget": 1.5}, ""),
    "outliers": (X, Y + 100 * (RNG.random(Y.shape) < 0.02), {"n_hidden": 4, "time_budget": 1.5}, ""),
    "a unit that is never on": (
        X,
        Y + np.maximum(X.sum(1, keepdims=True) - 30, 0),
        {"n_hidden": 5},
        "5 units were asked for",
    ),
    "a unit that is always on": (X, Y + np.maximum(X.sum(1, keepdims=True) + 30, 0), {"n_hidden": 5}, ""),
    "no derivative": (X, Y, {"n_hidden": 4, "activation": "step"}, "derivative"),
}


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.parametrize("case", UNSOLVABLE.values(), ids=UNSOLVABLE)
def test_what_cannot_be_solved_gets_a_verdict_and_a_reason(case: tuple[np.ndarray, np.ndarray, dict, str]) -> None:
    inputs, outputs, options, reason = case
    recovery = nr.recover(inputs, outputs, random_state=0, **options)
    assert recovery.certificate.verdict in ("approximate", "failed"), recovery.summary()
    assert reason in " ".join(recovery.certificate.reasons)
    assert np.isfinite(recovery.network(inputs)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_hidden": 0}, "whole number from 1"),
        ({"n_hidden": 2.5}, "whole number from 1"),
        ({"time_budget": -1}, "seconds"),
        ({"method": "magic"}, "least_squares"),
        ({"method": None}, "method needs to be 'auto' or one of"),
        ({"bias": "no"}, "bias needs to be True or False"),
        ({"activation": np.tanh}, r"of your own: neurecover.activations.Activation.from_function"),
        ({"activation": "tanhh"}, "activation needs to be one of .* Did you mean 'tanh'"),
        ({"n_samples": 5}, "oracle"),
        ({"random_state": "seed"}, "random_state"),
    ],
)
def test_bad_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nr.recover(X, Y, **options)


def test_data_that_is_not_data() -> None:
    with pytest.raises(ValueError, match="x2"):
        nr.recover(np.where(np.arange(5) == 2, np.nan, X), Y)
    with pytest.raises(ValueError, match="at least 5"):
        nr.recover(X[:3], Y[:3])
    with pytest.raises(ValueError, match="rows"):
        nr.recover(X, Y[:-1])


def test_units_that_the_samples_do_not_determine_are_never_certain() -> None:
    # A unit that is on for fewer samples than it has weights can be fitted in many ways.
    for seed in range(8):
        rng = np.random.default_rng(seed)
        base = nr.simulate.teacher(5, 3, random_state=seed)
        w = rng.standard_normal(5)
        w /= np.linalg.norm(w)
        X = rng.standard_normal((300, 5))
        rare = np.sort(X @ w)[-4]  # on for three samples
        truth = nr.Network(np.vstack([base.W, w]), np.append(base.b, -rare), np.hstack([base.A, [[1.0]]]))
        recovery = nr.recover(X, truth(X), random_state=seed)
        assert recovery.certificate.verdict != "exact" or recovery.network.n_hidden == 3
        assert not _exact(recovery, truth) if recovery.network.n_hidden == 4 else True


def test_a_file_a_source_and_an_oracle_go_where_arrays_go(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", X=X, Y=Y)
    model = MLPRegressor(hidden_layer_sizes=(3,), max_iter=2_000, random_state=1, solver="lbfgs").fit(X, Y.ravel())
    teacher = nr.Network(model.coefs_[0].T, model.intercepts_[0], model.coefs_[1].T, model.intercepts_[1])
    assert _exact(nr.recover(tmp_path / "samples.npz", n_hidden=4, random_state=0), TRUTH)
    assert _exact(nr.recover(nr.open(tmp_path / "samples.npz"), n_hidden=4, random_state=0), TRUTH)
    asked = nr.oracle(model, n_inputs=5, random_state=0)
    recovery = nr.recover(asked, n_hidden=3, n_samples=500, random_state=0)
    assert _exact(recovery, teacher, 1e-9)


def test_more_data_than_memory_is_streamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(import_module("neurecover.data.source"), "IN_MEMORY", 50_000)
    truth = nr.simulate.teacher(5, 4, kind="gaussian", random_state=0)
    inputs, outputs = nr.simulate.sample(truth, 3_000, random_state=0)
    np.savez(tmp_path / "large.npz", X=inputs, Y=outputs)
    recovery = nr.recover(tmp_path / "large.npz", n_hidden=4, random_state=0)
    assert _exact(recovery, truth)
    assert {"read", "search", "last fit", "certify"} <= {stage.name for stage in recovery.stages}


def test_a_recovery_saved_and_read_again(tmp_path: Path) -> None:
    truth = nr.simulate.teacher(4, 3, random_state=0)
    X, Y = nr.simulate.sample(truth, 1_000, noise=0.05, random_state=0)
    recovery = nr.recover(X, Y, 3, random_state=0)
    recovery.save(tmp_path / "recovery.npz")
    again = Recovery.load(tmp_path / "recovery.npz")
    assert again.summary() == recovery.summary()
    assert again.certificate.reasons == recovery.certificate.reasons
    assert again.certificate.standard_errors is not None
    np.testing.assert_array_equal(nr.load(tmp_path / "recovery.npz").W, recovery.network.W)


def test_progress_is_told_to_a_callable() -> None:
    told: list[tuple[str, float]] = []
    nr.recover(X, Y, 4, random_state=0, progress=lambda stage, residual: told.append((stage, residual)))
    assert [stage for stage, _ in told][:2] == ["read", "search"]


def test_a_width_that_noise_leaves_open_is_not_certified() -> None:
    # 20 networks of two to four units, 12 to 20 noisy equations per parameter, k not told: a statistical verdict with
    # the wrong number of visible units in at most one of them (0 were seen), and a right one in at least half.
    wrong = right = 0
    rng = np.random.default_rng(5)
    for seed in range(20):
        d, k = int(rng.integers(2, 6)), int(rng.integers(2, 5))
        n = int((k * (d + 2) + 1) * rng.uniform(12, 20))
        truth = nr.simulate.teacher(d, k, kind="sphere", bias=0.7, random_state=seed)
        X, Y = nr.simulate.sample(truth, n, random_state=seed)
        Y = Y + 0.05 * Y.std() * np.random.default_rng(seed).standard_normal(Y.shape)
        recovery = nr.recover(X, Y, random_state=seed)
        if recovery.certificate.verdict == "statistical":
            same = recovery.network.n_hidden == k
            right, wrong = right + same, wrong + (not same)
    assert wrong <= 1
    assert right >= 10


def test_too_few_noisy_equations_are_not_statistical() -> None:
    truth = nr.simulate.teacher(4, 3, random_state=0)
    X, Y = nr.simulate.sample(truth, 60, noise=0.01, random_state=0)
    certificate = nr.recover(X, Y, 3, random_state=0).certificate
    assert certificate.verdict == "approximate"
    assert any("60 noisy equations for 16 parameters" in reason for reason in certificate.reasons)
