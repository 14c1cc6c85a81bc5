"""The deviance of labels whose log-odds of being inside are q(x), of which some are flipped.

Pr[y = 1 | x] = η₀ + (1 − η₀ − η₁) σ(q(x)),        ηᵢ = η_max σ(rᵢ),        deviance = −2 log L.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from neurecover.algorithms.gp18.options import DEFAULTS

_MOST = DEFAULTS.union.most_flipped


@dataclass(frozen=True)
class Deviance:
    """The deviance of the labels, with its derivatives by the log-odds q (n,) and by the two rates r."""

    value: float
    by_odds: np.ndarray
    by_rates: np.ndarray


def deviance_of(q: np.ndarray, inside: np.ndarray, r: np.ndarray) -> Deviance:
    """Return the deviance of the labels at log-odds q (n,) and rates r (2,)."""
    shares = expit(r)
    eta, s = _MOST * shares, expit(q)
    slope = 1.0 - eta.sum()
    # The probability of the label that was seen.
    p = np.maximum(np.where(inside, eta[0] + slope * s, 1.0 - eta[0] - slope * s), 1e-300)
    by_p = np.where(inside, -2.0, 2.0) / p
    by_eta = np.array([np.sum(by_p * (1.0 - s)), -np.sum(by_p * s)])
    return Deviance(-2.0 * float(np.log(p).sum()), by_p * slope * s * (1.0 - s), by_eta * eta * (1.0 - shares))


def rates_of(flips: np.ndarray) -> np.ndarray:
    """Return the coordinates r (2,), as they are fitted, of the given rates of flipped labels."""
    return np.asarray(logit(np.clip(flips, 1e-5, 0.99 * _MOST) / _MOST))
