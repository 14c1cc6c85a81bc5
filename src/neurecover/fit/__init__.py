"""Least squares of one model of the family to samples, and the constants that decide how it is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FitOptions:
    """How steps are computed, when a descent ends, and what rounding leaves, as shares of what is summed."""

    exact: float = 1e-20  # Σr²/Σy² of a fit without noise: 10⁶ times the rounding of outputs with all digits, squared
    rounding: float = 1e-30  # Σr²/Σy² at which double precision has nothing left to give
    outputs: float = 1e-28  # of Σy² as they stand: 10⁴ times u², for sums over units
    equal: float = 1e-13  # ridge per column of a Gram matrix, at the level of its rounding, that tames equal columns
    whitened: float = 1e-9  # the same where inputs may depend on one another but for what was measured
    least: float = 1e-14  # damping below which S in double precision is nothing but rounding
    diagonal: float = 1e-10  # of the largest curvature, that a weight counts with in D which hardly matters
    single: float = 1e-6  # what single precision leaves of a sum of products: 17 roundings
    single_damping: float = 1e-7  # below which products in single precision say nothing of curvatures
    single_range: float = 1e9  # whose fourth power, as of sums of squares of products, single precision still holds
    floor: float = 1e-4  # of a preconditioner's eigenvalues, relative to the diagonal: below, independence is no guide
    unused: float = 1e-8  # of the largest curvature, that a unit counts with on which outputs hardly depend
    some: float = 0.9  # of the samples from which on a part of them is all of them

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
    everywhere: float = 1e-8  # of the mean weight, for rows in which outputs do not depend on a unit: above rounding
    freedom: float = 1e-3  # of the rows that count, at the least, when those that a regression uses up are taken away
    redundant: float = 1e-10  # Σr²/Σy² that dropping a duplicate may cost by a path computed with a ridge


DEFAULTS = FitOptions()
EXACT = DEFAULTS.exact
