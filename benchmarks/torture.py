"""How often a verdict was true, on problems that invite a false one (`hostile/`).

A claim is `exact` or `statistical`. It is true when the network has the units of the truth and, unit by unit in normal
form, every weight agrees with it: to 1e-6 of its own scale where the claim is exact, and otherwise within the interval
that the certificate gives it at the level 1 − 1e-4/m, which one of m weights leaves with probability 1e-4 at most.

Where no network is behind the samples, or they do not determine it, every claim is false.

A claim is `excluded` where the certificate itself says what it cannot see, and that is what is wrong: the width was to
be found, units are missing, and on these samples f̂ − f is at the level of rounding or, under noise of variance σ², has
√Σ(f̂ − f)² ≤ σ times the root of the quantile of χ² that projected noise has, one degree of freedom a parameter, and
what the sentence says of a unit that is not seen; no network is behind the samples, and the function that is differs by
no more than that noise; the inputs given are not those that the outputs belong to, or rows were chosen by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from benchmarks import hostile
from benchmarks.hostile import Hostile
from neurecover.experiment import Experiment, Row, Track
from neurecover.inference import intervals
from neurecover.matching import compare
from neurecover.models import Model, Network
from neurecover.models.merging import simplify
from neurecover.pipeline import recover
from neurecover.results import Recovery

SEEDS = range(200, 212)  # on which nothing was chosen; 91 families, the width told or not: 2,184 runs
SECONDS = 2.0  # of the clock for one problem, most of which take a tenth of one
EXACT = 1e-6  # of a weight's own scale: an exact claim beyond it is false
UNSEEN = 1e-12  # of the largest output: what rounding leaves between two networks that agree on the samples
CHANCE = 1e-4  # that a true statistical claim is called false
CLAIMS = ("exact", "statistical")


@dataclass(frozen=True)
class Judgement:
    """A verdict, whether it was true, whether it was false in a way that its own sentence excludes, and how far off.

    `worst` is the largest error of a weight over what it was held against, infinite where the units are not those of
    the truth.
    """

    verdict: str
    true: bool
    excluded: bool
    worst: float

    @property
    def false(self) -> bool:
        return self.verdict in CLAIMS and not self.true and not self.excluded


def attempt(case: Hostile, told: bool, seed: int) -> Recovery[Model]:
    """Recover the network of a hostile problem, with its width told or not."""
    k = case.n_hidden if told else None
    return recover(case.X, case.Y, k, method=case.method, bias=case.bias, random_state=seed, time_budget=SECONDS)


def judge(case: Hostile, recovery: Recovery[Model], told: bool) -> Judgement:
    """Return whether the verdict was true, and how far off the weights are."""
    verdict = recovery.certificate.verdict
    if verdict not in CLAIMS:
        return Judgement(verdict, True, False, 0.0)
    worst = _worst(recovery, case.truth, case.bias)
    unseen = (_unseen_units(case, recovery, told), _within_noise(case, recovery), _named(case, recovery))
    excluded = worst > 1.0 and any(unseen)
    return Judgement(verdict, worst <= 1.0, excluded, worst)


def _unseen_units(case: Hostile, recovery: Recovery[Model], told: bool) -> bool:
    """Tell whether it is the truth on these samples, but for units that its own sentence says may be missing."""
    found, certificate, truth = recovery.network, recovery.certificate, case.truth or case.behind
    warned = any(check.name == "found width" for check in certificate.checks)
    if told or not warned or truth is None or not isinstance(found, Network):
        return False
    if found.n_hidden >= simplify(truth)[0].n_hidden:
        return False
    Y = truth(case.X)
    off = np.sum((found(case.X) - Y) ** 2, axis=0)
    if certificate.verdict == "exact":
        return bool(np.all(np.sqrt(off / len(Y)) <= UNSEEN * np.abs(Y).max(axis=0)))
    size = next(check.figure for check in certificate.checks if check.name == "found width") or 0.0
    return _is_noise(float(off.sum()), recovery, truth.n_parameters, size)


def _within_noise(case: Hostile, recovery: Recovery[Model]) -> bool:
    """Tell whether it is the function behind the samples to within noise, where that function is no network."""
    if case.truth is not None or case.plain is None or recovery.certificate.verdict != "statistical":
        return False
    named = any("a function that differs" in reason for reason in recovery.certificate.reasons)
    off = float(np.sum((recovery.network(case.X) - case.plain) ** 2))
    return named and _is_noise(off, recovery, recovery.network.n_parameters)


def _is_noise(off: float, recovery: Recovery[Model], n_parameters: int, size: float = 0.0) -> bool:
    """Tell whether noise explains Σ(f̂ − f)², beside a unit that adds a root mean square of `size` to an output."""
    certificate = recovery.certificate
    assert certificate.noise_variance is not None
    by_noise = certificate.noise_variance * float(chdtri(n_parameters, CHANCE))
    return bool(np.sqrt(off) <= np.sqrt(by_noise) + size * np.sqrt(certificate.n_samples * recovery.network.n_outputs))


def _named(case: Hostile, recovery: Recovery[Model]) -> bool:
    return bool(case.unseen) and any(case.unseen in reason.lower() for reason in recovery.certificate.reasons)


def _worst(recovery: Recovery[Model], truth: Network | None, bias: bool) -> float:
    """Return the largest error of a weight over its tolerance; infinite where there is no such truth."""
    found, certificate = recovery.network, recovery.certificate
    if truth is None or not isinstance(found, Network):
        return np.inf
    target, _ = simplify(truth)
    if found.n_hidden != target.n_hidden:
        return np.inf
    order = compare(found, target).permutation
    off = {
        "W": found.W[order] - target.W,
        "b": found.b[order] - target.b,
        "A": found.A[:, order] - target.A,
        "C": _line(found) - _line(target),
        "c": found.c - target.c,
    }
    if certificate.verdict == "exact":
        limits = {name: EXACT * size for name, size in _scales(target).items()}
    else:
        errors, freedom = certificate.standard_errors, certificate.freedom
        assert errors is not None
        assert freedom is not None
        level = 1.0 - CHANCE / found.n_parameters
        ends = {name: _reach(errors[name], freedom[name], level) for name in errors}
        limits = {"W": ends["W"][order], "b": ends["b"][order], "A": ends["A"][:, order], "c": ends["c"]}
        limits["C"] = ends.get("C", np.zeros_like(off["C"]))
    # Biases that the caller fixes at zero have no error bar to be wrong with.
    names = ("W", "A", "C") if certificate.verdict == "statistical" and not bias else tuple(off)
    return max(float(np.max(np.abs(off[name]) / np.maximum(limits[name], 1e-300), initial=0.0)) for name in names)


def _reach(errors: np.ndarray, freedom: np.ndarray, level: float) -> np.ndarray:
    """Return half the width of the intervals at a level, for an array of weights."""
    ends = intervals(np.zeros(errors.size), errors.reshape(-1, 1), level, freedom.ravel())
    return np.asarray(ends[:, 1].reshape(errors.shape))


def _line(network: Network) -> np.ndarray:
    return np.zeros((network.n_outputs, network.n_inputs)) if network.C is None else network.C


def _scales(target: Network) -> dict[str, np.ndarray]:
    """Return what an error of each array is relative to: 1 for unit rows, the size of an output for its weights."""
    output = np.linalg.norm(target.A, axis=1)
    b = 1.0 + np.abs(target.b)
    # c balances what the biases make of an output.
    return {
        "W": np.ones_like(target.W),
        "b": b,
        "A": np.tile(output[:, None], target.n_hidden),
        "C": 1.0 + np.abs(_line(target)),
        "c": np.abs(target.c) + np.abs(target.A) @ b,
    }


def _run(track: Track) -> Iterator[Row]:
    for name in track(list(hostile.families()), "families"):
        for told in (True, False):
            judged = []
            for seed in SEEDS:
                case = hostile.draw(name, seed)
                judged.append(judge(case, attempt(case, told, seed), told))
            yield _row(name, told, judged)


def _row(name: str, told: bool, judged: list[Judgement]) -> Row:
    row: Row = {"family": name, "width": "told" if told else "found", "runs": len(judged)}
    for verdict in CLAIMS:
        claims = [one for one in judged if one.verdict == verdict]
        row[verdict] = len(claims)
        row[f"{verdict} and true"] = sum(one.true for one in claims)
        row[f"{verdict} but for what it excludes"] = sum(one.excluded for one in claims)
    row["approximate"] = sum(one.verdict == "approximate" for one in judged)
    row["failed"] = sum(one.verdict == "failed" for one in judged)
    return row


EXPERIMENTS = (Experiment("torture", "Verdicts on hostile problems: how often each was true", _run),)
