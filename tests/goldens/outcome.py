"""From what a case gave to a record of its properties, and from two records to the differences between them.

A record holds what another engine has to reproduce: whether the weights are right, the verdict, every check, the size
of the network. How a figure is compared is written beside it, because it depends on what the figure is:

    exact            counts, which follow from the samples and the size of the network
    within 5 %       properties of the least-squares optimum: standard errors, noise, eigenvalues of the information
    at most limit    rounding, whose digits are those of the processor
    at least limit   distances in units of rounding, likewise
    passed only      what rests on random numbers of a run: held-out rows, random test units, descents
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import neurecover as nr

RELATIVE = 0.05
SHARE = 0.02  # of weights covered or determined: one weight of 60 may lie at the edge of its interval
OWN_SHARE = 0.15  # likewise for other queries: four standard deviations of a share of 41 weights
RIGHT = 1e-8  # error of a weight without noise
COUNTS = ("units", "inputs", "width", "size", "equations", "load", "labels", "columns", "affine part")
OPTIMUM = ("noise", "precision", "strength", "tails", "output digits")
OF_EVERY_RUN = ("units", "inputs", "width", "labels")  # counts that no choice of a run moves
EITHER = ("signs", "kinks")  # a count, or a distance in standard errors
FAR = 100.0  # times the limit, beyond which a distance is one in units of rounding


@dataclass(frozen=True)
class Outcome:
    """What a case gave, and what it should have; `bound` is the weight error up to which it counts as solved.

    X are the inputs that have to be answered where the samples leave weights open. `repeatable` says that every right
    run ends at the same optimum of the same samples; it does not where a run chooses its queries or its model, nor
    where there are several optima.
    """

    network: Any
    truth: Any
    method: str
    certificate: nr.Certificate | None = None
    bound: float = RIGHT
    X: np.ndarray | None = None
    repeatable: bool = True


def of_recovery(
    recovery: nr.Recovery, truth: Any, bound: float = RIGHT, X: np.ndarray | None = None, repeatable: bool = True
) -> Outcome:
    """Wrap the answer of `recover` or `extract` and the network behind it."""
    repeatable &= recovery.n_queries is None
    return Outcome(recovery.network, truth, recovery.method, recovery.certificate, bound, X, repeatable)


def record(outcome: Outcome) -> dict[str, Any]:
    """List the properties of an outcome, as JSON holds them."""
    certificate = outcome.certificate
    errors = _errors(outcome)
    facts: dict[str, Any] = {"solved": bool(errors["weight_error"] <= outcome.bound and errors["paired"])}
    facts |= {"bound": outcome.bound, **{name: _plain(error) for name, error in errors.items()}}
    facts |= {"widths": _widths(outcome.network), "method": outcome.method, "repeatable": outcome.repeatable}
    if certificate is None:
        return facts
    facts["verdict"] = certificate.verdict
    facts["covered"] = _covered(outcome) if certificate.verdict == "statistical" else None
    if outcome.X is not None:
        facts["determined"], right = _determined(outcome)
        answers = np.abs(outcome.network(outcome.X) - outcome.truth(outcome.X)).max()
        facts["answers every row"] = bool(answers <= RIGHT)
        facts["solved"] = bool(right and facts["answers every row"] and facts["determined"] > 0.0)
    facts["checks"] = [_check(check, outcome.repeatable) for check in certificate.checks]
    return facts


def differences(golden: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List where a record is not the golden one, each as a sentence; empty where it is.

    A check that the golden record does not know is no difference: what it decides is in the verdict.
    """
    found = [
        f"{name} was {golden[name]}, is {now.get(name)}"
        for name in ("solved", "verdict", "widths", "method", "paired", "answers every row")
        if name in golden and golden[name] != now.get(name)
    ]
    for name in ("weight_error", "output_weight_error"):
        # Without noise the error is rounding and `solved` has judged it; with noise it is the optimum's own.
        told = golden["repeatable"] and golden.get("covered") is not None
        if told and golden[name] is not None and not (now[name] is not None and _near(golden[name], now[name])):
            found.append(f"{name} was {golden[name]:.3g}, is {now[name]:.3g}")
    for name in ("covered", "determined"):
        before, after = golden.get(name), now.get(name)
        if before is not None and (
            after is None or abs(before - after) > (SHARE if golden["repeatable"] else OWN_SHARE)
        ):
            found.append(f"the share {name} was {before}, is {after}")
    return found + _differing_checks(golden.get("checks", []), now.get("checks", []))


def _differing_checks(golden: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    found, later = [], {name: [c for c in now if c["name"] == name] for name in {c["name"] for c in golden}}
    for check in golden:
        if not later[check["name"]]:
            found.append(f"there is no check {check['name']} any more")
            continue
        other = later[check["name"]].pop(0)
        label = f"check {check['name']} ({check['how']})"
        if check["passed"] != other["passed"]:
            found.append(f"{label} was {_word(check)}, is {_word(other)}: {other['figure']} against {other['limit']}")
        elif not _agree(check, other):
            before, after = ((c["figure"], c["limit"]) for c in (check, other))
            found.append(f"{label} had figure and limit {before}, has {after}")
    return found


def _agree(check: dict[str, Any], other: dict[str, Any]) -> bool:
    figure, limit = other["figure"], other["limit"]
    if check["how"] == "passed only":
        return True
    if figure is None:
        return False
    if check["how"] == "exact":
        return (figure, limit) == (check["figure"], check["limit"])
    if check["how"] == "within 5 %":
        return _near(check["figure"], figure)
    return limit is not None and (figure <= limit if check["how"] == "at most limit" else figure >= limit)


def _check(check: nr.Check, repeatable: bool) -> dict[str, Any]:
    return {
        "name": check.name,
        "passed": bool(check.passed),
        "figure": _plain(check.figure),
        "limit": _plain(check.limit),
        "how": _how(check) if repeatable or check.name in OF_EVERY_RUN else "passed only",
    }


def _how(check: nr.Check) -> str:
    """Choose how the figure of a check is to be compared, by what it is."""
    name, figure, limit = check.name, check.figure, check.limit
    if figure is None or not np.isfinite(figure):
        return "passed only"
    if name in COUNTS or (name in EITHER and float(figure).is_integer()):
        return "exact"
    if name in EITHER:
        return "at least limit" if limit is not None and figure > FAR * limit else "within 5 %"
    if name in ("rounding", "digits"):
        return "at most limit" if check.passed else "passed only"
    if name == "information":
        return "within 5 %" if check.passed else "at most limit"
    return "within 5 %" if name in OPTIMUM else "passed only"


def _errors(outcome: Outcome) -> dict[str, Any]:
    """Compare with the truth: by `compare` where it is a network, by directions where only rows W are known."""
    network, truth = outcome.network, outcome.truth
    if isinstance(truth, np.ndarray):
        W = np.asarray(network if isinstance(network, np.ndarray) else network.W)
        error = _apart(W, truth) if len(W) else np.inf
        return {"weight_error": error, "output_weight_error": None, "paired": len(W) == len(truth)}
    if type(network) is not type(truth) or len(_widths(network)) != len(_widths(truth)):
        return {"weight_error": np.inf, "output_weight_error": np.inf, "paired": False}
    errors = nr.compare(network, truth)
    worst = max(errors.weight_error, errors.bias_error)
    paired = not any(any(layer.unmatched) for layer in errors.layers)
    return {"weight_error": worst, "output_weight_error": errors.output_weight_error, "paired": paired}


def _apart(W: np.ndarray, truth: np.ndarray) -> float:
    """The largest distance between paired directions, either of which may be turned round."""
    W, truth = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (W, truth))
    apart = np.minimum(*(np.linalg.norm(W[:, None] - sign * truth, axis=2) for sign in (1.0, -1.0)))
    return float(apart[linear_sum_assignment(apart)].max())


def _covered(outcome: Outcome) -> float | None:
    """The share of all true weights within 1.96 standard errors of those found; for networks of relu."""
    errors, truth = outcome.certificate.standard_errors, outcome.truth  # type: ignore[union-attr]
    if errors is None or isinstance(truth, np.ndarray) or not _errors(outcome)["paired"]:
        return None
    arrays = [errors[name] for name in errors]
    units = [layer.permutation for layer in nr.compare(outcome.network, truth).layers]
    units.append(np.arange(truth.n_outputs))
    below, within = np.arange(truth.n_inputs), []
    for found, true, spread, own in zip(
        layers_of(outcome.network), layers_of(truth.normal_form()), zip(arrays[::2], arrays[1::2]), units
    ):
        pairs = np.ix_(own, below)
        within += [np.abs(found[0][pairs] - true[0]) <= 1.96 * spread[0][pairs]]
        within += [np.abs(found[1][own] - true[1]) <= 1.96 * spread[1][own]]
        below = own
    return round(float(np.mean(np.concatenate([w.ravel() for w in within]))), 6)


def _determined(outcome: Outcome) -> tuple[float, bool]:
    """The share of hidden weights that the certificate vouches for, and whether all of those are right."""
    mask, right = outcome.certificate.determined, True  # type: ignore[union-attr]
    if mask is None:
        return 0.0, True
    for row, seen in zip(outcome.network.W, mask["W"]):
        if seen.any():
            # A row has unit norm over what is determined of it.
            size = np.linalg.norm(outcome.truth.W[:, seen], axis=1, keepdims=True)
            apart = np.abs(row[seen] - outcome.truth.W[:, seen] / np.maximum(size, 1e-300)).max(axis=1)
            right &= bool(apart.min() <= RIGHT)
    return round(float(np.mean(mask["W"])), 6), right


def layers_of(network: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """The layers of a network of one hidden layer or several, from the inputs up."""
    return [(network.W, network.b), (network.A, network.c)] if isinstance(network, nr.Network) else list(network.layers)


def _widths(network: Any) -> list[int]:
    if isinstance(network, np.ndarray):
        return [len(network)]
    hidden = network.n_hidden
    return list(hidden) if isinstance(hidden, tuple) else [hidden]


def _near(before: float, after: float) -> bool:
    return abs(after - before) <= RELATIVE * abs(before)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if value is None or not np.isfinite(value) else value


def _word(check: dict[str, Any]) -> str:
    return "passed" if check["passed"] else "not passed"
