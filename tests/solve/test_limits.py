"""No pass over the samples outlasts its limit, and an answer that could not be tested in time says so."""

import time
from typing import Any

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import OutOfTimeError
from neurecover.solve import afford, time_limit
from neurecover.statistics import Moments


def source(n: int = 1_000) -> ArraySource:
    rng = np.random.default_rng(0)
    return ArraySource(rng.standard_normal((n, 3)), rng.standard_normal((n, 1)))


def test_a_pass_ends_with_the_block_in_which_the_limit_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(time, "monotonic", lambda: float(len(seen)))  # a block a second

    with pytest.raises(OutOfTimeError), time_limit(2.5):
        reduce(source(), Moments(3, 1), lambda done, total: seen.append(done), block_bytes=3_200)
    assert len(seen) == 3


def test_limits_are_nested_and_end_with_their_block() -> None:
    now = time.monotonic()
    with time_limit(now + 1e6):
        with pytest.raises(OutOfTimeError), time_limit(now), time_limit(now + 1e6):
            afford()
        afford(1e9)
        with pytest.raises(OutOfTimeError):
            afford(1e20)
    afford(1e20)


def test_what_was_not_tested_in_time_is_not_vouched_for() -> None:
    """Were the certificate's passes made all the same, the verdict would be exact."""
    from neurecover.pipeline.options import PipelineOptions

    X, Y = nr.simulate.sample(nr.simulate.teacher(4, 3, random_state=0), 400, random_state=0)
    assert nr.recover(X, Y, 3, random_state=0, time_budget=100.0).certificate.verdict == "exact"
    none = PipelineOptions(late=-1e9, late_share=-1e9)
    recovery = nr.recover(X, Y, 3, random_state=0, time_budget=100.0, options=none)
    assert recovery.certificate.verdict == "approximate"
    assert "time_budget" in recovery.certificate.reasons[0]
    assert recovery.certificate.standard_errors is None


@pytest.mark.parametrize(
    "told",
    [
        {"n_hidden": (50, 50)},
        {"n_hidden": 50, "method": "hermite"},
        {"n_hidden": 50, "method": "exact_tensor", "bias": False},
        {"n_hidden": 50, "method": "least_squares"},
    ],
    ids=str,
)
def test_every_search_looks_at_the_clock(told: dict[str, Any]) -> None:
    """Untimed, each of these takes from forty seconds to minutes; allowed are two seconds after the end."""
    X, Y = nr.simulate.sample(nr.simulate.teacher(50, 50, 50, random_state=0), 2_000, noise=0.1, random_state=0)
    began = time.process_time()  # of this process alone: on a busy machine it has even less done by its deadline
    nr.recover(X, Y, random_state=0, time_budget=0.5, **told)
    assert time.process_time() - began < 10.0  # seconds on an idle machine: 2.5
