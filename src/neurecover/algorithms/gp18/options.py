"""The numbers that decide about a lowest layer and what is above it, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class UpperOptions:
    """How the part above a known layer is fitted."""

    max_monomials: int = 2_000  # of a polynomial: normal equations of 32 MB
    sparse: float = 5.0  # standard errors below which a coefficient is dropped and the rest refitted
    worth: float = 0.5  # of what is left unexplained that a higher degree has to explain to be taken
    nearly: float = 1e-4  # relative Σ r² below which terms that few samples show may be all that is missing
    solved: float = 1e-20  # relative Σ r² of nothing but rounding


@dataclass(frozen=True)
class LayerOptions:
    """When a layer is one to rely on."""

    agreement: float = 0.998  # of held-out samples whose activity a correct layer predicts
    noisy_agreement: float = 0.985  # the same under noise: some at rest look active, and some at the boundary do not
    crowded: float = 0.8  # share of samples with an active unit above which thresholds are too low for Step 1
    most_hidden: float = 0.3  # of a threshold, beyond which a unit is too weak for the noise to be corrected for
    mixed: float = 0.005  # share on the rarer side of rest that the tails of the noise may have
    upper: UpperOptions = field(default_factory=UpperOptions)


@dataclass(frozen=True)
class ExponentialOptions:
    """How the curvature of Theorem 9 is cut into units."""

    base: float = 0.4  # shift −base·1 at which the curvature is taken; the only one of five that found all units
    idle: float = 0.1  # of the largest slope, below which an input belongs to no unit
    one: float = 0.75  # a ratio that may be 1: within units it was 0.94 or more in 18 data sets of 100,000 samples
    floor: float = 0.02  # ratios below this are noise, and gaps between them say nothing


DEFAULTS = LayerOptions()
EXPONENTIAL = ExponentialOptions()
