"""The figures of [BJW18]'s methods: how often they are exact, how fast noise averages out, what hard data do to
them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from neurecover.algorithms import methods
from neurecover.algorithms.bjw18.corruption import sparse_noise
from neurecover.algorithms.bjw18.enumeration import sign_patterns
from neurecover.algorithms.bjw18.from_symmetric import exact_symmetric
from neurecover.algorithms.bjw18.guesses import arbitrary_noise
from neurecover.algorithms.bjw18.ica import exact_ica
from neurecover.algorithms.bjw18.parallel import one_sparse
from neurecover.algorithms.bjw18.patterns import ExactWeights, exact_weights
from neurecover.algorithms.bjw18.projection import noisy_tensor
from neurecover.algorithms.bjw18.tensor import exact_tensor
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.experiments.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import recover
from neurecover.random import as_generator
from neurecover.simulate import Gaussian, SparseGross, Uniform, sample, teacher
from neurecover.simulate.hard import decode, encode, planted_formula, separability_samples, unsatisfiable_formula

D = K = P = 10
N = 5_000
CONDITION = 30.0
BOUND = 1e-11
ROTATION = 0.05
NEVER = float("inf")


def conditioned_teacher(seed: int, activation: str = "relu") -> Network:
    """d = k = p = 10, Gaussian rows and unit columns, both of condition at most 30, by rejection."""
    for attempt in range(10_000):
        net = teacher(
            D,
            K,
            P,
            kind="gaussian",
            bias=0.0,
            activation=activation,
            random_state=10_000 * seed + attempt,
        )
        if max(np.linalg.cond(net.W), np.linalg.cond(net.A)) <= CONDITION:
            return net
    raise RuntimeError(f"No teacher of condition {CONDITION:g} in 10,000 draws.")


def rotated(W: np.ndarray, angle: float, rng: np.random.Generator) -> np.ndarray:
    """Unit rows at that angle to the rows of W, in random directions and with random signs."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    aside = rng.standard_normal(W.shape)
    aside -= np.sum(aside * unit, axis=1, keepdims=True) * unit
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    signs = rng.choice([-1.0, 1.0], (len(W), 1))
    return signs * (np.cos(angle) * unit + np.sin(angle) * aside)


def _error(exact: ExactWeights, truth: Network) -> float:
    return compare(exact.network, truth).weight_error if exact.exact else NEVER


def _tensor_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    X, Y = sample(net, N, random_state=seed)
    return _error(exact_tensor(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)), net)


def _rotated_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    X, Y = sample(net, N, random_state=seed)
    return _error(
        exact_weights(X, Y, rotated(net.W, ROTATION, as_generator(seed, "bjw18.rotation")), net.activation), net
    )


def _power_trial(seed: int, c: int) -> float:
    net = conditioned_teacher(seed, f"power({c})")
    X, Y = sample(net, N, random_state=seed)
    return _error(exact_tensor(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)), net)


def _covariance_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    X, Y = sample(net, N, inputs=Gaussian(0.0, (turn * np.geomspace(1.0, 100.0, D)) @ turn.T), random_state=seed)
    return _error(exact_tensor(ArraySource(X, Y), K, net.activation, rng), net)


def _ica_trial(seed: int) -> float:
    net = teacher(D, K, P + 4, kind="orthonormal", bias=0.0, random_state=seed)
    X, Y = sample(net, N, random_state=seed)
    return _error(exact_ica(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)), net)


def _from_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    X, Y = sample(net, N, inputs=Uniform(), random_state=seed)
    return _error(exact_symmetric(ArraySource(X, Y), K, np.random.default_rng(seed)), net)


EXACT_TRIALS: dict[str, tuple[Callable[[int], float], int, int]] = {
    "exact_tensor": (_tensor_trial, 50, 49),
    "start rotated by 0.05 rad, no refinement": (_rotated_trial, 50, 49),
    "exact_tensor, z² on z > 0": (lambda seed: _power_trial(seed, 2), 20, 19),
    "exact_tensor, z³ on z > 0": (lambda seed: _power_trial(seed, 3), 20, 19),
    "exact_tensor, covariance of condition 100": (_covariance_trial, 20, 19),
    "exact_ica, orthonormal W, p = 14": (_ica_trial, 20, 19),
    "exact_symmetric, uniform inputs": (_from_trial, 20, 19),
}


def _run_exact(track: Track) -> list[Row]:
    rows: list[Row] = []
    for name, (trial, trials, required) in EXACT_TRIALS.items():
        began = time.perf_counter()
        errors = np.array([trial(seed) for seed in track(range(trials), name)])
        rows.append(
            {
                "setting": name,
                "trials": trials,
                "bound": BOUND,
                "required": required,
                "reached": int(np.count_nonzero(errors <= BOUND)),
                "median_error": float(np.median(errors)),
                "largest_error": float(errors.max()),
                "seconds_per_trial": round((time.perf_counter() - began) / trials, 3),
            }
        )
    return rows


NOISE, NOISY_N, NOISY_TRIALS = 0.5, 20_000, 50
SLOPE_SIZES = (5_000, 20_000, 80_000, 320_000)
SLOPE_TRIALS = 10


def _noisy_error(seed: int, n: int) -> tuple[float, bool]:
    net = conditioned_teacher(seed)
    X, Y = sample(net, n, noise=NOISE, random_state=seed)
    found = noisy_tensor(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)).network
    errors = compare(found, net)
    # A wrong sign puts a unit at distance about 2 from its own.
    return errors.weight_error, errors.weight_error < 1.0


def _run_noisy(track: Track) -> list[Row]:
    right = [_noisy_error(seed, NOISY_N)[1] for seed in track(range(NOISY_TRIALS), "signs")]
    rows: list[Row] = [
        {"figure": "signs all right", "n": NOISY_N, "trials": NOISY_TRIALS, "required": ">= 49", "measured": sum(right)}
    ]
    medians = []
    for n in track(SLOPE_SIZES, "sizes"):
        medians.append(float(np.median([_noisy_error(seed, n)[0] for seed in range(SLOPE_TRIALS)])))
        rows.append(
            {"figure": "median weight error", "n": n, "trials": SLOPE_TRIALS, "required": "", "measured": medians[-1]}
        )
    slope = float(np.polyfit(np.log(SLOPE_SIZES), np.log(medians), 1)[0])
    rows.append(
        {
            "figure": "slope of log error in log n",
            "n": "",
            "trials": "",
            "required": "-0.6 to -0.45",
            "measured": round(slope, 3),
        }
    )
    return rows


def _pattern_inputs(kind: str, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    if kind == "uniform":
        return rng.uniform(-1.0, 1.0, (n, d))
    if kind == "integer":
        return rng.integers(-3, 4, (n, d)).astype(float)
    return np.repeat(rng.uniform(-1.0, 1.0, (n // 2, d)), 2, axis=0)


def _determined(kind: str, seed: int) -> tuple[Network, np.ndarray]:
    """Two units in three dimensions and 30 inputs, such that each unit is on at three independent ones or more.

    With fewer nothing determines its weights, and `PatternSearch.unique` says so.
    """
    for attempt in range(1_000):
        net = teacher(3, 2, 2, bias=0.0, random_state=1_000 * seed + attempt)
        X = _pattern_inputs(kind, as_generator(1_000 * seed + attempt, "bjw18.patterns"), 30, 3)
        if all(np.linalg.matrix_rank(X[X @ w > 0.0]) == 3 for w in net.W):
            return net, X
    raise RuntimeError("No such instance in 1,000 draws.")


def _run_patterns(track: Track) -> list[Row]:
    rows: list[Row] = []
    for kind in ("uniform", "integer", "repeated"):
        errors, patterns = [], []
        for seed in track(range(20), kind):
            net, X = _determined(kind, seed)
            search = sign_patterns(X, net(X), 2)
            errors.append(compare(search.network, net).weight_error if search.exact else NEVER)
            patterns.append(search.n_patterns)
        rows.append(
            {
                "inputs": kind,
                "trials": 20,
                "required": 20,
                "reached": int(np.count_nonzero(np.array(errors) <= BOUND)),
                "largest_error": max(errors),
                "most_patterns": max(patterns),
            }
        )
    return rows


ONE_SPARSE_SIZES = (50, 100, 200, 400, 800, 1_600, 3_200)


def _one_sparse_teacher(seed: int, opposite: bool) -> Network:
    net = teacher(6, 4, 2, bias=0.0, random_state=seed)
    if not opposite:
        return net
    A = net.A.copy()
    A[:, 1] = -1.3 * A[:, 0]
    return Network(net.W, None, A)


def _run_one_sparse(track: Track) -> list[Row]:
    """For every teacher the least n of a doubling sequence from which on all larger ones are exact."""
    rows: list[Row] = []
    for opposite, required in ((False, 19), (True, 17)):
        needed, kappas, reached = [], [], 0
        for seed in track(range(20), "with a pair u, -u" if opposite else "general columns"):
            net = _one_sparse_teacher(seed, opposite)
            exact = []
            for n in ONE_SPARSE_SIZES:
                X, Y = sample(net, n, random_state=seed)
                found = one_sparse(X, Y, 4, np.random.default_rng(seed))
                exact.append(found.exact and compare(found.network, net).weight_error <= BOUND)
            reached += exact[-1]
            last_failure = max((i for i, ok in enumerate(exact) if not ok), default=-1)
            needed.append(ONE_SPARSE_SIZES[last_failure + 1] if last_failure + 1 < len(exact) else NEVER)
            kappas.append(np.linalg.cond(net.W))
        rows.append(
            {
                "columns": "with a pair u, -u" if opposite else "general",
                "trials": 20,
                "required": required,
                f"reached_at_{ONE_SPARSE_SIZES[-1]}": reached,
                "median_samples_needed": float(np.median(needed)),
                "most_samples_needed": max(needed),
                "median_kappa": float(np.median(kappas)),
                "median_kappa^k": float(np.median(np.array(kappas) ** 4)),
                "largest_kappa^k": max(kappas) ** 4,
            }
        )
    return rows


# Outputs and share of wrong entries, with how many of 20 must be exact with the mask right.
GROSS_ERRORS = ((60, 0.05, 19), (30, 0.1, 18), (12, 0.05, 18), (30, 0.2, 18), (12, 0.1, 18), (12, 0.2, 18))


def _run_sparse_noise(track: Track) -> list[Row]:
    rows: list[Row] = []
    for p, share, required in GROSS_ERRORS:
        masks, errors = [], []
        began = time.process_time()
        for seed in track(fresh_seeds(20), f"{p} outputs, {share:.0%} wrong"):
            net = teacher(8, 5, p, kind="gaussian", bias=0.0, random_state=seed)
            X, Y = sample(net, 2_000, noise=SparseGross(share, 100.0), random_state=seed)
            try:
                found = sparse_noise(ArraySource(X, Y), None, net.activation, np.random.default_rng(seed))
            except UnsolvableError:
                masks.append(False)
                errors.append(NEVER)
                continue
            masks.append(np.array_equal(found.mask, np.abs(Y - net(X)) > 50.0))
            errors.append(_error(found.exact, net))
        right = np.array(masks) & (np.array(errors) <= 1e-8)
        rows.append(
            {
                "outputs": p,
                "wrong": share,
                "trials": 20,
                "required": required,
                "reached": int(right.sum()),
                "masks_right": sum(masks),
                "largest_error": max(errors),
                "cpu_seconds_per_trial": round((time.process_time() - began) / 20, 2),
            }
        )
    return rows


def fixed_noises(Y: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Noise chosen without sight of the inputs, each of the Frobenius norm of Y."""
    n, p = Y.shape
    spikes = np.zeros_like(Y)
    hit = rng.choice(n, n // 100, replace=False)
    spikes[hit] = rng.choice([-1.0, 1.0], (len(hit), p))
    shapes = {
        "constant offset": np.tile(rng.standard_normal(p), (n, 1)),
        "spikes in 1 % of the samples": spikes,
        "a wave of rank one": np.outer(np.sin(np.arange(n)), rng.standard_normal(p)),
        "bursts of 50 samples": np.repeat(rng.standard_normal((n // 50 + 1, p)), 50, axis=0)[:n],
        "one output only": np.outer(rng.standard_normal(n), np.eye(p)[0]),
    }
    for name, E in shapes.items():
        yield name, E * (np.linalg.norm(Y) / np.linalg.norm(E))


def _run_arbitrary(track: Track) -> list[Row]:
    worst: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for k in (1, 2):
        for seed in track(range(10), f"k = {k}"):
            rng = np.random.default_rng(seed)
            net = teacher(6, k, 4, bias=0.0, random_state=seed)
            X, Y = sample(net, 4_000, random_state=seed)
            for name, E in fixed_noises(Y, rng):
                began = time.perf_counter()
                ratio = arbitrary_noise(X, Y + E, k, rng).residual / float(np.linalg.norm(E))
                worst.setdefault((k, name), []).append((ratio, time.perf_counter() - began))
    return [
        {
            "k": k,
            "noise": name,
            "trials": len(figures),
            "required": "<= 1.1",
            "largest_ratio": round(max(r for r, _ in figures), 4),
            "largest_seconds": round(max(s for _, s in figures), 2),
        }
        for (k, name), figures in worst.items()
    ]


def _run_hard(track: Track) -> list[Row]:
    """Round trips over planted formulas; then what every method of the registry says of unsatisfiable ones."""
    returned = zero = 0
    for seed in track(range(200), "planted formulas"):
        formula, assignment = planted_formula(6 + seed % 15, 10 + seed, random_state=seed)
        X, Y = separability_samples(formula)
        net = encode(assignment)
        zero += not np.any(net(X) - Y)
        answer = decode(net)
        returned += np.array_equal(answer, assignment) and formula.satisfied(answer)
    rows: list[Row] = [
        {"figure": "encoded weights of residual zero", "required": "200 of 200", "measured": f"{zero} of 200"},
        {"figure": "decoded back to the assignment", "required": "200 of 200", "measured": f"{returned} of 200"},
    ]
    for method in (method.name for method in methods() if method.finds == "network"):
        verdicts = []
        for seed in track(range(5), f"unsatisfiable, {method}"):
            formula = unsatisfiable_formula(8, 10, random_state=seed)
            assert len(formula.solutions()) == 0
            X, Y = separability_samples(formula)
            r = recover(X, Y, n_hidden=2, method=method, bias=False, random_state=seed, time_budget=10.0)
            verdicts.append(r.certificate.verdict)
        rows.append(
            {
                "figure": f"unsatisfiable, verdicts of {method}",
                "required": "no exact",
                "measured": ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))),
            }
        )
    return rows


BJW18_EXACT = Experiment("bjw18-exact", "Exact weights from sparsity patterns, weight error at most 1e-11", _run_exact)
BJW18_NOISY = Experiment("bjw18-noisy", "Signs by projection and the rate in n, noise 0.5", _run_noisy)
BJW18_PATTERNS = Experiment("bjw18-patterns", "Sign patterns: two units, 30 samples of any inputs", _run_patterns)
BJW18_ONE_SPARSE = Experiment("bjw18-one-sparse", "Four units, two outputs: samples needed", _run_one_sparse)
BJW18_SPARSE_NOISE = Experiment(
    "bjw18-sparse-noise", "Five units, 5 to 20 % of the entries off by 100: mask and weights", _run_sparse_noise
)
BJW18_ARBITRARY = Experiment(
    "bjw18-arbitrary", "Residual over the norm of fixed noise of the signal's size", _run_arbitrary
)
BJW18_HARD = Experiment("bjw18-hard", "Reversible 6-SAT as samples of two units", _run_hard)

EXPERIMENTS = (
    BJW18_EXACT,
    BJW18_NOISY,
    BJW18_PATTERNS,
    BJW18_ONE_SPARSE,
    BJW18_SPARSE_NOISE,
    BJW18_ARBITRARY,
    BJW18_HARD,
)
