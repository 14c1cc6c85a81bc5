"""Why the search is built as it is: every choice against its alternatives, in problems solved and time for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.layers import teacher_and_inputs
from neurecover.activations import get
from neurecover.data import ArraySource, Whitening
from neurecover.experiment import Experiment, Row, Track
from neurecover.fit import EXACT, FitOptions
from neurecover.fit.descent import descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import Network, as_student
from neurecover.search import SearchOptions, Task
from neurecover.search.network import search_network
from neurecover.search.race import Setting, empty, race, wider
from neurecover.search.units import random_units, with_fresh
from neurecover.simulate import sample, teacher
from neurecover.solve import Deadline

REPEATS = 5  # of a timed step, whose median counts
USUAL = SearchOptions()
NEVER = 10**9  # more weights than any problem here has


@dataclass(frozen=True)
class Problem:
    """A kind of teacher, how many of them with how many samples each, and the seconds there are for one."""

    d: int
    widths: tuple[int, ...]
    p: int
    n: int
    seeds: int
    seconds: float
    bias: bool = True
    kind: str = "gaussian"

    @property
    def label(self) -> str:
        hidden = "-".join(map(str, self.widths))
        return f"d={self.d} k={hidden} p={self.p} n={self.n}{'' if self.bias else ', no bias'}, {self.kind}"

    @property
    def task(self) -> Task:
        depth, k = len(self.widths), self.widths[0] if len(self.widths) == 1 else None
        layers = self.widths if depth > 1 else None
        return Task(get("relu"), self.d, self.p, self.n, self.bias, k, depth=depth, layers=layers)

    def source(self, seed: int) -> ArraySource:
        if len(self.widths) > 1:
            load = -(-self.n // self.task.n_parameters(self.widths))
            deep, X = teacher_and_inputs((self.d, *self.widths, self.p), load, seed)
            return ArraySource(X[: self.n], deep(X[: self.n]))
        (k,) = self.widths
        truth = teacher(self.d, k, self.p, kind=self.kind, bias=0.7 * self.bias, random_state=seed)
        return ArraySource(*sample(truth, self.n, random_state=seed))

    def solve(self, seed: int, options: SearchOptions) -> bool:
        """Tell whether a search ends exact within its time."""
        deadline = Deadline.after(self.seconds)
        found = search_network(self.source(seed), self.task, np.random.default_rng(seed), deadline, options=options)
        return found.exact


ONE = Problem(10, (10,), 1, 600, 8, 10.0)
FEW = Problem(10, (10,), 1, 360, 8, 10.0, kind="sphere")
TEN = Problem(10, (10,), 10, 60, 8, 10.0, bias=False, kind="orthonormal")
TWO = Problem(10, (8, 6), 1, 2_235, 4, 30.0)
MANY = Problem(40, (40,), 1, 8_400, 4, 60.0)
WARM = Problem(100, (100,), 1, 52_000, 1, 150.0)
AS_IT_IS = "as it is"
# What is changed, and the problems that show what it is worth.
SEARCHES: dict[str, tuple[SearchOptions, tuple[Problem, ...]]] = {
    AS_IT_IS: (USUAL, (ONE, FEW, TEN, TWO, MANY)),
    "as many units as the teacher": (replace(USUAL, wider=1.0, wider_outputs=1.0), (ONE, TEN, TWO)),
    "twice as many units": (replace(USUAL, wider=2.0, wider_outputs=2.0), (ONE, TWO)),
    "fresh starts only": (replace(USUAL, patience=0), (ONE, FEW, TWO)),
    "stuck descents given up later": (replace(USUAL, fit=FitOptions(slow=0.95)), (ONE, FEW, MANY)),
    "S in double precision throughout": (replace(USUAL, fit=FitOptions(double=np.inf)), (ONE, TWO)),
    "units taken away only at rounding": (replace(USUAL, nearly=EXACT), (MANY,)),
    "every step solved to 1e-3": (replace(USUAL, fit=FitOptions(loose=1e-3)), (MANY,)),
    "every step solved to 0.1": (replace(USUAL, fit=FitOptions(tight=0.1)), (MANY,)),
    "S formed whatever its size": (replace(USUAL, fit=FitOptions(dense=NEVER)), (MANY,)),
    "planes taken only from good fits": (replace(USUAL, clear=np.inf), (TWO,)),
    "planes taken from every fit": (replace(USUAL, clear=0.0), (TWO,)),
    "layers above never found anew": (replace(USUAL, upper_tries=0), (TWO,)),
    "all samples in the search": (replace(USUAL, equations=1e6), (ONE, TWO)),
}


def _searches(choice: str, problem: Problem, options: SearchOptions) -> Row:
    return _timed(choice, problem.label, problem.seeds, partial(problem.solve, options=options))


def _timed(choice: str, what: str, seeds: int, solve: Callable[[int], bool]) -> Row:
    """Return how many are solved, and the median milliseconds of all."""
    solved, seconds = 0, []
    for seed in range(seeds):
        began = time.perf_counter()
        solved += solve(seed)
        seconds.append(time.perf_counter() - began)
    return _row(choice, what, solved, seeds, round(1e3 * float(np.median(seconds))))


def _mostly_zero(seed: int, options: FitOptions) -> bool:
    """Tell whether a fit from units a twentieth off comes to rounding where inputs are mostly zero."""
    rng = np.random.default_rng(seed)
    X = (rng.random((6_000, 100)) < np.geomspace(0.005, 0.5, 100)) * rng.exponential(1.0, (6_000, 100))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    covariance = X.T @ X / len(X)
    whitening, truth = Whitening.of(np.zeros(100), covariance), teacher(100, 16, 10, random_state=seed)
    W = truth.W @ covariance @ whitening.matrix  # w·x = w_z·z
    near = replace(truth, W=W + 0.05 * rng.standard_normal(W.shape) * np.linalg.norm(W) / W.size**0.5)
    return _fitted(whitening.inputs(X), truth(X), near, options)


def _fitted(X: np.ndarray, Y: np.ndarray, near: Network, options: FitOptions) -> bool:
    samples = Samples.of(ArraySource(X, Y), bias=True)
    return descend(samples, as_student(near, True), options, Deadline.after(60.0)).relative < EXACT


def _first_fit(seed: int, options: SearchOptions) -> bool:
    """Tell whether the first wide fit has all units."""
    samples = Samples.of(WARM.source(seed), bias=True)
    setting = Setting.plain(WARM.task, np.random.default_rng(seed), Deadline.after(WARM.seconds), options)
    wide = wider(samples, WARM.widths, options)
    return next(race(samples, setting, WARM.widths, wide, options.nearly))[1].relative < options.nearly


def _one_step(d: int) -> Row:
    """Return the seconds of one step of a wide student at d = k, by both solvers."""
    problem = Problem(d, (d,), 1, 5 * d * (d + 2), 1, 0.0)
    samples, rng = Samples.of(problem.source(0), bias=True), np.random.default_rng(0)
    setting = Setting.plain(problem.task, rng, Deadline())
    student = with_fresh(empty(samples, setting, 1), (int(1.5 * d),), random_units(rng, 1))
    seconds = []
    for dense in (NEVER, 0):
        point = Point(samples, student, FitOptions(dense=dense, dense_deep=dense))
        seconds.append(_median_seconds(partial(_step, point)))
    what = f"one step at {student.size} hidden weights: formed {seconds[0]:.2f} s, by products {seconds[1]:.2f} s"
    return _row("solver of the step", what, "", "", "")


def _step(point: Point) -> np.ndarray | None:
    return point.system().solve(1e-3)


def _median_seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _row(choice: str, what: str, solved: object, of: object, median: object) -> Row:
    return {"choice": choice, "on": what, "solved": solved, "of": of, "median ms": median}


def _run(track: Track) -> Iterator[Row]:
    with threadpool_limits(1):
        for choice, (options, problems) in track(list(SEARCHES.items()), "searches"):
            for problem in problems:
                yield _searches(choice, problem, options)
        what = "d=100 k=16 p=10 n=6000, inputs mostly zero"
        for choice, room in track((("units' blocks", FitOptions().block_bytes), ("no such blocks", 0)), "blocks"):
            yield _timed(choice, what, 4, partial(_mostly_zero, options=FitOptions(block_bytes=room)))
        for choice, beyond in track((("warmed up by Adam", 0), ("not warmed up", NEVER)), "warm-up"):
            yield _timed(choice, WARM.label, 1, partial(_first_fit, options=replace(USUAL, warm=beyond)))
        for d in track((20, 30, 40, 50), "one step"):
            yield _one_step(d)


EXPERIMENTS = (Experiment("choices", "What the finisher's choices are worth", _run),)
