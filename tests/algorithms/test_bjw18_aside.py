"""What is set aside as corrupted: errors anywhere, never a unit."""

import numpy as np
import pytest

from neurecover.algorithms.bjw18.aside import cut_off, place_p_value, set_aside
from neurecover.data import ArraySource, prepare_samples
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate, recover
from neurecover.results import Estimate
from neurecover.simulate import SparseGross, sample, teacher


def lone_unit(seed: int, bias: float) -> Network:
    """Three units of which the first writes to one of four outputs alone."""
    net = teacher(3, 3, 4, bias=0.0, random_state=seed)
    A, b = net.A.copy(), np.array([bias, 0.0, 0.0])
    A[:, 0] = [1.0, 0.0, 0.0, 0.0]
    return Network(net.W, b, A)


def prepared_with(X: np.ndarray, Y: np.ndarray, truth: Network):  # type: ignore[no-untyped-def]
    """The samples, whitened about zero, and the network without its first unit as an estimate in their coordinates."""
    given = prepare_samples(ArraySource(X, Y), False, np.random.default_rng(0))
    rest = truth.take(np.arange(1, truth.n_hidden))
    # w·x = (M⁻¹ w)·z for x = Mᵀ⁻¹ z
    W = np.linalg.solve(given.whitening.matrix, rest.W.T).T
    return given, Estimate(Network(W, rest.b, rest.A))


@pytest.mark.parametrize("bias", [0.0, -0.8, -1.5, -2.2])
def test_a_unit_that_writes_to_one_output_is_not_set_aside(bias: float) -> None:
    """On for a half down to a seventieth of the samples; ten networks each."""
    for seed in range(10):
        truth = lone_unit(seed, bias)
        X, Y = sample(truth, 600, random_state=seed)
        given, found = prepared_with(X, Y, truth)
        after, (check,) = set_aside(given, found)
        assert after is given
        assert not check.passed, check.sentence


def test_errors_anywhere_are_set_aside_and_the_other_outputs_stay_as_they_are() -> None:
    """One in a thousand of the tests is wrong by chance: of twenty networks at most one."""
    kept = 0
    for seed in range(20):
        truth = lone_unit(seed, -1.0)
        rest = truth.take([1, 2])
        X, Y = sample(rest, 800, noise=SparseGross(0.05, 3.0), random_state=seed)
        given, found = prepared_with(X, Y, truth)
        after, (check,) = set_aside(given, found)
        kept += check.passed
        if not check.passed:
            continue
        (Z, before), (_, held) = given.holdout.collect(), after.holdout.collect()
        wrong = np.abs(before - found.network(Z)) > 1e-5
        assert 0.02 < wrong.mean() < 0.1
        np.testing.assert_array_equal(held[~wrong], before[~wrong])
        assert f"{np.count_nonzero(~wrong):,} of {wrong.size:,} held-out outputs" in check.sentence
        for part in (after.holdout, after.train):
            Z, repaired = part.collect()
            np.testing.assert_allclose(repaired, found.network(Z), atol=1e-5)
    assert kept >= 19


def test_every_row_has_a_wrong_output() -> None:
    """Sixty outputs of which a tenth is wrong: 0.9⁶⁰ = 0.2 % of the rows are clean, and none of those held out."""
    for seed in range(3):
        wide = teacher(6, 4, 60, bias=0.0, random_state=seed)
        X, Y = sample(wide, 900, noise=SparseGross(0.1, 3.0), random_state=seed)
        r = recover(X, Y, 4, method="sparse_noise", bias=False, random_state=seed)
        assert r.certificate.verdict == "exact", r.certificate.reasons
        assert compare(r.network, wide).weight_error < 1e-9


def test_the_verdicts_with_and_without_a_lone_unit() -> None:
    for seed in range(3):
        truth = lone_unit(seed, -1.0)
        X, Y = sample(truth, 500, random_state=seed)
        r = recover(X, Y, method="sparse_noise", random_state=seed)
        if r.certificate.verdict == "exact":
            assert compare(r.network, truth).unmatched == ((), ())
        wide = teacher(4, 2, 20, bias=0.0, random_state=seed)
        X, Y = sample(wide, 800, noise=SparseGross(0.03, 3.0), random_state=seed)
        r = recover(X, Y, 2, method="sparse_noise", bias=False, random_state=seed)
        assert r.certificate.verdict == "exact", r.certificate.reasons
        assert compare(r.network, wide).weight_error < 1e-9
        assert any("held-out outputs that are not" in reason for reason in r.certificate.reasons)


def test_the_p_value_of_places_is_uniform_for_random_ones() -> None:
    """400 choices: a tenth of the p-values below 0.1, give or take four standard errors."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000, 3))
    values = [place_p_value(X, rng.permutation(1_000) < 60) for _ in range(400)]
    assert abs(np.mean(np.array(values) < 0.1) - 0.1) < 4 * np.sqrt(0.09 / 400)
    assert place_p_value(X, X[:, 0] > 1.5) < 1e-6
    assert place_p_value(X, np.abs(X[:, 0]) > 1.9) < 1e-6


def test_rows_that_a_plane_cuts_off() -> None:
    X = np.random.default_rng(1).standard_normal((300, 2))
    assert cut_off(X, X @ [0.6, 0.8] > 2.0)
    assert not cut_off(X, np.arange(300) == np.argmin(np.linalg.norm(X, axis=1)))


def test_a_row_that_was_judged_by_its_wrong_entries_does_not_spoil_the_others() -> None:
    """Of seeds on which the separation takes a row or two, 98 % and more of their entries, for corrupted."""
    for seed in (9509, 9510, 9511):
        wide = teacher(7, 4, 60, bias=0.0, random_state=seed)
        X, Y = sample(wide, 1_200, noise=SparseGross(0.1, 5.0), random_state=seed)
        e = estimate(X, Y, 4, method="sparse_noise", bias=False, random_state=seed)
        assert e.network is not None, e.notes
        assert compare(e.network, wide).weight_error < 1e-9
