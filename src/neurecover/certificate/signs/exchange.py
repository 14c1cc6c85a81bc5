"""Find units that may have exchanged their weights on columns with only two values.

Take two units with the same slopes and output weights,

    a relu(w·x + β_i) + a relu(w·x + β_j),        w on all other columns.

In the rows with one value of the column they may change places. With two values any change of β is linear in the
column, so both networks fit every row. The same holds for all columns of a category together. With a free affine term
one of the two may be negated, which changes the sum by a relu(z) − a relu(−z) = a z, so opposite slopes suffice.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from neurecover.certificate.information.normal_form import signs_are_convention
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.data import Source
from neurecover.models import DeepNetwork, Network


def least_apart(
    network: Network | DeepNetwork,
    errors: Mapping[str, np.ndarray] | None,
    inputs: Source,
    options: CertificateOptions = DEFAULTS,
) -> float:
    """Return the smallest distance, in standard errors, of two units' slopes A_j w_jᵀ on columns of over two values.

    The units are those of the first layer, and A are the weights that read them. Slopes are compared up to sign if
    signs are a convention. The result is infinite if there is no column with two values, or none with more. Without
    errors the distance is in units of `same`.
    """
    X = np.asarray(inputs.collect()[0])
    two = np.all((X.min(axis=0) == X) | (X.max(axis=0) == X), axis=0) & (np.ptp(X, axis=0) > 0.0)
    if not two.any() or two.all():
        return np.inf
    (W, _), (above, _), *_ = network.layers
    names, W, A = list(network.arrays), W[:, ~two], above.T
    slopes = (W[:, :, None] * A[:, None, :]).reshape(len(W), -1)
    variances = np.full(slopes.shape, options.same**2 * max(1.0, float(np.square(slopes).max(initial=0.0))))
    if errors is not None:
        w_error, a_error = errors[names[0]][:, ~two], errors[names[2]].T
        both = np.square(w_error[:, :, None] * A[:, None, :]) + np.square(W[:, :, None] * a_error[:, None, :])
        variances += both.reshape(slopes.shape)
    least, signs = np.inf, (1.0, -1.0) if signs_are_convention(network) else (1.0,)
    for j in range(1, len(slopes)):
        for sign in signs:
            apart = np.abs(slopes[:j] - sign * slopes[j]) / np.sqrt(variances[:j] + variances[j])
            least = min(least, float(apart.max(axis=1).min()))
    return least
