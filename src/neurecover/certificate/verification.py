"""Measure how well a network predicts given samples.

Per output, with the residual r = y − f(x): the mean of r², R² = 1 − E[r²]/Var[y] and max |r|. Rounding alone makes r
about ε·t(x), where t(x) is the size of the terms that are summed to the output (`models.term_sizes`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurecover.certificate.options import DEFAULTS
from neurecover.certificate.verdict import Certificate
from neurecover.data import as_source, reduce
from neurecover.models import Model, check_network, term_sizes
from neurecover.statistics import Residuals


@dataclass(frozen=True, eq=False)
class Verification:
    """How well a network predicts samples, per output.

    Attributes
    ----------
    n_samples : int
        The number of samples.
    mse : ndarray of shape (p,)
        The mean of r², r = y − f(x).
    unexplained : ndarray of shape (p,)
        1 − R² = E[r²]/Var[y]; nan for a constant output.
    largest : ndarray of shape (p,)
        The largest abs(r).
    rounding : ndarray of shape (p,)
        The root mean square of r that rounding alone explains.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(3, 2, random_state=0)
    >>> bool(nr.verify(truth, *nr.simulate.sample(truth, 100, random_state=0)).largest[0] < 1e-12)
    True
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
        """Whether every output has R² ≥ 0.9; a constant output must be reproduced to rounding."""
        return bool(np.all((self.unexplained <= 1 - DEFAULTS.good_r2) | (self.mse <= self.rounding**2)))

    def within_noise(self, certificate: Certificate) -> bool:
        """Return whether E[r²] is at most three standard errors above the noise that the certificate states.

        This is so of every output if the certificate states the noise of each, and else of their mean. For Gaussian
        noise a mean of N squares has relative variance 2/N, and so has the stated noise over the samples of the fit.
        """
        noise, own, p = certificate.noise_variance, certificate.noise_variances, len(self.mse)
        if not noise:
            return False
        each = 1 if own is None else p
        spread = np.sqrt((2 / self.n_samples + 2 / certificate.n_samples) * each / p)
        mse, stated = (self.mse.mean(), noise) if own is None else (self.mse, own)
        return bool(np.all(mse <= stated * (1 + 3 * spread)))


def verify(network: Model, X: Any, Y: Any = None) -> Verification:
    """Measure how well a network predicts samples.

    Parameters
    ----------
    network : Network, DeepNetwork or Composite
        The network.
    X : array_like of shape (n, d), path or data source
        The inputs; or samples with their outputs.
    Y : array_like of shape (n,) or (n, p) or None, default=None
        The outputs, if X is an array.

    Returns
    -------
    Verification
        Per output, the mean squared error, 1 − R², the largest residual, and the residual that rounding explains.

    Examples
    --------
    >>> import neurecover as nr
    >>> net = nr.Network([[1.0]], None, [[2.0]])
    >>> nr.verify(net, [[1.0], [-1.0]], [2.0, 0.5]).mse
    array([0.125])
    """
    check_network(network, "verify")
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
