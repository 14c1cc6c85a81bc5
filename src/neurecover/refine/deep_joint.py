"""All weights of a network without skips fitted together: damped Gauss–Newton steps on Σ |y − f(x; θ)|²,

    (Σ JᵀJ + N Nᵀ + λD) δ = Σ Jᵀr,        D = diag Σ JᵀJ.

act(s z) = s act(z) leaves the scale of every unit free. The columns of N are these directions: N Nᵀ holds the scales
where they are and changes nothing else, because Σ JᵀJ and Σ Jᵀr vanish along N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from neurecover.data import Source, reduce
from neurecover.models import DeepNetwork, free_directions, parameters, with_parameters
from neurecover.solve import Deadline
from neurecover.statistics import Residuals
from neurecover.statistics.deep_gauss_newton import NetworkGaussNewton

ITERATIONS = 100
LEAST_DAMPING, MOST_DAMPING = 1e-14, 1e8
ROUNDING = 1e-31  # Σ r² / Σ y² at which double precision has nothing left to give
NEAR_ROUNDING = 1e-28  # where a step that does not halve Σ r² moves rounding errors about
SMALL = 1e-4  # of one equation's share of Σ r²: a full step that gains less has reached the optimum


@dataclass(frozen=True)
class JointFit:
    """The network at the end, Σ r², and whether no step could lower it any further.

    weakest is the smallest eigenvalue of Σ JᵀJ, scaled to unit diagonal and apart from the free scales: at the level of
    rounding where the samples leave some weight open.
    """

    network: DeepNetwork
    rss: float
    converged: bool
    weakest: float


def fit_network(
    source: Source, network: DeepNetwork, total: float, bias: bool, deadline: Deadline, iterations: int = ITERATIONS
) -> JointFit:
    """Downhill from the network; without `bias` all biases stay as they are."""
    network = network.normal_form()
    free = _free_parameters(network, bias)
    step = _Step(source, network, free)
    rss, damping, growth, converged = step.rss, 1e-6, 2.0, False
    small = SMALL / (network.n_outputs * max(step.n, 1))
    for _ in range(iterations):
        if deadline.passed:
            break
        if rss <= ROUNDING * total:
            converged = True
            break
        delta = step.solve(damping)
        if delta is not None:
            theta = parameters(network)
            theta[free] += delta
            moved = with_parameters(network, theta)
            moved_rss = network_rss(source, moved)
            predicted = float(delta @ (step.gradient + damping * step.diagonal * delta))
            if moved_rss < rss:
                gain = min((rss - moved_rss) / max(predicted, 1e-300), 1.0)
                damping = max(damping * max(0.2, 1.0 - (2.0 * gain - 1.0) ** 3), LEAST_DAMPING)  # [Nielsen 1999]
                done = rss - moved_rss <= small * rss and gain > 0.5
                done |= rss <= NEAR_ROUNDING * total and moved_rss > 0.5 * rss
                network, growth = moved, 2.0
                step = _Step(source, network, free)
                rss = step.rss
                if done:
                    converged = True
                    break
                continue
            if predicted <= small * rss:
                converged = True
                break
        damping, growth = damping * growth, 2.0 * growth
        if damping > MOST_DAMPING:
            converged = True
            break
    return JointFit(network, rss, converged, step.weakest())


def _free_parameters(network: DeepNetwork, bias: bool) -> np.ndarray:
    """Which of θ are fitted."""
    parts = [np.full(part.size, bias or part.ndim == 2) for layer in network.layers for part in layer]
    return np.flatnonzero(np.concatenate(parts))


def network_rss(source: Source, network: DeepNetwork) -> float:
    """Σ |y − f(x)|²."""
    residuals = reduce(source, Residuals(network, network.n_outputs, sum(network.n_hidden)))
    return float(residuals.sums["residual_squared"].sum())


class _Step:
    """The damped step at a network, for any damping."""

    def __init__(self, source: Source, network: DeepNetwork, free: np.ndarray) -> None:
        sums = reduce(source, NetworkGaussNewton(network))
        self.n, self.rss = sums.n, float(sums.sums["rr"])
        self.gradient = sums.sums["jr"][free]
        curvature = sums.curvature()[np.ix_(free, free)]
        diagonal = np.diag(curvature).copy()
        self.diagonal = np.maximum(diagonal, 1e-12 * diagonal.max(initial=1e-300))
        self.scale = np.sqrt(self.diagonal)
        N = free_directions(network)[free] * self.scale[:, None]
        N = N / np.maximum(np.linalg.norm(N, axis=0), 1e-300)
        self.matrix = curvature / self.scale / self.scale[:, None] + N @ N.T

    def solve(self, damping: float) -> np.ndarray | None:
        factor, failed = dpotrf(self.matrix + damping * np.eye(len(self.matrix)), lower=1)
        if failed:
            return None
        return dpotrs(factor, self.gradient / self.scale, lower=1)[0] / self.scale

    def weakest(self) -> float:
        return float(np.linalg.eigvalsh(self.matrix)[0]) if len(self.matrix) else 1.0
