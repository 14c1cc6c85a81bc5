"""Write docs/figures.md from the tables in docs/results: every figure there is one that a saved run holds."""

import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]  # for `benchmarks` and `front_table`, which are not installed

from front_table import front_table, with_table  # noqa: E402

from benchmarks import benchmarks  # noqa: E402
from benchmarks.peers.shallow import summarise  # noqa: E402
from neurecover.experiment import read_rows  # noqa: E402
from neurecover.reproduce import reproductions  # noqa: E402

FOLDER = Path(__file__).parent / "results"
FRONT = (ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "limits.md")  # they have short tables
LONG = 24  # rows; of longer tables only groups of rows are shown
# The columns that a long table is grouped by: medians of figures over the rows of a group, counts of words.
GROUPS = {
    "gklw19-exact": ("size", "n", "inputs"),
    "gklw19-noisy": ("inputs",),
    "gklw19-asymmetric": ("inputs", "n"),
    "gklw19-detectors": ("size", "n", "noise"),
    "gklw19-units": ("k", "p", "noise"),
    "gklw19-queries": ("queries",),
    "trained": ("model", "by"),
    "gp18-structure": ("theorem",),
}
WORST = ("trained",)  # tables of which the worst row of a group is shown
TOTALS = ("right", "of")  # columns that are counts already
NOTES = {
    "finisher": "Success is the verdict `exact` and a weight error of at most 1e-10. The last row has unit rows "
    "instead of Gaussian ones, so that kinks lie up to three standard deviations out: where a unit is on for fewer "
    "samples than it has weights, no method can find it. Gaussian rows were chosen for the first rows after unit rows "
    "had fallen short, and widths, hold-out and hops were set on some of the same seeds.",
    "peers": "Success is a weight error below 1e-6, one thread for everyone. Equal wall times stand in columns: half a "
    "second is what the finisher is allowed on this problem, and a peer starts anew until its time is used up. Times "
    "and ratios are medians over the data sets that the competitor solved in 15 seconds. With up to 6 seconds per data "
    "set neurecover solves at least three times as many as the best peer at width k, the target; with 15 seconds, 2.5 "
    "times.",
    "hinges": "CR is the Cramér–Rao deviation of a break at the truth. The estimate is the posterior mean and its "
    "interval the posterior's; R's is the gradient interval, and its seconds are those of fit and score interval. All "
    "seconds are CPU seconds of one thread.",
    "hinges-grid": "The number of breaks was told.",
    "hinges-tests": "The level is 0.05. Warned is that neighbours are said to go together, below p = 0.01.",
    "hinges-lines": "Of y = 1 + slope·x + 2 (x − 4)₊ with noise of one. Covered is the kink, by 1.96 standard errors, "
    "in the answers called statistical that have one unit.",
    "hinges-planes": "Found is Σr² within σ² of the fit from the truth; covered are all parameters, by the posterior.",
    "activations": "Exact is the verdict `exact` and a weight error of at most 1e-10, on seeds from 1000 on that none "
    "of its settings saw. Where the activation is to be found it is among eleven; a sigmoid comes back as tanh, the "
    "same function.",
    "large": "Unit rows and biases of 0.7 standard deviations; solved is the verdict `exact` and a weight error of at "
    "most 1e-10. The memory is that of the whole process, with the samples.",
    "deep-peers": "Twice the widths in double precision, Adam then L-BFGS, pruned to the true widths on the way; "
    "solved is a weight error of at most 1e-6. Other processes ran beside it, which slows both alike.",
    "scale": "Other processes ran beside the rows with workers; `bench workers` repeats them on idle cores.",
    "layers": "With noise a network with a standard error above 0.15 at the truth itself cannot be claimed. "
    "The limit was 0.1 when this table was taken: 11 of 100 such random networks are above that (seeds 6000 to 6099), "
    "and none of these ten.",
    "tables": "Solved is a network that answers every row to rounding and whose certificate is exact, or says which "
    "weights the rows determine. Where a unit is on, or off, in fewer rows than it has weights nothing of it is; the "
    "network then may answer every row and no weight be vouched for.",
    "extract": "Allowed are the queries where the width is given, and 1.3 times as many where it is found, as here.",
    "extract-deep": "Allowed are the queries where the widths are given, and 1.3 times as many where they are found, "
    "as here. Solved is the verdict `exact` and all widths and weights right. A unit that is on, or off, wherever the "
    "oracle can be queried has no weights to be found; such a network is not solved. "
    "The one that was said to be exact and is not lacks a unit that is on at 4 to 14 of a million random points, near "
    "or far; the certificate says that such a unit is not seen.",
    "bjw18-exact": "The condition numbers of both W and A are bounded by 30.",
    "bjw18-patterns": "Only networks are drawn whose units are each on at three independent inputs; without that, one "
    "repeated-row case in 20 is not determined.",
    "gp18-steps": "Step 1 is the tensor path on orders 2 and 3, chosen among four combinations on five of these seeds.",
    "gp18-structure": "Exact for Theorem 10 is |cos| ≥ 0.99.",
    "gp18-layers": "Weights of either sign and biases above zero, so that no unit of the first layer is hidden; every "
    "unit above it is seen on and off at 5 % of the active samples at least: one that never switches is no unit but an "
    "affine function. Thresholds of 1; n = 60,000.",
    "gklw19-estimate": 'The paper says of "the original formulation of the algorithm" that with 10,000 Gaussian inputs '
    'and random orthogonal 10 × 10 matrices it recovers both "with an average error of approximately 0.15 … across 10 '
    'random trials". Its error is taken as √(error / k), the measure of the right panel of its Figure 2.',
    "gklw19-fig2": "Section 4 of the paper does not say how its alternating least squares starts; here every start has "
    "the singular vectors of a random combination of the slices.",
    "trained": "No setting was chosen on these seeds (500 and up). `MLPRegressor` runs after a `StandardScaler`; "
    "targets are standardised except in the rows marked raw.",
    "atv21-crowded": "The method alone, then `recover` with the finisher on some of the seeds.",
}


def page() -> str:
    parts = [
        "# Figures",
        "",
        "Each table is the last saved run of the command above it, in `docs/results` with the versions and the "
        "machine it ran on. `python docs/make_figures.py` writes this page from them.",
        "",
        "## In short",
        "",
        *front_table(),
        "",
        "[1] Carlini, Jagielski, Mironov, CRYPTO 2020. [2] Foerster, Mullins, Shumailov, Hayes, 2024, arXiv "
        "2406.10011; more in [results beside published ones](published.md).",
    ]
    experiments = {"bench": benchmarks(), "reproduce": reproductions()}
    for verb, named in experiments.items():
        for name, experiment in named.items():
            table = FOLDER / f"{name}.csv"
            if table.exists():
                parts += ["", f"## {experiment.title}", "", *section(verb, name, table)]
    return "\n".join(parts) + "\n"


def section(verb: str, name: str, table: Path) -> list[str]:
    lines = [f"`neurecover {verb} {name}`, ended before its last rows."]
    if (record := table.with_suffix(".json")).exists():  # it is written when the run is over
        facts = json.loads(record.read_text())
        lines = [f"`neurecover {verb} {name}`, {facts['seconds']:.0f} s on {facts['machine']}."]
    if name in NOTES:
        lines += ["", NOTES[name]]
    rows: list[dict] = read_rows(table)
    if name == "noise":
        rows = [noise_summary(rows)]
    elif name == "peers":
        rows = summarise(rows)
    elif name in SUMMARIES:
        rows = SUMMARIES[name](rows)
        lines += [
            "",
            f"{'Both ends of the curves' if SUMMARIES[name] is curve_ends else 'Counts and medians'} of the table.",
        ]
    elif name in GROUPS:
        worst = name in WORST
        rows = grouped(rows, GROUPS[name], max if worst else statistics.median)
        kind = "The largest figures" if worst else "Medians"
        lines += ["", f"{kind} over the rows of the table that agree in the first columns, and how often each word."]
    if len(rows) <= LONG:
        head = list(rows[0])
        lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(figure(row[key]) for key in head) + " |" for row in rows]
    lines += ["", f"[The table]({FOLDER.name}/{name}.csv)"]
    if (picture := table.with_suffix(".png")).exists():
        lines += ["", f"![{name}]({FOLDER.name}/{picture.name})"]
    return lines


def noise_summary(rows: list[dict]) -> dict:
    error, bound = (sum(float(row[key]) for row in rows) for key in ("squared weight error", "Cramer-Rao bound"))
    inside, total = (sum(int(row[key]) for row in rows) for key in ("parameters in 95 % interval", "parameters"))
    return {
        "seeds": len(rows),
        "verdict statistical": sum(row["verdict"] == "statistical" for row in rows),
        "squared weight error / Cramér–Rao bound": error / bound,
        "needed": "at most 1.1",
        "parameters in their 95 % interval": f"{inside / total:.1%}",
        "needed ": "92 to 98 %",
    }


def union_summary(rows: list[dict]) -> list[dict]:
    return [
        {
            **{key: members[0][key] for key in ("d", "k", "n", "flipped")},
            "seeds": len(members),
            "largest angle": max(float(row["max angle"]) for row in members),
            "median angle": statistics.median(float(row["max angle"]) for row in members),
            "lowest accuracy": min(float(row["accuracy"]) for row in members),
            "required": members[0]["required"],
        }
        for members in by(rows, "d", "flipped")
    ]


def number_summary(rows: list[dict]) -> list[dict]:
    def right(row: dict) -> bool:
        return row["found"] == row["halfspaces"]

    return [
        {
            "flipped": members[0]["flipped"],
            "n": "5000 to 40000",
            "halfspaces": "2 to 6",
            "seeds": len(members),
            "number right": sum(map(right, members)),
            "certain": sum(row["certain"] == "True" for row in members),
            "certain and wrong": sum(row["certain"] == "True" and not right(row) for row in members),
            "required": members[0]["required"],
        }
        for members in by(rows, "flipped")
    ]


def step_summary(rows: list[dict]) -> list[dict]:
    figures = ("condition", "step 1 worst cos", "step 1 seconds", "step 2 worst cos", "step 2 seconds")
    return [
        {
            "W": members[0]["W"],
            "seeds": len(members),
            **{f"{name}, median": statistics.median(float(row[name]) for row in members) for name in figures},
            "required medians": members[0]["required medians"],
        }
        for members in by(rows, "W")
    ]


def curve_ends(rows: list[dict]) -> list[dict]:
    """Where every curve of a figure begins and ends; the picture has the rest."""
    figures = ("error_W", "error_A", "mse")
    ends = {
        panel[0]["panel"]: {edge(float(row["x"]) for row in panel) for edge in (min, max)}
        for panel in by(rows, "panel")
    }
    return [
        {
            **{key: members[0][key] for key in ("panel", "x", "form")},
            "trials": len(members),
            **{f"{name}, mean": statistics.mean(float(row[name]) for row in members) for name in figures},
        }
        for members in by(rows, "panel", "form", "x")
        if float(members[0]["x"]) in ends[members[0]["panel"]]
    ]


SUMMARIES = {
    "gp18-noisy-halfspaces": union_summary,
    "gp18-numbers": number_summary,
    "gp18-steps": step_summary,
    "gklw19-fig2": curve_ends,
    "gklw19-fig3": curve_ends,
    "gklw19-fig4": curve_ends,
}


def by(rows: list[dict], *keys: str) -> list[list[dict]]:
    """The rows that agree in the keys."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.values())


def grouped(rows: list[dict], keys: tuple[str, ...], of: Callable[[list[float]], float]) -> list[dict]:
    columns = [column for column in rows[0] if column not in (*keys, "seed")]
    return [
        {
            **{key: members[0][key] for key in keys},
            "rows": len(members),
            **{column: together(column, [m[column] for m in members], of) for column in columns},
        }
        for members in by(rows, *keys)
    ]


def together(column: str, values: list[str], of: Callable[[list[float]], float]) -> object:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        words = dict.fromkeys(values)
        return values[0] if len(words) == 1 else ", ".join(f"{values.count(word)} {word}" for word in words)
    return sum(numbers) if column in TOTALS else of(numbers)


def figure(value: object) -> str:
    try:
        number = float(str(value))
    except ValueError:
        return str(value)
    if not math.isfinite(number):
        return str(value)
    if number == int(number) and abs(number) < 1e9:
        return f"{number:.0f}" if isinstance(value, float) else str(value)
    return f"{number:.4g}"


if __name__ == "__main__":
    (ROOT / "docs" / "figures.md").write_text(page(), encoding="utf-8")
    for front in FRONT:
        front.write_text(with_table(front.read_text(encoding="utf-8")), encoding="utf-8")
