"""Find always-active units of the last hidden layer that the answers do not require.

An affine part of the output layer is written as always-active units. Each is left out in turn, or all are replaced by
one, and the others are fitted again: if every answer is still reproduced, the network without it is kept. A unit that
is inactive at every answer is never left out, because no answer depends on it. If answers are exact, units of any layer
may prove unnecessary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.fits.output import find_failures
from neurecover.queries.deep.fits.polish import Polished, polish
from neurecover.queries.deep.options import DeepOptions
from neurecover.solve.deadline import Deadline


def _always(network: DeepNetwork, X: np.ndarray) -> np.ndarray:
    """Return a mask (k,) of the units of the last hidden layer that are active at every point."""
    return np.asarray((network.hidden(X)[-1] > 0.0).all(axis=0))


def are_forgiven(network: DeepNetwork, answers: Answers, wrong: np.ndarray) -> bool:
    """Return whether the answers `wrong` (n,) are few, with errors no larger than answers next to a kink may have."""
    options = answers.box.options.deep
    if np.count_nonzero(wrong) > options.forgiven * len(wrong):
        return False
    off = np.abs(network(answers.X[wrong]) - answers.Y[wrong]).max(axis=1) / answers.noise[wrong]
    return float(off.max(initial=0.0)) < options.forgiven_most


def drop_spare_units(network: DeepNetwork, answers: Answers, deadline: Deadline) -> DeepNetwork:
    """Return the network without the always-active units that the answers do not require."""
    options, X, Y = answers.box.options.deep, answers.X, answers.Y
    for _ in range(options.spare_rounds):
        for trial in _candidates(network, X, options.spare_rank):
            if deadline.passed:
                return network
            fitted = polish(trial, X, Y, options, deadline, answers.noise, True, steps=options.spare_steps).network
            if are_forgiven(fitted, answers, find_failures(fitted, X, Y, answers.allowed)):
                network = fitted
                break
        else:
            return network
    return network


@dataclass(frozen=True, eq=False)
class Without:
    """The fit without one unit: that of `row` among all hidden rows, number `unit` of hidden `layer`, from 0."""

    row: int
    layer: int
    unit: int
    fit: Polished


@dataclass(frozen=True, eq=False)
class Spared:
    """A fit without the units that the answers neither determine nor need, and the expected errors of its rows."""

    fit: Polished
    errors: np.ndarray


def drop_doubtful_units(
    polished: Polished,
    before: DeepNetwork,
    measured: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray,
    options: DeepOptions,
    rng: np.random.Generator,
    deadline: Deadline,
    sizes: np.ndarray | None = None,
    lowest: int = 0,
) -> Spared:
    """Remove units of the layers from `lowest` up that the answers neither determine nor need, one after the other.

    Such a unit comes from a boundary of a deeper layer, or from one that rounding feigned: the error of its row is
    unknown or large, and so are those of the rows above, which have a weight for it. The fit began at `before`, with
    the errors `measured` of its rows, and divides residuals by `sizes` if answers are coarse.
    """
    while True:
        errors = polished.errors(before, measured, options, rng, deadline)
        found = find_spare_unit(polished, errors, X, Y, options, deadline, sizes, lowest)
        if found is None:
            return Spared(polished, errors)
        before, measured = without_unit(before, found.layer, found.unit), np.delete(measured, found.row)
        polished = found.fit


def find_spare_unit(
    polished: Polished,
    errors: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray,
    options: DeepOptions,
    deadline: Deadline,
    sizes: np.ndarray | None = None,
    lowest: int = 0,
) -> Without | None:
    """Return the fit without a unit that the answers neither determine nor need; None if there is none.

    Rounding of exact answers is another in another sum, and ten times the squares are as good; the lowest rows are
    tried first. For coarse answers q weights that mean nothing take off Σr² about q variances, with a standard
    deviation of √(2q); the least determined rows are tried first.
    """
    network, first = polished.network, np.cumsum([0, *polished.network.n_hidden])
    doubtful = np.flatnonzero(~(errors < (np.inf if sizes is None else options.faint)))
    if sizes is not None:
        doubtful = doubtful[np.argsort(-errors[doubtful], kind="stable")]
    variance = polished.loss / max(Y.size - network.n_parameters, 1)
    for row in doubtful[doubtful >= first[lowest]]:
        layer = int(np.searchsorted(first, row, side="right")) - 1
        unit = int(row - first[layer])
        if network.n_hidden[layer] == 1 or deadline.passed:
            continue
        fewer = without_unit(network, layer, unit)
        trial = polish(fewer, X, Y, options, deadline, sizes, sizes is not None)
        weights = network.n_parameters - fewer.n_parameters
        as_good = 10.0 * polished.loss + Y.size * float(np.finfo(float).eps) ** 2
        if sizes is not None:
            as_good = polished.loss + variance * (weights + options.spare_sigmas * np.sqrt(2.0 * weights))
        if trial.loss <= as_good:
            return Without(int(row), layer, unit, trial)
    return None


def without_unit(network: DeepNetwork, layer: int, unit: int) -> DeepNetwork:
    """Return the network without one unit."""
    kept = [np.delete(np.arange(k), [unit] if own == layer else []) for own, k in enumerate(network.n_hidden)]
    return network.take(kept)


def _candidates(network: DeepNetwork, X: np.ndarray, rounding: float) -> Iterator[DeepNetwork]:
    """Yield the network without all always-active units, with fewer that stand for them, and without each one, faintest
    first.

    `rounding` is the relative size of what counts as none.
    """
    *below, (W, b), (A, c) = network.layers
    always = np.flatnonzero(_always(network, X))
    if not len(always) or len(b) == 1:
        return
    hidden = network.hidden(X)
    others = np.setdiff1d(np.arange(len(b)), always)
    if len(always) > 1:
        if len(others):
            yield DeepNetwork([*below, (W[others], b[others]), (A[:, others], c)])
        # Together they add M h + m, which as many units as the rank of M can do.
        U, s, Vt = np.linalg.svd(A[:, always] @ W[always], full_matrices=False)
        rank = int(np.count_nonzero(s > rounding * s[0]))
        if rank < len(always):
            V, values = Vt[:rank], (hidden[-2] if network.depth > 1 else X) @ Vt[:rank].T
            sign = np.where(values.mean(axis=0) > 0.0, 1.0, -1.0)
            # Biases that keep the units active at every answer, taken off again above.
            lift = np.maximum(0.0, 0.05 * np.ptp(values, axis=0) - (sign * values).min(axis=0))
            columns = U[:, :rank] * (s[:rank] * sign)
            top = (np.vstack([W[others], sign[:, None] * V]), np.append(b[others], lift))
            out = (np.hstack([A[:, others], columns]), c + A[:, always] @ b[always] - columns @ lift)
            yield DeepNetwork([*below, top, out])
    size = np.abs(A).max(axis=0) * hidden[-1].std(axis=0)
    for j in always[np.argsort(size[always])]:
        rest = np.delete(np.arange(len(b)), j)
        yield DeepNetwork([*below, (W[rest], b[rest]), (A[:, rest], c)])
