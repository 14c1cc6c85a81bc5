"""An older checkout of the library against this one, on the same samples, run by run in turn.

    python benchmarks/against.py --old PATH [--rows NAME ...] [--families NAME ...] [--seeds 6] [--first-seed 40000]

Each checkout has a process of its own that stays, with one BLAS thread, so that neither start-up nor the load of the
machine at one time is charged to one of them. What they found is judged here, by one and the same `compare`:

    solved         every weight within 1e-8 of the truth in normal form; with noise the verdict is statistical and every
                   true weight lies within 5 standard errors
    claimed wrong  the verdict is exact with an error above 1e-6, or statistical with a weight 6 standard errors off

A run that takes more than --cap CPU seconds is ended and counts as not solved; one whose process died is charged as
many and has a verdict of that name. Rows with an affine term are for this checkout alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

import neurecover as nr  # noqa: E402
from benchmarks.problems import FAMILIES, ROWS, Problem, Row, draw  # noqa: E402

EXACT, CLAIM = 1e-8, 1e-6  # weight errors: of a solved network, and beyond which a verdict of exact is wrong
NEAR, FAR = 5.0, 6.0  # standard errors: of a solved network, and beyond which a verdict of statistical is wrong
SIDES = ("old", "new")
Layers = list[tuple[np.ndarray, np.ndarray]]  # (W, b) from the inputs up, the outputs' last


@dataclass
class Side:
    """The process of one checkout; a new one where the last run was ended by its cap."""

    checkout: Path
    cap: float
    process: subprocess.Popen[str] | None = None

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request: CPU seconds and verdict."""
        process = self.process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request | {"cap": self.cap}) + "\n")
        process.stdin.flush()
        reply = process.stdout.readline()
        if reply:
            return json.loads(reply)
        status, self.process = process.wait(), None
        # Only the timer's signal is the cap; a process that was killed or crashed is told apart from it.
        verdict = "cap" if status == -signal.SIGPROF else f"died: status {status}"
        return {"seconds": self.cap, "verdict": verdict}

    def _started(self) -> subprocess.Popen[str]:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = os.environ | threads | {"PYTHONPATH": str(self.checkout / "src")}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "worker.py")],  # -P: no module of this folder hides another
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        used = self.process.stdout.readline().strip()
        if not used or not Path(used).resolve().is_relative_to(self.checkout.resolve()):
            raise RuntimeError(f"Expected the library of {self.checkout}. Got {used or 'none'} instead.")
        return self.process

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate()


@dataclass(frozen=True)
class Run:
    """What one checkout made of one problem."""

    seconds: float
    verdict: str
    error: float  # the largest in a weight, in normal form
    off: float  # the largest in standard errors, 0 without these
    solved: bool

    @property
    def wrong(self) -> bool:
        if self.verdict == "exact":
            return not self.error <= CLAIM
        return self.verdict == "statistical" and not (self.error <= CLAIM or self.off <= FAR)


@dataclass
class Tally:
    """The runs of either side on one row and family."""

    row: str
    family: str
    runs: dict[str, list[Run]] = field(default_factory=lambda: {side: [] for side in SIDES})

    def as_line(self) -> dict[str, Any]:
        """Return one line of the table; empty fields where a side has no runs."""
        line: dict[str, Any] = {"row": self.row, "family": self.family, "seeds": len(self.runs["new"])}
        seconds = {side: np.array([run.seconds for run in runs]) for side, runs in self.runs.items()}
        for side, runs in self.runs.items():
            verdicts = Counter(run.verdict.split(":")[0] for run in runs)
            line[f"solved {side}"] = sum(run.solved for run in runs) if runs else ""
            line[f"verdicts {side}"] = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            line[f"claimed wrong {side}"] = sum(run.wrong for run in runs) if runs else ""
            line[f"median s {side}"] = f"{np.median(seconds[side]):.2f}" if runs else ""
            line[f"sum s {side}"] = f"{seconds[side].sum():.2f}" if runs else ""
        both = all(self.runs.values())
        line["new/old"] = f"{seconds['new'].sum() / seconds['old'].sum():.2f}" if both else ""
        return line


def judged(row: Row, problem: Problem, reply: dict[str, Any], answer: Path) -> Run:
    """Hold what was found against the truth."""
    if not answer.exists():
        return Run(reply["seconds"], reply["verdict"], np.inf, np.inf, False)
    with np.load(answer) as arrays:
        found = [(arrays[f"W{i}"], arrays[f"b{i}"]) for i in range(len(problem.layers)) if f"W{i}" in arrays]
        spread = [(arrays[f"Werror{i}"], arrays[f"Berror{i}"]) for i in range(len(found)) if f"Werror{i}" in arrays]
        C = arrays.get("C")
    answer.unlink()
    error, off = deviations(row, problem, found, spread, C)
    solved = reply["verdict"] == "statistical" and off <= NEAR if row.noise else error <= EXACT
    return Run(reply["seconds"], reply["verdict"], error, off, bool(solved))


def deviations(row: Row, problem: Problem, found: Layers, spread: Layers, C: np.ndarray | None) -> tuple[float, float]:
    """Return the largest error of a weight, and that in standard errors; infinite where units differ in number."""
    if [len(W) for W, _ in found] != [len(W) for W, _ in problem.layers]:
        return np.inf, np.inf
    network, truth = as_network(found, row.activation), as_network(problem.layers, row.activation)
    if problem.C is not None:
        return affine_error(network, truth, C, problem.C), 0.0
    errors = nr.compare(network, truth)
    if any(any(layer.unmatched) for layer in errors.layers):
        return np.inf, np.inf
    largest = max(errors.weight_error, errors.bias_error, errors.output_weight_error, errors.offset_error)
    if not spread:
        return largest, 0.0
    # Standard errors are those of the normal form, whose units the comparison has paired.
    below, apart = np.arange(row.dims[0]), []
    units = [*(layer.permutation for layer in errors.layers), np.arange(row.dims[-1])]
    for (W, b), (V, a), (dW, db), own in zip(layers_of(network), layers_of(truth.normal_form()), spread, units):
        pairs = np.ix_(own, below)
        apart += [((W[pairs] - V) / np.maximum(dW[pairs], 1e-300)).ravel(), (b[own] - a) / np.maximum(db[own], 1e-300)]
        below = own
    return largest, float(np.abs(np.concatenate(apart)).max())


def affine_error(network: Any, truth: Any, C: np.ndarray | None, C_true: np.ndarray) -> float:
    """Return the largest error beside an affine term of its own.

    In one hidden layer relu(z) = z + relu(−z), so that a unit's sign is a convention: units are turned to the truth's
    and a·(w·x + b) goes into C x + c.
    """
    if C is None:
        return np.inf
    network, truth = network.normal_form(), truth.normal_form()
    errors = nr.compare(network, truth, up_to_sign=isinstance(network, nr.Network))
    if any(any(layer.unmatched) for layer in errors.layers):
        return np.inf
    largest = max(errors.weight_error, errors.bias_error, errors.output_weight_error)
    (A, c), c_true = layers_of(network)[-1], layers_of(truth)[-1][1]
    if isinstance(network, nr.Network):
        turned = errors.permutation[errors.signs < 0]
        C, c = C + A[:, turned] @ network.W[turned], c + A[:, turned] @ network.b[turned]
    return float(max(largest, np.abs(C - C_true).max(), np.abs(c - c_true).max()))


def as_network(layers: Any, activation: str) -> Any:
    """Return a network of one hidden layer or several, without an affine term."""
    if len(layers) > 2:
        return nr.DeepNetwork(layers, activation)
    (W, b), (A, c) = layers
    return nr.Network(W, b, A, c, activation)


def layers_of(network: Any) -> Layers:
    """Return the layers from the inputs up, the outputs' last."""
    return [(network.W, network.b), (network.A, network.c)] if isinstance(network, nr.Network) else list(network.layers)


def measure(name: str, family: str, seeds: range, sides: dict[str, Side], folder: Path, keep: Any) -> Tally:
    """Run every seed on either side, the one first that was second before."""
    row, tally = ROWS[name], Tally(name, family)
    for seed in seeds:
        problem = draw(row, family, seed)
        np.savez(folder / "samples.npz", X=problem.X, Y=problem.Y)
        for side in SIDES if seed % 2 else SIDES[::-1]:
            if side == "old" and row.affine:
                continue
            answer = folder / "answer.npz"
            call = row.call | {"random_state": seed}
            reply = sides[side].run({"samples": str(folder / "samples.npz"), "answer": str(answer), "call": call})
            run = judged(row, problem, reply, answer)
            tally.runs[side].append(run)
            keep(
                [name, family, seed, side, f"{run.seconds:.3f}", run.verdict, run.solved, run.wrong, run.error, run.off]
            )
    return tally


def in_words(line: dict[str, Any]) -> str:
    """Return a line of the table for a person, old → new."""
    figures = [f"{what} {line[f'{what} old']} → {line[f'{what} new']}" for what in ("solved", "claimed wrong", "sum s")]
    verdicts = f"({line['verdicts old']} → {line['verdicts new']})"
    label = f"{line['row']:32} {line['family']:10} {line['seeds']} seeds"
    return f"{label}  {'  '.join(figures)}  {line['new/old']} {verdicts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the older checkout")
    parser.add_argument("--rows", nargs="+", default=[""], help="names of rows or parts of them; all without it")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=40_000)
    parser.add_argument("--cap", type=float, default=150.0, help="CPU seconds of a run")
    parser.add_argument("--out", type=Path, default=Path("results/against"), help="folder of table.csv and runs.csv")
    chosen = parser.parse_args()
    # A whole name stands for its row alone, though others may begin with it.
    names = [name for name in ROWS if any(part == name or (part not in ROWS and part in name) for part in chosen.rows)]
    if not names:
        parser.error(f"--rows needs parts of {', '.join(ROWS)}. Got {' '.join(chosen.rows)} instead.")
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    sides = {side: Side(path, chosen.cap) for side, path in zip(SIDES, (chosen.old, HERE.parent))}
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open(chosen.out / "runs.csv", "w", newline="") as runs:
        keep = csv.writer(runs).writerow
        keep(["row", "family", "seed", "side", "seconds", "verdict", "solved", "claimed wrong", "error", "off"])
        lines: list[dict[str, Any]] = []
        for name in names:
            for family in chosen.families:
                lines.append(measure(name, family, seeds, sides, Path(folder), keep).as_line())
                runs.flush()
                sys.stdout.write(in_words(lines[-1]) + "\n")
                sys.stdout.flush()
                with open(chosen.out / "table.csv", "w", newline="") as file:
                    table = csv.DictWriter(file, lines[0].keys())
                    table.writeheader()
                    table.writerows(lines)
    for side in sides.values():
        side.close()


if __name__ == "__main__":
    main()
