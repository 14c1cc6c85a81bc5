"""Units that are on in every row in which all rare columns have their usual values."""

from dataclasses import replace

import numpy as np
import pytest

from neurecover.models import Network
from neurecover.refine.rare_rows import by_rows
from neurecover.refine.rare_steady import by_rows_beside_steady, switched_by_others
from neurecover.simulate import teacher
from neurecover.solve import Deadline

COMMON, RARE = 4, 5


def _with_a_steady_unit(seed: int, k: int, p: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """A network whose unit 0 is off in some rows with rare values alone, inputs, and where these are rare values."""
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.standard_normal((500, COMMON)), np.zeros((500, RARE))])
    for j in range(COMMON, COMMON + RARE):
        X[rng.choice(500, 30, replace=False), j] = 2.0 * (1.0 + rng.random(30))
    differs = (X != 0.0) & (np.arange(COMMON + RARE) >= COMMON)
    truth = teacher(COMMON + RARE, k, p, random_state=seed)
    w = np.append(truth.W[0, :COMMON], np.linspace(-1.0, 0.5, RARE))
    usual = ~differs.any(axis=1)
    truth = replace(
        truth, W=np.vstack([w, truth.W[1:]]), b=np.append(0.01 - (X[usual] @ w).min(), truth.b[1:]), c=np.full(p, 0.2)
    )
    off = X @ w + truth.b[0] <= 0.0
    assert not off[usual].any()
    assert off.sum() >= 5
    return truth, X, differs


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(("k", "p"), [(4, 5), (7, 6)])
def test_its_weights_its_side_and_its_bias_are_found(k: int, p: int, side: float) -> None:
    """Known is A z up to side and constant, as the usual rows show it; on 5 of 6 networks every row is answered."""
    answered = 0
    for seed in range(6):
        truth, X, differs = _with_a_steady_unit(seed, k, p)
        Y, usual = truth(X), ~differs.any(axis=1)
        W, b, A, c = truth.W.copy(), truth.b.copy(), truth.A.copy(), truth.c.copy()
        W[:, COMMON:] = 0.0
        # side·A relu(side·z + t) = A z + side·t A where it is on
        shift = 1.0 - (side * (X[usual] @ W[0] + b[0])).min()
        W[0], b[0], A[:, 0], c = side * W[0], side * b[0] + shift, side * A[:, 0], c - side * shift * A[:, 0]
        known = Network(W, b, A, c)
        np.testing.assert_allclose(known(X[usual]), Y[usual], atol=1e-12)
        found = by_rows_beside_steady(W, known, X, Y, differs, Deadline())
        assert found is not None
        plain = replace(by_rows(filled := W.copy(), known, X, Y, differs, Deadline()), W=filled)
        assert np.abs(plain(X) - Y).max() > 1e-3  # without this the unit stays on
        if np.abs(found(X) - Y).max() < 1e-8:
            answered += 1
            np.testing.assert_allclose(found.W[0] / np.linalg.norm(found.W[0]), truth.W[0] / np.linalg.norm(truth.W[0]))
            np.testing.assert_allclose(found.c, truth.c, atol=1e-8)
    assert answered >= 5


def test_a_unit_that_is_never_off_keeps_its_side() -> None:
    truth, X, differs = _with_a_steady_unit(0, 4, 5)
    truth = replace(truth, b=np.append(100.0, truth.b[1:]))
    W = np.where(np.arange(COMMON + RARE) < COMMON, truth.W, 0.0)
    found = by_rows_beside_steady(W, truth, X, truth(X), differs, Deadline())
    assert found is not None
    np.testing.assert_allclose(found(X), truth(X), atol=1e-9)
    np.testing.assert_allclose(found.A, truth.A)


def test_without_such_a_unit_there_is_nothing_to_do() -> None:
    truth, X, differs = _with_a_steady_unit(0, 4, 5)
    none = replace(truth, b=np.append(0.0, truth.b[1:]))
    assert by_rows_beside_steady(none.W, none, X, none(X), differs, Deadline()) is None
    one_output = replace(truth, A=truth.A[:1], c=truth.c[:1])
    assert by_rows_beside_steady(truth.W, one_output, X, one_output(X), differs, Deadline()) is None


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_rows_that_were_set_aside_tell_the_kink_of_a_unit_that_is_on_in_all_others(side: float) -> None:
    """Known is the unit as it is in the other rows, affine; its side and its bias are in those set aside."""
    truth, X, _ = _with_a_steady_unit(0, 4, 5)
    truth = replace(truth, A=np.hstack([side * truth.A[:, :1], truth.A[:, 1:]]))
    on = X @ truth.W[0] + truth.b[0] > 0.0
    # a relu(z) = −a relu(−z + β) + a β where z < β
    far = 1.0 + np.abs(X @ truth.W[0] + truth.b[0]).max()
    W, b, A = truth.W.copy(), truth.b.copy(), truth.A.copy()
    W[0], b[0], A[:, 0] = -W[0], far - b[0], -A[:, 0]
    shown = Network(W, b, A, truth.c + truth.A[:, 0] * far, truth.activation)
    Y = truth(X)
    assert np.abs(shown(X) - Y)[on].max() < 1e-12
    assert np.abs(shown(X) - Y)[~on].max() > 1e-3
    assert np.abs(switched_by_others(shown, X, Y, on)(X) - Y).max() < 1e-12
