"""The search from whitened samples to a network, at given widths or not, and the fit to more samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import Source
from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, Network, as_network, as_student, away_from_samples
from neurecover.search import SearchOptions, Task
from neurecover.search.find import search
from neurecover.search.race import Setting
from neurecover.search.rivals import seek_rivals
from neurecover.search.widths import find_network
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]


@dataclass(frozen=True)
class Found:
    """The network found, its Σr² and Σr²/Σ(y − ȳ)² on the samples of its last fit, and the history of the search.

    If the relative Σr² is below `level`, only rounding is left. sign_choices counts the sign assignments that fit
    equally well, or as well as noise can tell: 1 if the signs are determined, 0 if the search for them was too large or
    none fits, so that an affine part remains as pairs of units. `descents` counts wide fits, `agreements` the
    candidates that ended at the best optimum. last_drop is the worth of the last unit that was dropped, relative to the
    noise of its parameters. `unrivalled` says whether noisy samples distinguish the optimum from others, whose units
    are in `nearby` (see `Runs`). `notes` are sentences.
    """

    network: Network | DeepNetwork
    rss: float
    relative_rss: float
    level: float
    sign_choices: int
    descents: int
    agreements: int
    converged: bool
    last_drop: float = 0.0
    unrivalled: bool = True
    nearby: tuple[np.ndarray, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        return self.relative_rss < self.level


def search_network(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterable[np.ndarray] = (),
    progress: Progress = lambda stage, relative_rss: None,
    options: SearchOptions | None = None,
) -> Found:
    """Return the best network found on whitened samples before the deadline; at least one fit is always made.

    `progress` hears of stages and Σr²/Σy². `starts` are hidden weights (m, d + 1) of one layer, biases last, or (m, d)
    without them.
    """
    options = options or SearchOptions()
    samples = Samples.of(source, task.bias)
    share = samples.total / max(samples.squares, 1e-300)

    def tell(stage: str, relative_rss: float) -> None:
        progress(stage, share * relative_rss)

    plain = Setting.plain(task, rng, deadline, options)
    bias_first = (np.roll(units, int(task.bias), axis=1) for units in starts)
    told = task.n_hidden is not None and task.n_outputs >= task.n_hidden
    setting = replace(plain, starts=bias_first, tell=tell, whole=samples, told=told)
    notes: tuple[str, ...] = ()
    if task.widths is None:
        runs, note = find_network(samples, setting, task.depth)
        notes = (note,) if task.depth > 1 else ()
    else:
        runs = search(samples, setting, task.widths)
    runs = seek_rivals(runs, setting)
    return Found(
        fitted_network(runs.fit.point),
        runs.fit.rss,
        runs.fit.relative,
        samples.level(task.level),
        sign_choices=runs.best.sign_choices,
        descents=runs.n_fits,
        agreements=runs.agreements,
        converged=runs.fit.converged,
        last_drop=runs.last_drop,
        unrivalled=runs.unrivalled,
        nearby=runs.nearby,
        notes=notes,
    )


def fitted_network(point: Point) -> Network | DeepNetwork:
    """Return the network of a fit, with the kinks of units that no sample switches moved away from the samples."""
    network = as_network(point.student)
    if not point.student.bias:
        return network
    F = point.samples.F
    Z = np.hstack([np.zeros((len(F), 0)), *network.preactivations(F[:, 1:])])
    return away_from_samples(network, Z.min(axis=0, initial=np.inf), Z.max(axis=0, initial=-np.inf))


def fit_network(
    source: Source,
    network: Network | DeepNetwork,
    bias: bool,
    deadline: Deadline,
    options: SearchOptions | None = None,
) -> Fit:
    """Fit all weights of a network to samples in memory, until convergence, and return the fit."""
    options = options or SearchOptions()
    return descend(Samples.of(source, bias), as_student(network, bias), options.fit, deadline, slow=PATIENT)


def fitted(found: Found, fit: Fit) -> Found:
    """Return the result of a search with the network of another fit."""
    network = fitted_network(fit.point)
    return replace(found, network=network, rss=fit.rss, relative_rss=fit.relative, converged=fit.converged)


def polish(source: Source, found: Found, task: Task, deadline: Deadline, options: SearchOptions | None = None) -> Found:
    """Return the same network fitted to these samples."""
    fit = fit_network(source, found.network, task.bias, deadline, options)
    return replace(fitted(found, fit), level=fit.point.samples.level(task.level))
