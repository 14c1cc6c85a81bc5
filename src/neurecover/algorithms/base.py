"""What an algorithm is: a published procedure that says what it assumes and turns samples into an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from neurecover.certificate import Check
from neurecover.data import Prepared, Source
from neurecover.models import Model
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.solve import Deadline

BEST, PAPER = "best", "paper"
NEVER = Deadline()
Options = TypeVar("Options")


@dataclass(frozen=True)
class Call:
    """The arguments of an algorithm: samples with whitened inputs, the task, random numbers, the deadline, form and
    options.

    Inputs have mean zero and unit covariance, or without biases unit second moments. `form` names the form of the
    algorithm, and `options` are those of the form, None for the defaults.
    """

    source: Source
    task: Task
    rng: np.random.Generator
    deadline: Deadline = NEVER
    form: str = BEST
    options: object = None

    def options_as(self, kind: type[Options]) -> Options:
        """Return the options if they are of this class, else its defaults."""
        return self.options if isinstance(self.options, kind) else kind()


@dataclass(frozen=True)
class Algorithm:
    """A row of the registry.

    run(call) returns the estimate, or raises `UnsolvableError`; run is None for the method that only refines.
    refuse(task) says in one sentence why the algorithm does not apply, or returns None. `forms` are the ways it can
    run: "best" is ours, "paper" as printed. `options` maps a form to the class of its options, if it has any. Forms in
    `raw` receive the samples as given, neither whitened nor without repeated rows. `finds` is what the estimate holds:
    a "network", or the first layer of a "composite".

    prepare(source) changes the source before anything is read, for instance so that an oracle is queried in pairs.
    clean(samples, estimate) returns the samples without the gross errors that the estimate shows, and checks that say
    so. diagnose(network, source, rng) tests the algorithm's assumptions at the end; its checks decide no verdict. A
    `reserve` is run by "auto" when random starts have failed. `weighs` says that weights of samples can be used,
    because all its statistics are averages.
    """

    name: str
    paper: str
    assumes: str
    refuse: Callable[[Task], str | None] = field(repr=False, default=lambda task: None)
    run: Callable[[Call], Estimate] | None = field(repr=False, default=None)
    forms: tuple[str, ...] = (BEST,)
    raw: tuple[str, ...] = ()
    options: Mapping[str, type] = field(repr=False, default_factory=dict)
    finds: str = "network"
    prepare: Callable[[Source], Source] = field(repr=False, default=lambda source: source)
    clean: Callable[[Prepared, Estimate], tuple[Prepared, tuple[Check, ...]]] | None = field(repr=False, default=None)
    diagnose: Callable[[Model, Source, np.random.Generator], tuple[Check, ...]] = field(
        repr=False, default=lambda network, source, rng: ()
    )
    reserve: bool = False
    weighs: bool = False
