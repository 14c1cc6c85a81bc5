"""Sparse matrices and arrays of SciPy go where X goes."""

import numpy as np
import pytest
import scipy.sparse as sp

import neurecover as nr
from neurecover.data import ArraySource, as_source, reduce
from neurecover.data import source as source_module
from neurecover.data.sources.sparse import SparseSource
from neurecover.statistics import Moments

KINDS = (sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_matrix)


def _counts(n: int = 800) -> np.ndarray:
    return np.random.default_rng(0).poisson(0.7, (n, 6)).astype(float)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 800])
def test_its_rows_are_those_of_the_array(kind: type, rows: int) -> None:
    X = _counts(50)
    blocks = list(SparseSource(kind(X), X[:, :2]).blocks(rows))
    np.testing.assert_array_equal(np.vstack([block for block, _ in blocks]), X)
    np.testing.assert_array_equal(np.vstack([block for _, block in blocks]), X[:, :2])
    np.testing.assert_array_equal(np.vstack([b for b, _ in SparseSource(kind(X), X).blocks_from(10, 20)]), X[20:])


@pytest.mark.parametrize("kind", KINDS)
def test_recover_answers_as_it_does_for_the_array(kind: type) -> None:
    X = _counts()
    truth = nr.Network(2.0 * np.eye(3, 6) - 1.0, np.array([0.5, 1.5, 2.5]), np.array([[1.0, -2.0, 3.0]]))
    dense = nr.recover(X, truth(X), 3, random_state=0)
    found = nr.recover(kind(X), sp.csr_matrix(truth(X)), 3, random_state=0)
    assert dense.certificate.verdict == "exact"
    assert found.certificate.verdict == "exact"
    np.testing.assert_array_equal(found.network.W, dense.network.W)
    assert nr.verify(found.network, kind(X), truth(X)).at_rounding


def test_few_are_held_and_many_are_read_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    X = sp.csr_array(_counts())
    y = X[:, [0]].toarray()
    assert isinstance(as_source(X, y), ArraySource)
    monkeypatch.setattr(source_module, "IN_MEMORY", 100)
    many = as_source(X, y)
    assert isinstance(many, SparseSource)
    sums = [reduce(given, Moments(6, 1)).second for given in (many, ArraySource(X.toarray(), y))]
    np.testing.assert_allclose(*sums, rtol=1e-14)


@pytest.mark.parametrize(
    ("X", "Y", "words"),
    [
        (sp.csr_array(np.eye(3)), np.ones(4), "as many rows in X as in Y. Got 3 in X and 4"),
        (sp.csr_array(np.eye(6) * 1j), np.ones(6), "expected real numbers. Got dtype complex128"),
        (sp.csr_array(np.diag([1.0, np.nan, 1, 1, 1, 1])), np.ones(6), "row 1, column 'x1': expected a finite number"),
        (sp.csr_array((10, 30_000)), np.ones(10), "at most 20000 columns"),
    ],
)
def test_what_is_no_data_is_refused_in_a_sentence(X: object, Y: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        nr.recover(X, Y, 1)


def test_the_regressor_takes_them() -> None:
    X = _counts()
    y = np.maximum(X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.2]), 0.0)
    model = nr.NetworkRecovery(1, random_state=0).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(model.predict(sp.csc_matrix(X)), y, atol=1e-10)


def test_outputs_may_be_sparse_and_networks_answer_sparse_inputs() -> None:
    X = _counts()
    truth = nr.Network(2.0 * np.eye(3, 6) - 1.0, np.array([0.5, 1.5, 2.5]), np.eye(2, 3))
    np.testing.assert_array_equal(truth(sp.csr_array(X)), truth(X))
    model = nr.NetworkRecovery(2, random_state=0).fit(X, sp.csr_array(truth(X)))
    np.testing.assert_allclose(model.predict(sp.csr_array(X)), truth(X), atol=1e-10)
