"""Segmented regression of one input: from rows to breaks with intervals, tests and the checks of a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from neurecover.hinges.checks.further import FurtherHinges, Rows, further_hinges
from neurecover.hinges.checks.rivals import Rival, best_rival
from neurecover.hinges.checks.serial import Serial, serial_correlation
from neurecover.hinges.counting import Counted, Problem, count_hinges, rounding_floor
from neurecover.hinges.families import FAMILIES, Dispersion, Likelihood
from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.posterior import Posterior, posterior
from neurecover.hinges.projection import hinge_columns, tangent_columns
from neurecover.hinges.robust import PseudoValues, first_curve, pseudo_values
from neurecover.hinges.search import BrokenLine, best_breaks
from neurecover.pipeline.robust import RobustOptions, clipped


@dataclass(frozen=True, eq=False)
class Estimated:
    """The least-squares fit and the posterior.

    `line` is the broken line that is reported, in z: at the posterior means of the breaks, or the least-squares one.
    """

    fit: BrokenLine
    line: BrokenLine
    posterior: Posterior

    @classmethod
    def of(
        cls, fit: BrokenLine, squares: bool, rng: np.random.Generator, options: HingeOptions = DEFAULTS
    ) -> Estimated:
        """Add the posterior to a fit; `squares` reports the least-squares line."""
        over = posterior(fit, rng, options)
        line = fit if squares else BrokenLine.at(fit.points, over.weight @ over.breaks)
        return cls(fit, line, over)

    @property
    def points(self) -> Points:
        return self.fit.points

    @property
    def n_hinges(self) -> int:
        return len(self.fit.breaks)

    @property
    def dof(self) -> float:
        return self.points.total - self.fit.n_parameters

    @property
    def noise(self) -> float:
        """The standard deviation of the noise, from the least-squares residual."""
        return float(np.sqrt(self.fit.rss / max(self.dof, 1.0)))


@dataclass(frozen=True, eq=False)
class Segmented(Estimated):
    """What was estimated, and what was tested.

    `no_hinge` tests a straight line, `further` this number of hinges, both against up to three more. `outliers` are
    rows (positions) far off the fit. Where their number was sought, `bic` is that of 0, 1, … hinges and `log_odds` the
    log of their probability over that of none. `exact` says that the residual is rounding, and `spare` that one hinge
    fewer leaves no more than that. `loss` is what is made least, or the family of shares and counts, whose `dispersion`
    says whether rows scatter as it says.
    """

    no_hinge: FurtherHinges
    further: FurtherHinges
    serial: Serial
    rival: Rival | None
    outliers: np.ndarray
    bic: tuple[float, ...]
    log_odds: tuple[float, ...]
    exact: bool
    loss: str
    told: bool
    spare: bool = False
    dispersion: Dispersion | None = None


def segment(
    x: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    n_hinges: int | None,
    loss: str,
    estimate: str,
    rng: np.random.Generator,
    options: HingeOptions = DEFAULTS,
    family: str = "normal",
) -> Segmented:
    """Fit broken lines to the rows x (n,), y (n,)."""
    if family != "normal":
        counts = Likelihood.of(FAMILIES[family], x, y, weight, options)
        made = _examined(counts, n_hinges, estimate, rng, options)
        return replace(made, loss=family, dispersion=counts.dispersion(made.fit))
    if loss == "squared":
        return _examined(Squares.of(x, y, weight, options), n_hinges, estimate, rng, options)
    values, line = _by_pseudo_values(x, y, weight, n_hinges, loss, rng, options)
    found = _examined(Squares.of(x, values.y, weight, options), len(line.breaks), estimate, rng, options)
    return replace(found, outliers=np.flatnonzero(values.outliers), loss=loss, told=n_hinges is not None)


def fitted_line(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, n_hinges: int, loss: str, family: str = "normal"
) -> BrokenLine:
    """Return the fit alone, without posterior and tests."""
    if family != "normal":
        problem: Problem = Likelihood.of(FAMILIES[family], x, y, weight, DEFAULTS)
    elif loss == "squared":
        problem = Squares.of(x, y, weight, DEFAULTS)
    else:
        return _by_pseudo_values(x, y, weight, n_hinges, loss, np.random.default_rng(0), DEFAULTS)[1]
    return problem.fit(n_hinges)


def _by_pseudo_values(
    x: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    n_hinges: int | None,
    loss: str,
    rng: np.random.Generator,
    options: HingeOptions,
) -> tuple[PseudoValues, BrokenLine]:
    """Return pseudo-values of a robust loss with the number of breaks that they call for, and the line.

    With little noise a first curve through most rows keeps its corners, and has the other rows for outliers. So if
    outliers are many, clipped outputs are a second start.
    """
    how = RobustOptions()
    found: list[tuple[PseudoValues, BrokenLine]] = []
    for outputs in (pseudo_values(y, first_curve(x, y), 2, loss).y, clipped(y)):
        before = -1
        for _ in range(how.rounds):
            problem = Squares.of(x, outputs, weight, options)
            K = len(count_hinges(problem, rng, options).fit.breaks) if n_hinges is None else n_hinges
            if before == K:
                break
            values, fit = _settled(x, y, outputs, weight, K, loss, options)
            outputs, before = values.y, K
        found.append((values, fit))
        if values.outliers.mean() <= how.few:
            break
    return min(found, key=lambda one: one[0].outliers.sum())


def _settled(
    x: np.ndarray, y: np.ndarray, outputs: np.ndarray, weight: np.ndarray | None, K: int, loss: str,
    options: HingeOptions,
) -> tuple[PseudoValues, BrokenLine]:  # fmt: skip
    """Iterate pseudo-values, the first of which are `outputs`, until the line with K breaks stays the same."""
    how, before = RobustOptions(), np.full(len(y), np.inf)
    for _ in range(20):  # every round gains a digit or more
        fit = best_breaks(Points.of(x, outputs, weight), K, options)
        fitted = fit.points.level + fit((x - fit.points.centre) / fit.points.size)
        values = pseudo_values(y, fitted, fit.n_parameters, loss)
        if np.sqrt(np.mean((fitted - before) ** 2)) <= how.settled * values.scale:
            break
        outputs, before = values.y, fitted
    return values, fit


@dataclass(frozen=True, eq=False)
class Squares:
    """Rows with noise of a size that is not known: the `Problem` of least squares."""

    x: np.ndarray
    y: np.ndarray
    points: Points
    rows: Rows
    floor: float
    options: HingeOptions

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, options: HingeOptions) -> Squares:
        """Gather the rows x (n,), y (n,)."""
        points = Points.of(x, y, weight)
        return cls(x, y, points, Rows.of(points, x, y, weight), rounding_floor(points), options)

    def fit(self, K: int) -> BrokenLine:
        """Return the fit with K breaks."""
        return best_breaks(self.points, K, self.options)

    def rows_of(self, fit: BrokenLine) -> Rows:
        """Return the rows, which are the same for every fit."""
        return self.rows

    def bic(self, fit: BrokenLine) -> float:
        """Return n log(RSS/n) + log(n) for every parameter."""
        return fit.bic(self.floor)

    def beyond_squares(self, fit: BrokenLine, straight: BrokenLine) -> float:
        """Return zero: for least squares, log L follows from the sums of squares."""
        return 0.0

    def outliers(self, fit: BrokenLine) -> np.ndarray:
        """Return the rows whose studentised residual is larger than normal noise gives in one data set of a hundred."""
        points = self.points
        z = (self.x - points.centre) / points.size
        residual = self.y - points.level - fit(z)
        dof = points.n - fit.n_parameters - 1.0
        if dof < 3.0:
            return np.zeros(0, dtype=int)
        X = hinge_columns(z, fit.breaks)
        leverage = np.einsum("ij,jk,ik->i", X, np.linalg.pinv(X.T @ X), X)
        share = residual**2 / (np.maximum(1.0 - leverage, 1e-3) * fit.rss)
        t = np.sqrt(share * dof / np.maximum(1.0 - share, 1e-12))
        return np.flatnonzero(t > -stdtrit(dof, 0.5 * self.options.outlier / len(self.x)))


def _fitted(problem: Problem, n_hinges: int | None, rng: np.random.Generator, options: HingeOptions) -> Counted:
    if n_hinges is None:
        return count_hinges(problem, rng, options)
    return Counted(problem.fit(n_hinges), (), (), ())


def _examined(
    problem: Problem, n_hinges: int | None, estimate: str, rng: np.random.Generator, options: HingeOptions
) -> Segmented:
    """Fit a broken line, test it and estimate its parameters."""
    counted = _fitted(problem, n_hinges, rng, options)
    fit, floor = counted.fit, problem.floor
    rows, points = problem.rows_of(fit), fit.points
    exact = fit.rss <= floor
    known = {test.n_hinges: test for test in counted.tests}
    straight = known.get(0) or _test(problem, fit if len(fit.breaks) == 0 else problem.fit(0), rng, options)
    if exact and len(fit.breaks):  # without noise any hinge is beyond doubt
        straight = FurtherHinges(0, 0.0)
    nothing = FurtherHinges(len(fit.breaks), 1.0)
    if exact:
        further = nothing
    elif len(fit.breaks) == 0:
        further = straight
    else:
        further = known.get(len(fit.breaks)) or _test(problem, fit, rng, options)
    order = np.argsort(rows.group, kind="stable")
    z = points.z[rows.group[order]]
    root = np.sqrt(rows.weight[order])
    residual = root * (rows.y[order] - fit(z))
    serial = serial_correlation(root[:, None] * tangent_columns(z, fit.breaks), residual)
    made = Estimated.of(fit, estimate == "least_squares" or exact, rng, options)
    return Segmented(
        made.fit,
        made.line,
        made.posterior,
        straight,
        further,
        serial if not exact else Serial(0.0, 0.0, 1.0),
        None if exact else best_rival(fit, floor, options),
        np.zeros(0, dtype=int) if exact else problem.outliers(fit),
        counted.bic,
        counted.log_odds,
        exact,
        "squared",
        n_hinges is not None,
        exact and len(fit.breaks) > 0 and problem.fit(len(fit.breaks) - 1).rss <= floor,
    )


def _test(problem: Problem, fit: BrokenLine, rng: np.random.Generator, options: HingeOptions) -> FurtherHinges:
    return further_hinges(fit.points, problem.rows_of(fit), fit.breaks, rng, options)
