"""The examples of the README and of docs/ are run as they stand, and the files they point to exist."""

import re
import runpy
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from neurecover import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW = {"bench", "reproduce"}
SLOW_PAGES = {"large.md"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language and its text, which begins after line `line`."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    # A block in braces is a directive of the site; it is taken out whole, so that its end begins no other block.
    text = re.sub(r"^```\{.*?^```$", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text[: match.start()].count("\n") + 1, match[1], match[2]) for match in found]


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW_PAGES))
        for page in PAGES
        if page.name != "tutorial.md"  # which `test_the_tutorial_prints_what_it_says` runs
    ],
    ids=lambda page: page.name,
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks stand by themselves; the commands of a page follow on from each other, in one folder."""
    monkeypatch.chdir(tmp_path)
    assert page.read_text(encoding="utf-8").strip()
    for block in blocks(page):
        if block.language == "python":
            # Empty lines in front make a traceback point to the line of the page.
            exec(compile("\n" * block.line + block.text, str(page), "exec"), {"__name__": "__example__"})
        elif block.language == "sh":
            for line in block.text.splitlines():
                run_line(line, str(block))


def test_the_tutorial_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word for word; numbers are those of a machine."""
    monkeypatch.chdir(tmp_path)
    printed, compared = "", 0
    for block in blocks(ROOT / "docs" / "tutorial.md"):
        if block.language == "python":
            exec(block.text, {"__name__": "__example__"})
            printed = capsys.readouterr().out
        else:
            assert without_numbers(printed) == without_numbers(block.text), str(block)
            compared += 1
    assert compared == 7


def without_numbers(text: str) -> list[str]:
    return re.sub(r"\d[\d.,]*(e[+-]?\d+)?", "#", text).split()


def run_line(line: str, where: str) -> None:
    words = shlex.split(line, comments=True)
    if not words or words[0] in ("make", "pip"):  # tests/test_wheel.py installs the package
        return
    assert words[0] == "neurecover", f"{where}: {line!r} is not one of our commands."
    if words[1] in SLOW and len(words) > 2:
        words = ["neurecover", words[1]]  # the list of names instead of hours of work
    with pytest.raises(SystemExit) as left:
        cli.main(words[1:])
    assert left.value.code == 0, f"{where}: {line!r} ended with status {left.value.code}."


@every_page
def test_blocks_name_a_language_that_is_checked(page: Path) -> None:
    unknown = [
        f"{block} {block.language!r}" for block in blocks(page) if block.language not in {"python", "sh", "text"}
    ]
    assert not unknown


@every_page
def test_links_point_to_files_that_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    lost = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not lost


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make (\w+)`|^make (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert {one or other for one, other in named} <= targets, page.name


def test_the_figures_are_those_of_the_saved_tables() -> None:
    namespace = runpy.run_path(str(ROOT / "docs" / "make_figures.py"))
    assert (ROOT / "docs" / "figures.md").read_text(encoding="utf-8") == namespace["page"]()
    for front in namespace["FRONT"]:
        text = front.read_text(encoding="utf-8")
        assert text == namespace["with_table"](text), front.name
