"""How late an answer comes that was asked for within two seconds, for every method and kind of samples.

An answer may be two seconds late, or a fifth of its time budget if that is more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from neurecover.algorithms import methods
from neurecover.experiment import Experiment, Row, Track
from neurecover.pipeline import recover
from neurecover.simulate import sample, teacher

BUDGET = 2.0  # seconds, a fraction of what the larger problems take
SEED = 900  # no setting was chosen on it
SIZES = (  # inputs, units, outputs, samples
    (50, 50, 50, 100_000),
    (50, 50, 50, 2_000),
    (50, 50, 10, 5_000),
    (50, 50, 1, 100_000),
    (20, 20, 1, 100_000),
)
NOISES = (0.0, 0.1)


def _kinds(n: int, k: int) -> dict[str, dict[str, Any]]:
    """Return what `recover` is told, by name."""
    weight = np.random.default_rng(SEED).uniform(1.0, 2.0, n)
    return {
        "units given": {"n_hidden": k},
        "units not given": {"n_hidden": None},
        "tanh": {"n_hidden": k, "activation": "tanh"},
        "two hidden layers": {"n_hidden": (k, k)},
        "weighted samples": {"n_hidden": k, "sample_weight": weight},
    }


def _run(track: Track) -> Iterator[Row]:
    """Find the latest answer of every size."""
    for d, k, p, n in SIZES:
        late: dict[str, float] = {}
        for noise in track(NOISES, f"{d} inputs, {k} units, {p} outputs, {n} samples"):
            X, Y = sample(teacher(d, k, p, bias=0.5, random_state=SEED), n, noise=noise, random_state=SEED)
            for name, told in _kinds(n, k).items():
                late[f"{name}, noise {noise}"] = _late(X, Y, **told)
            single = X.astype(np.float32), Y.astype(np.float32)
            late[f"single precision, noise {noise}"] = _late(*single, n_hidden=k)
            X, Y = sample(teacher(d, k, p, bias=0.0, random_state=SEED), n, noise=noise, random_state=SEED)
            for method in (algorithm.name for algorithm in methods()):
                late[f"{method}, noise {noise}"] = _late(X, Y, n_hidden=k, method=method, bias=False)
        worst = max(late, key=lambda name: late[name])
        yield {
            **dict(zip(("inputs", "units", "outputs", "samples"), (d, k, p, n))),
            "answers": len(late),
            "seconds late at the most": round(late[worst], 2),
            "allowed": max(2.0, 0.2 * BUDGET),
            "latest": worst,
        }


def _late(X: np.ndarray, Y: np.ndarray, **told: Any) -> float:
    began = time.monotonic()
    with suppress(ValueError):  # a method that is not for such samples says so
        recover(X, Y, random_state=SEED, time_budget=BUDGET, **told)
    return time.monotonic() - began - BUDGET


EXPERIMENTS = (Experiment("lateness", "How late an answer comes after a time budget of two seconds", _run),)
