"""The digits of the outputs: recognised, named, and the level at which the search ends."""

from collections.abc import Callable

import numpy as np
import pytest

import neurecover as nr
from benchmarks.coverage import deviations
from neurecover.certificate.residuals.tested import without_shared_rounding
from neurecover.data import ArraySource
from neurecover.data.distinct import with_gaps
from neurecover.statistics import OutputDigits, OutputPrecision

VALUES = 3.0 * np.random.default_rng(0).standard_normal((2_000, 1))


def figures(digits: int) -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(lambda y: float(f"{y:.{digits}g}"))


def precision(Y: np.ndarray) -> OutputPrecision:
    sums = OutputDigits(Y.shape[1])
    sums.update(np.zeros((len(Y), 0)), Y)
    return with_gaps(sums.precision(), Y)


@pytest.mark.parametrize(
    ("name", "rounding"),
    [
        ("single precision", lambda Y: Y.astype(np.float32)),
        ("half precision", lambda Y: Y.astype(np.float16)),
        ("3 decimals", lambda Y: np.round(Y, 3)),
        ("3 decimals", lambda Y: np.round(Y, 3).astype(np.float32)),
        ("9 decimals", lambda Y: np.round(Y, 9)),
        ("0 decimals", np.round),
        ("2 significant digits", figures(2)),
        ("7 significant digits", figures(7)),
        ("steps of 0.25", lambda Y: 0.254 * np.round(Y / 0.254)),
    ],
)
def test_the_grid_is_named_and_its_rounding_measured(name: str, rounding: Callable[[np.ndarray], np.ndarray]) -> None:
    found = precision(rounding(VALUES).astype(np.float64))
    assert found.names == (name,)
    error = np.sqrt(np.mean((rounding(VALUES).astype(np.float64) - VALUES) ** 2))
    # A float's step is a bound on that of all values with its exponent, and 2 significant digits are a coarse grid.
    assert 0.5 * error <= found.rounding[0] <= 2.0 * error


def test_double_precision_is_no_grid_nor_is_a_constant_that_repeats() -> None:
    assert precision(VALUES).names == ("",)
    assert precision(VALUES[:20]).names == ("",)
    assert precision(np.maximum(VALUES, 0.0) + 0.3).names == ("",)
    assert precision(1e160 * VALUES).names == ("",)
    assert precision(np.hstack([VALUES, np.round(VALUES, 2)])).names == ("", "2 decimals")


def single(truth: nr.Network, X: np.ndarray) -> tuple[nr.Network, np.ndarray]:
    """The network with weights in single precision, and its outputs computed in it."""
    W, b, A, c = (array.astype(np.float32) for array in (truth.W, truth.b, truth.A, truth.c))
    return nr.Network(W, b, A, c), np.maximum(X @ W.T + b, np.float32(0)) @ A.T + c


def test_single_precision_is_named_and_the_width_found() -> None:
    """Four seeds, k not given: at least three right and statistical, none of them false; the intervals cover."""
    claims, inside = 0, []
    for seed in range(40, 44):
        X = np.random.default_rng(seed).standard_normal((1_200, 10)).astype(np.float32)
        truth, Y = single(nr.simulate.teacher(10, 10, 1, random_state=seed), X)
        found = nr.recover(X, Y, random_state=seed)
        assert found.certificate.verdict in ("statistical", "approximate")
        assert any("seven digits: single precision" in reason for reason in found.certificate.reasons)
        if found.certificate.verdict == "statistical":
            assert found.network.n_hidden == 10
            assert nr.compare(found.network, truth).weight_error <= 1e-5
            z = deviations(found, truth)
            assert z is not None
            claims, inside = claims + 1, [*inside, *(np.abs(z) <= 1.96)]
    assert claims >= 3
    # 363 correlated deviations or more, taken for 60 independent ones: 0.95 ± 4·0.028
    assert np.mean(inside) >= 0.84


@pytest.mark.parametrize("decimals", [0, 4])
def test_rounded_outputs_are_no_exact_answer(decimals: int) -> None:
    truth = nr.simulate.teacher(4, 3, 1, random_state=3)
    X, Y = nr.simulate.sample(truth, 1_500, random_state=3)
    found = nr.recover(X, np.round(Y, decimals), 3, random_state=0)
    named = [check for check in found.certificate.checks if check.name == "output digits"]
    assert named[0].passed == (decimals == 4)
    assert (found.certificate.verdict == "statistical") == (decimals == 4)
    assert found.certificate.verdict != "exact"
    assert f"{decimals} decimals" in named[0].sentence


def test_single_precision_does_not_widen_errors_where_noise_is_far_larger() -> None:
    truth = nr.simulate.teacher(4, 3, random_state=0)
    X, Y = nr.simulate.sample(truth, 2_000, noise=0.1, random_state=1)
    single, double = (
        nr.recover(X.astype(kind).astype(float), Y.astype(kind), n_hidden=3, random_state=0).certificate
        for kind in (np.float32, np.float64)
    )
    assert single.verdict == double.verdict == "statistical"
    assert single.standard_errors is not None
    assert double.standard_errors is not None
    # The order of units is a convention of the search.
    pair = (np.sort(errors.standard_errors["W"], axis=0) for errors in (single, double))
    np.testing.assert_allclose(*pair, rtol=1e-3)


def _silent_in_a_third(seed: int) -> tuple[nr.Network, np.ndarray]:
    """Draw a network whose units are all off in a tenth to a third of the inputs, where its outputs are c."""
    drawn = nr.simulate.teacher(3, 3, 2, random_state=seed)
    truth = nr.Network(drawn.W, np.full(3, -0.3), drawn.A, [0.7, -1.3])
    return truth, np.random.default_rng(seed).standard_normal((400, 3))


def test_rows_that_share_one_rounding_error_refuse_no_right_network() -> None:
    """Counted as many errors they refused 7 of these 8; the weights agree to seven standard errors."""
    for seed in range(2, 10):
        truth, X = _silent_in_a_third(seed)
        found = nr.recover(X, truth(X).astype(np.float32).astype(float), n_hidden=3, random_state=seed)
        assert found.certificate.verdict == "statistical", seed
        off = deviations(found, truth)
        assert off is not None
        assert np.abs(off).max() < 7.0


def test_only_rows_that_share_one_rounding_error_are_one() -> None:
    """Outputs that differ among the rows without an active unit are not c alone: all of these rows are tested."""
    truth, X = _silent_in_a_third(2)
    off = (X @ truth.W.T + truth.b <= 0.0).all(axis=1)
    Y = np.round(truth(X), 4)
    kept = without_shared_rounding(ArraySource(X, Y), truth)
    assert kept.count() == len(X) - np.count_nonzero(off) + 1
    Y[off] = np.round(truth(X)[off] + 0.01 * X[off, :1], 4)
    values, counts = np.unique(Y[off], axis=0, return_counts=True)
    assert without_shared_rounding(ArraySource(X, Y), truth).count() == len(X) - counts.max() + 1
    assert len(values) > 20
