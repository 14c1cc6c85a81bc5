"""The test of "no hinge", the number of breaks, and truths that are not broken lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.hinges.by_r import COUNT, ask_r
from benchmarks.hinges.laws import LAWS, draw_noise, law
from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.hinges.checks.further import Rows, further_hinges
from neurecover.hinges.points import Points
from neurecover.hinges.segmented import segment

SETS = 200
SIZES = 500
UNSEEN = 47_000  # the number of breaks was looked at on the usual seeds before its prior was settled
COUNTS = ((1, 1.0, 50), (2, 1.0, 50), (3, 0.3, 50), (2, 1.0, 200), (3, 1.0, 200), (0, 1.0, 200))
# Slope changes at which R's davies.test rejects about 0.7, 0.7, 0.2, 0.3 and 0.3 of the sets.
POWERS = {
    "middle": (50, [5.0], [0.62]),
    "end": (50, [8.0], [1.35]),
    "two opposite, n = 50": (50, [3.0, 7.0], [0.95, -0.95]),
    "two opposite, n = 200": (200, [3.0, 7.0], [0.47, -0.47]),
    "three": (200, [2.5, 5.0, 7.5], [0.8, -0.8, 0.8]),
}


def _tests(track: Track) -> Iterator[Row]:
    sizes = [("plain", 21), ("plain", 50), ("plain", 200), ("unequal", 200), ("t3", 200), ("AR(1) 0.5", 200)]
    for kind, n in sizes:
        # Of few rows the test is a little conservative, which 500 sets do not tell from chance.
        yield _rejections(f"straight line, {kind}, n = {n}", kind, n, [], [], SIZES if n > 21 else 4 * SIZES, track)
    for name, (n, breaks, changes) in POWERS.items():
        yield _rejections(name, "plain", n, breaks, changes, SETS, track)


def _rejections(
    name: str, kind: str, n: int, breaks: list[float], changes: list[float], sets: int, track: Track
) -> Row:
    rejected = warned = 0
    for seed in track(fresh_seeds(sets), name):
        rng = np.random.default_rng([seed, n])
        x = np.sort(rng.uniform(0.0, 10.0, n))
        y = law(x, breaks, changes) + draw_noise(kind, x, rng)
        points = Points.of(x, y)
        rejects = further_hinges(points, Rows.of(points, x, y, None), np.zeros(0), rng).p_value <= 0.05
        rejected += rejects
        if kind.startswith("AR"):  # the p-value is said with a warning, if neighbours go together beside the line
            warned += segment(x, y, None, 0, "squared", "posterior", rng).serial.p_value < 0.01
    return {"data": name, "sets": sets, "rejected": round(rejected / sets, 3),
            "warned": round(warned / sets, 3) if kind.startswith("AR") else ""}  # fmt: skip


def _numbers(track: Track) -> Iterator[Callable[[], Row]]:
    for K, noise, n, kind in (*((*cell, "plain") for cell in COUNTS), (0, 1.0, 200, "unequal")):
        yield partial(count_breaks, K, noise, n, kind, track)


def count_breaks(K: int, noise: float, n: int, kind: str, track: Track) -> Row:
    """Return how many breaks are found in sets with K of them, and how often R's selgmented is right."""
    counts, sets = np.zeros(9, dtype=int), []
    for seed in track(fresh_seeds(SETS // 2, UNSEEN), f"{K} breaks, {kind}"):
        rng = np.random.default_rng([seed, K, n, 2])
        x = rng.uniform(0.0, 10.0, n)
        sets.append((x, law(x, *LAWS[K]) + noise * draw_noise(kind, x, rng)))
        counts[segment(*sets[-1], None, None, "squared", "posterior", rng).n_hinges] += 1
    asked = ask_r(COUNT, sets)
    by_r = "" if asked is None else round(float(np.mean([value[0] == K for value in asked.values()])), 3)
    return {"breaks": K, "noise": noise, "n": n, "kind": kind, "sets": len(sets),
            "right": round(float(counts[K] / counts.sum()), 3), "R selgmented, BIC": by_r,
            "found 0, 1, 2, …": " ".join(map(str, counts))}  # fmt: skip


def _shapes(track: Track) -> Iterator[Row]:
    width = 1.0  # half of the rounded corner's
    shapes: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int | None]] = {
        "quadratic": (lambda x: 0.1 * (x - 3.0) ** 2, None),
        "jump": (lambda x: 0.5 * x + 1.5 * (x > 6.0), None),
        "rounded kink": (lambda x: width * np.clip((x - 5.0 + width) / (2.0 * width), 0.0, 1.0) ** 2
                         + np.maximum(x - 5.0 - width, 0.0), 1),
        "one break": (lambda x: law(x, *LAWS[1]), None),
        "two breaks": (lambda x: law(x, *LAWS[2]), None),
        "three breaks": (lambda x: law(x, *LAWS[3]), None),
    }  # fmt: skip
    for name, (shape, K) in shapes.items():
        for n in (200, 1_000):
            named, sets = 0, SETS // 2 if n == 200 or K == 1 else SETS // 8
            for seed in track(fresh_seeds(sets), f"{name}, n = {n}"):
                rng = np.random.default_rng([seed, n, 3])
                x = rng.uniform(0.0, 10.0, n)
                y = shape(x) + 0.3 * rng.standard_normal(n)
                named += segment(x, y, None, K, "squared", "posterior", rng).rival is not None
            yield {"shape": name, "n": n, "sets": sets, "rival named": round(named / sets, 3)}


EXPERIMENTS = (
    Experiment("hinges-tests", "The test of no hinge: size and power", _tests),
    Experiment("hinges-numbers", "The number of breaks", _numbers),
    Experiment("hinges-shapes", "Truths that are not broken lines", _shapes),
)
