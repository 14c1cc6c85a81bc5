"""Unions and intersections of halfspaces as scikit-learn classifiers, learned from labels alone [GP18, §2.3].

A union {x : some nᵢ·x > tᵢ} is the OR of step units, whose Hermite coefficients show the normals when the halfspaces
lie far from the mean of Gaussian inputs; the boundary of the labels then gives them precisely. An intersection {x :
all nᵢ·x ≤ tᵢ} is the complement of a union.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from neurecover.activations import get
from neurecover.algorithms.gp18.step_one import directions, hermite_coefficients
from neurecover.algorithms.gp18.union import UnionFit, fit_union
from neurecover.data import ArraySource, Mapped, Whitening, reduce, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.random import as_generator
from neurecover.statistics import Moments

_GOOD = 1e-3  # share of training samples on the wrong side up to which no further start is tried


@dataclass(frozen=True)
class Halfspaces:
    """Boundaries nᵢ·x = tᵢ: unit `normals` (k, d) that point out of the origin's side, and `thresholds` (k,)."""

    normals: np.ndarray
    thresholds: np.ndarray

    def __len__(self) -> int:
        return len(self.thresholds)


class _HalfspaceClassifier(ClassifierMixin, BaseEstimator):
    """What both classifiers share: the fit of the union that is the class `_union_class`."""

    _union_class: int

    def __init__(self, n_halfspaces: int | None = None, max_samples: int = 200_000, random_state: Any = None) -> None:
        self.n_halfspaces = n_halfspaces
        self.max_samples = max_samples
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> _HalfspaceClassifier:
        """Find the halfspaces from X (n, d), Gaussian of any mean and covariance, and two classes y (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, coded = np.unique(y, return_inverse=True)
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
        rng = as_generator(self.random_state, "halfspaces")
        source = ArraySource(X, (coded == self._union_class).astype(float))
        moments = reduce(source, Moments(X.shape[1], 1))
        d = X.shape[1]
        whitening = Whitening.of(moments.mean[:d], moments.covariance[:d, :d])
        if whitening.rank == 0:
            raise ValueError("All inputs are equal, so they show no halfspace. Give inputs that vary.")
        white = Mapped(source, whitening)
        fit = self._best(white, len(X), float(moments.mean[d]), rng)
        normals = fit.W @ whitening.matrix.T
        size = np.linalg.norm(normals, axis=1)
        thresholds = fit.threshold + normals @ whitening.mean
        self.halfspaces_ = Halfspaces(normals / size[:, None], thresholds / size)
        self.tan_alpha_ = fit.tan_alpha
        self.training_error_ = fit.error
        self.notes_ = self._notes(fit)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """How far x is on the side of classes_[1] of the nearest boundary, (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        depth = np.max(X @ self.halfspaces_.normals.T - self.halfspaces_.thresholds, axis=1)
        return depth if self._union_class == 1 else -depth

    def predict(self, X: Any) -> np.ndarray:
        """One of the two classes for every row of X."""
        side = self.decision_function(X) > 0.0
        return self.classes_[side.astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _best(self, white: Mapped, n: int, share: float, rng: np.random.Generator) -> UnionFit:
        """The fit from the units of Step 1, or from random turns of the mean of the union where that is better."""
        r = white.n_inputs
        labels = subsample(white, self.max_samples, int(rng.integers(2**31)))
        starts = []
        tensors, error = hermite_coefficients(white, n, 3)
        try:
            k = self.n_halfspaces
            if k is None or k <= r:
                found = directions(tensors, r, rng, n_hidden=k, standard_error=error)
                starts.append(found.signed(get("step")).W)
        except UnsolvableError:
            pass  # too few samples, or more halfspaces than dimensions: the other starts need no moments
        k = self.n_halfspaces or (len(starts[0]) if starts else 1)
        mean = tensors[1] / max(float(np.linalg.norm(tensors[1])), 1e-300)
        spread = 0.0 if k == 1 else 0.7
        starts += [mean + spread * rng.standard_normal((k, r)) for _ in range(1 if k == 1 else 3)]
        best: UnionFit | None = None
        for W in starts:
            threshold = np.full(len(W), float(ndtri(np.clip(1.0 - share, 1e-6, 1.0 - 1e-6) ** (1.0 / len(W)))))
            fit = fit_union(labels, W / np.linalg.norm(W, axis=1, keepdims=True), threshold)
            if best is None or fit.log_likelihood > best.log_likelihood:
                best = fit
            if best.error <= _GOOD:
                break
        assert best is not None
        return best

    def _notes(self, fit: UnionFit) -> tuple[str, ...]:
        notes = [f"{1.0 - fit.error:.2%} of the training labels lie on the right side of {len(fit.W)} halfspaces."]
        if fit.error > _GOOD:
            notes.append(
                "That is less than noiseless labels of such a set allow, so the normals are not to be relied on: the "
                "halfspaces may be too near the mean, more than given, or the labels noisy."
            )
        return tuple(notes)


class HalfspaceUnion(_HalfspaceClassifier):
    """classes_[1] is the union of n_halfspaces halfspaces {nᵢ·x > tᵢ} [GP18, Theorem 6].

    n_halfspaces=None finds their number from the Hermite coefficients of the labels, which works up to the number of
    inputs. After `fit`, `halfspaces_` holds the normals and thresholds, `tan_alpha_` the estimated tangents of the
    angles that are left, and `notes_` says in plain sentences how far to trust them. At most max_samples rows are
    used for the boundary; all are used for the coefficients.
    """

    _union_class = 1


class HalfspaceIntersection(_HalfspaceClassifier):
    """classes_[1] is the intersection of halfspaces {nᵢ·x ≤ tᵢ}, whose complement is a union [GP18, Theorem 6].

    Parameters and attributes are those of `HalfspaceUnion`.
    """

    _union_class = 0
