"""Find inputs that differ from their usual value in so few rows that other weights would fit as well."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.determined.places import Layered
from neurecover.certificate.information.normal_form import signs_are_convention
from neurecover.certificate.information.sole_equations import n_independent
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.data import ArraySource, Source
from neurecover.statistics.checks.units_on import sides


def seldom(normal: Layered, inputs: Source, each: int = 1, options: CertificateOptions = DEFAULTS) -> np.ndarray:
    """Return a mask (k, d) of the first layer's weights that too few rows show: other values would fit as well.

    An input that differs from its usual value (its median) in m rows gives m·p equations for its k weights, and more
    than `each` per weight are needed. The unit must be on in at least two of these equations, one to determine its
    weight and one to contradict a wrong value; under noise, in `each` of them. Without noise p counts only linearly
    independent outputs: a total adds nothing to its parts. C adds p weights per input. With one hidden layer and C, a
    unit that is off is equivalent to a negated unit that is on, so equations on either side count.
    """
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    k, d = normal.hidden_weights[0].shape
    p = n_independent(normal, options) if each == 1 else normal.n_outputs
    rare = np.zeros((k, d), dtype=bool)
    glance = np.sort(X[: options.glance], axis=0)
    columns = np.flatnonzero((np.diff(glance, axis=0) == 0.0).any(axis=0)) if len(X) > options.glance else np.arange(d)
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
    """Leave out the rows in which a rare input (see `seldom`) differs from its usual value.

    With an affine term such rows may count on either side of a kink, and the side itself depends on weights that too
    few rows show. Leaving out rows may make further inputs rare.
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
