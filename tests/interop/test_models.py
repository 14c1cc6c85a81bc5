"""Models that people train, through their own interfaces, back to their weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import neurecover as nr

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

LOADERS = {"diabetes": load_diabetes, "wine": load_wine}


def trained(data: str, activation: str) -> Pipeline:
    """A scaler and eight units, trained on standardised targets, to be asked at the natural scale of the data."""
    X, y = LOADERS[data](return_X_y=True)
    net = MLPRegressor(hidden_layer_sizes=(8,), activation=activation, max_iter=500, random_state=0)
    return make_pipeline(StandardScaler(), net).fit(X, (y - y.mean()) / y.std())


def error(found: nr.Recovery[Any], truth: Any) -> float:
    assert found.network.n_hidden == truth.n_hidden
    return nr.compare(found.network, truth).weight_error


@pytest.mark.parametrize("data", LOADERS)
def test_relu_behind_a_scaler_by_queries(data: str) -> None:
    model = trained(data, "relu")
    r = nr.extract(nr.oracle(model), random_state=0)
    assert r.certificate.verdict == "exact"
    assert error(r, nr.Network.from_sklearn(model)) < 1e-8


@pytest.mark.parametrize("data", LOADERS)
@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_smooth_units_behind_a_scaler_by_samples_of_its_answers(data: str, activation: str) -> None:
    model = trained(data, activation)
    truth = nr.Network.from_sklearn(model)
    r = nr.recover(nr.oracle(model, random_state=1), n_samples=3000, activation=truth.activation, random_state=1)
    assert r.certificate.verdict == "exact"
    assert error(r, truth) < 1e-8


def test_a_classifier_of_digits_by_its_probabilities() -> None:
    X, y = load_digits(return_X_y=True)
    model = MLPClassifier(hidden_layer_sizes=(16,), max_iter=60, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    r = nr.recover(nr.oracle(model, random_state=0), n_samples=4000, n_hidden=16, random_state=0)
    assert r.certificate.verdict == "exact"
    assert error(r, nr.Network.from_sklearn(model)) < 1e-8


def test_a_torch_module_in_single_precision_and_its_export(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))
    truth = nr.Network.from_torch(module)
    torch.onnx.export(module, (torch.zeros(1, 20),), tmp_path / "net.onnx", dynamo=False)
    for model in (module, tmp_path / "net.onnx"):
        r = nr.extract(nr.oracle(model), random_state=0)
        assert r.certificate.verdict == "statistical"
        assert error(r, truth) < 1e-5
        bars = r.certificate.standard_errors
        assert bars is not None
        # 320 weights: the largest of as many normal numbers is below 5 but once in 5,000 times.
        pairs = nr.compare(r.network, truth).permutation
        assert np.abs((r.network.W[pairs] - truth.normal_form().W) / bars.W[pairs]).max() < 5.0
