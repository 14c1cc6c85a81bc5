"""Units that are off for very few samples: found where the samples determine them, and never certified where not."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.models.signs import flips_beside_others


def _network_with_a_steady_unit(d: int, k: int, p: int, n: int, off: int, seed: int) -> tuple[nr.Network, np.ndarray]:
    """Unit rows; the first unit is off for exactly `off` of the n samples."""
    drawn = nr.simulate.teacher(d, k, p, kind="sphere", bias=0.4, random_state=seed)
    X = np.random.default_rng(seed + 5_000).standard_normal((n, d))
    z = np.sort(X @ drawn.W[0])
    b = drawn.b.copy()
    b[0] = -(z[off - 1] + z[off]) / 2 if off else 0.1 - z[0]
    return nr.Network(drawn.W, b, drawn.A, drawn.c), X


@pytest.mark.parametrize("seed", range(3))
def test_signs_are_found_beside_a_unit_that_is_always_on(seed: int) -> None:
    truth = nr.simulate.teacher(8, 6, 4, random_state=seed)
    flips = np.random.default_rng(seed).integers(0, 2, 5).astype(bool)
    linear = truth.A[:, :5] @ (flips[:, None] * truth.W[:5]) + np.outer(truth.A[:, 5], truth.W[5])
    found = flips_beside_others(truth.A[:, :5], truth.W[:5], linear, 1.0, 1e-9)
    assert found is not None
    np.testing.assert_array_equal(found[0], flips)
    np.testing.assert_allclose(found[1], np.outer(truth.A[:, 5], truth.W[5]), atol=1e-8)
    noise = np.random.default_rng(seed).standard_normal(linear.shape)
    assert flips_beside_others(truth.A[:, :5], truth.W[:5], linear + noise, 1.0, 1e-9) is None


@pytest.mark.parametrize("p", [2, 4])
def test_a_unit_that_is_never_off_is_one_of_those_asked_for(p: int) -> None:
    """Several outputs show that what signs leave of the affine part is of rank one."""
    for seed in range(8):
        truth, X = _network_with_a_steady_unit(8, 6, p, 600, off=0, seed=seed)
        found = nr.recover(X, truth(X), 6, random_state=seed)
        assert found.network.n_hidden == 6
        np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)


@pytest.mark.parametrize("off", [2, 3, 5])
def test_a_unit_off_for_fewer_samples_than_weights_is_recovered(off: int) -> None:
    # 10 seeds each were tried: 9, 9 and 10 of 10. At this size other descents find most of them as well.
    solved = 0
    for seed in range(6):
        truth, X = _network_with_a_steady_unit(6, 5, 1, 300, off, seed)
        recovery = nr.recover(X, truth(X), 5, random_state=seed)
        errors = nr.compare(recovery.network, truth)
        right = errors.weight_error < 1e-8 and not any(errors.unmatched)
        assert right or recovery.certificate.verdict != "exact"
        solved += right and recovery.certificate.verdict == "exact"
    assert solved >= 5


@pytest.mark.parametrize("seed", [27, 31])
def test_a_steady_unit_beside_many_others_is_recovered(seed: int) -> None:
    # Off for 7 and 5 of 600 samples: what they leave open costs nothing in the likelihood of signs.
    truth = nr.simulate.teacher(10, 10, kind="sphere", bias=0.7, random_state=seed)
    X, Y = nr.simulate.sample(truth, 600, random_state=seed)
    assert 2 <= np.count_nonzero(X @ truth.W.T + truth.b <= 0, axis=0).min() < 11
    recovery = nr.recover(X, Y, 10, random_state=seed)
    assert recovery.certificate.verdict == "exact"
    assert nr.compare(recovery.network, truth).weight_error < 1e-10


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("told", [True, False])
def test_a_unit_off_for_at_most_one_sample_is_never_certified(off: int, told: bool) -> None:
    for seed in range(4):
        truth, X = _network_with_a_steady_unit(6, 5, 1, 300, off, seed)
        recovery = nr.recover(X, truth(X), 5 if told else None, random_state=seed)
        assert recovery.certificate.verdict == "approximate"


def test_with_noise_a_unit_off_for_few_samples_is_never_certified() -> None:
    for seed in range(4):
        truth, X = _network_with_a_steady_unit(4, 3, 1, 600, off=3, seed=seed)
        Y = truth(X) + 0.01 * np.random.default_rng(seed).standard_normal((600, 1))
        certificate = nr.recover(X, Y, 3, random_state=seed).certificate
        assert certificate.verdict == "approximate"
        assert any("too few samples on one side of their kink" in reason for reason in certificate.reasons)


def test_a_unit_that_is_always_off_is_owned_up_to_when_the_width_was_found() -> None:
    truth, X = _network_with_a_steady_unit(4, 3, 1, 200, off=0, seed=0)
    dead = nr.Network(np.vstack([truth.W[1:], -truth.W[:1]]), np.append(truth.b[1:], -truth.b[0]), truth.A, truth.c)
    recovery = nr.recover(X, dead(X), random_state=0)
    assert recovery.network.n_hidden == 2
    assert recovery.certificate.verdict == "exact"
    assert any("samples on one side of its kink" in reason for reason in recovery.certificate.reasons)
