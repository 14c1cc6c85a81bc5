"""Least squares over all parameters θ of any network at once: damped Gauss–Newton on Σ |y − f_θ(x)|².

From a start that is near, this is a short way: the residuals are smooth but for the few samples at a kink, and without
noise they vanish at the truth. A step solves (JᵀJ + λD) δ = Jᵀr; along the scales that a unit can hand to the layer
above JᵀJ vanishes, and the damping leaves them where they are. The loop is `solve.Loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Composite, DeepNetwork, Network, Polynomial, are_biases, parameters, with_parameters
from neurecover.solve import Deadline, DenseSystem, Loop, Outcome, Tolerances, damping_diagonal
from neurecover.statistics import ModelSums, Residuals

M = TypeVar("M", Network, DeepNetwork, Composite)
MOST_STEPS = 100
TOLERANCES = Tolerances(rounding=1e-29, promise=1e-13, gain=1e-12)


@dataclass(frozen=True)
class ModelFit(Generic[M]):
    """The network, its Σ r² and Σ y² on the samples, and why the fit ended."""

    network: M
    rss: float
    total: float
    outcome: Outcome

    @property
    def relative_rss(self) -> float:
        return self.rss / self.total if self.total > 0.0 else 0.0

    @property
    def converged(self) -> bool:
        return self.outcome is not Outcome.RUNNING


def can_be_fitted(model: Network | DeepNetwork | Composite) -> bool:
    """Whether all its parts have parameters and derivatives."""
    known = not isinstance(model, Composite) or isinstance(model.upper, Polynomial | Network | DeepNetwork)
    return known and model.activation.differentiable


def fit_model(
    source: Source, model: M, deadline: Deadline | None = None, max_steps: int = MOST_STEPS, *, bias: bool = True
) -> ModelFit[M]:
    """The network after damped Gauss–Newton on the samples of the source; bias=False leaves biases as they are."""
    nothing = reduce(source, Residuals(lambda X: np.zeros((len(X), model.n_outputs)), model.n_outputs))
    total = float(nothing.sums["residual_squared"].sum())
    free = np.flatnonzero(np.ones(model.n_parameters, dtype=bool) if bias else ~are_biases(model))
    loop = Loop(_Point(source, model, free, _rss(source, model), total), TOLERANCES).advance(max_steps, deadline)
    return ModelFit(loop.point.model, loop.point.loss, total, loop.outcome)


@dataclass(frozen=True, eq=False)
class _Point(Generic[M]):
    source: Source
    model: M
    free: np.ndarray
    loss: float
    scale: float

    @cached_property
    def _system(self) -> DenseSystem:
        sums = reduce(self.source, ModelSums(self.model))
        S = np.asfortranarray(sums.sums["jj"][np.ix_(self.free, self.free)])
        D = damping_diagonal(np.diag(S))
        # Rounding may leave JᵀJ slightly indefinite along the free scales.
        np.einsum("ii->i", S)[:] += 1e-14 * D
        return DenseSystem(S, sums.sums["jr"][self.free], D)

    def system(self) -> DenseSystem:
        return self._system

    def moved(self, step: np.ndarray) -> _Point[M] | None:
        theta = parameters(self.model)
        theta[self.free] += step
        if not np.isfinite(theta).all():
            return None
        model = with_parameters(self.model, theta)
        loss = _rss(self.source, model)
        return replace(self, model=model, loss=loss) if np.isfinite(loss) else None


def _rss(source: Source, model: Network | DeepNetwork | Composite) -> float:
    width = 2 * sum(len(W) for W in model.hidden_weights)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(reduce(source, Residuals(model, model.n_outputs, width)).sums["residual_squared"].sum())
