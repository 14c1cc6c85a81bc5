"""The straight line, y = C x + c: a network without hidden units, which every other one has to do better than."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Prepared, Source, reduce
from neurecover.models import Model, Network
from neurecover.statistics import Residuals

_CLEARLY = 3.09  # standard errors that chance exceeds once in a thousand, as in every test of a certificate


def straight_line(prepared: Prepared, activation: Activation) -> Network:
    """Return the least-squares line on whitened inputs, from the moments, refined once where samples are in memory.

    With covariances S_xx, S_yx by weight, C = S_yx S_xx⁻¹; one more solve with what is left makes up for the digits
    that the moments have lost, so that an exact line leaves rounding.
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
    """Return what the line leaves of samples."""
    return reduce(samples, Residuals(network, prepared.source.n_outputs, 1, prepared.output_mean))


@dataclass(frozen=True)
class Line:
    """The straight line on whitened inputs, Σr² over all samples, and the mean square (p,) on held-out ones.

    `total` is Σr² that the mean leaves of all samples.
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
        """Fit it and sum what it leaves.

        Held-out samples have a part in the line, which lowers what it leaves of them by 2 (d + 1)/n; of a stream the
        moments say what is left of all.
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
        """Tell whether a network predicts held-out samples better, or as far as these tell where it is in the `lead`.

        Few held-out samples may favour either by chance, so a network that fits all samples better has to be clearly
        worse on these: by 3.09 standard errors of the differences of squares, one case in a thousand.
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
    """Tell whether a line that leaves Σr² = `line` of N equations is as good as a network of `more` parameters.

    N·log(Σr² of the line / Σr² of the network) ≤ (more parameters)·log N [Schwarz 1978].
    """
    if line <= 0.0 or found <= 0.0:
        return line <= found
    return bool(N * np.log(line / found) <= more * np.log(N))
