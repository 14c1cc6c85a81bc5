"""The search from whitened samples to a network, at given widths or not, and the fit to more samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import ArraySource, Source
from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.networks import as_student, fitted_network
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, Network
from neurecover.models.signs import flips_beside_steady
from neurecover.models.wide import WideStudent
from neurecover.search import gates
from neurecover.search.candidates import Candidate
from neurecover.search.covariance import Turning
from neurecover.search.find import Runs, search, settled_on
from neurecover.search.gates import engine
from neurecover.search.options import SearchOptions
from neurecover.search.race import Setting
from neurecover.search.rivals import seek_rivals
from neurecover.search.task import Task
from neurecover.search.units import Draw
from neurecover.search.widths import find_network, slim
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]


@dataclass(frozen=True)
class Found:
    """The network at the end, Σr² and Σr²/Σ(y − ȳ)² on the samples it was fitted to last, and how it came about.

    Below `level` nothing but rounding is left. sign_choices counts the sign assignments that fit equally well, or as
    well as noise can tell: 1 when the signs are determined, 0 when the search for them was too large or none fits and
    an affine part had to stay, as pairs of units. `descents` counts wide fits, `agreements` the candidates that ended
    at the optimum of the best. last_drop is what the last unit to be dropped was worth, in units of its parameters'
    noise, and `unrivalled` whether noisy samples tell it from other optima. `notes` are sentences.
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
    draw: Draw | None = None,
    options: SearchOptions | None = None,
) -> Found:
    """Return the best network found on whitened samples before the deadline; at least one fit is always made.

    `progress` hears of stages and Σr²/Σy². `starts` are hidden weights (m, d + 1) of one layer, biases last, or (m, d)
    without them; `draw` gives the units that are not among them.
    """
    options = options or SearchOptions()
    samples = Samples.of(source, task.bias)
    share = samples.total / max(samples.squares, 1e-300)

    def tell(stage: str, relative_rss: float) -> None:
        progress(stage, share * relative_rss)

    bias_first = (biases_first(units) if task.bias else units for units in starts)
    setting = replace(
        Setting.plain(task, rng, deadline, options),
        starts=iter(bias_first),
        tell=tell,
        gates=GateHooks(source, task),
    )
    if draw is not None:
        setting = replace(setting, draw=draw)
    notes: tuple[str, ...] = ()
    if task.widths is None:
        runs, note = find_network(samples, setting, task.depth)
        notes = (note,) if task.depth > 1 else ()
    else:
        runs = search(samples, setting, task.widths)
    return _found(seek_rivals(runs, setting), task, notes)


class GateHooks:
    """Where rows are rare: networks behind wide students with units of few rows, and signs beside units always on."""

    def __init__(self, source: Source, task: Task) -> None:
        self.source, self.task = source, task

    def complete(self, fit: Fit, deadline: Deadline) -> Network | DeepNetwork | None:
        """Return the network behind a wide student that lacks nothing but units of few rows, if it is found."""
        if not engine.rectified(self.task) or fit.point.samples.root is not None:
            return None
        F, Y = fit.point.samples.F, fit.point.samples.Y
        source = ArraySource(F[:, 1:], Y)
        found = gates.complete(source, self.task.on(len(F)), engine.one_layer(fit.student), fit.relative, deadline)
        return None if found is None else found.network

    def beside_always_on(self, fit: Fit) -> Iterator[WideStudent]:
        """Yield networks in place of an exact fit whose signs no equations explain, a unit being off in few rows."""
        if not engine.rectified(self.task) or fit.point.samples.root is not None:
            return
        F, Y = fit.point.samples.F, fit.point.samples.Y
        student = engine.one_layer(fit.student)
        k, d = student.n_hidden, student.n_inputs
        for V in gates.candidates(ArraySource(F[:, 1:], Y), student):
            readout = np.delete(student.readout, np.s_[k : k + d], axis=0)
            yield engine.wide(replace(student, V=V, readout=readout, affine=False))
        yield from self._with_one_on(fit)

    def _with_one_on(self, fit: Fit) -> Iterator[WideStudent]:
        """Yield the network in which one unit is on for every sample, and no other is superfluous, if there is one."""
        samples = fit.point.samples
        few = slim(fit, Setting.plain(replace(self.task, n_hidden=None), np.random.default_rng(0), fit.point.deadline))
        student = few.student
        if student.widths[0] >= (sum(self.task.widths) if self.task.widths else np.inf) or not student.skips:
            return
        turning = Turning.of(student, 0, affine=False)
        linear = turning.target.reshape(len(turning.rows), -1)
        found = flips_beside_steady(turning.A, turning.V[:, turning.kept :], linear, turning.slope, 1e-6)
        if found is None:
            return
        flips, a, w = found
        rows, V = turning.turned(flips)
        unit = np.append(1.0 - float((samples.F[:, 1:] @ -w).min()), -w)
        theta = np.vstack([rows.T, a])
        yield replace(student, V=(np.vstack([V, unit]),), theta=theta, skips=False)


def biases_first(units: np.ndarray) -> np.ndarray:
    """Return units (m, d + 1) with the bias moved from the last column to the first."""
    return np.hstack([units[:, -1:], units[:, :-1]])


def biases_last(units: np.ndarray) -> np.ndarray:
    """Return units (m, d + 1) with the bias moved from the first column to the last."""
    return np.hstack([units[:, 1:], units[:, :1]])


def _found(runs: Runs, task: Task, notes: tuple[str, ...]) -> Found:
    fit = runs.fit
    return Found(
        network=fitted_network(fit.point),
        rss=fit.rss,
        relative_rss=fit.relative,
        level=fit.point.samples.level(task.level),
        sign_choices=runs.best.sign_choices,
        descents=runs.n_fits,
        agreements=runs.agreements,
        converged=fit.converged,
        last_drop=runs.last_drop,
        unrivalled=runs.unrivalled,
        notes=notes,
    )


def network_of_fit(fit: Fit, task: Task, deadline: Deadline) -> Found:
    """Return the narrowest network behind a fit of one layer that is exact."""
    setting = Setting.plain(task, np.random.default_rng(0), deadline)
    few = slim(fit, setting)
    settled = settled_on(fit.point.samples, fit.point.samples, Candidate(few, fit, 0, 1, few.point.share), setting)
    exact = settled.fit.relative < fit.point.samples.level(task.level)
    return _found(Runs(settled, 1, 1, 0, exact), task, ())


def fit_network(
    source: Source,
    network: Network | DeepNetwork,
    bias: bool,
    deadline: Deadline,
    options: SearchOptions | None = None,
) -> Fit:
    """Return the fit of all weights of a network to samples in memory, to the end."""
    options = options or SearchOptions()
    return descend(Samples.of(source, bias), as_student(network, bias), options.fit, deadline, slow=PATIENT)


def fitted(found: Found, fit: Fit) -> Found:
    """Return what was found with the network of another fit."""
    network = fitted_network(fit.point)
    return replace(found, network=network, rss=fit.rss, relative_rss=fit.relative, converged=fit.converged)


def polish(source: Source, found: Found, task: Task, deadline: Deadline, options: SearchOptions | None = None) -> Found:
    """Return the same network fitted to these samples."""
    fit = fit_network(source, found.network, task.bias, deadline, options)
    return replace(fitted(found, fit), level=fit.point.samples.level(task.level))
