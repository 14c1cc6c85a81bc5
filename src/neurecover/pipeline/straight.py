"""The straight line, y = C x + c: a network without hidden units, the baseline for every other network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Prepared, Source, reduce
from neurecover.models import Model, Network
from neurecover.statistics import Residuals

_CLEARLY = 3.09  # standard errors that chance exceeds once in a thousand, as in every test of a certificate


def straight_line(prepared: Prepared, activation: Activation) -> Network:
    """Return the least-squares line on whitened inputs, from the moments, refined once if samples are in memory.

    With the weighted covariances S_xx, S_yx, C = S_yx S_xx⁻¹. One more solve with the residuals restores the digits
    that the moments have lost, so that an exact line fits to rounding.
    """
    moments, whitening, d = prepared.fitted_moments, prepared.whitening, prepared.source.n_inputs
    covariance, M = moments.covariance, whitening.matrix.T
    xx = M @ covariance[:d, :d] @ M.T
    centre = M @ (moments.mean[:d] - whitening.mean)
    C = np.linalg.lstsq(xx, M @ covariance[:d, d:], rcond=1e-12)[0].T
    c = moments.mean[d:] - C @ centre
    if prepared.stream is None:
        X, Y = prepared.samples.collect()
        weight = prepared.samples.weights()
        w = np.ones(len(X)) if weight is None else weight
        left = Y - X @ C.T - c
        shift = w @ left / w.sum()
        more = np.linalg.lstsq(xx, (X - centre).T @ (w[:, None] * (left - shift)) / w.sum(), rcond=1e-12)[0].T
        C, c = C + more, c + shift - more @ centre
    p = prepared.source.n_outputs
    return Network(np.zeros((0, len(M))), None, np.zeros((p, 0)), c, activation, C=C)


def left_by(network: Network, prepared: Prepared, samples: Source) -> Residuals:
    """Return the residuals of the line on samples."""
    return reduce(samples, Residuals(network, prepared.source.n_outputs, 1, prepared.output_mean))


@dataclass(frozen=True)
class Line:
    """The straight line on whitened inputs, its Σr² over all samples, and its mean square (p,) on held-out samples.

    `total` is Σr² of the mean over all samples.
    """

    network: Network
    rss: float
    held_out: np.ndarray
    total: float

    @property
    def n_slopes(self) -> int:
        """The parameters beyond the mean."""
        return self.network.n_outputs * self.network.n_inputs

    @classmethod
    def of(cls, prepared: Prepared, activation: Activation) -> Line:
        """Fit the line and sum its squared residuals.

        The line is fitted to held-out samples too, which lowers their residuals by the share 2 (d + 1)/n. For a stream
        the moments give Σr² over all samples.
        """
        line = straight_line(prepared, activation)
        n, d = prepared.moments.n, prepared.source.n_inputs
        apart = 1.0 + 2.0 * (line.n_inputs + 1) / n
        total = n * float(np.trace(prepared.fitted_moments.covariance[d:, d:]))
        if prepared.stream is None:
            everything = left_by(line, prepared, prepared.samples)
            held_out = left_by(line, prepared, prepared.judges).mean_squares
            return cls(line, float(everything.sums["residual_squared"].sum()), apart * held_out, total)
        covariance, C = prepared.fitted_moments.covariance, line.C
        assert C is not None
        cross = prepared.whitening.matrix.T @ covariance[:d, d:]
        left = np.maximum(np.diag(covariance)[d:] - np.einsum("od,do->o", C, cross), 0.0)
        return cls(line, float(n * left.sum()), apart * left, total)

    def beaten_by(self, network: Model, prepared: Prepared, lead: bool) -> Beaten:
        """Return whether a network predicts held-out samples better than the line, and whether clearly worse.

        A few held-out samples may favour either by chance. So a network that fits all samples better (`lead`) loses
        only if it is clearly worse on them: by 3.09 standard errors of the differences of squares, one case in 1,000.
        """
        if prepared.stream is not None:
            return Beaten(lead, not lead)
        (X, Y), weight = prepared.judges.collect(), prepared.judges.weights()
        w = np.ones(len(X)) if weight is None else weight
        gain = w * np.sum((Y - self.network(X)) ** 2 - (Y - network(X)) ** 2, axis=1)
        t = float(gain.mean()) / max(float(gain.std()) / np.sqrt(len(gain)), 1e-300)
        return Beaten(t > (-_CLEARLY if lead else 0.0), t < -_CLEARLY)


@dataclass(frozen=True)
class Beaten:
    """Whether a network predicts better than the line, and whether it is clearly worse."""

    better: bool
    worse: bool


def as_good(line: float, found: float, N: int, more: int) -> bool:
    """Return whether a line with Σr² = `line` is as good as a network with Σr² = `found` and `more` more parameters.

    With N equations: N·log(Σr² of the line / Σr² of the network) ≤ more·log N [Schwarz 1978].
    """
    if line <= 0.0 or found <= 0.0:
        return line <= found
    return bool(N * np.log(line / found) <= more * np.log(N))
