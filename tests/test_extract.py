"""Weights from questions through the public surface: what comes out, what it cost, and what is refused."""

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.neural_network import MLPRegressor

import neurecover as nr
from neurecover.certificate.from_queries import Asked, certify_queried
from neurecover.data import CommandModel
from neurecover.data.options import CallOptions
from neurecover.data.oracles.answers import SavedAnswers
from neurecover.data.oracles.calls import Arrived
from neurecover.statistics import Residuals


def he(dims: tuple[int, ...], seed: int) -> nr.DeepNetwork:
    """A network with weights of variance 2/(fan-in) and small biases."""
    rng = np.random.default_rng(seed)
    return nr.DeepNetwork(
        [(rng.standard_normal((b, a)) * np.sqrt(2 / a), 0.1 * rng.standard_normal(b)) for a, b in pairwise(dims)]
    )


def shallow(dims: tuple[int, int, int], seed: int) -> nr.Network:
    (W, b), (A, c) = he(dims, seed).layers
    return nr.Network(W, b, A, c)


@pytest.mark.parametrize("dims", [(10, 10, 1), (20, 8, 3), (4, 8, 1)])
def test_one_hidden_layer_from_fewer_questions_than_samples_would_take(dims: tuple[int, int, int]) -> None:
    for seed in range(3):
        truth = shallow(dims, seed)
        box = nr.oracle(truth, dims[0])
        found = nr.extract(box, random_state=seed)
        errors = nr.compare(found.network, truth)
        assert found.certificate.verdict == "exact", found.summary()
        assert errors.weight_error < 1e-9
        assert errors.unmatched == ((), ())
        assert found.n_queries is not None
        assert found.n_queries < 8 * truth.n_parameters
        assert box.queries - 2 == found.n_queries  # the oracle itself asked twice to learn the number of outputs


def normal(d: int, k: int, seed: int) -> nr.Network:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((k, d)), rng.standard_normal(k), rng.standard_normal((1, k)), rng.standard_normal(1)
    return nr.Network(*parts)


def test_many_more_units_than_inputs_with_signs_proved_unique() -> None:
    truth = normal(10, 50, 7)
    found = nr.extract(nr.oracle(truth, 10), random_state=7)
    assert found.certificate.verdict == "exact", found.summary()
    assert nr.compare(found.network, truth).weight_error < 1e-8
    assert found.n_queries is not None
    assert found.n_queries <= 40 * 50


def test_where_signs_stay_open_the_function_is_returned_with_an_affine_term() -> None:
    # Two equations of about 45 bits do not tell the signs of 60 units.
    truth = normal(2, 60, 3)
    found = nr.extract(nr.oracle(truth, 2), depth=1, random_state=0)
    assert found.certificate.verdict == "approximate", found.summary()
    assert found.network.n_hidden == 60
    assert found.network.C is not None
    assert any("signs of 60 units are too many to be searched with 2" in said for said in found.certificate.reasons)
    # Other lines do not make the signs fewer: one search is enough.
    assert found.n_queries is not None
    assert found.n_queries <= 40 * 60
    X = np.random.default_rng(0).standard_normal((100, 2))
    assert np.abs(found.network(X) - truth(X)).max() < 1e-8 * np.abs(truth(X)).max()


def test_more_accuracy_takes_more_questions() -> None:
    truth = shallow((210, 12, 1), 0)
    usual, fine = (nr.extract(nr.oracle(truth, 210), accuracy=wish, random_state=0) for wish in (1e-9, 1e-13))
    assert usual.n_queries is not None
    assert fine.n_queries is not None
    assert usual.n_queries < fine.n_queries < 2.5 * usual.n_queries
    assert nr.compare(fine.network, truth).weight_error < 1e-12
    with pytest.raises(ValueError, match="between 0 and 1"):
        nr.extract(nr.oracle(truth, 210), accuracy=0.0)


def test_two_hidden_layers_with_widths_and_depth_found() -> None:
    truth = he((8, 6, 5, 1), 3)
    found = nr.extract(nr.oracle(truth, 8), random_state=0)
    assert isinstance(found.network, nr.DeepNetwork)
    assert found.network.n_hidden == (6, 5)
    assert found.certificate.verdict == "exact", found.summary()
    assert nr.compare(found.network, truth).weight_error < 1e-9


def test_a_trained_regressor() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = MLPRegressor(hidden_layer_sizes=(8,), solver="lbfgs", max_iter=400, random_state=0).fit(
        10 * X, (y - y.mean()) / y.std()
    )
    truth = nr.Network(model.coefs_[0].T, model.intercepts_[0], model.coefs_[1].T, model.intercepts_[1])
    found = nr.extract(nr.oracle(model, 10), random_state=0)
    errors = nr.compare(found.network, truth)
    assert found.certificate.verdict == "exact", found.summary()
    assert errors.weight_error < 1e-8


def in_float32(network: nr.Network) -> tuple[Callable[[np.ndarray], np.ndarray], nr.Network]:
    """A box that works in single precision throughout, and the weights that it has."""
    W, b, A, c = (array.astype(np.float32) for array in (network.W, network.b, network.A, network.c))

    def box(X: np.ndarray) -> np.ndarray:
        return np.maximum(X.astype(np.float32) @ W.T + b, np.float32(0)) @ A.T + c

    return box, nr.Network(*(array.astype(float) for array in (W, b, A, c)))


def to_digits(network: nr.Network) -> tuple[Callable[[np.ndarray], np.ndarray], nr.Network]:
    return lambda X: np.round(network(X), 6), network


def in_standard_errors(found: nr.Recovery, truth: nr.Network) -> np.ndarray:
    """(weights found − true ones) / their standard errors."""
    errors, ours, true = found.certificate.standard_errors, found.network.normal_form(), truth.normal_form()
    assert errors is not None
    pairs = np.argmin(np.linalg.norm(ours.W[:, None] - true.W, axis=2), axis=1)
    assert sorted(pairs) == list(range(truth.n_hidden))
    differences = (ours.W - true.W[pairs], ours.b - true.b[pairs], ours.A - true.A[:, pairs])
    return np.concatenate([(d / errors[name]).ravel() for name, d in zip("WbA", differences)])


@pytest.mark.parametrize("kind", ["float32", "digits"])
def test_coarse_answers_have_error_bars_that_hold(kind: str) -> None:
    z = []
    for seed in range(200, 206):
        box, truth = (in_float32 if kind == "float32" else to_digits)(shallow((10, 10, 1), seed))
        found = nr.extract(nr.oracle(box, 10), random_state=seed)
        assert found.certificate.verdict == "statistical", found.summary()
        if kind == "float32":
            assert nr.compare(found.network, truth).weight_error < 3e-6
        z.append(in_standard_errors(found, truth))
    # 720 weights of 6 networks: 95 % within 1.96, less 3 standard deviations of a count of 120 independent ones.
    assert np.mean(np.abs(np.concatenate(z)) < 1.96) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 120)
    # The bars are no wider than they need to be.
    assert np.sqrt(np.mean(np.concatenate(z) ** 2)) > 0.4


BOXES = {
    "sine": lambda X: np.sin(X @ np.linspace(-1, 1, 4)),
    "cubic": lambda X: X[:, 0] ** 3 + X[:, 1],
    "random": lambda X: np.random.default_rng(int(abs(X.sum()) * 1e6) % 2**31).standard_normal(len(X)),
    "softmax": lambda X: softmax(X[:, :3], axis=1),
    "constant": lambda X: np.ones(len(X)),
}


@pytest.mark.parametrize("name", [*BOXES, "trees"])
def test_boxes_that_are_no_networks_are_never_exact(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    trees = GradientBoostingRegressor(n_estimators=20, random_state=0).fit(X, X[:, 0] * X[:, 1])
    model = trees if name == "trees" else BOXES[name]
    found = nr.extract(nr.oracle(model, 4), random_state=0, query_budget=100_000)
    assert found.certificate.verdict not in ("exact", "statistical"), found.summary()
    assert found.certificate.reasons[0].endswith(".")


def test_a_budget_is_kept() -> None:
    truth = shallow((10, 10, 1), 0)
    found = nr.extract(nr.oracle(truth, 10), random_state=0, query_budget=60)
    assert found.certificate.verdict == "failed"
    assert "budget of 60 queries" in found.certificate.reasons[0]
    assert found.n_queries is not None
    assert found.n_queries <= 60


@pytest.mark.parametrize("budget", [1, 10])
def test_nothing_is_said_of_held_out_samples_where_there_are_none(budget: int) -> None:
    found = nr.extract(nr.oracle(shallow((10, 10, 1), 0), 10), random_state=0, query_budget=budget)
    assert found.certificate.verdict == "failed"
    assert found.certificate.n_holdout == 0
    assert np.isnan(found.certificate.holdout_mse)
    assert f"budget of {budget} queries" in found.certificate.reasons[0]
    assert "held out" not in found.summary()
    assert "per parameter" not in found.summary()


def test_a_run_that_was_broken_off_goes_on_without_asking_twice(tmp_path: Path) -> None:
    truth = shallow((6, 5, 1), 1)
    asked = 0

    def counted(X: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(X)
        if asked > 150:
            raise KeyboardInterrupt
        return truth(X)

    with pytest.raises(KeyboardInterrupt):
        nr.extract(nr.oracle(counted, 6, keep=tmp_path / "a.bin", random_state=0), random_state=0)
    first, asked = asked, -10_000
    found = nr.extract(nr.oracle(counted, 6, keep=tmp_path / "a.bin", random_state=0), random_state=0)
    assert found.certificate.verdict == "exact"
    whole = nr.extract(nr.oracle(truth, 6, random_state=0), random_state=0)
    np.testing.assert_array_equal(found.network.W, whole.network.W)
    assert whole.n_queries is not None
    assert first + (asked + 10_000) <= whole.n_queries + 160


def test_kept_answers_survive_a_half_written_row(tmp_path: Path) -> None:
    def doubled(X: np.ndarray, arrived: Arrived) -> np.ndarray:
        arrived(X, X[:, :1] * 2)
        return X[:, :1] * 2

    path = tmp_path / "answers.bin"
    kept = SavedAnswers(doubled, 3, path)
    X = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(kept(X), X[:, :1] * 2)
    path.write_bytes(path.read_bytes()[:-5])
    again = SavedAnswers(doubled, 3, path)
    assert len(again) == 3
    np.testing.assert_array_equal(again(X), X[:, :1] * 2)
    with pytest.raises(ValueError, match="keeps answers to 3 inputs"):
        SavedAnswers(doubled, 4, path)
    (tmp_path / "other").write_text("hello")
    with pytest.raises(ValueError, match="another kind of file"):
        SavedAnswers(doubled, 4, tmp_path / "other")


def test_a_failure_that_passes_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.oracles.calls.OPTIONS", CallOptions(pause=0.0))
    truth, calls = shallow((4, 3, 1), 0), []

    def shaky(X: np.ndarray) -> np.ndarray:
        calls.append(len(X))
        if len(calls) % 3 == 2:
            raise ConnectionError("the line is down")
        return truth(X)

    assert nr.extract(nr.oracle(shaky, 4), random_state=0).certificate.verdict == "exact"
    with pytest.raises(ConnectionError):
        nr.oracle(lambda X: (_ for _ in ()).throw(ConnectionError("down")), 4)


def test_a_command_is_a_box(tmp_path: Path) -> None:
    script = tmp_path / "box.py"
    script.write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    x = [float(word) for word in line.split()]\n"
        "    print(max(x[0] - x[1], 0.0) - 2 * max(x[1] + 0.5, 0.0))\n"
    )
    box = CommandModel(f"{sys.executable} {script}")
    np.testing.assert_allclose(box(np.array([[1.0, 0.0], [0.0, 1.0]])), [[0.0], [-3.0]])
    with pytest.raises(ValueError, match="no program"):
        CommandModel("no-such-program-here")(np.ones((1, 2)))
    with pytest.raises(OSError, match="ended with status"):
        CommandModel(f"{sys.executable} -c 'raise SystemExit(3)'")(np.ones((1, 2)))
    with pytest.raises(ValueError, match="expected 2 lines of numbers"):
        CommandModel(f"{sys.executable} -c 'print(1)'")(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"1 lines of numbers.*not convert string"):
        CommandModel(f"{sys.executable} -c 'print(\"no\")'")(np.ones((1, 2)))


def test_arguments() -> None:
    with pytest.raises(ValueError, match=r"wrap the model as neurecover.oracle"):
        nr.extract(lambda X: X)
    box = nr.oracle(shallow((4, 3, 1), 0), 4)
    with pytest.raises(ValueError, match="has 2 hidden layers"):
        nr.extract(box, n_hidden=(3, 2), depth=1)
    with pytest.raises(ValueError, match="whole numbers from 1"):
        nr.extract(box, n_hidden=0)
    found = nr.extract(box, n_hidden=4, random_state=0)
    assert found.certificate.verdict == "approximate"
    assert "4 units were asked for and 3 found" in found.certificate.reasons[0]


@pytest.mark.parametrize("layer", [0, 1])
def test_signs_that_may_change_together_are_seen_in_every_layer(layer: int) -> None:
    # a relu(z + s) − a relu(z + t) is, up to a constant, the same with both units reversed.
    layers = [(W.copy(), b.copy()) for W, b in he((6, 5, 4, 1), 0).layers]
    W, b = layers[layer]
    W[1], b[1] = W[0], b[0] + 0.3
    layers[layer + 1][0][:, 1] = -layers[layer + 1][0][:, 0]
    network = nr.DeepNetwork(layers).normal_form()
    asked = Asked(10_000, 1e-15, 2e-16, True, 1e-14, ())
    holdout = Residuals(network, 1, 9)
    X = np.random.default_rng(0).standard_normal((24, 6))
    holdout.update(X, network(X))
    certificate = certify_queried(network, asked, holdout, None)
    assert certificate.verdict == "approximate"
    assert "choices of the units' signs give the same function" in " ".join(certificate.reasons)
    plain = he((6, 5, 4, 1), 0).normal_form()
    holdout = Residuals(plain, 1, 9)
    holdout.update(X, plain(X))
    assert certify_queried(plain, asked, holdout, None).verdict == "exact"


def test_the_certificate_says_how_faint_a_unit_would_be_missed() -> None:
    truth = shallow((6, 5, 1), 0)
    A = truth.A.copy()
    A[0, 2] = 1e-15
    found = nr.extract(nr.oracle(nr.Network(truth.W, truth.b, A, truth.c), 6), random_state=0)
    assert found.network.n_hidden == 4
    check = next(check for check in found.certificate.checks if check.name == "found width")
    assert check.figure is not None
    assert 1e-15 < check.figure < 1e-10
    assert "adds less than about" in " ".join(found.certificate.reasons)


def test_progress_tells_layer_units_queries_and_time_left() -> None:
    said: list[str] = []
    nr.extract(
        nr.oracle(he((8, 6, 5, 1), 3), 8),
        random_state=0,
        time_budget=100_000,
        progress=lambda stage, figure: said.append(stage),
    )
    wanted = re.compile(r"units of hidden layer 2: 5, [\d,]+ queries, [\d,]+/s, \d+ s left")
    assert any(wanted.fullmatch(stage) for stage in said), said


@pytest.mark.parametrize("activation", ["gelu", "silu", "softplus"])
def test_smooth_units_are_extracted_with_their_function_and_number(activation: str) -> None:
    truth = nr.simulate.teacher(5, 4, 2, activation=activation, random_state=0)
    oracle = nr.oracle(truth, n_inputs=5)
    before = oracle.queries
    found = nr.extract(oracle, random_state=0)
    assert found.certificate.verdict == "exact"
    assert str(found.network.activation) == activation
    assert found.network.n_hidden == 4
    assert nr.compare(truth, found.network).weight_error < 1e-8  # the limit of an exact weight
    assert found.n_queries == oracle.queries - before < 5_000


def test_a_smooth_function_of_no_known_kind_ends_in_a_sentence_that_says_what_to_do() -> None:
    rng = np.random.default_rng(0)
    W, a = rng.standard_normal((4, 5)), rng.standard_normal(4)
    found = nr.extract(nr.oracle(lambda X: np.sqrt(1.0 + (X @ W.T) ** 2) @ a, n_inputs=5), random_state=0)
    assert found.certificate.verdict == "failed"
    assert "activation='auto'" in found.certificate.reasons[0]
    assert found.n_queries is not None
    assert found.n_queries < 200_000


def test_smooth_units_told_to_have_two_layers_are_not_claimed_where_they_have_one() -> None:
    truth = nr.simulate.teacher(5, 4, activation="gelu", random_state=0)
    found = nr.extract(nr.oracle(truth, n_inputs=5), depth=2, activation="gelu", random_state=0, time_budget=3.0)
    assert found.certificate.verdict in ("approximate", "failed")


def test_the_layers_below_one_that_is_not_finished_come_back_with_their_errors() -> None:
    truth = he((10, 8, 6, 5, 1), 4)
    found = nr.extract(nr.oracle(truth, 10), random_state=0, query_budget=5_000)
    assert found.certificate.verdict == "failed"
    assert found.network.n_hidden == (8,)
    assert "hidden layer 1 with 8 units, their rows known to" in found.certificate.reasons[0]
    assert "budget of 5000 queries" in found.certificate.reasons[0]
    first, own = truth.normal_form().layers[0], found.network.normal_form().layers[0]
    rows, mine = np.column_stack(first), np.column_stack(own)
    apart = np.linalg.norm(rows[:, None] - mine, axis=2)
    assert apart.min(axis=1).max() < 1e-10
    assert found.n_queries is not None
    assert found.n_queries <= 5_000
