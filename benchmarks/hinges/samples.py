"""Data as people have them: a line beside a kink, repeated doses, outliers, and the tables of R's `segmented`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import neurecover as nr
from benchmarks.hinges.by_r import TABLES, run_r
from benchmarks.hinges.laws import LAWS, draw
from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.hinges.families import FAMILIES

SETS = 200
UNSEEN = 47_000  # the number of breaks was looked at on the usual seeds before its prior was settled


def with_line(seed: int, n: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw 1 + slope·x + 2 (x − 4)₊ with noise of one."""
    rng = np.random.default_rng([seed, n, 5])
    x = rng.uniform(0.0, 10.0, n)
    return x[:, None], 1.0 + slope * x + 2.0 * np.maximum(x - 4.0, 0.0) + rng.standard_normal(n)


def _lines(track: Track) -> Iterator[Row]:
    for n, slope, affine in ((100, 0.5, False), (400, 0.5, False), (100, 0.0, False), (100, 0.5, "auto"),
                             (400, 0.5, "auto")):  # fmt: skip
        statistical, covered, kept, sets = 0, [], 0, SETS
        for seed in track(fresh_seeds(sets), f"n = {n}, slope {slope}, affine = {affine}"):
            X, y = with_line(seed, n, slope)
            found = nr.recover(X, y, n_hidden=None if affine is False else 1, affine=affine, random_state=0)
            sure = found.certificate.verdict == "statistical"
            statistical += sure
            kept += found.network.C is not None
            if sure and found.network.n_hidden == 1:
                low, high = _place(found)
                covered.append(low <= 4.0 <= high)
        yield {"n": n, "slope before the kink": slope, "affine": affine, "sets": sets, "line kept": kept,
               "statistical": round(statistical / sets, 3),
               "kink covered": round(float(np.mean(covered)), 3) if covered else ""}  # fmt: skip


def _place(found: nr.Recovery[nr.Network | nr.DeepNetwork]) -> tuple[float, float]:
    """Return the 95 % interval of the kink −b/w of one unit with |w| = 1."""
    network, errors = found.network, found.certificate.standard_errors
    assert errors is not None
    assert isinstance(network, nr.Network)
    place, reach = -float(network.b[0] * network.W[0, 0]), 1.96 * float(errors["b"][0])
    return place - reach, place + reach


def _doses(track: Track) -> Iterator[Callable[[], Row]]:
    for place in (4.0, 4.4):
        for step in (0.0, 0.5):
            yield partial(fit_doses, place, step, track)


def fit_doses(place: float, step: float, track: Track) -> Row:
    """Return how often one break is found, and covered, in outputs at 11 doses that are rounded to steps."""
    one, covered, sets = 0, 0, SETS // 2
    for seed in track(fresh_seeds(sets, UNSEEN), f"break at {place}, steps of {step}"):
        rng = np.random.default_rng([seed, 6])
        x = np.repeat(np.arange(11.0), 60)
        y = 1.0 + 0.5 * x + np.maximum(x - place, 0.0) + rng.standard_normal(len(x))
        y = step * np.round(y / step) if step else y
        model = nr.HingeRegression().fit(x[:, None], y)
        one += model.n_hinges_ == 1
        ends = nr.HingeRegression(1).fit(x[:, None], y).breakpoint_intervals_[0]
        covered += ends[0] <= place <= ends[1]
    return {"data": f"11 doses × 60, break at {place}, outputs in steps of {step}", "sets": sets,
            "one break": round(one / sets, 3), "cover": round(float(covered) / sets, 3)}  # fmt: skip


def _weak(track: Track) -> Iterator[Callable[[], Row]]:
    for K in (1, 2):
        for n in (50, 200, 1_000):
            yield partial(fit_weak, K, n, track)


def fit_weak(K: int, n: int, track: Track) -> Row:
    """Return verdicts and cover of K breaks that are told, in noise twice the change of slope."""
    verdicts, rejected, covered, sets = [], 0, [], SETS // 2
    for seed in track(fresh_seeds(sets), f"{K} breaks, n = {n}"):
        x, y = draw(seed, K, 2.0, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of neighbours, by chance: the verdict says it
            model = nr.HingeRegression(K).fit(x[:, None], y)
        assert model.certificate_ is not None
        verdicts.append(model.certificate_.verdict)
        rejected += model.no_hinge_pvalue_ <= 0.01
        ends, truth = model.breakpoint_intervals_.T, np.array(LAWS[K][0])
        covered.append((ends[0] <= truth) & (truth <= ends[1]))
    return {"breaks": K, "n": n, "sets": sets, "no hinge rejected at 0.01": round(rejected / sets, 2),
            "statistical": round(verdicts.count("statistical") / sets, 2), "failed": verdicts.count("failed"),
            "cover": round(float(np.mean(covered)), 3)}  # fmt: skip


def _outliers(track: Track) -> Iterator[Row]:
    for share in (0.0, 0.02, 0.1):
        off: dict[str, list[float]] = {"squared": [], "huber": [], "tukey": []}
        covered = dict.fromkeys(off, 0)
        named = wrong = total = 0
        sets = SETS // 5
        for seed in track(fresh_seeds(sets), f"{share:.0%} outliers"):
            rng = np.random.default_rng([seed, 7])
            x = rng.uniform(0.0, 10.0, 600)
            y = 1.0 + 0.5 * x + 2.0 * np.maximum(x - 4.0, 0.0) + 0.5 * rng.standard_normal(600)
            bad = rng.choice(600, int(share * 600), replace=False)
            y[bad] += 30.0 * rng.choice([-1.0, 1.0], len(bad))
            for loss in off:
                model = nr.HingeRegression(1, loss=loss).fit(x[:, None], y)
                off[loss].append(float(model.breakpoints_[0]) - 4.0)
                low, high = model.breakpoint_intervals_[0]
                covered[loss] += low <= 4.0 <= high
            named += len(np.intersect1d(model.outliers_, bad))
            wrong += len(np.setdiff1d(model.outliers_, bad))
            total += len(bad)
        row: Row = {"outliers": share, "sets": sets}
        for loss in off:
            row |= {f"RMSE, {loss}": round(float(np.sqrt(np.mean(np.square(off[loss])))), 4)}
            row |= {f"cover, {loss}": round(float(covered[loss]) / sets, 3)}
        yield row | {"named": round(named / total, 4) if total else "", "good rows named": round(wrong / sets, 2)}


# Family, distinct inputs, rows at each, and the scale of the law on the logit or the logarithm.
COUNTS = (("binomial", 600, 1, 0.6), ("binomial", 40, 50, 0.4), ("poisson", 200, 1, 0.4), ("poisson", 30, 20, 0.2))


def draw_counts(seed: int, family: str, m: int, rows: int, change: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw means of `rows` outputs at m inputs whose logit or logarithm is −change·x/2 + change (x − 4)₊ + level."""
    rng = np.random.default_rng([seed, m, 9])
    x = np.sort(rng.uniform(0.0, 10.0, m))
    eta = 0.5 - 0.5 * abs(change) * x + change * np.maximum(x - 4.0, 0.0)
    n = np.full(m, rows)
    y = rng.binomial(n, 1.0 / (1.0 + np.exp(-eta))) if family == "binomial" else rng.poisson(n * np.exp(eta))
    return x[:, None], y / rows, n.astype(float)


def _shares(track: Track) -> Iterator[Row]:
    for family, m, rows, size in COUNTS:
        for change in (0.0, size):
            sets, found, covered, off, rejected, verdicts = SETS // 2, 0, 0, [], 0, []
            for seed in track(fresh_seeds(sets), f"{family}, {m} × {rows}, change {change}"):
                X, y, n = draw_counts(seed, family, m, rows, change)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # of neighbours, by chance: the verdict says it
                    free = nr.HingeRegression(family=family).fit(X, y, sample_weight=n)
                    told = nr.HingeRegression(1, family=family).fit(X, y, sample_weight=n)
                assert free.certificate_ is not None
                found += free.n_hinges_ == (change != 0.0)
                rejected += free.no_hinge_pvalue_ <= 0.05
                verdicts.append(free.certificate_.verdict)
                low, high = told.breakpoint_intervals_[0]
                covered += low <= 4.0 <= high
                off.append(told.breakpoints_[0] - 4.0)
            row: Row = {"family": family, "inputs": m, "rows at each": rows, "change": change, "sets": sets,
                        "no hinge rejected": round(rejected / sets, 3), "right number": round(found / sets, 3),
                        "statistical": round(verdicts.count("statistical") / sets, 3)}  # fmt: skip
            row |= {"cover, told": round(float(covered) / sets, 3) if change else ""}
            yield row | {"RMSE, told": round(float(np.sqrt(np.mean(np.square(off)))), 3) if change else ""}


def _tables(track: Track) -> Iterator[Row]:
    text = run_r(TABLES, Path(__file__).parent / "tables")
    if text is None:
        raise ImportError("The tables come with R's package segmented: apt-get install r-base-core r-cran-segmented.")
    for part in track(text.split("#")[1:], "tables"):
        head, *lines = part.strip().splitlines()
        name, family, number, *figures = head.split()
        K = int(number)
        x, y, w = np.array([line.split() for line in lines], dtype=float).T
        rows = (x[:, None], y, w)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the verdict says it
            told = nr.HingeRegression(K, family=family, estimate="least_squares").fit(*rows)
            free = nr.HingeRegression(family=family).fit(*rows)
        mean = told.predict(x[:, None])
        left = float(np.sum((y - mean) ** 2) if family == "normal" else FAMILIES[family].deviance(y, mean, w).sum())
        errors = [line.error for line in told.estimates(method="wald") if line.name.startswith("break")]
        assert free.certificate_ is not None
        row: Row = {"table": name, "rows": len(x), "breaks told": K, "breaks": _six(told.breakpoints_)}
        row |= {"errors": _six(errors), "RSS or deviance": _six([left]), "R breaks": _six(figures[:K])}
        row |= {"R errors": _six(figures[K:-1]), "R RSS or deviance": _six(figures[-1:])}
        row |= {"breaks found": free.n_hinges_, "verdict": free.certificate_.verdict}
        yield row | {"because": _objection(free.certificate_)}


def _six(values: Sequence[object] | np.ndarray) -> str:
    return " ".join(f"{float(str(value)):.6g}" for value in values)


def _objection(certificate: nr.Certificate) -> str:
    """Return the sentence of the first check that a better verdict needs and that did not pass."""
    against = [check for check in certificate.checks if not check.passed and check.name != "rounding"]
    return against[0].sentence if against else ""


EXPERIMENTS = (
    Experiment("hinges-lines", "A line beside a kink", _lines),
    Experiment("hinges-doses", "Repeated doses and rounded outputs", _doses),
    Experiment("hinges-outliers", "Outliers and robust losses", _outliers),
    Experiment("hinges-weak", "One input, noise twice the change of slope", _weak),
    Experiment("hinges-counts", "Shares and counts: binomial and Poisson outputs", _shares),
    Experiment("hinges-tables", "Tables of R's segmented", _tables),
)
