"""Weights in every statistic: sums over samples have w, squares of scores w², counts and largest values none."""

from collections.abc import Callable

import numpy as np
import pytest

from every_statistic import DEEP, FACTORIES, D, P
from neurecover.data import ArraySource, reduce, side_by_side
from neurecover.models import jacobian
from neurecover.statistics import (
    Divided,
    Division,
    InfluenceSums,
    Moments,
    Residuals,
    RowSample,
    SerialResiduals,
    Statistic,
    Together,
)
from neurecover.statistics.fits.union_score import UnionScore

_rng = np.random.default_rng(0)
N = 60
# In single precision every row is looked at for its digits; else a few rows show that there is no grid.
X, Y = (_rng.standard_normal((N, size), dtype=np.float32) for size in (D, P))
LABELS = (_rng.random((N, 1)) < 0.5).astype(float)
REAL = np.exp(_rng.standard_normal(N))
WHOLE = _rng.integers(1, 5, N).astype(float)
HALFSPACES = _rng.standard_normal((2, D))

BUILDERS: dict[str, Callable[[], Statistic]] = {
    **FACTORIES,
    # Without leverage, which is not linear in w: that has a test of its own.
    "influence": lambda: InfluenceSums(DEEP, np.arange(5), np.eye(2, 5), np.zeros((5, 5))),
    "union": lambda: UnionScore(HALFSPACES, np.ones(2), flips=np.array([0.1, 0.2])),
}
# The power of w in a sum where it is not one, by statistic.
POWERS: dict[str, dict[str, int]] = {
    "range": {"on": 0},
    "units-on": {"on": 0, "off": 0, "at_kink": 0},
    "output-digits": {"binary": 0, "decimal": 0},
    "truncated": {"kept": 0},
    "odd-projections": {"square": 2},
    "probe-scores": {"covariance": 2},
    "nested-scores": {"covariance": 2},
    "scores": {
        **dict.fromkeys(("pairs", "hh", "hidden_squares", "readout_squares", "residual_fourths"), 2),
        **dict.fromkeys(("hidden_fourths", "readout_fourths"), 4),
    },
    "shape-scores": {"squares": 2, "whole": 2, "fourths": 4},
    "influence": {"squares": 2, "fourths": 4, "left_out_squared": 2},
    "turned-sides": {"turned": 2},
    "union": {"errors": 0},
}
every_statistic = pytest.mark.parametrize("name", BUILDERS)


def _samples(name: str) -> tuple[np.ndarray, np.ndarray]:
    return (X, LABELS) if name == "union" else (X, Y)


def _powers(name: str, statistic: Statistic) -> dict[str, int]:
    sums = {key: 1 for key in statistic.sums if key not in statistic.maxima}
    return {**sums, "n": 0, **POWERS.get(name, {})}


def _close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-300)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * scale, err_msg=what)


@every_statistic
@pytest.mark.parametrize("block_bytes", [1, 4_000, 2**20])
def test_a_row_of_weight_w_adds_its_own_sums_times_the_power_of_w(name: str, block_bytes: int) -> None:
    build, samples = BUILDERS[name], _samples(name)
    found = reduce(ArraySource(*samples, weight=REAL), build(), block_bytes=block_bytes)
    rows = []
    for i in range(N):
        rows.append(build())
        rows[-1].update(*(part[i : i + 1] for part in samples))
    for key, power in _powers(name, build()).items():
        expected = sum((w**power * row.sums[key] for w, row in zip(REAL, rows)), start=np.zeros(()))
        _close(found.sums[key], expected, f"{name}.{key}")
    for key in found.maxima:
        _close(found.sums[key], np.max([row.sums[key] for row in rows], axis=0), f"{name}.{key}")
    assert found.n == N
    assert found.weight == pytest.approx(REAL.sum(), rel=1e-14)


@every_statistic
def test_whole_weights_are_copies_but_in_squares_of_scores(name: str) -> None:
    build, samples = BUILDERS[name], _samples(name)
    times = WHOLE.astype(int)
    weighted = reduce(ArraySource(*samples, weight=WHOLE), build())
    copied = reduce(ArraySource(*(np.repeat(part, times, axis=0) for part in samples)), build())
    assert copied.n == weighted.weight
    for key, power in _powers(name, build()).items():
        if power == 1:
            _close(weighted.sums[key], copied.sums[key], f"{name}.{key}")


@every_statistic
def test_weighted_sums_merge_are_stored_and_stay_apart_from_others(name: str) -> None:
    build, samples = BUILDERS[name], _samples(name)
    whole = reduce(ArraySource(*samples, weight=REAL), build())
    first, second = (
        reduce(ArraySource(*(part[own] for part in samples), weight=REAL[own]), build())
        for own in (slice(0, 25), slice(25, N))
    )
    second.merge(first.blank())
    first.merge(second.from_arrays(second.to_arrays()))
    assert first.sums.keys() == whole.sums.keys()
    for key, value in whole.sums.items():
        _close(first.sums[key], value, f"{name}.{key}")
    with pytest.raises(ValueError, match="needs arrays of shapes"):
        first.merge(reduce(ArraySource(*samples), build()))


def test_threads_share_a_block_with_its_weights() -> None:
    rng = np.random.default_rng(1)
    inputs, outputs, weight = rng.standard_normal((40_000, 40)), rng.standard_normal((40_000, 2)), rng.random(40_000)
    source = ArraySource(inputs, outputs, weight=weight)
    alone = reduce(source, Moments(40, 2))
    with side_by_side():
        shared = reduce(source, Moments(40, 2))
    assert shared.sums.keys() == alone.sums.keys()
    for key, value in alone.sums.items():
        _close(shared.sums[key], value, key)


def test_averages_are_over_the_weights_and_noise_over_the_rows() -> None:
    moments = reduce(ArraySource(X, Y, weight=REAL), Moments(D, P))
    Z = np.hstack([X, Y])
    np.testing.assert_allclose(moments.mean, np.average(Z, axis=0, weights=REAL), atol=1e-14)
    np.testing.assert_allclose(moments.covariance, np.cov(Z.T, aweights=REAL, bias=True), atol=1e-14)
    left = reduce(ArraySource(X, Y, weight=REAL), Residuals(DEEP, P))
    R = Y - DEEP(X)
    np.testing.assert_allclose(left.mean_squares, np.mean(REAL[:, None] * R**2, axis=0), rtol=1e-13)
    np.testing.assert_allclose(left.rms, np.sqrt(np.mean(R**2, axis=0)), rtol=1e-13)
    # R² does not depend on what both are divided by.
    spread = np.cov(Y.T, aweights=REAL, bias=True).diagonal()
    expected = np.average(R**2, axis=0, weights=REAL) / spread
    np.testing.assert_allclose(left.mean_squares / left.output_variance, expected, rtol=1e-12)


def test_the_sandwich_and_leverage_of_weighted_least_squares() -> None:
    """Σ (M J w r)²/(1 − h) and w r²/(1 − h)², h = w J F⁻¹ Jᵀ, from whole matrices."""
    free = np.arange(DEEP.n_parameters - P)
    J, R = jacobian(DEEP, X)[:, :, free], Y - DEEP(X)
    F = np.einsum("i,iop,ioq->pq", REAL, J, J) + np.eye(len(free))
    root = np.linalg.cholesky(np.linalg.inv(F))
    moves = np.random.default_rng(2).standard_normal((3, len(free)))
    found = reduce(ArraySource(X, Y, weight=REAL), InfluenceSums(DEEP, free, moves, root)).influence()
    # F⁻¹ = R Rᵀ by the same root: of J F⁻¹ Jᵀ itself rounding leaves some 1e-10.
    h = REAL[:, None] * np.sum(np.einsum("iop,pq->ioq", J, root) ** 2, axis=2)
    np.testing.assert_allclose(h, REAL[:, None] * np.einsum("iop,pq,ioq->io", J, np.linalg.inv(F), J), atol=1e-8)
    assert h.max() < 0.999
    scores = np.einsum("iop,io->ip", J, REAL[:, None] * R / np.sqrt(1.0 - h)) @ moves.T
    np.testing.assert_allclose(found.variances, np.sum(scores**2, axis=0), rtol=1e-10)
    assert found.left_out == pytest.approx(float(np.mean(np.sum(REAL[:, None] * R**2 / (1.0 - h) ** 2, axis=1))))


def test_neighbours_are_compared_by_what_the_noise_of_each_is() -> None:
    found = reduce(ArraySource(X, Y, weight=REAL), SerialResiduals(DEEP))
    R = np.sqrt(REAL)[:, None] * (Y - DEEP(X))
    np.testing.assert_allclose(found.sums["squared"], np.sum(R**2, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.sums["products"], np.sum(R[1:] * R[:-1], axis=0), rtol=1e-12)


def test_several_statistics_and_parts_of_the_rows_hand_weights_on() -> None:
    division = Division(0.3, 5)
    out = division.held_out(X, Y)
    both = reduce(
        ArraySource(X, Y, weight=REAL),
        Together(all=Moments(D, P), parts=Divided(division, train=Moments(D, P), held=Moments(D, P))),
    )
    parts = both.part("parts", Divided)
    for moments, own in ((both.part("all", Moments), out | True), (parts.part("held", Moments), out)):
        np.testing.assert_allclose(moments.mean, np.average(np.hstack([X, Y])[own], axis=0, weights=REAL[own]))


def test_rows_that_are_kept_have_their_weights_beside_them() -> None:
    def sample(weight: np.ndarray | None, order: np.ndarray) -> RowSample:
        rows = RowSample(P, 20, 5, 3, np.zeros(D), np.ones(D))
        return reduce(ArraySource(X[order], Y[order], weight=None if weight is None else weight[order]), rows)

    kept = sample(REAL, np.arange(N)).random
    known = {tuple(row): w for row, w in zip(np.hstack([X, Y]), REAL)}
    assert kept.shape == (20, D + P + 1)
    assert all(known[tuple(row[:-1])] == row[-1] for row in kept)
    np.testing.assert_array_equal(kept, sample(REAL, np.random.default_rng(4).permutation(N)).random)
    assert sample(None, np.arange(N)).random.shape == (20, D + P)
