"""A black box that is asked: it counts the questions, keeps to a budget and knows how its answers are rounded.

An answer is y = f(x) + e with |e| about ρ·size, where `size` is the size of the numbers that were added up to give y.
The resolution ρ is measured, not assumed. At points x + τ_i δ, i = 1 … 6, of a segment that is short enough to lie
inside one linear region f is affine in τ, so what an affine fit leaves over is e: about 1e-16 for float64 arithmetic,
6e-8 for float32, and the grid where answers are rounded to digits. (Even steps might fall in with the grid.) A segment
on which every answer is the same tells nothing about a coarse grid, and a longer one is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from neurecover.certificate.options import QueryOptions
from neurecover.data.frames import Frame
from neurecover.exceptions import UnsolvableError
from neurecover.queries.limits import EVERYWHERE, Limits

_LENGTHS = (1e-6, 1e-4, 1e-2, 1.0, 100.0)
_STEPS = np.array([0.0, 0.71, 1.87, 3.14, 3.9, 5.0])
_PLACES, _SPARE = 6, 6
# How far towards the limits of the box segments begin, so that there is room for them.
_MIDST = 0.5
_COARSE = QueryOptions().coarse
# The scale of a box whose answers are all zero.
_NOTHING = 1e-290
_FINEST, _FINEST_SINGLE, _FINEST_HALF = 2.0**-52, 2.0**-24, 2.0**-11
# How far out a box in half precision, whose largest number is 65504, is asked.
_HALF = 6.0
# Two answers to one question that differ by less are the rounding of sums added up in another order.
_JITTER = 1e-13


@dataclass(frozen=True)
class _Probe:
    """ρ, the size of the answers to x ~ N(0, I), and how much they differ from each other."""

    resolution: float
    scale: float
    growth: float


class Box:
    """`box(X)` is the answers (n, p) in float64 to the questions X (n, d).

    `ask` is put at most `batch` rows at a time. `budget` is how many rows it may be asked in all. With a `frame` it is
    asked x = mean + z·spread for questions z, and `single` says that it sees them in single precision, which is
    also found out. `limits` say where it may be asked; who asks keeps to them.
    """

    def __init__(
        self,
        ask: Callable[[np.ndarray], ArrayLike],
        n_inputs: int,
        *,
        batch: int | None = None,
        budget: int | None = None,
        frame: Frame | None = None,
        single: bool = False,
        limits: Limits = EVERYWHERE,
    ) -> None:
        for name, value in (("n_inputs", n_inputs), ("batch", batch), ("budget", budget)):
            if value is not None and value < 1:
                raise ValueError(f"expected {name} to be at least 1. Got {value} instead.")
        self.n_inputs = n_inputs
        self.limits = limits
        self.budget = budget
        self.whitening = None if frame is None else frame.whitening
        self._frame, self._single = frame, single
        self.queries = 0
        self._ask = ask
        self._batch = batch
        self._n_outputs: int | None = None
        self._probe: _Probe | None = None
        self._keep = 0
        self._kept: deque[tuple[np.ndarray, np.ndarray]] = deque()

    def __call__(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(f"expected questions of shape (n, {self.n_inputs}). Got shape {X.shape} instead.")
        if self.budget is not None and self.queries + len(X) > self.budget:
            raise UnsolvableError(f"The budget of {self.budget} queries is used up: give a larger query_budget.")
        rows = self._batch or max(len(X), 1)
        answers = [self._answer(X[start : start + rows]) for start in range(0, len(X), rows)]
        Y = np.concatenate(answers) if answers else np.zeros((0, self.n_outputs))
        self._remember(X, Y)
        return Y

    def inputs(self, Z: np.ndarray) -> np.ndarray:
        """The inputs x that questions z are put as."""
        X = Z if self._frame is None else self._frame.inputs(Z)
        return X.astype(np.float32).astype(float) if self._single else X

    def seen(self, Z: np.ndarray) -> np.ndarray:
        """The questions that are put in place of z, where the inputs are rounded and x is not z itself."""
        return Z if self.whitening is None or not self._single else self.whitening.inputs(self.inputs(Z))

    @property
    def n_outputs(self) -> int:
        """The number p of answers to one question, found by asking once."""
        if self._n_outputs is None:
            self(np.zeros((1, self.n_inputs)))
        assert self._n_outputs is not None
        return self._n_outputs

    @property
    def resolution(self) -> float:
        """The rounding ρ of an answer, relative to the size of the answers near the origin."""
        return self._measured().resolution

    @property
    def coarse(self) -> bool:
        """Whether answers have clearly fewer digits than float64 arithmetic gives."""
        return self.resolution > _COARSE

    @property
    def scale(self) -> float:
        """The size of the answers to questions x ~ N(0, I)."""
        return self._measured().scale

    @property
    def growth(self) -> float:
        """How much the answers to questions x ~ N(0, I) differ from each other: what they grow by with ‖x‖/√d."""
        return self._measured().growth

    def noise(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """The absolute rounding (n,) to expect of the answers Y (n, p) to X (n, d).

        Terms grow with ‖x‖ even where they cancel, by what answers to x ~ N(0, I) differ from each other. At the origin
        they are as large as the biases.
        """
        terms = self.scale + self.growth * np.linalg.norm(X, axis=1) / np.sqrt(self.n_inputs)
        return self.resolution * np.maximum(np.abs(Y).max(axis=1, initial=0.0), terms)

    def keep(self, rows: int) -> None:
        """Hold on to the latest answers, up to that many rows, from now on; 0 forgets them all."""
        if rows < 0:
            raise ValueError(f"expected the number of rows to keep to be at least 0. Got {rows} instead.")
        self._keep = rows
        self._forget()

    def kept(self) -> tuple[np.ndarray, np.ndarray]:
        """The questions (n, d) and answers (n, p) held on to."""
        if not self._kept:
            return np.zeros((0, self.n_inputs)), np.zeros((0, self.n_outputs))
        return np.concatenate([X for X, _ in self._kept]), np.concatenate([Y for _, Y in self._kept])

    def _remember(self, X: np.ndarray, Y: np.ndarray) -> None:
        if self._keep and len(X):
            self._kept.append((X[-self._keep :].copy(), Y[-self._keep :]))
            self._forget()

    def _forget(self) -> None:
        excess = sum(len(X) for X, _ in self._kept) - self._keep
        while excess > 0:
            X, Y = self._kept.popleft()
            if len(X) > excess:
                self._kept.appendleft((X[excess:], Y[excess:]))
            excess -= len(X)

    def _answer(self, X: np.ndarray) -> np.ndarray:
        # The box receives its own copy: one that works in place must not change the questions.
        Y = np.asarray(self._ask(self.inputs(X).copy()), dtype=float)
        self.queries += len(X)
        if Y.ndim not in (1, 2) or len(Y) != len(X) or Y.shape[1:] == (0,):
            raise ValueError(
                f"expected {len(X)} answers of shape ({len(X)},) or ({len(X)}, p). Got shape {Y.shape} instead."
            )
        Y = Y.reshape(len(X), -1)
        if self._n_outputs not in (None, Y.shape[1]):
            raise ValueError(f"expected {self._n_outputs} outputs, as at first. Got {Y.shape[1]} instead.")
        if not np.isfinite(Y).all():
            raise UnsolvableError(
                "The box answered with something that is not a finite number: tell the range it accepts as "
                "bounds=(low, high), or where its inputs lie, with like=X."
            )
        self._n_outputs = Y.shape[1]
        return Y

    def _measured(self) -> _Probe:
        if self._probe is None:
            single = self._single
            self._probe = self._probed()
            if self._single and not single and self._frame is not None:
                # Far from zero the inputs are rounded by more than the answers, which the answers show from now on.
                self._probe = self._probed()
        return self._probe

    def _probed(self) -> _Probe:
        rng = np.random.default_rng(0)
        start, direction = rng.standard_normal((2, 2, 1, self.n_inputs))
        more, ways = rng.standard_normal((2, _SPARE, 1, self.n_inputs))
        # Answers at a few other places too: at one of them alone the terms may happen to cancel.
        others = rng.standard_normal((_PLACES, self.n_inputs))
        others = self.limits.drawn_in(others)
        start, more = self.limits.drawn_in(start, _MIDST), self.limits.drawn_in(more, _MIDST)
        places = self(others)
        scale = max(_rms(places), _NOTHING)
        growth = max(_rms(places - places.mean(axis=0)), 1e-6 * scale)
        left = np.zeros(0)
        # Where the first segments say nothing they may lie where all units are off, so that others are tried as short.
        elsewhere = (others[:, None], np.resize(direction, (_PLACES, 1, self.n_inputs)), _LENGTHS[0])
        tries = [(start, direction, length) for length in _LENGTHS]
        for number, (begin, along, length) in enumerate([tries[0], elsewhere, *tries[1:]]):
            segments = self._segments(begin, along, length)
            Y = np.stack([self(segment) for segment in segments])
            if number == 0:
                self._check_steady(segments[0], Y[0])
            scale = max(scale, _rms(Y))
            varies = np.ptp(Y, axis=1).max(axis=1) > 0
            if not varies.any():
                # A box that is flat here may not be elsewhere, and there a longer segment would cross its kinks.
                Y = np.stack([self(segment) for segment in self._segments(more, ways, length)])
                varies = np.ptp(Y, axis=1).max(axis=1) > 0
            if varies.any():
                left = np.array([_left_by_affine(y) for y in Y[varies]])
                break
        if not left.size:
            return _Probe(_FINEST, scale, growth)
        # A kink of f on one of the segments leaves far more over than the rounding on the other.
        residual = left.max() if left.max() < 100.0 * left.min() else left.min()
        in_single, in_half = np.array_equal(Y, Y.astype(np.float32)), np.array_equal(Y, _in_half(Y))
        resolution = max(float(residual) / scale, _FINEST_SINGLE if in_single else _FINEST)
        in_half = in_half and resolution > _COARSE
        resolution = max(resolution, _FINEST_HALF) if in_half else resolution
        # A box that answers in single precision is taken to see its questions in it too.
        self._single = self._single or (in_single and resolution > _COARSE)
        if in_half and not self.limits:
            # Far out answers in half precision are infinite.
            self.limits = Limits.cube(self.n_inputs, _HALF)
        return _Probe(resolution, scale, growth)

    def _segments(self, start: np.ndarray, along: np.ndarray, length: float) -> np.ndarray:
        return start + length * _STEPS[:, None] * self.limits.shorter(start, along, length * _STEPS[-1])

    def _check_steady(self, X: np.ndarray, Y: np.ndarray) -> None:
        # The same rows in the same batch, because a batch of another size may be added up in another order.
        again = self(X)
        apart = np.abs(again - Y).max(axis=1) > _JITTER * max(float(np.abs(Y).max()), 1e-300)
        # Threads may add up one answer in another order now and then, but not most of them.
        if np.count_nonzero(apart) > len(X) // 2:
            raise UnsolvableError(
                "The box answers the same question differently when it is asked again. A network behind noise is found "
                "from samples: neurecover.recover(oracle, n_samples=2000)."
            )


def _in_half(Y: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return Y.astype(np.float16)


def _rms(Y: np.ndarray) -> float:
    return float(np.sqrt(np.mean(Y**2)))


def _left_by_affine(y: np.ndarray) -> float:
    """The largest residual of the best affine function of τ through y (6, p)."""
    basis = np.linalg.qr(np.column_stack([np.ones(len(y)), _STEPS - _STEPS.mean()]))[0]
    centred = y - y[0]
    return float(np.abs(centred - basis @ (basis.T @ centred)).max())
