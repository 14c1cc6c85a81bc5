"""The weights of a network with several hidden layers, from chosen queries.

Four steps, each with its own check: the inputs are reduced to the directions that matter (`deep_span`); units are found layer
by layer (`deep_layers`); all weights are polished together (`deep_polish`); and the network is put to fresh questions,
near and far. If it does not answer them, all is tried again with other lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.queries.box import Box
from neurecover.queries.deep_layers import Plan, Progress, Solution, solve_layers
from neurecover.queries.deep_polish import polish, polishing_points
from neurecover.queries.deep_span import gradient_span, lifted
from neurecover.solve.deadline import Deadline

_ATTEMPTS = 6
# A relative residual below this is rounding; a wrong weight leaves far more.
_SOLVED = 1e-8


@dataclass(frozen=True, eq=False)
class Found:
    network: DeepNetwork
    residual: float
    always_on: int


def find_network(
    box: Box,
    plan: Plan,
    rng: np.random.Generator,
    deadline: Deadline,
    tell: Progress,
) -> Found:
    """The best network of a few attempts; the first whose residual on fresh questions is rounding ends them."""
    span = gradient_span(box, rng)
    reduced = span.shape[1] < box.n_inputs
    inner = Box(lambda X: box(X @ span.T), span.shape[1]) if reduced else box
    best: Found | None = None
    failure = ""
    for attempt in range(_ATTEMPTS):
        try:
            eager = replace(plan, patience=plan.patience * (attempt + 1))
            solution = solve_layers(inner, eager, rng, deadline, tell)
        except UnsolvableError as error:
            failure = str(error)
            tell(failure)
            if deadline.passed:
                break
            continue
        found = _finished(box, inner, solution, span, rng, deadline)
        tell(f"residual {found.residual:.1e}")
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < _SOLVED:
            break
    if best is None:
        raise UnsolvableError(failure)
    return best


def _finished(
    box: Box, inner: Box, solution: Solution, span: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> Found:
    output = solution.output
    n = int(1.3 * output.network.n_parameters / box.n_outputs) + 50
    X = polishing_points(output.network, solution.anchors, n, rng)
    network = polish(output.network, X, inner(X), deadline)
    if inner is not box:
        network = lifted(box, network, span, rng)
    return Found(network, fresh_residual(box, network, rng), output.always_on)


def fresh_residual(box: Box, network: DeepNetwork, rng: np.random.Generator) -> float:
    """The largest |f̂(x) − f(x)| relative to the answers' size, on as many new questions as there are weights to an output.

    A third each of the questions lies near the origin, at the distance of standard Gaussian inputs, and far out.
    """
    n = max(200, -(-network.n_parameters // network.n_outputs))
    X = rng.standard_normal((n, network.n_inputs)) * np.resize([0.3, 1.0, 5.0], n)[:, None]
    Y = box(X)
    size = np.abs(Y).max(axis=1)
    return float((np.abs(network(X) - Y).max(axis=1) / np.maximum(size, np.median(size))).max())
