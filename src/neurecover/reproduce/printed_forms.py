"""The algorithms of [ATV21], [GKLW19] and [BJW18] as printed, beside the form that is used here: error against n.

Every row is a median over fresh seeds. `angle` is that of the worst unit to the nearest direction found, up to sign,
π/2 where none is; `outputs` is the mean squared error on fresh inputs over the variance, of the network that comes out,
1 where none does, and `networks` counts those that do: Algorithms 3 and 5 of [BJW18] give all units exactly or none.

Algorithms 1 to 4 and 6 of [ATV21] read the samples through means alone, T̂_j = T_j + E_j with E_j Gaussian of a
covariance that falls as 1/n; so do 3 to 6 of [BJW18], but for the few samples of their linear systems. Beyond `DRAWN`
samples the error of the means of that many is shrunk to √(DRAWN/n) of itself, which has the law of the error at n, and
`drawn` is less than n. Algorithm 5 of [ATV21] and 6 of [BJW18] then regress on those drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from neurecover.activations import Activation, get
from neurecover.algorithms.atv21.coefficients import estimate_coefficients
from neurecover.algorithms.atv21.printed import Printed, PrintedOptions, algorithm_5, full_rank, printed_units
from neurecover.algorithms.atv21.steps import Units, algorithm_1, population_coefficients
from neurecover.algorithms.bjw18 import printed as bjw18
from neurecover.algorithms.bjw18.patterns import ExactWeights
from neurecover.algorithms.bjw18.projection import projection_signs
from neurecover.algorithms.gklw19.learner import OURS, PAPER, Settings, learn
from neurecover.data import ArraySource, unwhiten
from neurecover.exceptions import UnsolvableError
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.models import Model, Network
from neurecover.pipeline import estimate
from neurecover.simulate import sample, teacher

SEEDS = 8
DRAWN = 100_000  # the means of so many have errors that are Gaussian


@dataclass(frozen=True, eq=False)
class Task:
    """Samples of a network, as many as were drawn of the n that are meant."""

    X: np.ndarray
    Y: np.ndarray
    n: int
    truth: Network
    seed: int


Answer = tuple[np.ndarray, Model | None]  # directions, and a network if there is one
Run = Callable[[Task], Answer]


@dataclass(frozen=True)
class Line:
    """One algorithm on one family of teachers: the numbers of samples, at most `drawn` of them drawn, and every form's
    run.
    """

    paper: str
    algorithm: str
    truth: Callable[[int], Network]
    sizes: tuple[int, ...]
    forms: dict[str, Run]
    noise: float = 0.0
    inputs: str = "gaussian"
    drawn: int | None = None


def _by_method(method: str, form: str, bias: bool = False) -> Run:
    def run(task: Task) -> Answer:
        X, truth = task.X, task.truth
        found = estimate(X, task.Y, truth.n_hidden, method, form, truth.activation, bias=bias, random_state=task.seed)
        W = found.network.W if isinstance(found.network, Network) else np.zeros((0, X.shape[1]))
        if len(W) == 0 and found.starts:  # an exact method that could not go on has its rough directions
            assert found.whitening is not None
            W = found.starts[0] @ found.whitening.matrix.T
        return W, found.network

    return run


def _atv21(what: str) -> Run:
    """Run Algorithms 4 to 6 of [ATV21] by their public call."""

    def run(task: Task) -> Answer:
        found = estimate(task.X, task.Y, task.truth.n_hidden, "hermite", "paper", random_state=task.seed)
        details, whitening = found.details, found.whitening
        assert isinstance(details, Printed)
        assert whitening is not None
        if what == "algorithm 5":
            return details.units.W @ whitening.matrix.T, found.network
        fixed = details.full_rank
        return details.units.W @ whitening.matrix.T, None if fixed is None else unwhiten(fixed, whitening)

    return run


def _from_means(what: str) -> Run:
    """Run Algorithms 1 to 3, 4 and 6, or 4 and 5 of [ATV21] on means with the errors of n samples."""

    def run(task: Task) -> Answer:
        rng, act, k = np.random.default_rng(task.seed), task.truth.activation, task.truth.n_hidden
        source = ArraySource(task.X, task.Y)
        c = estimate_coefficients(source, 4, rng, regress=-1)
        tensors = {j: T * c.scale[:, None] for j, T in c.tensors.items()}
        if task.n > len(task.X):
            left, true = np.sqrt(len(task.X) / task.n), population_coefficients(task.truth, tuple(tensors))
            tensors = {j: _shrunk(T, true[j], task) for j, T in tensors.items()}
            c = replace(c, errors={j: left * s for j, s in c.errors.items()})
        if what == "1–3":
            try:
                units = algorithm_1(tensors, c.r, 1, act, rng)
            except UnsolvableError:
                return np.zeros((0, c.r)), None
            return units.W, Network(units.W, units.b, units.A, _constant(units, tensors, act), act)
        units = printed_units(c, tensors, 1, act, rng, k, PrintedOptions())
        if len(units.W) == 0:
            return units.W, None
        if what == "5":
            return units.W, algorithm_5(source, units, act, k, PrintedOptions())
        return units.W, full_rank(units, tensors, act, k)

    return run


def _shrunk(estimate: np.ndarray, true: np.ndarray, task: Task) -> np.ndarray:
    """Return the estimate with the errors of n samples in place of those of the samples drawn."""
    return np.asarray(true + np.sqrt(min(len(task.X) / task.n, 1.0)) * (estimate - true))


def _with_threshold(task: Task) -> bjw18.PrintedOptions:
    """Return the options with τ = 1/(4ℓ) up to a million samples, and from there on as small as the errors are."""
    rows = 4 * (task.truth.n_hidden + task.truth.n_inputs)
    return bjw18.PrintedOptions(rows=rows, tau=0.25 / rows * min(1.0, np.sqrt(1e6 / task.n)))


def _exact_answer(exact: ExactWeights) -> Answer:
    return (exact.network.W, exact.network) if exact.exact else (exact.start, None)


def _bjw18_3(task: Task) -> Answer:
    """Run Algorithm 3 of [BJW18] with third cumulants of errors as of n samples."""

    def moments(Q: np.ndarray) -> bjw18.Mixture:
        # Hidden values are independent, each with the central moments of a rectified Gaussian.
        A = np.linalg.lstsq(task.truth.hidden(task.X), Q, rcond=None)[0].T
        m1, m2, m3 = (float(get(f"power({c})").hermite(np.zeros(1), 0)[0, 0]) for c in (1, 2, 3))
        third = np.einsum("ai,bi,ci->abc", A, A, A) * (m3 - 3.0 * m2 * m1 + 2.0 * m1**3)
        seen = bjw18.Mixture.of(Q)
        return bjw18.Mixture(_shrunk(seen.second, (m2 - m1**2) * A @ A.T, task), _shrunk(seen.third, third, task))

    rng, k, act = np.random.default_rng(task.seed), task.truth.n_hidden, task.truth.activation
    return _exact_answer(bjw18.algorithm_3(task.X, task.Y, k, act, rng, _with_threshold(task), moments=moments))


def _bjw18(what: str) -> Run:
    """Run Algorithms 4 and 5, or 6, of [BJW18] with a score tensor of errors as of n samples."""

    def run(task: Task) -> Answer:
        rng, truth, options = np.random.default_rng(task.seed), task.truth, _with_threshold(task)
        act, d, k = truth.activation, truth.n_inputs, truth.n_hidden
        theta, order = rng.standard_normal(truth.n_outputs), bjw18.score_order(truth.activation)
        collapsed = Network(truth.W, None, theta[None] @ truth.A, activation=act)
        true = population_coefficients(collapsed, (order,))[order][0]
        T = _shrunk(bjw18.collapsed_score(task.X, task.Y, theta, order, rng, options), true, task)
        V = bjw18.directions_of_score(T, d, k, order, rng)
        if what == "4, 5":
            return _exact_answer(bjw18.algorithm_5(task.X, task.Y, V, act, rng, options))
        signs = projection_signs(ArraySource(task.X, task.Y), V, act)  # Algorithm 6
        return signs.W, Network(signs.W, None, signs.A, None, act)

    return run


def _constant(units: Units, tensors: dict[int, np.ndarray], activation: Activation) -> np.ndarray:
    """Return the c for which the network has the mean T_0."""
    return np.asarray(tensors[0][:, 0] - units.A @ activation.hermite(units.b, 0)[0])


def _gklw19(settings: Settings) -> Run:
    def run(task: Task) -> Answer:
        source, rng = ArraySource(task.X, task.Y), np.random.default_rng(task.seed)
        network = learn(source, task.truth.n_hidden, task.truth.activation, rng, settings)[0].network
        return network.W, network

    return run


def _single_unit(task: Task) -> Answer:
    """Run [GKLW19, Alg. 1]: w = 2 E[x xᵀ]⁻¹ E[y x]."""
    w = 2.0 * np.linalg.lstsq(task.X.T @ task.X, task.X.T @ task.Y, rcond=None)[0].T
    return w, Network(w, None, np.ones((1, 1)))


def _orthonormal(d: int, k: int, p: int, activation: str = "relu") -> Callable[[int], Network]:
    return lambda seed: teacher(d, k, p, kind="orthonormal", bias=0.0, activation=activation, random_state=seed)


def _with_biases(seed: int) -> Network:
    return teacher(3, 3, random_state=seed)


def _two_units(seed: int) -> Network:
    """Draw two orthogonal units that orders 3 and 4 both show: h₃ = −b φ(b) and h₄ = (b² − 1) φ(b) at |b| = 0.6."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (2, 2))
    W = teacher(2, 2, kind="orthonormal", random_state=seed).W
    return Network(W, 0.6 * signs[0], signs[1:], None)


MOMENTS = replace(PAPER, detector="moments", halve=False)
BEST_HERMITE = _by_method("hermite", "best", bias=True)
LARGE, MIDDLE, SMALL = (10_000, 100_000, 800_000), (1_000, 10_000, 100_000), (500, 2_000, 8_000)
FAR = (10**7, 10**8, 10**9, 10**10, 10**12)
FURTHER = (10**6, 10**7, 10**8, 10**9)
SQUARED = _orthonormal(3, 2, 3, "power(2)")
LINES = (
    # The best form is one for Algorithms 1 to 6.
    Line("ATV21", "1–3", _with_biases, LARGE, {"printed": _from_means("1–3"), "best": BEST_HERMITE}),
    Line("ATV21", "1–3", _with_biases, FAR, {"printed": _from_means("1–3")}, drawn=DRAWN),
    Line("ATV21", "4, 6", _with_biases, LARGE, {"printed": _atv21("algorithm 6")}),
    Line("ATV21", "4, 6", _with_biases, FAR, {"printed": _from_means("4, 6")}, drawn=DRAWN),
    Line("ATV21", "5", _with_biases, LARGE, {"printed": _atv21("algorithm 5")}),
    Line("ATV21", "5", _with_biases, FAR, {"printed": _from_means("5")}, drawn=DRAWN),
    Line("ATV21", "4, 6 (|b| = 0.6)", _two_units, (*LARGE, 3_000_000), {"printed": _atv21("algorithm 6")}),
    Line("ATV21", "4, 6 (|b| = 0.6)", _two_units, FAR, {"printed": _from_means("4, 6")}, drawn=DRAWN),
    Line("GKLW19", "1", lambda s: Network(teacher(6, 1, bias=0.0, random_state=s).W, None, np.ones((1, 1))), MIDDLE,
         {"printed": _single_unit, "best": _gklw19(OURS)}, 0.1, "uniform"),
    Line("GKLW19", "2", _orthonormal(6, 6, 6), MIDDLE, {"printed": _gklw19(MOMENTS), "best": _gklw19(OURS)}),
    Line("GKLW19", "3", _orthonormal(6, 6, 6), MIDDLE, {"printed": _gklw19(PAPER), "best": _gklw19(OURS)}, 0.1),
    Line("GKLW19", "4", _orthonormal(6, 4, 9), MIDDLE, {"printed": _gklw19(PAPER), "best": _gklw19(OURS)}, 0.1),
    Line("BJW18", "3", _orthonormal(4, 4, 6), MIDDLE, {"printed": _bjw18_3, "best": _by_method("exact_ica", "best")}),
    Line("BJW18", "3", _orthonormal(4, 4, 6), FURTHER, {"printed": _bjw18_3}, drawn=DRAWN),
    Line("BJW18", "4, 5 (squared relu)", SQUARED, MIDDLE,
         {"printed": _bjw18("4, 5"), "best": _by_method("exact_tensor", "best")}),
    Line("BJW18", "4, 5 (squared relu)", SQUARED, FURTHER, {"printed": _bjw18("4, 5")}, drawn=DRAWN),
    Line("BJW18", "6 (squared relu)", SQUARED, MIDDLE,
         {"printed": _bjw18("6"), "best": _by_method("noisy_tensor", "best")}, 0.1),
    Line("BJW18", "6 (squared relu)", SQUARED, FURTHER, {"printed": _bjw18("6")}, 0.1, drawn=DRAWN),
    Line("BJW18", "7", lambda s: teacher(4, 4, 2, bias=0.0, random_state=s), SMALL,
         {"printed": _by_method("one_sparse", "paper"), "best": _by_method("one_sparse", "best")}),
    Line("BJW18", "8", _orthonormal(4, 2, 3), SMALL,
         {"printed": _by_method("arbitrary_noise", "paper"), "best": _by_method("arbitrary_noise", "best")}, 0.5),
)  # fmt: skip


def measure(line: Line, n: int, form: str, seeds: range) -> Row:
    """Return the medians over the seeds of one form at one number of samples."""
    angles, outputs, drawn = [], [], min(n, line.drawn or n)
    for seed in seeds:
        truth = line.truth(seed)
        X, Y = sample(truth, drawn, inputs=line.inputs, noise=line.noise, random_state=seed)
        W, network = line.forms[form](Task(X, Y, n, truth, seed))
        angles.append(worst_angle(W, truth))
        fresh, values = sample(truth, 5_000, inputs=line.inputs, random_state=10_000 + seed)
        outputs.append(np.nan if network is None else float(np.mean((network(fresh) - values) ** 2) / values.var()))
    named: Row = {"paper": line.paper, "algorithm": line.algorithm, "form": form, "n": n, "drawn": drawn}
    return named | {
        "noise": line.noise,
        "seeds": len(angles),
        "networks": int(np.isfinite(outputs).sum()),
        "angle of the worst unit, median": f"{np.median(angles):.2e}",
        "error of the outputs, median": f"{np.median(np.nan_to_num(outputs, nan=1.0)):.2e}",
    }


def worst_angle(W: np.ndarray, truth: Network) -> float:
    """Return the largest over the true units of the angle to the nearest row of W, up to sign; π/2 without rows."""
    if len(W) == 0:
        return 0.5 * np.pi
    ours, true = (V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300) for V in (W, truth.W))
    gaps = np.minimum(*(np.linalg.norm(true[:, None] + sign * ours, axis=2) for sign in (1.0, -1.0)))
    return float(2.0 * np.arcsin(np.minimum(gaps.min(axis=1) / 2.0, 1.0)).max())


def _run(track: Track) -> Iterator[Callable[[], Row]]:
    for line in LINES:
        for n in track(line.sizes, f"{line.paper}, Algorithm {line.algorithm}"):
            for form in line.forms:
                yield partial(measure, line, n, form, fresh_seeds(SEEDS))


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
