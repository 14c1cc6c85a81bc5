"""Units that are rarely active: how many each way of recovery misses, and whether it says so.

One hidden layer with 10 inputs and 30 to 200 units of normal weights; the biases are drawn so that a unit is active on
a share of N(0, I) between 0.1 % and 50 %, evenly in the logarithm. `extract` chooses its queries. `recover` gets as
many random samples as `extract` made queries, and at least 20 per weight; the units that are active on fewer samples
than they have weights are counted beside it, because no method finds these from samples. The peer walks along random
lines as attacks by line search do: a unit counts as found if the lines, as many as the queries pay for at 40 queries a
kink, cross its plane. It is counted from the true network, so that it is an upper bound on what such a search finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import norm

from neurecover.data import oracle
from neurecover.experiment import Experiment, Row, Track, picture
from neurecover.models import Network
from neurecover.pipeline import extract, recover
from neurecover.results import Recovery

D = 10
WIDTHS = (30, 50, 100, 200)
SEEDS = range(8_100, 8_103)  # no setting was chosen on these
NEAR = 1e-3  # distance of (w, b) from the true one, at ‖w‖ = 1
RAREST = 1e-3  # share of the inputs
PER_KINK = 40  # queries for one kink: a bisection to 52 bits, less what the slopes on both sides give
REACH = 100.0  # half the length of a line, in standard deviations of the inputs
BUDGET = 120.0  # seconds
COUNTED = (
    "extract: missed",
    "extract: planes missed",
    "random lines: missed",
    "recover: missed",
    "active on too few samples",
)


def network(k: int, seed: int) -> Network:
    """Draw a network whose unit i is active where w·x + b > 0, on a share of N(0, I) that is even in the logarithm."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((k, D))
    share = np.exp(rng.uniform(np.log(RAREST), np.log(0.5), k))
    b = norm.ppf(share) * np.linalg.norm(W, axis=1)
    return Network(W, b, rng.standard_normal((1, k)))


def missed(found: Recovery[Any], truth: Network, either_side: bool = False) -> int:
    """Count the units of the truth without a partner as near as NEAR, which with `either_side` may be active opposite.

    With many more units than inputs the planes are found before the sides on which the units are active.
    """
    if not isinstance(found.network, Network) or found.network.n_hidden == 0:
        return truth.n_hidden
    ours, true = (np.column_stack([net.W, net.b]) for net in (found.network.normal_form(), truth.normal_form()))
    apart = np.minimum(cdist(true, ours), cdist(true, -ours) if either_side else np.inf)
    return int(np.sum(apart.min(axis=1) > NEAR))


def crossed(truth: Network, queries: int, rng: np.random.Generator) -> int:
    """Count the units that random lines miss, as many lines as the queries pay for."""
    seen, left = np.zeros(truth.n_hidden, dtype=bool), queries
    while left > 0:
        start, along = rng.standard_normal((2, D))
        along /= np.linalg.norm(along)
        at = -(truth.W @ start + truth.b) / (truth.W @ along)
        hit = np.abs(at) < REACH
        seen |= hit
        left -= PER_KINK * max(int(hit.sum()), 1)
    return int(np.sum(~seen))


def measure(track: Track) -> Iterator[Callable[[], Row]]:
    """Yield the row of each width and seed, to be measured unless it was kept."""
    for k in WIDTHS:
        for seed in track(SEEDS, f"{k} units"):
            yield partial(measure_one, k, seed)


def measure_one(k: int, seed: int) -> Row:
    """Extract and recover one network; return how many of its units each way missed."""
    truth, rng = network(k, seed), np.random.default_rng([seed, 1])
    began = time.process_time()
    queried = extract(oracle(truth, D), random_state=seed, time_budget=BUDGET)
    seconds = time.process_time() - began
    queries = queried.n_queries or 0
    n = max(queries, 20 * truth.n_parameters)
    X = rng.standard_normal((n, D))
    sampled = recover(X, truth(X), n_hidden=k, random_state=seed, time_budget=BUDGET)
    active = (X @ truth.W.T + truth.b > 0).sum(axis=0)
    return {
        "units": k,
        "seed": seed,
        "queries": queries,
        "extract: missed": missed(queried, truth),
        "extract: planes missed": missed(queried, truth, either_side=True),
        "extract: verdict": queried.certificate.verdict,
        "extract: CPU seconds": round(seconds, 1),
        "random lines: missed": crossed(truth, queries, rng),
        "samples": n,
        "recover: missed": missed(sampled, truth),
        "recover: verdict": sampled.certificate.verdict,
        "active on too few samples": int(np.sum(active <= D + 1)),
        "claimed but missed": sum(
            run.certificate.verdict in ("exact", "statistical") and missed(run, truth) > 0 for run in (queried, sampled)
        ),
    }


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the mean number of units missed against the width."""
    with picture(path, size=(6, 4)) as (_, axes):
        widths = sorted({int(row["units"]) for row in rows})
        for column in COUNTED:
            means = [np.mean([float(row[column]) for row in rows if int(row["units"]) == k]) for k in widths]
            axes.plot(widths, means, "o-", label=column.replace(": missed", ""))
        axes.set(xlabel="units", ylabel="units missed, mean")
        axes.legend(fontsize=8)


EXPERIMENTS = (Experiment("rare-units", "Rarely active units: how many are missed", measure, draw),)
