"""The upper part, once the first layer is known: hidden values are then data like any other [GP18, Appendix E]."""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.gp18.options import DEFAULTS, UpperOptions
from neurecover.data import Source, reduce, split
from neurecover.data.source import numbered
from neurecover.data.views.view import Seen, View
from neurecover.models import Composite, Or, Polynomial
from neurecover.models.composite import monomials
from neurecover.statistics import Moments


class Hidden(View):
    """The samples (u(W x − t), y) of a layer: the inputs of the upper part with its outputs."""

    def __init__(self, parent: Source, layer: Composite) -> None:
        self.parent, self._layer = parent, layer
        self.origin = f"{parent.origin} (hidden values)"
        self.n_samples = parent.n_samples
        self.input_names = numbered("h", layer.n_hidden)
        self.output_names = parent.output_names

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        return self._layer.hidden(X), Y, None


class _Monomials(View):
    """Monomials of the hidden values in place of the inputs."""

    def __init__(self, parent: Source, exponents: np.ndarray) -> None:
        self.parent, self._exponents = parent, exponents
        self.origin, self.n_samples, self.output_names = parent.origin, parent.n_samples, parent.output_names
        self.input_names = numbered("m", len(exponents))

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        return monomials(np.asarray(X, dtype=float), self._exponents), Y, None


@dataclass(frozen=True)
class PolynomialFit:
    """The polynomial with the smallest held-out mean squared error over the degrees tried; `r2` is held out too."""

    polynomial: Polynomial
    degree: int
    r2: float


def fit_polynomial(
    hidden: Source,
    seed: int,
    *,
    max_degree: int = 3,
    holdout: float = 0.2,
    options: UpperOptions = DEFAULTS.upper,
) -> PolynomialFit:
    """Return a sparse polynomial of the hidden values by least squares, its degree chosen on held-out samples.

    Every degree is one pass for the normal equations and one for the held-out error.
    """
    train, test = split(hidden, holdout, seed)
    best: PolynomialFit | None = None
    for degree in range(1, max_degree + 1):
        exponents = _exponents(hidden.n_inputs, degree)
        if len(exponents) > options.max_monomials:
            break
        moments = reduce(_Monomials(train, exponents), Moments(len(exponents), hidden.n_outputs))
        test_moments = reduce(_Monomials(test, exponents), Moments(len(exponents), hidden.n_outputs))
        coefficients = _sparse(moments, options.sparse)
        kept = np.any(coefficients != 0.0, axis=0)
        polynomial = Polynomial(exponents[kept], coefficients[:, kept])
        r2 = _r2(test_moments, coefficients)
        if best is None or 1.0 - r2 < options.worth * (1.0 - best.r2):
            best = PolynomialFit(polynomial, degree, r2)
    assert best is not None
    return best


def all_terms(composite: Composite, max_degree: int, options: UpperOptions = DEFAULTS.upper) -> Composite:
    """Return the network with every monomial that `fit_polynomial` considers, those it dropped with zeros."""
    upper = composite.upper
    assert isinstance(upper, Polynomial)
    families = (_exponents(composite.n_hidden, degree) for degree in range(max_degree, 0, -1))
    exponents = next((own for own in families if len(own) <= options.max_monomials), _exponents(composite.n_hidden, 1))
    known = {tuple(powers): c for powers, c in zip(upper.exponents, upper.coefficients.T)}
    zero = np.zeros(len(upper.coefficients))
    coefficients = np.column_stack([known.get(tuple(powers), zero) for powers in exponents])
    return Composite(composite.W, composite.threshold, Polynomial(exponents, coefficients), composite.activation)


def without_faint_terms(composite: Composite, samples: Source, faint: float) -> Composite:
    """Return the network without the terms whose part in every output is below `faint` of that output's size."""
    upper = composite.upper
    assert isinstance(upper, Polynomial)
    view = _Monomials(Hidden(samples, composite), upper.exponents)
    moments = reduce(view, Moments(len(upper.exponents), samples.n_outputs))
    part = np.abs(upper.coefficients) * np.sqrt(np.diag(moments.xx))
    kept = np.any(part > faint * np.sqrt(np.diag(moments.yy))[:, None], axis=0)
    terms = Polynomial(upper.exponents[kept], upper.coefficients[:, kept])
    return Composite(composite.W, composite.threshold, terms, composite.activation)


def with_linear_upper(source: Source, W: np.ndarray, threshold: np.ndarray, activation: Activation) -> Composite:
    """Return the units below c₀ + Σ cⱼ hⱼ, the best affine function of their values by least squares: a first guess."""
    exponents = _exponents(len(W), 1)
    hidden = Hidden(source, Composite(W, threshold, Or(), activation))
    moments = reduce(_Monomials(hidden, exponents), Moments(len(exponents), source.n_outputs))
    return Composite(W, threshold, Polynomial(exponents, _solve(moments.xx, moments.yx)), activation)


def _exponents(k: int, degree: int) -> np.ndarray:
    tuples = [c for size in range(degree + 1) for c in combinations_with_replacement(range(k), size)]
    exponents = np.zeros((len(tuples), k), dtype=int)
    for row, chosen in enumerate(tuples):
        for j in chosen:
            exponents[row, j] += 1
    return exponents


def _sparse(moments: Moments, sparse: float) -> np.ndarray:
    """Solve least squares, then again without the monomials whose part in the outputs is negligible."""
    coefficients = _solve(moments.xx, moments.yx)
    left = np.maximum(np.diag(moments.yy) - np.sum(coefficients * moments.yx, axis=1), 1e-14 * np.diag(moments.yy))
    variances = np.outer(left, np.diag(np.linalg.pinv(moments.xx, rcond=1e-14, hermitian=True))) / moments.n
    kept = np.any(coefficients**2 > sparse**2 * np.maximum(variances, 0.0), axis=0)
    out = np.zeros_like(coefficients)
    if kept.any():
        out[:, kept] = _solve(moments.xx[np.ix_(kept, kept)], moments.yx[:, kept])
    return out


def _solve(xx: np.ndarray, yx: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.diag(xx))
    inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
    scaled = xx * inverse * inverse[:, None]
    return np.linalg.lstsq(scaled, (yx * inverse).T, rcond=1e-14)[0].T * inverse


def _r2(moments: Moments, coefficients: np.ndarray) -> float:
    M = coefficients.shape[1]
    left = np.diag(moments.yy) - 2.0 * np.sum(coefficients * moments.yx, axis=1)
    left = left + np.sum((coefficients @ moments.xx) * coefficients, axis=1)
    return float(1.0 - left.sum() / max(np.diag(moments.covariance)[M:].sum(), 1e-300))
