"""Inference from a recovered network whose weights have standard errors: intervals, tests, comparison, predictions.

Let θ̂ be the weights in normal form and Σ = R Rᵀ their covariance. A weight has the interval θ̂ ± z √Σ_ii. A set of q
linear hypotheses R₀ θ = r has the statistic

    (R₀ θ̂ − r)ᵀ (R₀ Σ R₀ᵀ)⁻¹ (R₀ θ̂ − r)        χ² with q degrees of freedom.                   [Wald 1943]

A standard error that few residuals carry has ν degrees of freedom, and with t_ν for Student's quantile Σ is scaled so
that z = 1.96 holds at 95 %. At other levels z is 1.96 t_ν/t_ν(95 %), and χ²/q is F with q and ν degrees of freedom.

A prediction has the variance J(x) Σ J(x)ᵀ, to which a new sample adds the variance of the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, fdtrc, stdtr, stdtrit

from neurecover.certificate import Certificate
from neurecover.certificate.information.normal_form import array_names
from neurecover.models import Model, jacobian, parameters

MANY = 1e9  # degrees of freedom at which F is χ²/q to all digits that a p-value needs


@dataclass(frozen=True)
class WaldTest:
    """A test of linear hypotheses: the estimated values (q,), their standard errors, and the joint p-value."""

    estimate: np.ndarray
    standard_error: np.ndarray
    statistic: float
    freedom: int
    p_value: float


@dataclass(frozen=True)
class ModelComparison:
    """Two networks fitted to the same samples: differences in AIC and BIC, below zero if the first is better.

    The likelihood ratio has a p-value only if the networks differ by the linear term. For an additional unit it has no
    χ² distribution, because the unit's position is not identified under the smaller model.
    """

    aic: float
    bic: float
    likelihood_ratio: float
    freedom: int
    p_value: float | None

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        better = "first" if self.bic < 0.0 else "second"
        tested = "" if self.p_value is None else f"; the likelihood ratio has p = {self.p_value:.2g}"
        return f"The {better} network is better by {abs(self.bic):.1f} in BIC and AIC is {self.aic:+.1f}{tested}."


def parameter_names(
    model: Model, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
) -> list[str]:
    """Return the name of every weight in the order of the covariance: W[unit, input], b[unit], A[output, unit], …"""
    inputs = tuple(inputs or (f"x{i}" for i in range(model.n_inputs)))
    outputs = tuple(outputs or (f"y{i}" for i in range(model.n_outputs)))
    names: list[str] = []
    every = model.to_arrays()
    arrays = {name: every[name] for name in array_names(model)}
    readers = {"W": inputs, "W1": inputs, "C": inputs}
    last = [name for name in arrays if name != "C"][-2:]
    for name, array in arrays.items():
        rows = outputs if name == "C" or name in last else [str(i) for i in range(len(array))]
        if array.ndim == 1:
            names += [f"{name}[{row}]" for row in rows]
        else:
            columns = readers.get(name, [str(j) for j in range(array.shape[1])])
            names += [f"{name}[{row}, {column}]" for row in rows for column in columns]
    return names


def covariance_root(certificate: Certificate) -> np.ndarray:
    """Return R (P, r) of the covariance R Rᵀ; raise an error if it is not known."""
    if certificate.covariance_root is None:
        large = certificate.verdict == "statistical"
        why = "more weights than a covariance is kept for" if large else certificate.verdict
        why += ", where every weight is right to the last digits," if certificate.verdict == "exact" else ""
        raise ValueError(f"Intervals and tests need the verdict statistical. Got {why} instead.")
    return certificate.covariance_root


def freedom_of(certificate: Certificate) -> np.ndarray:
    """Return the degrees of freedom of every standard error, (P,); one infinite number if they are unknown."""
    arrays = certificate.freedom
    return np.array([np.inf]) if arrays is None else np.concatenate([array.ravel() for array in arrays.values()])


def intervals(values: np.ndarray, root: np.ndarray, level: float, freedom: np.ndarray | float = np.inf) -> np.ndarray:
    """Return confidence intervals (n, 2) of the given level for each value."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level needs to be between 0 and 1. Got {level} instead.")
    reach = stdtrit(freedom, 0.5 + 0.5 * level) / _widened(freedom) * np.linalg.norm(root, axis=1)
    return np.column_stack([values - reach, values + reach])


def wald_test(
    values: np.ndarray, root: np.ndarray, rows: np.ndarray, aim: Any = 0.0, freedom: np.ndarray | float = np.inf
) -> WaldTest:
    """Test the hypothesis that rows (q, P) times the parameters, whose errors have `freedom`, equal `aim`."""
    rows = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    apart, half = rows @ values - np.broadcast_to(np.asarray(aim, dtype=np.float64), len(rows)), rows @ root
    errors = np.linalg.norm(half, axis=1)
    scale = np.maximum(errors, 1e-300)
    U, sizes, _ = np.linalg.svd(half / scale[:, None], full_matrices=False)
    kept = sizes > 1e-7 * max(float(sizes.max(initial=0.0)), 1e-300)  # the other hypotheses are linearly dependent
    along = (U[:, kept].T @ (apart / scale)) / sizes[kept]
    statistic, q = float(along @ along), int(np.count_nonzero(kept))
    if not q:
        return WaldTest(rows @ values, errors, statistic, q, 1.0)
    least = float(np.min(np.broadcast_to(freedom, rows.shape[1]), where=np.any(rows != 0.0, axis=0), initial=np.inf))
    F = statistic * float(_widened(least)) ** 2 / q
    return WaldTest(rows @ values, errors, statistic, q, float(fdtrc(q, min(least, MANY), F)))


def hypothesis_rows(hypotheses: Any, names: Sequence[str]) -> np.ndarray:
    """Return hypotheses as rows (q, P); they are given as a matrix, as names, or as names with coefficients."""
    if isinstance(hypotheses, np.ndarray):
        rows = np.atleast_2d(hypotheses.astype(np.float64))
        if rows.shape[1] != len(names):
            raise ValueError(f"Hypotheses need a column for each of {len(names)} weights. Got {rows.shape[1]} instead.")
        return rows
    listed = [hypotheses] if isinstance(hypotheses, str | Mapping) else list(hypotheses)
    rows, place = np.zeros((len(listed), len(names))), {name: i for i, name in enumerate(names)}
    for row, hypothesis in zip(rows, listed):
        for name, factor in ({hypothesis: 1.0} if isinstance(hypothesis, str) else hypothesis).items():
            if name not in place:
                known = ", ".join(list(names)[:4])
                raise ValueError(f"A hypothesis names weights as conf_int does, {known}, … Got {name!r} instead.")
            row[place[name]] = factor
    return rows


def compare_models(first: Certificate, second: Certificate, models: tuple[Model, Model]) -> ModelComparison:
    """Compare two networks by their likelihoods on the same samples."""
    a, b = first.likelihood, second.likelihood
    if a is None or b is None:
        raise ValueError(
            "Networks are compared by what noise they leave, and one of them was not tested against noise."
        )
    if a.n_equations != b.n_equations:
        raise ValueError(
            f"Networks are compared on the same samples. Got {a.n_equations} and {b.n_equations} outputs instead."
        )
    ratio, q = 2.0 * (a.log_likelihood - b.log_likelihood), a.n_free - b.n_free
    p_value = None
    alike = models[0].n_hidden == models[1].n_hidden and str(models[0].activation) == str(models[1].activation)
    if alike and q:
        p_value = float(chdtrc(abs(q), max(ratio if q > 0 else -ratio, 0.0)))
    return ModelComparison(a.aic - b.aic, a.bic - b.bic, ratio, q, p_value)


def prediction_errors(network: Model, root: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the standard errors (n, p) of the predictions at X (n, d)."""
    rows = max(1, 2**22 // max(root.shape[0] * network.n_outputs, 1))  # 32 MB of J at a time
    parts = [X[start : start + rows] for start in range(0, len(X), rows)]
    errors = [np.linalg.norm(jacobian(network, part) @ root, axis=2) for part in parts]
    return np.vstack(errors) if errors else np.zeros((0, network.n_outputs))


@dataclass(frozen=True)
class Coefficient:
    """A weight with its standard error, z = estimate/error, the p-value of the hypothesis zero, and its interval."""

    name: str
    estimate: float
    standard_error: float
    z: float
    p_value: float
    low: float
    high: float


def coefficients(
    names: Sequence[str], values: np.ndarray, root: np.ndarray, freedom: np.ndarray | float = np.inf
) -> tuple[Coefficient, ...]:
    """Return every weight with its error, test and 95 % interval."""
    errors = np.linalg.norm(root, axis=1)
    z = values / np.maximum(errors, 1e-300)
    p_values = 2.0 * stdtr(freedom, -np.abs(z) * _widened(freedom))
    columns = (values, errors, z, p_values, *intervals(values, root, 0.95).T)
    return tuple(Coefficient(name, *map(float, row)) for name, *row in zip(names, *columns))


def values_of(model: Model) -> np.ndarray:
    """Return the weights in the order of the covariance."""
    return parameters(model)


def _widened(freedom: np.ndarray | float) -> np.ndarray:
    """Return how many times larger standard errors are than √Σ m² of their scores, so that ±1.96 of them hold 95 %."""
    return np.asarray(stdtrit(freedom, 0.975) / stdtrit(np.inf, 0.975))
