"""How many samples the papers take: ε of [ATV21, Theorem 3.2] against n, and n of [BJW18, Lemma 16] against κ.

Theorem 3.2 promises a risk of ε² from samples polynomial in 1/ε: means converge like 1/√n, and so does whatever is made
from them, unless the errors are those of the network alone and fall with it. Lemma 16 shows that κ(W) samples are
needed: relu(x₁ ± x₂/κ) differ from one unit only where |x₁| < |x₂|/κ, which (2/π) arctan(1/κ) of Gaussian inputs do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.models.risk import population_risk
from neurecover.pipeline import estimate, recover
from neurecover.simulate import sample, teacher
from neurecover.simulate.hard import near_parallel_pair

SIZES = (1_000, 4_000, 16_000, 64_000, 256_000)
FORMS = (  # name, (d, k), form, noise over the outputs' spread
    ("Algorithms 4 and 5 as printed", (3, 3), "paper", 0.0),
    ("best, without noise", (3, 3), "best", 0.0),
    ("best, noise 0.1", (3, 3), "best", 0.1),
    ("best, k > d, without noise", (3, 5), "best", 0.0),
)
CONDITIONS = (2, 8, 32, 128)
MULTIPLES = (4, 8, 16, 32, 64, 128)  # of κ
EXACT = 1e-8  # error of the weights


def run_rate(track: Track) -> Iterator[Row]:
    """Measure ε = √E[(f − g)²] over the spread of f, the median over eight seeds."""
    for name, (d, k), form, noise in FORMS:
        for n in track(SIZES, name):
            errors = []
            for seed in fresh_seeds(8):
                truth = teacher(d, k, random_state=seed)
                X, Y = sample(truth, n, noise=noise, random_state=seed)
                found = estimate(X, Y, k, "hermite", form, random_state=seed).network
                constant = Network(np.zeros((0, d)), np.zeros(0), np.zeros((1, 0)), [float(np.mean(truth(X)))])
                spread = population_risk(constant, truth)
                errors.append(np.sqrt(population_risk(found, truth) / spread) if isinstance(found, Network) else 1.0)
            yield {"form": name, "d": d, "k": k, "n": n, "noise": noise, "ε, median": f"{np.median(errors):.3e}"}


def draw_rate(rows: list[dict[str, str]], path: Path) -> None:
    """Draw ε against n with the slope of every line."""
    with picture(path, size=(6, 4.4)) as (_, axes):
        for form in dict.fromkeys(row["form"] for row in rows):
            mine = [row for row in rows if row["form"] == form]
            n, error = (np.array([float(row[key]) for row in mine]) for key in ("n", "ε, median"))
            slope = np.polyfit(np.log(n), np.log(error), 1)[0]
            axes.loglog(n, error, "o-", label=f"{form}: $n^{{{slope:.2f}}}$")
        axes.set(xlabel="samples n", ylabel="ε over the spread of the outputs")
        axes.legend(fontsize=8)


def run_kappa(track: Track) -> Iterator[Row]:
    """Measure for every κ and n how many of ten sets of samples give the pair of units exactly.

    The lemma's network has one output; with two the methods of the paper apply.
    """
    ways: dict[str, Callable[[np.ndarray, np.ndarray, int], object]] = {
        "one output, recover": lambda X, Y, s: recover(X, Y, 2, bias=False, random_state=s).network,
        "two outputs, exact_tensor": lambda X, Y, s: (
            estimate(X, Y, 2, "exact_tensor", bias=False, random_state=s).network
        ),
    }
    for kappa in track(CONDITIONS, "condition numbers"):
        for multiple in MULTIPLES:
            n, hits, telling = multiple * kappa, dict.fromkeys(ways, 0), []
            for seed in fresh_seeds(10):
                narrow = near_parallel_pair(1.0 / kappa)[0]
                A = np.random.default_rng(seed).standard_normal((2, 2))
                for way, run in ways.items():
                    truth = narrow if way.startswith("one") else Network(narrow.W, None, A)
                    X, Y = sample(truth, n, random_state=seed)
                    found = run(X, Y, seed)
                    same = isinstance(found, Network) and found.n_hidden == 2
                    hits[way] += bool(same and compare(found, truth).weight_error < EXACT)  # type: ignore[arg-type]
                telling.append(np.count_nonzero(np.abs(X[:, 0]) < np.abs(X[:, 1]) / kappa))
            row: Row = {"κ": kappa, "n": n, "n/κ": multiple, "samples that tell, mean": float(np.mean(telling))}
            yield row | {f"{way}, of 10": count for way, count in hits.items()}


def draw_kappa(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the share of exact answers against n/κ, a line per κ; lines that fall together are the lemma's n ∝ κ."""
    ways = [key for key in rows[0] if key.endswith(", of 10")]
    with picture(path, size=(9, 4), ncols=2, sharey=True) as (_, axes):
        for ax, way in zip(axes, ways):
            for kappa in dict.fromkeys(row["κ"] for row in rows):
                mine = [row for row in rows if row["κ"] == kappa]
                share = [int(row[way]) / 10 for row in mine]
                ax.semilogx([float(row["n/κ"]) for row in mine], share, "o-", label=f"κ = {kappa}")
            ax.set(xlabel="samples n / κ", title=way.removesuffix(", of 10"))
        axes[0].set(ylabel="share of exact answers")
        axes[1].legend(fontsize=8)


EXPERIMENTS = (
    Experiment("atv21-rate", "[ATV21, Theorem 3.2] Error against samples", run_rate, draw_rate),
    Experiment("bjw18-kappa", "[BJW18, Lemma 16] Samples against the condition number", run_kappa, draw_kappa),
)
