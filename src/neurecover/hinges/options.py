"""The constants that decide about broken lines and hinge planes, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HingeOptions:
    """Limits and sizes; a benchmark can change them without touching a module."""

    margin: float = 0.05  # share of the distinct inputs between a break and the ends, or another break
    sure: float = 20.0  # in n log RSS, what each hinge is worth where they may be nearer: chance gives it once in 1,000
    fewest: int = 2  # of them in any case: a slope takes two places
    grid: tuple[int, ...] = (200, 60, 36)  # places for one, two, three breaks, all sets of which are tried
    starts: int = 6  # best distinct sets of the grid that are refined
    nodes: tuple[int, ...] = (240, 64, 28)  # of the posterior's quadrature per break
    evidence_nodes: tuple[int, ...] = (160, 48, 20, 12)  # the same where numbers of breaks are compared, by BIC beyond
    chain_nodes: int = 40  # the same beyond three breaks, where the posterior is sampled
    chains: int = 64  # side by side
    sweeps: int = 120  # of each, the first sixth of which is dropped
    negligible: float = 1e-4  # of the posterior, in the nodes that are left out
    test_grid: tuple[int, ...] = (24, 24, 14)  # places of one, two, three further hinges in the tests
    draws: int = 999  # of the noise in the tests: a p-value of 0.05 has a standard error of 0.007
    most: int = 8  # hinges that are tried where their number is sought
    level: float = 0.04  # of the test of "no hinge" where the number is sought: 0.95 of straight lines stay so
    expected: float = 1.0  # breaks beforehand: none and one are as likely, each further one is less so
    admitted: float = 0.5  # of the tests of more hinges there, after which the posterior of their number chooses
    admitted_unequal: float = 0.1  # the same where the noise is not alike everywhere: a false hinge in 0.09, not 0.17
    unequal: float = 0.02  # p-value below which it is not
    serial: float = 0.01  # p-value below which neighbours are said to go together
    ahead: float = 10.0  # in BIC, by which another shape is named as a rival: odds of 150 to 1, as the best of a dozen
    rounded: float = 4.5  # likelihood ratio at which corners are said to be rounded: chance reaches it in 3 %
    fewer: float = 2.0  # in BIC, by which one hinge fewer with rounded corners is named: it has one number less
    outlier: float = 0.01  # chance of naming any row as an outlier where there is none


DEFAULTS = HingeOptions()
