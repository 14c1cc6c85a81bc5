"""Figures 2 to 4 of [GKLW19]: errors against samples, dimension, label noise and condition numbers, five trials each.

Four forms side by side: Algorithm 3 as printed, the changes that §4 of the paper describes (CP by alternating least
squares of 10k elements with 10 restarts, then W by gradient descent), this package's estimate, and that estimate after
least squares. The paper does not say how its alternating least squares starts: see `tensors.alternating`.
Every point of a picture is a mean over rows of the saved table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from neurecover.algorithms.gklw19.learner import OURS, PAPER, PAPER_IN_PRACTICE, learn
from neurecover.data import ArraySource
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import Network, as_network
from neurecover.reproduce.gklw19_figures import Level, drawing
from neurecover.search.network import fit_network
from neurecover.simulate import sample, teacher
from neurecover.solve import Deadline

TRIALS = 5  # of every point
SETTINGS = {"Algorithm 3": PAPER, "§4 as described": PAPER_IN_PRACTICE, "ours": OURS}
FINISHED = "ours, then least squares"
# What the panels' axes show.
SAMPLES_10 = (300, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
SAMPLES_32 = (2_500, 5_000, 10_000, 20_000)
DIMENSIONS = (10, 16, 24, 32)
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
CONDITIONS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True)
class PaperErrors:
    """The error measures of [GKLW19, §4.1].

    W and A are the sums over paired units of ‖ŵ − w‖² and ‖â − a‖², rows of W and columns of A at unit length; mse is
    the mean squared error over samples and outputs. `per_unit` divides W and A by the number of units and takes the
    root.
    """

    W: float
    A: float
    mse: float
    n_hidden: int

    @property
    def per_unit(self) -> tuple[float, float]:
        """√(error / k) of W and of A: the right panel of Figure 2."""
        return float(np.sqrt(self.W / self.n_hidden)), float(np.sqrt(self.A / self.n_hidden))


def paper_errors(network: Network, truth: Network, X: np.ndarray, Y: np.ndarray) -> PaperErrors:
    """Return the errors against the truth, mse on X and Y; a unit without a partner counts as a vector of zeros."""
    k = truth.n_hidden
    W, A = np.zeros_like(truth.W), np.zeros_like(truth.A)
    partner = compare(network, truth).permutation
    paired = partner >= 0
    W[paired] = network.W[partner[paired]]
    A[:, paired] = network.A[:, partner[paired]]
    return PaperErrors(
        float(np.sum((_unit(W) - _unit(truth.W)) ** 2)),
        float(np.sum((_unit(A.T) - _unit(truth.A.T)) ** 2)),
        float(np.mean((Y - network(X)) ** 2)),
        k,
    )


def orthonormal(size: int, seed: int) -> Network:
    """Draw square W and A at right angles, without biases, as [GKLW19, §4] does."""
    return teacher(size, size, size, kind="orthonormal", bias=0.0, random_state=seed)


def _unit(rows: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norm > 0.0, norm, 1.0)


@dataclass(frozen=True)
class Point:
    """One setting of one panel: x is what the panel's axis shows."""

    panel: str
    x: float
    size: int
    n: int
    inputs: str = "gaussian"
    noise: float = 0.0
    condition_W: float | None = None
    condition_A: float | None = None

    def truth(self, trial: int) -> Network:
        """Draw orthonormal weights, or W or A with the condition number asked for [GKLW19, §4.3]."""
        kind = "orthonormal" if self.condition_W is None else "conditioned"
        # A conditioned W goes with an orthonormal A, which is an A of condition number one.
        output_condition = 1.0 if self.condition_W is not None else self.condition_A
        return teacher(
            self.size,
            self.size,
            self.size,
            kind=kind,
            bias=0.0,
            condition=self.condition_W,
            output_condition=output_condition,
            random_state=trial,
        )


def measure(points: Iterable[Point], track: Track) -> list[Row]:
    """Measure every form on every point, TRIALS times."""
    cells = [(point, trial) for point in points for trial in range(TRIALS)]
    return [row for point, trial in track(cells, "trials") for row in _trial(point, trial)]


def _trial(point: Point, trial: int) -> list[Row]:
    truth = point.truth(trial)
    X, Y = sample(truth, point.n, inputs=point.inputs, noise=point.noise, random_state=trial)
    test = sample(truth, 10_000, inputs=point.inputs, noise=point.noise, random_state=1_000 + trial)
    source = ArraySource(X, Y)
    networks = {}
    for name, settings in SETTINGS.items():
        rng = np.random.default_rng(trial)
        networks[name] = learn(source, point.size, truth.activation, rng, settings)[0].network
    finished = as_network(fit_network(source, networks["ours"], False, Deadline()).student)
    assert isinstance(finished, Network)
    networks[FINISHED] = finished
    rows: list[Row] = []
    for name, network in networks.items():
        errors = paper_errors(network, truth, *test)
        rows.append(
            {
                "panel": point.panel,
                "x": point.x,
                "form": name,
                "trial": trial,
                "size": point.size,
                "n": point.n,
                "inputs": point.inputs,
                "noise": point.noise,
                "variance": float(np.var(test[1], axis=0).mean()),
                "error_W": errors.W,
                "error_A": errors.A,
                "mse": errors.mse,
                "root_error_W": errors.per_unit[0],
                "root_error_A": errors.per_unit[1],
            }
        )
    return rows


def _figure_2(track: Track) -> list[Row]:
    points = [Point("10 × 10", n, 10, n) for n in SAMPLES_10]
    points += [Point("32 × 32", n, 32, n) for n in SAMPLES_32]
    points += [Point("dimension", size, size, 10_000) for size in DIMENSIONS]
    return measure(points, track)


def _figure_3(track: Track) -> list[Row]:
    return measure(
        [Point(inputs, noise, 10, 10_000, inputs, noise) for inputs in ("gaussian", "mixture") for noise in NOISES],
        track,
    )


def _figure_4(track: Track) -> list[Row]:
    of_W = [Point("condition of W", c, 10, 20_000, "mixture", condition_W=c) for c in CONDITIONS]
    of_A = [Point("condition of A", c, 10, 20_000, "mixture", condition_A=c) for c in CONDITIONS]
    return measure(of_W + of_A, track)


EXPERIMENTS = (
    Experiment(
        "gklw19-fig2",
        "[GKLW19, Fig. 2] Errors in W, A and outputs against the number of samples and the dimension",
        _figure_2,
        drawing("training samples", logarithmic=True),
    ),
    Experiment(
        "gklw19-fig3",
        "[GKLW19, Fig. 3] Errors against label noise, 10 × 10, 10,000 samples",
        _figure_3,
        drawing(
            "standard deviation of the label noise",
            logarithmic=False,
            level=Level("σ², what the truth itself leaves", lambda row: float(row["noise"]) ** 2),
        ),
    ),
    Experiment(
        "gklw19-fig4",
        "[GKLW19, Fig. 4] Errors against condition numbers, 10 × 10, 20,000 samples",
        _figure_4,
        drawing(
            "condition number",
            logarithmic=True,
            level=Level("variance of an output", lambda row: float(row["variance"])),
        ),
    ),
)
