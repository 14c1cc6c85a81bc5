"""Oracles that are no networks are named, early; networks are not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier

import neurecover as nr

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 6))
Y = X[:, 0] * X[:, 1] + np.abs(X[:, 2])
TRUTH = nr.simulate.teacher(6, 4, random_state=0)


def recurrent(Z: np.ndarray) -> np.ndarray:
    """A state of four units that reads twelve numbers one after the other."""
    rng = np.random.default_rng(1)
    U, v = 0.6 * np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.standard_normal(4)
    state = np.zeros((len(Z), 4))
    for column in Z.T:
        state = np.tanh(state @ U + column[:, None] * v)
    return state @ rng.standard_normal(4)


def with_dropout() -> Callable[[np.ndarray], np.ndarray]:
    """Return a network with dropout left on; one in twenty such models answers twelve queries as if it were not."""
    rng = np.random.default_rng(0)

    def answer(Z: np.ndarray) -> np.ndarray:
        hidden = np.maximum(Z @ TRUTH.W.T + TRUTH.b, 0.0)
        return hidden * (rng.random(hidden.shape) > 0.2) @ TRUTH.A.T

    return answer


def models() -> dict[str, tuple[Any, str]]:
    forest = RandomForestRegressor(20, random_state=0).fit(X, Y)
    classes = np.median(Y) < Y
    base = MLPClassifier((8,), max_iter=20, random_state=0)
    return {
        "forest": (forest, "piecewise constant"),
        "neighbours": (KNeighborsRegressor().fit(X, Y), "piecewise constant"),
        "boosting": (GradientBoostingRegressor(random_state=0).fit(X, Y), "piecewise constant"),
        "classes": (RandomForestClassifier(20, random_state=0).fit(X, classes).predict_proba, "steps between"),
        "isotonic": (
            CalibratedClassifierCV(base, method="isotonic", cv=2).fit(X, classes).predict_proba,
            "isotonic regression",
        ),
        "whole numbers": (lambda Z: TRUTH(np.rint(Z)), "whole numbers"),
        "dropout": (with_dropout(), "dropout was left on"),
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", ["forest", "neighbours", "boosting", "classes", "isotonic", "whole numbers", "dropout"]
)
def test_what_is_no_network_is_named_within_two_thousand_queries(name: str) -> None:
    model, sentence = models()[name]
    for seed in range(2):
        found = nr.extract(nr.oracle(model, 6), random_state=seed)
        assert found.certificate.verdict == "failed"
        assert sentence in " ".join(found.certificate.reasons), found.summary()
        assert found.n_queries is not None
        assert found.n_queries <= 2_000


def test_a_little_dropout_is_named() -> None:
    for seed in range(5):
        rng, truth = np.random.default_rng(seed), nr.simulate.teacher(8, 4, random_state=seed)

        def answer(Z: np.ndarray, truth=truth, rng=rng) -> np.ndarray:
            hidden = np.maximum(Z @ truth.W.T + truth.b, 0.0)
            return hidden * (rng.random(hidden.shape) > 0.03) @ truth.A.T

        found = nr.extract(nr.oracle(answer, 8), random_state=seed)
        assert found.certificate.verdict == "failed"
        assert "dropout was left on" in " ".join(found.certificate.reasons), found.summary()


def test_a_window_of_a_recurrent_model_is_named_early() -> None:
    found = nr.extract(nr.oracle(recurrent, 12), random_state=0)
    assert found.certificate.verdict == "failed"
    assert "recurrent model" in " ".join(found.certificate.reasons), found.summary()
    assert found.n_queries is not None
    assert found.n_queries <= 2_000  # the radius where it settles differs with the rounding: 12 queries or 300 more


def test_a_network_in_bfloat16_is_no_tree() -> None:
    def upper_half(H: np.ndarray) -> np.ndarray:
        return (np.ascontiguousarray(H, dtype=np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)

    def in_bfloat16(Z: np.ndarray) -> np.ndarray:
        hidden = upper_half(np.maximum(upper_half(Z) @ TRUTH.W.T.astype(np.float32) + TRUTH.b.astype(np.float32), 0.0))
        return upper_half(hidden @ TRUTH.A.T.astype(np.float32))

    found = nr.extract(nr.oracle(in_bfloat16, 6), random_state=0)
    said = " ".join(found.certificate.reasons)
    assert found.certificate.verdict == "failed"
    assert "bfloat16" in said, found.summary()
    assert "trees" not in said
    assert found.n_queries is not None
    assert found.n_queries <= 2_000


def test_smooth_models_of_no_known_kind_end_early() -> None:
    rng = np.random.default_rng(0)
    layers = [(rng.standard_normal((k, d)), rng.standard_normal(k)) for k, d in ((5, 6), (4, 5), (1, 4))]
    two_layers = nr.DeepNetwork(layers, activation="tanh")
    for model in (lambda Z: np.sum(Z**2, axis=1), lambda Z: np.exp(-np.sum(Z**2, axis=1)), two_layers):
        found = nr.extract(nr.oracle(model, 6), random_state=0)
        assert found.certificate.verdict == "failed"
        assert "bends smoothly" in " ".join(found.certificate.reasons), found.summary()
        assert found.n_queries is not None
        assert found.n_queries <= 2_000


def test_clipped_answers_are_named() -> None:
    for limit in (1.0, 3.0):
        found = nr.extract(nr.oracle(lambda Z, limit=limit: np.clip(TRUTH(Z), -limit, limit), 6), random_state=0)
        assert found.certificate.verdict == "exact" or "clips its answers" in " ".join(found.certificate.reasons)


def test_inputs_without_effect_are_named_where_nothing_was_found() -> None:
    found = nr.extract(nr.oracle(lambda Z: np.sin(Z[:, 0] * Z[:, 1]), 5), random_state=0, query_budget=20_000)
    assert "does not use its inputs x2, x3, x4" in " ".join(found.certificate.reasons), found.summary()


def test_units_that_are_mostly_off_are_no_steps() -> None:
    truth = nr.Network(np.eye(2, 6), np.array([-0.5, -0.5]), np.ones((1, 2)))
    for seed in range(3):
        found = nr.extract(nr.oracle(truth, 6), random_state=seed)
        assert found.certificate.verdict == "exact", found.summary()
