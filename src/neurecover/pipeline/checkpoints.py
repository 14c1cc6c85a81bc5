"""Checkpoints: identify a run and save its state between passes, so that it can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Source
from neurecover.data.records import Records, read_fingerprint
from neurecover.models import DeepNetwork, Network, from_arrays
from neurecover.pipeline.running import Run
from neurecover.random import RandomStateLike
from neurecover.search.network import Found

Folder = str | os.PathLike[str]


def choose_seed(checkpoint: Folder | None, random_state: RandomStateLike) -> RandomStateLike:
    """Return the seed of a run with checkpoints: the user's, that of the run to be resumed, or a new one."""
    if checkpoint is None or random_state is not None:
        return random_state
    before = read_fingerprint(Path(checkpoint))
    return before["seed"] if "seed" in before else int(np.random.default_rng().integers(2**31))


def begin_records(run: Run, checkpoint: Folder, source: Source, seed: RandomStateLike, options: dict[str, Any]) -> None:
    """Start recording the run in a folder; refuse a folder with records of other samples or options."""
    if not isinstance(seed, int | np.integer):
        raise ValueError(f"checkpoint= needs random_state to be a whole number or None. Got {seed!r} instead.")
    what = {"samples": source.identity(), "seed": int(seed), "release": version("neurecover"), "numpy": np.__version__}
    run.passes.records = Records(checkpoint, {**what, **options})


def resume_search(run: Run, activation: Activation, search: Callable[[], Found]) -> Found:
    """Return the recorded result of `search` if there is one, and restore the random state; else run the search."""
    records = run.passes.records
    if records is None:
        return search()
    kept = records.get("search")
    if kept is None:
        found = search()
        figures = [found.rss, found.relative_rss, found.level, found.last_drop]
        counts = [found.sign_choices, found.descents, found.agreements, found.converged, found.unrivalled]
        state = np.frombuffer(json.dumps(run.rng.bit_generator.state).encode(), dtype=np.uint8)
        arrays = {f"network_{name}": array for name, array in found.network.to_arrays().items()}
        counted = np.array([*counts, run.passes.made, run.report.steps])
        records.keep("search", {**arrays, "facts": np.array(figures), "counts": counted, "random": state})
        return found
    run.rng.bit_generator.state = json.loads(kept["random"].tobytes().decode())
    rss, relative_rss, level, last_drop = (float(fact) for fact in kept["facts"])
    choices, descents, agreements, converged, unrivalled, *run_counts = (int(count) for count in kept["counts"])
    run.passes.made, run.report.steps = run_counts
    arrays = {name.removeprefix("network_"): kept[name] for name in kept if name.startswith("network_")}
    network = from_arrays(arrays, "the records of a search", activation)
    assert isinstance(network, Network | DeepNetwork)
    facts = (choices, descents, agreements, bool(converged), last_drop, bool(unrivalled))
    return Found(network, rss, relative_rss, level, *facts)
