"""The results: a network with its certificate and its history, or an algorithm's own estimate."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from neurecover import inference
from neurecover.activations import Activation
from neurecover.certificate import Certificate, Check, Likelihood, ParameterArrays, advice
from neurecover.certificate.verdict import MEANING
from neurecover.data import Whitening
from neurecover.excerpt import Excerpt
from neurecover.models import Composite, Model, from_arrays, read_npz, write_npz
from neurecover.queried import Queried

if TYPE_CHECKING:  # optional libraries, imported only when used
    from matplotlib.figure import Figure
    from pandas import DataFrame

M_co = TypeVar("M_co", bound=Model, covariant=True)
LINE, LABEL = 88, 12  # characters of the lines of a summary, and of the labels before them
REASONS = 3  # reasons in a summary: nobody reads more; `verbose` gives all

__all__ = ["Certificate", "Check", "Estimate", "Excerpt", "Recovery", "Stage", "versions"]


@dataclass(frozen=True)
class Stage:
    """One step of a recovery.

    Attributes
    ----------
    name : str
        The name of the step.
    seconds : float
        Its duration.
    detail : str
        Its outcome.

    Examples
    --------
    >>> from neurecover import Stage
    >>> Stage("read", 0.1, "500 samples").name
    'read'
    """

    name: str
    seconds: float
    detail: str


@dataclass(frozen=True)
class Estimate:
    """An algorithm's own answer, before any refinement.

    Attributes
    ----------
    network : Network, DeepNetwork, Composite or None
        The network found; None if none was.
    notes : tuple of str
        Figures of the estimate, or the reason why there is no network.
    details : object
        The algorithm's own record, a frozen dataclass with named fields (tensors, spectra, masks, ratios), in whitened
        coordinates z of zero mean and unit covariance.
    starts : tuple of ndarray of shape (m, D)
        Further hidden weights from which a descent may start, in the same coordinates.
    whitening : Whitening or None
        The map to these coordinates: z = (x − mean) matrix, so that W_x = W_z matrixᵀ; None if the samples were not
        whitened.
    method, form : str
        The algorithm and its form.
    seconds : float
        The duration.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(4, 2, random_state=0)
    >>> found = nr.estimate(*nr.simulate.sample(truth, 20_000, random_state=0), n_hidden=2, random_state=0)
    >>> found.method, found.network.n_hidden
    ('hermite', 2)
    """

    network: Model | None
    notes: tuple[str, ...] = ()
    starts: tuple[np.ndarray, ...] = field(default=(), repr=False)
    details: Any = field(default=None, repr=False)
    method: str = ""
    form: str = "best"
    seconds: float = 0.0
    whitening: Whitening | None = field(default=None, repr=False)

    def rows(self) -> list[tuple[str, str]]:
        """Return the summary as pairs (label, text); the label is empty if the row continues the previous one."""
        rows = [("method", f"{self.method} ({self.form}), {self.seconds:.2f} s"), ("network", describe(self.network))]
        rows += [("notes" if i == 0 else "", note) for i, note in enumerate(self.notes)]
        if self.details is not None:
            rows.append(("details", f"{type(self.details).__name__}: {', '.join(vars(self.details))}"))
        return rows

    def summary(self) -> str:
        """Return a few lines for a person."""
        return in_columns(self.rows())


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
        """Return the summary as pairs (label, text); the label is empty if the row continues the previous one.

        With `verbose` it has all reasons and the stages of the run, else only the first few reasons.
        """
        certificate = self.certificate
        rows = [
            *(("columns", stage.detail) for stage in self.stages if stage.name == "columns"),
            ("verdict", f"{certificate.verdict}: {MEANING[certificate.verdict]}"),
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
        """Return a few lines for a person: verdict, network, what to try, and why; everything with `verbose`."""
        return in_columns(self.rows(verbose))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the outputs (n, p) at X and, with `return_std`, their standard errors, not counting sample noise."""
        X = np.asarray(X, dtype=np.float64)
        if not return_std:
            return self.network(X)
        return self.network(X), inference.prediction_errors(
            self.network, inference.covariance_root(self.certificate), X
        )

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """Return prediction intervals (n, p, 2), which contain new samples' outputs at X with probability `level`."""
        Y, error = self.predict(X, return_std=True)
        spread = np.hypot(error, np.sqrt(self.certificate.noise_variance or 0.0))
        return inference.intervals(Y.ravel(), spread.reshape(-1, 1), level).reshape(*Y.shape, 2)

    def parameter_names(self) -> list[str]:
        """Return the names of the weights in the order of `covariance`: W[unit, input], b[unit], A[output, unit], …"""
        known = (self.excerpt.input_names, self.excerpt.output_names) if self.excerpt is not None else (None, None)
        return inference.parameter_names(self.network, *known)

    def conf_int(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return the confidence interval of every weight by its name; the verdict must be statistical."""
        root, values = inference.covariance_root(self.certificate), inference.values_of(self.network)
        ends = inference.intervals(values, root, level)
        return {name: (float(low), float(high)) for name, (low, high) in zip(self.parameter_names(), ends)}

    def covariance(self) -> np.ndarray:
        """Return the covariance (P, P) of the weights in the order of their names; the verdict must be statistical."""
        root = inference.covariance_root(self.certificate)
        return np.asarray(root @ root.T)

    def test(self, hypotheses: Any, value: Any = 0.0) -> inference.WaldTest:
        """Test linear hypotheses on the weights jointly [Wald 1943].

        `hypotheses` is the name of a weight, a dict of names and coefficients, a list of these, or a matrix (q, P).
        `value` is the value of these combinations under the hypothesis.
        """
        root, values = inference.covariance_root(self.certificate), inference.values_of(self.network)
        return inference.wald_test(values, root, inference.hypothesis_rows(hypotheses, self.parameter_names()), value)

    def compare_models(self, other: Recovery[Model]) -> inference.ModelComparison:
        """Compare with another network fitted to the same samples: AIC, BIC, and the likelihood ratio if nested."""
        return inference.compare_models(self.certificate, other.certificate, (self.network, other.network))

    def to_html(self, path: str | Path, truth: Model | None = None, X: Any = None, Y: Any = None) -> None:
        """Write a report as a self-contained HTML file: verdict, checks, weights, units, fit, residuals, stages.

        The network is compared with `truth`, if given, and tested on samples X, Y, or X alone as a path or data source.
        """
        from neurecover.report import write_report

        write_report(self, path, truth, X, Y)

    def to_frame(self) -> DataFrame:
        """Return a row per weight: layer, unit, weight, estimate, standard_error, low and high (95 %), determined."""
        from neurecover.report import weights_frame

        return weights_frame(self)

    def plot(self) -> Figure:
        """Draw the weights, the fit on held-out samples, its residuals and the singular values of the layers."""
        from neurecover.report import overview

        return overview(self)

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("recovery", self)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file; `neurecover.load` reads the network from it, `Recovery.load` the whole result."""
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
            if estimate.network is not None and _can_be_saved(estimate.network):
                arrays |= {f"estimate_{name}": value for name, value in estimate.network.to_arrays().items()}
        if certificate.standard_errors is not None:
            arrays |= {f"error_{name}": value for name, value in certificate.standard_errors.items()}
        if certificate.covariance_root is not None:
            arrays["covariance_root"] = certificate.covariance_root
        if self.excerpt is not None:
            arrays |= {f"excerpt_{name}": value for name, value in self.excerpt.to_arrays().items()}
        if self.queried is not None:
            arrays |= {f"queried_{name}": value for name, value in self.queried.to_arrays().items()}
        write_npz(path, arrays | {"recovery": np.array(json.dumps(_plain(record)))})

    @classmethod
    def load(cls, path: str | Path, activation: Activation | None = None) -> Recovery[Model]:
        """Read a file written by `save`; an activation made by `Activation.from_function` has to be passed in."""
        arrays = read_npz(path)
        network: Any = from_arrays(arrays, path, activation)
        if "recovery" not in arrays:
            raise ValueError(f"{path} holds a network but no recovery. Read it with neurecover.load instead.")
        try:
            record = json.loads(str(arrays["recovery"]))
            errors = _with_prefix(arrays, "error_")
            certificate = Certificate(
                tuple(Check(**check) for check in record["checks"]),
                record["holdout_mse"],
                record["noise_variance"],
                record["n_samples"],
                record["n_holdout"],
                ParameterArrays(errors) if errors else None,
                arrays.get("covariance_root"),
                # Files of release 0.1 have no likelihood.
                Likelihood(**record["likelihood"]) if record.get("likelihood") else None,
            )
            stages = tuple(Stage(**stage) for stage in record["stages"])
            estimate = _estimate(record.get("estimate"), arrays, path, activation)
            shown = _with_prefix(arrays, "excerpt_")
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
                None if asked is None else Queried.from_saved(asked, _with_prefix(arrays, "queried_")),
            )
        except (KeyError, TypeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path} holds a recovery that this release cannot read ({error}).") from None


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on, by name."""
    return dict(_installed())


@cache
def _installed() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("neurecover", "numpy", "scipy"):
        try:
            found[name] = version(name)  # reads and parses a file
        except PackageNotFoundError:  # not installed: run from the source tree
            continue
    return found


def in_columns(rows: list[tuple[str, str]]) -> str:
    """Format rows (label, text) as two columns, with the text wrapped."""
    lines = []
    for label, text in rows:
        first, *others = wrap(text, LINE - LABEL - 1, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [f"{label:<{LABEL}} {first}", *(f"{'':<{LABEL}} {other}" for other in others)]
    return "\n".join(line.rstrip() for line in lines)


def describe(network: Model | None) -> str:
    """Return the size of a network in words."""
    if network is None:
        return "none"
    hidden = network.n_hidden
    units = f"{'-'.join(map(str, hidden))} hidden units" if isinstance(hidden, tuple) else _count(hidden, "hidden unit")
    if isinstance(network, Composite):
        upper = f" below {type(network.upper).__name__}"
    else:
        upper = "" if network.C is None else " and an affine term"
    inputs, outputs = _count(network.n_inputs, "input"), _count(network.n_outputs, "output")
    return f"{inputs}, {units} ({network.activation}){upper}, {outputs}"


def _estimate(
    record: dict[str, Any] | None, arrays: dict[str, np.ndarray], path: str | Path, activation: Activation | None
) -> Estimate | None:
    if record is None:
        return None
    stored = _with_prefix(arrays, "estimate_")
    starts = tuple(arrays[f"start_{i}"] for i in range(record["n_starts"]))
    estimate = Estimate(from_arrays(stored, path, activation) if stored else None, tuple(record["notes"]), starts)
    return replace(estimate, method=record["method"], form=record["form"], seconds=record["seconds"])


def _with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _can_be_saved(network: Model) -> bool:
    return not isinstance(network, Composite) or network.can_be_saved


def _plain(value: Any) -> Any:
    """Convert numpy's numbers to Python's, which JSON can write."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
