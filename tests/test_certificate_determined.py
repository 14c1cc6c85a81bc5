"""Weights marked as determined are right, whatever the samples leave open."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import neurecover as nr
from neurecover.certificate import Evidence, certify, scaled_to_determined
from neurecover.certificate.open_weights import open_weights
from neurecover.data import ArraySource, prepared, reduce
from neurecover.statistics import Residuals

Change = Callable[[nr.Network, np.ndarray, np.random.Generator], np.ndarray]
RIGHT = 1e-6  # EXACT_WEIGHTS times a hundred, as matching divides by the norm of a part of a row


def rare(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    for column in rng.choice(X.shape[1], 2, replace=False):
        seen = rng.choice(len(X), int(rng.integers(1, 8)), replace=False)
        X[:, column] = np.where(np.isin(np.arange(len(X)), seen), X[:, column], 0.0)
    return X


def one_hot(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[:, :2] = np.eye(2)[rng.integers(0, 2, len(X))]
    return X


def dead(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Column 0 is zero wherever unit 0 is on, with it or without."""
    without = X[:, 1:] @ truth.W[0, 1:] + truth.b[0]
    X[(without > 0) | (X @ truth.W[0] + truth.b[0] > 0), 0] = 0.0
    return X


def constant(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[:, 1] = rng.choice([0.0, 2.0])
    return X


def doubled(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[:, 1] = 2.0 * X[:, 0]
    return X


def counts(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    some = rng.random(X.shape) < rng.choice([0.02, 0.3, 0.9], X.shape[1])
    return rng.integers(0, 4, X.shape) * some.astype(float)


def wrong_weights(found: nr.Recovery, truth: nr.Network) -> int:
    """How many weights that are marked as determined are not those of the truth, scaled alike."""
    mask, net, truth = found.certificate.determined, found.network, truth.normal_form()
    assert mask is not None
    shared = mask.W.all(axis=0)
    size = {id(n): np.maximum(np.linalg.norm(n.W[:, shared], axis=1), 1e-300) for n in (net, truth)}
    ours, theirs = (np.hstack([n.W[:, shared] / size[id(n)][:, None], (n.A * size[id(n)]).T]) for n in (net, truth))
    rows, columns = linear_sum_assignment(np.sum((ours[:, None] - theirs[None]) ** 2, axis=2))
    assert len(rows) == net.n_hidden
    order = columns[np.argsort(rows)]
    same = scaled_to_determined(nr.Network(truth.W[order], truth.b[order], truth.A[:, order], truth.c), mask)
    wrong = 0
    for name in "WbAc":
        right = getattr(same, name)
        off = np.abs(getattr(net, name) - right) > RIGHT * np.maximum(1.0, np.abs(right))
        wrong += int(np.count_nonzero(off & mask[name]))
    return wrong


@pytest.mark.parametrize(
    ("change", "least"), [(rare, 0), (one_hot, 3), (dead, 5), (constant, 3), (doubled, 3), (counts, 0)]
)
def test_nothing_marked_as_determined_is_wrong(change: Change, least: int) -> None:
    """Eight seeds each; `least` of them have a mask with open weights, where the search ends soon."""
    partly = 0
    for seed in range(500, 508):
        rng = np.random.default_rng(seed)
        d, k, p = int(rng.integers(4, 8)), int(rng.integers(2, 5)), int(rng.integers(1, 3))
        truth = nr.simulate.teacher(d, k, p, bias=0.7, random_state=seed)
        X = change(truth, rng.standard_normal((600, d)), rng)
        found = nr.recover(X, truth(X), k, random_state=seed, time_budget=1.0)
        if found.certificate.determined is None:
            continue
        assert found.certificate.verdict in ("exact", "approximate")
        assert wrong_weights(found, truth) == 0
        if found.certificate.verdict == "approximate":
            partly += 1
            errors = np.concatenate([error.ravel() for error in found.certificate.standard_errors.values()])
            assert np.isinf(errors).any()
            assert np.isfinite(errors).any()
            assert any("All weights are exact but" in reason for reason in found.certificate.reasons)
            np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)
    assert partly >= least


def test_a_kink_right_through_a_sample_proves_nothing() -> None:
    """Unit 0 is off wherever column 0 differs from zero but for one sample on its kink, which is on by rounding."""
    rng = np.random.default_rng(0)
    truth = nr.simulate.teacher(4, 2, 2, bias=0.3, random_state=2).normal_form()
    X = dead(truth, rng.standard_normal((500, 4)), rng)
    row = int(np.flatnonzero(X[:, 0])[0])
    W = truth.W.copy()
    W[0, 0] = (5e-15 - X[row, 1:] @ W[0, 1:] - truth.b[0]) / X[row, 0]
    other = nr.Network(W, truth.b, truth.A, truth.c)
    X = X[(X @ W[0] + truth.b[0] < 1e-12) | (X[:, 0] == 0.0)]
    np.testing.assert_allclose(other(X), truth(X), atol=1e-13)  # two networks, the same samples
    assert np.abs(W - truth.W).max() > 0.1
    given = prepared(ArraySource(X, truth(X)), True, rng)
    on_white = nr.Network(
        np.linalg.solve(given.whitening.matrix, W.T).T, truth.b + W @ given.whitening.mean, truth.A, truth.c
    )
    holdout = reduce(given.holdout, Residuals(on_white, 2, 2, given.output_mean))
    certificate = certify(on_white, given.whitening, given.samples, holdout, Evidence(2), rng)
    assert certificate.verdict == "approximate"
    assert certificate.determined is not None
    assert np.argwhere(~certificate.determined.W).tolist() == [[0, 0]]


def test_sentences_name_units_and_columns() -> None:
    errors = {"W": np.zeros((3, 5)), "b": np.zeros(3), "A": np.zeros((1, 3)), "c": np.zeros(1)}
    unseen = {name: np.zeros(value.shape, dtype=bool) for name, value in errors.items()}
    errors["W"][2, [1, 4]] = np.inf
    unseen["W"][2, [1, 4]] = True
    sentence = open_weights(errors, unseen)
    assert "but those of unit 2 on columns 1 and 4, which too few samples with the unit on show: 2 of 22" in sentence
    errors["W"][:, 0] = np.inf
    assert "every unit on column 0, of which" in open_weights(
        errors | {"W": np.where(unseen["W"], 0.0, errors["W"])}, unseen
    )
