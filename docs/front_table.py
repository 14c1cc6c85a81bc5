"""The tables of the front pages and of the page of limits, from saved tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from neurecover.experiment import read_rows

FOLDER = Path(__file__).parent / "results"
NO_OTHER = "no other tool gives any for networks"
HEAD = ("what", "neurecover", "best other", "command")


def front_table() -> list[str]:
    """Return the lines of the table; a row whose saved table is missing is left out."""
    return _markdown(HEAD, (row for row in _rows() if row is not None))


def limits_table() -> list[str]:
    """Return the lines of the table of what was tried until it failed."""
    return _markdown(("what was tried", "what came of it", "command"), _limits())


def with_table(text: str) -> str:
    """Return a page with the tables that it has marks for, each between its two marks."""
    for name, table in (("results", front_table), ("limits", limits_table)):
        begin, end = f"<!-- {name}: written by docs/make_figures.py -->", f"<!-- end of {name} -->"
        before, mark, rest = text.partition(begin)
        if mark:
            text = "\n".join([f"{before}{begin}", "", *table(), "", f"{end}{rest.partition(end)[2]}"])
    return text


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [_line(head), "|" + "---|" * len(head), *map(_line, rows)]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(name: str) -> list[dict[str, str]]:
    path = FOLDER / f"{name}.csv"
    return read_rows(path) if path.exists() else []


def _rows() -> Iterator[tuple[str, ...] | None]:
    yield _broken_lines()
    yield _queried("extract", "784-128-1")
    yield _queried("extract-deep", "40-20-10-10-1")
    yield from _attacked()
    yield _trained()
    yield _noisy()
    yield _hostile()


def _broken_lines() -> tuple[str, ...] | None:
    """Compare the breaks of a line with those of R's segmented, over all rows in which R was run."""
    rows = [row for row in _table("hinges") if row["R RMSE/CR"]]
    if not rows:
        return None

    def between(key: str, form: str) -> str:
        values = [float(row[key]) for row in rows]
        return f"{min(values):{form}} to {max(values):{form}}"

    return (
        "breaks and slopes of a noisy line, same data",
        f"breaks off by {between('RMSE/CR', '.2f')} times the Cramér–Rao bound; 95 % intervals hold "
        f"{between('slopes', '.0%')} of the slopes",
        f"R's segmented: {between('R RMSE/CR', '.2f')} times; {between('R slopes', '.0%')}",
        "`neurecover bench hinges`",
    )


def _queried(table: str, network: str) -> tuple[str, ...] | None:
    for row in _table(table):
        if row["network"] == network:
            ours = f"{int(row['median queries']):,} queries, error {row['largest error']}, widths found"
            other = f"{_plain(row['published'])}, widths given [1]"
            return f"weights of a {network} network by queries", ours, other, f"`neurecover bench {table}`"
    return None


def _plain(powers: str) -> str:
    """Return 2^17.8 queries, error 2^-27 in plain numbers: 228,000 queries, error 7e-9."""

    def number(match: re.Match[str]) -> str:
        value = 2.0 ** float(match[1])
        return f"{float(f'{value:.3g}'):,.0f}" if value > 1.0 else f"{value:.0e}".replace("e-0", "e-")

    return re.sub(r"2\^(-?[\d.]+)", number, powers)


def _attacked() -> Iterator[tuple[str, ...]]:
    """Of the networks that others attacked, yield the largest that came back exact."""
    exact = [row for row in _table("published") if row["verdict"] == "exact" and row["file"] != "trained here"]
    for row in sorted(exact, key=lambda row: int(row["weights"]))[-1:]:
        ours = f"{float(row['CPU seconds']):.0f} s, {int(row['queries']):,} queries, error {row['largest error']}"
        what = f"a public MNIST model, {row['network']}, {int(row['weights']):,} weights"
        yield what, ours, f"{row['published']} [2]", "`neurecover bench published`"


def _trained() -> tuple[str, ...] | None:
    rows = _table("deep-peers")
    if not rows:
        return None
    seeds, ours, theirs = (sum(int(row[key]) for row in rows) for key in ("seeds", "recover solves", "PyTorch solves"))
    what = "weights from samples alone, one to three hidden layers"
    other = f"{theirs} of {seeds}: PyTorch (Adam, then L-BFGS) with ten times the time"
    return what, f"{ours} of {seeds}", other, "`neurecover bench deep-peers`"


def _noisy() -> tuple[str, ...] | None:
    rows = _table("noise")
    if not rows:
        return None
    inside, total = (sum(int(row[key]) for row in rows) for key in ("parameters in 95 % interval", "parameters"))
    return (
        "95 % intervals of noisy weights hold the truth",
        f"{inside / total:.1%}",
        NO_OTHER,
        "`neurecover bench noise`",
    )


def _hostile() -> tuple[str, ...] | None:
    rows = _table("torture")
    if not rows:
        return None
    runs, false = sum(int(row["runs"]) for row in rows), 0
    for verdict in ("exact", "statistical"):
        kinds = (verdict, f"{verdict} and true", f"{verdict} but for what it excludes")
        said, true, excluded = (sum(int(row[kind]) for row in rows) for kind in kinds)
        false += said - true - excluded
    return (
        f"false claims in {runs:,} hostile problems",
        str(false),
        "no other tool certifies",
        "`neurecover bench torture`",
    )


def _limits() -> Iterator[tuple[str, ...]]:
    for table, how in (("layers", "samples"), ("extract-deep", "queries")):
        for row in _table(table):
            deep, few = row["network"].count("-") >= 4, int(row["solved"]) < int(row["seeds"])
            if deep or (table == "extract-deep" and few):
                what = f"{row['network']} from {how}"
                took = f"{float(row['median CPU seconds']):.0f} s"
                yield what, f"{row['solved']} of {row['seeds']} recovered, {took} each", f"`neurecover bench {table}`"
    for row in _table("hinges-numbers"):
        if float(row["right"]) < 0.9:
            what = f"the number of breaks: {row['breaks']}, {row['n']} rows, noise as large as the change of slope"
            yield what, f"right in {float(row['right']):.0%} of {row['sets']} sets", "`neurecover bench hinges-numbers`"
    hostile = _hostile()
    if hostile is not None:
        yield hostile[0], hostile[1], hostile[3]
    rows = [row for row in _table("scale") if row["varied"] == "n"]
    for row in sorted(rows, key=lambda row: int(row["n"]))[-1:]:
        what = f"{int(row['n']):,} rows of {row['d']} inputs"
        yield what, f"{float(row['CPU seconds']):.0f} s, {row['peak MB']} MB", "`neurecover bench scale`"
