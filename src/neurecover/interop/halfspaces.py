"""Unions and intersections of halfspaces as scikit-learn classifiers, learned from labels alone [GP18, §2.3].

A union {x : some nᵢ·x > tᵢ} is the OR of step units, whose Hermite coefficients show the normals when the halfspaces
lie far from the mean of Gaussian inputs; the boundary of the labels then gives them precisely, and the rates at which
labels were flipped on either side as well. An intersection {x : all nᵢ·x ≤ tᵢ} is the complement of a union.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from neurecover.algorithms.gp18.union_search import UnionFound, find_union
from neurecover.data import ArraySource, Mapped, Whitening, reduce, subsample
from neurecover.random import as_generator
from neurecover.statistics import Moments

_WIDE = 0.2  # an expected angle, in radians, beyond which normals are not determined
_SUREST = 15.0  # log-odds beyond which Gaussian tails are not to be believed
_GATHERED = 5.0  # standard errors by which wrong labels may be more frequent near the boundary than far from it


@dataclass(frozen=True)
class Halfspaces:
    """Boundaries nᵢ·x = tᵢ: unit `normals` (k, d) that point out of the origin's side, and `thresholds` (k,).

    `angle_errors` (k,) are the angles to be expected between the normals and the true ones (root mean square), and
    `threshold_errors` (k,) the standard errors of the thresholds. `covariance` (k, d + 1, d + 1) is that of (nᵢ, tᵢ).
    """

    normals: np.ndarray
    thresholds: np.ndarray
    covariance: np.ndarray

    @property
    def angle_errors(self) -> np.ndarray:
        return np.sqrt(np.trace(self.covariance[:, :-1, :-1], axis1=1, axis2=2))

    @property
    def threshold_errors(self) -> np.ndarray:
        return np.sqrt(self.covariance[:, -1, -1])

    def __len__(self) -> int:
        return len(self.thresholds)


class _HalfspaceClassifier(ClassifierMixin, BaseEstimator):
    """What both classifiers share: the fit of the union that is one class or the other."""

    n_halfspaces: int | None
    max_samples: int
    random_state: Any
    _is_union: bool

    def _label(self) -> Any:
        """The class that is the union, or the intersection; None for the class that sorts last."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> _HalfspaceClassifier:
        """Find the halfspaces from X (n, d), Gaussian of any mean and covariance, and two classes y (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, coded = np.unique(y, return_inverse=True)
        self._check_classes()
        named = 1 if self._label() is None else int(np.flatnonzero(self.classes_ == self._label())[0])
        self._union_class = named if self._is_union else 1 - named
        rng = as_generator(self.random_state, "halfspaces")
        d = X.shape[1]
        source = ArraySource(X, (coded == self._union_class).astype(float))
        moments = reduce(source, Moments(d, 1))
        whitening = Whitening.of(moments.mean[:d], moments.covariance[:d, :d])
        if whitening.rank == 0:
            raise ValueError("All inputs are equal, so they show no halfspace. Give inputs that vary.")
        labels = subsample(Mapped(source, whitening), self.max_samples, int(rng.integers(2**31)))
        found = find_union(labels, rng, self.n_halfspaces)
        fit = found.fit
        assert fit.flips is not None
        self.halfspaces_ = _in_inputs(found, whitening)
        self.tan_alpha_ = self.halfspaces_.angle_errors
        self.flip_rates_ = fit.flips if self._union_class == 1 else fit.flips[::-1]
        self.training_error_ = fit.error
        self.criteria_ = found.criteria
        self.notes_ = _notes(found, _gathered(labels, found))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The log-odds of classes_[1] against classes_[0], (n,); labels that were flipped are not counted on."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        half = self.halfspaces_
        # The distance from a boundary whose normal and threshold have errors has those of (x, −1)·(n, t).
        ones = np.column_stack([X, -np.ones(len(X))])
        spread = np.sqrt(np.maximum(np.einsum("nj,kjl,nl->nk", ones, half.covariance, ones), 1e-24))
        outside = log_ndtr((half.thresholds - X @ half.normals.T) / spread).sum(axis=1)
        odds = np.log(-np.expm1(np.minimum(outside, -np.finfo(float).tiny))) - outside
        odds = np.clip(odds, -_SUREST, _SUREST)
        return odds if self._union_class == 1 else -odds

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities (n, 2) that x is of either class, given how well the boundaries are known."""
        inside = expit(self.decision_function(X))
        return np.column_stack([1.0 - inside, inside])

    def predict(self, X: Any) -> np.ndarray:
        """One of the two classes for every row of X."""
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
        k = self.n_halfspaces
        if k is not None and (isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1):
            raise ValueError(f"n_halfspaces needs to be a whole number from 1, or None to have it found. Got {k!r}.")
        label = self._label()
        if label is not None and label not in self.classes_:
            raise ValueError(
                f"The label needs to be one of the classes {self.classes_.tolist()}. Got {label!r} instead."
            )


class HalfspaceUnion(_HalfspaceClassifier):
    """One class is the union of n_halfspaces halfspaces {nᵢ·x > tᵢ} [GP18, Theorem 6].

    n_halfspaces=None finds their number by the Bayesian information criterion. union_label is the class that is the
    union; None takes the one that sorts last. At most max_samples rows are used.

    After `fit`, `halfspaces_` holds the normals and thresholds with their errors, `tan_alpha_` the angles to expect
    between the normals and the true ones, `flip_rates_` the rates of wrong labels in either class, `criteria_` the
    criterion of every number of halfspaces tried, and `notes_` says in plain sentences how far to trust all this.
    """

    _is_union = True

    def __init__(
        self,
        n_halfspaces: int | None = None,
        max_samples: int = 200_000,
        random_state: Any = None,
        union_label: Any = None,
    ) -> None:
        self.n_halfspaces = n_halfspaces
        self.max_samples = max_samples
        self.random_state = random_state
        self.union_label = union_label

    def _label(self) -> Any:
        return self.union_label


class HalfspaceIntersection(_HalfspaceClassifier):
    """One class is the intersection of halfspaces {nᵢ·x ≤ tᵢ}, whose complement is a union [GP18, Theorem 6].

    intersection_label is that class; None takes the one that sorts last. Other parameters and attributes are those of
    `HalfspaceUnion`.
    """

    _is_union = False

    def __init__(
        self,
        n_halfspaces: int | None = None,
        max_samples: int = 200_000,
        random_state: Any = None,
        intersection_label: Any = None,
    ) -> None:
        self.n_halfspaces = n_halfspaces
        self.max_samples = max_samples
        self.random_state = random_state
        self.intersection_label = intersection_label

    def _label(self) -> Any:
        return self.intersection_label


def _in_inputs(found: UnionFound, whitening: Whitening) -> Halfspaces:
    """w·z > t with z = Bᵀ(x − μ) is n·x > T with u = B w, n = u/‖u‖, T = (t + u·μ)/‖u‖; errors to first order."""
    fit, B = found.fit, whitening.matrix
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
        covariance[i] = J @ fit.covariance[i] @ J.T
    return Halfspaces(normals, thresholds, covariance)


def _gathered(labels: ArraySource, found: UnionFound) -> float:
    """By how many standard errors wrong labels are more frequent near the boundary than far from it, on its worse side.

    Flipped labels are as frequent everywhere; a set of another shape is contradicted near the boundary.
    """
    X, Y = labels.collect()
    fit = found.fit
    depth = np.max(X @ fit.W.T - fit.threshold, axis=1)
    # Within its own error the boundary has wrong labels whatever the shape.
    clear = np.abs(depth) > 4.0 * fit.tan_alpha.max()
    depth, Y = depth[clear], Y[clear]
    wrong = (depth > 0.0) != (Y[:, 0] > 0.5)
    worst = 0.0
    for side in (depth > 0.0, depth <= 0.0):
        near = np.abs(depth[side]) < np.median(np.abs(depth[side])) if side.any() else np.zeros(0, dtype=bool)
        if not near.any() or near.all():
            continue
        rate, far = wrong[side][near].mean(), wrong[side][~near].mean()
        pooled = wrong[side].mean()
        error = np.sqrt(max(pooled * (1.0 - pooled), 1.0 / len(wrong)) * (1.0 / near.sum() + 1.0 / (~near).sum()))
        worst = max(worst, float((rate - far) / error))
    return worst


def _notes(found: UnionFound, gathered: float) -> tuple[str, ...]:
    fit = found.fit
    assert fit.flips is not None
    k = len(fit.W)
    notes = [
        f"{1.0 - fit.error:.2%} of the training labels lie on the right side of {k} halfspaces; an estimated "
        f"{fit.flips[1]:.2%} of the labels inside the union and {fit.flips[0]:.2%} outside are wrong."
    ]
    if np.isfinite(found.margin) and not found.sure:
        nearest = f"the next best criterion is {found.margin:.1f} above its own"
        reason = nearest if found.explained else "some samples stay unexplained"
        notes.append(f"The number of halfspaces is not certain: {reason}.")
    doubts = []
    if found.criteria and min(found.criteria, key=found.criteria.__getitem__) == 0:
        doubts.append("labels that do not depend on the inputs explain them as well")
    if fit.tan_alpha.max() > _WIDE:
        doubts.append(f"an angle of {fit.tan_alpha.max():.2f} is to be expected between a normal and the true one")
    if gathered > _GATHERED:
        doubts.append(f"wrong labels gather at the boundary ({gathered:.0f} standard errors), so it has another shape")
    if doubts:
        notes.append(f"The normals are not to be relied on: {'; '.join(doubts)}.")
    return tuple(notes)
