"""A test of the one assumption of [GKLW19]: x is distributed like −x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from neurecover.algorithms.gklw19.options import DEFAULTS, SymmetricOptions
from neurecover.data import Source, reduce
from neurecover.statistics.checks.symmetry import OddProjections


@dataclass(frozen=True)
class SymmetryTest:
    """χ² of the odd part of the characteristic function at `degrees` random frequencies, and its p-value.

    χ²/n is the share of the constant 1 that the m sines explain, of Beta(m/2, (n − m)/2) law for Gaussian sines; its
    limit for large n is the χ² law with m degrees of freedom, and it keeps its level where n is only a few times m.
    """

    chi_squared: float
    degrees: int
    p_value: float
    significance: float

    @property
    def symmetric(self) -> bool:
        """Whether the samples are compatible with symmetric inputs."""
        return self.p_value >= self.significance

    @property
    def sentence(self) -> str:
        figure = f"χ² = {self.chi_squared:.0f} on {self.degrees} degrees of freedom, p = {self.p_value:.2g}"
        if self.symmetric:
            return f"The inputs pass for symmetric ({figure})."
        return f"The inputs are not symmetric ({figure}), so the estimate of this method is biased."


def symmetry_test(source: Source, rng: np.random.Generator, options: SymmetricOptions = DEFAULTS) -> SymmetryTest:
    """Test x ~ −x on inputs whose second moment is about the identity.

    Frequencies lie on random lines and along the first coordinate axes, a few on each: a sum of many asymmetric
    coordinates is nearly Gaussian along a random line. Few samples are tested at fewer of them, one for every five.
    """
    d, m = source.n_inputs, options.directions
    lines = np.vstack([np.eye(d)[:m], rng.standard_normal((m if d > 1 else 0, d))])
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    rng.shuffle(lines)
    if source.n_samples is not None:
        lines = lines[: max(1, source.n_samples // (5 * len(options.scales)))]
    sums = reduce(source, OddProjections(np.vstack([s * lines for s in options.scales])))
    value, degrees = sums.quadratic_form()
    spare = max(sums.n - degrees, 1)
    share = min(value / sums.n, 1.0)
    # P(B > share) for B ~ Beta(m/2, (n − m)/2)
    p_value = float(betainc(0.5 * spare, 0.5 * max(degrees, 1), 1.0 - share))
    return SymmetryTest(value, degrees, p_value, options.significance)
