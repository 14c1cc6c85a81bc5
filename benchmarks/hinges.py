"""Segmented regression: breaks and their intervals, tests, number of hinges, other shapes; R's `segmented` where it is.

The Cramér–Rao deviation CR is that of the break at the truth. R is asked by Rscript with the package `segmented`; its
columns are empty without it.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.hinges.checks.further import Rows, further_hinges
from neurecover.hinges.inference import table
from neurecover.hinges.points import Points
from neurecover.hinges.segmented import segment

SETS = 200
LAWS: dict[int, tuple[list[float], list[float]]] = {
    0: ([], []),
    1: ([4.0], [1.0]),
    2: ([3.0, 7.0], [1.0, -1.5]),
    3: ([2.5, 5.0, 7.5], [1.5, -1.5, 1.5]),
}
CELLS = ((1, 1.0, 50), (1, 1.0, 200), (2, 1.0, 200), (3, 1.0, 200), (1, 0.1, 50), (1, 2.0, 50), (2, 2.0, 200))
COUNTS = ((1, 1.0, 50), (2, 1.0, 50), (3, 0.3, 50), (2, 1.0, 200), (3, 1.0, 200), (0, 1.0, 200))
# Slope changes at which R's davies.test rejects about 0.7, 0.7, 0.2, 0.3 and 0.3 of the sets.
POWERS = {
    "middle": (50, [5.0], [0.62]),
    "end": (50, [8.0], [1.35]),
    "two opposite, n = 50": (50, [3.0, 7.0], [0.95, -0.95]),
    "two opposite, n = 200": (200, [3.0, 7.0], [0.47, -0.47]),
    "three": (200, [2.5, 5.0, 7.5], [0.8, -0.8, 0.8]),
}
Samples = tuple[np.ndarray, np.ndarray]

R_SCRIPT = """
suppressMessages(library(segmented)); a <- commandArgs(TRUE); K <- as.integer(a[2]); d <- read.csv(a[1])
for (s in unique(d$set)) { e <- d[d$set == s, ]; began <- proc.time()[["user.self"]]
  r <- tryCatch({ f <- segmented(lm(y ~ x, data = e), seg.Z = ~x, npsi = K)
    g <- confint(f, method = "gradient"); c(f$psi[, "Est."], g[, 2], g[, 3]) }, error = function(x) rep(NA, 3 * K))
  cat(s, r, proc.time()[["user.self"]] - began, "\\n") }
"""


def law(x: np.ndarray, breaks: list[float], changes: list[float]) -> np.ndarray:
    """Return 1 + x/2 and the hinges."""
    return 1.0 + 0.5 * x + np.maximum(x[:, None] - np.array(breaks), 0.0) @ np.array(changes)


def draw(seed: int, K: int, noise: float, n: int) -> Samples:
    rng = np.random.default_rng([seed, K, n])
    x = rng.uniform(0.0, 10.0, n)
    return x, law(x, *LAWS[K]) + noise * rng.standard_normal(n)


def cramer_rao(x: np.ndarray, K: int, noise: float) -> np.ndarray:
    """Return the deviations of the breaks that no unbiased estimate goes below."""
    breaks, changes = (np.array(values) for values in LAWS[K])
    above = x[:, None] > breaks
    J = np.column_stack([np.ones(len(x)), x, np.maximum(x[:, None] - breaks, 0.0), -changes * above])
    return noise * np.sqrt(np.diag(np.linalg.inv(J.T @ J)))[2 + K :]


def by_r(sets: list[Samples], K: int) -> dict[int, np.ndarray] | None:
    """Return R's breaks, gradient intervals and seconds per set; None where R or its package is missing."""
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        data, script = Path(folder) / "data.csv", Path(folder) / "run.R"
        script.write_text(R_SCRIPT)
        with data.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["set", "x", "y"])
            writer.writerows([i, a, b] for i, (x, y) in enumerate(sets) for a, b in zip(x, y))
        run = subprocess.run(["Rscript", str(script), str(data), str(K)], capture_output=True, text=True, check=False)
    if run.returncode:
        return None
    lines = (line.split() for line in run.stdout.splitlines() if line.strip())
    return {int(first): np.array([float(word.replace("NA", "nan")) for word in words]) for first, *words in lines}


def _breaks(track: Track) -> Iterator[Row]:
    for K, noise, n in CELLS:
        truth = np.array(LAWS[K][0])
        slopes = 0.5 + np.concatenate([[0.0], np.cumsum(LAWS[K][1])])
        sets = [draw(seed, K, noise, n) for seed in fresh_seeds(SETS)]
        off, squares, covered, of_slopes, widths, seconds = [], [], [], [], [], 0.0
        for x, y in track(sets, f"{K} breaks, σ = {noise}, n = {n}"):
            began = time.process_time()
            found = segment(x, y, None, K, "squared", "posterior", np.random.default_rng(0))
            lines = {line.name: line for line in table(found, 0.95, "posterior")}
            seconds += time.process_time() - began
            own = [lines[f"break{j + 1}"] for j in range(K)]
            cr = cramer_rao(x, K, noise)
            off.append((np.array([line.value for line in own]) - truth) / cr)
            squares.append((found.points.x(found.fit.breaks) - truth) / cr)
            covered.append([line.low <= place <= line.high for line, place in zip(own, truth)])
            widths.append([(line.high - line.low) / 3.92 / c for line, c in zip(own, cr)])
            told = [lines[f"slope{k + 1}"] for k in range(K + 1)]
            of_slopes.append([line.low <= value <= line.high for line, value in zip(told, slopes)])
        row: Row = {
            "breaks": K,
            "noise": noise,
            "n": n,
            "sets": len(sets),
            "RMSE/CR": round(float(np.sqrt(np.mean(np.square(off)))), 3),
            "least squares": round(float(np.sqrt(np.mean(np.square(squares)))), 3),
            "cover": round(float(np.mean(covered)), 3),
            "slopes": round(float(np.mean(of_slopes)), 3),
            "width/CR": round(float(np.mean(widths)), 2),
            "CPU s": round(seconds / len(sets), 4),
        }
        yield row | _beside(sets, K, noise)


def _beside(sets: list[Samples], K: int, noise: float) -> Row:
    names = ("R RMSE/CR", "R cover (gradient)", "R width/CR", "R CPU s", "R failed")
    found = by_r(sets, K)
    if not found:
        return dict.fromkeys(names, "")
    truth = np.array(LAWS[K][0])
    values = np.array([found[i] for i in range(len(sets))])
    crs = np.array([cramer_rao(x, K, noise) for x, _ in sets])
    good = np.isfinite(values[:, :-1]).all(axis=1)
    places, low, high = (values[good, i * K : (i + 1) * K] for i in range(3))
    figures = (
        round(float(np.sqrt(np.mean(((places - truth) / crs[good]) ** 2))), 3),
        round(float(np.mean((low <= truth) & (truth <= high))), 3),
        round(float(np.mean((high - low) / 3.92 / crs[good])), 2),
        round(float(values[:, -1].mean()), 4),
        int((~good).sum()),
    )
    return dict(zip(names, figures))


def _noise(kind: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if kind == "t3":
        return rng.standard_t(3, len(x))
    noise = rng.standard_normal(len(x))
    if kind == "unequal":  # the variance grows 81-fold
        return noise * (1.0 + 0.8 * x) / 5.0
    if kind == "AR(1) 0.5":
        for i in range(1, len(x)):
            noise[i] = 0.5 * noise[i - 1] + 0.75**0.5 * noise[i]
    return noise


def _tests(track: Track) -> Iterator[Row]:
    sizes = [("plain", 21), ("plain", 50), ("plain", 200), ("unequal", 200), ("t3", 200), ("AR(1) 0.5", 200)]
    for kind, n in sizes:
        yield _rejections(f"straight line, {kind}, n = {n}", kind, n, [], [], 500, track)
    for name, (n, breaks, changes) in POWERS.items():
        yield _rejections(name, "plain", n, breaks, changes, SETS, track)


def _rejections(
    name: str, kind: str, n: int, breaks: list[float], changes: list[float], sets: int, track: Track
) -> Row:
    rejected = warned = 0
    for seed in track(fresh_seeds(sets), name):
        rng = np.random.default_rng([seed, n])
        x = np.sort(rng.uniform(0.0, 10.0, n))
        y = law(x, breaks, changes) + _noise(kind, x, rng)
        points = Points.of(x, y)
        rejected += further_hinges(points, Rows.of(points, x, y, None), np.zeros(0), rng).p_value <= 0.05
        if kind.startswith("AR"):
            warned += segment(x, y, None, None, "squared", "posterior", rng).serial.p_value < 0.01
    return {"data": name, "sets": sets, "rejected": rejected / sets, "warned": warned / sets if warned else ""}


def _numbers(track: Track) -> Iterator[Row]:
    for K, noise, n, kind in (*((*cell, "plain") for cell in COUNTS), (0, 1.0, 200, "unequal")):
        counts = np.zeros(9, dtype=int)
        for seed in track(fresh_seeds(SETS // 2), f"{K} breaks, {kind}"):
            rng = np.random.default_rng([seed, K, n, 2])
            x = rng.uniform(0.0, 10.0, n)
            y = law(x, *LAWS[K]) + noise * _noise(kind, x, rng)
            counts[segment(x, y, None, None, "squared", "posterior", rng).n_hinges] += 1
        yield {"breaks": K, "noise": noise, "n": n, "kind": kind, "right": counts[K] / counts.sum(),
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
            named = 0
            for seed in track(fresh_seeds(SETS // 4), f"{name}, n = {n}"):
                rng = np.random.default_rng([seed, n, 3])
                x = rng.uniform(0.0, 10.0, n)
                y = shape(x) + 0.3 * rng.standard_normal(n)
                named += segment(x, y, None, K, "squared", "posterior", rng).rival is not None
            yield {"shape": name, "n": n, "sets": SETS // 4, "rival named": named / (SETS // 4)}


EXPERIMENTS = (
    Experiment("hinges", "Breaks and their intervals, one input", _breaks),
    Experiment("hinges-tests", "The test of no hinge: size and power", _tests),
    Experiment("hinges-numbers", "The number of breaks", _numbers),
    Experiment("hinges-shapes", "Truths that are not broken lines", _shapes),
)
