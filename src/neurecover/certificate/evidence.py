"""What the search knows about a network, and its leave-one-out residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.certificate.information.plane_posterior import Draws
from neurecover.statistics import OutputPrecision


@dataclass(frozen=True)
class Evidence:
    """What the search knows about a network and the samples do not show.

    `asked` is the number of units that the caller gave (None: to be found); `sign_choices` the number of sign
    assignments that fit (0: not determined); `agreements` the number of independent descents that ended at the same
    optimum; `last_drop` the worth of the last unit dropped, N·log(Σr² without it / Σr² with it) per parameter.
    `precision` has the grids of the outputs, None if not examined. `at_rounding` says that the fit has reached the
    rounding of the outputs, so that no better one exists. `unrivalled` says that fits from starts a few standard errors
    away, or with other faint units, end at the same optimum; `nearby` has the units (k, r + 1), on whitened inputs and
    with biases last, of this optimum and of others as good that they ended at. `draws` are networks on whitened inputs
    drawn from the posterior, None if there is no need of them. `joined` held-out samples joined the fit, and others
    judged it. `line` is the mean squared residual of a straight line on held-out samples; `straight` says that the line
    is as good as the network, `better` that the network predicts better, and `predicts` that it beats the mean by BIC
    on all samples and is not clearly worse than the line. `copied` is the share of rows that are copies of others.
    """

    asked: int | tuple[int, ...] | None
    sign_choices: int = 1
    agreements: int = 0
    converged: bool = True
    last_drop: float = 0.0
    precision: OutputPrecision | None = None
    at_rounding: bool = False
    unrivalled: bool = True
    nearby: tuple[np.ndarray, ...] = ()
    draws: Draws | None = None
    joined: int = 0
    line: np.ndarray | None = None
    straight: bool = False
    better: bool = True
    predicts: bool = False
    copied: float = 0.0


@dataclass(frozen=True)
class LeftOut:
    """The error on samples that are left out of the fit.

    It is the mean square per output, over n samples whose squares have `freedom` degrees of freedom each.
    """

    mse: float
    freedom: float
    n: int
