"""Send rows to a model in calls: in parallel, at a limited rate, with limits of queries and time, retrying failures.

Call i starts at t_i = max(now, t_{i−1} + rows/rate), or at the end of a pause that the model asked for.
A call with a failure that may be temporary is repeated after 0.5, 1, 2, … seconds, or when the model allows it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np

from neurecover.data.options import CallOptions
from neurecover.data.source import check_real
from neurecover.exceptions import OutOfTimeError, RefusedError, UnsolvableError
from neurecover.solve import Deadline, afford, limit

OPTIONS = CallOptions()
GIVEN_UP = "The queries were stopped."

Arrived = Callable[[np.ndarray, np.ndarray], object]
_listener: ContextVar[Callable[[], object] | None] = ContextVar("listener", default=None)


class BusyError(OSError):
    """The model cannot answer now. It asks to wait `after` seconds; `limits` says that it limits the rate of calls."""

    def __init__(self, message: str, after: float = 0.0, limits: bool = False) -> None:
        super().__init__(message)
        self.after, self.limits = after, limits


@contextmanager
def listening(listener: Callable[[], object]) -> Iterator[None]:
    """Within the context, call `listener` after every call to a model, and twice a second while waiting for one."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


class Calls:
    """`calls(X)` returns the model's answers (n, p). `answered` counts the rows, `rate` the rows per second.

    Parameters
    ----------
    model : X (n, d) → Y.
    batch : rows per call; None for all at once, or for calls of about a second if time is limited.
    in_flight : number of calls at the same time.
    per_second : the largest number of rows per second, None for no limit.
    most : the largest number of rows in total; then RefusedError is raised.
    retries : how often a call is repeated after an OSError or a TimeoutError.
    options : how long to wait for the model; None for the defaults.
    """

    def __init__(
        self,
        model: Callable[[np.ndarray], Any],
        *,
        batch: int | None = None,
        in_flight: int = 1,
        per_second: float | None = None,
        most: int | None = None,
        retries: int = 2,
        options: CallOptions | None = None,
    ) -> None:
        for name, value, least in (("batch", batch, 1), ("in_flight", in_flight, 1), ("retries", retries, 0)):
            if value is not None and (not isinstance(value, int | np.integer) or value < least):
                raise ValueError(f"{name} needs a whole number from {least}. Got {value!r} instead.")
        if per_second is not None and not per_second > 0.0:
            raise ValueError(f"queries_per_second needs a number above 0. Got {per_second!r} instead.")
        if most is not None and most < 1:
            raise ValueError(f"max_queries needs a whole number from 1. Got {most!r} instead.")
        self.batch, self.most, self.answered, self.failures = batch, most, 0, 0
        self._model, self._in_flight, self._per_second, self._retries = model, in_flight, per_second, retries
        self._options = options or OPTIONS
        self._turn = self._hold = 0.0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._pace = np.inf  # seconds per row of the fastest call
        self._began: float | None = None

    @property
    def left(self) -> int | None:
        """The number of rows that may still be asked; None if there is no limit."""
        return None if self.most is None else max(self.most - self.answered, 0)

    @property
    def rate(self) -> float:
        """Rows answered per second since the first call."""
        return 0.0 if self._began is None else self.answered / max(time.monotonic() - self._began, 1e-9)

    @property
    def affordable(self) -> float:
        """The number of rows that fit in the query limit and, at the rate so far, in the time limit; inf without."""
        seconds = limit().seconds_left
        in_time = np.inf if np.isinf(seconds) else seconds * self.rate
        return min(in_time, np.inf if self.left is None else self.left)

    def __call__(self, X: np.ndarray, arrived: Arrived = lambda X, Y: None) -> np.ndarray:
        """Return the answers; `arrived` receives the rows and answers of every call at once, one call at a time."""
        if self.left is not None and len(X) > self.left:
            raise RefusedError(f"The limit of {self.most} queries is used up: give a larger max_queries.")
        self._began = self._began or time.monotonic()
        self._stop.clear()
        parts: list[np.ndarray] = []
        if self._in_flight == 1:
            while not parts or sum(map(len, parts)) < len(X):
                start = sum(map(len, parts))
                parts.append(self._one(X[start : start + self._rows(len(X))], arrived))
                _tell()
        else:
            rows = self._rows(-(-len(X) // self._in_flight))
            parts = self._several([X[i : i + rows] for i in range(0, len(X), rows)] or [X], arrived)
        if len({part.shape[1] for part in parts}) > 1:
            raise ValueError("The model answers with different numbers of outputs from call to call.")
        return np.concatenate(parts)

    def _rows(self, wanted: int) -> int:
        """Return the number of rows of the next call."""
        if self.batch is not None:
            return self.batch
        if limit().moment is None or np.isinf(self._pace):
            return max(wanted, 1)
        return max(1, min(wanted, int(self._options.together / max(self._pace, 1e-9))))

    def _several(self, parts: list[np.ndarray], arrived: Arrived) -> list[np.ndarray]:
        """Return the answers to the parts, asking `in_flight` at a time; the first failure stops all further calls."""
        answers: list[np.ndarray | None] = [None] * len(parts)
        pool = ThreadPoolExecutor(min(self._in_flight, len(parts)))
        number: dict[Future[np.ndarray], int] = {}
        try:
            for i, part in enumerate(parts):
                number[pool.submit(copy_context().run, self._one, part, arrived)] = i
            waiting = set(number)
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    answers[number[future]] = future.result()
                _tell()
        except BaseException:
            # Calls under way may have been paid for: they get some time, and their answers are kept.
            self._stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            wait(number, timeout=self._options.grace)
            raise
        pool.shutdown()
        return [answer for answer in answers if answer is not None]

    def _one(self, X: np.ndarray, arrived: Arrived) -> np.ndarray:
        """Make one call and return its answers; repeat the call after failures that may be temporary."""
        failed, held = 0, 0
        while True:
            self._wait_for_turn(len(X))
            afford()
            began = time.monotonic()
            try:
                # The model gets a copy: a model that works in place must not change the recorded inputs.
                answer = self._model(X.copy())
                break
            except (OSError, TimeoutError) as error:
                limits = isinstance(error, BusyError) and error.limits
                failed, held, self.failures = failed + (not limits), held + limits, self.failures + 1
                # A model that limits its rate will answer slower calls, so it gets more tries than a broken one.
                if failed > self._retries or held > 10 * (self._retries + 1):
                    raise
                self._back_off(error, failed + held)
            except (UnsolvableError, ValueError) as error:
                raise self._refusal(error, X) from error
        Y = _checked(answer, X)
        with self._lock:
            self._pace = min(self._pace, (time.monotonic() - began) / max(len(X), 1))
            self.answered += len(X)
            arrived(X, Y)
        return Y

    def _refusal(self, error: ValueError, X: np.ndarray) -> ValueError:
        """Return the error to raise for a query that the model rejects."""
        if isinstance(error, OutOfTimeError):
            return error
        if isinstance(error, UnsolvableError):
            return RefusedError(str(error))
        if not self.answered:
            return ValueError(f"The model fails on an array of shape {X.shape}, a query per row: {error}")
        reach = float(np.abs(X).max(initial=0.0))
        return RefusedError(
            f"The model refused queries of size up to {reach:.3g}: {str(error).rstrip('.')}. Ask for samples "
            "within what it takes: recover(oracle, n_samples=...)."
        )

    def _wait_for_turn(self, rows: int) -> None:
        """Sleep until the rate allows another call and any pause is over."""
        with self._lock:
            now = time.monotonic()
            mine = max(now, self._turn, self._hold)
            if self._per_second is not None:
                self._turn = mine + rows / self._per_second
        self._sleep(mine - now)

    def _back_off(self, error: OSError, tries: int) -> None:
        """Sleep before the next try; if the model limits its rate, all calls pause."""
        own = min(self._options.pause * 2.0 ** (tries - 1), self._options.longest)
        asked = error.after if isinstance(error, BusyError) else 0.0
        if asked > self._options.patience:
            raise OSError(f"{str(error).rstrip('.')}: it asks to wait {asked:.0f} s. Run again later.") from None
        if isinstance(error, BusyError) and error.limits:
            with self._lock:
                self._hold = max(self._hold, time.monotonic() + (asked or own))
        else:
            self._sleep(max(own, asked))

    def _sleep(self, seconds: float) -> None:
        """Sleep, but wake at the time limit or when the queries are stopped."""
        deadline: Deadline = limit()
        if seconds > deadline.seconds_left:
            self._stop.wait(deadline.seconds_left)
            afford()
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0.0:
            if self._stop.wait(min(left, 0.5)):
                raise OutOfTimeError(GIVEN_UP)
            if self._in_flight == 1:
                _tell()
        if self._stop.is_set():
            raise OutOfTimeError(GIVEN_UP)


def _checked(Y: Any, X: np.ndarray) -> np.ndarray:
    """Check the answers and return them as (n, p)."""
    if Y is None:
        raise ValueError("The model returned None. Expected an array of shape (n,) or (n, p).")
    Y = np.asarray(Y)
    check_real(Y.dtype, "the model's answer", labels=True)
    if Y.ndim not in (1, 2) or len(Y) != len(X) or Y.shape[1:] == (0,):
        raise ValueError(
            f"The model was asked {len(X)} rows, to be answered with shape ({len(X)},) or ({len(X)}, p). "
            f"Got shape {Y.shape} instead."
        )
    return Y.reshape(len(X), -1)


def _tell() -> None:
    listener = _listener.get()
    if listener is not None:
        listener()
