"""Tests of a network against named larger models (`alternatives`).

Let S be the first-order reduction of Σr² by q further columns, beyond what the P parameters explain. With N equations,

    F = (S/q) / ((Σr² − S)/(N − P − q))                                                    [Rao 1948]

has the F distribution under noise of one variance. If F rejects, the scores with row-by-row covariance (`NestedScores`)
must reject too, because unequal noise alone can make F reject.

With few samples a missing line moves the kinks beyond first order: for y = 1 + x/2 + 2 (x − 4)₊ with n = 100 and unit
noise, the scores find 70 % of the lines at the level 0.05. So the network with a line is fitted as well, and S is the
drop in Σr², which finds 90 %. If that rejects, the fitted line Ĉ must also differ from zero under the row-by-row
covariance: with M the information of the line beyond what the other parameters explain, and u the rows' scores for it
at the larger fit, M Ĉ is tested with the covariance Σ u uᵀ [White 1980].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri, chndtrinc, fdtrc

from neurecover.certificate.information.matrix import Information
from neurecover.certificate.residuals.alternatives import LINEAR, Alternatives
from neurecover.data import Source, reduce
from neurecover.fit.model_fit import fit_model
from neurecover.models import Network
from neurecover.solve import limit, steps_within
from neurecover.statistics import InformationSums, NestedScores

SEEN = 1e-8  # share of a column that the parameters do not make themselves: rounding leaves 1e-13 of it


@dataclass(frozen=True)
class Nested:
    """A test against a larger model: its p-value, the level below which it rejects, and the number of columns."""

    name: str
    p_value: float
    level: float
    n_columns: int

    @property
    def seen(self) -> float:
        """The size Σ e²/σ² of a missing part, beyond what parameters explain, that the test detects 9 times in 10."""
        q = max(self.n_columns, 1)
        return float(chndtrinc(chdtri(q, self.level), q, 0.1))


def nested_tests(
    information: Information, alternatives: Alternatives, rss: float, N: int, samples: Source, shared: float = 1.0
) -> tuple[Nested, ...]:
    """Test a network against every alternative. rss is Σr² over N equations.

    `shared` is how much larger sums of residuals vary than independent ones, where rounding errors are shared.
    """
    columns, p = len(alternatives), alternatives.model.n_outputs
    e = information.cross.shape[1] // p  # columns per output, the probes first
    place = np.concatenate([np.arange(o * e + e - columns, (o + 1) * e) for o in range(p)])
    made = []
    for name, group in alternatives.groups().items():
        T = np.zeros((p * e, group.shape[1]))
        T[place] = group
        p_value, q = f_test(information, T, shared * rss, N)
        level = alternatives.options.level(max(q, 1), N, name == LINEAR)
        by_refit = name == LINEAR and q and shared == 1.0
        refitted = _by_refit(information, alternatives, q, level, rss, N, samples) if by_refit else None
        if refitted is not None:
            p_value = refitted
        elif p_value < level:
            scores = NestedScores(
                information.model, information.free, alternatives, group, information.explained[:, place] @ group
            )
            p_value = max(p_value, reduce(samples, scores).p_value())
        made.append(Nested(name, p_value, level, q))
    return tuple(made)


def f_test(information: Information, T: np.ndarray, rss: float, N: int) -> tuple[float, int]:
    """Return the p-value of the columns e T, and the number of them that the parameters do not already span."""
    g, schur = information.unexplained(T)
    scale = np.sqrt(np.maximum(np.einsum("ij,ik,kj->j", T, information.own, T), 1e-300))
    values, vectors = np.linalg.eigh(schur / scale / scale[:, None])
    kept = values > SEEN
    q = int(np.count_nonzero(kept))
    left = N - information.n_determinable - q
    if q == 0 or left < 1 or rss <= 0.0:
        return 1.0, q
    S = min(float(np.sum((vectors[:, kept].T @ (g / scale)) ** 2 / values[kept])), rss * (1.0 - 1e-12))
    return float(fdtrc(q, left, (S / q) / ((rss - S) / left))), q


def _by_refit(
    information: Information, alternatives: Alternatives, q: int, level: float, rss: float, N: int, samples: Source
) -> float | None:
    """Return the p-value of a line with q coefficients, from fitting the network again with it; `rss` is Σr² without
    it.

    Returns None if that is too much work; with so many samples the scores give the same answer.
    """
    white, bias = alternatives.model, len(information.free) == information.model.n_parameters
    P, left = information.n_determinable, N - information.n_determinable - q
    steps = steps_within(alternatives.options.refit, samples.count(), P + q, dense=True)
    if samples.base.streams or steps < alternatives.options.steps or left < 1 or rss <= 0.0:
        return None
    start = replace(white, C=np.zeros((white.n_outputs, white.n_inputs)))
    fit = fit_model(samples, start, limit(), steps, bias=bias)
    gain = max(rss - fit.rss, 0.0)
    p = float(fdtrc(q, left, (gain / q) / (max(rss - gain, 1e-300) / left)))
    return p if p >= level else max(p, _by_rows(fit.network, bias, alternatives, samples))


def _by_rows(larger: Network, bias: bool, alternatives: Alternatives, samples: Source) -> float:
    """Return the p-value of Ĉ under the row-by-row covariance; zero if the larger fit does not determine Ĉ."""
    units = replace(larger, C=None)  # gives the derivatives by the other parameters; its residual is r + Ĉx
    line = replace(alternatives, model=units, pairs=(np.arange(0),) * 2, widths=())
    T = line.groups()[LINEAR]
    found = Information.of(reduce(samples, InformationSums.of(units, bias, None, line)))
    if found.weakest <= 0.0:
        return 0.0
    others = np.flatnonzero(np.concatenate([np.full(own.size, name != "C") for name, own in larger.arrays.items()]))
    scores = NestedScores(larger, others[found.free], line, T, found.explained @ T)
    return reduce(samples, scores).p_value(found.unexplained(T)[0])
