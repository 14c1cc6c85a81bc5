"""Inputs that are other than usual in so few rows that other weights would explain these as well."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.determined.places import Layered
from neurecover.certificate.information.normal_form import signs_are_convention
from neurecover.certificate.information.sole_equations import n_independent
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.data import ArraySource, Source
from neurecover.statistics.checks.units_on import sides

GLANCE = 64  # rows in which a column has a value twice if it is other than usual in few rows


def seldom(normal: Layered, inputs: Source, each: int = 1, options: CertificateOptions = DEFAULTS) -> np.ndarray:
    """Return a mask (k, d) of the first layer's weights that too few rows show: other values would fit as well.

    An input that differs from its usual value (its median) in m rows gives m·p equations for its k weights, and more
    than `each` per weight are needed. The unit has to be on in at least two of these equations, one to determine its
    weight and one to contradict a wrong value; under noise, in `each` of them. Without noise p counts the outputs that
    do not depend on each other: a total says nothing that its parts do not say. C adds p weights per input. Beside one
    hidden layer it also turns a unit that is off into one that is on, so that equations on either side count.
    """
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    k, d = normal.hidden_weights[0].shape
    p = n_independent(normal, options) if each == 1 else normal.n_outputs
    rare = np.zeros((k, d), dtype=bool)
    glance = np.sort(X[:GLANCE], axis=0)
    columns = np.flatnonzero((np.diff(glance, axis=0) == 0.0).any(axis=0)) if len(X) > GLANCE else np.arange(d)
    if len(columns) == 0:
        return rare
    unusual = X[:, columns] != np.median(X[:, columns], axis=0)
    rows = np.count_nonzero(unusual, axis=0)
    k_on = (
        sides(normal, X, options.at_kink)[:, :k] > 0 if normal.activation.homogeneity == 1.0 else np.ones((len(X), k))
    )
    shown = k_on.astype(np.float64).T @ unusual
    if signs_are_convention(normal) and normal.activation.homogeneity == 1.0:
        shown = np.minimum(shown, (1.0 - k_on).T @ unusual)
    n_weights = k if normal.C is None else k + p
    rare[:, columns] = (p * rows <= each * n_weights) | (p * shown < max(2, each))
    return rare


def usual_rows(normal: Layered, inputs: Source, options: CertificateOptions = DEFAULTS) -> Source:
    """Return the rows without those in which an input that is `seldom` other than usual is so.

    Beside an affine term they show a weight on either side of a kink, and which side a row is on rests on weights that
    too few rows show. Rows that are left out may make further inputs rare.
    """
    X, Y = (np.asarray(part, dtype=np.float64) for part in inputs.collect())
    kept = np.ones(len(X), dtype=bool)
    usual = np.median(X, axis=0)
    for _ in range(X.shape[1]):
        rare = np.asarray(seldom(normal, ArraySource(X[kept], Y[kept]), options=options).any(axis=0))
        left = kept & (X[:, rare] == usual[rare]).all(axis=1)
        if np.count_nonzero(left) in (0, np.count_nonzero(kept)):
            break
        kept = left
    return ArraySource(X[kept], Y[kept])
