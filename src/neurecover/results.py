"""The result of a recovery: a network with its certificate and its history."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from neurecover import inference
from neurecover.activations import Activation
from neurecover.certificate import Certificate, Check, Likelihood, ParameterArrays, advice
from neurecover.estimates import Estimate, Stage, from_record, with_prefix
from neurecover.excerpt import Excerpt
from neurecover.models import Model, from_arrays, read_npz, write_npz
from neurecover.queried import Queried
from neurecover.wording import describe, in_columns, versions

if TYPE_CHECKING:  # optional libraries, imported only when used
    from matplotlib.figure import Figure
    from pandas import DataFrame

M_co = TypeVar("M_co", bound=Model, covariant=True)
OF_CERTIFICATE = ("covariance_root", "noise_variances")  # arrays that are saved by their own names
REASONS = 3  # reasons in a summary: nobody reads more; `verbose` gives all

__all__ = ["Certificate", "Check", "Estimate", "Excerpt", "Recovery", "Stage", "versions"]


@dataclass(frozen=True, repr=False)
class Recovery(Generic[M_co]):
    """The answer of `recover`, `recover_lowest_layer` and `extract`.

    Attributes
    ----------
    network : Network, DeepNetwork or Composite
        The network found, in normal form.
    certificate : Certificate
        How far the network can be trusted: the verdict, the reasons, the checks, standard errors.
    method : str
        The method that found it.
    stages : tuple of Stage
        The steps of the run.
    seconds : float
        The duration of the run.
    estimate : Estimate or None
        The algorithm's own answer before refinement; None if no algorithm ran. Its details are not saved.
    n_queries : int or None
        The number of queries to an oracle; None for given samples.
    excerpt : Excerpt or None
        The samples that figures show; None if nothing was fitted.
    versions : dict of str to str
        The versions of the libraries used.
    queried : Queried or None
        What the queries to an oracle were used for, and the accuracy of each hidden layer; None for given samples.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(3, 2, random_state=0)
    >>> r = nr.recover(*nr.simulate.sample(truth, 500, random_state=0), n_hidden=2, random_state=0)
    >>> r.method
    'least_squares'
    >>> r.predict([[0.0, 0.0, 0.0]]).shape
    (1, 1)
    """

    network: M_co
    certificate: Certificate
    method: str
    stages: tuple[Stage, ...]
    seconds: float
    estimate: Estimate | None = field(default=None, repr=False)
    n_queries: int | None = None
    excerpt: Excerpt | None = field(default=None, repr=False)
    versions: dict[str, str] = field(default_factory=lambda: versions(), repr=False)
    queried: Queried | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<Recovery: {self.certificate.verdict}, {describe(self.network)}, {self.method}, {self.seconds:.2f} s>"

    def rows(self, verbose: bool = False) -> list[tuple[str, str]]:
        """Return the summary as rows of two columns.

        Parameters
        ----------
        verbose : bool, default=False
            Whether to give all reasons and the stages of the run; else only the first three reasons.

        Returns
        -------
        list of (str, str)
            Pairs of label and text; the label is empty if the row continues the previous one.
        """
        certificate = self.certificate
        rows = [
            *(("columns", stage.detail) for stage in self.stages if stage.name == "columns"),
            ("verdict", f"{certificate.verdict}: {certificate.meaning}"),
            ("network", describe(self.network)),
            ("method", f"{self.method}, {self.seconds:.2f} s"),
        ]
        if self.n_queries is not None:
            found = any(check.name == "units" and check.passed for check in certificate.checks)
            ratio = f", {self.n_queries / self.network.n_parameters:.2f} per parameter" if found else ""
            rows.append(("queries", f"{self.n_queries:,}{ratio}"))
        if self.queried is not None:
            rows += self.queried.rows() if verbose else [row for row in self.queried.rows() if row[0] == "cost"]
        if self.stages and self.stages[0].name == "read":
            rows.append(("samples", self.stages[0].detail))
        if certificate.n_holdout:
            held_out = f"mean squared error {certificate.holdout_mse:.3g} on {certificate.n_holdout} of "
            rows.append(("held out", f"{held_out}{certificate.n_samples} samples"))
        tips = advice(certificate)
        rows += [("try" if i == 0 else "", tip) for i, tip in enumerate(tips)]
        reasons = [reason for reason in certificate.reasons if reason not in tips]
        shown = reasons if verbose else reasons[:REASONS]
        rows += [("because" if i == 0 else "", reason) for i, reason in enumerate(shown)]
        if not verbose:
            return rows
        return rows + [
            ("stages" if i == 0 else "", f"{stage.name}: {stage.detail} ({stage.seconds:.2f} s)")
            for i, stage in enumerate(self.stages)
        ]

    def summary(self, verbose: bool = False) -> str:
        """Return the verdict, the network, what to try and why, as text.

        Parameters
        ----------
        verbose : bool, default=False
            Whether to give all reasons and the stages of the run; else only the first three reasons.

        Returns
        -------
        str
            A few lines, of up to 88 characters.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> print(r.summary().splitlines()[0])
        verdict      statistical: every weight has a standard error that holds
        """
        return in_columns(self.rows(verbose))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the network's outputs.

        Parameters
        ----------
        X : array_like of shape (n, d)
            The inputs.
        return_std : bool, default=False
            Whether to return standard errors too; the verdict must then be statistical.

        Returns
        -------
        Y : ndarray of shape (n, p)
            The outputs.
        error : ndarray of shape (n, p)
            Their standard errors, if asked for. They do not include the noise of a further sample.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> Y, error = r.predict([[0.0, 1.0, 0.5]], return_std=True)
        >>> Y.shape, bool(error[0, 0] < 0.05)
        ((1, 1), True)
        """
        X = np.asarray(X, dtype=np.float64)
        if not return_std:
            return self.network(X)
        return self.network(X), inference.prediction_errors(
            self.network, inference.covariance_root(self.certificate), X
        )

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """Return intervals that hold the outputs of further samples, noise included.

        The noise of an output is taken as Gaussian and equal at all inputs; if it is not, the level holds on average
        over inputs like those given, and only roughly.

        Parameters
        ----------
        X : array_like of shape (n, d)
            The inputs.
        level : float, default=0.95
            The probability with which an interval holds an output.

        Returns
        -------
        ndarray of shape (n, p, 2)
            The lower and the upper ends.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> r.predict_interval([[0.0, 1.0, 0.5]]).shape
        (1, 1, 2)
        """
        Y, error = self.predict(X, return_std=True)
        noise = self.certificate.noise_variances
        spread = np.sqrt(error**2 + (self.certificate.noise_variance or 0.0 if noise is None else noise))
        return inference.intervals(Y.ravel(), spread.reshape(-1, 1), level).reshape(*Y.shape, 2)

    def parameter_names(self) -> list[str]:
        """Return the names of the weights, in the order of `covariance`.

        Returns
        -------
        list of str
            W[unit, input], b[unit], A[output, unit], …, with the names of the columns where they are known.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> r.parameter_names()[:2]
        ['W[0, x0]', 'W[0, x1]']
        """
        known = (self.excerpt.input_names, self.excerpt.output_names) if self.excerpt is not None else (None, None)
        return inference.parameter_names(self.network, *known)

    def conf_int(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return the confidence interval of every weight; the verdict must be statistical.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds the true weight.

        Returns
        -------
        dict of str to (float, float)
            The lower and the upper end by the names of `parameter_names`.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> low, high = r.conf_int(0.99)["b[0]"]
        >>> bool(low < r.network.b[0] < high)
        True
        """
        root, values = inference.covariance_root(self.certificate), inference.values_of(self.network)
        ends = inference.intervals(values, root, level, inference.freedom_of(self.certificate))
        return {name: (float(low), float(high)) for name, (low, high) in zip(self.parameter_names(), ends)}

    def covariance(self) -> np.ndarray:
        """Return the covariance of the weights; the verdict must be statistical.

        Returns
        -------
        ndarray of shape (P, P)
            In the order of `parameter_names`.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> r.covariance().shape == (len(r.parameter_names()),) * 2
        True
        """
        root = inference.covariance_root(self.certificate)
        return np.asarray(root @ root.T)

    def test(self, hypotheses: Any, value: Any = 0.0) -> inference.WaldTest:
        """Test linear hypotheses on the weights jointly [1]_; the verdict must be statistical.

        Parameters
        ----------
        hypotheses : str, dict, list or array_like of shape (q, P)
            The name of a weight, a dict of names and coefficients, a list of these, or a matrix.
        value : float or array_like of shape (q,), default=0.0
            The value of these combinations under the hypothesis.

        Returns
        -------
        WaldTest
            `statistic`, `degrees`, `p_value`.

        References
        ----------
        .. [1] A. Wald, "Tests of statistical hypotheses concerning several parameters when the number of observations
           is large", Transactions of the AMS 54, 1943.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> bool(r.test("A[y0, 0]").p_value < 1e-6)  # is unit 0 there?
        True
        """
        root, values = inference.covariance_root(self.certificate), inference.values_of(self.network)
        rows = inference.hypothesis_rows(hypotheses, self.parameter_names())
        return inference.wald_test(values, root, rows, value, inference.freedom_of(self.certificate))

    def compare_models(self, other: Recovery[Model]) -> inference.ModelComparison:
        """Compare with another network that was fitted to the same samples.

        Parameters
        ----------
        other : Recovery
            The result to compare with.

        Returns
        -------
        ModelComparison
            The differences in AIC and BIC, negative if this network is the better one, and the likelihood ratio.

        Examples
        --------
        >>> import neurecover as nr
        >>> X, Y = nr.simulate.sample(nr.simulate.teacher(3, 2, random_state=0), 500, noise=0.1, random_state=0)
        >>> two, line = nr.recover(X, Y, n_hidden=2, random_state=0), nr.recover(X, Y, n_hidden=1, random_state=0)
        >>> two.compare_models(line).bic < 0.0
        True
        """
        return inference.compare_models(self.certificate, other.certificate, (self.network, other.network))

    def to_html(self, path: str | Path, truth: Model | None = None, X: Any = None, Y: Any = None) -> None:
        """Write a report as one HTML file that loads nothing from outside.

        Parameters
        ----------
        path : path
            The file to write.
        truth : Network, DeepNetwork, Composite or None, default=None
            The true network, to compare with.
        X, Y : array_like or None, default=None
            Further samples to test the network on; X alone may be a path or a data source.

        Examples
        --------
        >>> r.to_html("report.html", truth=truth)  # doctest: +SKIP
        """
        from neurecover.report import write_report

        write_report(self, path, truth, X, Y)

    def to_frame(self) -> DataFrame:
        """Return a table with a row per weight.

        Returns
        -------
        pandas.DataFrame
            The columns are layer, unit, weight, estimate, standard_error, low, high (of 95 %) and determined.

        Examples
        --------
        >>> import neurecover as nr
        >>> truth = nr.simulate.teacher(3, 2, random_state=0)
        >>> r = nr.recover(*nr.simulate.sample(truth, 500, noise=0.1, random_state=0), n_hidden=2, random_state=0)
        >>> len(r.to_frame()) == r.network.n_parameters
        True
        """
        from neurecover.report import weights_frame

        return weights_frame(self)

    def plot(self) -> Figure:
        """Draw the weights, the fit on held-out samples, its residuals and the singular values of the layers.

        Returns
        -------
        matplotlib.figure.Figure
            The figure; it is not shown.

        Examples
        --------
        >>> r.plot().savefig("recovery.png")  # doctest: +SKIP
        """
        from neurecover.report import overview

        return overview(self)

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("recovery", self)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file; `neurecover.load` reads the network from it, `Recovery.load` the whole result.

        Parameters
        ----------
        path : path
            The file to write.

        Examples
        --------
        >>> r.save("recovery.npz")  # doctest: +SKIP
        """
        certificate, estimate = self.certificate, self.estimate
        record: dict[str, Any] = {
            "method": self.method,
            "seconds": self.seconds,
            "n_queries": self.n_queries,
            "stages": [asdict(stage) for stage in self.stages],
            "checks": [asdict(check) for check in certificate.checks],
            "holdout_mse": certificate.holdout_mse,
            "noise_variance": certificate.noise_variance,
            "n_samples": certificate.n_samples,
            "n_holdout": certificate.n_holdout,
            "likelihood": None if certificate.likelihood is None else asdict(certificate.likelihood),
            "versions": self.versions,
            "queried": None if self.queried is None else self.queried.to_record(),
        }
        arrays = self.network.to_arrays()
        if estimate is not None:
            facts = {name: getattr(estimate, name) for name in ("notes", "method", "form", "seconds")}
            record["estimate"] = facts | {"n_starts": len(estimate.starts)}
            arrays |= {f"start_{i}": start for i, start in enumerate(estimate.starts)}
            if estimate.network is not None and getattr(estimate.network, "can_be_saved", True):
                arrays |= {f"estimate_{name}": value for name, value in estimate.network.to_arrays().items()}
        if certificate.standard_errors is not None:
            arrays |= {f"error_{name}": value for name, value in certificate.standard_errors.items()}
        if certificate.freedom is not None:
            arrays |= {f"freedom_{name}": value for name, value in certificate.freedom.items()}
        for name in OF_CERTIFICATE:
            if (array := getattr(certificate, name)) is not None:
                arrays[name] = array
        if self.excerpt is not None:
            arrays |= {f"excerpt_{name}": value for name, value in self.excerpt.to_arrays().items()}
        if self.queried is not None:
            arrays |= {f"queried_{name}": value for name, value in self.queried.to_arrays().items()}
        write_npz(path, arrays | {"recovery": np.array(json.dumps(record, default=np.generic.item))})

    @classmethod
    def load(cls, path: str | Path, activation: Activation | None = None) -> Recovery[Model]:
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : path
            The file.
        activation : Activation or None, default=None
            The activation, if it was made by `Activation.from_function`: files hold names, not functions.

        Returns
        -------
        Recovery
            The result as it was saved, without the estimate's details.

        Examples
        --------
        >>> import neurecover as nr
        >>> r = nr.Recovery.load("recovery.npz")  # doctest: +SKIP
        """
        arrays = read_npz(path)
        network: Any = from_arrays(arrays, path, activation)
        if "recovery" not in arrays:
            raise ValueError(f"{path} holds a network but no recovery. Read it with neurecover.load instead.")
        try:
            record = json.loads(str(arrays["recovery"]))
            errors, freedom = (with_prefix(arrays, prefix) for prefix in ("error_", "freedom_"))
            certificate = Certificate(
                tuple(Check(**check) for check in record["checks"]),
                record["holdout_mse"],
                record["noise_variance"],
                record["n_samples"],
                record["n_holdout"],
                ParameterArrays(errors) if errors else None,
                # Files of release 0.1 have no likelihood.
                likelihood=Likelihood(**record["likelihood"]) if record.get("likelihood") else None,
                freedom=ParameterArrays(freedom) if freedom else None,
                **{name: arrays.get(name) for name in OF_CERTIFICATE},
            )
            stages = tuple(Stage(**stage) for stage in record["stages"])
            estimate = from_record(record.get("estimate"), arrays, path, activation)
            shown = with_prefix(arrays, "excerpt_")
            asked = record.get("queried")  # files of earlier releases have none
            return cls(
                network,
                certificate,
                record["method"],
                stages,
                record["seconds"],
                estimate,
                record["n_queries"],
                Excerpt.from_arrays(shown) if shown else None,
                record.get("versions", {}),  # files of release 0.1 have none
                None if asked is None else Queried.from_saved(asked, with_prefix(arrays, "queried_")),
            )
        except (KeyError, TypeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path} holds a recovery that this release cannot read ({error}).") from None
