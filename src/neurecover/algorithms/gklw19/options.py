"""The constants that decide about units from symmetric inputs, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SymmetricOptions:
    """Which features join the linear regression, which of its directions count as signal, and when inputs count as
    asymmetric.
    """

    samples_per_feature: float = 1.5  # below, the products are left out of the regression; measured to help from 1.4 on
    features: int = 2_500  # of the regression: normal equations of 50 MB
    rank: float = 1e-9  # relative singular value of L below which an output combination does not depend on x
    significant: float = 1.5  # singular values of L above this multiple of the largest that noise would give are signal
    significance: float = 1e-3  # p-value below which inputs are called not symmetric
    directions: int = 24  # lines, and coordinate axes, on which symmetry is tested
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)  # frequencies on each, in units of the projection's deviation
    entries: int = 20_000_000  # of the distinguishing matrix, 160 MB, beyond which it is not computed
    gradient_steps: int = 100  # of the form "practice"


DEFAULTS = SymmetricOptions()
