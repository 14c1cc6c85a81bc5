"""Numbers that decide about a certificate, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import chdtrc

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ProductOptions:
    """How the information matrix is tested by products with vectors if it is too large to be formed."""

    chance: float = 1e-6  # probability of mistaking an unseen direction for a seen one
    rounds: int = 8  # of conjugate gradients: single precision gains a few digits in each
    products: int = 150  # in a round: four times as many as well-spread inputs need
    gain: float = 1e-3  # reduction of the residual in a round: the limit of single precision
    aim: float = 0.7  # share of the required gain that ends the rounds: the estimate is from before the round
    nothing: float = 1e-9  # value of μ = 0 after rounding: (6e-8)² of a unit, over the floor of C, in a sum of terms
    damping: float = 1e-6  # only in the preconditioner, which may be singular although S is not
    alone: float = 1e-4  # mean of ((I − H) ε)² over the draws that counts as zero; as small by chance once in 4e7
    settled: float = 1e-5  # share of all squares that the last round explains: a tenth of `alone`
    widen: float = 2.4  # √(4 / χ²₄) at 5 %: an rms of four draws, widened, is an upper bound in 95 of 100 cases
    most_bytes: int = 2**30  # largest size of the inputs held in memory, in single precision

    @property
    def found(self) -> float:
        """η: if the error is shorter, every direction is seen, except with probability `chance`."""
        return self.chance * float(np.sqrt(2.0 * np.pi)) / 4.0


@dataclass(frozen=True)
class OpenOptions:
    """Which weights count as determined if the samples do not determine all."""

    most: int = 2_000  # largest number of parameters: the null space takes all eigenvectors
    null: float = 1e-11  # eigenvalue of F of unit diagonal: beyond it rounding moves weights by less than `exact`
    dead: float = 1e-26  # F_aa over the largest: the effect of a weight is below rounding for every sample
    alike: float = 1e-6  # relative distance of two moves that may be the same
    references: int = 20  # weights of a row that are tried to fix its scale: those that most others agree with
    meets: float = 1e-6  # relative size of a sum over negated units that counts as zero: rounding and near repeats
    most_units: int = 16  # largest number of units whose subsets are tried: 65,536


@dataclass(frozen=True)
class CornerOptions:
    """Which samples next to the kinks are counted."""

    beside: int = 4  # times a unit's number of weights are skipped; with 2, z has mean −0.9 if noise is like the signal
    nearest: tuple[int, ...] = (4, 8, 16, 32)  # samples counted for every unit: the extent of a bend is unknown
    fewest: int = 12  # in a count, for the normal distribution to hold
    most: float = 0.2  # share of the samples: farther ones are not near a kink


@dataclass(frozen=True)
class NestedOptions:
    """Which larger models a network is tested against, and when one of them rejects it."""

    columns: int = 400  # over all outputs: more would cost more than the network's own parameters
    pairs: int = 5  # inputs up to which all products x_i x_j are tried; beyond, squares
    squares: int = 15  # largest number of squares that are tried
    rounding: tuple[float, ...] = (0.25, 1.0)  # widths of a rounded kink, in standard deviations of z
    # The level of a test is that of Akaike's criterion, 2q for q columns, or 1/(2√N) if that is less. A term of size δ
    # is t = δ√N standard errors. Terms with t between one and three are missed and harm the intervals; they are a share
    # of all sizes that falls like 1/√N, and so does the level. At N = 100 it is the usual 0.05.
    share: float = 0.5
    # A missing linear term moves a kink by more standard errors than it has itself: for 1 + x/2 + 2 (x − 4)₊ with
    # n = 100 and noise of one, the kink moves by 3.5 standard errors if the line's t is 2. So its level is 1.5 times.
    linear: float = 0.75
    least: float = 1e-3  # smallest level, as in the other tests
    refit: float = 2e9  # multiplications that the fit with a line may take, as the test of shapes
    steps: int = 20  # of that fit, at least: from the network without a line it takes about ten

    def level(self, q: int, N: int, linear: bool = False) -> float:
        """Return the p-value below which q columns of a larger model, or of a line, reject a fit to N equations."""
        share = self.linear if linear else self.share
        return max(min(float(chdtrc(q, 2.0 * q)), share / np.sqrt(max(N, 1))), self.least)


@dataclass(frozen=True)
class AnswerOptions:
    """Limits for the answers of an oracle."""

    coarse: float = 1e-11  # relative rounding: clearly worse than sums in float64 (1e-15), better than float32 (6e-8)
    # A kink must stand out from eight rounding errors in a slope over 1/64 of an interval, extrapolated over all of it.
    visible: float = 8 * 64


@dataclass(frozen=True)
class LabelOptions:
    """Limits for halfspaces from labels."""

    sure: float = 10.0  # difference of two BIC, odds of e⁵ ≈ 150, that decides the number of halfspaces
    # Labels that one more halfspace may explain. A halfspace can cut off any outermost sample, so it can explain one
    # flipped label; two adjacent labels are both flipped with the square of the rate.
    outermost: float = 1.5
    degrees: tuple[int, ...] = (2, 3, 4)  # of curved rivals: ellipsoids and parabolas; waves; rings
    most_terms: int = 500  # of such a polynomial: as many columns of 20,000 rows take seconds
    # BIC by which a curved boundary must be worse. In two dimensions a slab is a conic with one more parameter, so
    # log n must exceed this; for 40 unions with fresh seeds the smallest difference was 10.
    curved: float = 5.0
    rounded: float = 0.01  # share of the inputs that rounding the corners has to turn to be worth mentioning
    apart: float = 4.0  # deviance: rounded corners are two standard errors away
    # Standard errors of a boundary within which a wrong label says nothing about the shape.
    beside: float = 4.0
    rows: int = 20_000  # samples in the tests of the shape, as many as in the search
    # With fewer wrong labels, a missed part of the set cannot be distinguished from flipped labels: four lie within a
    # ball of radius 0.8 in five dimensions with probability 1e-6, two with 6e-3.
    fewest_wrong: int = 4
    # p-value below which wrong labels have a pattern: one noisy union in a hundred is asked for more samples. A
    # star of 770 labels, with 12 % of those inside taken for flipped, had 0.008.
    pattern: float = 0.01
    draws: int = 6_000  # random sets of as many samples: four p-values below `pattern` with much to spare
    compared: int = 100  # wrong labels whose distances are compared with those of random samples
    predicts: float = 0.5  # share of the mistakes of a constant that a predictor avoids


@dataclass(frozen=True)
class SegmentOptions:
    """Limits for broken lines of one input."""

    freedom: float = 3.0  # degrees of freedom: with fewer, an estimate of the noise is too uncertain to use
    further: float = 0.01  # p-value below which the number of hinges counts as too small
    scatter: float = 0.01  # p-value below which shares or counts scatter more than their family says
    least: float = 2.0  # information in a segment, whose line has two numbers
    few: float = 0.05  # largest share of outliers where the other rows are exact
    at_limit: float = 0.05  # probability of a break next to the limits of the search: about as much lies beyond them


@dataclass(frozen=True)
class CertificateOptions:
    """The limits of every check, and how much work goes into its figure."""

    rounding: float = 100 * EPS  # residual over the size of the terms: enough for sums of a few hundred
    singular: float = 1e-13  # smallest eigenvalue of F with unit diagonal: 500 roundings
    exact: float = 1e-8  # largest rounding error of a weight in an exact network: half the digits
    same: float = 1e-7  # difference of weights that counts as zero without noise: ten times `exact`
    at_kink: float = 1e-9  # |z| over |w||x| + |b| of a sample at a kink; one is so near by chance once in 1e9
    dependent: float = 1e-9  # relative singular value of A that counts as zero: far above rounding
    draws: int = 4  # of noise for leverages: their mean square is below 1e-6 of its expectation twice in 1e12
    alone: float = 1e-6  # 1 − leverage of a sole equation: of wrong answers one in 1e9 passes, at 1e-15 of rounding
    clear: float = 1e-3  # 1 − leverage that is clearly above rounding
    margin: int = 1  # samples beyond those that a wrong unit can fit: one more fits by chance once in 1e12
    max_parameters: int = 6_000  # with more, the information matrix (288 MB) is not formed; its products are used
    covariance: int = 1_000  # largest number of weights whose covariance is kept in the result, 8 MB
    good_r2: float = 0.9  # of a good predictor
    nearly_all: float = 0.995  # R² beyond which 1 − R² is shown instead

    copied: float = 0.05  # share of rows that are copies of others: standard errors are then 2.5 % too small
    significance: float = 1e-3  # of every test: each one rejects one right network in a thousand
    chance: float = 1e-6  # probability of a kink made by noise, and of wrongly excluded signs: 2^k sets are tested
    apart: float = 5.0  # standard errors between two planes: one plane's weights differ by more once in two million
    carried: float = 5.0  # degrees of freedom of a standard error; below, Student's t holds for Gaussian noise alone
    few: int = 4  # noisy equations per parameter that distinguish noise from a missing part (calibrated on sweeps)
    marginal: float = 3.0  # gain per parameter of one more unit that noise explains (calibrated on sweeps)
    ties: int = 3  # samples with the same output value; noise without a grid gives fewer
    steps: float = 3.0  # ratio of an output's standard deviation to its grid above which rounding acts like noise
    # Largest standard error to first order of a weight of a unit row: over 0.2 rad it turns as its tangent to 0.7 %.
    wide: float = 0.1
    held: float = 2.0  # standard errors from this optimum, at most, of others as good: a 95 % interval holds them
    weak: float = 4.0  # smallest output weight of a unit, in standard errors
    # Σ (f − f̂)²/σ² of a misfit that its own test at `significance` misses once in a thousand: (3.29 + 3.09)².
    unseen: float = 41.0
    uneven: float = 1.5  # times by which equal noise in all outputs would reduce errors: less is not worth a sentence
    # Factor for errors if outputs were computed in a short float, whose errors partial sums share. Fitted, not derived:
    # of 12 networks in single precision (seeds 0 to 15 of `bench coverage`) 95 % intervals cover 91 % at 1, 96 % at
    # 1.25, 97 % at 1.5 and 99 % at 2, where the largest of 350 deviations is 3.1 standard errors; else it is above 4.
    shared: float = 2.0
    probes: int = 40  # random units that a residual must not correlate with, half of them near those found
    near_unit: float = 0.3  # relative distance of a probe from the unit near it: units this similar are common
    glance: int = 64  # rows in which a column that differs from its usual value in few rows repeats a value
    within: float = 0.1  # rad from a kink that count as near: holds many samples, with about the density at the kink
    shape_work: float = 2e9  # multiplications that the test of shapes may take; beyond, directions are left out
    memory: int = 512 * 2**20  # bytes of inputs up to which repeated inputs are counted once
    term_samples: int = 4_000  # samples that give the size of the terms of a forward pass

    open: OpenOptions = field(default_factory=OpenOptions)
    by_products: ProductOptions = field(default_factory=ProductOptions)
    corners: CornerOptions = field(default_factory=CornerOptions)
    nested: NestedOptions = field(default_factory=NestedOptions)
    queries: AnswerOptions = field(default_factory=AnswerOptions)
    labels: LabelOptions = field(default_factory=LabelOptions)
    segments: SegmentOptions = field(default_factory=SegmentOptions)


DEFAULTS = CertificateOptions()
