"""[ATV21] with more units than inputs: how many are found as k/d rises, and what smoothing has to do with it.

The smoothed instances of §6 start from rows that all lie in one plane, whose squares span three dimensions however many
there are; W + (τ/√d) E has s_k(W^⊙2) > 0 almost surely, and the curves say how large it is and what samples make of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from neurecover import simulate
from neurecover.algorithms.atv21.learner import learn
from neurecover.algorithms.atv21.tensors import power_singular_value
from neurecover.data import ArraySource
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.models import Network
from neurecover.pipeline import recover
from neurecover.random import as_generator
from neurecover.reproduce.atv21 import RELU, cosines, squared_error, weights_are_right

FOUND = 0.99  # |cos| from which a unit counts as found
N = 100_000  # samples
# d, k, seeds of the method alone and of these the ones that the finisher goes on from.
CROWDED = (
    (8, 8, 3, 1),
    (8, 10, 3, 1),
    (8, 12, 3, 1),
    (8, 14, 3, 1),
    (8, 16, 3, 1),
    (12, 16, 20, 1),
    (12, 24, 2, 1),
    (15, 20, 1, 1),
)


def run_crowded(track: Track) -> Iterator[Row]:
    """Count the units found as k/d rises, by the method alone and after the finisher."""
    for d, k, seeds, finished in CROWDED:
        found, angles, seconds, exact = [], [], [], 0
        for trial, seed in enumerate(track(fresh_seeds(seeds), f"d = {d}, k = {k}")):
            truth = simulate.teacher(d, k, random_state=seed)
            X, Y = simulate.sample(truth, N, random_state=seed)
            began = time.process_time()
            W = learn(ArraySource(X, Y), RELU, as_generator(seed, "atv21-crowded"), n_hidden=k).network.W
            seconds.append(time.process_time() - began)
            found.append(int(np.count_nonzero(cosines(W, truth) >= FOUND)))
            angles.append(np.sqrt(squared_error(W, truth)))
            if trial < finished:
                result = recover(X, Y, n_hidden=k, method="hermite", random_state=seed)
                exact += result.certificate.verdict == "exact" and weights_are_right(result.network, truth)
        yield {
            "d": d,
            "k": k,
            "k/d": round(k / d, 2),
            "seeds": seeds,
            "units with |cos| ≥ 0.99, median": float(np.median(found)),
            "fewest": min(found),
            "required": "median ≥ 15" if (d, k) == (12, 16) else "",
            "root mean square angle, median": float(np.median(angles)),
            "CPU seconds, median": round(float(np.median(seconds)), 1),
            "exact after the finisher": f"{exact} of {finished}",
        }


D, K = 6, 9  # nine squares in one plane span three of 21 dimensions
TAUS = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
SAMPLES = (10_000, 40_000)
LEARNT_TAUS = (0.3, 0.5, 1.0)  # those at which the units are learnt too
VALUE_SEEDS, ERROR_SEEDS = 50, 3  # an error takes about 20 s


def planar_teacher(tau: float, seed: int) -> Network:
    """Draw nine units of six inputs that lie in one plane, smoothed by τ."""
    rng = as_generator(seed, "atv21-smoothed")
    angles = np.pi * (np.arange(K) + rng.random()) / K
    W = np.column_stack([np.cos(angles), np.sin(angles)]) @ np.linalg.qr(rng.standard_normal((D, 2)))[0].T
    plain = Network(W, 0.7 * rng.standard_normal(K), rng.choice([-1.0, 1.0], (1, K)))
    return simulate.smoothed(plain, tau, random_state=seed)


def run_smoothed(track: Track) -> list[Row]:
    """Measure s_k and the error of the units against the size τ of the perturbation."""
    rows = []
    for tau in TAUS:
        values = [power_singular_value(planar_teacher(tau, seed), 2) for seed in range(VALUE_SEEDS)]
        rows.append(_quartiles("s_k of the squares", tau, "", values))
    for n in SAMPLES:
        for tau in track(LEARNT_TAUS, f"n = {n}"):
            errors = []
            for seed in range(ERROR_SEEDS):
                truth = planar_teacher(tau, seed)
                X, Y = simulate.sample(truth, n, random_state=seed)
                W = learn(ArraySource(X, Y), RELU, as_generator(seed, "atv21-smoothed"), n_hidden=K).network.W
                errors.append(float(np.sqrt(squared_error(W, truth))))
            rows.append(_quartiles("root mean square angle", tau, n, errors))
    return rows


def _quartiles(figure: str, tau: float, n: object, values: list[float]) -> Row:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    named: Row = {"figure": figure, "tau": tau, "n": n, "seeds": len(values)}
    return named | {"lower quartile": float(low), "median": float(middle), "upper quartile": float(high)}


def draw_smoothed(rows: list[dict[str, str]], path: Path) -> None:
    """Draw left s_k against τ, right the error of the units against τ, one line for every n; quartiles shaded."""
    names = ("s_k of the squares", "root mean square angle")
    with picture(path, size=(9, 3.8), ncols=2) as (_, axes):
        for ax, name in zip(axes, names):
            mine = [row for row in rows if row["figure"] == name]
            for n in dict.fromkeys(row["n"] for row in mine):
                line = [row for row in mine if row["n"] == n]
                tau, low, middle, high = (
                    [float(row[key]) for row in line] for key in ("tau", "lower quartile", "median", "upper quartile")
                )
                (drawn,) = ax.plot(tau, middle, marker="o", label=f"n = {int(n):,}" if n else None)
                ax.fill_between(tau, low, high, color=drawn.get_color(), alpha=0.2)
            ax.set(xscale="log", yscale="log", xlabel="size τ of the perturbation")
            ax.set_xticks(tau, [f"{value:g}" for value in tau])
            ax.minorticks_off()
        axes[0].set(ylabel="$s_k(W^{\\odot 2})$, unit rows", title=f"{K} units in a plane of {D} inputs, smoothed")
        axes[1].set(ylabel="root mean square angle of the units", title="what samples make of it")
        axes[1].legend()


EXPERIMENTS = (
    Experiment("atv21-crowded", "[ATV21] with more units than inputs (n = 100,000)", run_crowded),
    Experiment("atv21-smoothed", "[ATV21, §6] Smoothed weights (d = 6, k = 9)", run_smoothed, draw_smoothed),
)
