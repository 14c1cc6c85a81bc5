"""What is fitted, and how wide the student is that fits it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.models import Student
from neurecover.refine.descent import EXACT

WIDER, SLIGHTLY_WIDER = 1.5, 1.15  # student units per teacher unit, for p < k and for p ≥ k (measured)
LOAD = 0.5  # parameters of the student per equation, at the most


@dataclass(frozen=True)
class Task:
    """What is fitted: y ≈ A·act(W x + b) + c with `n_hidden` units (None: to be found) on n samples.

    `level` is Σ r² / Σ y² at which a fit has reached the rounding of the outputs: there is no better one to be found.
    """

    activation: Activation
    n_inputs: int
    n_outputs: int
    n_samples: int
    bias: bool
    n_hidden: int | None
    level: float = EXACT

    @property
    def coarse(self) -> bool:
        """Whether the outputs carry fewer digits than double precision, and the level is theirs."""
        return self.level > EXACT

    @property
    def can_be_affine(self) -> bool:
        """Whether a free affine part hides nothing but signs: act(z) − act(−z) = m z with m ≠ 0."""
        return bool(self.activation.odd_slope)

    def n_parameters(self, width: int, affine: bool) -> int:
        d, p = self.n_inputs, self.n_outputs
        return width * (d + self.bias) + p * (width + d * affine + self.bias)

    @property
    def n_parameters_per_unit(self) -> int:
        return self.n_inputs + self.bias + self.n_outputs

    def widest(self, affine: bool) -> int:
        """The largest width whose parameters are at most LOAD of the n·p equations."""
        fixed = self.n_parameters(0, affine)
        return int((LOAD * self.n_samples * self.n_outputs - fixed) // self.n_parameters_per_unit)

    def width(self, affine: bool) -> int:
        """The width of the student when the teacher's is known."""
        k = self.n_hidden or 0
        factor = SLIGHTLY_WIDER if self.n_outputs >= k else WIDER
        return max(k, min(int(np.ceil(factor * k)) + 1, self.widest(affine)))

    def prefers_affine(self) -> bool:
        """With fewer outputs than units signs are easily stuck; with more the outputs tell them (measured)."""
        if not self.can_be_affine or (self.n_hidden is not None and self.n_outputs >= self.n_hidden):
            return False
        return (
            self.n_hidden is None
            or self.width(affine=True) > self.n_hidden
            or self.width(affine=False) == self.n_hidden
        )

    def student(self, V: np.ndarray, affine: bool) -> Student:
        q = len(V) + self.n_inputs * affine + self.bias
        return Student(self.activation, V, np.zeros((q, self.n_outputs)), self.bias, affine)
