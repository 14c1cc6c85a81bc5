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
from neurecover.exceptions import RefusedError, UnsolvableError
from neurecover.models import Network
from neurecover.queries.affine import refine_affine, with_straight_units
from neurecover.queries.box import Box
from neurecover.queries.coarse import extract_coarse
from neurecover.queries.design import add_regions, expected_errors
from neurecover.queries.extraction import Extraction
from neurecover.queries.joint import measure_offsets, measure_output_weights, refine_jointly
from neurecover.queries.planes import AffinePartError, Planes, oriented, slopes_of
from neurecover.queries.regions import Regions
from neurecover.queries.scan import NotPiecewiseLinearError
from neurecover.queries.twins import with_twins
from neurecover.queries.units import CORNERS, SeveralLayersError, all_units, misfit, with_affine
from neurecover.queries.weighted import Weighted
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]

# Attempts look farther and farther out, because a unit may be missing whose plane is far from the origin.
_FARTHER = (1.0, 1e3, 1e3)
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
# Answers coarser than this are not tried.
_COARSEST = 1e-2
# What planes that were fitted together leave of an affine part that twins take up: so many times their error.
_REFINED, _MOST_MISFIT = 1e-9, 30.0
_OTHER_TWINS = "Two units share a plane and face away from each other: other such pairs give the same function."


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
            "however short it is: too much to see the kinks of a network. A network behind noise is found from "
            "samples: neurecover.recover(oracle, n_samples=2000)."
        )
    best: Extraction | None = None
    reason = "The time was over before a network was found: give a larger time_budget."
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
    known, regions = all_units(box, wanted.farther, wanted.doubted, rng, deadline, tell)
    if not len(regions):
        raise UnsolvableError("The box has no kinks along a line: it has no hidden units that could be seen.")
    planes = with_affine(known, regions)
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
    if with_twins(planes, wanted.activation, misfit(planes)) is None and not box.limits:
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


def _signed(planes: Planes, act: Activation) -> Network:
    return oriented(planes, act, tolerance=misfit(planes))


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
        X = np.vstack([box.limits.drawn_in(X), box.limits.corners(CORNERS, rng)])
    if box.coarse:
        X = box.seen(X.astype(np.float32).astype(float))
    Y = box(X)
    size = box.noise(X, Y) / box.resolution
    return float(np.max(np.abs(Y - network(X)).max(axis=1) / size))
