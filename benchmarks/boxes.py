"""Models as people have them behind `extract`: blocks, classifiers, a server, and models that are no such network.

Nothing is told but the number of inputs. Right is a verdict `exact` or `statistical` with true widths and no hidden
weight off by more than the row allows, in normal form, within its queries and seconds; for a model that is no such
network, a verdict `failed` whose reasons have the words that name it. A false claim is a verdict with other widths or
an error above 1e-2.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks.resources.served import serve
from neurecover.data import endpoint, oracle
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network
from neurecover.models.formats import libraries
from neurecover.pipeline import extract

FIRST_SEED = 97_001  # nothing was chosen on seeds from here on
FALSE = 1e-2  # error of a weight from which a claim is false
Model = Network | DeepNetwork


@dataclass(frozen=True)
class Kind:
    """What is asked: `make` draws an oracle and the network behind it, or the words that name what is no network."""

    name: str
    make: Callable[[int], AbstractContextManager[tuple[Any, Model | str]]]
    seeds: int
    needed: int
    queries: int | None = None
    error: float = 1e-6
    seconds: float = 60.0  # the time budget


def _held(make: Callable[[int], tuple[Any, Model | str]]) -> Callable[[int], AbstractContextManager[Any]]:
    """Return the oracle around a model in memory, with what is behind it."""

    def make_oracle(seed: int) -> AbstractContextManager[Any]:
        model, behind = make(seed)
        inputs = None if isinstance(behind, str) or hasattr(model, "predict") else behind.n_inputs
        return nullcontext((oracle(model, inputs), behind))

    return make_oracle


def _random(dims: tuple[int, ...], seed: int, size: float = 2.0) -> DeepNetwork:
    """Draw weights of variance size/(fan in) and biases 0.1·N(0, 1)."""
    rng = np.random.default_rng(seed)
    return DeepNetwork(
        [(rng.standard_normal((k, d)) * np.sqrt(size / d), 0.1 * rng.standard_normal(k)) for d, k in pairwise(dims)]
    )


def _block(activation: str, seed: int) -> tuple[Any, Model]:
    (W, b), (A, c) = _random((64, 128, 64), seed).layers
    network = Network(W, b, A, c, activation=activation)
    return network, network


def _classifier(data: str, widths: tuple[int, ...], decimals: int | None, seed: int) -> tuple[Any, Model]:
    """Train a classifier behind a scaler, or on standardised data if it answers with few decimals."""
    from sklearn import datasets
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
    classifier = MLPClassifier(widths, max_iter=300, random_state=seed)
    read = DeepNetwork.from_sklearn if len(widths) > 1 else Network.from_sklearn
    if decimals is None:
        model = make_pipeline(StandardScaler(), classifier).fit(X, y)
        return model, read(model)
    classifier.fit(StandardScaler().fit_transform(X), y)
    return lambda Z: np.round(classifier.predict_proba(Z), decimals), read(classifier)


def _module(dims: tuple[int, ...], seed: int) -> tuple[Any, Model]:
    """Put a softmax on a random network of torch, in single precision; its logits less the first are the network."""
    torch = libraries.torch()
    nn, drawn = torch.nn, _random(dims, seed)
    module = nn.Sequential()
    layers = []
    for W, b in drawn.layers:
        linear = nn.Linear(*W.T.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(W))
            linear.bias.copy_(torch.tensor(b))
        layers.append((linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy()))
        module.extend([linear, nn.ReLU()])
    module[-1] = nn.Softmax(dim=1)
    *below, (A, c) = layers
    return module, DeepNetwork([*below, (A[1:] - A[:1], c[1:] - c[:1])])


def _softmax(dims: tuple[int, ...], seed: int) -> tuple[Any, Model]:
    """Put a softmax on a random network in double precision."""
    drawn = _random(dims, seed)
    *below, (A, c) = drawn.layers
    return lambda X: softmax(drawn(X), axis=1), DeepNetwork([*below, (A[1:] - A[:1], c[1:] - c[:1])])


def _stranger(name: str, seed: int) -> tuple[Any, str]:
    """Fit a model that is no network of layers, or that hides it; return it with the words that should name it."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 6))
    Y = X[:, 0] * X[:, 1] + np.abs(X[:, 2])
    (W, b), (A, c) = _random((6, 4, 1), seed).layers
    U, v = 0.6 * np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.standard_normal(4)
    out = rng.standard_normal(4)

    def dropout(Z: np.ndarray) -> np.ndarray:
        hidden = np.maximum(Z @ W.T + b, 0.0)
        return hidden * (rng.random(hidden.shape) > 0.2) @ A.T + c

    def recurrent(Z: np.ndarray) -> np.ndarray:
        state = np.zeros((len(Z), 4))
        for column in Z.T:
            state = np.tanh(state @ U + column[:, None] * v)
        return np.asarray(state @ out)

    def calibrated() -> Any:
        base = MLPClassifier((8,), max_iter=20, random_state=seed)
        return CalibratedClassifierCV(base, method="isotonic", cv=2).fit(X, np.median(Y) < Y).predict_proba

    kinds: dict[str, tuple[Callable[[], Any], str]] = {
        "forest": (lambda: RandomForestRegressor(20, random_state=seed).fit(X, Y), "piecewise constant"),
        "nearest neighbours": (lambda: KNeighborsRegressor().fit(X, Y), "piecewise constant"),
        "boosting": (lambda: GradientBoostingRegressor(random_state=seed).fit(X, Y), "piecewise constant"),
        "dropout left on": (lambda: dropout, "dropout was left on"),
        "recurrent model": (lambda: recurrent, "recurrent model"),
        "isotonic probabilities": (calibrated, "isotonic regression"),
    }
    make, words = kinds[name]
    model = make()
    return (model.predict if hasattr(model, "predict") else model), words


@contextmanager
def _served(seed: int) -> Iterator[tuple[Any, Model]]:
    """Serve eight units with six decimals, 10 ms and one call in fifty that fails."""
    (W, b), (A, c) = _random((10, 8, 1), seed).layers
    network = Network(W, b, A, c)
    with serve(network, latency=0.01, failing=50, decimals=6, per_second=200) as served:
        yield endpoint(served.url, 10, queries_per_second=100_000.0), network


CLASSIFIERS = (("breast_cancer", "binary"), ("iris", "3 classes"), ("wine", "3 classes"))
KINDS = (
    *(Kind(f"{name} block 64-128-64", _held(partial(_block, name)), 5, 5, 20_193) for name in ("gelu", "silu")),
    *(
        Kind(f"scikit-learn, {data}, {kind}, {widths}", _held(partial(_classifier, data, widths, None)), 5, 5)
        for widths in ((8,), (8, 6))
        for data, kind in CLASSIFIERS
    ),
    *(
        Kind(
            f"scikit-learn, {data}, {kind}, {widths}, 6 decimals",
            _held(partial(_classifier, data, widths, 6)),
            5,
            4,
            error=1e-2,
        )
        for widths in ((8,), (8, 6))
        for data, kind in CLASSIFIERS
    ),
    *(
        Kind(f"torch, softmax, {'-'.join(map(str, dims))}, float32", _held(partial(_module, dims)), 5, 4, error=1e-3)
        for dims in ((8, 6, 3), (8, 6, 5, 3))
    ),
    Kind("softmax, 8-6-5-3, float64", _held(partial(_softmax, (8, 6, 5, 3))), 5, 5),
    Kind("a server: 10-8-1, six decimals, 10 ms, 2 % failures", _served, 5, 5, error=1e-2),
    *(
        Kind(name, _held(partial(_stranger, name)), 5, 5, 2_000)
        for name in (
            "forest",
            "nearest neighbours",
            "boosting",
            "dropout left on",
            "recurrent model",
            "isotonic probabilities",
        )
    ),
)


@dataclass(frozen=True)
class Run:
    """What one extraction gave."""

    right: bool
    false: bool
    verdict: str
    error: float
    queries: int
    cpu: float
    seconds: float


def run_once(kind: Kind, seed: int) -> Run:
    """Draw the model of a seed and extract it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training is cut short on purpose
        with kind.make(seed) as (asked, behind):
            cpu, clock = time.process_time(), time.perf_counter()
            found = extract(asked, random_state=seed, time_budget=kind.seconds)
            cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    verdict, queries, error = found.certificate.verdict, found.n_queries or 0, np.inf
    claimed, few = verdict in ("exact", "statistical"), queries <= (kind.queries or queries)
    if isinstance(behind, str):
        named = verdict == "failed" and behind in " ".join(found.certificate.reasons)
        return Run(named and few, claimed, verdict, np.nan, queries, cpu, clock)
    if np.array_equal(np.atleast_1d(found.network.n_hidden), np.atleast_1d(behind.n_hidden)):
        apart = compare(DeepNetwork(found.network.layers), DeepNetwork(behind.layers))
        error = max(apart.weight_error, apart.bias_error)
    right = claimed and few and error <= kind.error and clock < kind.seconds + 10.0
    return Run(right, claimed and not error <= FALSE, verdict, error, queries, cpu, clock)


def _measure(kind: Kind, track: Track) -> Row:
    runs = [run_once(kind, seed) for seed in track(range(FIRST_SEED, FIRST_SEED + kind.seeds), kind.name)]
    errors = [run.error for run in runs if np.isfinite(run.error)]
    return {
        "model": kind.name,
        "seeds": kind.seeds,
        "right": sum(run.right for run in runs),
        "needed": kind.needed,
        "false claims": sum(run.false for run in runs),
        "verdicts": " ".join(run.verdict for run in runs),
        "largest queries": max(run.queries for run in runs),
        "allowed queries": kind.queries or "",
        "largest error": f"{max(errors):.1e}" if errors else "",
        "allowed error": kind.error if errors else "",
        "median CPU seconds": round(float(np.median([run.cpu for run in runs])), 1),
        "longest seconds": round(max(run.seconds for run in runs), 1),
    }


EXPERIMENTS = (
    Experiment(
        "extract-boxes",
        "Blocks, classifiers, a server, and models that are no such network",
        lambda track: [partial(_measure, kind, track) for kind in KINDS],
    ),
)
