"""Units of a category that switch at a few samples of each level, from all levels together."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.refine.rare_kinks import Group, Unit
from neurecover.refine.rare_pooled import pooled_units
from neurecover.simulate import teacher

NUMBERS, LEVELS, ROWS = 4, 16, 80


def _groups(seed: int, p: int, switching: int, steady: bool) -> tuple[list[Group], list[Unit], np.ndarray, np.ndarray]:
    """Levels of a unit that all of them show and one on (or off, if steady) in `switching` samples of each level.

    Returned are the groups, the known unit, and direction and height of the other.
    """
    rng = np.random.default_rng(seed)
    W, A = rng.standard_normal((2, NUMBERS)), rng.standard_normal((p, 2))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    groups, known = [], Unit(W[0], A[:, 0], {}, ROWS)
    for g in range(LEVELS):
        X, known.bias[g] = rng.standard_normal((ROWS, NUMBERS)), float(0.3 * rng.standard_normal())
        z = np.sort(X @ W[1] if not steady else -X @ W[1])
        bias = -0.5 * (z[-switching] + z[-switching - 1]) * (-1.0 if steady else 1.0)
        H = np.maximum(np.column_stack([X @ W[0] + known.bias[g], X @ W[1] + bias]), 0.0)
        groups.append(Group(g, X, H @ A.T + 0.5))
    return groups, [known], W[1], A[:, 1]


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("p", [1, 3])
def test_a_few_samples_of_each_level_give_a_unit(p: int, steady: bool) -> None:
    """Two samples a level, fewer than the unit has weights: direction and height are exact, for 6 networks of 6."""
    for seed in range(6):
        groups, known, w, height = _groups(seed, p, 2, steady)
        (unit,) = pooled_units(known, groups, 1, np.random.default_rng(0))
        assert abs(unit.w @ w) > 1.0 - 1e-12
        np.testing.assert_allclose(unit.height, height, rtol=1e-6)
        # It is seen where it is on, or, if steady, where it is off: then it looks the other way.
        assert (unit.w @ w > 0.0) != steady
        assert len(unit.bias) == LEVELS


def test_a_unit_that_is_known_gets_its_bias_where_two_samples_show_it() -> None:
    groups, known, w, height = _groups(0, 1, 2, False)
    other = Unit(w, height, {0: 100.0}, 2)
    assert pooled_units([*known, other], groups, 0, np.random.default_rng(0)) == []
    assert set(other.bias) == set(range(LEVELS))
    for group in groups[1:]:
        left = group.Y - 0.5 - known[0].values(group) - other.values(group)
        np.testing.assert_allclose(left, 0.0, atol=1e-9)


def test_one_sample_a_level_and_noise_give_none() -> None:
    groups, known, _, _ = _groups(0, 1, 1, False)
    assert pooled_units(known, groups, 1, np.random.default_rng(0)) == []
    rng = np.random.default_rng(1)
    noisy = [Group(g.number, g.X, g.Y + 0.01 * rng.standard_normal(g.Y.shape)) for g in _groups(0, 1, 2, False)[0]]
    assert pooled_units(known, noisy, 1, np.random.default_rng(0)) == []


def test_a_first_unit_needs_no_other() -> None:
    """With no unit known the slopes of all levels are one unit's, where it is on but for two samples of each."""
    groups, known, w, height = _groups(0, 2, 2, True)
    alone = [Group(g.number, g.X, g.Y - known[0].values(g)) for g in groups]
    (unit,) = pooled_units([], alone, 1, np.random.default_rng(0))
    assert abs(unit.w @ w) > 1.0 - 1e-12
    np.testing.assert_allclose(unit.height, height, rtol=1e-6)
    flat = [Group(g.number, g.X, np.ones_like(g.Y)) for g in groups]
    assert pooled_units([], flat, 1, np.random.default_rng(0)) == []


def test_a_category_in_columns_of_zeros_and_ones() -> None:
    """Typical biases, so that some units hardly switch: on 5 of 6 networks every row is answered to rounding."""
    answered = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = np.hstack([rng.standard_normal((1_500, NUMBERS)), np.eye(12)[rng.integers(12, size=1_500)]])
        truth = teacher(X.shape[1], 4, 1, random_state=seed)
        found = nr.recover(X, truth(X), 4, random_state=seed, time_budget=15.0)
        answered += bool(np.abs(found.network(X) - truth(X)).max() < 1e-9)
        assert found.certificate.verdict == "approximate"  # the columns of a category add up to one
    assert answered >= 5
