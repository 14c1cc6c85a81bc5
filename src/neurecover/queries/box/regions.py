"""Gradients in linear regions, kept together with how far they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.gradients import Gradients


@dataclass(frozen=True, eq=False)
class Regions:
    """At `points` (R, d), one to a region: `values` (R, p) and `gradients` (R, p, d).

    `noise` (R,) is the rounding to expect of a value, `sigma` (R,) that of one component of a gradient.
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
        return Regions(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @classmethod
    def empty(cls, d: int, p: int) -> Regions:
        return cls(np.zeros((0, d)), np.zeros((0, p)), np.zeros((0, p, d)), np.zeros(0), np.zeros(0))

    @classmethod
    def from_gradients(cls, gradients: Gradients) -> Regions:
        """From a whole basis. Steps of different length in one region count by the mean of their squared errors."""
        sigma = gradients.noise * np.sqrt(2.0 * np.mean(gradients.steps**-2.0, axis=1))
        return cls(gradients.points, gradients.values, gradients.full(), gradients.noise, sigma)
