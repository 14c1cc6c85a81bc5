"""Estimate Hermite coefficients a second time, from the residuals of a first network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from neurecover.algorithms.atv21.coefficients import Coefficients, estimate_coefficients
from neurecover.algorithms.atv21.options import DEFAULTS, HermiteOptions
from neurecover.algorithms.atv21.steps import population_coefficients
from neurecover.data import Source
from neurecover.data.views.view import Seen, View
from neurecover.models import Network
from neurecover.statistics.moments.hermite import n_features


class Unexplained(View):
    """A source whose outputs are the residuals y − predict(x)."""

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray]) -> None:
        self.parent, self._predict = parent, predict
        self.origin = f"{parent.origin} (less a network)"
        self.n_samples = parent.n_samples
        self.input_names, self.output_names = parent.input_names, parent.output_names

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        return X, Y - self._predict(np.asarray(X, dtype=np.float64)), None


def looks(n: int, r: int, crowded: bool, options: HermiteOptions = DEFAULTS) -> tuple[int, ...]:
    """Return the degrees of the further estimates that n samples in r dimensions justify: 4, then 6 if k exceeds r.

    Orders 5 and 6 halve the error that noise leaves if there are many units; for few units, order 4 contains nearly all
    information.
    """

    def cost(degree: int) -> float:
        return 2.0 * n * (r + 1) * n_features(r, degree)

    if n_features(r, 4) > options.most_features or cost(4) > (options.operations if crowded else options.quick):
        return ()
    six = crowded and n_features(r, 6) <= options.most_features and cost(6) <= options.operations
    return (4, 6 if six else 4)


def sharper_coefficients(
    source: Source,
    network: Network,
    basis: np.ndarray,
    degree: int,
    rng: np.random.Generator,
    options: HermiteOptions = DEFAULTS,
) -> Coefficients:
    """Return the coefficients of Bᵀx, B = basis (d, r), estimated from the residuals of a network with units in that
    span.
    """
    left = Unexplained(source, network)
    c = estimate_coefficients(left, degree, rng, projection=basis, regress=1, options=options)
    inside = Network(network.W @ basis, network.b, network.A, network.c, network.activation)
    own = population_coefficients(inside, tuple(range(degree + 1)))

    def whole(tensors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {j: T + own[j] / c.scale[:, None] for j, T in tensors.items()}

    return replace(c, tensors=whole(c.tensors), halves=tuple(whole(half) for half in c.halves))
