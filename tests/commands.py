"""What tests of the command line share: the command, what it returned, and files for it to read."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import neurecover as nr

COMMAND = [sys.executable, "-m", "neurecover"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


def small_teacher(n_inputs: int = 3, n_hidden: int = 2) -> nr.Network:
    return nr.simulate.teacher(n_inputs, n_hidden, random_state=0)


def save_samples(path: str, *, noise: float = 0.0, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X, Y = nr.simulate.sample(small_teacher(), n, noise=noise, random_state=0)
    np.savez(path, X=X, Y=Y)
    return X, Y


def assert_refused(outcome: Outcome, *words: str) -> None:
    """Status 2, nothing but one line on standard error, with these words in it."""
    assert outcome.status == 2, outcome
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""
    for word in words:
        assert word in outcome.err
