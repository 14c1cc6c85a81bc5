"""The last hidden layer from samples, when answers are coarse.

On the values h of the known layers the rest is a network, and if it has one hidden layer, answers to random queries are
samples of it: `search.network` finds its width and its units, from far fewer answers than lines take for them, and
where these show few kinks. What the known layers are off by is noise of the samples; a fit of all weights to the same
answers then removes it. If the rest has more layers, no such network reproduces the answers.
"""

from __future__ import annotations

import numpy as np

from neurecover import activations
from neurecover.data import ArraySource
from neurecover.models import DeepNetwork, Network
from neurecover.queries.deep.boundaries.boundary import Boundary, triangle
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.fits.fitting import add_faint_unit, polish_on_most
from neurecover.queries.deep.fits.output import find_failures
from neurecover.queries.deep.fits.polish import Polished, polish
from neurecover.queries.deep.fits.spare import are_forgiven, drop_spare_units, without_unit
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.deep.units import Unit
from neurecover.search import Task
from neurecover.search.network import search_network
from neurecover.solve.deadline import Deadline


def find_last_layer(
    known: KnownLayers, answers: Answers, rng: np.random.Generator, deadline: Deadline
) -> tuple[tuple[Unit, ...], DeepNetwork] | None:
    """Return the units of a last hidden layer and the network with them, if it reproduces all answers; else None.

    About as many units are expected as the highest known layer has.
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
        if larger is None or not larger.complete:
            return None
        network = larger.network
    fitted = polish(network, answers.X, answers.Y, options, deadline, answers.noise, True)
    fitted = _drop_doubtful(fitted, answers, rng, deadline)
    network = drop_spare_units(fitted.network, answers, deadline)
    return _units(network, answers, options), network


def _search(known: KnownLayers, answers: Answers, rng: np.random.Generator, deadline: Deadline) -> DeepNetwork | None:
    """Return the known layers with one more on top that fits the answers about as well as the known rows allow."""
    box, H, Y = answers.box, known.hidden(answers.X), answers.Y
    options = box.options.deep
    # A value is off by the error of its row, and an answer by about that times the length of a gradient.
    off = known.error * (1.0 + np.linalg.norm(answers.X, axis=1)) * box.growth
    sizes = np.hypot(answers.noise, off)
    level = float(np.mean(sizes**2) / np.mean(Y**2))
    task = Task(activations.get("relu"), H.shape[1], box.n_outputs, len(H), True, None, level)
    source = ArraySource(H, Y, weight=float(np.mean(sizes**2)) / sizes**2)
    found = search_network(source, task, rng, deadline.within_steps(options.upper_steps))
    if found.sign_choices != 1 or not isinstance(found.network, Network) or not found.network.n_hidden:
        return None
    return DeepNetwork([*known.layers, (found.network.W, found.network.b), (found.network.A, found.network.c)])


def _fits(network: DeepNetwork, answers: Answers) -> bool:
    """Return whether the network reproduces all answers except those next to kinks."""
    return are_forgiven(network, answers, find_failures(network, answers.X, answers.Y, answers.allowed))


def _drop_doubtful(fitted: Polished, answers: Answers, rng: np.random.Generator, deadline: Deadline) -> Polished:
    """Remove units that the answers hardly determine and do not require, the least determined first."""
    options = answers.box.options.deep
    for _ in range(fitted.network.n_hidden[-1] - 1):
        network = fitted.network
        errors = fitted.errors(network, np.zeros(sum(network.n_hidden)), options, rng, deadline)[
            -network.n_hidden[-1] :
        ]
        worst = int(errors.argmax())
        if errors[worst] < options.faint:
            break
        fewer = without_unit(network, network.depth - 1, worst)
        trial = polish(fewer, answers.X, answers.Y, options, deadline, answers.noise, True)
        if not _fits(trial.network, answers):
            break
        fitted = trial
    return fitted


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
