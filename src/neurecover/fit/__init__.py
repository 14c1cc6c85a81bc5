"""Least squares of one model of the family to samples, and the numbers that decide how it is made."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = 1e-20  # Σr²/Σy² of a fit without noise: 10⁶ times the rounding of outputs with all digits, squared


@dataclass(frozen=True)
class FitOptions:
    """How steps are computed and when a descent ends."""

    dense: int = 600  # hidden weights of one layer up to which S is formed: beyond, products are faster (measured)
    dense_deep: int = 2_000  # the same for several layers, where conjugate gradients gain less per step
    double: float = 1e-10  # Σr²/Σy² from which on S is formed in double precision; the residual always is
    window: int = 10  # steps that together have to bring Σr² down by `slow`
    slow: float = 0.8  # faster than that a descent leads somewhere: 12 of 12 as with 0.95, in half the steps
    fitted: float = 1e-18  # Σr²/Σy² at which a student is as good as it needs to be before its last fit
    max_steps: int = 300  # descents that lead anywhere take fewer than a hundred
    products: int = 60  # with S per step, after which the units' own blocks take over as a preconditioner
    loose: float = 0.1  # relative accuracy of the first steps by conjugate gradients
    tight: float = 1e-3  # the same at the end, where the residual falls by as much in a step
    block_bytes: int = 2**29  # of all units' own blocks; beyond, the Kronecker product has to do
