"""Models of other libraries as oracles: asked as they are, around their data, and told apart from networks."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC
from torch import nn

import neurecover as nr
from neurecover.certificate.advising import advice
from neurecover.data import ArraySource, diagnose_labels, diagnose_oracle, diagnose_probabilities
from neurecover.data.oracles.libraries import logits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3)) @ np.array([[2.0, 1.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 30.0]]) + [1.0, 2.0, 500.0]
TRUTH = nr.simulate.teacher(5, 3, 2, random_state=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_torch_module_is_asked_in_its_precision_and_left_as_it_was(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2)).to(dtype).train()
    module[3].eval()
    box = nr.oracle(module, n_samples=50, random_state=0)
    assert box.n_inputs == 4
    inputs, answers = box.collect()
    assert [part.training for part in module.modules()] == [True, True, True, True, False]
    assert all(weight.grad is None for weight in module.parameters())
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(inputs).to(dtype)).double().numpy()
    np.testing.assert_array_equal(answers, expected)
    # What is on record is what the module has seen.
    np.testing.assert_array_equal(torch.from_numpy(inputs).to(dtype).double().numpy(), inputs)


def test_a_torch_module_that_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match="cannot be asked rows of 4 inputs"):
        nr.oracle(nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(4, 8)))
    with pytest.raises(ValueError, match="does not tell how many inputs"):
        nr.oracle(nn.ReLU())
    with pytest.raises(ValueError, match=r"The model takes 4 inputs\. Got n_inputs=3"):
        nr.oracle(nn.Linear(4, 8), 3)
    with pytest.raises(ValueError, match=r"one tensor. Got tuple"):
        nr.oracle(nn.LSTM(4, 8), 4)


def test_onnx_files_and_sessions_give_the_same_answers(tmp_path: Path) -> None:
    TRUTH.to_onnx(tmp_path / "net.onnx")
    by_path = nr.oracle(tmp_path / "net.onnx", n_samples=20, random_state=0)
    by_session = nr.oracle(onnxruntime.InferenceSession(tmp_path / "net.onnx"), n_samples=20, random_state=0)
    inputs, answers = by_path.collect()
    np.testing.assert_array_equal(answers, by_session.collect()[1])
    np.testing.assert_allclose(answers, TRUTH(inputs), rtol=0, atol=1e-13)
    TRUTH.save(tmp_path / "net.npz")
    np.testing.assert_array_equal(nr.oracle(tmp_path / "net.npz").ask(inputs), TRUTH(inputs))


def test_an_onnx_file_for_a_fixed_number_of_rows_is_asked_that_many_at_a_time(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))
    torch.onnx.export(module.eval(), (torch.zeros(4, 2, 3),), tmp_path / "net.onnx", dynamo=False)
    inputs, answers = nr.oracle(tmp_path / "net.onnx", n_samples=11, random_state=0).collect()
    with torch.no_grad():
        expected = module(torch.from_numpy(inputs).float().reshape(-1, 2, 3)).double().numpy()
    np.testing.assert_allclose(answers, expected, rtol=0, atol=1e-6)


def test_files_that_cannot_be_asked(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="not a readable ONNX file"):
        nr.oracle(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=r"Got '\.txt'"):
        nr.oracle("net.txt")


def test_a_pipeline_is_asked_around_what_its_scaler_has_seen_and_by_the_names_of_its_columns() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=5, random_state=0))
    model.fit(frame, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs, answers = nr.oracle(model, n_samples=20_000, random_state=0).collect()
    n = len(inputs)
    # Means have deviation σ n^-1/2, deviations σ (2n)^-1/2: five of each.
    assert np.all(np.abs(inputs.mean(axis=0) - X.mean(axis=0)) < 5 * X.std(axis=0) / np.sqrt(n))
    assert np.all(np.abs(inputs.std(axis=0) / X.std(axis=0) - 1.0) < 5 / np.sqrt(2 * n))
    np.testing.assert_array_equal(answers[:, 0], model.predict(pd.DataFrame(inputs, columns=["a", "b", "c"])))
    ranged = make_pipeline(MinMaxScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=5)).fit(X, X[:, 0])
    inputs, _ = nr.oracle(ranged, n_samples=5000, random_state=0).collect()
    middle, width = (X.min(axis=0) + X.max(axis=0)) / 2, np.ptp(X, axis=0)
    assert np.all(np.abs(inputs.mean(axis=0) - middle) < 0.05 * width)


def test_like_asks_with_the_mean_and_the_covariance_of_the_data() -> None:
    data = np.column_stack([X, np.full(len(X), 7.0)])
    box = nr.oracle(lambda Z: Z[:, 0], like=data, n_samples=40_000, random_state=0)
    inputs, _ = box.collect()
    assert box.n_inputs == 4
    size = np.append(X.std(axis=0), 1.0)
    R = np.eye(4)
    R[:3, :3] = 0.9 * np.corrcoef(X.T) + 0.1 * np.eye(3)
    expected = R * size * size[:, None]
    # An entry of the covariance of standardised columns has deviation at most (2/n)^1/2.
    assert np.abs((np.cov(inputs.T) - expected) / size / size[:, None]).max() < 5 * np.sqrt(2 / len(inputs))
    assert np.all(np.abs(inputs.mean(axis=0) - data.mean(axis=0)) < 5 * size / np.sqrt(len(inputs)))
    assert box.frame is not None
    Z = RNG.standard_normal((5, 4))
    np.testing.assert_allclose(box.frame.whitening.inputs(box.frame.inputs(Z)), Z, atol=1e-9)
    with pytest.raises(ValueError, match="at least two samples"):
        nr.oracle(lambda Z: Z[:, 0], like=data[:1])


def test_no_question_leaves_the_bounds() -> None:
    seen: list[np.ndarray] = []

    def model(Z: np.ndarray) -> np.ndarray:
        seen.append(Z)
        return Z[:, 0]

    for like in (None, X):
        box = nr.oracle(model, 3, bounds=([-1, 0, 480], [3, 2, 520]), like=like, n_samples=5000, random_state=0)
        box.collect()
        assert np.all((np.concatenate(seen) >= [-1, 0, 480]) & (np.concatenate(seen) <= [3, 2, 520]))
        with pytest.raises(ValueError, match="leave the bounds"):
            box.ask(np.array([[0.0, 5.0, 500.0]]))
    low, high = np.concatenate(seen).min(axis=0), np.concatenate(seen).max(axis=0)
    assert np.all(high - low > 0.9 * np.array([4, 2, 40]))
    for bounds in ((1, -1), (0, np.inf), 3, ([0, 0], 1)):
        with pytest.raises(ValueError, match="bounds needs"):
            nr.oracle(model, 3, bounds=bounds)  # type: ignore[arg-type]


def test_classifiers_answer_with_logits() -> None:
    y = (X[:, 0] > 1).astype(int) + (X[:, 2] > 510)
    for labels in (y > 0, y):
        model = MLPClassifier(hidden_layer_sizes=(4,), max_iter=20, random_state=0).fit(
            (X - X.mean(0)) / X.std(0), labels
        )
        inputs, answers = nr.oracle(model, n_samples=500, random_state=0).collect()
        truth = nr.Network.from_sklearn(model)
        np.testing.assert_allclose(answers, truth(inputs), rtol=0, atol=1e-10)
        function = nr.oracle(model.predict_proba, 3, output="logit", n_samples=500, random_state=0)
        np.testing.assert_array_equal(function.collect()[1], answers)
    margin = LinearSVC().fit(X, y)
    np.testing.assert_array_equal(nr.oracle(margin).ask(X), margin.decision_function(X))

    class Labels(nr.HalfspaceUnion):
        predict_proba = decision_function = property()  # type: ignore[assignment]

    with pytest.raises(ValueError, match=r"labels alone.*HalfspaceUnion"):
        nr.oracle(Labels())


def test_logits_are_taken_of_probabilities_alone() -> None:
    p = np.array([0.5, 0.1, 1e-12])
    np.testing.assert_allclose(logits(p)[:, 0], np.log(p / (1 - p)), rtol=1e-12)
    z = RNG.standard_normal((4, 3)) * 100
    P = np.exp(z - z.max(axis=1, keepdims=True))
    np.testing.assert_allclose(logits(P / P.sum(axis=1, keepdims=True)), z[:, 1:] - z[:, :1], rtol=1e-12)
    for other in ([[0.5, 0.6]], [[-0.1, 1.1]], [2.0]):
        with pytest.raises(ValueError, match="takes probabilities"):
            logits(np.array(other))
    with pytest.raises(ValueError, match="rounds to zero"):
        logits(np.array([[1.0, 0.0]]))
    with pytest.raises(ValueError, match="Got 'probability'"):
        nr.oracle(TRUTH, output="probability")


def _refusing(Z: np.ndarray) -> np.ndarray:
    if np.abs(Z).max() > 8.0:
        raise ValueError("input out of range")
    return TRUTH(Z)


def _softmax(Z: np.ndarray) -> np.ndarray:
    E = np.exp(TRUTH(Z) - TRUTH(Z).max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


LOOKS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str | None]] = {
    "a network": (TRUTH, None),
    "one that clips": (lambda Z: TRUTH(np.clip(Z, -4, 4)), "clips its inputs"),
    "one that refuses": (_refusing, "refuses queries far"),
    "one that gives no numbers": (
        lambda Z: np.where(np.abs(Z) > 8, np.nan, 1.0)[:, :2] * TRUTH(Z),
        "refuses queries far",
    ),
    "constant": (lambda Z: np.ones(len(Z)), "the same answer"),
    "affine": (lambda Z: Z[:, 0] + 3, "is affine"),
    "all units on": (lambda Z: TRUTH(Z * 1e-3 + 10), "is affine"),
    "saturated": (lambda Z: np.tanh(Z @ TRUTH.W.T), "units saturate"),
    "labels": (lambda Z: TRUTH(Z)[:, 0] > 0, "are labels.*HalfspaceUnion"),
    "probabilities": (_softmax, "are probabilities"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_what_is_no_network_is_said_in_a_sentence(name: str) -> None:
    model, sentence = LOOKS[name]
    for seed in range(5):
        found = diagnose_oracle(nr.oracle(model, 5, random_state=seed))
        if sentence is None:
            assert found is None
        else:
            assert found is not None
            assert re.search(sentence, found)


@pytest.mark.parametrize("name", ["one that refuses", "labels", "affine"])
def test_extract_says_why_a_box_gave_no_weights(name: str) -> None:
    model, sentence = LOOKS[name]
    r = nr.extract(nr.oracle(model, 5, random_state=0), random_state=0, query_budget=100_000)
    assert r.certificate.verdict in ("approximate", "failed")
    sentence = "refused queries of size" if model is _refusing else str(sentence)  # the first that it refused
    assert re.search(sentence, " ".join(r.certificate.reasons))


def test_recover_tells_what_to_do_with_labels_and_probabilities() -> None:
    inputs = RNG.standard_normal((400, 5))
    for Y, word in ((TRUTH(inputs)[:, 0] > 0, "labels"), (_softmax(inputs), "probabilities")):
        r = nr.recover(inputs, Y, random_state=0)
        assert r.certificate.verdict == "failed"
        assert word in r.certificate.reasons[0]
        assert "output='logit'" in r.certificate.reasons[0]
    P = _softmax(inputs)
    r = nr.recover(inputs, np.log(P[:, 1:] / P[:, :1]), random_state=0)
    assert (r.certificate.verdict, r.network.n_hidden) == ("exact", 3)
    # What only looks a little like them is not taken for them.
    for Y in (np.abs(TRUTH(inputs)) / 100, TRUTH(inputs[:10]) > 0, np.ones((50, 1))):
        assert diagnose_labels(ArraySource(inputs[: len(Y)], Y)) is None


@pytest.mark.usefixtures("steps_for_seconds")
def test_one_column_between_0_and_1_brings_the_hint_only_where_no_network_explains_it() -> None:
    inputs = RNG.standard_normal((600, 5))
    logits = 3.0 * (TRUTH(inputs)[:, :1] - TRUTH(inputs)[:, :1].mean())
    chances = 1.0 / (1.0 + np.exp(-logits))
    r = nr.recover(inputs, chances, 3, random_state=0, time_budget=3)
    assert r.certificate.verdict in ("approximate", "failed")
    assert "log(p / (1 − p))" in advice(r.certificate)[0]
    assert "log(p / (1 − p))" in r.certificate.reasons[0]
    explained = nr.recover(inputs, (logits - logits.min()) / np.ptp(logits), 3, random_state=0)
    assert explained.certificate.verdict == "exact"
    assert not any(check.name == "probabilities" for check in explained.certificate.checks)
    for Y in (chances - 0.1, 0.4 * chances, chances[:10]):
        assert diagnose_probabilities(ArraySource(inputs[: len(Y)], Y)) is None


def test_a_model_that_is_asked_beyond_its_range_gives_a_verdict_and_within_it_its_weights() -> None:
    r = nr.recover(nr.oracle(_refusing, 5, bounds=(-8, 8), random_state=0), n_samples=800, random_state=0)
    assert r.certificate.verdict == "exact"
    assert nr.compare(r.network, TRUTH).weight_error < 1e-10


def test_questions_around_data_give_weights_for_the_inputs_themselves() -> None:
    """A frame far from the origin, with columns of very different sizes that depend on each other."""
    truth = nr.Network(
        np.array([[1.0, -8.0, 0.02], [0.3, 5.0, -0.05], [-0.7, 2.0, 0.04]]),
        np.array([5.0, 14.0, -23.0]),
        [[1.0, -2.0, 1.5]],
    )
    for seed in range(5):
        r = nr.extract(nr.oracle(truth, like=X, random_state=seed), random_state=seed)
        assert r.certificate.verdict == "exact"
        assert nr.compare(r.network, truth).weight_error < 1e-9


class _Odd(BaseEstimator):
    n_features_in_ = 2

    def predict(self, Z: np.ndarray) -> list[str]:
        return ["yes"] * len(Z)


def test_answers_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="expected real numbers"):
        nr.oracle(_Odd())
    with pytest.raises(TypeError, match="Got dict instead"):
        nr.oracle({}, 3)
