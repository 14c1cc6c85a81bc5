"""The constants that decide about a lowest layer, what is above it, and unions of halfspaces, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class UpperOptions:
    """How the part above a known layer is fitted, and all layers together."""

    max_monomials: int = 2_000  # of a polynomial: normal equations of 32 MB
    sparse: float = 5.0  # standard errors below which a coefficient is dropped and the rest refitted
    worth: float = 0.5  # of what is left unexplained that a higher degree has to explain to be taken
    nearly: float = 1e-4  # relative Σ r² below which terms that few samples show may be all that is missing
    solved: float = 1e-20  # relative Σ r² of nothing but rounding
    samples: int = 5_000  # with an active unit, for a fit of the upper part alone
    at_rest: int = 200  # samples without an active unit: they all say the same, so that a few are enough
    near_threshold: float = 0.3  # how far below it a unit may be for the fit to be told that it is at rest
    joint_load: int = 20  # samples with an active unit per parameter of the joint fit
    joint_work: float = 2e9  # multiply–adds of a step for which more samples than that are taken
    deep_starts: int = 20  # descents at most; the first that leaves nothing but rounding ends them
    first_share: float = 0.5  # of the time there is, for a first attempt that leaves some for a second
    first_descents: int = 25  # of a network on values of a layer that may be a little off, before the layer moves too
    peeled: float = 1e-9  # of the variance, unexplained by peeled layers that are not raced against descents
    peel_samples: int = 6_000  # that the tries to peel look at
    together: float = 0.7  # of them at most have several active units: one alone shows the part above along one axis
    peel_tries: int = 16  # candidates at most; the first that leaves nothing but rounding ends them


@dataclass(frozen=True)
class ActivityOptions:
    """When outputs show at which samples no unit is active."""

    digits: int = 12  # decimals to which outputs at rest agree: what rounding leaves of double precision
    fewest: int = 20  # samples at rest for their value to be one that repeats, or a peak to have a width
    smallest_share: float = 0.01  # the same, as a share of all
    peak: float = 0.15  # share of the samples whose shortest interval is looked for
    widest: float = 0.25  # σ over the spread of an output above which there is no peak to speak of
    far: float = 3.0  # σ from rest, which 0.3 % of the samples at rest exceed


@dataclass(frozen=True)
class UnionOptions:
    """How halfspaces are fitted to labels, started, split and counted."""

    rows: int = 20_000  # samples that the search looks at; the last fit takes all
    load: int = 5  # samples per parameter, at the least
    random_starts: int = 2  # after those that the moments and the missed samples give
    first_flips: float = 0.02  # rates of flipped labels to start from; the fit finds them
    narrow: float = 0.3  # tan α of the units of Step 1
    wide: float = 0.5  # tan α of other starts
    splits: int = 2  # units that are tried as two
    beside: float = 0.7  # how far outside a boundary is looked for a unit that may be two
    turn: float = 0.4  # radians by which the halves of a unit start apart from it
    excess: float = 1.0  # standard errors, about, above the eigenvalue of flipped labels
    stages: int = 25  # of sharpening, with Fisher scoring in each: tan α may halve from one to the next
    finest: float = 1e-7  # tan α at which boundaries of a million samples are sharp
    settled: float = 0.05  # relative change of tan α at the end
    enough: float = 1e-3  # share of samples on the wrong side, beyond those flipped, for no unit to be moved
    steps: int = 12  # of Fisher scoring in a stage, at the most
    gain: float = 0.05  # of log-likelihood, below which they end: half a unit is one standard error
    most_flipped: float = 0.45  # at one half labels say nothing, and beyond it inside and outside change places
    chains: int = 24  # of draws from the posterior of a boundary
    chain_steps: int = 30  # of each per dimension, of which the first third is left out
    rounds: int = 2  # over the units, since one's place decides which samples are another's own
    fewest: int = 200  # samples next to a boundary that are looked at
    nats: float = 30.0  # of log-likelihood per dimension between the centre and the edge of what is looked at
    largest: float = 1.0  # the tangent of an angle, or a threshold in deviations, that nothing determines
    held_out: float = 0.1  # of either class


@dataclass(frozen=True)
class LayerOptions:
    """When a layer is one to rely on."""

    agreement: float = 0.998  # of held-out samples whose activity a correct layer predicts
    noisy_agreement: float = 0.985  # the same under noise: some at rest look active, and some at the boundary do not
    held_out: float = 0.1  # of the samples measure the agreement
    good: float = 2e-3  # share of training samples on the wrong side up to which no other start is tried
    noisy_good: float = 0.02  # the same under noise
    noisy_flips: tuple[float, float] = (0.003, 0.02)  # where rates of wrong activity start: outside and inside
    crowded: float = 0.8  # share of samples with an active unit above which thresholds are too low for Step 1
    most_hidden: float = 0.3  # of a threshold, beyond which a unit is too weak for the noise to be corrected for
    mixed: float = 0.005  # share on the rarer side of rest that the tails of the noise may have
    activity: ActivityOptions = field(default_factory=ActivityOptions)
    union: UnionOptions = field(default_factory=UnionOptions)
    upper: UpperOptions = field(default_factory=UpperOptions)


@dataclass(frozen=True)
class ExponentialOptions:
    """How the curvature of Theorem 9 is cut into units."""

    base: float = 0.4  # shift −base·1 at which the curvature is taken; the only one of five that found all units
    idle: float = 0.1  # of the largest slope, below which an input belongs to no unit
    one: float = 0.75  # a ratio that may be 1: within units it was 0.94 or more in 18 data sets of 100,000 samples
    floor: float = 0.02  # ratios below this are noise, and gaps between them say nothing


@dataclass(frozen=True)
class SteepOptions:
    """How steep directions are scanned for, and which of them are units."""

    max_inputs: int = 6  # or units: the number of starts on the sphere of their span grows exponentially
    # ε of δ′ and δ″, widest first. Their noise grows like ε^−3/2 and ε^−5/2; δ‴, ε^−7/2, sees nothing in 10⁵ rows.
    widths: tuple[tuple[float, ...], ...] = ((0.3, 0.15, 0.08), (0.3, 0.2, 0.12))
    rows: int = 100_000  # that the search looks at
    entries: int = 10**7  # of features of order 3 that are held at once
    apart: float = 0.97  # |cos| above which two maxima are one
    near: float = 0.9  # |cos| to a maximum above which a start leads to it
    rounds: int = 3  # of which each looks at what the units of the last one do not explain
    significant: float = 6.0  # standard errors; pure noise reaches about √(2 d log 1/ε), 5 for d = 6
    coarse: int = 40_000  # samples that the wide kernels look at: their noise is smaller
    growth: float = 0.8  # of 1/ε, by which the correlation grows at a unit
    patience: int = 12  # starts in a row that lead to maxima already known or to noise


DEFAULTS = LayerOptions()
EXPONENTIAL = ExponentialOptions()
STEEP = SteepOptions()
