"""Classifiers that answer with probabilities: recognised, read as logits where these are known, extracted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import neurecover as nr
from neurecover.data.oracles.probabilities import are_probabilities, may_be_probability, read_probabilities

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(0)
LOGITS = 3.0 * RNG.standard_normal((300, 3)) * np.repeat([0.3, 1.0, 30.0], 100)[:, None]


def trained(load: Callable[..., tuple[np.ndarray, np.ndarray]], seed: int) -> Pipeline:
    return make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=300, random_state=seed)).fit(
        *load(return_X_y=True)
    )


def differences(A: np.ndarray) -> np.ndarray:
    return A[1:] - A[:1]


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
def test_a_scikit_learn_classifier_behind_a_scaler(load: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    for seed in (40, 41):
        model = trained(load, seed)
        found = nr.extract(nr.oracle(model), random_state=seed)
        assert found.certificate.verdict == "exact", found.summary()
        assert nr.compare(found.network, nr.Network.from_sklearn(model)).weight_error < 1e-8
        assert any(check.name == "probabilities" and "logits" in check.sentence for check in found.certificate.checks)


def test_where_probabilities_end_is_no_unit() -> None:
    # A corner of the range beyond the smallest number, where the logarithm was cut off, looked like a ninth unit.
    model = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=400, random_state=70003))
    model.fit(*load_wine(return_X_y=True))
    found = nr.extract(nr.oracle(model), random_state=70003)
    assert int(np.sum(found.network.n_hidden)) == 8
    assert found.certificate.verdict == "exact", found.summary()


@pytest.mark.parametrize("kind", ["softmax", "log_softmax", "sigmoid"])
def test_a_torch_classifier_is_recognised_by_its_answers(kind: str) -> None:
    torch.manual_seed(5)
    last = {"softmax": nn.Softmax(dim=1), "log_softmax": nn.LogSoftmax(dim=1), "sigmoid": nn.Sigmoid()}[kind]
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1 if kind == "sigmoid" else 3), last)
    with torch.no_grad():
        module[2].weight *= 6.0
    parts = (module[0].weight, module[0].bias, module[2].weight, module[2].bias)
    W, b, A, c = (part.detach().double().numpy() for part in parts)
    truth = nr.Network(W, b, A, c) if kind == "sigmoid" else nr.Network(W, b, differences(A), differences(c))
    found = nr.extract(nr.oracle(module), random_state=0)
    assert found.network.n_hidden == 5
    assert found.certificate.verdict == "statistical", found.summary()
    assert nr.compare(found.network, truth).weight_error < 1e-4


def test_an_onnx_classifier_in_double_precision(tmp_path: Path) -> None:
    torch.manual_seed(6)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.Softmax(dim=1)).double()
    path = tmp_path / "classifier.onnx"
    example = torch.zeros(2, 5).double()
    torch.onnx.export(module.eval(), (example,), path, dynamic_axes={"x": {0: "n"}}, input_names=["x"], dynamo=False)
    parts = (module[0].weight, module[0].bias, module[2].weight, module[2].bias)
    W, b, A, c = (part.detach().numpy() for part in parts)
    truth = nr.Network(W, b, differences(A), differences(c))
    found = nr.extract(nr.oracle(str(path)), random_state=0)
    assert found.certificate.verdict == "exact", found.summary()
    assert nr.compare(found.network, truth).weight_error < 1e-8


def test_two_hidden_layers_below_a_softmax() -> None:
    rng = np.random.default_rng(3)
    deep = nr.DeepNetwork(
        [
            (rng.standard_normal((m, d)) * np.sqrt(2 / d), 0.1 * rng.standard_normal(m))
            for d, m in ((6, 5), (5, 4), (4, 3))
        ]
    )
    *below, (A, c) = deep.layers
    found = nr.extract(nr.oracle(lambda X: softmax(deep(X), axis=1), 6), random_state=0)
    assert found.certificate.verdict == "exact", found.summary()
    truth = nr.DeepNetwork([*below, (differences(A), differences(c))])
    assert nr.compare(found.network, truth).weight_error < 1e-7


def test_six_decimals_leave_error_bars() -> None:
    truth = nr.simulate.teacher(6, 4, random_state=1)
    found = nr.extract(nr.oracle(lambda X: np.round(expit(truth(X)), 6), 6), random_state=0)
    assert found.certificate.verdict == "statistical", found.summary()
    errors = found.certificate.standard_errors
    assert errors is not None
    ours, true = found.network.normal_form(), truth.normal_form()
    pairs = np.argmin(np.linalg.norm(ours.W[:, None] - true.W, axis=2), axis=1)
    z = ((ours.W - true.W[pairs]) / errors["W"]).ravel()
    assert np.abs(z).max() < 6.0


def test_the_grid_of_probabilities_is_read_off_them() -> None:
    P = softmax(np.hstack([np.zeros((300, 1)), LOGITS]), axis=1)
    assert not read_probabilities(P).grid.any()
    assert read_probabilities(np.round(P, 5)).grid.tolist() == [1e-5] * 4
    p = expit(LOGITS[:, :1])
    assert read_probabilities(p).grid.tolist() == [2.0**-53, 0.0]
    assert read_probabilities(p.astype(np.float32)).grid.tolist() == [2.0**-24, 0.0]
    clipped = read_probabilities(np.clip(p, 1e-7, 1 - 1e-7))
    assert clipped.least[1] == pytest.approx(2e-7)


def test_logits_and_their_rounding() -> None:
    P = softmax(np.hstack([np.zeros((100, 1)), LOGITS[:100]]), axis=1)
    exact, rounded = read_probabilities(P), read_probabilities(np.round(P, 6))
    np.testing.assert_allclose(exact.logits(P), LOGITS[:100], atol=1e-12)
    logarithms = read_probabilities(np.log(P))
    assert logarithms.log
    np.testing.assert_allclose(logarithms.logits(np.log(P)), LOGITS[:100], atol=1e-12)
    off = np.abs(rounded.logits(np.round(P, 6)) - LOGITS[:100])
    # |δ log p| ≤ (g/2)/p (1 + …): twice that holds wherever p is many times g.
    good = rounded.usable(P)
    assert good.mean() > 0.9
    assert np.all(off[good] <= 2.0 * rounded.rounding(LOGITS[:100])[good])


def test_regressions_are_no_probabilities() -> None:
    truth = nr.simulate.teacher(4, 3, 2, random_state=0)
    Y = truth(RNG.standard_normal((50, 4)))
    assert not are_probabilities(Y)
    assert not may_be_probability(Y[:, :1])
    # Between 0 and 1, but made of straight pieces itself.
    W, b = np.vstack([np.eye(1, 4), np.eye(1, 4)]), np.array([0.0, -1.0])
    ramp = nr.Network(W, b, np.array([[1.0, -1.0]]))
    found = nr.extract(nr.oracle(ramp, 4), random_state=0)
    assert all(check.name != "probabilities" for check in found.certificate.checks)
