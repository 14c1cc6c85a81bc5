"""The methods of [BJW18] without noise: how often they are exact, from how many samples, and what hard data do."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from neurecover.algorithms import methods
from neurecover.algorithms.bjw18.enumeration import sign_patterns
from neurecover.algorithms.bjw18.from_symmetric import exact_symmetric
from neurecover.algorithms.bjw18.ica import exact_ica
from neurecover.algorithms.bjw18.parallel import one_sparse
from neurecover.algorithms.bjw18.patterns import ExactWeights, exact_weights
from neurecover.algorithms.bjw18.tensor import exact_tensor
from neurecover.data import ArraySource
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import recover
from neurecover.random import as_generator
from neurecover.simulate import Gaussian, Uniform, sample, teacher
from neurecover.simulate.hard import decode, encode, planted_formula, separability_samples, unsatisfiable_formula

D = K = P = 10
N = 5_000
CONDITION = 30.0  # the most of W and of A: errors grow with it
BOUND = 1e-11  # weight error of an exact answer: rounding, times the square of the condition
ROTATION = 0.05  # radians by which a start is off
NEVER = float("inf")  # the error of an answer that does not call itself exact


def conditioned_teacher(seed: int, activation: str = "relu") -> Network:
    """Draw d = k = p = 10, Gaussian rows and unit columns, both of condition at most 30, by rejection."""
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
    """Return unit rows at that angle to the rows of W, in random directions and with random signs."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    aside = rng.standard_normal(W.shape)
    aside -= np.sum(aside * unit, axis=1, keepdims=True) * unit
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    signs = rng.choice([-1.0, 1.0], (len(W), 1))
    return signs * (np.cos(angle) * unit + np.sin(angle) * aside)


def exact_error(exact: ExactWeights, truth: Network) -> float:
    """Return the weight error of an exact answer, NEVER of any other."""
    return compare(exact.network, truth).weight_error if exact.exact else NEVER


def _tensor_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    X, Y = sample(net, N, random_state=seed)
    return exact_error(exact_tensor(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)), net)


def _rotated_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    X, Y = sample(net, N, random_state=seed)
    return exact_error(
        exact_weights(X, Y, rotated(net.W, ROTATION, as_generator(seed, "bjw18.rotation")), net.activation), net
    )


def _power_trial(seed: int, c: int) -> float:
    net = conditioned_teacher(seed, f"power({c})")
    X, Y = sample(net, N, random_state=seed)
    return exact_error(exact_tensor(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)), net)


def _covariance_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    X, Y = sample(net, N, inputs=Gaussian(0.0, (turn * np.geomspace(1.0, 100.0, D)) @ turn.T), random_state=seed)
    return exact_error(exact_tensor(ArraySource(X, Y), K, net.activation, rng), net)


def _ica_trial(seed: int) -> float:
    net = teacher(D, K, P + 4, kind="orthonormal", bias=0.0, random_state=seed)
    X, Y = sample(net, N, random_state=seed)
    return exact_error(exact_ica(X, Y, K, net.activation, np.random.default_rng(seed)), net)


def _from_trial(seed: int) -> float:
    net = conditioned_teacher(seed)
    X, Y = sample(net, N, inputs=Uniform(), random_state=seed)
    return exact_error(exact_symmetric(X, Y, K, np.random.default_rng(seed)), net)


# What one trial is, how many there are, and how many have to be exact.
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


def pattern_inputs(kind: str, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Draw inputs that are uniform, integer, or repeated: uniform ones, each twice."""
    if kind == "uniform":
        return rng.uniform(-1.0, 1.0, (n, d))
    if kind == "integer":
        return rng.integers(-3, 4, (n, d)).astype(float)
    return np.repeat(rng.uniform(-1.0, 1.0, (n // 2, d)), 2, axis=0)


def _determined(kind: str, seed: int) -> tuple[Network, np.ndarray]:
    """Draw two units in three dimensions and 30 inputs, such that each unit is on at three independent ones or more.

    With fewer nothing determines its weights, and `PatternSearch.unique` says so.
    """
    for attempt in range(1_000):
        net = teacher(3, 2, 2, bias=0.0, random_state=1_000 * seed + attempt)
        X = pattern_inputs(kind, as_generator(1_000 * seed + attempt, "bjw18.patterns"), 30, 3)
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
    """Find for every teacher the least n of a doubling sequence from which on all larger ones are exact."""
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


def _run_hard(track: Track) -> list[Row]:
    """Make round trips over planted formulas; then ask every method of the registry for unsatisfiable ones."""
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


EXPERIMENTS = (
    Experiment("bjw18-exact", "Exact weights from sparsity patterns, weight error at most 1e-11", _run_exact),
    Experiment("bjw18-patterns", "Sign patterns: two units, 30 samples of any inputs", _run_patterns),
    Experiment("bjw18-one-sparse", "Four units, two outputs: samples needed", _run_one_sparse),
    Experiment("bjw18-hard", "Reversible 6-SAT as samples of two units", _run_hard),
)
