"""What the search knows of a network, and what samples without a part in its fit leave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.statistics import OutputPrecision


@dataclass(frozen=True)
class Evidence:
    """What the search knows and the samples do not show.

    asked is the number of units the caller gave (None: to be found), sign_choices how many assignments of signs fit
    (0: not determined), agreements how many independent descents ended at the same optimum, last_drop what the last
    unit that was dropped was worth, N·log(Σr² without it / Σr² with it) per parameter. `precision` is what grids the
    outputs lie on, None where nobody has looked, and at_rounding says whether the fit has reached their rounding: then
    no better one is to be found. unrivalled says whether fits from starts a few standard errors away, or with other
    faint units, end at the same optimum. `joined` held-out samples were fitted after all, and others had to judge.
    `line` is what a straight line leaves of held-out samples, `straight` says that it does as well, `better` that the
    network predicts better, and `predicts` that it beats the mean by BIC on all samples and is not clearly worse than
    the line. `copied` is the share of rows that are copies of others.
    """

    asked: int | tuple[int, ...] | None
    sign_choices: int = 1
    agreements: int = 0
    converged: bool = True
    last_drop: float = 0.0
    precision: OutputPrecision | None = None
    at_rounding: bool = False
    unrivalled: bool = True
    joined: int = 0
    line: np.ndarray | None = None
    straight: bool = False
    better: bool = True
    predicts: bool = False
    copied: float = 0.0


@dataclass(frozen=True)
class LeftOut:
    """What samples without a part in the fit leave.

    The mean square of an output, over n samples whose squares have `freedom` degrees of freedom each.
    """

    mse: float
    freedom: float
    n: int
