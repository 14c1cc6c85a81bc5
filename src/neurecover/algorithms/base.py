"""What a method is: a published algorithm that says what it assumes and turns samples into an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from neurecover.data import Source
from neurecover.models import Network
from neurecover.refine.task import Task
from neurecover.solve import Deadline


@dataclass(frozen=True)
class Estimate:
    """What a method found: a network (None if nothing), and plain sentences with the figures it went by.

    `starts` are further hidden weights (m, D) worth a descent each.
    """

    network: Network | None
    notes: tuple[str, ...] = ()
    starts: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Method:
    """A row of the registry.

    refuse(task) says in one sentence why the method does not apply, or returns None. estimate(source, task, rng,
    deadline) runs it on whitened samples; None for a method that has no estimate of its own and leaves all to the
    finisher. A reserve is called by "auto" when random starts have not sufficed. A method that sets_aside sees
    through gross errors in single outputs; what its network contradicts is then left out of the fit and of the
    certificate.
    """

    name: str
    paper: str
    assumes: str
    refuse: Callable[[Task], str | None] = field(repr=False, default=lambda task: None)
    estimate: Callable[[Source, Task, np.random.Generator, Deadline], Estimate] | None = field(repr=False, default=None)
    reserve: bool = False
    sets_aside: bool = False
