"""All that this folder needs of the engine that searches and fits; nothing else here knows of it.

The engine calls back for units of few samples and for signs, so it is loaded when it is first used. A `Student` of one
layer has its biases last and its affine part behind the units; that of the engine has them first.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from neurecover.data import Source
from neurecover.fit.descent import descend
from neurecover.fit.networks import one_layer, wide
from neurecover.fit.options import EXACT, FitOptions
from neurecover.fit.samples import Samples
from neurecover.models import Network, Student
from neurecover.models.signs import find_subsets
from neurecover.search.task import Task
from neurecover.solve import Deadline

if TYPE_CHECKING:
    from neurecover.search.network import Found
else:
    Found = Any

__all__ = [
    "EXACT",
    "Found",
    "Task",
    "exact_student",
    "find_subsets",
    "fit_steps",
    "keep_units",
    "network_behind",
    "one_layer",
    "polish",
    "rectified",
    "solve",
    "wide",
]


def rectified(task: Task) -> bool:
    """Whether one layer's units have a bend and nothing else, and biases to place it."""
    act = task.activation
    return task.depth == 1 and not task.affine and task.bias and act.homogeneity == 1.0 and act.odd_slope == 1.0


def solve(source: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> Found:
    """Search for the network of a task on whitened samples."""
    from neurecover.search.network import search_network

    return search_network(source, task, rng, deadline)


def polish(source: Source, found: Found, network: Network, deadline: Deadline) -> Found | None:
    """Fit a network to samples, to the end; return it in the place of the one that was found, or None if not exact."""
    from neurecover.search.network import fit_network, fitted

    fit = fitted(found, fit_network(source, network, True, deadline))
    return fit if fit.exact else None


def fit_steps(source: Source, student: Student, steps: int, deadline: Deadline) -> tuple[Student, float]:
    """Take some steps from a student; return it with Σr²/Σy²."""
    fit = descend(Samples.of(source, student.bias), wide(student), FitOptions(), deadline, steps=steps)
    return one_layer(fit.student), fit.relative


def keep_units(student: Student, units: np.ndarray) -> Student:
    """Return the student with these units alone; its affine part stays."""
    rows = np.concatenate([units, np.arange(student.n_hidden, len(student.readout))])
    return replace(student, V=student.V[units], readout=student.readout[rows])


def network_behind(source: Source, task: Task, student: Student, deadline: Deadline) -> Found | None:
    """Return the narrowest network equal to a student that fits exactly; None where its signs are not determined."""
    from neurecover.search.network import network_of_fit

    free = replace(task, n_hidden=None, n_samples=source.count())
    fit = descend(Samples.of(source, student.bias), wide(student), FitOptions(), deadline)
    found = network_of_fit(fit, free, deadline)
    return found if found.exact and found.sign_choices else None


def exact_student(
    source: Source, task: Task, rng: np.random.Generator, deadline: Deadline, descents: int
) -> Student | None:
    """Search for a student that fits exactly, perhaps with an affine part, and has no superfluous units."""
    from neurecover.search.race import Setting, race, wider
    from neurecover.search.widths import slim

    samples, setting = Samples.of(source, task.bias), Setting.plain(task, rng, deadline)
    widths = task.widths or (6,)
    wide_fits = race(samples, setting, widths, wider(samples, widths, setting.options), EXACT)
    for _, fit in islice(wide_fits, descents):
        if fit.relative < samples.level():
            return one_layer(slim(fit, setting).student)
        if deadline.passed:
            break
    return None
