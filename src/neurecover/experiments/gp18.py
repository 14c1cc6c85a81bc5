"""The figures of [GP18]: landscapes, both steps, halfspaces, structure, two hidden layers, the table of Lemma 2."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from neurecover.activations import get
from neurecover.algorithms import Call, get_method
from neurecover.algorithms.gp18.cliques import correlation_cliques
from neurecover.algorithms.gp18.even import even_units
from neurecover.algorithms.gp18.exponential import exponential_cliques, exponential_units
from neurecover.algorithms.gp18.landscape import one_by_one, simultaneous
from neurecover.algorithms.gp18.lowest_layer import two_steps
from neurecover.algorithms.gp18.whole import fit_upper, polished
from neurecover.data import ArraySource, prepared, reduce, unwhitened
from neurecover.exceptions import UnsolvableError
from neurecover.experiments.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.interop.halfspaces import HalfspaceUnion
from neurecover.matching import compare
from neurecover.models import Composite
from neurecover.pipeline import estimated
from neurecover.search.task import Task
from neurecover.simulate import matrices
from neurecover.simulate.composites import composite_teacher, products, tower, union
from neurecover.solve import Deadline
from neurecover.statistics import HermiteSums
from neurecover.tensors import rank_one, unpack

SEEDS = fresh_seeds(20)


def cosines(W: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """|cos| of every unit of the truth with its partner, (k,)."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    C = np.abs(truth @ unit.T)
    return C[linear_sum_assignment(-C)]


def largest_angle(W: np.ndarray, truth: np.ndarray) -> float:
    """Of every unit of the truth to its partner, in radians: a unit that looks the wrong way is far off."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    i, j = linear_sum_assignment(-(truth @ unit.T))
    return float(2.0 * np.arcsin(0.5 * np.linalg.norm(truth[i] - unit[j], axis=1).max()))


def landscape_starts(track: Track) -> list[Row]:
    """Exact moments of a linear upper part, 50 random starts of either objective."""
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
    """d = k = 8, ReLU, t = 1.5, linear plus all pairwise products, n = 100,000."""
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
    """Step 2 by the paper's random search, by turning along the slab's mean, and by maximum likelihood."""
    rows: list[Row] = []
    for seed in track(fresh_seeds(3), "searches"):
        truth = composite_teacher(8, 8, products(8), kind="tilted", random_state=seed)
        X = np.random.default_rng([seed, 1]).standard_normal((100_000, 8))
        for search in ("paper", "turn", "likelihood"):
            began = time.perf_counter()
            layer = two_steps(ArraySource(X, truth(X)), "relu", np.random.default_rng(seed), n_hidden=8, search=search)
            seconds = round(time.perf_counter() - began, 2)
            worst = float(cosines(layer.W, truth.W).min())
            rows.append({"seed": seed, "search": search, "worst cos": worst, "seconds": seconds})
    return rows


def halfspace_labels(track: Track) -> list[Row]:
    """d = 10, 5 halfspaces at distance 1.8, n = 200,000 labels."""
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


def structure(track: Track) -> list[Row]:
    """The settings of Theorems 8, 9 and 10, n = 100,000."""
    rows: list[Row] = []
    for seed in track(SEEDS, "structure"):
        rng = np.random.default_rng(seed)
        W = _disjoint(rng, 4, 3, 12)
        X = rng.standard_normal((100_000, 12))
        f = products(4)(np.exp(0.6 * (X @ W.T - 4.0)))
        second = reduce(ArraySource(X, f), HermiteSums(12, 1, 2)).coefficients().packed(2)[0]
        rows.append(_exact("Theorem 8", seed, _same(correlation_cliques(unpack(second, 12, 2)).W, W)))
        W = _disjoint(rng, 3, 2, 8)
        X = rng.standard_normal((100_000, 8))
        f = products(3, product=0.5)(np.exp(X @ W.T))
        rows.append(_exact("Theorem 9, simplex", seed, _same(exponential_units(ArraySource(X, f), rng).W, W)))
        rows.append(_exact("Theorem 9", seed, _same(exponential_cliques(ArraySource(X, f), rng).W, W)))
        W = matrices.orthonormal(rng, 4, 6)
        X = rng.standard_normal((100_000, 6))
        f = products(4)(np.abs(X @ W.T))
        fourth = reduce(ArraySource(X, f), HermiteSums(6, 1, 4)).coefficients().packed(4)[0]
        worst = float(cosines(even_units(fourth, 6, 4, rng, sign=-1.0).W, W).min())
        rows.append({**_exact("Theorem 10", seed, worst >= 0.99), "worst cos": worst})
    return rows


def exponential_sizes(track: Track) -> list[Row]:
    """Theorem 9 at several sizes: k units of `size` inputs each among d, products with coefficient 0.5, n = 100,000."""
    rows: list[Row] = []
    for d, k, size in ((8, 3, 2), (12, 4, 3), (12, 6, 2), (12, 3, 4), (16, 4, 4), (16, 5, 3)):
        hits = {"cliques": 0, "simplex": 0}
        for seed in track(SEEDS, f"Theorem 9, d = {d}, {k} units of {size}"):
            rng = np.random.default_rng([seed, d, k])
            W = _disjoint(rng, k, size, d)
            X = rng.standard_normal((100_000, d))
            source = ArraySource(X, products(k, product=0.5)(np.exp(X @ W.T)))
            for name, find in (("cliques", exponential_cliques), ("simplex", exponential_units)):
                with suppress(UnsolvableError):
                    hits[name] += _same(find(source, rng).W, W)
        rows.append({"d": d, "k": k, "inputs of a unit": size, "seeds": len(SEEDS), **hits})
    return rows


def two_layers(track: Track) -> list[Row]:
    """d = 10, first layer of 6 units at t = 1.5, upper ReLU net of 4, n = 100,000."""
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
    """The lowest layer, its upper part and the joint fit; None where no layer was found."""
    given = prepared(ArraySource(X, Y), True, rng)
    task = Task(get("relu"), given.whitening.rank, given.source.n_outputs, given.train.count(), True, n_hidden)
    found = estimated(get_method("lowest_layer"), Call(given.train, task, rng))
    if not isinstance(found.network, Composite):
        return None
    deadline = Deadline.after(seconds)
    network = fit_upper(given.train, found.network, upper, rng=rng, n_upper=n_upper, deadline=deadline)
    network = polished(network, given.train, given.holdout, rng)
    whole = unwhitened(network, given.whitening).normal_form()
    assert isinstance(whole, Composite)
    return whole


def noisy_halfspaces(track: Track) -> list[Row]:
    """Labels flipped at random: d = 6, 3 halfspaces at 1.5, n = 20,000; d = 10, 5 halfspaces at 1.8, n = 40,000."""
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
    """The number of halfspaces at 1.5 in d = 8, without noise and with 5 % of the labels flipped."""
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


def noisy_outputs(track: Track) -> list[Row]:
    """d = 8, 5 ReLU units at 1.5, linear plus all products, n = 30,000, noise of 2 % of the outputs' spread."""
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


def threshold_table(track: Track) -> list[Row]:
    """E|f − f_lin| against E|f_lin| and the bound of Lemma 2, over t, for d = 8 and all products of up to 3 units.

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
    """The share of the non-linear part over t, with the bound."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    t = [float(row["t"]) for row in rows]
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.semilogy(t, [float(row["ratio"]) for row in rows], "o-", label="E|f − f_lin| / E f_lin, measured")
    axes.semilogy(t, [float(row["bound over E f_lin"]) for row in rows], "--", label="bound of Lemma 2, constant 1")
    axes.set_xlabel("threshold t")
    axes.set_ylabel("share of the non-linear part")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _flipped_union(
    d: int, k: int, t: float, n: int, flipped: float, seed: int
) -> tuple[Composite, np.ndarray, np.ndarray]:
    """A union of halfspaces, inputs, and labels of which the given share is flipped."""
    truth = composite_teacher(d, k, union(), threshold=t, activation="step", random_state=seed)
    rng = np.random.default_rng([seed, 1])
    X = rng.standard_normal((n, d))
    return truth, X, (truth(X)[:, 0] > 0.5) ^ (rng.random(n) < flipped)


def _disjoint(rng: np.random.Generator, k: int, size: int, d: int) -> np.ndarray:
    """k disjoint 0/1 rows with `size` ones each."""
    W = np.zeros((k, d))
    W[np.repeat(np.arange(k), size), rng.permutation(d)[: k * size]] = 1.0
    return W


def _same(found: np.ndarray, truth: np.ndarray) -> bool:
    return found.shape == truth.shape and sorted(map(tuple, found)) == sorted(map(tuple, truth))


def _exact(theorem: str, seed: int, hit: bool) -> Row:
    return {"theorem": theorem, "seed": seed, "recovered": hit, "worst cos": "", "required": "19 of 20"}


THRESHOLD = Experiment(
    "gp18-threshold", "The higher the threshold, the more linear f [GP18, Lemma 2]", threshold_table, draw_threshold
)
LANDSCAPE = Experiment("gp18-landscape", "Both landscapes from exact moments, 50 starts", landscape_starts)
STEPS = Experiment("gp18-steps", "Worst |cos| after Step 1 and Step 2", both_steps)
SEARCHES = Experiment("gp18-searches", "Searches of Step 2, raced", searches)
HALFSPACES = Experiment("gp18-halfspaces", "Unions of halfspaces from labels", halfspace_labels)
EXPONENTIAL = Experiment("gp18-exponential", "Theorem 9 at several sizes", exponential_sizes)
STRUCTURE = Experiment("gp18-structure", "Theorems 8, 9 and 10", structure)
TWO_LAYERS = Experiment("gp18-two-layers", "Networks with two hidden layers", two_layers)
NOISY_HALFSPACES = Experiment("gp18-noisy-halfspaces", "Unions of halfspaces from noisy labels", noisy_halfspaces)
NUMBERS = Experiment("gp18-numbers", "The number of halfspaces of a union", halfspace_numbers)
NOISY_OUTPUTS = Experiment("gp18-noisy-outputs", "The lowest layer from noisy outputs", noisy_outputs)
EXPERIMENTS = (
    THRESHOLD,
    LANDSCAPE,
    STEPS,
    SEARCHES,
    HALFSPACES,
    NOISY_HALFSPACES,
    NUMBERS,
    NOISY_OUTPUTS,
    STRUCTURE,
    EXPONENTIAL,
    TWO_LAYERS,
)
