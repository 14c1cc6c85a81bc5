"""affine="auto": add a linear term to the units if the samples call for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from neurecover.certificate import Certificate, Check
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.running import Run
from neurecover.results import Estimate
from neurecover.search import Task


@dataclass(frozen=True)
class Solved:
    """The network in the units of the inputs, its certificate, and the method and estimate that led to it.

    `rss` is Σr² over all samples.
    """

    network: Network | DeepNetwork
    certificate: Certificate
    method: str
    estimate: Estimate | None
    rss: float


def with_or_without_line(solve: Callable[[Task, Run], Solved], task: Task, run: Run) -> Solved:
    """Solve without a linear term and, if a residual is left, with one; return the solution that the samples prefer.

    A missing linear term biases the weights long before a test detects it, while an unnecessary one only widens their
    errors. So under noise the term is kept unless it reduces Σr² by less than it would by chance half of the time,

        N·log(Σr² without / Σr² with) < median of χ² with the degrees of freedom of the linear term.

    Networks of different widths are compared by BIC.
    """
    plain = solve(task, replace(run, deadline=run.deadline.share(0.5)))
    if plain.certificate.verdict == "exact" or plain.network.C is not None:
        return plain
    lined = solve(replace(task, affine=True), run)
    N, log_ratio = task.n_samples * task.n_outputs, np.log(max(plain.rss, 1e-300) / max(lined.rss, 1e-300))
    q = _n_free(lined.network) - _n_free(plain.network)
    alike = plain.network.n_hidden == lined.network.n_hidden
    worth = float(N * log_ratio)
    kept = lined.certificate.verdict == "exact" or worth > (chdtri(q, 0.5) if alike and q > 0 else q * np.log(N))
    if kept:
        how = f"without it N·log Σr² grows by {worth:.3g} for {q} parameters" if alike else "BIC is less with it"
        sentence = f"A linear term was kept beside the units: {how}."
    else:
        sentence = f"No linear term is called for beside the units: it lowers N·log Σr² by {worth:.2g}."
    chosen = lined if kept else plain
    check = Check("linear term", True, worth, None, sentence)
    return replace(chosen, certificate=replace(chosen.certificate, checks=(*chosen.certificate.checks, check)))


def _n_free(network: Network | DeepNetwork) -> int:
    """Return the number of parameters that change the function: all except the units' scales."""
    return network.n_parameters - int(np.sum(network.n_hidden))
