"""Units that may have exchanged their weights on columns of two values.

In the rows with one value of such a column two units of the same slopes and heights,

    a relu(w·x + β_i) + a relu(w·x + β_j),        w on all other columns,

may change places, and as two values make any change of β linear in the column, both networks fit every row. The same
holds for all columns of a category together. Beside a free affine term one of the two may be turned, which changes the
sum by a relu(z) − a relu(−z) = a z: there slopes that are opposite do as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from neurecover.certificate.checks import APART
from neurecover.certificate.normal_form import signs_are_convention
from neurecover.certificate.verdict import Check
from neurecover.data import Source
from neurecover.models import Network

NONE = 1e-7  # difference of slopes that counts as none without noise


def least_apart(network: Network, errors: Mapping[str, np.ndarray] | None, inputs: Source) -> float:
    """How far apart the slopes A_j w_jᵀ of two units are, in standard errors, on the columns of more than two values.

    Up to sign, where signs are a convention. Infinite where there is no column of two values, or none of more. Without
    errors, in units of NONE.
    """
    X = np.asarray(inputs.collect()[0])
    two = np.all((X.min(axis=0) == X) | (X.max(axis=0) == X), axis=0) & (np.ptp(X, axis=0) > 0.0)
    if not two.any() or two.all():
        return np.inf
    W, A = network.W[:, ~two], network.A.T
    slopes = (W[:, :, None] * A[:, None, :]).reshape(len(W), -1)
    variances = np.full(slopes.shape, NONE**2 * max(1.0, float(np.square(slopes).max(initial=0.0))))
    if errors is not None:
        w_error, a_error = errors["W"][:, ~two], errors["A"].T
        both = np.square(w_error[:, :, None] * A[:, None, :]) + np.square(W[:, :, None] * a_error[:, None, :])
        variances += both.reshape(slopes.shape)
    least, signs = np.inf, (1.0, -1.0) if signs_are_convention(network) else (1.0,)
    for j in range(1, len(slopes)):
        for sign in signs:
            apart = np.abs(slopes[:j] - sign * slopes[j]) / np.sqrt(variances[:j] + variances[j])
            least = min(least, float(apart.max(axis=1).min()))
    return least


def exchange(apart: float) -> Check:
    """Are no two units so close that they could have exchanged weights? One of the checks that are named `signs`."""
    if apart > APART:
        return Check("signs", True, apart, APART, "No two units can exchange their weights on columns of two values.")
    sentence = (
        f"Two units have the same slopes on all columns of more than two values, to {apart:.1f} standard errors: on "
        "the other columns they may have exchanged their weights."
    )
    return Check("signs", False, apart, APART, sentence)
