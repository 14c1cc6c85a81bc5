"""CONTRIBUTING says what the lines of the package are for, and `make lines` counts them."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNT = runpy.run_path(str(ROOT / ".ci" / "lines.py"))
EVERYWHERE = {"__init__", "__main__", "random", "exceptions"}  # belong to every room


def test_every_line_is_of_one_kind() -> None:
    text = '"""Doc\n\nstring."""\n\nimport a\nfrom b import (\n    c,\n)\n\n# why\nx = """\n# text"""\n'
    text += 'def f():\n    "Return."\n    import d\n    return d\n'
    expected = {"docstrings": 4, "blank": 2, "imports": 5, "comments": 1, "statements": 4}
    assert COUNT["kinds"](text) == expected
    files = list((ROOT / "src" / "neurecover").rglob("*.py"))
    counted = sum(count.total() for count in COUNT["rooms"]().values())
    assert counted == sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert f"{counted:,}" in COUNT["table"]()


def test_contributing_says_what_they_are_for() -> None:
    text = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("### What the lines are for\n")[1].split("\n#")[0]
    )
    counted = {room.removesuffix(".py"): count["statements"] for room, count in COUNT["rooms"]().items()}
    rows = re.findall(r"^\| (`.*`) \| (\d+) % \|", text, re.MULTILINE)
    assert len(rows) > 5
    named = [room for rooms, _ in rows for room in re.findall(r"`(\w+)`", rooms)]
    assert sorted(named) == sorted(set(counted) - EVERYWHERE)
    for rooms, share in rows:
        own = sum(counted[room] for room in re.findall(r"`(\w+)`", rooms))
        assert abs(100 * own / sum(counted.values()) - int(share)) < 1.5, rooms


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    files = [file for folder in ("src", "tests", "benchmarks", "docs", ".ci") for file in (ROOT / folder).rglob("*.py")]
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files if "_build" not in file.parts}
    assert len(lines) > 400
    assert not {file.name: n for file, n in lines.items() if n > 500}
