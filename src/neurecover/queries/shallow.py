"""The weights of one hidden layer, y = A act(W x + b) + c, from chosen questions.

1. Every plane w_j·x + b_j = 0 crosses a random line, and the box bends there: `kinks`.
2. Gradients beside the kinks give w_j, b_j and the jumps A_j up to the sign of the unit: `lines`, `planes`.
3. The signs are bits in a linear system: `planes`, `lattice`.
4. With all units roughly known, gradients at points far from every plane make them accurate: `design`, `joint`.
5. Fresh questions, near and far, say how well the network answers like the box.

Where step 2 leaves a kink unexplained another line is taken, and where step 3 finds no signs or step 5 a residual above
rounding, everything is begun anew. For coarse answers `coarse` takes the place of steps 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.certificate.weighted import Weighted
from neurecover.exceptions import RefusedError, UnsolvableError
from neurecover.models import Network
from neurecover.queries.affine import refine_affine, with_straight_units
from neurecover.queries.box import Box
from neurecover.queries.coarse import extract_coarse
from neurecover.queries.deep_probe import local_kinks
from neurecover.queries.design import add_regions, expected_errors
from neurecover.queries.extraction import Extraction
from neurecover.queries.joint import measure_offsets, measure_output_weights, refine_jointly
from neurecover.queries.lines import units_on_line
from neurecover.queries.planes import AffinePartError, Planes, oriented, slopes_of
from neurecover.queries.regions import Regions
from neurecover.queries.scan import NotPiecewiseLinearError, scan_line
from neurecover.queries.twins import with_twins
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]

# Attempts look farther and farther out, because a unit may be missing whose plane is far from the origin.
_FARTHER = (1.0, 1e3, 1e3)
_LINES = 4
# Lines through a range, where a plane may be in few places only, and those without news that end the search.
_LINES_INSIDE, _QUIET = 80, 6
# Fresh questions at each of these distances, relative to √d: beyond the last, planes are as good as through the origin.
_FRESH, _DISTANCES = 16, (1.0, 1e3, 1e6)
# A unit whose row has a larger error than this, or than so many times the rounding, is named.
_FAINT, _FAINT_COARSE = 1e-6, 1e3
# Well-centred regions per unit and output, at most: enough to determine all weights without the line.
_REGIONS = 1.3
# The error aimed at in a row of W of length one, at most and, because it costs little in a small network, at least.
_ACCURATE, _FINEST = 5e-10, 2e-13
# With so many inputs four questions a unit for its offset are a small part of all.
_MANY_INPUTS = 200
# How many times the rounding expected of it a residual may be and count as rounding.
_RESIDUAL, _UNCERTAIN = 4.0, 1e-8
# Planes that are looked at away from the line where there may be several layers, how many of them may be gone, and the
# radius, relative to the point, within which a kink is looked for.
_LOOKED_AT, _GONE, _LOCAL = 12, 3, 1e-3
# Answers coarser than this are not tried.
_COARSEST = 1e-2


# What planes that were fitted together leave of an affine part that twins take up: rounding, or so many times their error.
_REFINED, _MOST_MISFIT = 1e-9, 30.0
_OTHER_TWINS = "Two units share a plane and face away from each other: other such pairs give the same function."


# Corners of a range that are asked at most, and what the planes may be off there before they are fitted together.
_CORNERS, _AT_CORNERS = 1024, 1e-6


class SeveralLayersError(UnsolvableError):
    """The units are not those of one hidden layer."""


@dataclass(frozen=True)
class _Wanted:
    """What is looked for, how accurately, how many times as far out as usual, and whether there may be more layers."""

    activation: Activation
    accuracy: float | None
    farther: float
    doubted: bool


@dataclass(frozen=True)
class _Found:
    """The network, the errors (k,) to expect of rows of length one, and a sentence for what could not be seen.

    From coarse answers by a weighted fit.
    """

    network: Network
    errors: np.ndarray
    weighted: Weighted | None = None
    unreached: tuple[str, ...] = ()

    def expected_residual(self, box: Box) -> float:
        """What the errors δw_j come to in an answer, |A_j| ‖δw_j‖ ‖x‖ each, relative to the size of the terms."""
        shares = np.linalg.norm(self.network.normal_form().A, axis=0) * self.errors
        return float(np.linalg.norm(shares)) * np.sqrt(box.n_inputs) / box.growth


def extract_shallow(
    box: Box,
    *,
    activation: str | Activation = "relu",
    n_hidden: int | None = None,
    accuracy: float | None = None,
    doubted: bool = False,
    rng: np.random.Generator,
    deadline: Deadline,
    progress: Progress | None = None,
) -> Extraction:
    """The network with one hidden layer behind the box; UnsolvableError where there is none to be seen.

    doubted says that there may be several: the planes of the first line are then looked at elsewhere before all else,
    and SeveralLayersError is raised if they do not go on.

    accuracy is the error wanted of a row of W of length one: the smaller, the more questions, up to about twice those
    of the first pass. Where it is not told it is between 2e-13 for a small network and 5e-10 for a large one. n_hidden,
    where it is told, is only compared with what is found.
    """
    act = get(activation)
    slopes_of(act)
    tell = progress or (lambda stage, figure: None)
    if box.resolution > _COARSEST:
        raise UnsolvableError(
            f"The answers of the box scatter by {box.resolution:.1e} of their size around a straight line, "
            "however short it is: too much to see the kinks of a network."
        )
    best: Extraction | None = None
    reason = "The time was over before a network was found."
    search = _search_coarse if box.coarse else _search_fine
    for farther in _FARTHER:
        if deadline.passed:
            break
        try:
            found = search(box, _Wanted(act, accuracy, farther, doubted), rng, deadline, tell)
        except (NotPiecewiseLinearError, SeveralLayersError):
            raise
        except RefusedError:
            if best is None:
                raise
            break
        except UnsolvableError as error:
            reason = str(error)
            continue
        extraction = _checked(box, found, n_hidden, rng)
        tell("residual", extraction.residual)
        if best is None or extraction.residual < best.residual:
            best = extraction
        if extraction.exact:
            break
    if best is None:
        raise UnsolvableError(reason)
    return best if best.exact else _doubted(best)


def _doubted(extraction: Extraction) -> Extraction:
    sentence = (
        f"The network does not answer as the box does: the residual of {extraction.residual:.1e} is more than the "
        f"rounding of the answers, {extraction.resolution:.1e}, explains."
    )
    return replace(extraction, notes=(*extraction.notes, sentence))


def _search_fine(box: Box, wanted: _Wanted, rng: np.random.Generator, deadline: Deadline, tell: Progress) -> _Found:
    known, regions = _all_units(box, wanted, rng, deadline, tell)
    if not len(regions):
        raise UnsolvableError("The box has no kinks along a line: it has no hidden units that could be seen.")
    planes = _with_affine(known, regions)
    try:
        network = _signed(planes, wanted.activation)
    except AffinePartError as error:
        return _affine(box, planes, regions, wanted, error, rng)
    if box.n_outputs > 1:
        network = refine_jointly(measure_output_weights(box, network, rng), regions)
        network = measure_output_weights(box, network, rng)
    most = int(np.ceil(_REGIONS * len(known) / box.n_outputs))
    regions = add_regions(box, network, regions, _accuracy(box, wanted, network.n_parameters), most, rng=rng)
    network = refine_jointly(network, regions)
    if box.n_inputs >= _MANY_INPUTS:
        network = measure_offsets(box, network, rng)
    return _Found(network, expected_errors(network, regions))


def _accuracy(box: Box, wanted: _Wanted, n_parameters: int) -> float:
    return wanted.accuracy or max(min(3e-16 * n_parameters**1.5, _ACCURATE) / box.n_outputs, _FINEST)


def _affine(
    box: Box, planes: Planes, regions: Regions, wanted: _Wanted, error: AffinePartError, rng: np.random.Generator
) -> _Found:
    """Twins take up the affine part, or, in a range, units that are on all over it; else the error."""
    if with_twins(planes, wanted.activation, _misfit(planes)) is None and not box.limits:
        raise error
    n_parameters = len(planes) * (box.n_inputs + 1 + box.n_outputs)
    planes = refine_affine(box, planes, regions, _accuracy(box, wanted, n_parameters), rng)
    twins = with_twins(planes, wanted.activation, max(_REFINED, _MOST_MISFIT * float(planes.error.max())))
    if twins is not None:
        unknown = () if twins.only else (_OTHER_TWINS,)
        return _Found(twins.network, planes.error[twins.plane], unreached=unknown)
    if not box.limits:
        raise error
    straight = with_straight_units(box, planes, wanted.activation)
    sentence = (
        f"Within the bounds a straight part is left, as of units that are on all over them: {straight.extra} of the "
        "units given stand for it, and which way the others face is not known."
    )
    return _Found(straight.network, np.append(planes.error, np.zeros(straight.extra)), unreached=(sentence,))


def _all_units(
    box: Box, wanted: _Wanted, rng: np.random.Generator, deadline: Deadline, tell: Progress
) -> tuple[Planes, Regions]:
    """Units from one line after the other, until a line has no kink that they do not explain."""
    d, p = box.n_inputs, box.n_outputs
    known, regions = Planes.none(d, p), Regions.none(d, p)
    quiet, towards = 0, None
    for number in range(_LINES if not box.limits else _LINES_INSIDE):
        if deadline.passed:
            raise UnsolvableError("The time was over before all units were found.")
        line = scan_line(box, rng, wanted.farther, towards)
        units = units_on_line(box, line.x, line.v, line.kinks, known, rng=rng)
        known, regions = Planes.together([known, units.planes]), regions + units.regions
        tell("units", float(len(known)))
        if wanted.doubted and (number == 0 or (box.limits and len(units.planes))):
            _check_planes_go_on(box, units.planes, rng)
        quiet = quiet + 1 if units.explained.all() and not len(units.planes) else 0
        if box.limits and quiet >= _QUIET:
            towards = _wrong_corner(box, known, regions, rng)
        if units.explained.all() and (not box.limits or (quiet >= _QUIET and towards is None)):
            return known, regions
    raise UnsolvableError(f"After {_LINES} lines there still are kinks that no plane explains.")


def _wrong_corner(box: Box, known: Planes, regions: Regions, rng: np.random.Generator) -> np.ndarray | None:
    """A corner (d,) of the range where the box does not answer as the planes do: a unit is missing on the way there."""
    if not len(regions):
        return None
    X = box.limits.corners(_CORNERS, rng)
    Y = box(X)
    left = np.abs(Y - _with_affine(known, regions)(X)).max(axis=1) / (np.abs(Y).max(axis=1) + box.scale)
    wrong = left > max(_AT_CORNERS, _misfit(known))
    return X[rng.choice(np.flatnonzero(wrong))] if wrong.any() else None


def _check_planes_go_on(box: Box, planes: Planes, rng: np.random.Generator) -> None:
    """The plane of a unit in a first layer has its kink everywhere; those above bend at every plane below them.

    A few planes are looked at in one place each, as far from the line as usual questions are.
    """
    some = planes.take(np.argsort(planes.error, kind="stable")[:_LOOKED_AT])
    X = rng.standard_normal((len(some), box.n_inputs))
    X = box.limits.beside_planes(X, some.W, some.b)
    X -= (np.sum(X * some.W, axis=1) + some.b)[:, None] * some.W
    radius = np.maximum(_LOCAL, 10.0 * some.error) * np.linalg.norm(X, axis=1)
    inside = box.limits.room(X) > radius
    some, X, radius = some.take(inside), X[inside], radius[inside]
    found = local_kinks(box, X, some.W, radius)
    gone = np.count_nonzero(found.straight)
    if gone >= _GONE and 4 * gone >= len(some):
        raise SeveralLayersError(
            f"{gone} of {len(some)} planes end somewhere, so there is more than one layer of units."
        )


def _with_affine(known: Planes, regions: Regions) -> Planes:
    best = int(np.argmin(regions.sigma))
    return known.with_affine(regions.points[best], regions.values[best], regions.gradients[best])


def _signed(planes: Planes, act: Activation) -> Network:
    return oriented(planes, act, tolerance=_misfit(planes))


def _misfit(planes: Planes) -> float:
    """What the errors of the planes come to in the affine part, relative to the jumps."""
    size = np.linalg.norm(planes.J, axis=0)
    error = float(size @ planes.error / max(size.sum(), 1e-300))
    return min(1e-6 + 4.0 * error, 1e-2)


def _search_coarse(box: Box, wanted: _Wanted, rng: np.random.Generator, deadline: Deadline, tell: Progress) -> _Found:
    coarse = extract_coarse(box, wanted.activation, rng, deadline, wanted.farther, tell)
    return _Found(coarse.network, coarse.errors, coarse.weighted)


def _checked(box: Box, found: _Found, n_hidden: int | None, rng: np.random.Generator) -> Extraction:
    network = found.network.normal_form()
    residual = fresh_residual(box, network, rng)
    unreached = found.unreached
    faint = int(np.count_nonzero(found.errors > max(_FAINT, _FAINT_COARSE * box.resolution)))
    if faint:
        worst = float(found.errors.max())
        unreached += (f"{faint} units add so little to the answers that their rows are known to {worst:.0e} at best.",)
    if n_hidden is not None and n_hidden > network.n_hidden:
        missing = n_hidden - network.n_hidden
        unreached += (f"{missing} of the {n_hidden} units told bend the answers nowhere that was looked at.",)
    notes: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden < network.n_hidden:
        notes = (f"{network.n_hidden} units were found where {n_hidden} were told.",)
    # Where the weights are too uncertain to tell, a large residual must not pass for their uncertainty.
    expected = min(found.expected_residual(box), max(_UNCERTAIN, 30.0 * box.resolution))
    exact = residual < _RESIDUAL * (box.resolution + expected)
    return Extraction(
        network, box.queries, residual, box.resolution, exact, found.errors, unreached, notes, found.weighted
    )


def fresh_residual(box: Box, network: Network, rng: np.random.Generator) -> float:
    """The largest |box(x) − network(x)| relative to the size of the terms, over x ~ N(0, r² I) with r = 1, 10³, 10⁶."""
    X = rng.standard_normal((len(_DISTANCES) * _FRESH, box.n_inputs)) * np.repeat(_DISTANCES, _FRESH)[:, None]
    if box.limits:
        X = np.vstack([box.limits.drawn_in(X), box.limits.corners(_CORNERS, rng)])
    if box.coarse:
        X = box.seen(X.astype(np.float32).astype(float))
    Y = box(X)
    size = box.noise(X, Y) / box.resolution
    return float(np.max(np.abs(Y - network(X)).max(axis=1) / size))
