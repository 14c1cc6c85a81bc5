"""The weights of a network with several hidden layers, from chosen queries.

Four steps, each with its own check: reduce the inputs to the directions that matter (`span`), find the units layer by
layer (`layers`), polish all weights together (`polish`), and compare the network with held-out queries, near and far.
If it does not reproduce them, everything is repeated with other lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.ascent import find_extreme_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.layers import EmptyLayerError, Plan, Progress, Solution, solve_layers
from neurecover.queries.deep.output import answer_sizes
from neurecover.queries.deep.polish import choose_polishing_points, polish
from neurecover.queries.deep.span import find_gradient_span, lift
from neurecover.queries.extraction import Extraction
from neurecover.queries.shallow.extract import extract_shallow
from neurecover.solve.deadline import Deadline


def extract_deep(
    box: Box,
    *,
    n_hidden: tuple[int, ...] | None = None,
    depth: int | None = None,
    rng: np.random.Generator,
    deadline: Deadline,
    progress: Progress | None = None,
) -> Extraction:
    """Find a `DeepNetwork` with ReLU units that reproduces the oracle, with its widths and depth unless given.

    `n_hidden` are the widths of the hidden layers: a layer is complete once it has as many units. Raise UnsolvableError
    if no network was found at all. A network that fails on held-out queries is returned with its residual.
    """
    options = box.options.deep
    if n_hidden is not None and depth is not None and depth != len(n_hidden):
        raise ValueError(f"expected as many widths as hidden layers, {depth}. Got n_hidden={n_hidden} instead.")
    widths = n_hidden or ()
    if (depth is not None and depth < 1) or any(width < 1 for width in widths):
        raise ValueError(f"expected at least one hidden layer of at least one unit. Got {n_hidden}, {depth} instead.")
    plan = Plan(n_hidden, depth if n_hidden is None else len(n_hidden))
    found = _try_repeatedly(box, plan, rng, deadline, progress or _silent)
    if found.network.depth == 1 and found.always_on:
        # One hidden layer with more units than inputs: the methods for one layer find its signs.
        return extract_shallow(box, rng=rng, deadline=deadline, progress=progress)
    network: Any = found.network
    return Extraction(
        network,
        queries=box.queries,
        residual=found.residual,
        resolution=box.resolution,
        exact=found.residual < max(options.exact_roundings * box.resolution, 1e-12),
        errors=found.errors,
        unreached=_describe_unreached(found, n_hidden, options.determined),
        notes=_describe_residual(found, options.solved),
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """A network, its residual on held-out queries, the errors of its rows, and the number of always-active units."""

    network: DeepNetwork
    residual: float
    errors: np.ndarray
    always_on: int


def _silent(stage: str, figure: float) -> None:
    """Ignore progress."""
    pass


def _try_repeatedly(box: Box, plan: Plan, rng: np.random.Generator, deadline: Deadline, tell: Progress) -> _Found:
    """Return the best network of a few attempts, stopping when the residual on held-out queries is rounding."""
    options = box.options.deep
    span = find_gradient_span(box, rng)
    if span.shape[1] == 0:
        raise UnsolvableError("The oracle gives the same answer to every query, so no hidden unit is visible.")
    # Within limits, some points are reached only along directions that do not matter.
    reduced = span.shape[1] < box.n_inputs and not box.limits
    inner = Box(lambda X: box(X @ span.T), span.shape[1], options=box.options) if reduced else box
    best: _Found | None = None
    failure, barren = "", 0
    for attempt in range(options.attempts):
        try:
            eager = replace(plan, patience=plan.patience * (attempt + 1))
            solution = solve_layers(inner, eager, rng, deadline, tell)
            found = _finish(box, inner, solution, span, rng, deadline)
        except UnsolvableError as error:
            failure = str(error)
            tell("attempts that failed", attempt + 1.0)
            barren += isinstance(error, EmptyLayerError)
            if (
                barren == options.empty_attempts
                or deadline.passed
                or (box.budget is not None and box.queries >= options.budget * box.budget)
            ):
                break
            continue
        tell("residual", found.residual)
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < options.solved or deadline.passed:
            break
    if best is None:
        raise UnsolvableError(failure)
    return best


def _finish(
    box: Box, inner: Box, solution: Solution, span: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> _Found:
    """Polish the network, express it in all inputs, and measure its residual."""
    options, output = box.options.deep, solution.output
    n = int(1.3 * output.network.n_parameters / box.n_outputs) + 50
    X = choose_polishing_points(output.network, solution.anchors, n, rng, box.limits, options)
    polished = polish(output.network, X, inner(X), options, deadline)
    network = polished.network
    if inner is not box:
        network = lift(box, network, span, rng)
    return _Found(network, measure_residual(box, network, rng), polished.errors, output.always_on)


def measure_residual(box: Box, network: DeepNetwork, rng: np.random.Generator) -> float:
    """Return the largest |f̂(x) − f(x)|, relative to the answers' size, over held-out queries.

    There are as many queries as weights per output, at least 200: a third each near the origin, at the distance of
    standard Gaussian inputs, and far out. Further queries are made where the values of some layer are extreme, because
    a missed unit above it that hardly ever changes does so there.
    """
    options = box.options.deep
    n = max(200, -(-network.n_parameters // network.n_outputs))
    X = rng.standard_normal((n, network.n_inputs)) * np.resize([0.3, 1.0, 5.0], n)[:, None]
    X = box.limits.pull_inside(X)
    for number in range(1, network.depth):
        known = KnownLayers(network.n_inputs, network.layers[:number], limits=box.limits, options=options)
        X = np.vstack([X, find_extreme_points(known, options.held_out_extremes, rng)])
    if box.limits:
        X = np.vstack([X, box.limits.corners(options.held_out_corners, rng)])
    Y = box(X)
    return float((np.abs(network(X) - Y).max(axis=1) / answer_sizes(Y)).max())


def _describe_unreached(found: _Found, n_hidden: tuple[int, ...] | None, determined: float) -> tuple[str, ...]:
    """Return a sentence for each kind of weight or unit that the queries did not determine."""
    sentences = []
    count = int(np.count_nonzero(found.errors > determined))
    if count:
        sentences.append(f"{count} hidden units have weights that the answers hardly determine; see their errors.")
    if found.always_on:
        sentences.append(
            f"{found.always_on} units of the last hidden layer represent units that were active at every query: only "
            "the sum of their contributions is known."
        )
    for number, (want, have) in enumerate(zip(n_hidden or (), found.network.n_hidden), start=1):
        if have < want:
            sentences.append(f"{want - have} units of hidden layer {number} do not change at any query.")
    return tuple(sentences)


def _describe_residual(found: _Found, solved: float) -> tuple[str, ...]:
    """Return a note if the network does not reproduce the oracle."""
    if found.residual < solved:
        return ()
    return (f"The network does not reproduce the oracle: held-out queries leave a residual of {found.residual:.1e}.",)
