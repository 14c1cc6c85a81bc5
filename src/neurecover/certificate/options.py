"""The numbers that decide about a certificate, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import chdtrc

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ProductOptions:
    """How the information matrix is tested by products with vectors if it is too large to be formed."""

    chance: float = 1e-6  # with which a direction that is not seen is taken for one that is
    rounds: int = 8  # of conjugate gradients: single precision gains a few digits in each
    products: int = 150  # in a round: four times what well-spread inputs take
    gain: float = 1e-3  # of the residual, in a round: what single precision holds
    aim: float = 0.7  # of what a round has to gain to be the last one: its estimate is from before the round
    nothing: float = 1e-9  # what rounding makes of μ = 0: (6e-8)² of a unit, over the floor of C, in a sum of terms
    damping: float = 1e-6  # in the preconditioner alone, whose matrix may be singular where S is not
    alone: float = 1e-4  # mean of ((I − H) ε)² over the draws that counts as none; as small by chance once in 4e7
    settled: float = 1e-5  # squares that a round explains over all equations: a tenth of `alone`
    widen: float = 2.4  # √(4 / χ²₄) at 5 %: an rms of four draws, widened, is an upper bound in 95 of 100 cases
    most_bytes: int = 2**30  # of the inputs in single precision, which are held

    @property
    def found(self) -> float:
        """η, the length of an error that says that every direction is seen but for `chance`."""
        return self.chance * float(np.sqrt(2.0 * np.pi)) / 4.0


@dataclass(frozen=True)
class OpenOptions:
    """Which weights count as determined where the samples do not determine all."""

    most: int = 2_000  # parameters: the null space takes all eigenvectors
    null: float = 1e-11  # eigenvalue of F of unit diagonal: beyond it rounding moves weights by less than `exact`
    dead: float = 1e-26  # F_aa over the largest: the effect of a weight is below rounding for every sample
    alike: float = 1e-6  # relative distance of two moves that may be the same
    references: int = 20  # weights of a row that are tried for fixing its scale: those that most others agree with
    meets: float = 1e-6  # relative size of a sum over turned units that counts as zero: rounding and near repeats
    most_units: int = 16  # whose subsets are looked at: 65,536 of them


@dataclass(frozen=True)
class CornerOptions:
    """Which samples next to the kinks are counted."""

    beside: int = 4  # times a unit's weights are passed over; 2 leave a mean of −0.9 in z at noise like the signal
    nearest: tuple[int, ...] = (4, 8, 16, 32)  # counted of every unit: how far a bend reaches is unknown
    fewest: int = 12  # in a count, for the normal distribution to hold
    most: float = 0.2  # of the samples: farther ones are not next to a kink


@dataclass(frozen=True)
class NestedOptions:
    """Which larger models a network is held against, and when one of them objects."""

    columns: int = 400  # of all outputs: more would cost more than the network's own parameters
    pairs: int = 5  # inputs up to which all products x_i x_j are tried; beyond, squares
    squares: int = 15  # inputs up to which these are tried; of more inputs, so many
    rounding: tuple[float, ...] = (0.25, 1.0)  # widths of a rounded kink, in standard deviations of z
    # The level of a test is that of Akaike's criterion, 2q for q columns, or 1/(2√N) where that is less. A term of some
    # size is t = δ√N standard errors, and those between one and three harm intervals and are missed: a share of all
    # sizes that falls like 1/√N, and the level with it. At N = 100 it is the usual 0.05.
    share: float = 0.5
    # A line that is left out moves a kink by more of its errors than the line itself has: of 1 + x/2 + 2 (x − 4)₊ with
    # n = 100 and noise of one the kink moves by 3.5 of them where the line's t is 2. So its level is larger by half.
    linear: float = 0.75
    least: float = 1e-3  # level of any of them, as of the other tests
    refit: float = 2e9  # multiplications that the fit with a line may take, as the test of shapes
    steps: int = 20  # of that fit, at least: from the network without a line it takes about ten

    def level(self, q: int, N: int, linear: bool = False) -> float:
        """Return the p-value below which q columns of another model, or of a line, object on N equations."""
        share = self.linear if linear else self.share
        return max(min(float(chdtrc(q, 2.0 * q)), share / np.sqrt(max(N, 1))), self.least)


@dataclass(frozen=True)
class AnswerOptions:
    """What the answers of an oracle have to show."""

    coarse: float = 1e-11  # relative rounding: clearly worse than sums in float64 (1e-15), better than float32 (6e-8)
    # A slope over 1/64 of an interval, extrapolated over all of it, and eight roundings: what a kink is told from.
    visible: float = 8 * 64


@dataclass(frozen=True)
class LabelOptions:
    """What labels have to show of halfspaces."""

    sure: float = 10.0  # difference of two BIC, odds of e⁵ ≈ 150, that settles a number of halfspaces
    # Labels that one halfspace more may explain. An outermost sample has a halfspace of its own, so one flipped label
    # is explained by it; two side by side are flipped with the square of the rate.
    outermost: float = 1.5
    degrees: tuple[int, ...] = (2, 3, 4)  # of curved rivals: ellipsoids and parabolas; waves; rings
    most_terms: int = 500  # of such a polynomial: as many columns of 20,000 rows take seconds
    # BIC by which a curved boundary has to be worse. In two dimensions a slab is a conic of one parameter more, so that
    # log n has to exceed it; of 40 unions of fresh seeds the least difference was 10.
    curved: float = 5.0
    # Errors of a boundary within which labels are wrong whatever the shape.
    beside: float = 4.0
    rows: int = 20_000  # samples that tests of the shape look at, as many as the search
    # Wrong labels, where there are any, below which nothing tells a part of the set from flipped labels: four within a
    # ball of radius 0.8 in five dimensions have the chance of 1e-6 to be so near, two of 6e-3.
    fewest_wrong: int = 4
    draws: int = 5_000  # of as many random samples: a p-value below `significance` with a third of it to spare
    compared: int = 100  # wrong labels whose distances are compared with those of random samples
    predicts: float = 0.5  # share of the mistakes of a constant that a predictor avoids


@dataclass(frozen=True)
class CertificateOptions:
    """The limits of every check, and how much work goes into its figure."""

    rounding: float = 100 * EPS  # residual over the size of the terms added up: sums of a few hundred of them
    singular: float = 1e-13  # smallest eigenvalue of F of unit diagonal: 500 roundings
    exact: float = 1e-8  # error that rounding may have left in a weight of an exact network: half of the digits
    same: float = 1e-7  # difference of weights that counts as none without noise: ten times `exact`
    at_kink: float = 1e-9  # |z| over |w||x| + |b| of a sample at a kink; one is so near by chance once in 1e9
    dependent: float = 1e-9  # relative singular value of A that counts as zero: far above rounding
    draws: int = 4  # of noise for leverages: their mean square is below 1e-6 of its expectation twice in 1e12 times
    alone: float = 1e-6  # 1 − leverage of a sole equation: of wrong answers one in 1e9 passes, at 1e-15 of rounding
    clear: float = 1e-3  # 1 − leverage that is clearly above what rounding leaves
    margin: int = 1  # samples at a kink beyond those that any unit can be laid through: one fits by chance in 1e12
    max_parameters: int = 6_000  # whose information matrix is formed, 288 MB; beyond, by products
    covariance: int = 1_000  # weights whose covariance is kept with the answer, 8 MB
    good_r2: float = 0.9  # of a good predictor
    nearly_all: float = 0.995  # R² beyond which 1 − R² says more in its digits

    copied: float = 0.05  # share of rows that are copies of others: standard errors are then 2.5 % too small
    significance: float = 1e-3  # of every test: one right network in a thousand is doubted by each
    chance: float = 1e-6  # of a kink that noise invents, and of signs that are wrongly excluded: 2^k sets are looked at
    apart: float = 5.0  # standard errors between two planes: one plane's weights differ by more once in two million
    carried: float = 5.0  # degrees of freedom of a standard error; below, Student's t holds for Gaussian noise alone
    few: int = 4  # noisy equations per parameter that tell noise from what is missing (calibrated on sweeps)
    marginal: float = 3.0  # worth per parameter of one more unit that noise explains (calibrated on sweeps)
    ties: int = 3  # samples with one value of an output, which noise without a grid does not give
    steps: float = 3.0  # of an output's grid to its standard deviation, for rounding to be as good as noise
    wide: float = (
        0.15  # largest standard error of a weight of a unit row: over 0.3 rad it turns as its tangent to 1.5 %
    )
    weak: float = 4.0  # least output weight of a unit in its standard errors
    # Σ (f − f̂)²/σ² of a misfit that a test of it alone, at `significance`, misses once in a thousand: (3.29 + 3.09)².
    unseen: float = 41.0
    # Wider errors where outputs were computed in a short float, whose errors partial sums share. Fitted, not derived:
    # of 12 networks in single precision (seeds 0 to 15 of `bench coverage`) 95 % intervals cover 91 % at 1, 96 % at
    # 1.25, 97 % at 1.5 and 99 % at 2, where the largest of 350 deviations is 3.1 standard errors; else it is above 4.
    shared: float = 2.0
    probes: int = 40  # random units that a residual must not correlate with, half of them near those found
    near_unit: float = 0.3  # of a unit's length, between it and a probe near it: units as like as that are common
    glance: int = 64  # rows in which a column has a value twice if it is other than usual in few rows
    within: float = 0.1  # rad from a kink that is next to it: holds many samples of about the density at the kink
    shape_work: float = 2e9  # multiplications that the test of shapes may take; beyond, directions are left out
    memory: int = 512 * 2**20  # bytes of inputs up to which repeated ones are counted once
    term_samples: int = 4_000  # from which the size of the terms of a forward pass is taken

    open: OpenOptions = field(default_factory=OpenOptions)
    by_products: ProductOptions = field(default_factory=ProductOptions)
    corners: CornerOptions = field(default_factory=CornerOptions)
    nested: NestedOptions = field(default_factory=NestedOptions)
    queries: AnswerOptions = field(default_factory=AnswerOptions)
    labels: LabelOptions = field(default_factory=LabelOptions)


DEFAULTS = CertificateOptions()
