"""A black-box oracle that counts its queries, keeps to a budget and knows the rounding of its answers.

An answer is y = f(x) + e with |e| about ρ·size, where `size` is the size of the terms that were summed to give y. The
resolution ρ is measured: `resolution`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike

from neurecover.data.oracles.frame import Frame
from neurecover.exceptions import UnsolvableError
from neurecover.queried import KinkLine
from neurecover.queries.box.limits import EVERYWHERE, Limits
from neurecover.queries.box.resolution import SINGLE, Resolution, measure_resolution
from neurecover.queries.options import QueryOptions


def budget_ended(budget: int, asked: int, wanted: int) -> str:
    """Return the sentence that says why the next queries cannot be made."""
    return (
        f"The budget of {budget} queries is used up: {asked} were made, and the next step needs {wanted}. "
        "Give a larger query_budget."
    )


class Box:
    """An oracle: `box(X)` returns the answers (n, p) in float64 to the queries X (n, d).

    `ask` receives at most `batch` rows at a time and at most `budget` rows in all. With a `frame`, a query z is sent as
    x = mean + z·spread. `single` says that the oracle rounds its inputs to single precision; this is also detected.
    `limits` say where it may be queried; the callers keep to them. `options` go with the oracle to all that query it.
    `affordable` says how many rows it may still be asked, in the time there is. `rounding`, if known beforehand, is the
    rounding (n, p) of answers (n, p) beside that of the arithmetic. A box that asks another, `outer`, has its queries
    counted there.
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
        affordable: Callable[[], float] = lambda: np.inf,
        rounding: Callable[[np.ndarray], np.ndarray] | None = None,
        outer: Box | None = None,
    ) -> None:
        for name, value in (("n_inputs", n_inputs), ("batch", batch), ("budget", budget)):
            if value is not None and value < 1:
                raise ValueError(f"expected {name} to be at least 1. Got {value} instead.")
        self.n_inputs = n_inputs
        self.limits = limits
        self.options = options or QueryOptions()
        self.budget, self.reserved = budget, 0  # reserved are queries kept back for what comes after the search
        self.whitening = None if frame is None else frame.whitening
        self.frame, self._single = frame, single
        self.queries = 0
        self._root: Box = self if outer is None else outer._root
        self.purposes: Counter[str] = Counter()  # of the queries: how many for what
        self._purpose = "kind of model"
        self.line: KinkLine | None = None
        self._ask, self._affordable, self.rounding = ask, affordable, rounding
        self._batch = batch
        self._n_outputs: int | None = None
        self._resolution: Resolution | None = None

    def __call__(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(f"expected queries of shape (n, {self.n_inputs}). Got shape {X.shape} instead.")
        if self.budget is not None and self.queries + len(X) > self.budget - self.reserved:
            raise UnsolvableError(budget_ended(self.budget, self.queries, len(X)))
        rows = self._batch or max(len(X), 1)
        answers = [self._answer(X[start : start + rows]) for start in range(0, len(X), rows)]
        return np.concatenate(answers) if answers else np.zeros((0, self.n_outputs))

    @contextmanager
    def counting(self, purpose: str) -> Iterator[None]:
        """Count the queries within as made for this purpose, except where a narrower one is named."""
        root = self._root
        before, root._purpose = root._purpose, purpose
        try:
            yield
        finally:
            root._purpose = before

    def record_line(self, x: np.ndarray, v: np.ndarray, kinks: np.ndarray) -> None:
        """Record the first line x + t v along which kinks were found, in the inputs of the oracle."""
        if self.line is None and len(kinks):
            start, stop = self.inputs(np.array([x, x + v]))
            self.line = KinkLine(start, stop - start, kinks)

    def inputs(self, Z: np.ndarray) -> np.ndarray:
        """Return the inputs x (n, d) that are sent for the queries Z."""
        X = Z if self.frame is None else self.frame.inputs(Z)
        return X.astype(np.float32).astype(float) if self._single else X

    def round_queries(self, Z: np.ndarray) -> np.ndarray:
        """Return the queries as the oracle sees them, after its inputs have been rounded."""
        if not self._single:
            return Z
        return self.inputs(Z) if self.whitening is None else self.whitening.inputs(self.inputs(Z))

    @property
    def n_outputs(self) -> int:
        """The number p of outputs, found by one query."""
        if self._n_outputs is None:
            self(np.zeros((1, self.n_inputs)))
        assert self._n_outputs is not None
        return self._n_outputs

    @property
    def affordable(self) -> float:
        """The number of queries that the budgets of queries and of time leave for the search."""
        left = np.inf if self.budget is None else self.budget - self.reserved - self.queries
        return max(min(left, self._affordable()), 0.0)

    @property
    def resolution(self) -> float:
        """The rounding ρ of an answer, relative to the size of the answers near the origin."""
        return self._measure().rounding

    @property
    def known_resolution(self) -> float:
        """The resolution if it was measured, else nan; never asks."""
        return np.nan if self._resolution is None else self._resolution.rounding

    @property
    def least_variances(self) -> tuple[float, float]:
        """The smallest variances of an answer: Δ²/12 for a grid of step Δ, and this over the square of the answer's
        power of two.
        """
        measured = self._measure()
        return measured.grid**2 / 12.0, (2.0 * SINGLE) ** 2 / 12.0 if measured.single else 0.0

    @property
    def coarse(self) -> bool:
        """Whether answers have clearly fewer digits than float64 arithmetic gives."""
        return self.resolution > self.options.box.coarse

    @property
    def scale(self) -> float:
        """The size of the answers to queries x ~ N(0, I)."""
        return self._measure().scale

    @property
    def growth(self) -> float:
        """The standard deviation of the answers to queries x ~ N(0, I): how much they grow with ‖x‖/√d."""
        return self._measure().growth

    def noise(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return the expected absolute rounding (n,) of the answers Y (n, p) to X (n, d).

        The terms of an answer grow with ‖x‖ even where they cancel, by the spread of the answers to x ~ N(0, I). At the
        origin they are as large as the biases.
        """
        noise = np.maximum(self._measure().relative * np.abs(Y).max(axis=1, initial=0.0), self.noise_at(X))
        return noise if self.rounding is None else np.maximum(noise, self.rounding(Y).max(axis=1))

    def sizes(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return the sizes (n,) of the terms whose sums are the answers Y (n, p) to X (n, d)."""
        grown = self.scale + self.growth * np.linalg.norm(X, axis=1) / np.sqrt(self.n_inputs)
        sizes = np.maximum(np.abs(Y).max(axis=1, initial=0.0), grown)
        return sizes if self.rounding is None else np.maximum(sizes, self.noise(X, Y) / self.resolution)

    def noise_at(self, X: np.ndarray) -> np.ndarray:
        """Return the rounding (n,) that answers to X (n, d) will have, known before they are queried: ρ (scale + growth
        ‖x‖/√d).

        If answers are rounded to decimals, only the rounding of the arithmetic grows with ‖x‖.
        """
        measured = self._measure()
        size = np.linalg.norm(X, axis=1) / np.sqrt(self.n_inputs)
        return measured.rounding * measured.scale + measured.relative * measured.growth * size

    def clear_radius(self, X: np.ndarray, jump: float | None = None) -> np.ndarray:
        """Return the distance (n,) from X (n, d) beyond which a kink stands out from rounding, clear·e(x) / ‖jump‖.

        If other kinks would lie within that distance, it is reduced, down to clear_crowded·e(x) / ‖jump‖. `jump` is the
        length of the gradient's jump. The answers to x ~ N(0, I) have the standard deviation `growth`, which is about
        the length of a gradient; a usual unit changes the gradient by a part of that.
        """
        options = self.options.box
        size, radius = 1.0 + np.linalg.norm(X, axis=1), self._radius(X, jump)
        radius = np.maximum(options.clear_crowded / options.clear * radius, np.minimum(radius, options.snug * size))
        return np.clip(radius, options.nearest * size, options.widest * size)

    def _radius(self, X: np.ndarray, jump: float | None) -> np.ndarray:
        """Return the radius (n,) over which a kink stands out, however long it is."""
        jump = self.options.box.usual_jump * self.growth if jump is None else jump
        return np.asarray(self.options.box.clear * self.noise_at(X) / max(jump, 1e-300))

    @property
    def crowding(self) -> float:
        """The distance at which a usual kink stands out, relative to the distance that is free of other kinks, at
        inputs N(0, I).
        """
        X = self.limits.pull_inside(np.random.default_rng(0).standard_normal((self.options.box.usual, self.n_inputs)))
        widest = self.options.box.widest * (1.0 + np.linalg.norm(X, axis=1))
        return float(np.median(self._radius(X, None) / widest))

    def _answer(self, X: np.ndarray) -> np.ndarray:
        """Send one batch; return its answers (n, p), checked."""
        # The oracle receives a copy: one that works in place must not change the queries.
        Y = np.asarray(self._ask(self.inputs(X).copy()), dtype=float)
        self.queries += len(X)
        self.purposes[self._root._purpose] += len(X)
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

    def _measure(self) -> Resolution:
        """Return the resolution, measured once; limits and precision of the inputs follow from it if not given."""
        if self._resolution is None:
            self._resolution = self._measure_once()
            if self._resolution.single and not self._single:
                self._single = True
                if self.frame is not None:
                    # Far from zero, rounded inputs cost more digits than rounded answers: measure again with both.
                    self._resolution = self._measure_once()
        return self._resolution

    def _measure_once(self) -> Resolution:
        """Measure the resolution; limit the queries if the answers are in half precision."""
        options = self.options.box
        measured = measure_resolution(self, self.n_inputs, self.limits, options)
        if measured.half and not self.limits:
            # Far out, answers in half precision are infinite.
            self.limits = Limits.cube(self.n_inputs, options.half_range, options)
        return measured
