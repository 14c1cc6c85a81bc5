"""A black box that is queried: same rows for every block size, faults named, queries counted."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor

from neurecover.data import oracle, split

WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])


def _two_outputs(X: np.ndarray) -> np.ndarray:
    return np.maximum(X, 0) @ WEIGHTS.T


def test_rows_do_not_depend_on_the_block_size_or_the_number_of_samples() -> None:
    source = oracle(_two_outputs, 3, n_samples=9000, random_state=4)
    assert (source.n_inputs, source.n_outputs, source.n_samples) == (3, 2, 9000)
    X, Y = source.collect()
    np.testing.assert_array_equal(Y, _two_outputs(X))
    for rows in (1, 100, 4095, 4097):
        pairs = list(source.blocks(rows))
        assert max(len(a) for a, _ in pairs) <= rows
        np.testing.assert_array_equal(np.concatenate([a for a, _ in pairs]), X)
        np.testing.assert_array_equal(np.concatenate([b for _, b in pairs]), Y)
    np.testing.assert_array_equal(source.with_samples(5000).collect()[0], X[:5000])
    assert source.n_samples == 9000


def test_inputs_are_standard_gaussian_and_chunks_differ() -> None:
    X, _ = oracle(_two_outputs, 3, n_samples=3 * 4096, random_state=0).collect()
    n = len(X)
    # Means have deviation n^-1/2 and entries of the covariance at most (2/n)^1/2: five deviations.
    assert np.abs(X.mean(axis=0)).max() < 5 / np.sqrt(n)
    assert np.abs(X.T @ X / n - np.eye(3)).max() < 5 * np.sqrt(2 / n)
    assert len(np.unique(X[:, 0])) == n


def test_same_seed_same_rows() -> None:
    def draw(random_state: object) -> np.ndarray:
        return oracle(_two_outputs, 3, n_samples=10, random_state=random_state).collect()[0]

    np.testing.assert_array_equal(draw(1), draw(np.int64(1)))
    np.testing.assert_array_equal(draw(np.random.default_rng(1)), draw(np.random.default_rng(1)))
    np.testing.assert_array_equal(draw(np.random.RandomState(1)), draw(np.random.RandomState(1)))
    assert not np.array_equal(draw(1), draw(2))
    assert not np.array_equal(draw(None), draw(None))
    unseeded = oracle(_two_outputs, 3, n_samples=10)
    np.testing.assert_array_equal(unseeded.collect()[0], unseeded.collect()[0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_models_are_asked_through_predict() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    linear = LinearRegression().fit(X, X @ [1.0, 2.0, 3.0, 4.0] + 5.0)
    inputs, outputs = oracle(linear, 4, n_samples=50, random_state=0).collect()
    np.testing.assert_allclose(outputs[:, 0], inputs @ [1, 2, 3, 4] + 5, rtol=1e-10)
    net = MLPRegressor(hidden_layer_sizes=(6,), max_iter=5, random_state=0).fit(X, X[:, :2])
    source = oracle(net, 4, n_samples=500, random_state=0)
    assert source.n_outputs == 2
    inputs, outputs = source.collect()
    hidden = np.maximum(inputs @ net.coefs_[0] + net.intercepts_[0], 0)
    np.testing.assert_allclose(outputs, hidden @ net.coefs_[1] + net.intercepts_[1], atol=1e-12)


def test_a_distribution_replaces_the_gaussian() -> None:
    source = oracle(
        _two_outputs,
        3,
        n_samples=5000,
        distribution=lambda rng, n, d: rng.uniform(2, 3, (n, d)),
        random_state=1,
    )
    X, _ = source.collect()
    assert 2 <= X.min() < X.max() <= 3


def test_queries_are_counted_across_passes_and_limits() -> None:
    asked: list[int] = []

    def model(X: np.ndarray) -> np.ndarray:
        asked.append(len(X))
        return X[:, 0]

    source = oracle(model, 2)
    assert source.queries == sum(asked) == 2
    limited = source.with_samples(5000)
    limited.collect()
    list(limited.blocks(100))
    assert source.queries == limited.queries == sum(asked) == 2 + 2 * 5000
    assert max(asked) == 4096


def test_a_model_that_works_in_place_does_not_change_the_inputs_on_record() -> None:
    def in_place(X: np.ndarray) -> np.ndarray:
        return np.abs(X, out=X).sum(axis=1)

    X, Y = oracle(in_place, 2, n_samples=100, random_state=0).collect()
    assert X.min() < 0
    np.testing.assert_array_equal(Y[:, 0], np.abs(X).sum(axis=1))


def test_an_oracle_can_be_split() -> None:
    source = oracle(_two_outputs, 3, n_samples=5000, random_state=0)
    train, holdout = split(source, 0.25, 1)
    assert train.n_samples is not None
    assert holdout.n_samples is not None
    assert train.n_samples + holdout.n_samples == 5000
    X, Y = holdout.collect()
    assert len(X) == holdout.n_samples
    np.testing.assert_allclose(Y, _two_outputs(X), rtol=1e-12)


def test_an_oracle_needs_to_know_how_often_to_ask() -> None:
    with pytest.raises(ValueError, match="Give the number of queries as n_samples"):
        oracle(_two_outputs, 3).blocks(10)
    with pytest.raises(ValueError, match="Got n_samples=0"):
        oracle(_two_outputs, 3, n_samples=0)
    with pytest.raises(ValueError, match="Got n_inputs=0"):
        oracle(_two_outputs, 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda X: X.sum(), r"Got shape \(\)"),
        (lambda X: X[:1], r"asked 2 rows.*Got shape \(1, 3\)"),
        (lambda X: X[:, :0], r"Got shape \(2, 0\)"),
        (lambda X: X[:, :, None], r"Got shape \(2, 3, 1\)"),
        (lambda X: None, "The model returned None"),
        (lambda X: X + 1j, "answer: expected real numbers. Got dtype complex128"),
        (lambda X: X * np.nan, "the oracle, row 0, column 'y0': expected a finite number. Got nan"),
    ],
)
def test_answers_that_are_no_answers_are_refused_at_the_probe(model: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        oracle(model, 3)


def test_a_fault_beyond_the_probe_is_named_by_its_row() -> None:
    source = oracle(lambda X: np.where(X[:, 0] > 2.5, np.nan, X[:, 0]), 3, n_samples=9000, random_state=0)
    inputs, _ = oracle(_two_outputs, 3, n_samples=9000, random_state=0).collect()
    first = np.flatnonzero(inputs[:, 0] > 2.5)[0]
    with pytest.raises(ValueError, match=f"row {first}, column 'y0'"):
        list(source.blocks(50))
    shrinking = oracle(lambda X: X if len(X) == 2 else X[:, :2], 3, n_samples=100)
    with pytest.raises(ValueError, match=r"answered 3 outputs at first. Got 2"):
        list(shrinking.blocks(50))


def test_a_distribution_of_the_wrong_shape_and_a_model_that_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match=r"asked for shape \(4096, 3\). Got shape \(3, 4096\)"):
        oracle(_two_outputs, 3, distribution=lambda rng, n, d: rng.random((d, n)))
    with pytest.raises(TypeError, match="Got ndarray instead"):
        oracle(WEIGHTS, 3)
