"""The search at given widths: candidates are settled one after the other until one is known to be the last.

Without noise the first network whose residual is at the level of rounding ends it. With noise nothing marks the
optimum, so it ends when two candidates arrive at the same one, and no wider student does much better.

Σr² is smooth only between the kinks, so that one optimum has many shallow dents, and with many weights two descents
seldom end in the same. Fits whose Σr² differ by much less than one degree of freedom's share σ² are one; so are fits
that differ by no more than that share and whose outputs are much closer to one another than any fit of P parameters is
to the truth,

    Σ |f_a − f_b|² ≪ P σ².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
from scipy.special import chdtri

from neurecover.fit.descent import Fit
from neurecover.fit.samples import Samples
from neurecover.search import SearchOptions
from neurecover.search.candidates import Candidate, candidates
from neurecover.search.gates.few_rows import explain_aside
from neurecover.search.race import Setting, part_of
from neurecover.search.settle import Settled, on_more, settle


@dataclass(frozen=True, eq=False)
class Runs:
    """The best network among some candidates, the number of wide fits they took, and how many candidates ended at its
    optimum.

    `unrivalled` says that no other optimum does as well, and `nearby` has the units (k, d + 1) of the first layer of
    this optimum and then of others about as deep.
    """

    best: Settled
    n_fits: int
    agreements: int
    exact: bool
    unrivalled: bool = True
    nearby: tuple[np.ndarray, ...] = ()
    last_drop: float = 0.0

    @property
    def fit(self) -> Fit:
        return self.best.fit


def one_optimum(a: Fit, b: Fit, how: SearchOptions) -> bool:
    """Return whether two fits to the same noisy samples ended at one optimum."""
    if a.student.widths != b.student.widths:
        return False
    share, apart = b.rss / b.point.samples.n_equations, abs(a.rss - b.rss)
    if apart <= how.same * share:
        return True
    between = a.point.R - b.point.R
    near = float(np.vdot(between, between)) <= how.outputs * b.student.n_parameters * share
    return near and apart <= how.alike * share


def search(
    samples: Samples,
    setting: Setting,
    widths: tuple[int, ...],
    max_runs: int | None = None,
    noiseless: bool = False,
    first: Fit | None = None,
) -> Runs:
    """Return the best network of these widths, sought on part of the samples and fitted to all.

    On samples known to be noiseless, candidates that agree do not end the search. `first` is a fit at these widths to
    all samples that is known already.
    """
    options, deadline = setting.options, setting.deadline
    max_runs = options.max_candidates if max_runs is None else max_runs
    part, level = part_of(samples, widths, setting), samples.level(setting.task.level)
    known = () if first is None else (Candidate(first, first, -1, 0, first.point.share),)
    runs, start_of_best, least, unsettled, n_fits = None, -1, np.inf, 0, 0
    for candidate in islice(chain(known, candidates(part, setting, widths)), max_runs):
        # With its skips a student fits its samples at least as well as the network that it leads to.
        if runs is None or _rss_on(part, candidate.fit) <= least:
            settled = settled_on(samples, candidate.fit, setting)
            setting.tell("settle", settled.fit.relative)
            exact = settled.fit.relative < level
            alone = len(widths) > 1 and candidate.start == start_of_best
            agreed = (
                runs is not None
                and not (noiseless or exact or alone)
                and settled.fit.point.share <= options.noise * candidate.least
                and one_optimum(settled.fit, runs.fit, options)
            )
            if runs is None or _is_better(settled, exact, runs):
                runs, start_of_best = Runs(settled, 0, 0, exact), candidate.start
                least = max(_rss_on(part, settled.fit) * (1.0 + options.dent / part.n_equations), level * part.total)
            runs = replace(runs, agreements=int(agreed))
            # A wide student that fits exactly and leads to no network says that none may be told.
            unsettled += (exact or candidate.wide.relative < level) and not (exact and settled.sign_choices)
        n_fits = max(n_fits, candidate.number)
        signed = runs.exact and runs.best.sign_choices > 0
        if runs.agreements or signed or unsettled > options.unsettled or deadline.passed:
            break
    assert runs is not None
    return replace(runs, n_fits=n_fits)


def settled_on(samples: Samples, fit: Fit, setting: Setting) -> Settled:
    """Return the network of a fit, which may have seen part of the samples only, fitted to all of them.

    An affine part that no signs explain stays, with no choice of signs: giving it up may cost what noise lets Σr²/σ²
    grow by, χ² with as many degrees of freedom as it has weights, and no more.
    """
    part, how, settled = fit.point.samples, setting.options.signs, settle(fit, setting)
    # As many outputs as units tell the signs by themselves: what is left then is no affine part but another misfit.
    told = not fit.relative < part.level(setting.task.level) and fit.student.n_outputs >= fit.student.widths[0]
    if fit.student.skips and fit.student.depth == 1 and not setting.task.affine and not told:
        freedom = (fit.student.n_base - fit.student.bias) * fit.student.n_outputs
        weight = None if part.root is None else part.root[:, 0] ** 2
        design = 1.0 if weight is None else len(weight) * float(weight @ weight) / float(weight.sum()) ** 2
        growth = max(how.growth * freedom, float(chdtri(freedom, how.chance))) * design
        most = max(part.level(setting.task.level) * part.total, fit.rss * (1.0 + growth / len(part.F)))
        if settled.fit.rss > most:
            settled = Settled(fit, (), 0)
    if samples is part:
        return settled
    more, level = on_more(samples, settled, setting), samples.level(setting.task.level)
    if settled.fit.relative < level <= more.fit.relative and setting.task.rectified:
        # Rows of the part may say nothing of a weight that others do.
        whole = explain_aside(settled.fit, samples, setting.task.n_hidden or settled.fit.student.widths[0])
        more = more if whole is None else settle(whole, setting)
    return more


def _is_better(settled: Settled, exact: bool, runs: Runs) -> bool:
    """Return whether the first result has the lower residual or, of two exact ones, is the only one with signs."""
    if runs.exact and exact:
        return not runs.best.sign_choices and bool(settled.sign_choices)
    return settled.fit.rss < runs.fit.rss


def _rss_on(samples: Samples, fit: Fit) -> float:
    """Return Σr² of a fit on other samples."""
    if fit.point.samples is samples:
        return fit.rss
    left = samples.weigh(samples.Y - fit.student(samples.F))
    return float(np.vdot(left, left))
