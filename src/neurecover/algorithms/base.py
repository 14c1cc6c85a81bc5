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
    """What an algorithm is run on: samples whose inputs have zero mean and unit covariance (with biases; else unit
    second moments), what is sought in them, random numbers, the time there is, which form of it is asked for, and the
    options of that form, None for the defaults."""

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

    run(call) gives the estimate, or raises `UnsolvableError`; None for an algorithm that leaves all to the finisher.
    refuse(task) says in one sentence why the algorithm does not apply, or returns None. `forms` are the ways it can
    run: "best" is ours, "paper" as printed; `options` maps a form to the class of its options, if it has any. The
    `raw` forms get the samples as they are given, neither whitened nor without repeated rows. `finds` is what its
    estimate holds: a "network", or the first layer of a "composite".

    prepare(source) is what the samples go through before anything is read, such as asking an oracle in pairs.
    clean(samples, estimate) are the samples without what the estimate shows to be gross errors, with checks that say
    so. diagnose(network, source, rng) tests the algorithm's assumptions at the end; its checks decide no verdict. A
    reserve is called by "auto" when random starts have not sufficed. `weighs` says that its statistics are averages,
    which weights of the samples have a place in.
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
