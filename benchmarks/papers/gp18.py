"""The method of [GP18] under noise: flipped labels, an unknown number of halfspaces, noisy outputs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from neurecover.algorithms.gp18.layers.lowest_layer import two_steps
from neurecover.data import ArraySource
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.interop.halfspaces import HalfspaceUnion
from neurecover.matching import compare
from neurecover.models import Composite
from neurecover.reproduce.gp18 import SEEDS, whole_network
from neurecover.simulate.composites import composite_teacher, products, union


def noisy_halfspaces(track: Track) -> list[Row]:
    """Flip labels at random: d = 6, 3 halfspaces at 1.5, n = 20,000; d = 10, 5 halfspaces at 1.8, n = 40,000."""
    rows: list[Row] = []
    for d, k, t, n, flipped, required in (
        (6, 3, 1.5, 20_000, 0.05, "0.01 in 19, 0.998"),
        (10, 5, 1.8, 40_000, 0.01, "0.015 in 18"),
        (10, 5, 1.8, 40_000, 0.05, "0.015 in 18"),
    ):
        for seed in track(SEEDS, f"halfspaces, d = {d}, {flipped:.0%} flipped"):
            truth, X, y = _flipped_union(d, k, t, n, flipped, seed)
            began = time.process_time()
            model = HalfspaceUnion(n_halfspaces=k, random_state=seed).fit(X, y)
            row: Row = {"d": d, "k": k, "n": n, "flipped": flipped, "seed": seed}
            row["seconds"] = round(time.process_time() - began, 2)
            found = Composite(model.halfspaces_.normals, model.halfspaces_.thresholds, union(), "step")
            comparison = compare(found, truth)
            row["max angle"] = comparison.max_angle if comparison.unmatched == ((), ()) else np.inf
            row["expected angle"] = float(model.tan_alpha_.max())
            fresh = np.random.default_rng([seed, 2]).standard_normal((100_000, d))
            row["accuracy"] = float(np.mean(model.predict(fresh) == (truth(fresh)[:, 0] > 0.5)))
            rows.append({**row, "required": required})
    return rows


def halfspace_numbers(track: Track) -> list[Row]:
    """Count the halfspaces at 1.5 in d = 8, without noise and with 5 % of the labels flipped."""
    rows: list[Row] = []
    for flipped in (0.0, 0.05):
        for seed in track(SEEDS, f"numbers, {flipped:.0%} flipped"):
            k, n = 2 + seed % 5, (5_000, 10_000, 20_000, 40_000)[seed % 4]
            _, X, y = _flipped_union(8, k, 1.5, n, flipped, seed)
            began = time.process_time()
            model = HalfspaceUnion(random_state=seed).fit(X, y)
            seconds = round(time.process_time() - began, 2)
            found, sure = len(model.halfspaces_), model.certificate_.verdict == "statistical"
            row: Row = {"flipped": flipped, "seed": seed, "n": n, "halfspaces": k, "found": found, "certain": sure}
            rows.append({**row, "seconds": seconds, "required": "right in 90 %, no certain one wrong"})
    return rows


def phase(track: Track) -> Iterator[Row]:
    """Measure 3 halfspaces without noise, their number not told, over the threshold t, the inputs d and the labels n.

    The paper asks for t above a multiple of √log d. A trial is right when all normals are within 0.1 rad.
    """
    for d in (4, 8, 16):
        for t in track((0.6, 1.2, 1.8, 2.4), f"phase, d = {d}"):
            for n in (1_500, 6_000):
                for seed in fresh_seeds(2):
                    truth, X, y = _flipped_union(d, 3, t, n, 0.0, seed)
                    model = HalfspaceUnion(random_state=seed).fit(X, y)
                    found = Composite(model.halfspaces_.normals, model.halfspaces_.thresholds, union(), "step")
                    angle = largest_angle(found.W, truth.W) if len(found.W) == 3 else np.inf
                    row: Row = {"d": d, "t": t, "t / √log d": round(t / np.sqrt(np.log(d)), 3), "n": n, "seed": seed}
                    row |= {"inside": round(float(y.mean()), 4), "max angle": angle, "right": int(angle < 0.1)}
                    yield row | {"verdict": model.certificate_.verdict}


def draw_phase(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the angle against t/√log d, a colour per d and a mark per n; what was not found stands on the upper edge."""
    with picture(path, size=(7, 4)) as (_, axes):
        for n, mark in (("1500", "o"), ("6000", "s")):
            for d, colour in (("4", "C0"), ("8", "C1"), ("16", "C2")):
                own = [row for row in rows if row["n"] == n and row["d"] == d]
                angles = [min(float(row["max angle"]), np.pi / 2) for row in own]
                places = [float(row["t / √log d"]) for row in own]
                axes.semilogy(places, angles, mark, color=colour, alpha=0.7, label=f"d = {d}, n = {n}")
        axes.axhline(0.1, color="grey", linewidth=0.8)
        axes.set(xlabel="t / √log d", ylabel="largest angle of a normal, rad")
        axes.legend(fontsize=8)


def noisy_outputs(track: Track) -> list[Row]:
    """Measure d = 8, 5 ReLU units at 1.5, linear plus all products, n = 30,000, noise of 2 % of the outputs' spread."""
    rows: list[Row] = []
    for seed in track(SEEDS, "noisy outputs"):
        truth = composite_teacher(8, 5, products(5), random_state=seed)
        rng = np.random.default_rng([seed, 1])
        X = rng.standard_normal((30_000, 8))
        Y = truth(X)
        Y = Y + 0.02 * Y.std() * rng.standard_normal(Y.shape)
        began = time.process_time()
        layer = two_steps(ArraySource(X, Y), "relu", np.random.default_rng(seed), n_hidden=5)
        whole = whole_network(X, Y, 5, np.random.default_rng(seed))
        row: Row = {"seed": seed, "seconds": round(time.process_time() - began, 2)}
        for name, W in (
            ("step 1", layer.step_one.W),
            ("step 2", layer.W),
            ("joint fit", None if whole is None else whole.W),
        ):
            row[f"{name} max angle"] = np.nan if W is None else largest_angle(W, truth.W)
        rows.append({**row, "required": "0.02 in 16"})
    return rows


def largest_angle(W: np.ndarray, truth: np.ndarray) -> float:
    """Return the largest angle of a true unit to its partner, in radians; a reversed unit is far off."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    i, j = linear_sum_assignment(-(truth @ unit.T))
    return float(2.0 * np.arcsin(0.5 * np.linalg.norm(truth[i] - unit[j], axis=1).max()))


def _flipped_union(
    d: int, k: int, t: float, n: int, flipped: float, seed: int
) -> tuple[Composite, np.ndarray, np.ndarray]:
    """Draw a union of halfspaces, inputs, and labels of which the given share is flipped."""
    truth = composite_teacher(d, k, union(), threshold=t, activation="step", random_state=seed)
    rng = np.random.default_rng([seed, 1])
    X = rng.standard_normal((n, d))
    return truth, X, (truth(X)[:, 0] > 0.5) ^ (rng.random(n) < flipped)


EXPERIMENTS = (
    Experiment("gp18-noisy-halfspaces", "Unions of halfspaces from noisy labels", noisy_halfspaces),
    Experiment("gp18-numbers", "The number of halfspaces of a union", halfspace_numbers),
    Experiment("gp18-phase", "Unions of halfspaces over threshold, inputs and labels", phase, draw_phase),
    Experiment("gp18-noisy-outputs", "The lowest layer from noisy outputs", noisy_outputs),
)
