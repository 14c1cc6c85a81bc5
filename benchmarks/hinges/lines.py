"""Breaks of one input and their intervals, over a grid of noise and rows, and beside R's `segmented` on the same sets.

CR is the Cramér–Rao deviation of a break at the truth. R's columns are empty where it is not installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.hinges.by_r import FIT, ask_r
from benchmarks.hinges.laws import LAWS, Samples, cramer_rao, draw, slopes_of
from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.hinges.inference import table
from neurecover.hinges.points import Points
from neurecover.hinges.search import best_breaks
from neurecover.hinges.segmented import Estimated

SETS = 200
CELLS = ((1, 1.0, 50), (1, 1.0, 200), (2, 1.0, 200), (3, 1.0, 200))
TIMES = tuple((K, 1.0, n) for K in (1, 2, 3) for n in (50, 200, 1_000))
GRID = tuple((K, noise, n) for K in (1, 2, 3) for noise in (0.1, 0.3, 1.0, 2.0) for n in (50, 100, 200, 500, 1_000))


@dataclass(frozen=True)
class Measured:
    """Over the sets: deviations over CR of the reported and the least-squares breaks, covers, widths, CPU seconds."""

    off: np.ndarray
    squares: np.ndarray
    covered: np.ndarray
    slopes: np.ndarray
    widths: np.ndarray
    seconds: float


def measure(sets: list[Samples], K: int, noise: float, track: Track, label: str) -> Measured:
    """Fit every set with K told: breaks, posterior and the table of intervals, without the tests."""
    truth, slopes = np.array(LAWS[K][0]), slopes_of(K)
    off, squares, covered, of_slopes, widths, seconds = [], [], [], [], [], 0.0
    for x, y in track(sets, label):
        began = time.process_time()
        points = Points.of(x, y)
        fit = best_breaks(points, K)
        found = Estimated.of(fit, False, np.random.default_rng(0))
        lines = {line.name: line for line in table(found, 0.95, "posterior")}
        seconds += time.process_time() - began
        own, told = ([lines[f"{name}{j + 1}"] for j in range(m)] for name, m in (("break", K), ("slope", K + 1)))
        cr = cramer_rao(x, K, noise)
        off.append((np.array([line.value for line in own]) - truth) / cr)
        squares.append((points.x(fit.breaks) - truth) / cr)
        covered.append([line.low <= place <= line.high for line, place in zip(own, truth)])
        widths.append([(line.high - line.low) / 3.92 / c for line, c in zip(own, cr)])
        of_slopes.append([line.low <= value <= line.high for line, value in zip(told, slopes)])
    a, b, c, d, e = (np.array(values) for values in (off, squares, covered, of_slopes, widths))
    return Measured(a, b, c, d, e, seconds / len(sets))


def _breaks(track: Track) -> Iterator[Row]:
    for K, noise, n in CELLS:
        sets = [draw(seed, K, noise, n) for seed in fresh_seeds(SETS)]
        found = measure(sets, K, noise, track, f"{K} breaks, σ = {noise}, n = {n}")
        row: Row = {"breaks": K, "noise": noise, "n": n, "sets": SETS, "RMSE/CR": _rms(found.off)}
        row |= {"least squares": _rms(found.squares), "cover": _share(found.covered), "slopes": _share(found.slopes)}
        row |= {"width/CR": round(float(found.widths.mean()), 2), "CPU s": round(found.seconds, 4)}
        yield row | _beside(sets, K, noise)


def _beside(sets: list[Samples], K: int, noise: float) -> Row:
    """Return the same figures of R; where its fit fails on a set, without that set."""
    names = ("R RMSE/CR", "R cover (gradient)", "R slopes", "R width/CR", "R CPU s, fit and score", "R failed")
    found = ask_r(FIT, sets, K)
    if not found:
        return dict.fromkeys(names, "")
    truth, slopes = np.array(LAWS[K][0]), slopes_of(K)
    values = np.array([found[i] for i in range(len(sets))])
    crs = np.array([cramer_rao(x, K, noise) for x, _ in sets])
    good = np.isfinite(values[:, : 3 * K]).all(axis=1)
    places, low, high = (values[good, i * K : (i + 1) * K] for i in range(3))
    first, last = values[good, 3 * K : 4 * K + 1], values[good, 4 * K + 1 : 5 * K + 2]
    figures = (
        _rms((places - truth) / crs[good]),
        _share((low <= truth) & (truth <= high)),
        _share((first <= slopes) & (slopes <= last)),
        round(float(np.mean((high - low) / 3.92 / crs[good])), 2),
        round(float(np.nanmean(values[:, -1])), 4),
        int((~good).sum()),
    )
    return dict(zip(names, figures))


def _grid(track: Track) -> Iterator[Row]:
    for K, noise, n in GRID:
        sets = [draw(seed, K, noise, n) for seed in fresh_seeds(SETS)]
        found = measure(sets, K, noise, track, f"{K} breaks, σ = {noise}, n = {n}")
        row: Row = {"breaks": K, "noise": noise, "n": n, "sets": SETS, "cover": _share(found.covered)}
        row |= {"slopes": _share(found.slopes), "RMSE/CR": _rms(found.off), "CPU s": round(found.seconds, 4)}
        yield row


def _times(track: Track) -> Iterator[Row]:
    for K, noise, n in TIMES:
        sets = [draw(seed, K, noise, n) for seed in fresh_seeds(SETS // 4)]
        own = measure(sets, K, noise, track, f"{K} breaks, n = {n}").seconds
        by_r = _beside(sets, K, noise)["R CPU s, fit and score"]
        row: Row = {"breaks": K, "n": n, "sets": len(sets), "CPU s": round(own, 4), "R CPU s, fit and score": by_r}
        yield row | {"times faster": round(by_r / own, 2) if isinstance(by_r, float) else ""}


def _rms(values: np.ndarray) -> float:
    return round(float(np.sqrt(np.mean(np.square(values)))), 3)


def _share(values: np.ndarray) -> float:
    return round(float(np.mean(values)), 3)


EXPERIMENTS = (
    Experiment("hinges", "Breaks of one input and their intervals, beside R's segmented", _breaks),
    Experiment("hinges-times", "CPU seconds of fit and intervals beside R's segmented", _times),
    Experiment("hinges-grid", "Cover of breaks and slopes over noise and rows", _grid),
)
