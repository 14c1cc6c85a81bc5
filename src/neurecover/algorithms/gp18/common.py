"""What the algorithms of [GP18] have in common: what they refuse, and the composite network they hand back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.gp18.layers.upper import with_linear_upper
from neurecover.data import Mapped, Source, Whitening, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.models import Composite
from neurecover.search import Task
from neurecover.statistics import Moments


@dataclass(frozen=True)
class OwnInputs:
    """The samples as they were before whitening, and the whitening (None where there was none)."""

    source: Source
    whitening: Whitening | None

    def composite(self, W: np.ndarray, threshold: np.ndarray, activation: Activation) -> Composite:
        """Return the units in coordinates of the inputs, w = B w_z and t = t_z + w·mean, below an affine upper part."""
        network = with_linear_upper(self.source, W, threshold, activation)
        if self.whitening is None:
            return network
        white = np.linalg.lstsq(self.whitening.matrix, W.T, rcond=None)[0].T
        return Composite(white, threshold - W @ self.whitening.mean, network.upper, activation)


def before_whitening(source: Source) -> OwnInputs:
    """Return the samples as they were given."""
    return OwnInputs(source.parent, source._whitening) if isinstance(source, Mapped) else OwnInputs(source, None)


def own_inputs(source: Source) -> OwnInputs:
    """Return the inputs before whitening, where weights are 0 or 1; UnsolvableError if they are not standard normal."""
    own = before_whitening(source)
    d = own.source.n_inputs
    moments = reduce(own.source, Moments(d, own.source.n_outputs))
    mean = moments.mean[:d]
    covariance = moments.xx - np.outer(mean, mean)
    # The variance of a mean is 1/n, that of a variance 2/n.
    off = max(float(np.abs(mean).max()), float(np.abs(covariance - np.eye(d)).max()) / np.sqrt(2.0))
    # Moments of standard inputs are off by six standard errors with probability 2e-9.
    if off > 6.0 / np.sqrt(moments.n):
        raise UnsolvableError(
            "Weights of 0 and 1 are sought in the axes of the inputs, which need to have mean 0, variance 1 and no "
            f"correlation. Got moments that are off by {off:.3g} instead."
        )
    return own


def refuse_unless(
    name: str, task: Task, activations: tuple[str, ...] | None = None, *, several: bool = False
) -> str | None:
    """Return why the task is refused, or None: it needs one output (or `several`), a known activation, and k ≤ d."""
    if activations is not None and task.activation.name not in activations:
        return f"{name} is for {' or '.join(activations)} units. Got {task.activation} instead."
    if task.n_outputs != 1 and not several:
        return f"{name} reads one output at a time. Got {task.n_outputs} outputs instead."
    if task.n_hidden is not None and task.n_hidden > task.n_inputs:
        return f"{name} sees at most as many units as inputs, {task.n_inputs}. Got {task.n_hidden} instead."
    return None
