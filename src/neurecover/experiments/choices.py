"""Why the finisher is built as it is: every choice against its alternatives, in descents solved and time for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from neurecover.activations import get
from neurecover.data import ArraySource, Whitening, reduce, side_by_side
from neurecover.experiments.experiment import Experiment, Row, Track
from neurecover.refine import descent, search, unit_blocks
from neurecover.refine.descent import EXACT, Descent
from neurecover.refine.finisher import finish
from neurecover.refine.held import Held, readout_sums
from neurecover.refine.search import CHUNK, SLOW
from neurecover.refine.settling import as_student
from neurecover.refine.single import SingleProducts, SingleSystem
from neurecover.refine.starts import random_units
from neurecover.refine.steps import dense_system
from neurecover.refine.task import Task
from neurecover.simulate import sample, teacher
from neurecover.solve import Deadline
from neurecover.solve.conjugate import Operator
from neurecover.statistics import GaussNewtonSums

SEEDS, STARTS, PATIENT_SECONDS, REPEATS = 8, 5, 10.0, 5
MANY, MANY_SEEDS, MANY_SECONDS = 40, 4, 60.0
WARM_SAMPLES, WARM_SECONDS = 52_000, 150.0


@dataclass(frozen=True)
class Setting:
    """A problem (d = k = 10) and a kind of student on it."""

    p: int
    n: int
    bias: bool
    width: int
    affine: bool
    projected: bool = True
    kind: str = "gaussian"

    def source(self, seed: int) -> ArraySource:
        kind = self.kind if self.p == 1 else "orthonormal"
        truth = teacher(10, 10, self.p, kind=kind, bias=0.7 * self.bias, random_state=seed)
        return ArraySource(*sample(truth, self.n, random_state=seed))

    @property
    def task(self) -> Task:
        return Task(get("relu"), 10, self.p, self.n, self.bias, 10)


ONE, TEN, FEW = Setting(1, 600, True, 16, True), Setting(10, 100, False, 13, False), Setting(10, 60, False, 13, False)
SETTINGS = {
    "the finisher's choice": (ONE, TEN, FEW),
    "readout moved by the joint step": tuple(replace(s, projected=False) for s in (ONE, TEN, FEW)),
    "as many units as the teacher": tuple(replace(s, width=10) for s in (ONE, TEN, FEW)),
    "twice as many units": tuple(replace(s, width=20) for s in (ONE, TEN)),
    "the other choice of affine part": tuple(replace(s, affine=not s.affine) for s in (ONE, TEN, FEW)),
}


def _descents(setting: Setting) -> tuple[int, float]:
    """How many of SEEDS·STARTS descents from random starts are exact, and the seconds for all."""
    solved, began = 0, time.perf_counter()
    for seed in range(SEEDS):
        source, rng = setting.source(seed), np.random.default_rng(seed)
        for _ in range(STARTS):
            units = random_units(rng, setting.width, 10, setting.bias)
            run = Descent(source, setting.task.student(units, setting.affine), projected=setting.projected)
            before = run.rss
            while run.running and run.iterations < 200:
                run.advance(CHUNK)
                if run.iterations > 2 * CHUNK and run.rss > SLOW * before:
                    break
                before = run.rss
            solved += run.relative_rss < 1e-20
    return solved, time.perf_counter() - began


def _hops(patience: int) -> tuple[int, float]:
    """Seeds solved within PATIENT_SECONDS each at three samples per parameter, and the median seconds."""
    setting = Setting(1, 360, True, 15, True, kind="sphere")
    solved, seconds = 0, []
    usual, search.PATIENCE = search.PATIENCE, patience
    try:
        for seed in range(SEEDS):
            began = time.perf_counter()
            deadline = Deadline.after(PATIENT_SECONDS)
            runs = search.hops(setting.source(seed), setting.task, 15, np.random.default_rng(seed), deadline, iter(()))
            found = False
            while not (found or deadline.passed):
                found = next(runs).relative_rss < 1e-20
            solved += found
            seconds.append(time.perf_counter() - began)
    finally:
        search.PATIENCE = usual
    return solved, float(np.median(seconds))


class _Step:
    """One step at a random student of 1.5 d units with one output, n = 5 (d + 2) d: the median seconds of REPEATS."""

    def __init__(self, d: int) -> None:
        truth = teacher(d, d, kind="gaussian", random_state=0)
        self.source = ArraySource(*sample(truth, 5 * d * (d + 2), random_state=0))
        task = Task(get("relu"), d, 1, 5 * d * (d + 2), True, d)
        units = random_units(np.random.default_rng(0), int(1.5 * d), d, True)
        self.student = Descent(self.source, task.student(units, True)).student

    def dense(self) -> float:
        return _median_seconds(lambda: dense_system(reduce(self.source, GaussNewtonSums(self.student))).solve(1e-3))

    def products(self) -> float:
        samples = Held(self.source, bias=True)
        hh, tolerance = readout_sums(samples, self.student)["hh"], descent.LOOSE
        return _median_seconds(lambda: SingleSystem(samples, self.student, hh, tolerance, Deadline()).solve(1e-3))


def _median_seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _cores(d: int) -> str:
    """A dense step with the threads given to BLAS, with one thread, and with passes shared among the threads."""
    step = _Step(d)
    blas = step.dense()
    with threadpool_limits(1, user_api="blas"):
        one = step.dense()
    with side_by_side():
        shared = step.dense()
    return f"one step at d=k={d}: BLAS's threads {blas:.3f} s, one thread {one:.3f} s, shared passes {shared:.3f} s"


@contextmanager
def _instead(owner: object, name: str, value: object) -> Iterator[None]:
    """Within it the attribute has that value."""
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)


def _by_size(products: SingleProducts, damping: float) -> Operator:
    """The diagonal of S + λD in place of the Kronecker product."""
    inverse = (1.0 / ((1.0 + damping) * products.diagonal.ravel())).astype(np.float32)
    return lambda v: inverse * v


# What takes the place of one part of the engine for many weights.
UNDONE: dict[str, tuple[object, str, object] | None] = {
    "the engine for many weights": None,
    "every step solved to 1e-3": (descent, "LOOSE", descent.TIGHT),
    "every step solved to 0.1": (descent, "TIGHT", descent.LOOSE),
    "preconditioned by the diagonal": (SingleProducts, "preconditioner", _by_size),
    "double precision, gates computed anew": (descent, "hold", lambda source, bias: source),
}


def _many_weights(undone: tuple[object, str, object] | None) -> tuple[int, float]:
    """Descents at d = k = MANY that come to 1e-10 of Σ y² within their time, and the median seconds of all."""
    solved, seconds = 0, []
    with nullcontext() if undone is None else _instead(*undone):
        for seed in range(MANY_SEEDS):
            truth = teacher(MANY, MANY, kind="gaussian", random_state=seed)
            source = ArraySource(*sample(truth, 5 * MANY * (MANY + 2), random_state=seed))
            task = Task(get("relu"), MANY, 1, 5 * MANY * (MANY + 2), True, MANY)
            units = random_units(np.random.default_rng(seed), int(1.5 * MANY), MANY, True)
            began = time.perf_counter()
            run = Descent(source, task.student(units, True), deadline=Deadline.after(MANY_SECONDS))
            while run.running and run.relative_rss > 1e-10 and not run.deadline.passed:
                run.advance(CHUNK)
            solved += run.relative_rss <= 1e-10
            seconds.append(time.perf_counter() - began)
    return solved, float(np.median(seconds))


# The same for the search around it.
UNDONE_IN_THE_SEARCH: dict[str, tuple[tuple[object, str, object], ...]] = {
    "the search for many weights": (),
    "units taken away only at rounding": ((search, "NEARLY", EXACT),),
    "stuck descents given up later": ((search, "LARGE_CHUNK", 20), (search, "LARGE_SLOW", 0.8)),
}


def _searched(undone: tuple[tuple[object, str, object], ...]) -> tuple[int, float]:
    """Searches at d = k = MANY that end exact within their time, and the median seconds of all."""
    solved, seconds = 0, []
    with ExitStack() as stack:
        for change in undone:
            stack.enter_context(_instead(*change))
        for seed in range(MANY_SEEDS):
            truth, n = teacher(MANY, MANY, kind="gaussian", bias=0.7, random_state=seed), 5 * MANY * (MANY + 2)
            source, task = ArraySource(*sample(truth, n, random_state=seed)), Task(get("relu"), MANY, 1, n, True, MANY)
            began = time.perf_counter()
            solved += finish(source, task, np.random.default_rng(seed), Deadline.after(MANY_SECONDS)).exact
            seconds.append(time.perf_counter() - began)
    return solved, float(np.median(seconds))


def _ended(weights: int) -> tuple[int, float]:
    """Fits brought to rounding where a unit is on in two samples more than it has weights, and the mean seconds.

    Dense steps take over up to so many weights.
    """
    solved, seconds = 0, []
    with _instead(search, "DENSE_END", weights):
        for seed in range(SEEDS):
            truth = teacher(30, 22, 10, random_state=seed)
            X = np.random.default_rng(seed).standard_normal((1_500, 30))
            z = np.sort(X @ truth.W[0])
            truth = replace(truth, b=np.append(-0.5 * (z[-33] + z[-34]), truth.b[1:]))
            near = replace(truth, W=truth.W + 1e-4 * np.random.default_rng(seed).standard_normal(truth.W.shape))
            began = time.perf_counter()
            end = search.descend(ArraySource(X, truth(X)), as_student(near, True), Deadline(), patient=True)
            solved += end.relative_rss < EXACT
            seconds.append(time.perf_counter() - began)
    return solved, float(np.mean(seconds))


def _mostly_zero(room: int) -> tuple[int, float]:
    """Fits from units a twentieth off brought to rounding within their time, and the median seconds of all.

    Blocks of the units take over from the Kronecker product if there is `room` for them, in bytes.
    """
    solved, seconds = 0, []
    with _instead(unit_blocks, "MOST_BYTES", room):
        for seed in range(MANY_SEEDS):
            rng = np.random.default_rng(seed)
            X = (rng.random((6_000, 100)) < np.geomspace(0.005, 0.5, 100)) * rng.exponential(1.0, (6_000, 100))
            X = (X - X.mean(axis=0)) / X.std(axis=0)
            covariance = X.T @ X / len(X)
            whitening, truth = Whitening.of(np.zeros(100), covariance), teacher(100, 16, 10, random_state=seed)
            W = truth.W @ covariance @ whitening.matrix  # w·x = w_z·z
            near = replace(truth, W=W + 0.05 * rng.standard_normal(W.shape) * np.linalg.norm(W) / W.size**0.5)
            began, deadline = time.perf_counter(), Deadline.after(MANY_SECONDS)
            end = Descent(
                ArraySource(whitening.inputs(X), truth(X)), as_student(near, True), deadline=deadline
            ).advance(100)
            solved += end.relative_rss < EXACT
            seconds.append(time.perf_counter() - began)
    return solved, float(np.median(seconds))


def _warmed_up(beyond: float) -> tuple[int, float]:
    """The first descent at d = k = 100, warmed up beyond so many hidden weights: is it exact, and its seconds."""
    truth = teacher(100, 100, random_state=0)
    source = ArraySource(*sample(truth, WARM_SAMPLES, random_state=0))
    task = Task(get("relu"), 100, 1, WARM_SAMPLES, True, 100)
    deadline = Deadline.after(WARM_SECONDS)
    with _instead(search, "WARM", beyond):
        began = time.perf_counter()
        width = task.width(affine=True)
        found = next(search.hops(source, task, width, np.random.default_rng(0), deadline, iter(())))
    return int(found.relative_rss < search.good_enough(task, width)), time.perf_counter() - began


def _run(track: Track) -> list[Row]:
    rows: list[Row] = []
    with threadpool_limits(1):
        for choice, settings in track(list(SETTINGS.items()), "kinds of student"):
            for setting in settings:
                solved, seconds = _descents(setting)
                what = (
                    f"d=k=10 p={setting.p} n={setting.n} width {setting.width}{' + affine' if setting.affine else ''}"
                )
                each = round(1e3 * seconds / solved) if solved else ""
                rows.append(
                    {"choice": choice, "on": what, "solved": solved, "of": SEEDS * STARTS, "ms per solution": each}
                )
        for patience in track((search.PATIENCE, 0), "hops"):
            solved, median = _hops(patience)
            choice = f"{patience} hops before a fresh start" if patience else "fresh starts only"
            row = {
                "choice": choice,
                "on": "d=k=10 p=1 n=360 width 15 + affine, unit rows",
                "solved": solved,
                "of": SEEDS,
            }
            rows.append(row | {"ms per solution": round(1e3 * median)})
        for choice, undone in track(list(UNDONE.items()), "many weights"):
            solved, median = _many_weights(undone)
            what = f"d=k={MANY} p=1 n={5 * MANY * (MANY + 2)} width {int(1.5 * MANY)} + affine"
            row = {"choice": choice, "on": what, "solved": solved, "of": MANY_SEEDS}
            rows.append(row | {"ms per solution": round(1e3 * median)})
        for choice, changes in track(list(UNDONE_IN_THE_SEARCH.items()), "search"):
            solved, median = _searched(changes)
            row = {"choice": choice, "on": f"d=k={MANY} p=1 n={5 * MANY * (MANY + 2)}", "solved": solved}
            rows.append(row | {"of": MANY_SEEDS, "ms per solution": round(1e3 * median)})
        for choice, weights in track(
            (("slow ends by dense steps", search.DENSE_END), ("slow ends by conjugate gradients", 0)), "ends"
        ):
            solved, mean = _ended(weights)
            row = {"choice": choice, "on": "d=30 k=22 p=10 n=1500, a unit on in 33 samples", "solved": solved}
            rows.append(row | {"of": SEEDS, "ms per solution": round(1e3 * mean)})
        for choice, room in track((("units' blocks", unit_blocks.MOST_BYTES), ("no such blocks", 0)), "blocks"):
            solved, median = _mostly_zero(room)
            row = {"choice": choice, "on": "d=100 k=16 p=10 n=6000, inputs mostly zero", "solved": solved}
            rows.append(row | {"of": MANY_SEEDS, "ms per solution": round(1e3 * median)})
        for choice, beyond in track((("warmed up by Adam", 0.0), ("not warmed up", np.inf)), "warm-up"):
            solved, taken = _warmed_up(beyond)
            row = {"choice": choice, "on": f"d=k=100 p=1 n={WARM_SAMPLES} + affine", "solved": solved, "of": 1}
            rows.append(row | {"ms per solution": round(1e3 * taken)})
    rows += [_remark("use of the cores", _cores(d)) for d in track((20, 30), "use of the cores")]
    for d in track((20, 30, 40, 50), "dense step and conjugate gradients"):
        step = _Step(d)
        with side_by_side():
            dense, products = step.dense(), step.products()
        weights = step.student.V.size
        what = f"one step at {weights} hidden weights: dense {dense:.2f} s, conjugate gradients {products:.2f} s"
        rows.append(_remark("solver of the step", what))
    return rows


def _remark(choice: str, what: str) -> Row:
    return {"choice": choice, "on": what, "solved": "", "of": "", "ms per solution": ""}


CHOICES = Experiment("choices", "What the finisher's choices are worth", _run)
