"""Runs over streamed samples that are killed at random moments, and go on from their checkpoint.

Every run is killed with SIGKILL a random time after its start, between none and all of the time that a whole run takes,
and begun again; the network and its standard errors are compared, bit by bit, with those of a run left in peace.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.resources.files import written
from neurecover.experiment import Experiment, Row, Track

CASE = {"n": 1_000_000, "d": 20, "k": 6, "kind": "parquet"}  # a run of several passes, killed in any of them
KILLS = 10
SCRIPT = """
import sys, neurecover as nr
samples, folder, out = sys.argv[1:]
nr.recover(nr.open(samples), n_hidden=6, random_state=0, checkpoint=folder).save(out)
"""


def _run(track: Track) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, samples = written(CASE, folder)

        def begun(run: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", SCRIPT, samples, folder / run, folder / f"{run}.npz"])

        began = time.monotonic()
        begun("whole").wait()
        seconds = time.monotonic() - began
        moments = np.sort(np.random.default_rng(0).uniform(0.0, seconds, KILLS))
        for i, moment in enumerate(track(list(moments), "kills")):
            run = begun(f"run-{i}")
            time.sleep(float(moment))
            run.send_signal(signal.SIGKILL)
            run.wait()
            records = sorted(path.stem for path in (folder / f"run-{i}").glob("*.npz"))
            again = begun(f"run-{i}").wait()
            rows.append(
                {
                    "killed after, s": round(float(moment), 1),
                    "of, s": round(seconds, 1),
                    "recorded by then": ", ".join(records) or "nothing",
                    "resumed": again == 0,
                    "same to the last bit": _same(folder / "whole.npz", folder / f"run-{i}.npz"),
                }
            )
    return rows


def _same(whole: Path, resumed: Path) -> bool:
    with np.load(whole) as left, np.load(resumed) as right:
        arrays = [name for name in left.files if left[name].dtype.kind == "f"]
        return all(np.array_equal(left[name], right[name]) for name in arrays)


EXPERIMENTS = (Experiment("resumes", "Runs that are killed at random moments and go on from their checkpoint", _run),)
