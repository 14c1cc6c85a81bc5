"""Output noise: dist(rng, Y), with the clean outputs Y (n, p), draws the E (n, p) to be added."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from neurecover.simulate._checks import non_negative, number

Noise = Callable[[np.random.Generator, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class GaussianNoise:
    """Independent N(0, scale²) in every entry."""

    scale: float

    def __post_init__(self) -> None:
        non_negative("scale", self.scale)

    def __call__(self, rng: np.random.Generator, Y: np.ndarray) -> np.ndarray:
        return self.scale * rng.standard_normal(Y.shape)


@dataclass(frozen=True)
class UniformNoise:
    """Independent and uniform on [−√3 scale, √3 scale] in every entry: the standard deviation is scale."""

    scale: float

    def __post_init__(self) -> None:
        non_negative("scale", self.scale)

    def __call__(self, rng: np.random.Generator, Y: np.ndarray) -> np.ndarray:
        return np.sqrt(3.0) * self.scale * rng.uniform(-1.0, 1.0, Y.shape)


@dataclass(frozen=True)
class SparseGross:
    """±magnitude in a fraction of the entries, zero in the others [BJW18, §8, Def. 12].

    Exactly s = round(fraction·n·p) entries are hit, chosen uniformly without replacement, with independent
    fair signs.
    """

    fraction: float
    magnitude: float

    def __post_init__(self) -> None:
        number("fraction", self.fraction, "between 0 and 1", lambda v: 0 <= v <= 1)
        non_negative("magnitude", self.magnitude)

    def __call__(self, rng: np.random.Generator, Y: np.ndarray) -> np.ndarray:
        s = round(self.fraction * Y.size)
        E = np.zeros(Y.size)
        E[rng.choice(Y.size, s, replace=False)] = self.magnitude * rng.choice([-1.0, 1.0], s)
        return E.reshape(Y.shape)


@dataclass(frozen=True, eq=False)
class Fixed:
    """The given array E, whatever the inputs: noise that is arbitrary but independent of X [BJW18, §7]."""

    E: ArrayLike

    def __call__(self, rng: np.random.Generator, Y: np.ndarray) -> np.ndarray:
        E = np.asarray(self.E, dtype=float)
        if E.shape != Y.shape:
            raise ValueError(f"Fixed noise must have the shape {Y.shape} of the outputs. Got {E.shape} instead.")
        return E.copy()
