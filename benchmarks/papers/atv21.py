"""The method of [ATV21] where its assumptions fail: whether a verdict of exact is ever wrong."""

from __future__ import annotations

from collections.abc import Iterator

from neurecover import simulate
from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline import recover
from neurecover.reproduce.atv21 import method_detail, weights_are_right
from neurecover.results import Recovery


def run_wrong_assumptions(track: Track) -> Iterator[Row]:
    """Measure inputs that are not Gaussian, k wrong by two, fifty samples: exact only where the weights are right."""
    inputs = ("laplace", "student(5)", "student(3)", "uniform", "exponential", "rademacher(0.3)")
    cases: dict[str, tuple[int, int, str]] = {name: (20_000, 5, name) for name in inputs}
    cases |= {f"k given as {k}, true 5": (20_000, k, "gaussian") for k in (3, 7)}
    cases["n = 50"] = (50, 5, "gaussian")
    for name, case in cases.items():
        results = [_trial(seed, *case) for seed in track(fresh_seeds(5), name)]
        right = [weights_are_right(result.network, truth) for result, truth in results]
        exact = [result.certificate.verdict == "exact" for result, _ in results]
        yield {
            "case": name,
            "trials": len(results),
            "weights right": sum(right),
            "verdict exact": sum(exact),
            "exact but wrong": sum(e and not r for e, r in zip(exact, right)),
            "required": 0,
            "inputs pass for Gaussian": sum("pass for Gaussian" in method_detail(result) for result, _ in results),
        }


def _trial(seed: int, n: int, k: int, inputs: str) -> tuple[Recovery[Network | DeepNetwork], Network]:
    truth = simulate.teacher(5, 5, random_state=seed)
    X, Y = simulate.sample(truth, n, inputs=inputs, random_state=seed)
    return recover(X, Y, n_hidden=k, method="hermite", random_state=seed, time_budget=60), truth


EXPERIMENTS = (Experiment("atv21-wrong-assumptions", "[ATV21] where its assumptions fail", run_wrong_assumptions),)
