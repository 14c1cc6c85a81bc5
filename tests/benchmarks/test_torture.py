"""Hostile problems: what they are, how a claim is judged, and a sample of `neurecover bench torture`."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import hostile
from benchmarks.hostile import Hostile
from benchmarks.torture import attempt, judge
from neurecover.certificate import ParameterArrays
from neurecover.models import Network, replace_arrays
from neurecover.pipeline import recover
from neurecover.simulate import sample, teacher

FAMILIES = sorted(hostile.families())


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_draws_small_finite_problems_and_says_what_is_wrong(name: str) -> None:
    assert hostile.families()[name].__doc__
    for seed in range(3):
        case = hostile.draw(name, seed)
        again = hostile.draw(name, seed)
        assert np.array_equal(case.X, again.X)
        assert np.array_equal(case.Y, again.Y)
        assert len(case.X) == len(case.Y) <= 2_500
        assert np.all(np.isfinite(case.X))
        assert np.all(np.isfinite(case.Y))
        assert case.n_hidden >= 1
        if case.truth is not None:
            assert case.truth.W.shape[1] == case.X.shape[1]
            assert case.truth.n_outputs == case.Y.shape[1]


def test_there_are_forty_families_and_no_other_name_is_taken() -> None:
    assert len(FAMILIES) >= 40
    with pytest.raises(ValueError, match="hostile family is one of"):
        hostile.draw("friendly")


def solved(noise: float) -> tuple[Hostile, Network]:
    truth = teacher(3, 2, random_state=1)
    X, Y = sample(truth, 400, noise=noise, random_state=1)
    return Hostile(X, Y, 2, truth), truth


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_true_claim_is_true_and_every_change_of_the_truth_makes_it_false(noise: float) -> None:
    case, truth = solved(noise)
    recovery = attempt(case, True, 0)
    verdict = "statistical" if noise else "exact"
    assert recovery.certificate.verdict == verdict
    assert judge(case, recovery, True).true
    step = 0.3 if noise else 1e-4
    for name in ("W", "b", "A", "c"):
        moved = getattr(truth, name) + step * np.eye(*getattr(truth, name).shape) if name in "WA" else None
        moved = getattr(truth, name) + step if moved is None else moved
        judged = judge(replace(case, truth=replace_arrays(truth, **{name: moved})), recovery, True)
        assert judged.false, name
    assert judge(replace(case, truth=None), recovery, True).false
    reversed_unit = replace_arrays(truth, W=truth.W * [[-1.0], [1.0]])
    assert judge(replace(case, truth=reversed_unit), recovery, True).false


def test_error_bars_that_are_too_short_make_a_claim_false() -> None:
    case, _ = solved(0.02)
    recovery = attempt(case, True, 0)
    errors = recovery.certificate.standard_errors
    assert errors is not None
    short = ParameterArrays({name: 0.1 * value for name, value in errors.items()})
    certificate = replace(recovery.certificate, standard_errors=short)
    assert judge(case, replace(recovery, certificate=certificate), True).false


def test_a_unit_that_no_sample_shows_is_excluded_where_the_width_was_to_be_found() -> None:
    case, truth = solved(0.0)
    dead = Network(np.vstack([truth.W, [1.0, 0.0, 0.0]]), [*truth.b, -9.0], np.hstack([truth.A, [[1.0]]]), truth.c)
    case = replace(case, truth=dead)
    recovery = recover(case.X, case.Y, random_state=0)
    judged = judge(case, recovery, told=False)
    assert recovery.certificate.verdict == "exact"
    assert judged.excluded
    assert not judged.true
    assert judge(case, recovery, told=True).false
    # One that the samples show, faintly, is no excuse.
    faint = replace(case, truth=replace_arrays(dead, b=np.array([*truth.b, -2.0])))
    assert judge(faint, recovery, told=False).false


# Families whose runs take a tenth of a second; one or two of every kind of cause, with and without noise.
SAMPLE = (
    "three_at_120_degrees",
    "reversible_signs",
    "tiny_unit",
    "dead_unit",
    "rarely_off",
    "one_output_unit",
    "too_many_asked",
    "corner",
    "rare_column",
    "one_hot",
    "huge_offsets",
    "barely_enough",
    "half_repeated",
    "one_noisy_output",
    "small_output",
    "half_precision",
    "heteroscedastic",
    "one_wrong_row",
    "affine",
    "network_with_a_jump",
)


@pytest.mark.slow
def test_a_sample_of_the_torture_has_no_false_claim() -> None:
    """20 runs, every other one told the width. Of some seven right `statistical` claims one is counted as false with
    probability 1e-3."""
    false = []
    for place, name in enumerate(SAMPLE):
        told, seed = place % 2 == 0, 1_000 + place
        case = hostile.draw(name, seed)
        judged = judge(case, attempt(case, told, seed), told)
        if judged.false:
            false.append((name, told, seed, judged.verdict, judged.worst))
    assert not false
