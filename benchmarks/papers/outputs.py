"""What [GKLW19] leaves open: fewer outputs than units, and biases. Symmetric inputs that are not Gaussian.

The paper's method takes p ≥ k outputs, because a combination of outputs has to be a single unit, and no biases, because
E[y x] is then A W/2. Measured is how far its estimate is off as biases grow, and how many samples `recover` takes as p
falls from k to 1, with and without biases, where that estimate does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate, recover
from neurecover.simulate import sample, teacher

D, K, SEEDS = 6, 5, 8
SAMPLES = (40, 60, 80, 120, 180, 270, 400)
SPREADS = (0.0, 0.03, 0.1, 0.3, 1.0)
EXACT = 1e-8  # error of the weights


def run_outputs(track: Track) -> Iterator[Row]:
    """Measure d = 6, k = 5, inputs uniform on a cube, without noise; biases of spread 0.5 or none."""
    for spread in (0.0, 0.5):
        for p in track(range(K, 0, -1), f"fewer outputs, biases of {spread}"):
            for n in SAMPLES:
                right = claimed = wrong = 0
                for seed in fresh_seeds(SEEDS):
                    truth = teacher(D, K, p, bias=spread, random_state=seed)
                    X, Y = sample(truth, n, inputs="uniform", random_state=seed)
                    found = recover(X, Y, K, bias=spread > 0.0, random_state=seed)
                    hit = isinstance(found.network, Network) and compare(found.network, truth).weight_error < EXACT
                    right, claimed = right + hit, claimed + (found.certificate.verdict == "exact")
                    wrong += found.certificate.verdict == "exact" and not hit
                row: Row = {"biases": spread, "p": p, "n": n, "n p over weights": round(n * p / _weights(p, spread), 2)}
                yield row | {"seeds": SEEDS, "right": right, "exact": claimed, "exact but wrong": wrong}


def _weights(p: int, spread: float) -> int:
    return K * (D + p - 1) + (K + p if spread else 0)


def draw_outputs(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the share of networks that come out exactly against equations per weight, a line per p."""
    with picture(path, size=(9, 4), ncols=2, sharey=True) as (_, axes):
        for ax, spread in zip(axes, ("0.0", "0.5")):
            for p in range(K, 0, -1):
                mine = [row for row in rows if row["biases"] == spread and row["p"] == str(p)]
                share = [int(row["right"]) / int(row["seeds"]) for row in mine]
                ax.semilogx([float(row["n"]) for row in mine], share, "o-", label=f"p = {p}")
            ax.set(xlabel="samples n", title="no biases" if spread == "0.0" else f"biases of spread {spread}")
        axes[0].set(ylabel=f"share of exact networks, k = {K}")
        axes[1].legend(fontsize=8)


def run_biases(track: Track) -> Iterator[Row]:
    """Measure the estimate's largest angle at p = k = 5 as biases grow, the median over seeds, and `recover`."""
    for spread in track(SPREADS, "biases"):
        for n in (2_000, 20_000):
            angles: dict[str, list[float]] = {"paper": [], "best": []}
            right = 0
            for seed in fresh_seeds(SEEDS):
                truth = teacher(D, K, K, bias=spread, random_state=seed)
                X, Y = sample(truth, n, inputs="uniform", random_state=seed)
                for form, own in angles.items():
                    found = estimate(X, Y, K, "symmetric", form, bias=False, random_state=seed).network
                    own.append(compare(found, truth).max_angle if isinstance(found, Network) else np.pi / 2)
                found = recover(X, Y, K, random_state=seed).network
                right += isinstance(found, Network) and compare(found, truth).weight_error < EXACT
            row: Row = {"biases": spread, "n": n, "seeds": SEEDS}
            row |= {f"{form}, max angle": f"{np.median(own):.3e}" for form, own in angles.items()}
            yield row | {"recover with biases, right": right}


def draw_biases(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the angle against the biases' spread."""
    with picture(path, size=(6, 4)) as (_, axes):
        for form, style in (("paper", "-"), ("best", "--")):
            for colour, n in enumerate(("2000", "20000")):
                mine = [row for row in rows if row["n"] == n]
                x = [max(float(row["biases"]), 0.01) for row in mine]
                angle = [float(row[f"{form}, max angle"]) for row in mine]
                axes.loglog(x, angle, f"o{style}", color=f"C{colour}", label=f"{form}, n = {n}")
        axes.set(xlabel="spread of the biases (0 at the left edge)", ylabel="largest angle of a unit, rad")
        axes.legend(fontsize=8)


EXPERIMENTS = (
    Experiment(
        "gklw19-outputs", "[GKLW19] Fewer outputs than units, with and without biases", run_outputs, draw_outputs
    ),
    Experiment("gklw19-biases", "[GKLW19] The estimate where units have biases", run_biases, draw_biases),
)
