"""How a network does on samples that it is given.

Per output, with the residual r = y − f(x): the mean of r², R² = 1 − E[r²]/Var[y] and max |r|. Rounding alone leaves
about ε·t(x) in r, where t(x) is the size of the terms whose sum the output is (`models.term_sizes`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurecover.certificate.options import DEFAULTS
from neurecover.certificate.verdict import Certificate
from neurecover.data import as_source, reduce
from neurecover.models import Model, term_sizes
from neurecover.statistics import Residuals


@dataclass(frozen=True, eq=False)
class Verification:
    """The figures per output, each (p,).

    `mse` is E[r²], `unexplained` is 1 − R² = E[r²]/Var[y] (nan for a constant output), `largest` is max |r|, and
    `rounding` the root mean square of r that rounding alone may leave.
    """

    n_samples: int
    mse: NDArray[np.float64]
    unexplained: NDArray[np.float64]
    largest: NDArray[np.float64]
    rounding: NDArray[np.float64]

    @property
    def at_rounding(self) -> bool:
        """Whether no output has a residual above the level of rounding."""
        return bool(np.all(self.mse <= self.rounding**2))

    @property
    def predicts(self) -> bool:
        """Whether every output has R² ≥ 0.9; one that is constant has to be met to rounding."""
        return bool(np.all((self.unexplained <= 1 - DEFAULTS.good_r2) | (self.mse <= self.rounding**2)))

    def within_noise(self, certificate: Certificate) -> bool:
        """Return whether E[r²] is at most three standard errors above the noise that the network's certificate states.

        For Gaussian noise a mean of N squares has relative variance 2/N; the noise itself was measured on the samples
        of the fit.
        """
        noise, p = certificate.noise_variance, len(self.mse)
        if not noise:
            return False
        spread = np.sqrt(2 / (self.n_samples * p) + 2 / (certificate.n_samples * p))
        return bool(self.mse.mean() <= noise * (1 + 3 * spread))


def verify(network: Model, X: Any, Y: Any = None) -> Verification:
    """Return the residuals of a network on samples: arrays X (n, d) and Y, or X alone as a path or a data source."""
    source = as_source(X, Y)
    ours, theirs = (network.n_inputs, network.n_outputs), (source.n_inputs, source.n_outputs)
    if ours != theirs:
        raise ValueError(
            f"{source.origin}: the network has n_inputs={ours[0]} and n_outputs={ours[1]}. "
            f"Got {theirs[0]} and {theirs[1]} instead."
        )
    _, first = next(source.blocks(1))
    residuals = reduce(source, _WithTerms(network, first[0].astype(np.float64)))
    mse, variance = residuals.mean_squares, residuals.output_variance
    return Verification(
        n_samples=residuals.n,
        mse=mse,
        unexplained=np.divide(mse, variance, out=np.full_like(mse, np.nan), where=variance > 0),
        largest=residuals.sums["residual_max"],
        rounding=DEFAULTS.rounding * np.sqrt(residuals.per_row("terms_squared")),
    )


class _WithTerms(Residuals):
    """The residuals of a network, and Σ t(x)² per output."""

    def __init__(self, network: Model, origin: np.ndarray) -> None:
        super().__init__(network, network.n_outputs, 3 * int(np.sum(network.n_hidden)), origin)
        self.network = network
        self.sums["terms_squared"] = np.zeros(network.n_outputs)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        super().update(X, Y, weight)
        terms = term_sizes(self.network, np.asarray(X, dtype=np.float64))
        self.sums["terms_squared"] += np.einsum("ij,ij->j", terms, terms)
