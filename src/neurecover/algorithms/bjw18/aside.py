"""Outputs that are set aside as corrupted, and whether they look like errors.

An output that a network contradicts is an error, or the network lacks a unit that writes to this output alone. Errors
fall anywhere: the rows i in which an output is set aside are a random choice of s among n, so that with features φ(x),
here r and r² of the ranks r of every input, their sum has the covariance of a sample without replacement and

    s (mean over set aside − mean over all)ᵀ Cov(φ)⁻¹ (…) / (1 − s/n)  ~  χ²,

whatever the errors are. Ranks are bounded, so that this holds far out too: with x and x² one p-value in 2,000 was below
1e-4 at n = 500, with ranks one in 10,000. A unit is on in a halfspace, and the mean over its samples is off by
φ(t)/Φ(−t) ≥ 1.27 for at most a quarter of all. One that is on for few samples is told by the plane itself: where the
rows can be cut off from all others by a plane they may be its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import chdtrc

from neurecover.algorithms.bjw18.options import CORRUPTION, CorruptionOptions
from neurecover.certificate import CertificateOptions, Check
from neurecover.data import Prepared, Source, subsample
from neurecover.data.views.repaired import Repaired
from neurecover.results import Estimate


def set_aside(
    given: Prepared, found: Estimate, options: CorruptionOptions = CORRUPTION
) -> tuple[Prepared, tuple[Check, ...]]:
    """Set aside outputs that the network contradicts, in the fit and among held-out samples; return the samples and a
    check.

    Such an output is replaced by the network's, so that it adds nothing to any residual; the other outputs of its row
    stay. If too few held-out values of an output would remain, or the outputs in question do not look like errors,
    nothing is changed, and the check says why.
    """
    assert found.network is not None
    d, most = given.source.n_inputs, options.most_aside
    tolerance = options.gross * float(np.sqrt(np.diag(given.moments.second)[d:].max(initial=0.0)))

    def off(source: Source) -> tuple[np.ndarray, np.ndarray]:
        X, Y = subsample(source, options.place_rows, 0).collect()
        assert found.network is not None
        return X, np.abs(Y - found.network(X)) > tolerance

    X, mask = off(given.samples)
    if not mask.any():
        return given, (Check("corrupted outputs", True, 0.0, most, "No output is corrupted."),)
    share = f"{mask.mean():.1%} of the outputs are off by more than {tolerance:.1e}"
    worst = float(mask.mean(axis=0).max())
    if worst > most:
        sentence = f"{share}, in one of them {worst:.0%}: too many to be set aside."
        return given, (Check("corrupted outputs", False, worst, most, sentence),)
    left = ~off(given.holdout)[1]
    fewest = int(left.sum(axis=0).min())
    if fewest < options.fewest:
        sentence = f"{share}, and only {fewest} held-out values of one output are not: too few to judge by."
        return given, (Check("corrupted outputs", False, fewest, options.fewest, sentence),)
    doubt = _doubt(X, mask, options.many)
    if doubt is not None:
        sentence = f"{share}, but {doubt}, so nothing was set aside."
        return given, (Check("corrupted outputs", False, None, None, sentence),)
    sentence = (
        f"{share} and were set aside as corrupted: where they are has nothing to do with the inputs. The network is "
        f"judged on the {int(left.sum()):,} of {left.size:,} held-out outputs that are not."
    )
    aside = Check("corrupted outputs", True, worst, most, sentence)
    train, holdout, samples = (
        Repaired(part, found.network, tolerance) for part in (given.train, given.holdout, given.samples)
    )
    return replace(given, train=train, holdout=holdout, samples=samples, stream=None), (aside,)


def _doubt(X: np.ndarray, mask: np.ndarray, many: int) -> str | None:
    """Return a clause that says why the entries set aside of some output are no errors; None if nothing suggests so."""
    hit = np.flatnonzero(mask.any(axis=0))
    for o in hit:
        rows = mask[:, o]
        if rows.sum() < many * (X.shape[1] + 1):
            if cut_off(X, rows):
                return f"those of output {o} lie beyond a plane, as those of a unit would"
            continue
        p_value = place_p_value(X, rows)
        if p_value < CertificateOptions().significance / len(hit):
            return f"where output {o} is off depends on the inputs (p = {p_value:.2g})"
    return None


def place_p_value(X: np.ndarray, rows: np.ndarray) -> float:
    """Return the probability that s random rows have mean ranks, and squares of them, as far from those of all n."""
    from scipy.stats import rankdata

    n, s = len(X), int(rows.sum())
    ranks = rankdata(X, axis=0) / n - 0.5
    features = np.hstack([ranks, ranks**2])
    centred = features - features.mean(axis=0)
    off = centred[rows].mean(axis=0)
    covariance = centred.T @ centred / n
    squared = s * float(off @ np.linalg.pinv(covariance, hermitian=True) @ off) / max(1.0 - s / n, 1.0 / n)
    return float(chdtrc(np.linalg.matrix_rank(covariance, hermitian=True), squared))


def cut_off(X: np.ndarray, rows: np.ndarray) -> bool:
    """Return whether some plane has these rows on one side and all others on the other: w·x + b ≥ 1 here and ≤ −1
    there.
    """
    from scipy.optimize import linprog

    side = np.where(rows, -1.0, 1.0)
    constraints = side[:, None] * np.column_stack([X, np.ones(len(X))])
    free = [(None, None)] * constraints.shape[1]
    return linprog(np.zeros(constraints.shape[1]), constraints, -np.ones(len(X)), bounds=free).status == 0
