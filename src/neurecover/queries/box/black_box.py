"""A black-box oracle that counts its queries, keeps to a budget and knows the rounding of its answers.

An answer is y = f(x) + e with |e| about ρ·size, where `size` is the size of the terms that were summed to give y. The
resolution ρ is measured: `resolution`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from neurecover.data.frames import Frame
from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.limits import EVERYWHERE, Limits
from neurecover.queries.options import QueryOptions

# Places of the queries on a segment: uneven, so that they do not fall in with a grid of digits.
PLACES = np.array([0.0, 0.71, 1.87, 3.14, 3.9, 5.0])
# The rounding of one number in double, single and half precision.
DOUBLE, SINGLE, HALF = 2.0**-52, 2.0**-24, 2.0**-11


@dataclass(frozen=True)
class _Probe:
    """ρ, the size of the answers to x ~ N(0, I), and how much they differ from each other."""

    resolution: float
    scale: float
    growth: float


class Box:
    """An oracle: `box(X)` returns the answers (n, p) in float64 to the queries X (n, d).

    `ask` receives at most `batch` rows at a time and at most `budget` rows in all. With a `frame`, a query z is sent as
    x = mean + z·spread. `single` says that the oracle rounds its inputs to single precision; this is also detected.
    `limits` say where it may be queried; the callers keep to them. `options` go with the oracle to all that query it.
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
        options: QueryOptions | None = None,
    ) -> None:
        for name, value in (("n_inputs", n_inputs), ("batch", batch), ("budget", budget)):
            if value is not None and value < 1:
                raise ValueError(f"expected {name} to be at least 1. Got {value} instead.")
        self.n_inputs = n_inputs
        self.limits = limits
        self.options = options or QueryOptions()
        self.budget = budget
        self.whitening = None if frame is None else frame.whitening
        self._frame, self._single = frame, single
        self.queries = 0
        self._ask = ask
        self._batch = batch
        self._n_outputs: int | None = None
        self._probe: _Probe | None = None

    def __call__(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(f"expected queries of shape (n, {self.n_inputs}). Got shape {X.shape} instead.")
        if self.budget is not None and self.queries + len(X) > self.budget:
            raise UnsolvableError(f"The budget of {self.budget} queries is used up: give a larger query_budget.")
        rows = self._batch or max(len(X), 1)
        answers = [self._answer(X[start : start + rows]) for start in range(0, len(X), rows)]
        return np.concatenate(answers) if answers else np.zeros((0, self.n_outputs))

    def inputs(self, Z: np.ndarray) -> np.ndarray:
        """Return the inputs x (n, d) that are sent for the queries Z."""
        X = Z if self._frame is None else self._frame.inputs(Z)
        return X.astype(np.float32).astype(float) if self._single else X

    def round_queries(self, Z: np.ndarray) -> np.ndarray:
        """Return the queries as the oracle sees them, after its inputs have been rounded."""
        return Z if self.whitening is None or not self._single else self.whitening.inputs(self.inputs(Z))

    @property
    def n_outputs(self) -> int:
        """The number p of outputs, found by one query."""
        if self._n_outputs is None:
            self(np.zeros((1, self.n_inputs)))
        assert self._n_outputs is not None
        return self._n_outputs

    @property
    def resolution(self) -> float:
        """The rounding ρ of an answer, relative to the size of the answers near the origin."""
        return self._measure().resolution

    @property
    def coarse(self) -> bool:
        """Whether answers have clearly fewer digits than float64 arithmetic gives."""
        options = self.options.box
        return self.resolution > options.coarse

    @property
    def scale(self) -> float:
        """The size of the answers to queries x ~ N(0, I)."""
        return self._measure().scale

    @property
    def growth(self) -> float:
        """The spread of the answers to queries x ~ N(0, I): how much they grow with ‖x‖/√d."""
        return self._measure().growth

    def noise(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return the expected absolute rounding (n,) of the answers Y (n, p) to X (n, d).

        The terms of an answer grow with ‖x‖ even where they cancel, by the spread of the answers to x ~ N(0, I). At the
        origin they are as large as the biases.
        """
        terms = self.scale + self.growth * np.linalg.norm(X, axis=1) / np.sqrt(self.n_inputs)
        return self.resolution * np.maximum(np.abs(Y).max(axis=1, initial=0.0), terms)

    def _answer(self, X: np.ndarray) -> np.ndarray:
        # The oracle receives a copy: one that works in place must not change the queries.
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
                "The oracle answered with something that is not a finite number: give the range it accepts as "
                "bounds=(low, high), or where its inputs lie, with like=X."
            )
        self._n_outputs = Y.shape[1]
        return Y

    def _measure(self) -> _Probe:
        if self._probe is None:
            single = self._single
            self._probe = self._probe_oracle()
            if self._single and not single and self._frame is not None:
                # Far from zero, rounded inputs cost more digits than rounded answers: measure again with both.
                self._probe = self._probe_oracle()
        return self._probe

    def _probe_oracle(self) -> _Probe:
        options = self.options.box
        rng = np.random.default_rng(0)
        start, direction = rng.standard_normal((2, 2, 1, self.n_inputs))
        more, ways = rng.standard_normal((2, options.spare, 1, self.n_inputs))
        # Several places, because the terms may happen to cancel at one of them.
        others = rng.standard_normal((options.places, self.n_inputs))
        others = self.limits.pull_inside(others)
        start, more = self.limits.pull_inside(start, options.start), self.limits.pull_inside(more, options.start)
        places = self(others)
        scale = max(_rms(places), 1e-290)
        growth = max(_rms(places - places.mean(axis=0)), 1e-6 * scale)
        left = np.zeros(0)
        # All units may be inactive on the first segments: try others of the same length before longer ones.
        elsewhere = (others[:, None], np.resize(direction, (options.places, 1, self.n_inputs)), options.lengths[0])
        tries = [(start, direction, length) for length in options.lengths]
        for number, (begin, along, length) in enumerate([tries[0], elsewhere, *tries[1:]]):
            segments = self._segments(begin, along, length)
            Y = np.stack([self(segment) for segment in segments])
            if number == 0:
                self._check_repeatable(segments[0], Y[0])
            scale = max(scale, _rms(Y))
            varies = np.ptp(Y, axis=1).max(axis=1) > 0
            if not varies.any():
                # An oracle that is flat here may not be elsewhere, where a longer segment would cross its kinks.
                Y = np.stack([self(segment) for segment in self._segments(more, ways, length)])
                varies = np.ptp(Y, axis=1).max(axis=1) > 0
            if varies.any():
                left = np.array([_affine_residual(y) for y in Y[varies]])
                break
        if not left.size:
            return _Probe(DOUBLE, scale, growth)
        # A kink on one segment leaves a far larger residual than the rounding on the others.
        residual = left.max() if left.max() < 100.0 * left.min() else left.min()
        in_single, in_half = np.array_equal(Y, Y.astype(np.float32)), np.array_equal(Y, _in_half(Y))
        resolution = max(float(residual) / scale, SINGLE if in_single else DOUBLE)
        in_half = in_half and resolution > options.coarse
        resolution = max(resolution, HALF) if in_half else resolution
        # An oracle that answers in single precision is assumed to round its inputs to it too.
        self._single = self._single or (in_single and resolution > options.coarse)
        if in_half and not self.limits:
            # Far out, answers in half precision are infinite.
            self.limits = Limits.cube(self.n_inputs, options.half_range, options)
        return _Probe(resolution, scale, growth)

    def _segments(self, start: np.ndarray, along: np.ndarray, length: float) -> np.ndarray:
        return start + length * PLACES[:, None] * self.limits.shorten(start, along, length * PLACES[-1])

    def _check_repeatable(self, X: np.ndarray, Y: np.ndarray) -> None:
        options = self.options.box
        # The same rows in the same batch, because a batch of another size may be summed in another order.
        again = self(X)
        apart = np.abs(again - Y).max(axis=1) > options.repeat * max(float(np.abs(Y).max()), 1e-300)
        # Threads may sum a few answers in another order, but not most of them.
        if np.count_nonzero(apart) > len(X) // 2:
            raise UnsolvableError(
                "The oracle gives different answers to the same query. A network behind noise is found "
                "from samples: neurecover.recover(oracle, n_samples=2000)."
            )


def _in_half(Y: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return Y.astype(np.float16)


def _rms(Y: np.ndarray) -> float:
    return float(np.sqrt(np.mean(Y**2)))


def _affine_residual(y: np.ndarray) -> float:
    """Return the largest residual of the best affine function of τ through y (6, p)."""
    basis = np.linalg.qr(np.column_stack([np.ones(len(y)), PLACES - PLACES.mean()]))[0]
    centred = y - y[0]
    return float(np.abs(centred - basis @ (basis.T @ centred)).max())
