"""The algorithms of [ATV21], [GKLW19] and [BJW18] as printed, beside the form that is used here: error against n.

Every row is a median over fresh seeds. `angle` is that of the worst unit to the nearest direction found, up to sign,
π/2 where none is; `outputs` is the mean squared error on fresh inputs over the variance, of the network that comes out,
1 where none does. Algorithms 1 to 3 of [ATV21] are made for exact tensors and under errors keep every unit twice: the
directions converge, the output weights do not. Algorithms 3 and 5 of [BJW18] give all units exactly or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from neurecover.algorithms.atv21.coefficients import estimate_coefficients
from neurecover.algorithms.atv21.printed import Printed
from neurecover.algorithms.atv21.steps import algorithm_1
from neurecover.algorithms.gklw19.learner import OURS, PAPER, Settings, learn
from neurecover.data import ArraySource, unwhiten
from neurecover.exceptions import UnsolvableError
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.models import Model, Network
from neurecover.pipeline import estimate
from neurecover.simulate import sample, teacher

SEEDS = 8
Answer = tuple[np.ndarray, Model | None]  # directions, and a network if there is one
Run = Callable[[np.ndarray, np.ndarray, Network, int], Answer]


@dataclass(frozen=True)
class Line:
    """One algorithm on one family of teachers: the numbers of samples and every form's run."""

    paper: str
    algorithm: str
    truth: Callable[[int], Network]
    sizes: tuple[int, ...]
    forms: dict[str, Run]
    noise: float = 0.0
    inputs: str = "gaussian"


def _by_method(method: str, form: str, bias: bool = False) -> Run:
    def run(X: np.ndarray, Y: np.ndarray, truth: Network, seed: int) -> Answer:
        found = estimate(X, Y, truth.n_hidden, method, form, truth.activation, bias=bias, random_state=seed)
        W = found.network.W if isinstance(found.network, Network) else np.zeros((0, X.shape[1]))
        if len(W) == 0 and found.starts:  # an exact method that could not go on has its rough directions
            assert found.whitening is not None
            W = found.starts[0] @ found.whitening.matrix.T
        return W, found.network

    return run


def _atv21(what: str) -> Run:
    def run(X: np.ndarray, Y: np.ndarray, truth: Network, seed: int) -> Answer:
        found = estimate(X, Y, truth.n_hidden, "hermite", "paper", random_state=seed)
        details, whitening = found.details, found.whitening
        assert isinstance(details, Printed)
        assert whitening is not None
        if what == "algorithm 5":
            return details.units.W @ whitening.matrix.T, found.network
        fixed = details.full_rank
        return details.units.W @ whitening.matrix.T, None if fixed is None else unwhiten(fixed, whitening)

    return run


def _without_thresholds(X: np.ndarray, Y: np.ndarray, truth: Network, seed: int) -> Answer:
    """Run Algorithms 1 to 3 of [ATV21], made for exact tensors, on plain means."""
    rng = np.random.default_rng(seed)
    c = estimate_coefficients(ArraySource(X, Y), 4, rng, regress=-1)
    tensors = {j: T * c.scale[:, None] for j, T in c.tensors.items()}
    try:
        units = algorithm_1(tensors, X.shape[1], 1, truth.activation, rng)
    except UnsolvableError:
        return np.zeros((0, X.shape[1])), None
    return units.W, Network(units.W, units.b, units.A, None, truth.activation)


def _gklw19(settings: Settings) -> Run:
    def run(X: np.ndarray, Y: np.ndarray, truth: Network, seed: int) -> Answer:
        network = learn(ArraySource(X, Y), truth.n_hidden, truth.activation, np.random.default_rng(seed), settings)[
            0
        ].network
        return network.W, network

    return run


def _single_unit(X: np.ndarray, Y: np.ndarray, truth: Network, seed: int) -> Answer:
    """Run [GKLW19, Alg. 1]: w = 2 E[x xᵀ]⁻¹ E[y x]."""
    w = 2.0 * np.linalg.lstsq(X.T @ X, X.T @ Y, rcond=None)[0].T
    return w, Network(w, None, np.ones((1, 1)))


def _orthonormal(d: int, k: int, p: int, activation: str = "relu") -> Callable[[int], Network]:
    return lambda seed: teacher(d, k, p, kind="orthonormal", bias=0.0, activation=activation, random_state=seed)


def _with_biases(seed: int) -> Network:
    return teacher(3, 3, random_state=seed)


MOMENTS = replace(PAPER, detector="moments", halve=False)
BEST_HERMITE = _by_method("hermite", "best", bias=True)
LARGE, MIDDLE, SMALL = (10_000, 100_000, 800_000), (1_000, 10_000, 100_000), (500, 2_000, 8_000)
LINES = (
    # The best form is one for Algorithms 1 to 6.
    Line("ATV21", "1–3", _with_biases, LARGE, {"printed": _without_thresholds, "best": BEST_HERMITE}),
    Line("ATV21", "4, 6", _with_biases, LARGE, {"printed": _atv21("algorithm 6")}),
    Line("ATV21", "5", _with_biases, LARGE, {"printed": _atv21("algorithm 5")}),
    Line("GKLW19", "1", lambda s: Network(teacher(6, 1, bias=0.0, random_state=s).W, None, np.ones((1, 1))), MIDDLE,
         {"printed": _single_unit, "best": _gklw19(OURS)}, 0.1, "uniform"),
    Line("GKLW19", "2", _orthonormal(6, 6, 6), MIDDLE, {"printed": _gklw19(MOMENTS), "best": _gklw19(OURS)}),
    Line("GKLW19", "3", _orthonormal(6, 6, 6), MIDDLE, {"printed": _gklw19(PAPER), "best": _gklw19(OURS)}, 0.1),
    Line("GKLW19", "4", _orthonormal(6, 4, 9), MIDDLE, {"printed": _gklw19(PAPER), "best": _gklw19(OURS)}, 0.1),
    Line("BJW18", "3", _orthonormal(4, 4, 6), MIDDLE,
         {"printed": _by_method("exact_ica", "paper"), "best": _by_method("exact_ica", "best")}),
    Line("BJW18", "4, 5 (squared relu)", _orthonormal(3, 2, 3, "power(2)"), MIDDLE,
         {"printed": _by_method("exact_tensor", "paper"), "best": _by_method("exact_tensor", "best")}),
    Line("BJW18", "6 (squared relu)", _orthonormal(3, 2, 3, "power(2)"), MIDDLE,
         {"printed": _by_method("noisy_tensor", "paper"), "best": _by_method("noisy_tensor", "best")}, 0.1),
    Line("BJW18", "7", lambda s: teacher(4, 4, 2, bias=0.0, random_state=s), SMALL,
         {"printed": _by_method("one_sparse", "paper"), "best": _by_method("one_sparse", "best")}),
    Line("BJW18", "8", _orthonormal(4, 2, 3), SMALL,
         {"printed": _by_method("arbitrary_noise", "paper"), "best": _by_method("arbitrary_noise", "best")}, 0.5),
)  # fmt: skip


def measure(line: Line, n: int, form: str, seeds: range) -> Row:
    """Return the medians over the seeds of one form at one number of samples."""
    angles, outputs = [], []
    for seed in seeds:
        truth = line.truth(seed)
        X, Y = sample(truth, n, inputs=line.inputs, noise=line.noise, random_state=seed)
        W, network = line.forms[form](X, Y, truth, seed)
        angles.append(worst_angle(W, truth))
        fresh, values = sample(truth, 5_000, inputs=line.inputs, random_state=10_000 + seed)
        outputs.append(1.0 if network is None else float(np.mean((network(fresh) - values) ** 2) / values.var()))
    named: Row = {"paper": line.paper, "algorithm": line.algorithm, "form": form, "n": n, "noise": line.noise}
    return named | {
        "seeds": len(angles),
        "angle of the worst unit, median": f"{np.median(angles):.2e}",
        "error of the outputs, median": f"{np.median(outputs):.2e}",
    }


def worst_angle(W: np.ndarray, truth: Network) -> float:
    """Return the largest over the true units of the angle to the nearest row of W, up to sign; π/2 without rows."""
    if len(W) == 0:
        return 0.5 * np.pi
    ours, true = (V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300) for V in (W, truth.W))
    gaps = np.minimum(*(np.linalg.norm(true[:, None] + sign * ours, axis=2) for sign in (1.0, -1.0)))
    return float(2.0 * np.arcsin(np.minimum(gaps.min(axis=1) / 2.0, 1.0)).max())


def _run(track: Track) -> Iterator[Row]:
    for line in LINES:
        for n in track(line.sizes, f"{line.paper}, Algorithm {line.algorithm}"):
            for form in line.forms:
                yield measure(line, n, form, fresh_seeds(SEEDS))


def _draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw a panel per paper: a colour per algorithm, a solid line as printed and a dashed one for the best form."""
    papers = list(dict.fromkeys(row["paper"] for row in rows))
    with picture(path, size=(4.6 * len(papers), 4.4), ncols=len(papers), squeeze=False) as (_, axes):
        for ax, paper in zip(axes[0], papers):
            mine = [row for row in rows if row["paper"] == paper]
            for number, algorithm in enumerate(dict.fromkeys(row["algorithm"] for row in mine)):
                for form, style in (("printed", "-"), ("best", "--")):
                    own = [row for row in mine if (row["algorithm"], row["form"]) == (algorithm, form)]
                    n = [float(row["n"]) for row in own]
                    angle = [max(float(row["angle of the worst unit, median"]), 1e-16) for row in own]
                    label = f"Algorithm {algorithm}" if form == "printed" else None
                    ax.plot(n, angle, style, marker=".", color=f"C{number}", label=label)
            ax.set(xscale="log", yscale="log", xlabel="samples", title=paper)
            ax.grid(alpha=0.3)
            ax.legend(fontsize=8, title="solid: printed, dashed: best", title_fontsize=8)
        axes[0][0].set(ylabel="angle of the worst unit")


EXPERIMENTS = (Experiment("printed-forms", "The papers' algorithms as printed, and as used here", _run, _draw),)
