"""Unions and intersections of halfspaces as scikit-learn classifiers, learned from labels alone [GP18, §2.3].

A union {x : some nᵢ·x > tᵢ} is the OR of step units, whose Hermite coefficients show the normals when the halfspaces
lie far from the mean of Gaussian inputs; the boundary of the labels then gives them precisely, and the rates at which
labels were flipped on either side as well. An intersection {x : all nᵢ·x ≤ tᵢ} is the complement of a union.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from neurecover.algorithms.gp18.union.evidence import label_evidence, log_outside, split_labels
from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.algorithms.gp18.union.posterior import at_posterior_means
from neurecover.algorithms.gp18.union.search import find_union
from neurecover.certificate import ParameterArrays
from neurecover.certificate.from_labels import certify_labelled
from neurecover.data import ArraySource, Mapped, Whitening, reduce, subsample
from neurecover.random import as_generator
from neurecover.statistics import Moments

_SUREST = 15.0  # log-odds beyond which Gaussian tails cannot be trusted


@dataclass(frozen=True)
class Halfspaces:
    """Boundaries nᵢ·x = tᵢ: unit `normals` (k, d) that point out of the origin's side, and `thresholds` (k,).

    `angle_errors` (k,) are the angles to be expected between the normals and the true ones (root mean square), and
    `threshold_errors` (k,) the standard errors of the thresholds. `covariance` (k, d + 1, d + 1) is that of (nᵢ, tᵢ).
    """

    normals: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @property
    def angle_errors(self) -> NDArray[np.float64]:
        return np.sqrt(np.trace(self.covariance[:, :-1, :-1], axis1=1, axis2=2))

    @property
    def threshold_errors(self) -> NDArray[np.float64]:
        return np.sqrt(self.covariance[:, -1, -1])

    @property
    def standard_errors(self) -> ParameterArrays:
        """The standard errors of all entries, by the names normals and thresholds."""
        own = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
        return ParameterArrays({"normals": own[:, :-1], "thresholds": own[:, -1]})

    def __len__(self) -> int:
        return len(self.thresholds)


class _HalfspaceClassifier(ClassifierMixin, BaseEstimator):
    """The common part of both classifiers, which fits the union that is one of the two classes."""

    _is_union: bool
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_halfspaces": [Interval(Integral, 1, None, closed="left"), None],
        "max_samples": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(self, n_halfspaces: int | None, max_samples: int, random_state: Any) -> None:
        self.n_halfspaces, self.max_samples, self.random_state = n_halfspaces, max_samples, random_state

    @property
    def _label(self) -> Any:
        """The class that is the union or the intersection; None for the class that sorts last."""
        return getattr(self, "union_label" if self._is_union else "intersection_label")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Find the halfspaces.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Gaussian inputs of any mean and covariance.
        y : array-like of shape (n_samples,)
            Two classes.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, coded = np.unique(y, return_inverse=True)
        self._check_classes()
        named = 1 if self._label is None else int(np.flatnonzero(self.classes_ == self._label)[0])
        self._union_class = named if self._is_union else 1 - named
        rng = as_generator(self.random_state, "halfspaces")
        d = X.shape[1]
        source = ArraySource(X, (coded == self._union_class).astype(float))
        moments = reduce(source, Moments(d, 1))
        whitening = Whitening.of(moments.mean[:d], moments.covariance[:d, :d])
        if whitening.rank == 0:
            raise ValueError("All inputs are equal, so they show no halfspace. Give inputs that vary.")
        labels = subsample(Mapped(source, whitening), self.max_samples, int(rng.integers(2**31)))
        train, held_out = split_labels(labels, rng)
        found = find_union(train, rng, self.n_halfspaces)
        judged = at_posterior_means(train, found.fit, rng)
        # The held-out labels have judged, so they can join the fit.
        fit = at_posterior_means(labels, judged, rng)
        assert fit.flips is not None
        self.halfspaces_ = _in_input_units(fit, whitening)
        self.tan_alpha_ = self.halfspaces_.angle_errors
        self.flip_rates_ = fit.flips if self._union_class == 1 else fit.flips[::-1]
        self.criteria_ = found.criteria
        errors = self.halfspaces_.standard_errors
        evidence = label_evidence(found, judged, fit, labels, held_out, errors, whitening, rng)
        self.certificate_ = certify_labelled(evidence)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the log-odds of the true class being `classes_[1]`, not of a label that may be flipped.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        ndarray of shape (n_samples,)
            The log-odds.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        half = self.halfspaces_
        outside = log_outside(X, half.normals, half.thresholds, half.covariance)
        odds = np.log(-np.expm1(np.minimum(outside, -np.finfo(float).tiny))) - outside
        odds = np.clip(odds, -_SUREST, _SUREST)
        return odds if self._union_class == 1 else -odds

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of both classes, given how well the boundaries are known.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            In the order of `classes_`.
        """
        inside = expit(self.decision_function(X))
        return np.column_stack([1.0 - inside, inside])

    def predict(self, X: Any) -> np.ndarray:
        """Return one of the two classes for every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        ndarray of shape (n_samples,)
            The classes.
        """
        side = self.decision_function(X) > 0.0
        return self.classes_[side.astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError("All labels are of one class, so they show no halfspace. Give samples of two classes.")
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"Got {len(self.classes_)} classes instead."
            )
        label = self._label
        if label is not None and label not in self.classes_:
            raise ValueError(
                f"The label needs to be one of the classes {self.classes_.tolist()}. Got {label!r} instead."
            )


class HalfspaceUnion(_HalfspaceClassifier):
    """One class is the union of halfspaces {nᵢ·x > tᵢ} [1]_.

    Parameters
    ----------
    n_halfspaces : int, default=None
        The number of halfspaces; None finds it by the Bayesian information criterion.
    max_samples : int, default=200_000
        The most rows that are used, drawn at random where there are more.
    random_state : int, RandomState, Generator or None, default=None
        Same seed, same answer.
    union_label : object, default=None
        The class that is the union; None takes the one that sorts last.

    Attributes
    ----------
    certificate_ : Certificate
        How far the halfspaces can be trusted: "statistical", with standard errors of normals and thresholds,
        "approximate" or "failed", by checks on labels that had no part in the fit.
    halfspaces_ : Halfspaces
        `normals` (k, d), `thresholds` (k,), and their errors.
    tan_alpha_ : ndarray of shape (k,)
        The angle to be expected between every normal and the true one (root mean square).
    flip_rates_ : ndarray of shape (2,)
        The rates of wrong labels among the samples of either class.
    criteria_ : dict
        The Bayesian information criterion of every number of halfspaces that was tried.
    classes_ : ndarray of shape (2,)
        The classes.
    n_features_in_ : int
        The number of inputs.

    References
    ----------
    .. [1] S. Goel and R. Panigrahy, "Recovering the Lowest Layer of Deep Networks with High Threshold Activations",
       2018, Theorem 6 [GP18].

    Examples
    --------
    >>> import numpy as np
    >>> from neurecover import HalfspaceUnion
    >>> X = np.random.default_rng(0).standard_normal((2_000, 2))
    >>> model = HalfspaceUnion(random_state=0).fit(X, (X > 1.0).any(axis=1))
    >>> model.certificate_.verdict, len(model.halfspaces_)
    ('statistical', 2)
    >>> model.predict([[2.0, 0.0], [0.0, 0.0]])
    array([ True, False])
    """

    _is_union = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_HalfspaceClassifier._parameter_constraints,
        "union_label": "no_validation",
    }

    def __init__(
        self,
        n_halfspaces: int | None = None,
        max_samples: int = 200_000,
        random_state: Any = None,
        union_label: Any = None,
    ) -> None:
        super().__init__(n_halfspaces, max_samples, random_state)
        self.union_label = union_label


class HalfspaceIntersection(_HalfspaceClassifier):
    """One class is the intersection of halfspaces {nᵢ·x ≤ tᵢ}, whose complement is a union [1]_.

    Parameters
    ----------
    n_halfspaces : int, default=None
        The number of halfspaces; None finds it by the Bayesian information criterion.
    max_samples : int, default=200_000
        The most rows that are used, drawn at random where there are more.
    random_state : int, RandomState, Generator or None, default=None
        Same seed, same answer.
    intersection_label : object, default=None
        The class that is the intersection; None takes the one that sorts last.

    Attributes
    ----------
    halfspaces_ : Halfspaces
        `normals` (k, d), which point out of the intersection, `thresholds` (k,), and their errors.
    certificate_, tan_alpha_, flip_rates_, criteria_, classes_, n_features_in_
        As of :class:`HalfspaceUnion`.

    References
    ----------
    .. [1] S. Goel and R. Panigrahy, "Recovering the Lowest Layer of Deep Networks with High Threshold Activations",
       2018, Theorem 6 [GP18].

    Examples
    --------
    >>> import numpy as np
    >>> from neurecover import HalfspaceIntersection
    >>> X = np.random.default_rng(0).standard_normal((2_000, 2))
    >>> model = HalfspaceIntersection(random_state=0).fit(X, (X <= 1.0).all(axis=1))
    >>> model.certificate_.verdict, len(model.halfspaces_)
    ('statistical', 2)
    """

    _is_union = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_HalfspaceClassifier._parameter_constraints,
        "intersection_label": "no_validation",
    }

    def __init__(
        self,
        n_halfspaces: int | None = None,
        max_samples: int = 200_000,
        random_state: Any = None,
        intersection_label: Any = None,
    ) -> None:
        super().__init__(n_halfspaces, max_samples, random_state)
        self.intersection_label = intersection_label


def _in_input_units(fit: UnionFit, whitening: Whitening) -> Halfspaces:
    """Return the halfspaces in the units of the inputs, with errors to first order.

    w·z > t with z = Bᵀ(x − μ) is n·x > T with u = B w, n = u/‖u‖, T = (t + u·μ)/‖u‖.
    """
    B = whitening.matrix
    assert fit.covariance is not None
    U = fit.W @ B.T
    size = np.linalg.norm(U, axis=1)
    normals, thresholds = U / size[:, None], (fit.threshold + U @ whitening.mean) / size
    d, r = B.shape
    covariance = np.empty((len(U), d + 1, d + 1))
    for i, (n, T) in enumerate(zip(normals, thresholds)):
        J = np.zeros((d + 1, r + 1))
        J[:d, :r] = (B - np.outer(n, n @ B)) / size[i]
        J[d, :r] = (whitening.mean @ B - T * (n @ B)) / size[i]
        J[d, r] = 1.0 / size[i]
        C = J @ fit.covariance[i] @ J.T
        # A unit vector with an error e across itself loses ‖e‖²/2 along itself, which first order does not see.
        across = C[:d, :d]
        C[:d, :d] = across + 0.25 * (np.trace(across) ** 2 + 2.0 * np.sum(across**2)) * np.outer(n, n)
        covariance[i] = C
    return Halfspaces(normals, thresholds, covariance)
