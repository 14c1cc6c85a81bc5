"""The same data, score and threads for the finisher and for what one would otherwise pick.

Every competitor gets the same wall time per data set, starts anew until it is used up, and stops at the first
success: every unit found with weight error below 1e-6, judged by `compare`. Students of twice the width are pruned to
k units by the same least-squares elimination that the finisher uses, once they fit to a relative residual of 1e-3,
and then trained on at width k. Adam's learning rate is the one of 1e-1, 1e-2, 1e-3 that fits another data set best in
a trial of TRIAL seconds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.finisher import PROBLEMS
from neurecover.data import ArraySource
from neurecover.experiment import Experiment, Row, Track, picture
from neurecover.fit import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network, as_network, as_student
from neurecover.pipeline import recover
from neurecover.search.units import most_useful

SEEDS = 20  # data sets
SECONDS = 15.0  # wall time of a competitor on one of them
SOLVED = 1e-6  # weight error
BUDGETS = (0.5, 2.0, 5.0, SECONDS)  # the first is what the finisher is allowed on this problem
RATES = (1e-1, 1e-2, 1e-3)  # among which Adam's is chosen
TRIAL = 4.0  # seconds for each of them
PROBLEM = PROBLEMS[0]

Fit = Callable[[np.ndarray, np.ndarray, int, int, float], Iterator[Network | DeepNetwork]]


def _ours(X: np.ndarray, Y: np.ndarray, width: int, seed: int, seconds: float) -> Iterator[Network | DeepNetwork]:
    yield recover(X, Y, width, random_state=seed, time_budget=seconds).network


def _torch(optimiser: str, factor: int, rate: float = 0.0) -> Fit:
    """Train on all samples in double precision from PyTorch's own initialisation; a network after every stretch."""

    def fit(X: np.ndarray, Y: np.ndarray, width: int, seed: int, seconds: float) -> Iterator[Network]:
        import torch

        torch.manual_seed(seed)
        inputs, outputs = torch.from_numpy(X), torch.from_numpy(Y)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            model = _torch_model(torch, X.shape[1], factor * width)
            yield from _torch_run(torch, model, inputs, outputs, optimiser, rate, width, end)

    return fit


def _torch_run(
    torch: Any, model: Any, X: Any, Y: Any, optimiser: str, rate: float, width: int, end: float
) -> Iterator[Network]:
    size = float((Y**2).mean())
    step, best, stale = _torch_stepper(torch, model, X, Y, optimiser, rate), np.inf, 0
    while time.monotonic() < end and stale < 8:
        loss = step()
        if not np.isfinite(loss):
            return
        stale = 0 if loss < 0.9 * best else stale + 1
        best = min(best, loss)
        network = _from_torch(model)
        if network.n_hidden > width and loss < 1e-6 * size:
            network = _pruned(network, X.numpy(), Y.numpy(), width)
            model = _to_torch(torch, network)
            step, best, stale = _torch_stepper(torch, model, X, Y, optimiser, rate), np.inf, 0
        yield network


def _torch_stepper(torch: Any, model: Any, X: Any, Y: Any, optimiser: str, rate: float) -> Callable[[], float]:
    """Return one stretch of training: 200 steps of Adam, its rate falling with a plateau, or 50 of L-BFGS."""
    if optimiser == "adam":
        rule = torch.optim.Adam(model.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(rule, factor=0.5, patience=1)
    else:
        rule = lbfgs(torch, model.parameters())

    def loss() -> Any:
        rule.zero_grad()
        value = torch.mean((model(X) - Y) ** 2)
        value.backward()
        return value

    def stretch() -> float:
        if optimiser == "lbfgs":
            rule.step(loss)
            return float(torch.mean((model(X) - Y) ** 2).detach())
        for _ in range(200):
            value = loss()
            rule.step()
        schedule.step(float(value.detach()))
        return float(value.detach())

    return stretch


def lbfgs(torch: Any, parameters: Any) -> Any:
    """Make 50 steps of L-BFGS at a time, none of them given up for being small."""
    options = {"max_iter": 50, "history_size": 50, "tolerance_grad": 0, "tolerance_change": 0}
    return torch.optim.LBFGS(parameters, line_search_fn="strong_wolfe", **options)


def _torch_model(torch: Any, d: int, width: int) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(d, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).double()


def _from_torch(model: Any) -> Network:
    W, b, A, c = (p.detach().numpy().copy() for p in model.parameters())
    return Network(W, b, A, c)


def _to_torch(torch: Any, network: Network) -> Any:
    model = _torch_model(torch, network.n_inputs, network.n_hidden)
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), (network.W, network.b, network.A, network.c)):
            parameter.copy_(torch.from_numpy(array.copy()))
    return model


def _pruned(network: Network, X: np.ndarray, Y: np.ndarray, width: int) -> Network:
    point = Point(Samples.of(ArraySource(X, Y), bias=True), as_student(network, True), FitOptions())
    kept = as_network(most_useful(point, width)[0])
    assert isinstance(kept, Network)
    return kept


def _sklearn(solver: str, factor: int, rate: float = 0.0) -> Fit:
    def fit(X: np.ndarray, Y: np.ndarray, width: int, seed: int, seconds: float) -> Iterator[Network]:
        from sklearn.neural_network import MLPRegressor

        end, restart = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            options = {"learning_rate_init": rate, "n_iter_no_change": 50} if solver == "adam" else {"max_fun": 10**6}
            model = MLPRegressor(
                hidden_layer_sizes=(factor * width,),
                solver=solver,
                alpha=0.0,
                tol=1e-14,
                max_iter=3_000,
                random_state=1_000 * seed + restart,
                **options,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, Y.ravel())
            (W, A), (b, c) = model.coefs_, model.intercepts_
            network = Network(W.T, b, A.T, c)
            yield network if factor == 1 else _pruned(network, X, Y, width)
            restart += 1

    return fit


def competitors(rate: float) -> dict[str, Fit]:
    """Return everyone by name; `rate` is Adam's."""
    return {
        "neurecover": _ours,
        "PyTorch Adam, width k": _torch("adam", 1, rate),
        "PyTorch Adam, width 2k, pruned": _torch("adam", 2, rate),
        "PyTorch L-BFGS, width k": _torch("lbfgs", 1),
        "PyTorch L-BFGS, width 2k, pruned": _torch("lbfgs", 2),
        "scikit-learn MLPRegressor lbfgs, width k": _sklearn("lbfgs", 1),
        "scikit-learn MLPRegressor lbfgs, width 2k, pruned": _sklearn("lbfgs", 2),
        "scikit-learn MLPRegressor adam, width k": _sklearn("adam", 1, rate),
    }


def _best_rate() -> float:
    """Return Adam's best learning rate on a data set that is not among those compared on."""
    _, X, Y = PROBLEM.draw(1_000)
    fits = {rate: list(_torch("adam", 2, rate)(X, Y, PROBLEM.k, 0, TRIAL)) for rate in RATES}
    return min(RATES, key=lambda rate: min(float(np.mean((net(X) - Y) ** 2)) for net in fits[rate]))


def _run(track: Track) -> list[Row]:
    rows: list[Row] = []
    with threadpool_limits(1):
        everyone = competitors(_best_rate())
    for seed in track(range(SEEDS), f"{len(everyone)} competitors"):
        truth, X, Y = PROBLEM.draw(seed)
        for name, fit in everyone.items():
            with threadpool_limits(1):
                seconds, error = _time_to_success(fit, X, Y, truth, seed)
            rows.append({"seed": seed, "competitor": name, "weight error": error, "seconds": round(seconds, 3)})
    return rows


def _time_to_success(fit: Fit, X: np.ndarray, Y: np.ndarray, truth: Network, seed: int) -> tuple[float, float]:
    """Return the seconds until the weight error is below SOLVED (all if never; without scoring), and the best error."""
    best, spent, began = np.inf, 0.0, time.monotonic()
    for network in fit(X, Y, truth.n_hidden, seed, SECONDS):
        spent += time.monotonic() - began
        errors = compare(network, truth)
        if not any(errors.unmatched):
            best = min(best, errors.weight_error)
        if best < SOLVED:
            return spent, float(best)
        began = time.monotonic()
    return SECONDS, float(best)


def summarise(rows: list[dict[str, str]]) -> list[Row]:
    """Return per competitor the data sets solved in equal wall times, the median time and its ratio to ours."""
    ours = _times(rows, "neurecover")
    table: list[Row] = []
    for name in _names(rows):
        times = _times(rows, name)
        ratios = [times[seed] / ours[seed] for seed in times if seed in ours]
        table.append(
            {"competitor": name, "of": len({row["seed"] for row in rows})}
            | {f"solved in {budget:g} s": sum(time <= budget for time in times.values()) for budget in BUDGETS}
            | {
                "median seconds when solved": round(float(np.median(list(times.values()))), 3) if times else "",
                "median ratio to neurecover": round(float(np.median(ratios)), 1) if ratios else "",
            }
        )
    return table


def _names(rows: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["competitor"] for row in rows))


def _times(rows: list[dict[str, str]], name: str) -> dict[str, float]:
    """Return the seconds by seed on the data sets that a competitor solved."""
    own = (row for row in rows if row["competitor"] == name and float(row["weight error"]) < SOLVED)
    return {row["seed"]: float(row["seconds"]) for row in own}


def _draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw how many data sets each competitor has solved after so many seconds."""
    n_sets = len({row["seed"] for row in rows})
    with picture(path, size=(9, 4.2)) as (_, axis):
        for name in _names(rows):
            times = np.sort(list(_times(rows, name).values()))
            axis.step([1e-2, *times, SECONDS], [*range(len(times) + 1), len(times)], where="post", label=name)
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.set(xlabel="wall time per data set, seconds", ylabel=f"solved of {n_sets} (weight error < 1e-6)")
        axis.set_xscale("log")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")


EXPERIMENTS = (Experiment("peers", "The finisher and other tools on the same data and time", _run, _draw),)
