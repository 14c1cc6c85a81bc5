"""A model queried at x and at −x together.

For hidden units act(z) = h z + g |z|, the odd part of the answers, (f(x) − f(−x))/2 = h A W x, is then linear in x on
the sample itself, not only in expectation. Least squares of y on x finds it exactly from any d independent inputs. The
inputs are symmetric, whatever distribution they were drawn from.
"""

from __future__ import annotations

import numpy as np

from neurecover.data.oracles.oracle import CHUNK, Oracle


class Reflected(Oracle):
    """The rows of an oracle, each followed by its reflection: rows 2i and 2i + 1 are x and −x."""

    def __init__(self, parent: Oracle) -> None:
        self.__dict__.update(parent.__dict__)
        self.origin = f"{parent.origin} (x and −x)"
        self.n_samples = None if parent.n_samples is None else _even(parent.n_samples)

    def with_samples(self, n: int) -> Reflected:
        """Return the same oracle limited to n rows, rounded up to whole pairs."""
        return Reflected(super().with_samples(_even(n)))

    def _inputs(self, chunk: int) -> np.ndarray:
        half = super()._inputs(chunk)[: CHUNK // 2]
        return np.stack([half, -half], axis=1).reshape(CHUNK, -1)


def with_reflections(oracle: Oracle) -> Reflected:
    """Return the oracle with every query x followed by −x; an oracle that has this property is returned unchanged."""
    return oracle if isinstance(oracle, Reflected) else Reflected(oracle)


def _even(n: int) -> int:
    return n + n % 2
