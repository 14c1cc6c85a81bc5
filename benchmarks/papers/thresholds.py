"""What [GP18] leaves open: high thresholds at a higher layer alone, or at all layers, with noise and smooth layers.

The paper's moments need rare activity of the first layer. Networks of 5 inputs, 3 units, 2 units and one output have
thresholds at the first layer alone (as in the paper), at the second alone, at both, or at none. The lowest layer is
found by `recover_lowest_layer` and, where both layers are ReLU, all layers at once by `recover(depth=2)`, which needs
no thresholds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.matching import compare
from neurecover.models import Composite, DeepNetwork, Model
from neurecover.pipeline import recover, recover_lowest_layer
from neurecover.random import as_generator
from neurecover.results import Recovery
from neurecover.simulate import matrices

D, WIDTHS, N, SEEDS = 5, (3, 2), 10_000, 2
HIGH, RARE = 1.0, 0.15  # threshold of the first layer; share of the samples at which a unit of the second is on
PLACES = {"none": (0.0, False), "first": (HIGH, False), "second": (0.0, True), "both": (HIGH, True)}
SEEN = 0.1  # share of the samples with an active unit below, at which a second unit without a threshold is on, and off
FOUND = 0.02  # angle of a layer that counts as found
LIMIT = 60.0  # seconds of a run, for what is not found ends late


def draw_teacher(place: str, above: str, seed: int) -> Composite:
    """Draw a network whose second layer is on at rest and switches, or is on in a share `RARE` of the samples.

    Weights have either sign where the layer is on at rest, and are positive where it is not: what lowers a unit that is
    off is not seen.
    """
    first, rare = PLACES[place]
    rng = as_generator(seed, "gp18-places")
    A = rng.choice([-1.0, 1.0], (1, WIDTHS[1])) * rng.uniform(0.5, 1.5, (1, WIDTHS[1]))
    while True:
        B = rng.uniform(0.3, 1.5, WIDTHS[::-1]) * (1.0 if rare else rng.choice([-1.0, 1.0], WIDTHS[::-1]))
        W = matrices.unit_rows(rng, WIDTHS[0], D)
        H = np.maximum(rng.standard_normal((20_000, D)) @ W.T - first, 0.0)
        Z = H @ B.T
        b = -np.quantile(Z, 1.0 - RARE, axis=0) if rare else rng.uniform(0.05, 0.4, WIDTHS[1])
        on = np.mean((Z + b)[H.any(axis=1)] > 0.0, axis=0)
        if rare or (on.min() > SEEN and on.max() < 1.0 - SEEN):
            return Composite(W, first, DeepNetwork([(B, b), (A, None)], above), "relu")


def ways(above: str) -> dict[str, Callable[[np.ndarray, np.ndarray, int], Recovery[Model]]]:
    """Return the calls that apply, by name."""

    def lowest(X: np.ndarray, Y: np.ndarray, seed: int) -> Recovery[Model]:
        return recover_lowest_layer(
            X,
            Y,
            WIDTHS[0],
            upper="network",
            n_upper=WIDTHS[1],
            upper_activation=above,
            random_state=seed,
            time_budget=LIMIT,
        )

    def whole(X: np.ndarray, Y: np.ndarray, seed: int) -> Recovery[Model]:
        return recover(X, Y, WIDTHS, depth=2, random_state=seed, time_budget=LIMIT)

    return {"lowest layer": lowest} | ({"all layers": whole} if above == "relu" else {})


def run_thresholds(track: Track) -> Iterator[Row]:
    """Measure n = 10,000 Gaussian inputs; a layer is found where its largest angle is below 0.02."""
    for above in ("relu", "softplus"):
        for noise in (0.0, 0.02):
            for place in track(PLACES, f"thresholds, {above} above, noise {noise}"):
                for way, run in ways(above).items():
                    yield _row(place, above, noise, way, run)


def _row(
    place: str, above: str, noise: float, way: str, run: Callable[[np.ndarray, np.ndarray, int], Recovery[Model]]
) -> Row:
    angles, verdicts, began = [], [], time.process_time()
    for seed in fresh_seeds(SEEDS):
        truth = draw_teacher(place, above, seed)
        rng = np.random.default_rng([seed, 1])
        X = rng.standard_normal((N, D))
        Y = truth(X)
        found = run(X, Y + noise * Y.std() * rng.standard_normal(Y.shape), seed)
        angles.append(_angles(found, truth))
        verdicts.append(found.certificate.verdict)
    first, second = np.transpose(angles)
    row: Row = {"thresholds": place, "second layer": above, "noise": noise, "method": way, "seeds": SEEDS}
    row |= {"first layer found": int(np.sum(first < FOUND)), "second layer found": int(np.sum(second < FOUND))}
    sure = [verdict in ("exact", "statistical") for verdict in verdicts]
    row |= {"claimed": sum(sure), "claimed but wrong": int(np.sum(np.array(sure) & (np.maximum(first, second) > 0.1)))}
    row |= {"first layer, median angle": f"{np.median(first):.2e}"}
    return row | {"CPU seconds": round((time.process_time() - began) / SEEDS, 1)}


def _angles(found: Recovery[Model], truth: Composite) -> tuple[float, float]:
    network = found.network
    if not isinstance(network, Composite | DeepNetwork):
        return np.pi, np.pi
    assert isinstance(truth.upper, DeepNetwork)
    whole = DeepNetwork([(truth.W, -truth.threshold), *truth.upper.layers], "relu")
    try:
        layers = compare(network, truth if isinstance(network, Composite) else whole).layers
    except ValueError:  # a network of other layers
        return np.pi, np.pi
    return tuple([*(layer.max_angle for layer in layers), np.pi][:2])  # type: ignore[return-value]


def draw_thresholds(rows: list[dict[str, str]], path: Path) -> None:
    """Draw how many first and second layers are found, a group of bars per place of the thresholds."""
    settings = list(dict.fromkeys((row["second layer"], row["noise"], row["method"]) for row in rows))
    with picture(path, size=(9, 4), ncols=2, sharey=True) as (_, axes):
        for ax, layer in zip(axes, ("first", "second")):
            for i, setting in enumerate(settings):
                mine = [row for row in rows if (row["second layer"], row["noise"], row["method"]) == setting]
                share = [int(row[f"{layer} layer found"]) / int(row["seeds"]) for row in mine]
                ax.bar(
                    np.arange(len(mine)) + 0.13 * i,
                    share,
                    0.12,
                    label=f"{setting[2]}, {setting[0]}, noise {setting[1]}",
                )
            ax.set(xticks=np.arange(len(PLACES)) + 0.3, xticklabels=list(PLACES), title=f"{layer} layer")
            ax.set(xlabel="layer with high thresholds")
        axes[0].set(ylabel="share of networks found")
        axes[1].legend(fontsize=7)


EXPERIMENTS = (
    Experiment("gp18-places", "[GP18] High thresholds at one layer, both or none", run_thresholds, draw_thresholds),
)
