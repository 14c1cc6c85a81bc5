"""Segmented regression as a scikit-learn regressor."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import stdtr, stdtrit
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from neurecover.certificate import Certificate, interval
from neurecover.data.opening import check_frame
from neurecover.exceptions import NotRecoveredWarning
from neurecover.excerpt import Excerpt
from neurecover.hinges.certifying import as_network, certify_line
from neurecover.hinges.families import FAMILIES
from neurecover.hinges.inference import METHODS, Estimate, covariance, predict_errors, table
from neurecover.hinges.options import DEFAULTS
from neurecover.hinges.planes import Planes, fit_planes, parameter_names, parameters, prediction_errors
from neurecover.hinges.segmented import Segmented, fitted_line, segment
from neurecover.models import DeepNetwork, Network
from neurecover.random import as_generator
from neurecover.results import Recovery, Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ONE = 0.6827  # probability of one standard deviation on either side
_LARGEST = 1e100  # of a number: the fourth root of the largest double leaves room for products with slopes
LINKS = {"binomial": "logit", "poisson": "logarithm"}


class HingeRegression(RegressorMixin, BaseEstimator):
    """Segmented regression: a line, or a plane, with hinges, their number and error bars.

    For one input y = α + βx + Σⱼ δⱼ (x − ψⱼ)₊ + noise, with breaks ψ; for several y = c + C·x + Σⱼ aⱼ (wⱼ·x + bⱼ)₊ +
    noise. Repeated and rounded rows are observations like others. No hinge at all is an answer too.

    Parameters
    ----------
    n_hinges : int or None, default=None
        The number of hinges. None finds it: for one input by a test of no hinge that allows for noise of unequal size,
        then the most probable number; for several inputs by BIC.

    loss : {"squared", "huber", "tukey"}, default="squared"
        What is made least. The robust ones bound the influence of outliers, whose rows are in `outliers_`.

    estimate : {"posterior", "least_squares"}, default="posterior"
        Which breaks are reported for one input: the posterior means, which are closer to the truth where the noise is
        large, or those with the least sum of squares (with a family: of maximum likelihood).

    family : {"normal", "binomial", "poisson"}, default="normal"
        What the output is, for one input. Binomial: shares in y with `sample_weight` rows each, or zeros and ones,
        whose logit has breaks. Poisson: counts, or rates with their exposure in `sample_weight`, whose logarithm has
        breaks.
        `predict` returns means; `network_` and the estimates are of the logit or the logarithm.

    random_state : int, RandomState instance, Generator or None, default=0
        The seed of the tests' draws and of the search in several inputs.

    Attributes
    ----------
    n_hinges_ : int
        The number of hinges.

    breakpoints_, breakpoint_intervals_ : ndarray of shape (k,) and (k, 2)
        The breaks and their 95 % intervals, for one input.

    slopes_, intercepts_ : ndarray of shape (k + 1,)
        The slope of every segment and its value continued to x = 0, for one input.

    covariance_ : ndarray of shape (p, p)
        The covariance of the constant, the first slope, the slope changes and the breaks, or for several inputs of the
        parameters in the order of `conf_int`.

    network_ : Network
        The same as a ReLU network with an affine term.

    recovery_ : Recovery or None
        The network with its certificate; None for several inputs without a hinge.

    certificate_ : Certificate or None
        The verdict and the checks that led to it; None as `recovery_` is.

    no_hinge_pvalue_ : float
        The p-value of a straight line, or of a plane, against hinges.

    outliers_ : ndarray of int
        Rows far off the fit.

    n_features_in_ : int
        The number of inputs.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where X had any.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 10, 200)
    >>> y = 1 + 0.5 * x + 2 * np.maximum(x - 4, 0) + rng.normal(size=200)
    >>> model = nr.HingeRegression().fit(x[:, None], y)
    >>> model.n_hinges_, model.certificate_.verdict
    (1, 'statistical')
    """

    n_features_in_: int
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hinges": [Interval(Integral, 0, None, closed="left"), None],
        "loss": [StrOptions({"squared", "huber", "tukey"})],
        "estimate": [StrOptions({"posterior", "least_squares"})],
        "family": [StrOptions({"normal", *FAMILIES})],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        n_hinges: int | None = None,
        loss: str = "squared",
        estimate: str = "posterior",
        family: str = "normal",
        random_state: Any = 0,
    ) -> None:
        self.n_hinges = n_hinges
        self.loss = loss
        self.estimate = estimate
        self.family = family
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HingeRegression:
        """Fit lines or planes with hinges.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        y : array-like of shape (n_samples,)
            The output.

        sample_weight : array-like of shape (n_samples,), default=None
            How many rows each row stands for. Weights that are precisions should have the mean one.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        check_frame(X, y)
        self._output = str(getattr(y, "name", None) or "y")
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        y = np.asarray(y, dtype=np.float64)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.family != "normal" and (X.shape[1] > 1 or self.loss != "squared"):
            told = f"{X.shape[1]} inputs" if X.shape[1] > 1 else f"loss='{self.loss}'"
            raise ValueError(f"family='{self.family}' is for one input and loss='squared'. Got {told} instead.")
        _check_sizes(X, y, self._input_names(), self._output)
        self._rows = X, y
        self._weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        (self._fit_line if X.shape[1] == 1 else self._fit_planes)(X, y, sample_weight)
        return self

    def _fit_line(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
        began = time.perf_counter()
        rng = as_generator(self.random_state, "hinges")
        found = segment(X[:, 0], y, weight, self.n_hinges, self.loss, self.estimate, rng, family=self.family)
        self._found: Segmented | Planes = found
        self.n_hinges_, self.network_ = found.n_hinges, as_network(found)
        self.covariance_ = covariance(found)
        figures = {line.name: line for line in table(found, 0.95, "posterior")}
        K = self.n_hinges_
        self.breakpoints_ = np.array([figures[f"break{j + 1}"].value for j in range(K)])
        ends = [(figures[f"break{j + 1}"].low, figures[f"break{j + 1}"].high) for j in range(K)]
        self.breakpoint_intervals_ = np.array(ends).reshape(K, 2)
        self.slopes_ = np.array([figures[f"slope{k + 1}"].value for k in range(K + 1)])
        self.intercepts_ = np.array([figures[f"intercept{k + 1}"].value for k in range(K + 1)])
        self.no_hinge_pvalue_, self.outliers_ = found.no_hinge.p_value, found.outliers
        self.certificate_: Certificate | None = certify_line(found, self.covariance_)
        seconds = time.perf_counter() - began
        stage = Stage("breaks", seconds, f"{K} by least squares and their posterior")
        self.recovery_: Recovery[Network | DeepNetwork] | None = Recovery(
            self.network_, self.certificate_, "segmented", (stage,), seconds, excerpt=self._excerpt(X, y)
        )
        if found.serial.p_value < DEFAULTS.serial:
            check = next(check for check in self.certificate_.checks if check.name == "neighbours")
            warnings.warn(check.sentence, stacklevel=3)

    def _fit_planes(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
        self.__dict__.pop("_drawn", None)  # of an earlier fit
        self._found = fit_planes(X, y, weight, self.n_hinges, DEFAULTS.most, self.random_state, self.loss)
        self.network_, self.recovery_ = self._found.network, self._found.recovery
        self.n_hinges_, self.covariance_ = self.network_.n_hidden, self._found.covariance
        self.certificate_ = None if self.recovery_ is None else self.recovery_.certificate
        self.no_hinge_pvalue_, self.outliers_ = self._found.no_hinge, self._found.outliers
        if self.recovery_ is not None:
            self.recovery_ = replace(self.recovery_, excerpt=self._excerpt(X, y))
            if self.recovery_.certificate.verdict == "failed":
                because = self.recovery_.certificate.reasons[0]
                warnings.warn(f"The verdict is failed. {because}", NotRecoveredWarning, stacklevel=3)

    def _excerpt(self, X: np.ndarray, y: np.ndarray) -> Excerpt:
        """Return what the pictures of the recovery show, with the names of the columns."""
        names = tuple(self._input_names()), (self._output,)
        fitted = self.network_(X) if self.family == "normal" else FAMILIES[self.family].mean(self.network_(X))
        return Excerpt.of_answers(X, self.network_, y[:, None], fitted, *names)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the fitted values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        return_std : bool, default=False
            Whether to give their standard errors as well; the noise of a further row is not in them.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The predictions.

        std : ndarray of shape (n_samples,)
            Their standard errors, with `return_std=True` alone.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if return_std:
            return self._with_errors(X)
        y = self.network_(X)[:, 0]
        return y if self.family == "normal" else FAMILIES[self.family].mean(y)

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """Return intervals that hold the outputs of further rows, noise included; for family="normal".

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            The inputs.
        level : float, default=0.95
            The probability with which an interval holds an output.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            The lower and the upper ends.
        """
        if self.family != "normal":
            raise ValueError(f"The output of a further row has an interval for family='normal'. Got '{self.family}'.")
        y, error = self.predict(X, return_std=True)
        reach = stdtrit(max(self._found.dof, 1.0), 0.5 + 0.5 * level) * np.hypot(error, self._found.noise)
        return np.column_stack([y - reach, y + reach])

    def _with_errors(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the predictions (n,) and their standard errors."""
        y, found = self.network_(X)[:, 0], self._found
        errors = predict_errors(found, X[:, 0]) if isinstance(found, Segmented) else prediction_errors(found, X)
        if self.family == "normal":
            return y, errors
        family = FAMILIES[self.family]
        return family.mean(y), family.slope(y) * errors

    def estimates(self, level: float = 0.95, method: str = "posterior") -> tuple[Estimate, ...]:
        """Return every parameter with standard error, t, p and interval.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds the truth.
        method : {"posterior", "profile", "wald"}, default="posterior"
            The kind of interval, as in `conf_int`.

        Returns
        -------
        tuple of Estimate
            With `name`, `value`, `error`, `t`, `p_value`, `low` and `high`.
        """
        check_is_fitted(self)
        if method not in METHODS:
            raise ValueError(f"method needs to be one of {', '.join(METHODS)}. Got {method!r} instead.")
        if not 0.0 < level < 1.0:
            raise ValueError(f"level needs to be between 0 and 1. Got {level} instead.")
        if isinstance(self._found, Segmented):
            # The slope before the first break has the name of its input, if it has one.
            named = getattr(self, "feature_names_in_", ("x",))
            found = table(self._found, level, method)
            return tuple(replace(line, name=str(named[0])) if line.name == "x" else line for line in found)
        values = parameters(self.network_)
        errors = np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))
        reach = stdtrit(self._found.dof, 0.5 + 0.5 * level) * errors
        low, high = values - reach, values + reach
        draws = self._draws() if method == "posterior" else None
        if draws is not None:
            # Of a posterior with long tails the variance is that of the tails: half the interval of one deviation.
            errors, (low, high) = 0.5 * np.diff(interval(draws, _ONE))[:, 0], interval(draws, level).T
        names = parameter_names(self.network_, self._input_names())
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(values / errors, posinf=np.inf, neginf=-np.inf)
        p = 2.0 * stdtr(self._found.dof, -np.abs(t))
        columns = zip(names, values, errors, t, p, low, high)
        return tuple(Estimate(name, *map(float, numbers)) for name, *numbers in columns)

    def _draws(self) -> np.ndarray | None:
        """Draw hinge planes from the posterior, once; None with planes at the edge, where least squares has to do."""
        if not hasattr(self, "_drawn"):
            assert isinstance(self._found, Planes)
            self._drawn = self._found.draws(as_generator(self.random_state, "planes"))
        return self._drawn

    def conf_int(self, level: float = 0.95, method: str = "posterior") -> dict[str, tuple[float, float]]:
        """Return the interval of every parameter by name.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which each holds the truth.

        method : {"posterior", "profile", "wald"}, default="posterior"
            The posterior covers best. For several inputs it is drawn when it is first asked for, and the other two are
            least squares to first order.

        Returns
        -------
        intervals : dict of (low, high)
            By the names const, x (or that of the input), change1, break1, slope1, intercept1, …

        Examples
        --------
        >>> import numpy as np
        >>> import neurecover as nr
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(0, 10, 200)
        >>> y = 1 + 0.5 * x + 2 * np.maximum(x - 4, 0) + rng.normal(size=200)
        >>> low, high = nr.HingeRegression().fit(x[:, None], y).conf_int()["break1"]
        >>> low < 4 < high
        True
        """
        return {line.name: (line.low, line.high) for line in self.estimates(level, method)}

    def cross_validate(self, most: int | None = None, folds: int = 10) -> np.ndarray:
        """Return the error of 0, 1, … hinges on rows that were left out of the fit, a second opinion on their number.

        Parameters
        ----------
        most : int, default=None
            The largest number of hinges; None for the largest that the fit looked at.

        folds : int, default=10
            Into how many parts the rows are divided: in the order of the first input, each row to the next part.

        Returns
        -------
        errors : ndarray of shape (most + 1,)
            Mean squares, or mean deviances for binomial and Poisson outputs.
        """
        check_is_fitted(self)
        (X, y), weight = self._rows, self._weight
        if not 2 <= folds <= len(y):
            raise ValueError(f"folds needs to be from 2 to the number of rows, {len(y)}. Got {folds} instead.")
        most = max(len(self._found.bic) - 1, self.n_hinges_) if most is None else most
        part = np.empty(len(y), dtype=int)
        part[np.argsort(X[:, 0], kind="stable")] = np.arange(len(y)) % folds
        mean = np.empty((most + 1, len(y)))
        for k in range(most + 1):
            model = clone(self).set_params(n_hinges=k, estimate="least_squares")
            for own in range(folds):
                out = part == own
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # of a fit that is but a step
                    mean[k, out] = model._mean_without(X, y, weight, out)
        if self.family == "normal":
            return np.asarray(np.average((y - mean) ** 2, axis=1, weights=weight))
        return np.asarray(FAMILIES[self.family].deviance(y, mean, weight).sum(axis=1) / weight.sum())

    def _mean_without(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Return the means at rows `out` (n,) of a fit to the others, without tests and intervals."""
        if X.shape[1] > 1:
            found = fit_planes(X[~out], y[~out], weight[~out], self.n_hinges, 0, self.random_state, self.loss)
            return found.network(X[out])[:, 0]
        line = fitted_line(X[~out, 0], y[~out], weight[~out], int(self.n_hinges or 0), self.loss, self.family)
        eta = line.points.level + line((X[out, 0] - line.points.centre) / line.points.size)
        return eta if self.family == "normal" else FAMILIES[self.family].mean(eta)

    def summary(self, level: float = 0.95, method: str = "posterior", folds: int = 0) -> str:
        """Return the table of estimates and what was checked, as text.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds the truth.
        method : {"posterior", "profile", "wald"}, default="posterior"
            The kind of interval, as in `conf_int`.
        folds : int, default=0
            The parts of a cross-validation of the number of hinges; 0 for none.

        Returns
        -------
        str
            A table with a row for each parameter, then the tests, the verdict and its reasons.
        """
        check_is_fitted(self)
        head = f"{'':<12}{'coef':>12}{'std err':>12}{'t':>10}{'P>|t|':>9}{f'[{0.5 - 0.5 * level:.3g}':>12}"
        head += f"{f'{0.5 + 0.5 * level:.3g}]':>12}"
        wide = "=" * len(head)
        lines = [
            f"Segmented regression, {self.n_hinges_} hinge{'s' * (self.n_hinges_ != 1)}, {len(self._rows[1])} rows",
            wide,
            head,
            "-" * len(head),
        ]
        for line in self.estimates(level, method):
            tested = ["", ""] if np.isnan(line.t) or line.error == 0 else [f"{line.t:.4g}", f"{line.p_value:.3f}"]
            numbers = f"{line.value:>12.5g} {line.error:>11.4g} {tested[0]:>9} {tested[1]:>8} "
            lines.append(f"{line.name:<12}{numbers}{line.low:>11.5g} {line.high:>11.5g}")
        lines.append(wide)
        if self.family == "normal":
            lines.append(f"noise {self._found.noise:.4g}, {self._found.dof:g} degrees of freedom")
        else:
            lines.append(f"{self.family} outputs: the table is of the {LINKS[self.family]} of their mean")
        lines += self._tests_in_words()
        if folds:
            errors = ", ".join(f"{error:.5g}" for error in self.cross_validate(folds=folds))
            lines.append(f"error of 0, 1, … hinges on rows left out, {folds} folds: {errors}")
        if self.certificate_ is not None:
            lines += [f"verdict {self.certificate_.verdict}", *self.certificate_.reasons]
        return "\n".join(lines)

    def _tests_in_words(self) -> list[str]:
        """Return the tests of no hinge and of more hinges, and what was found of every number that was tried."""
        found, lines = self._found, [f"no hinge: p = {self.no_hinge_pvalue_:.3g}"]
        if isinstance(found, Segmented) and found.n_hinges:
            lines[0] += f"; {found.n_hinges} against up to three more: p = {found.further.p_value:.3g}"
        if len(found.bic) > 1:
            lines.append("BIC of 0, 1, … hinges: " + ", ".join(f"{value:.1f}" for value in found.bic))
        if isinstance(found, Segmented) and len(found.log_odds) > 1:
            shares = np.exp(np.array(found.log_odds) - np.logaddexp.reduce(found.log_odds))
            lines.append(
                "their probability, one break expected beforehand: " + ", ".join(f"{share:.2g}" for share in shares)
            )
        return lines

    def plot(self, ax: Any = None) -> Figure:
        """Draw data, fit, band and breaks with their intervals, for one input.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Where to draw; None for a figure of its own.

        Returns
        -------
        matplotlib.figure.Figure
            The figure; it is not shown.
        """
        from neurecover.report.segments import draw_segments

        check_is_fitted(self)
        if not isinstance(self._found, Segmented):
            raise ValueError(f"plot draws one input. Got {self.n_features_in_} instead.")
        return draw_segments(self, *self._rows, self._input_names()[0], ax)

    def _input_names(self) -> list[str]:
        named = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if named is None else [str(name) for name in named]


def _check_sizes(X: np.ndarray, y: np.ndarray, names: list[str], output: str) -> None:
    """Raise ValueError for columns whose squares are beyond double precision."""
    for name, column in (*zip(names, X.T), (output, y)):
        size = float(np.abs(column).max())
        if size and not 1.0 / _LARGEST <= size <= _LARGEST:
            raise ValueError(
                f"Numbers need to be between 1e-100 and 1e100 in size, so that their squares can be added. Got "
                f"{size:.3g} as the largest of '{name}': give it in another unit."
            )
