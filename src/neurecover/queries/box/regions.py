"""Gradients in linear regions, with their accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.gradients import Gradients


@dataclass(frozen=True, eq=False)
class Regions:
    """Linear regions of the oracle: one point in each, with the value and the gradient of the oracle there.

    `points` (R, d), `values` (R, p) and `gradients` (R, p, d). `noise` (R,) is the expected rounding of a value,
    `sigma` (R,) that of one component of a gradient.
    """

    points: np.ndarray
    values: np.ndarray
    gradients: np.ndarray
    noise: np.ndarray
    sigma: np.ndarray

    def __len__(self) -> int:
        return len(self.points)

    def __add__(self, other: Regions) -> Regions:
        fields = self.__dataclass_fields__
        return Regions(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in fields))

    def take(self, index: np.ndarray) -> Regions:
        """Return some of the regions, by number or by mask."""
        return Regions(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @classmethod
    def empty(cls, d: int, p: int) -> Regions:
        """Return no regions, of d inputs and p outputs."""
        return cls(np.zeros((0, d)), np.zeros((0, p)), np.zeros((0, p, d)), np.zeros(0), np.zeros(0))

    @classmethod
    def from_gradients(cls, gradients: Gradients) -> Regions:
        """Return the regions of gradients measured in a full basis, with one error σ for each: the root mean square
        over its steps.
        """
        sigma = gradients.noise * np.sqrt(2.0 * np.mean(gradients.steps**-2.0, axis=1))
        return cls(gradients.points, gradients.values, gradients.full(), gradients.noise, sigma)
