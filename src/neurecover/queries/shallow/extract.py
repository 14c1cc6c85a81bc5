"""The weights of one hidden layer, y = A act(W x + b) + c, from chosen queries.

1. Every hyperplane w_j·x + b_j = 0 crosses a random line, and the oracle has a kink there: `lines.kinks`.
2. Gradients beside the kinks give w_j, b_j and the jumps A_j up to the sign of the unit: `line_units`, `planes`.
3. The signs are bits in a linear system: `planes`, `lattice`.
4. With all units roughly known, gradients at points far from every hyperplane make them accurate: `design`, `joint`.
5. Held-out queries, near and far, measure how well the network reproduces the oracle.

If step 2 leaves a kink unexplained, another line is taken. If step 3 finds no signs, or step 5 a residual above
rounding, everything is repeated. For coarse answers `coarse` replaces steps 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.exceptions import RefusedError, UnsolvableError
from neurecover.models import Network
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.regions import Regions
from neurecover.queries.box.resolution import DIFFERENT
from neurecover.queries.extraction import Extraction
from neurecover.queries.lines.scan import NotPiecewiseLinearError
from neurecover.queries.shallow.affine import add_straight_units, refine_affine
from neurecover.queries.shallow.coarse import UnseenError, extract_coarse
from neurecover.queries.shallow.design import add_regions, expected_errors
from neurecover.queries.shallow.joint import measure_offsets, measure_output_weights, refine_jointly
from neurecover.queries.shallow.opposite_units import resolve_opposite_units
from neurecover.queries.shallow.planes import (
    AffinePartError,
    Planes,
    affine_error,
    find_slope,
    has_many_units,
    orient,
    slopes_of,
    with_affine_term,
)
from neurecover.queries.shallow.search import SeveralLayersError, add_affine_part, expected_misfit, find_units
from neurecover.queries.weighted import Weighted
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]

_OTHER_PAIRS = "Two units share a hyperplane and have opposite directions: other such pairs give the same function."


@dataclass(frozen=True)
class _Target:
    """What is sought: activation, accuracy, how many times farther out than usual to query, and whether layers may
    follow.

    With `any_slope`, units with another slope on their left are accepted too.
    """

    activation: Activation
    accuracy: float | None
    farther: float
    maybe_deep: bool
    any_slope: bool = False


@dataclass(frozen=True)
class _Candidate:
    """A network, the expected errors (k,) of its rows of length one, and what the queries could not show.

    `weighted` is the weighted fit to coarse answers; `signs_proved` says that no other signs of the units are possible.
    """

    network: Network
    errors: np.ndarray
    weighted: Weighted | None = None
    unreached: tuple[str, ...] = ()
    signs_proved: bool = False

    def expected_residual(self, box: Box) -> float:
        """Return what the errors δw_j add to an answer, |A_j| ‖δw_j‖ ‖x‖ each, relative to the size of the terms."""
        shares = np.linalg.norm(self.network.normal_form().A, axis=0) * self.errors
        return float(np.linalg.norm(shares)) * np.sqrt(box.n_inputs) / box.growth


def extract_shallow(
    box: Box,
    *,
    activation: str | Activation = "relu",
    n_hidden: int | None = None,
    accuracy: float | None = None,
    maybe_deep: bool = False,
    any_slope: bool = False,
    rng: np.random.Generator,
    deadline: Deadline,
    progress: Progress | None = None,
) -> Extraction:
    """Find the network with one hidden layer behind the oracle; raise UnsolvableError if none is visible.

    With `maybe_deep` there may be several layers: the hyperplanes of the first line are then checked elsewhere first,
    and SeveralLayersError is raised if they do not continue. With `any_slope` the activation may turn out to be
    leaky_relu or abs.

    `accuracy` is the wanted error of a row of W of length one: the smaller, the more queries, up to about twice those
    of the first pass. By default it is between 2e-13 for a small network and 5e-10 for a large one. `n_hidden`, if
    given, is only compared with the number of units found.
    """
    options = box.options.shallow
    act = get(activation)
    slopes_of(act)
    tell = progress or (lambda stage, figure: None)
    if box.resolution > options.coarsest:
        raise _scatter_error(box, rng)
    best: Extraction | None = None
    straight: _Candidate | None = None
    reason = "Time ran out before a network was found: give a larger time_budget."
    search = _search_coarse if box.coarse else _search_fine
    for farther in options.farther:
        if deadline.passed:
            break
        try:
            with box.counting("hidden layer 1"):
                found = search(box, _Target(act, accuracy, farther, maybe_deep, any_slope), rng, deadline, tell)
        except (NotPiecewiseLinearError, SeveralLayersError):
            raise
        except RefusedError:
            if best is None:
                raise
            break
        except AffinePartError as error:
            reason = str(error)
            straight = error.candidate if isinstance(error.candidate, _Candidate) else straight
            if error.searched or straight is None:
                continue
            # If the hyperplanes explain all answers, no other line makes their signs fewer.
            found = straight
        except UnsolvableError as error:
            reason = str(error)
            if isinstance(error, UnseenError):
                break
            continue
        extraction = _check(box, found, n_hidden, rng)
        tell("residual", extraction.residual)
        if best is None or extraction.residual < best.residual:
            best = extraction
        if extraction.exact:
            break
    if best is None:
        best = None if straight is None else _check(box, straight, n_hidden, rng)
        if best is None or not best.exact:
            raise UnsolvableError(reason)
    return best if best.exact else _add_warning(best)


def _scatter_error(box: Box, rng: np.random.Generator) -> UnsolvableError:
    """Return the error that says why answers this coarse show no kinks."""
    again = box.limits.pull_inside(rng.standard_normal((2 * box.options.shallow.held_out, box.n_inputs)))
    if not np.array_equal(box(again), box(again)):
        return UnsolvableError(DIFFERENT)
    return UnsolvableError(
        f"The answers of the oracle scatter by {box.resolution:.1e} of their size around a straight line, "
        "however short it is: too much to see the kinks of a network. A network behind noise is found from "
        "samples: neurecover.recover(oracle, n_samples=2000)."
    )


def _add_warning(extraction: Extraction) -> Extraction:
    """Add a note that rounding does not explain the residual."""
    sentence = (
        f"The network does not reproduce the oracle: the residual of {extraction.residual:.1e} is more than the "
        f"rounding of the answers, {extraction.resolution:.1e}, explains."
    )
    return replace(extraction, notes=(*extraction.notes, sentence))


def _search_fine(box: Box, target: _Target, rng: np.random.Generator, deadline: Deadline, tell: Progress) -> _Candidate:
    """Find the network from answers with all digits."""
    options = box.options.shallow
    known, regions = find_units(box, target.farther, target.maybe_deep, rng, deadline, tell)
    if not len(regions):
        raise UnsolvableError("The oracle has no kinks along a line, so no hidden unit is visible.")
    planes = add_affine_part(known, regions)
    tolerance = expected_misfit(planes)
    if has_many_units(planes):
        # The signs are bits that all digits of a few equations tell.
        planes, regions = refine_affine(box, planes, regions, _wanted(box, target, planes), rng)
        tolerance = max(options.many_errors * affine_error(planes), options.many_finest)
    try:
        oriented = orient(planes, target.activation, tolerance)
    except AffinePartError as error:
        slopes = target.any_slope and error.searched
        sloped = _with_slope(box, planes, regions, target, tolerance, rng) if slopes else None
        if sloped is not None:
            return sloped
        error.candidate = _Candidate(with_affine_term(planes, target.activation), planes.error, None, (str(error),))
        return _explain_affine_part(box, planes, regions, target, error, rng)
    network = oriented.network
    if has_many_units(planes):
        network = refine_jointly(network, regions)
        return _Candidate(network, expected_errors(network, regions), signs_proved=oriented.unique)
    if box.n_outputs > 1:
        network = refine_jointly(measure_output_weights(box, network, rng), regions)
        network = measure_output_weights(box, network, rng)
    most = int(np.ceil(options.regions * len(known) / box.n_outputs))
    regions = add_regions(box, network, regions, _target_accuracy(box, target, network.n_parameters), most, rng=rng)
    network = refine_jointly(network, regions)
    if box.n_inputs >= options.many_inputs:
        network = measure_offsets(box, network, rng)
    return _Candidate(network, expected_errors(network, regions))


def _with_slope(
    box: Box, planes: Planes, regions: Regions, target: _Target, tolerance: float, rng: np.random.Generator
) -> _Candidate | None:
    """Return the network of units with another slope on their left; None if no slope explains the affine part."""
    options = box.options.shallow
    many = has_many_units(planes)
    slope = find_slope(planes, tolerance, options.spare_bits if many else 0)
    if slope is not None and not many:
        planes, regions = refine_affine(box, planes, regions, _wanted(box, target, planes), rng)
        tolerance = max(options.refined, options.refined_errors * float(planes.error.max()))
        slope = find_slope(planes, tolerance, options.spare_bits)
    if slope is None:
        return None
    oriented = orient(planes, get("abs" if slope == -1.0 else f"leaky_relu({slope!r})"), tolerance)
    network = refine_jointly(oriented.network, regions)
    return _Candidate(network, expected_errors(network, regions), signs_proved=oriented.unique)


def _wanted(box: Box, target: _Target, planes: Planes) -> float:
    """Return the wanted error of a row of the network of these hyperplanes."""
    return _target_accuracy(box, target, len(planes) * (box.n_inputs + 1 + box.n_outputs))


def _target_accuracy(box: Box, target: _Target, n_parameters: int) -> float:
    """Return the wanted error of a row: the one given, or one that suits the size of the network."""
    options = box.options.shallow
    return target.accuracy or max(min(3e-16 * n_parameters**1.5, options.accuracy) / box.n_outputs, options.finest)


def _explain_affine_part(
    box: Box, planes: Planes, regions: Regions, target: _Target, error: AffinePartError, rng: np.random.Generator
) -> _Candidate:
    """Explain the affine part by opposite units or, within limits, by always-active ones; otherwise raise the error."""
    options = box.options.shallow
    if resolve_opposite_units(planes, target.activation, expected_misfit(planes), options) is None and not box.limits:
        raise error
    planes = refine_affine(box, planes, regions, _wanted(box, target, planes), rng)[0]
    opposite = resolve_opposite_units(
        planes, target.activation, max(options.refined, options.refined_errors * float(planes.error.max())), options
    )
    if opposite is not None:
        unknown = () if opposite.unique else (_OTHER_PAIRS,)
        return _Candidate(opposite.network, planes.error[opposite.plane], unreached=unknown)
    if not box.limits:
        raise error
    straight = add_straight_units(box, planes, target.activation)
    sentence = (
        f"Within the bounds an affine part remains, as from units that are always active: {straight.extra} of the "
        "returned units represent it, and the directions of the others are not known."
    )
    return _Candidate(straight.network, np.append(planes.error, np.zeros(straight.extra)), unreached=(sentence,))


def _search_coarse(
    box: Box, target: _Target, rng: np.random.Generator, deadline: Deadline, tell: Progress
) -> _Candidate:
    """Find the network from coarse answers."""
    coarse = extract_coarse(box, target.activation, rng, deadline, target.farther, tell, target.maybe_deep)
    return _Candidate(coarse.network, coarse.errors, coarse.weighted)


def _check(box: Box, found: _Candidate, n_hidden: int | None, rng: np.random.Generator) -> Extraction:
    """Compare the network with held-out queries and with the given width; return the extraction."""
    options = box.options.shallow
    network = found.network.normal_form()
    residual = measure_residual(box, network, rng)
    unreached = found.unreached
    faint = int(np.count_nonzero(found.errors > max(options.faint, options.faint_coarse * box.resolution)))
    if faint:
        worst = float(found.errors.max())
        unreached += (
            f"{faint} units add so little to the answers that some of their rows are only known to {worst:.0e}.",
        )
    if n_hidden is not None and n_hidden > network.n_hidden:
        missing = n_hidden - network.n_hidden
        unreached += (f"{missing} of the {n_hidden} expected units have no kink anywhere the oracle was queried.",)
    notes: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden < network.n_hidden:
        notes = (f"{network.n_hidden} units were found where {n_hidden} were expected.",)
    # A large residual must not be explained by weights that are too uncertain.
    expected = min(found.expected_residual(box), max(options.uncertain, options.uncertain_coarse * box.resolution))
    exact = residual < options.residual * (box.resolution + expected)
    return Extraction(
        network,
        box.queries,
        residual,
        box.resolution,
        exact,
        found.errors,
        unreached,
        notes,
        found.weighted,
        found.signs_proved,
    )


def measure_residual(box: Box, network: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator) -> float:
    """Return the largest |oracle(x) − network(x)|, relative to the size of the terms, near the origin and far out."""
    options = box.options.shallow
    X = (
        rng.standard_normal((len(options.distances) * options.held_out, box.n_inputs))
        * np.repeat(options.distances, options.held_out)[:, None]
    )
    if box.limits:
        X = np.vstack([box.limits.pull_inside(X), box.limits.corners(options.corners, rng)])
    if box.coarse:
        X = box.round_queries(X.astype(np.float32).astype(float))
    with box.counting("held-out queries"):
        Y = box(X)
    size = box.sizes(X, Y)
    return float(np.max(np.abs(Y - network(X)).max(axis=1) / size))
