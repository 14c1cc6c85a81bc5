"""The last hidden layer from samples, when answers are coarse.

On the values h of the known layers the rest is a network, and if it has one hidden layer, answers to random queries are
samples of it: `search.network` finds its width and its units, from far fewer answers than lines take for them, and
where these show few kinks. What the known layers are off by is noise of the samples; a fit of all weights to the same
answers then removes it. If the rest has more layers, no such network reproduces the answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover import activations
from neurecover.data import ArraySource, Whitening, unwhiten
from neurecover.models import DeepNetwork, Network
from neurecover.queries.deep.boundaries.boundary import Boundary, triangle
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.fits.fitting import add_faint_unit, polish_on_most
from neurecover.queries.deep.fits.polish import polish
from neurecover.queries.deep.fits.spare import drop_doubtful_units, drop_spare_units
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.deep.units import Unit
from neurecover.search import Task
from neurecover.search.network import search_network
from neurecover.solve.deadline import Deadline


@dataclass(frozen=True, eq=False)
class LastLayer:
    """The units of a last hidden layer and the network with them; `complete` if it reproduces all answers."""

    units: tuple[Unit, ...]
    network: DeepNetwork
    complete: bool


def find_last_layer(
    known: KnownLayers, answers: Answers, rng: np.random.Generator, deadline: Deadline
) -> LastLayer | None:
    """Return the last hidden layer if a network with it reproduces nearly all answers, else None.

    About as many units are expected as the highest known layer has. A unit that hardly any answer shows may be missing,
    or stand among those that are always active, which are left out then.
    """
    box = answers.box
    options, p = box.options.deep, box.n_outputs
    k = known.n_top
    n_weights = sum(W.size + b.size for W, b in known.layers) + (k + 1) * (k + p + 1)
    answers.ensure(max(options.upper_least, options.upper_answers * n_weights // p), known)
    network = _search(known, answers, rng, deadline)
    if network is None:
        return None
    answers.ensure_extremes(options.extremes, known)
    network, wrong = polish_on_most(network, answers, deadline)
    if wrong.any():
        # The search takes a unit that adds less than the known rows are off by for noise.
        larger = add_faint_unit(network, network.n_hidden[-1], answers, deadline)
        network, complete = (network, False) if larger is None else (larger.network, larger.complete)
        if not complete:
            few = np.count_nonzero(wrong) <= options.upper_wrong * len(wrong)
            units = _units(network, answers, options)
            return LastLayer(_without_affine_part(units, network, answers), network, False) if few else None
    fitted = polish(network, answers.X, answers.Y, options, deadline, answers.noise, True)
    unknown, X, Y = np.zeros(sum(network.n_hidden)), answers.X, answers.Y
    lowest = network.depth - 1
    fitted = drop_doubtful_units(fitted, network, unknown, X, Y, options, rng, deadline, answers.noise, lowest).fit
    network = drop_spare_units(fitted.network, answers, deadline)
    return LastLayer(_units(network, answers, options), network, True)


def _without_affine_part(units: tuple[Unit, ...], network: DeepNetwork, answers: Answers) -> tuple[Unit, ...]:
    """Return the units without those that stand for an affine part: always active, or two that are each other's
    opposite.
    """
    rows = np.column_stack(network.layers[-2])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    on = network.hidden(answers.X)[-1] > 0.0
    opposite = np.linalg.norm(rows[:, None] + rows, axis=2) < answers.box.options.deep.alike_coarse
    return tuple(
        unit for unit, side, others in zip(units, on.T, opposite) if side.any() and not side.all() and not others.any()
    )


def _search(known: KnownLayers, answers: Answers, rng: np.random.Generator, deadline: Deadline) -> DeepNetwork | None:
    """Return the known layers with one more on top that fits the answers about as well as the known rows allow."""
    box, H, Y = answers.box, known.hidden(answers.X), answers.Y
    options = box.options.deep
    # A value is off by the error of its row, and an answer by about that times the length of a gradient.
    off = known.error * (1.0 + np.linalg.norm(answers.X, axis=1)) * box.growth
    sizes = np.hypot(answers.noise, off)
    share = sizes**-2.0 / np.sum(sizes**-2.0)
    mean = share @ H
    whitening = Whitening.of(mean, (H - mean).T @ (share[:, None] * (H - mean)))
    level = float(1.0 / np.mean((Y / sizes[:, None]) ** 2))
    task = Task(activations.get("relu"), whitening.rank, box.n_outputs, len(H), True, None, level)
    source = ArraySource(whitening.inputs(H), Y, weight=len(H) * share)
    found = search_network(source, task, rng, deadline.within_steps(options.upper_steps))
    if found.sign_choices > 1 or not isinstance(found.network, Network) or not found.network.n_hidden:
        return None
    upper = unwhiten(found.network, whitening)
    assert isinstance(upper, Network)
    return DeepNetwork([*known.layers, (upper.W, upper.b), (upper.A, upper.c)])


def _units(network: DeepNetwork, answers: Answers, options: DeepOptions) -> tuple[Unit, ...]:
    """Return the units of the last hidden layer, each with the query nearest to its boundary."""
    *_, (W, b), (A, _) = network.layers
    phi = np.column_stack([network.hidden(answers.X)[-2], np.ones(len(answers.X))])
    units = []
    for row, length in zip(np.column_stack([W, b]), np.linalg.norm(A, axis=0)):
        on, size = phi @ row > 0.0, float(np.linalg.norm(row[:-1]))
        R = triangle(np.vstack([phi[on] * (length / answers.noise[on])[:, None], np.eye(len(row)) / options.wide]))
        boundary = Boundary(R * size, R @ row, length * size, options)
        units.append(Unit(boundary, np.zeros(len(row), dtype=bool), answers.X[int(np.argmin(np.abs(phi @ row)))]))
    return tuple(units)
