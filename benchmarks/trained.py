"""Whether models that other libraries trained come back to their weights, through those libraries' own interfaces."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from neurecover.data import oracle
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.models.formats import libraries
from neurecover.pipeline import extract, recover

SEEDS = range(500, 503)  # nothing was chosen on them
N_SAMPLES = 3_000  # answers, for a model that is recovered from samples of them


def _regressor(data: str, activation: str, raw: bool, seed: int) -> Any:
    """Train eight units behind a scaler, on targets as they come or standardised."""
    from sklearn import datasets
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
    net = MLPRegressor(hidden_layer_sizes=(8,), activation=activation, max_iter=500, random_state=seed)
    return make_pipeline(StandardScaler(), net).fit(X, y if raw else (y - y.mean()) / y.std())


def _digits(seed: int) -> Any:
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(hidden_layer_sizes=(16,), max_iter=60, random_state=seed).fit(*load_digits(return_X_y=True))


def _module(seed: int) -> Any:
    torch = libraries.torch()
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))


def _run(track: Track) -> list[Row]:
    models: dict[str, tuple[Callable[[int], Any], str | None]] = {
        f"MLPRegressor, {activation}, {data}{', raw targets' if raw else ''}": (
            partial(_regressor, data, activation, raw),
            None,
        )
        for raw in (False, True)
        for data in ("diabetes", "wine")
        for activation in ("relu", "tanh", "logistic")
    }
    models["MLPClassifier, logits, digits"] = (_digits, "relu")
    models["torch 20-16-3, float32"] = (_module, None)
    models["its ONNX export"] = (_module, None)
    rows: list[Row] = []
    for name, (make, activation) in track(list(models.items()), "models"):
        for seed in SEEDS:
            with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
                warnings.simplefilter("ignore")  # training is cut short on purpose
                model = make(seed)
                truth = Network.from_torch(model) if make is _module else Network.from_sklearn(model)
                if "ONNX" in name:
                    truth.to_onnx(Path(folder) / "net.onnx", "float32")
                    model = Path(folder) / "net.onnx"
                rows.append({"model": name, "seed": seed} | _measured(model, truth, activation, seed))
    return rows


def _measured(model: Any, truth: Any, activation: str | None, seed: int) -> Row:
    """Recover by chosen queries where no activation is named, and else from samples of the answers."""
    began = time.process_time()
    box = oracle(model, random_state=seed)
    if activation is None:
        found = extract(box, random_state=seed)
    else:
        found = recover(box, n_samples=N_SAMPLES, activation=activation, random_state=seed)
    seconds = time.process_time() - began
    same = type(found.network) is type(truth)
    return {
        "by": "queries" if activation is None else "samples",
        "queries": found.n_queries,
        "units": f"{found.network.n_hidden} of {truth.n_hidden}",
        "verdict": found.certificate.verdict,
        "weight error": compare(found.network, truth).weight_error if same else None,
        "seconds of CPU": seconds,
    }


EXPERIMENTS = (Experiment("trained", "Models that other libraries train, through their own interfaces", _run),)
