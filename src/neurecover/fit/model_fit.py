"""Least squares over all parameters θ of any network at once: damped Gauss–Newton on Σ |y − f_θ(x)|²,

    (Σ JᵀJ + N Nᵀ + λD) δ = Σ Jᵀr,        D = diag Σ JᵀJ.

From a start that is near, this is a short way: the residuals are smooth but for the few samples at a kink, and without
noise they vanish at the truth. The columns of N are the scales that a unit can hand to the layer above: N Nᵀ holds them
where they are and changes nothing else, because Σ JᵀJ and Σ Jᵀr vanish along N. The loop is `solve.Loop`; one pass over
the samples gives Σr² at a θ and the equations of the next step.

**Streams**, where a pass is what costs. A search on a sample of m rows ends about √(P/m) standard errors of one row
from the optimum on all n. One pass gives the sums on the rows that are not held out, those on all, and what is left on
the others. The loop moves θ by the first alone, so that no held-out row has a part in it; once the next step is to be
small it is trusted, and the last one is that of all rows. A step's promise e = gᵀF⁻¹g / (σ² P) is 1 where it moves the
weights by their standard errors. From 100 P rows the second step is the last (measured at n = 3,000,000, P = 133: 194,
0.06, 0.0003).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, Self, TypeVar

import numpy as np

from neurecover.data import Prepared, Source, Whitened, reduce
from neurecover.fit import EXACT
from neurecover.models import (
    Composite,
    DeepNetwork,
    Network,
    Polynomial,
    away_from_samples,
    free_directions,
    free_parameters,
    parameters,
    with_parameters,
)
from neurecover.solve import Damping, Deadline, DenseSystem, Loop, Outcome, Tolerances, damping_diagonal
from neurecover.statistics import Divided, InformationSums, PreactivationRange, Residuals

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
    """Return whether all parts of a network have parameters and derivatives."""
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
    """Return the network after damped Gauss–Newton steps on the samples of the source; bias=False keeps the biases
    fixed.
    """
    nothing = reduce(source, Residuals(lambda X: np.zeros((len(X), model.n_outputs)), model.n_outputs))
    total = float(nothing.sums["residual_squared"].sum())
    small = DEFAULTS.small / max(nothing.n * model.n_outputs, 1)
    start = _Point(source, model, bias, total)
    loop = Loop(start, Tolerances(promise=small, gain=small), Damping(damping)).advance(max_steps, deadline)
    end = loop.point
    return ModelFit(end.model, end.loss, total, loop.outcome)


def normal_equations(sums: InformationSums) -> DenseSystem:
    """Return the equations (F + N Nᵀ + λD) δ = g for a step of the free parameters."""
    F, g = sums.information()
    D = damping_diagonal(np.diag(F))
    N = free_directions(sums.model)[sums.free] * np.sqrt(D)[:, None]
    N = np.sqrt(D)[:, None] * N / np.maximum(np.linalg.norm(N, axis=0), 1e-300)
    return DenseSystem(np.asfortranarray(F + N @ N.T), g, D)


def stepped(model: M, bias: bool, step: np.ndarray) -> M:
    """Return the network with its free parameters moved by a step."""
    theta = parameters(model)
    theta[free_parameters(model, bias)] += step
    return with_parameters(model, theta)


@dataclass(frozen=True, eq=False)
class _Point(Generic[M]):
    source: Source
    model: M
    bias: bool
    scale: float

    @cached_property
    def sums(self) -> InformationSums:
        with np.errstate(over="ignore", invalid="ignore"):  # of a step too long
            return reduce(self.source, InformationSums.of(self.model, self.bias))

    @property
    def loss(self) -> float:
        return float(self.sums.sums["rr"].sum())

    def system(self) -> DenseSystem:
        return normal_equations(self.sums)

    def moved(self, step: np.ndarray) -> Self | None:
        return replace(self, model=stepped(self.model, self.bias, step)) if np.isfinite(step).all() else None


@dataclass(frozen=True)
class PassOptions:
    """Where passes are made, and when they end."""

    largest: int = 6_000  # parameters whose curvature is formed: 288 MB
    steps: int = 8  # tried, with a pass each but for one that is trusted; two are usual
    small: float = 0.01  # the promise of a step that need not be taken: a tenth of the standard errors
    # At first λ changes nothing but keeps a singular curvature from being factorised; a pass is too dear to be made
    # for a λ that hardly does more, on the way up and down.
    damping: Damping = field(default_factory=lambda: Damping(1e-12, smallest=1e-12, fall=0.01, retry=1e-3))


def fit_in_passes(
    given: Prepared, network: Network | DeepNetwork, bias: bool, options: PassOptions | None = None
) -> tuple[ModelFit[Network | DeepNetwork], Residuals]:
    """Fit a network that was found on some samples of a stream to all of them.

    Return also the residuals on rows that had no part in the fit.
    """
    options, moments = options or PassOptions(), given.fitted_moments
    variance = np.diag(moments.covariance)[given.source.n_inputs :].sum()
    total = moments.n * float(variance + np.square(given.output_mean).sum())  # Σ y²
    P, N = len(free_parameters(network, bias)), moments.n * network.n_outputs
    trusted = options.small * P / max(N - P, 1)  # predicted/Σr² with σ² = Σr²/(N − P)
    tolerances = Tolerances(EXACT, promise=0.0, gain=0.0, trusted=trusted)
    start = _Pass(given.source, network, bias, total, given)
    loop = Loop(start, tolerances, options.damping).advance(options.steps)
    seen, end = loop.point.seen, loop.point.model
    if loop.ahead is not None:
        step = normal_equations(seen.whole).solve(loop.damping.value)
        end = end if step is None else stepped(end, bias, step)
    end = away_from_samples(end, -seen.extremes.sums["lowest"], seen.extremes.sums["highest"])
    rss = float(np.sum(seen.whole.sums["rr"]))
    return ModelFit(end, rss, total, loop.outcome), seen.holdout


@dataclass(frozen=True, eq=False)
class _Seen:
    """The results of one pass: the sums over training rows and over all rows, and the residuals on held-out rows."""

    train: InformationSums
    whole: InformationSums
    holdout: Residuals
    extremes: PreactivationRange


@dataclass(frozen=True, eq=False)
class _Pass(_Point[M]):
    """A point whose sums are over the rows of a stream that are not held out."""

    given: Prepared

    @cached_property
    def sums(self) -> InformationSums:
        return self.seen.train

    @cached_property
    def seen(self) -> _Seen:
        """Make one pass: the sums, and the residuals on the rows that are held out."""
        assert self.given.stream is not None
        whitening, network = self.given.whitening, self.model
        assert isinstance(network, Network | DeepNetwork)
        width = sum(len(W) for W in network.hidden_weights)
        left = Residuals(network, network.n_outputs, width, self.given.output_mean)
        sums, ends = InformationSums.of(network, self.bias), PreactivationRange(network)
        train = Whitened(whitening, sums=sums, ends=ends)
        held = Whitened(whitening, sums=sums.blank(), ends=ends.blank(), left=left)
        both = reduce(self.given.source, Divided(self.given.stream.division, train=train, held=held))
        train, held = both.part("train", Whitened), both.part("held", Whitened)
        sums, ends = train.part("sums", InformationSums), train.part("ends", PreactivationRange)
        whole = sums.from_arrays(sums.to_arrays())
        whole.merge(held.part("sums", InformationSums))
        ends.merge(held.part("ends", PreactivationRange))
        return _Seen(sums, whole, held.part("left", Residuals), ends)
