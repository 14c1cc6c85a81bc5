"""The weights of a network with several hidden layers, from chosen queries.

Four steps, each with its own check: reduce the inputs to the directions that matter (`span`), find the units layer by
layer (`layers`), polish all weights together (`polish`), and compare the network with held-out queries, near and far.
If it does not reproduce them, everything is repeated with other lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.regions import Regions
from neurecover.queries.deep.boundaries.ascent import find_extreme_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.output import answer_sizes
from neurecover.queries.deep.fits.polish import choose_polishing_points, polish
from neurecover.queries.deep.fits.spare import drop_doubtful_units
from neurecover.queries.deep.layers import (
    EmptyLayerError,
    NarrowSpanError,
    OtherUnitsError,
    Plan,
    Progress,
    Reached,
    Solution,
    solve_layers,
)
from neurecover.queries.deep.outside import measure_outside
from neurecover.queries.deep.span import Span, find_gradient_span, lift
from neurecover.queries.deep.unfinished import describe_reached
from neurecover.queries.diagnosis import diagnose_bounded, diagnose_changes
from neurecover.queries.extraction import Extraction
from neurecover.queries.shallow.extract import extract_shallow
from neurecover.queries.weighted import Weighted, fit_weighted
from neurecover.solve.deadline import Deadline


def extract_deep(
    box: Box,
    *,
    n_hidden: tuple[int, ...] | None = None,
    depth: int | None = None,
    regions: Regions | None = None,
    rng: np.random.Generator,
    deadline: Deadline,
    progress: Progress | None = None,
) -> Extraction:
    """Find a `DeepNetwork` with ReLU units that reproduces the oracle, with its widths and depth unless given.

    `n_hidden` are the widths of the hidden layers: a layer is complete once it has as many units. `regions` have
    gradients that were measured before, which tell the directions that matter. Raise UnsolvableError
    if no network was found at all. A network that fails on held-out queries is returned with its residual.
    """
    options = box.options.deep
    if n_hidden is not None and depth is not None and depth != len(n_hidden):
        raise ValueError(f"expected as many widths as hidden layers, {depth}. Got n_hidden={n_hidden} instead.")
    widths = n_hidden or ()
    if (depth is not None and depth < 1) or any(width < 1 for width in widths):
        raise ValueError(f"expected at least one hidden layer of at least one unit. Got {n_hidden}, {depth} instead.")
    plan = Plan(n_hidden, depth if n_hidden is None else len(n_hidden))
    _refuse_few_digits(box)
    changing = diagnose_changes(box, rng)
    if changing is not None:
        raise UnsolvableError(changing)
    try:
        found = _try_repeatedly(box, plan, regions, rng, deadline, progress or _silent)
    except OtherUnitsError:
        raise
    except UnsolvableError as error:
        if not isinstance(error.reached, Reached) or not error.reached.layers or box.coarse:
            raise
        return describe_reached(box, error.reached, str(error), rng)
    if found.network.depth == 1 and (found.always_on or box.coarse):
        # The methods for one layer find the signs of more units than inputs, and need fewer coarse answers.
        return extract_shallow(box, rng=rng, deadline=deadline, progress=progress)
    network, shallow = found.network, box.options.shallow
    return Extraction(
        network,
        queries=box.queries,
        residual=found.residual,
        resolution=box.resolution,
        # A large residual must not be explained by weights that are too uncertain.
        exact=found.residual < max(_explained_by_rounding(box), shallow.residual * min(found.moved, shallow.uncertain)),
        errors=found.errors,
        unreached=_describe_unreached(found, n_hidden, options.badly if box.coarse else options.determined),
        notes=_describe_residual(found, max(options.solved, _explained_by_rounding(box))),
        weighted=found.weighted,
    )


class FewDigitsError(UnsolvableError):
    """The answers have too few digits for several layers."""


def _refuse_few_digits(box: Box) -> None:
    """Raise FewDigitsError if no kink stands out from rounding over a way that is free of others."""
    options = box.options.deep
    if not box.coarse or box.crowding < options.crowded:
        return
    more = int(np.ceil(np.log10(box.crowding / options.roomy)))
    raise FewDigitsError(
        f"The answers are rounded to {box.resolution:.1g} of their size, {box.resolution * box.scale / box.growth:.1g} "
        f"of their spread: too much to see the kinks of several hidden layers. It takes about {more} more digits, as "
        f"of answers rounded to {box.resolution / 10.0**more:.0e} of their size."
    )


def _explained_by_rounding(box: Box) -> float:
    """Return the residual that rounding explains, relative to the answers.

    Coarse answers are each held against their own standard deviation, in units of the resolution.
    """
    options = box.options.deep
    if box.coarse:
        return options.coarse_roundings * box.resolution
    return max(options.exact_roundings * box.resolution, 1e-12)


@dataclass(frozen=True, eq=False)
class _Found:
    """A network, its residual on held-out queries, the errors of its rows, and the number of always-active units.

    `weighted` is the fit with error bars, for coarse answers. `moved` is the residual that the errors would leave.
    """

    network: DeepNetwork
    residual: float
    errors: np.ndarray
    always_on: int
    weighted: Weighted | None = None
    moved: float = 0.0


def _silent(stage: str, figure: float) -> None:
    """Ignore progress."""
    pass


def _try_repeatedly(
    box: Box, plan: Plan, regions: Regions | None, rng: np.random.Generator, deadline: Deadline, tell: Progress
) -> _Found:
    """Return the best network of a few attempts, stopping when the residual on held-out queries is rounding."""
    options = box.options.deep
    with box.counting("directions that matter"):
        fine = regions is not None and not box.coarse
        span = find_gradient_span(box, rng, Span.of_regions(regions, options) if fine and regions is not None else None)
    if span.rank == 0:
        raise UnsolvableError("The oracle gives the same answer to every query, so no hidden unit is visible.")
    inner = _reduce(box, span)
    best: _Found | None = None
    failure, barren, narrowed, reached = "", 0, 0, Reached()
    for attempt in range(options.attempts):
        if inner is not box and attempt:
            # A unit that the first gradients missed spoils everything after it.
            with box.counting("directions that matter"):
                span = find_gradient_span(box, rng, span)
            inner = inner if span.rank == inner.n_inputs else _reduce(box, span)
        try:
            narrow = inner is not box and box.coarse
            eager = replace(plan, patience=plan.patience * (attempt + 1 - narrowed), independent=narrow)
            solution = solve_layers(inner, eager, rng, deadline, tell)
            found = _finish(box, inner, solution, span, rng, deadline)
        except OtherUnitsError:
            raise
        except UnsolvableError as error:
            failure = str(error)
            lifted = _lifted(error.reached, inner, span)
            reached = lifted if lifted.rank > reached.rank else reached
            tell("attempts that failed", attempt + 1.0)
            barren += isinstance(error, EmptyLayerError)
            narrowed += isinstance(error, NarrowSpanError)  # too few directions, not too few lines
            if isinstance(error, NarrowSpanError) and box.n_inputs <= options.whole:
                inner = box
            bounded = diagnose_bounded(box, rng) if attempt == 1 else None
            if bounded is not None:
                # A clipped network is one with a layer more, which two attempts find if any do.
                failure = bounded
                break
            if (
                barren == options.empty_attempts
                or deadline.passed
                or box.queries >= options.enough
                or (box.budget is not None and box.queries >= options.budget * box.budget)
            ):
                break
            continue
        tell("residual", found.residual)
        if best is None or found.residual < best.residual:
            best = found
        solved = best.residual < max(options.solved, _explained_by_rounding(box) if box.coarse else 0.0)
        if solved or deadline.passed or box.queries >= options.enough:
            break
        if attempt == 1 and diagnose_bounded(box, rng) is not None:
            break
    if best is None:
        unfinished = UnsolvableError(failure)
        unfinished.reached = reached
        raise unfinished
    return best


def _lifted(reached: object, inner: Box, span: Span) -> Reached:
    """Return the layers found, if any, with the rows of the first one in all inputs."""
    if not isinstance(reached, Reached) or not reached.layers:
        return Reached()
    (W, b), *above = reached.layers
    return replace(reached, layers=((W if inner.n_inputs == len(span.basis) else W @ span.basis.T, b), *above))


def _reduce(box: Box, span: Span) -> Box:
    """Return the oracle as a function of the directions that matter, or as it is if all of them do.

    Within limits, some points are reached only along directions that do not matter.
    """
    if span.rank == box.n_inputs or box.limits:
        return box
    return Box(lambda X: box(X @ span.basis.T), span.rank, options=box.options, outer=box)


def _finish(
    box: Box, inner: Box, solution: Solution, span: Span, rng: np.random.Generator, deadline: Deadline
) -> _Found:
    """Polish the network, express it in all inputs, and measure its residual."""
    output, measured = solution.output, solution.row_errors
    anchors = tuple(points[:k] for points, k in zip(solution.anchors, output.network.n_hidden))
    per_weight = _answers_per_weight(box, output.network)
    with box.counting("refinement"):
        network, polished, X, Y = _polish_at(inner, output.network, anchors, measured, per_weight, rng, deadline)
    outside = None
    if inner is not box:
        with box.counting("rows in all inputs"):
            (network, outer), X = lift(box, network, span, rng), X @ span.basis.T
            outer /= np.linalg.norm(network.layers[0][0], axis=1)
            polished = np.hypot(polished, np.append(outer, np.zeros(len(polished) - len(outer))))
            if box.coarse:
                network, outside = measure_outside(box, network, rng)
    weighted = None
    # As many held-out queries as weights, in the directions that matter: every query shows the others.
    n = output.network.n_parameters
    if box.coarse and n <= box.options.weighted_parameters and not deadline.passed:
        weighted = fit_weighted(network, box.inputs(X), Y, box.whitening, None, outside, box.least_variances)
    n = -(-n // network.n_outputs)
    if weighted is None:
        residual, moved = measure_residual(box, network, n, rng, errors=polished)
        return _Found(network, residual, polished, output.always_on, moved=moved)
    network = weighted.on_z.normal_form()
    residual, _ = measure_residual(box, network, n, rng, weighted)
    # A unit without a boundary of its own, found by the fit alone, may change at some queries all the same.
    always_on = int(np.count_nonzero((network.hidden(X)[-1] > 0.0).all(axis=0)))
    return _Found(network, residual, weighted.errors_of_rows(), always_on, weighted)


def _answers_per_weight(box: Box, network: DeepNetwork) -> float:
    """Return how many answers for a weight the last fit has in the directions that matter."""
    options = box.options.deep
    if box.coarse:
        return options.polish_answers
    return options.product_answers if network.n_parameters > options.formed else options.answers_fine


def _polish_at(
    box: Box,
    network: DeepNetwork,
    anchors: tuple[np.ndarray, ...],
    measured: np.ndarray,
    per_weight: float,
    rng: np.random.Generator,
    deadline: Deadline,
) -> tuple[DeepNetwork, np.ndarray, np.ndarray, np.ndarray]:
    """Query well-chosen points and fit all weights to them; return the network, its rows' errors, and X and Y.

    `measured` are the errors of the rows before. A unit that the answers neither determine nor need goes, and the
    others are fitted once more.
    """
    options = box.options.deep
    n = int(per_weight * network.n_parameters / box.n_outputs) + 50
    first = measured[: network.n_hidden[0]]
    X = box.round_queries(choose_polishing_points(network, anchors, n, rng, box.limits, options, first))
    Y = box(X)
    sizes = box.noise(X, Y) if box.coarse else None
    polished = polish(network, X, Y, options, deadline, sizes, box.coarse)
    found = drop_doubtful_units(polished, network, measured, X, Y, options, rng, deadline, sizes)
    return found.fit.network, found.errors, X, Y


def measure_residual(
    box: Box,
    network: DeepNetwork,
    n: int,
    rng: np.random.Generator,
    weighted: Weighted | None = None,
    errors: np.ndarray | None = None,
) -> tuple[float, float]:
    """Return the largest |f̂(x) − f(x)|, relative to the answers' size, over n held-out queries and further ones.

    Beside it stands the largest change of f̂(x) at the same queries if every hidden row moves by its error; 0 if these
    `errors` are not given, or not known of every row.

    There are at least 200: a third each near the origin, at the distance of standard Gaussian inputs, and far out.
    Further queries are made where the values of some layer are extreme, because a missed unit above it that hardly ever
    changes does so there, and very far out, where a unit that is inactive at all usual points may be active. Coarse
    answers are held against the standard deviations that `weighted` expects, else against their rounding, in units of
    the resolution.
    """
    options = box.options.deep
    n, far = max(200, n), 10.0 * np.sqrt(network.n_inputs)
    X = rng.standard_normal((n, network.n_inputs)) * np.resize([0.3, 1.0, 5.0], n)[:, None]
    if box.coarse:
        X = np.vstack([X, options.very_far * rng.standard_normal((options.held_out_far, network.n_inputs))])
    else:
        distance = np.repeat([options.very_far, *options.farthest], options.held_out_farthest)[:, None]
        X = np.vstack([X, distance * rng.standard_normal((len(distance), network.n_inputs))])
    X = box.limits.pull_inside(X)
    for number in range(1, network.depth):
        known = KnownLayers(network.n_inputs, network.layers[:number], limits=box.limits, options=options)
        X = np.vstack([X, find_extreme_points(known, options.held_out_extremes, rng)])
    if box.limits:
        X = np.vstack([X, box.limits.corners(options.held_out_corners, rng)])
    X = box.round_queries(X)
    with box.counting("held-out queries"):
        Y = box(X)
    if weighted is not None:
        left = np.abs(weighted.network(box.inputs(X)) - Y) / weighted.deviations(box.inputs(X))
        # A fit that lacks a unit takes what it leaves over for noise, which then is more than the rounding measured.
        noisier = float(np.median(weighted.noise(box.inputs(X)).max(axis=1) / box.noise(X, Y)))
        return float(left.max()) * max(1.0, noisier / options.noisier) * box.resolution, 0.0
    # Far out the terms of an answer are large even where they cancel.
    size = box.sizes(X, Y)
    if not box.coarse:
        # Logits are known no better than their probabilities, near or far.
        wide = (np.linalg.norm(X, axis=1) > far) | (box.rounding is not None)
        size = np.maximum(np.where(wide, size, 0.0), answer_sizes(Y))
    answers = network(X)
    moved = 0.0
    if errors is not None and np.isfinite(errors).all():
        moved = float((np.abs(_with_rows_moved(network, errors, rng)(X) - answers).max(axis=1) / size).max())
    return float((np.abs(answers - Y).max(axis=1) / size).max()), moved


def _with_rows_moved(network: DeepNetwork, errors: np.ndarray, rng: np.random.Generator) -> DeepNetwork:
    """Return the network with every hidden row of length one moved by its error, in a random direction."""
    network = network.normal_form()
    layers = []
    for (W, b), error in zip(network.layers, np.split(errors, np.cumsum(network.n_hidden)[:-1])):
        step = rng.standard_normal((len(W), W.shape[1] + 1))
        step *= (error / np.linalg.norm(step, axis=1))[:, None]
        layers.append((W + step[:, :-1], b + step[:, -1]))
    return DeepNetwork([*layers, network.layers[-1]])


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
