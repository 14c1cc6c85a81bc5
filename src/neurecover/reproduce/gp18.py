"""What [GP18] states, measured: the table of Lemma 2, landscapes, both steps, halfspaces, two hidden layers."""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from neurecover.activations import get
from neurecover.algorithms import Call, get_method
from neurecover.algorithms.gp18.landscape.objectives import one_by_one, simultaneous
from neurecover.algorithms.gp18.layers.lowest_layer import two_steps
from neurecover.algorithms.gp18.layers.whole import fit_jointly, fit_upper
from neurecover.data import ArraySource, prepare_samples, unwhiten
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.interop.halfspaces import HalfspaceUnion
from neurecover.matching import compare
from neurecover.models import Composite
from neurecover.pipeline import run_algorithm
from neurecover.search import Task
from neurecover.simulate import matrices
from neurecover.simulate.composites import composite_teacher, products, tower, union
from neurecover.solve import Deadline
from neurecover.tensors import rank_one

SEEDS = fresh_seeds(20)


def cosines(W: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return |cos| of every unit of the truth with its partner, (k,)."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    C = np.abs(truth @ unit.T)
    return C[linear_sum_assignment(-C)]


def landscape_starts(track: Track) -> list[Row]:
    """Measure both objectives on exact moments of a linear upper part, 50 random starts each."""
    rows: list[Row] = []
    h = get("relu").hermite(-1.5, 4)
    for kind in ("orthonormal", "sphere"):
        rng = np.random.default_rng(0)
        d = 8
        W = matrices.unit_rows(rng, d, d) if kind == "sphere" else matrices.orthonormal(rng, d, d)
        c = rng.uniform(0.5, 1.5, d)
        second, fourth = (W.T * (c * h[2])) @ W, rank_one(W, 4, c * h[4])
        for name, solve in (("one by one", one_by_one), ("simultaneous", simultaneous)):
            errors = []
            for seed in track(range(50), f"{kind}, {name}"):
                start_rng = np.random.default_rng(seed)
                V = solve(second, fourth, start_rng)
                C = W @ V.T
                i, j = linear_sum_assignment(-np.abs(C))
                errors.append(float(np.linalg.norm(W[i] - np.sign(C[i, j])[:, None] * V[j], axis=1).max()))
            reached = sum(error < 1e-6 for error in errors)
            rows.append(
                {
                    "W": kind,
                    "landscape": name,
                    "starts": 50,
                    "within 1e-6": reached,
                    "required": 50,
                    "worst": max(errors),
                }
            )
    return rows


def both_steps(track: Track) -> list[Row]:
    """Measure d = k = 8, ReLU, t = 1.5, linear plus all pairwise products, n = 100,000."""
    rows: list[Row] = []
    for kind in ("sphere", "tilted", "orthonormal"):
        for seed in track(SEEDS, f"two steps, {kind}"):
            truth = composite_teacher(8, 8, products(8), kind=kind, random_state=seed)
            X = np.random.default_rng([seed, 1]).standard_normal((100_000, 8))
            source = ArraySource(X, truth(X))
            row: Row = {"W": kind, "seed": seed, "condition": round(float(np.linalg.cond(truth.W)), 2)}
            for label, search in (("step 1", None), ("step 2", "likelihood")):
                began = time.perf_counter()
                layer = two_steps(source, "relu", np.random.default_rng(seed), n_hidden=8, search=search)
                row[f"{label} worst cos"] = float(cosines(layer.W, truth.W).min())
                row[f"{label} seconds"] = round(time.perf_counter() - began, 2)
            row["required medians"] = "0.93, 0.999"
            rows.append(row)
    return rows


def searches(track: Track) -> list[Row]:
    """Race Step 2 by the paper's random search and by maximum likelihood."""
    rows: list[Row] = []
    for seed in track(fresh_seeds(3), "searches"):
        truth = composite_teacher(8, 8, products(8), kind="tilted", random_state=seed)
        X = np.random.default_rng([seed, 1]).standard_normal((100_000, 8))
        for search in ("paper", "likelihood"):
            began = time.perf_counter()
            layer = two_steps(ArraySource(X, truth(X)), "relu", np.random.default_rng(seed), n_hidden=8, search=search)
            seconds = round(time.perf_counter() - began, 2)
            worst = float(cosines(layer.W, truth.W).min())
            rows.append({"seed": seed, "search": search, "worst cos": worst, "seconds": seconds})
    return rows


def halfspace_labels(track: Track) -> list[Row]:
    """Measure d = 10, 5 halfspaces at distance 1.8, n = 200,000 labels."""
    rows: list[Row] = []
    for seed in track(SEEDS, "halfspaces"):
        truth = composite_teacher(10, 5, union(), threshold=1.8, activation="step", random_state=seed)
        rng = np.random.default_rng([seed, 1])
        X, fresh = rng.standard_normal((200_000, 10)), rng.standard_normal((100_000, 10))
        began = time.perf_counter()
        model = HalfspaceUnion(n_halfspaces=5, random_state=seed).fit(X, truth(X)[:, 0].astype(int))
        seconds = round(time.perf_counter() - began, 2)
        found = Composite(model.halfspaces_.normals, model.halfspaces_.thresholds, union(), "step")
        accuracy = float(np.mean(model.predict(fresh) == truth(fresh)[:, 0]))
        angle = compare(found, truth).max_angle
        rows.append(
            {"seed": seed, "max angle": angle, "accuracy": accuracy, "seconds": seconds, "required": "0.02, 0.999"}
        )
    return rows


def two_layers(track: Track) -> list[Row]:
    """Measure d = 10, first layer of 6 units at t = 1.5, upper ReLU net of 4, n = 100,000."""
    rows: list[Row] = []
    for seed in track(SEEDS, "two hidden layers"):
        signs = "positive" if seed % 2 == 0 else "mixed"
        truth = composite_teacher(10, 6, tower(6, (4,), signs=signs, random_state=seed), random_state=seed)
        rng = np.random.default_rng([seed, 1])
        X, fresh = rng.standard_normal((100_000, 10)), rng.standard_normal((20_000, 10))
        began = time.perf_counter()
        found = whole_network(X, truth(X), 6, np.random.default_rng(seed), upper="network", n_upper=4, seconds=8.0)
        row: Row = {"seed": seed, "signs": signs, "max angle": np.nan, "test R2": np.nan}
        row["seconds"] = round(time.perf_counter() - began, 1)
        if found is not None:
            y = truth(fresh)
            row["max angle"] = compare(found, truth).layers[0].max_angle
            row["test R2"] = float(1.0 - np.mean((found(fresh) - y) ** 2) / np.var(y))
        rows.append({**row, "required": "0.01, 0.99"})
    return rows


def whole_network(
    X: np.ndarray,
    Y: np.ndarray,
    n_hidden: int | None,
    rng: np.random.Generator,
    *,
    upper: str = "polynomial",
    n_upper: int | tuple[int, ...] | None = None,
    seconds: float | None = None,
) -> Composite | None:
    """Find the lowest layer, its upper part and the joint fit; None where no layer was found."""
    given = prepare_samples(ArraySource(X, Y), True, rng)
    task = Task(get("relu"), given.whitening.rank, given.source.n_outputs, given.train.count(), True, n_hidden)
    found = run_algorithm(get_method("lowest_layer"), Call(given.train, task, rng))
    if not isinstance(found.network, Composite):
        return None
    deadline = Deadline.after(seconds)
    network = fit_upper(given.train, found.network, upper, rng=rng, n_upper=n_upper, deadline=deadline)
    network = fit_jointly(network, given.train, given.holdout, rng)
    whole = unwhiten(network, given.whitening).normal_form()
    assert isinstance(whole, Composite)
    return whole


def threshold_table(track: Track) -> list[Row]:
    """Measure E|f − f_lin| against E|f_lin| and the bound of Lemma 2, over t; d = 8, all products of up to 3 units.

    ρ(t, σ) is E[relu(σg − t)], the smallest function Assumption 2 allows. The bound holds up to a constant.
    """
    d, n = 8, 400_000
    rows: list[Row] = []
    W = matrices.orthonormal(np.random.default_rng(0), d, d)
    W = matrices.normalised(W + 0.15 * np.random.default_rng(1).standard_normal((d, d)))
    norm = float(np.linalg.norm(W, 2))
    X = np.random.default_rng(2).standard_normal((n, d))
    for t in track(np.arange(0.0, 3.26, 0.25), "thresholds"):
        H = np.maximum(X @ W.T - t, 0.0)
        linear = H.sum(axis=1)
        extra = sum((np.prod(H[:, S], axis=1) for m in (2, 3) for S in combinations(range(d), m)), np.zeros(n))
        relu = get("relu")
        rho, rho_norm = float(relu.hermite(-t, 0)[0]), norm * float(relu.hermite(-t / norm, 0)[0])
        size, rest = float(np.mean(linear)), float(np.mean(np.abs(extra)))
        rows.append(
            {
                "t": float(t),
                "E f_lin": size,
                "E |f - f_lin|": rest,
                "ratio": rest / size,
                "d^3 rho(t,1) rho(t,|W|)": d**3 * rho * rho_norm,
                "bound over E f_lin": d**3 * rho * rho_norm / size,
            }
        )
    return rows


def draw_threshold(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the share of the non-linear part over t, with the bound."""
    t, ratio, bound = ([float(row[name]) for row in rows] for name in ("t", "ratio", "bound over E f_lin"))
    with picture(path, size=(6, 4)) as (_, axes):
        axes.semilogy(t, ratio, "o-", label="E|f − f_lin| / E f_lin, measured")
        axes.semilogy(t, bound, "--", label="bound of Lemma 2, constant 1")
        axes.set(xlabel="threshold t", ylabel="share of the non-linear part")
        axes.legend()
        axes.grid(alpha=0.3)


EXPERIMENTS = (
    Experiment(
        "gp18-threshold", "The higher the threshold, the more linear f [GP18, Lemma 2]", threshold_table, draw_threshold
    ),
    Experiment("gp18-landscape", "Both landscapes from exact moments, 50 starts", landscape_starts),
    Experiment("gp18-steps", "Worst |cos| after Step 1 and Step 2", both_steps),
    Experiment("gp18-searches", "Searches of Step 2, raced", searches),
    Experiment("gp18-halfspaces", "Unions of halfspaces from labels", halfspace_labels),
    Experiment("gp18-two-layers", "Networks with two hidden layers", two_layers),
)
