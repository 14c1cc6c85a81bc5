"""Least squares over all parameters θ of any network at once: damped Gauss–Newton on Σ |y − f_θ(x)|²,

    (Σ JᵀJ + N Nᵀ + λD) δ = Σ Jᵀr,        D = diag Σ JᵀJ.

From a start that is near, this is a short way: the residuals are smooth but for the few samples at a kink, and without
noise they vanish at the truth. The columns of N are the scales that a unit can hand to the layer above: N Nᵀ holds them
where they are and changes nothing else, because Σ JᵀJ and Σ Jᵀr vanish along N. The loop is `solve.Loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import (
    Composite,
    DeepNetwork,
    Network,
    Polynomial,
    free_directions,
    free_parameters,
    parameters,
    with_parameters,
)
from neurecover.solve import Damping, Deadline, DenseSystem, Loop, Outcome, Tolerances, damping_diagonal
from neurecover.statistics import InformationSums, Residuals

M = TypeVar("M", bound=Network | DeepNetwork | Composite)


@dataclass(frozen=True)
class ModelFitOptions:
    """How far a fit from a start that is near goes."""

    steps: int = 300  # 100 were too few below three sigmoid units, on a set that 300 solve
    small: float = 1e-4  # of one equation's share of Σ r²: a full step that gains less has reached the optimum
    damping: float = 1e-6  # of the first step: the start is taken to be near


DEFAULTS = ModelFitOptions()


@dataclass(frozen=True)
class ModelFit(Generic[M]):
    """The network, its Σ r² and Σ y² on the samples, and why the fit ended.

    weakest is the smallest eigenvalue of Σ JᵀJ, scaled to unit diagonal and apart from the free scales: at the level of
    rounding where the samples leave some weight open.
    """

    network: M
    rss: float
    total: float
    outcome: Outcome
    weakest: float

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
    source: Source,
    model: M,
    deadline: Deadline | None = None,
    max_steps: int = DEFAULTS.steps,
    *,
    bias: bool = True,
    damping: float = DEFAULTS.damping,
) -> ModelFit[M]:
    """The network after damped Gauss–Newton on the samples of the source; bias=False leaves biases as they are."""
    nothing = reduce(source, Residuals(lambda X: np.zeros((len(X), model.n_outputs)), model.n_outputs))
    total = float(nothing.sums["residual_squared"].sum())
    small = DEFAULTS.small / max(nothing.n * model.n_outputs, 1)
    start = _Point(source, model, bias, model_rss(source, model), total)
    loop = Loop(start, Tolerances(promise=small, gain=small), Damping(damping)).advance(max_steps, deadline)
    end = loop.point
    return ModelFit(end.model, end.loss, total, loop.outcome, end.weakest())


def normal_equations(sums: InformationSums) -> DenseSystem:
    """Return the equations (F + N Nᵀ + λD) δ = g for a step of the free parameters."""
    F, g = sums.information()
    D = damping_diagonal(np.diag(F))
    N = free_directions(sums.model)[sums.free] * np.sqrt(D)[:, None]
    N = np.sqrt(D)[:, None] * N / np.maximum(np.linalg.norm(N, axis=0), 1e-300)
    return DenseSystem(np.asfortranarray(F + N @ N.T), g, D)


def stepped(model: M, bias: bool, step: np.ndarray) -> M:
    """Return the network with its free parameters moved."""
    theta = parameters(model)
    theta[free_parameters(model, bias)] += step
    return with_parameters(model, theta)


@dataclass(frozen=True, eq=False)
class _Point(Generic[M]):
    source: Source
    model: M
    bias: bool
    loss: float
    scale: float

    @cached_property
    def _system(self) -> DenseSystem:
        return normal_equations(reduce(self.source, InformationSums.of(self.model, self.bias)))

    def system(self) -> DenseSystem:
        return self._system

    def moved(self, step: np.ndarray) -> _Point[M] | None:
        if not np.isfinite(step).all():
            return None
        model = stepped(self.model, self.bias, step)
        loss = model_rss(self.source, model)
        return replace(self, model=model, loss=loss) if np.isfinite(loss) else None

    def weakest(self) -> float:
        if len(self._system.D) == 0:
            return 1.0
        root = np.sqrt(self._system.D)
        return float(np.linalg.eigvalsh(self._system.S / root / root[:, None])[0])


def model_rss(source: Source, model: Network | DeepNetwork | Composite) -> float:
    """Σ |y − f(x)|²."""
    width = 2 * sum(len(W) for W in model.hidden_weights)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(reduce(source, Residuals(model, model.n_outputs, width)).sums["residual_squared"].sum())
