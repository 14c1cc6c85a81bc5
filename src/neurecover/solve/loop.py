"""The damped Gauss–Newton loop that all fits share: min L(θ) for a sum of squares L.

At a point θ the linear model of the residual gives equations for a step and predicts its decrease,

    (S + λD) δ = g,        L(θ) − L(θ + δ) ≈ predicted(δ).

The caller provides the equations (a `Direction`) and θ (a `Point`). The loop decides whether to take a step by the gain
ρ = (L(θ) − L(θ + δ)) / predicted(δ),  and updates λ from it [Nielsen 1999]:

    taken:      λ ← λ·max(1/5, 1 − (2 min(ρ, 1) − 1)³),   ν ← 2
    rejected:   λ ← λ·ν,                                  ν ← 2ν.

If L costs a pass over many samples, L need not be computed after the last step. The relative predictions
e = predicted/L of undamped steps fall as e₁, e₂, e₃ ≈ e₂·(e₂/e₁). Once the next prediction would be small enough
(`trusted`), a step is taken without computing L.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import sqrt
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from neurecover.solve.deadline import Deadline


class Outcome(Enum):
    """Why a loop goes on or has ended."""

    RUNNING = "running"
    EXACT = "exact"  # the residual is rounding
    CONVERGED = "converged"  # no step helps


class Direction(Protocol):
    """The equations of a step at one point, ready to be solved for any damping."""

    def solve(self, damping: float) -> np.ndarray | None:
        """Return δ, flat; None if the equations cannot be solved to working precision or time is up."""

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """Return the decrease of L that the linear model predicts."""


class Point(Protocol):
    """A value of θ."""

    @property
    def loss(self) -> float:
        """L(θ)"""

    @property
    def scale(self) -> float:
        """The size of L against which rounding is measured, such as L without any model."""

    def system(self) -> Direction:
        """Return the equations of the next step."""

    def moved(self, step: np.ndarray) -> Self | None:
        """Return the point θ + step; None if it overflows."""


P = TypeVar("P", bound=Point)


@dataclass(frozen=True)
class Tolerances:
    """When to stop, as fractions of L.

    `rounding` is the L/scale that double precision cannot improve: u² = 1.2e-32 for one rounding per residual, times
    the number of roundings in a residual (about 10 if it is formed from explicit features, up to 1000 for sums over
    hidden units of whitened samples).

    L itself, a sum of N squares, has a relative error of √N·u to N·u; smaller predicted or actual decreases are
    indistinguishable from rounding. `promise` ends the loop after a rejected step that predicted no more than this, and
    `gain` after an accepted step that gained no more although the model was right (ρ > 1/2). If the prediction for the
    step after an undamped step is below `trusted`, that step is taken without computing L; 0 for never.
    """

    rounding: float = 1e-29
    promise: float = 1e-13
    gain: float = 1e-12
    trusted: float = 0.0


@dataclass(frozen=True)
class Damping:
    """λ and ν. D is the diagonal of S, so λ lies between the rounding of S and steps that change nothing.

    An accepted step multiplies λ by at least `fall`. `retry` is the smallest λ after a rejected step: if trials are
    expensive, values of λ that would give almost the same step are skipped.
    """

    value: float = 1e-2
    growth: float = 2.0
    smallest: float = 1e-13
    largest: float = 1e12
    fall: float = 0.2
    retry: float = 0.0

    def after_gain(self, gain: float) -> Damping:
        factor = max(self.fall, 1.0 - (2.0 * min(gain, 1.0) - 1.0) ** 3)
        return replace(self, value=max(self.value * factor, self.smallest), growth=2.0)

    def after_rejection(self) -> Damping:
        return replace(self, value=max(self.value * self.growth, self.retry), growth=2.0 * self.growth)

    @property
    def absent(self) -> bool:
        """Whether λ is too small to change the step of solvable equations, whose scaled condition is below 1/√u."""
        return self.value <= sqrt(np.finfo(float).eps)

    @property
    def exhausted(self) -> bool:
        return self.value > self.largest


class Loop(Generic[P]):
    """One run from a start, advanced a few iterations at a time so that runs can be raced.

    `point` is the current point, `iterations` the number of steps tried, `outcome` whether it can go on, and `ahead`
    the point after a trusted step.
    """

    def __init__(self, start: P, tolerances: Tolerances | None = None, damping: Damping | None = None) -> None:
        self.tolerances = tolerances or Tolerances()
        self.damping = damping or Damping()
        self.point, self.iterations = start, 0
        self.ahead: P | None = None
        self._direction: Direction | None = None
        self._promised = 0.0  # relative decrease of L that the last accepted step predicted
        self.outcome = Outcome.RUNNING
        self._look_for_rounding()

    def advance(self, iterations: int, deadline: Deadline | None = None) -> Self:
        """Try up to `iterations` more steps, and none after the deadline."""
        for _ in range(iterations):
            if self.outcome is not Outcome.RUNNING or (deadline is not None and deadline.passed):
                break
            self._iterate()
            if deadline is not None:
                deadline.pulse(sqrt(self.point.loss / max(self.point.scale, 1e-300)))
        return self

    def _iterate(self) -> None:
        self.iterations += 1
        if self._direction is None:
            self._direction = self.point.system()
        step = self._direction.solve(self.damping.value)
        trial = None if step is None else self.point.moved(step)
        if step is None or trial is None:
            self._reject()
            return
        predicted = self._direction.predicted_decrease(step, self.damping.value)
        if self._trusts(predicted):
            self.ahead, self.outcome = trial, Outcome.CONVERGED
            return
        if trial.loss < self.point.loss:
            self._accept(trial, predicted)
            return
        self._reject()
        if predicted <= self.tolerances.promise * self.point.loss:
            self.outcome = Outcome.CONVERGED

    def _trusts(self, predicted: float) -> bool:
        """Return whether a step is the last one, by the predicted decrease of the step after it."""
        promised = predicted / max(self.point.loss, 1e-300)
        rate = min(promised / self._promised, 1.0) if self._promised > 0.0 else 1.0
        return self.damping.absent and promised * rate < self.tolerances.trusted

    def _accept(self, trial: P, predicted: float) -> None:
        decrease = self.point.loss - trial.loss
        gain = decrease / predicted if predicted > 0.0 else 1.0
        if decrease <= self.tolerances.gain * self.point.loss and gain > 0.5:
            self.outcome = Outcome.CONVERGED
        self.damping = self.damping.after_gain(gain)
        self._promised = predicted / max(self.point.loss, 1e-300)
        self.point, self._direction = trial, None
        self._look_for_rounding()

    def _reject(self) -> None:
        self.damping = self.damping.after_rejection()
        if self.damping.exhausted:
            self.outcome = Outcome.CONVERGED

    def _look_for_rounding(self) -> None:
        if self.point.loss <= self.tolerances.rounding * self.point.scale:
            self.outcome = Outcome.EXACT
