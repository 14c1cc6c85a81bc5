"""The constants that decide about units found from Hermite coefficients, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HermiteOptions:
    """How coefficients are estimated, which units in them are real, and how much work both may take."""

    prior: float = 4.0  # ν, the coordinates that the prior of an order's error is worth
    growth: float = 1.6  # g, of the error with the order: measured at 1 and 2; beyond, the prior hardly counts
    operations: float = 3e11  # multiply–adds that a pass may cost, about 20 s on one core
    quick: float = 3e10  # the same of a look that only sharpens, about 2 s
    memory: int = 2**30  # bytes of the normal equations of a regression
    most_features: int = 60_000  # of one sample; beyond, the tensors are too large
    whole: int = 3_100  # features of order 4 up to which the span is looked for in all of them
    false_alarm: float = 0.01  # chance that noise adds to the number of units that flattenings show
    significance: float = 1e-3  # p-value below which inputs are called not Gaussian
    heavy: float = 1.7  # χ² of a right model over its degrees of freedom reached this: errors lie along the units
    starts: int = 8  # of a search for units
    counting_starts: int = 4  # while the number of units rises: too few of them have no right optimum to be found
    crowded: int = 3  # times as many starts for k > r: of 24, one in four right, all but one search in 1,000 find it
    sign_choices: int = 8  # assignments of signs that are fitted
    rough_signs: float = 0.1  # misfit of order 1, relative, up to which an assignment is considered
    exact_signs: float = 1e-6  # the same under exact tensors: rounding of a long subset sum
    share: float = 0.3  # of the time there is; the rest is the finisher's


DEFAULTS = HermiteOptions()
