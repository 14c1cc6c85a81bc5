"""No answer depends on the clock unless a time budget was given, and then the answer says that time ended it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import neurecover as nr
from neurecover.exceptions import OutOfTimeError
from neurecover.pipeline.options import ActivationOptions, PipelineOptions
from neurecover.solve import Deadline, afford, steps_within, time_limit

BUSY = 6  # processes that do nothing but keep two cores from the one that works
ENDED = "Time ended the search"


@contextmanager
def busy_machine() -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
        for process in spinning:
            process.wait()


@pytest.fixture
def slow_down(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes the clock ten thousand times as fast, which is a machine ten thousand times as slow."""
    true_clock = time.monotonic
    return lambda: monkeypatch.setattr(time, "monotonic", lambda: 1e4 * true_clock())


def one_layer() -> nr.Recovery:
    X, Y = nr.simulate.sample(nr.simulate.teacher(4, 3, random_state=0), 300, random_state=0)
    return nr.recover(X, Y, random_state=0)


def two_layers() -> nr.Recovery:
    rng, sizes = np.random.default_rng(1), (4, 4, 3, 3)
    truth = nr.DeepNetwork(
        [(rng.standard_normal((m, d)) * np.sqrt(2 / d), 0.3 * rng.standard_normal(m)) for d, m in pairwise(sizes)]
    )
    X = rng.standard_normal((500, 4))
    return nr.recover(X, truth(X), (4, 3), random_state=0)


def queries() -> nr.Recovery:
    return nr.extract(nr.oracle(nr.simulate.teacher(5, 6, random_state=0), 5), random_state=0)


def coarse_queries() -> nr.Recovery:
    truth = nr.simulate.teacher(4, 3, random_state=0)
    return nr.extract(nr.oracle(lambda X: np.round(truth(X), 3), 4), random_state=0)


def arrays_of(found: nr.Recovery) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = dict(found.network.to_arrays())
    errors = found.certificate.standard_errors
    return arrays if errors is None else arrays | {f"error {name}": error for name, error in errors.items()}


def checks_of(found: nr.Recovery) -> tuple[str, ...]:
    return tuple(check.sentence for check in found.certificate.checks)


RUNS: list[Callable[[], nr.Recovery]] = [one_layer, two_layers, queries, coarse_queries]


def test_the_same_bits_on_a_busy_and_on_a_slow_machine(slow_down: Callable[[], None]) -> None:
    usual = [run() for run in RUNS]
    with busy_machine():
        busy = [run() for run in RUNS]
    slow_down()
    slow = [run() for run in RUNS]
    assert all(second.seconds > 100.0 * first.seconds for first, second in zip(usual, slow))
    for run, first, second in [*zip(RUNS, usual, busy), *zip(RUNS, usual, slow)]:
        a, b = arrays_of(first), arrays_of(second)
        assert a.keys() == b.keys(), run.__name__
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"{run.__name__}: {name}")
        assert checks_of(first) == checks_of(second), run.__name__
        assert ENDED not in first.summary(), run.__name__


@pytest.mark.parametrize(("activation", "stage"), [("auto", "activation"), ("exp", "other activations")])
def test_another_activation_is_looked_for_as_long_on_a_slow_machine(
    activation: str, stage: str, slow_down: Callable[[], None]
) -> None:
    """With a tenth of the usual work."""
    usual = ActivationOptions()
    less = replace(usual, race_work=0.1 * usual.race_work, hint_work=0.1 * usual.hint_work)
    recover = partial(nr.recover, n_hidden=1, activation=activation, random_state=0)
    options = PipelineOptions(activation=less)
    X, Y = nr.simulate.sample(
        nr.simulate.teacher(3, 1, activation="tanh", random_state=0), 100, noise=0.1, random_state=0
    )
    ordinary = recover(X, Y, options=options)
    assert any(made.name == stage for made in ordinary.stages)
    slow_down()
    slow = recover(X, Y, options=options)
    assert slow.seconds > 100.0 * ordinary.seconds
    assert checks_of(ordinary) == checks_of(slow)
    assert [made.detail for made in ordinary.stages] == [made.detail for made in slow.stages]


def hard_samples() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((600, 6))
    return X, np.sin(3.0 * X[:, :1])


ENDED_BY_TIME: dict[str, Callable[[], nr.Recovery | nr.Estimate]] = {
    "one layer": lambda: nr.recover(*hard_samples(), 4, random_state=0, time_budget=0.0),
    "an algorithm": lambda: nr.recover(*hard_samples(), 4, method="hermite", random_state=0, time_budget=0.0),
    "activation": lambda: nr.recover(*hard_samples(), 4, activation="auto", random_state=0, time_budget=0.0),
    "two layers": lambda: nr.recover(*hard_samples(), (3, 2), random_state=0, time_budget=0.0),
    "estimate": lambda: nr.estimate(*hard_samples(), 4, random_state=0, time_budget=0.0),
    "lowest layer": lambda: nr.recover_lowest_layer(*hard_samples(), 3, random_state=0, time_budget=0.0),
    "queries": lambda: nr.extract(nr.oracle(nr.simulate.teacher(4, 3), 4), random_state=0, time_budget=0.0),
}


@pytest.mark.parametrize("which", ENDED_BY_TIME)
def test_an_answer_says_that_time_ended_it(which: str) -> None:
    found = ENDED_BY_TIME[which]()
    assert ENDED in " ".join(found.summary().split())
    if isinstance(found, nr.Recovery):
        assert any(check.name == "time" and not check.passed for check in found.certificate.checks)


def test_a_budget_that_suffices_is_not_mentioned() -> None:
    X, Y = nr.simulate.sample(nr.simulate.teacher(4, 3, random_state=0), 300, random_state=0)
    found = nr.recover(X, Y, 3, random_state=0, time_budget=600.0)
    assert found.certificate.verdict == "exact"
    assert ENDED not in found.summary()


def test_steps_are_counted_and_shared_with_who_listens() -> None:
    heard: list[float] = []
    deadline = Deadline(None, heard.append).within_steps(3)
    inner = deadline.within_steps(10)
    for step in range(3):
        assert not inner.passed
        inner.pulse(float(step))
    assert inner.passed
    assert deadline.passed
    assert heard == [0.0, 1.0, 2.0]
    assert not deadline.watch.ended  # the clock had no part in it
    assert inner.seconds_left == float("inf")


def test_a_share_of_no_limit_is_no_limit() -> None:
    never, later = Deadline(), Deadline.after(1e6)
    assert never.share(0.5) is never
    assert 0.49e6 < later.share(0.5).seconds_left < 0.51e6
    over = Deadline.after(0.0)
    assert over.share(0.5).passed
    assert over.watch.ended
    assert not later.watch.ended


def test_a_limit_tells_its_watch() -> None:
    over = Deadline.after(0.0)
    with pytest.raises(OutOfTimeError), time_limit(over.moment, over.watch):
        afford()
    assert over.watch.ended


def test_steps_within_a_number_of_multiplications() -> None:
    assert steps_within(1e11, 10_000, 300, dense=True) == 109  # 1e11 / (1e7 + 10⁴·300²)
    assert steps_within(1e11, 10_000, 3_000, dense=False) == 55
    assert steps_within(1.0, 10_000, 3_000, dense=False) == 1
