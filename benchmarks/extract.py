"""Weights from queries: how many it takes, how close the weights come, and how often it works.

Three tables: one hidden layer, several, and models as people have them. The networks of the first two are He-scaled and
random (weights of variance 2/fan-in, biases 0.1·N(0, 1)) and answer in double precision; those of the third are
`MLPRegressor`s trained on standardised data that scikit-learn ships, and random networks that answer in single
precision, for which the share of true weights within 1.96 standard errors is given too. Widths and depth are found; one
hidden layer takes the same queries where its width is given. "counting bound" is the number of parameters over the
number of outputs, below which no method can be. The published figures are those of Carlini, Jagielski, Mironov (CRYPTO
2020), whose attack is given the widths.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from neurecover.data import oracle
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Model, Network
from neurecover.pipeline import extract
from neurecover.results import Recovery

FIRST_SEED = 2_000  # no setting was chosen on these


@dataclass(frozen=True)
class Problem:
    """Widths from the inputs to the outputs, how often, the error and queries allowed, and what is published.

    kind is random, float32, or the name of the data that the network is trained on; accuracy is what `extract` is told.
    """

    dims: tuple[int, ...]
    seeds: int
    needed: int
    error: float
    queries: int | None
    published: str = ""
    time_budget: float = 300.0
    kind: str = "random"
    accuracy: float | None = None

    @property
    def name(self) -> str:
        kind = "" if self.kind == "random" else f", {self.kind}"
        return "-".join(map(str, self.dims)) + kind + ("" if self.accuracy is None else f", accuracy={self.accuracy:g}")


ONE_LAYER = (
    Problem((10, 10, 1), 20, 20, 1e-12, 500),
    Problem((64, 32, 1), 20, 20, 1e-10, 5_500),
    Problem((10, 20, 1), 10, 9, 1e-10, 1_000),
    Problem((784, 32, 1), 10, 10, 1e-9, 30_000),
    Problem((784, 128, 10), 5, 5, 1e-10, 20_000),
    Problem((784, 128, 1), 5, 5, 1e-9, 130_000, "2^21.5 queries, error 2^-25"),
    Problem((784, 128, 1), 5, 5, 1e-11, 240_000, accuracy=3e-12),
    Problem((1000, 500, 1), 2, 2, 1e-8, 1_050_000),
)
SEVERAL_LAYERS = (
    Problem((10, 10, 10, 1), 20, 19, 1e-12, 10_000),
    Problem((40, 20, 10, 10, 1), 20, 18, 1e-10, 80_000, "2^17.8 queries, error 2^-27"),
    Problem((10, 15, 15, 1), 20, 19, 1e-12, 30_000),
    Problem((10, 20, 20, 1), 20, 18, 1e-12, 80_000),
    Problem((80, 40, 20, 1), 5, 5, 1e-12, 80_000),
    Problem((784, 32, 16, 1), 3, 3, 1e-10, 200_000),
    Problem((20, 16, 12, 8, 4, 1), 10, 6, 1e-9, None),
    Problem((10, 20, 20, 20, 1), 5, 2, 1e-9, None),
)
MODELS = (
    Problem((10, 8, 1), 2, 2, 1e-9, None, kind="diabetes"),
    Problem((10, 16, 1), 2, 2, 1e-9, None, kind="diabetes"),
    Problem((10, 16, 8, 1), 2, 1, 1e-9, None, kind="diabetes"),
    Problem((13, 16, 8, 1), 2, 1, 1e-9, None, kind="wine"),
    Problem((10, 10, 1), 10, 9, 3e-6, None, kind="float32"),
    Problem((64, 32, 1), 10, 9, 3e-6, None, kind="float32"),
)


def he_network(dims: tuple[int, ...], seed: int) -> Network | DeepNetwork:
    """Draw weights of variance 2/(fan-in) and biases 0.1·N(0, 1)."""
    rng = np.random.default_rng(seed)
    layers = [(rng.standard_normal((b, a)) * np.sqrt(2.0 / a), 0.1 * rng.standard_normal(b)) for a, b in pairwise(dims)]
    if len(layers) > 2:
        return DeepNetwork(layers)
    (W, b), (A, c) = layers
    return Network(W, b, A, c)


def trained_network(dims: tuple[int, ...], data: str, seed: int) -> Network | DeepNetwork:
    """Train a network of scikit-learn on standardised data that comes with it."""
    from sklearn import datasets
    from sklearn.neural_network import MLPRegressor

    X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    model = MLPRegressor(hidden_layer_sizes=dims[1:-1], max_iter=400, tol=0.0, n_iter_no_change=400, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    layers = [(W.T, b) for W, b in zip(model.coefs_, model.intercepts_)]
    return DeepNetwork(layers) if len(layers) > 2 else Network(*layers[0], *layers[1])


def _oracle(problem: Problem, seed: int) -> tuple[Network | DeepNetwork, Callable[[np.ndarray], np.ndarray]]:
    """Draw a network with the weights that the oracle has; return it and the oracle."""
    if problem.kind not in ("random", "float32"):
        trained = trained_network(problem.dims, problem.kind, seed)
        return trained, trained
    truth = he_network(problem.dims, seed)
    if problem.kind == "random":
        return truth, truth
    assert isinstance(truth, Network)
    W, b, A, c = (part.astype(np.float32) for part in (truth.W, truth.b, truth.A, truth.c))
    rounded = Network(W.astype(float), b.astype(float), A.astype(float), c.astype(float))
    return rounded, lambda X: np.maximum(X.astype(np.float32) @ W.T + b, np.float32(0.0)) @ A.T + c


def _covered(found: Recovery[Model], truth: Network | DeepNetwork) -> np.ndarray:
    """Tell which true hidden weights lie within 1.96 standard errors; none where there are no error bars."""
    errors, ours = found.certificate.standard_errors, found.network
    if errors is None or not isinstance(ours, Network) or not isinstance(truth, Network):
        return np.zeros(0)
    true = truth.normal_form()
    pairs = np.argmin(np.linalg.norm(ours.W[:, None] - true.W, axis=2), axis=1)
    return (np.abs(ours.W - true.W[pairs]) < 1.96 * errors.W).ravel()


def _measure(problem: Problem, track: Track) -> Row:
    wanted = "statistical" if problem.kind == "float32" else "exact"
    solved, lies, queries, errors, seconds = 0, 0, [], [], []
    covered = np.zeros(0)
    bound = 0.0
    for seed in track(range(FIRST_SEED, FIRST_SEED + problem.seeds), problem.name):
        truth, box = _oracle(problem, seed)
        bound = truth.n_parameters / truth.n_outputs
        began = time.process_time()
        asked = oracle(box, truth.n_inputs)
        found = extract(asked, accuracy=problem.accuracy, random_state=seed, time_budget=problem.time_budget)
        seconds.append(time.process_time() - began)
        queries.append(found.n_queries or 0)
        error = np.inf
        if type(found.network) is type(truth) and found.network.n_hidden == truth.n_hidden:
            comparison = compare(found.network, truth)
            error = max(comparison.weight_error, comparison.bias_error)
        verdict = found.certificate.verdict
        errors.append(error)
        solved += verdict == wanted and error <= problem.error
        lies += verdict == "exact" and error > 1e-6
        covered = np.append(covered, _covered(found, truth))
    return {
        "network": problem.name,
        "counting bound": round(bound),
        "seeds": problem.seeds,
        "solved": solved,
        "needed": problem.needed,
        "median queries": int(np.median(queries)),
        "allowed queries": problem.queries or "",
        "median error": f"{np.median(errors):.1e}",
        "largest error": f"{max(errors):.1e}",
        "allowed error": problem.error,
        "within 1.96 standard errors": f"{covered.mean():.3f}" if len(covered) else "",
        "said exact but wrong": lies,
        "median CPU seconds": round(float(np.median(seconds)), 2),
        "published": problem.published,
    }


def _table(name: str, title: str, problems: tuple[Problem, ...]) -> Experiment:
    return Experiment(name, title, lambda track: [partial(_measure, problem, track) for problem in problems])


EXPERIMENTS = (
    _table("extract", "Weights of one hidden layer from chosen queries, width found", ONE_LAYER),
    _table("extract-deep", "Weights of several hidden layers, widths and depth found", SEVERAL_LAYERS),
    _table("extract-models", "Weights of trained networks, and from answers in single precision", MODELS),
)
