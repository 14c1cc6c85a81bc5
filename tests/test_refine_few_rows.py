"""Networks with a unit that is on in fewer samples than it has weights."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.models import Network


def with_a_unit_of_few_rows(seed: int, d: int, k: int, p: int, rows: int) -> tuple[Network, np.ndarray]:
    """A network whose unit 0 is on in so many of 30·d·k samples, and the samples."""
    truth = nr.simulate.teacher(d, k, p, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((30 * d * k, d))
    z = np.sort(X @ truth.W[0])
    return Network(truth.W, np.append(-0.5 * (z[-rows] + z[-rows - 1]), truth.b[1:]), truth.A, truth.c), X


@pytest.mark.parametrize(("p", "rows"), [(1, 4), (1, 7), (3, 5)])
def test_the_other_units_are_found_and_vouched_for(p: int, rows: int) -> None:
    """Eight inputs, four units, ten seeds: every sample is answered and the weights of three units are exact."""
    vouched = 0
    for seed in range(10):
        truth, X = with_a_unit_of_few_rows(seed, 8, 4, p, rows)
        found = nr.recover(X, truth(X), 4, random_state=seed, time_budget=5)
        mask = found.certificate.determined
        if mask is None:
            continue
        vouched += 1
        assert found.certificate.verdict == "approximate"
        np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)
        assert mask["W"].all(axis=1).sum() == 3
        for w, a in zip(found.network.W[mask["W"].all(axis=1)], found.network.A.T[mask["W"].all(axis=1)]):
            same = np.abs(truth.W - w).max(axis=1) < 1e-8
            assert same.sum() == 1
            np.testing.assert_allclose(truth.A.T[same][0], a, atol=1e-8)
        assert any("whose kink too few samples show" in reason for reason in found.certificate.reasons)
    assert vouched >= 6


def test_one_sample_says_nothing_of_the_signs_of_others() -> None:
    """A unit on in one sample may be on everywhere else instead, with other units turned: nothing is vouched for."""
    for seed in range(6):
        truth, X = with_a_unit_of_few_rows(seed, 5, 3, 1, 1)
        found = nr.recover(X, truth(X), 3, random_state=seed, time_budget=2)
        mask = found.certificate.determined
        assert mask is None or not mask["W"].any() or np.all(np.abs(found.network(X) - truth(X)) < 1e-6)
        assert found.certificate.verdict not in ("exact", "statistical")
