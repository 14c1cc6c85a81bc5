"""Data flows one way through the package: no room imports from one that comes after it."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "neurecover"

# The rooms in the order in which data flows through them. A room may import from itself, from those above it, and from
# `random` and `exceptions`, which hold nothing but themselves.
ORDER = (
    "random",
    "exceptions",
    "activations",
    "models",
    "matching",
    "solve",
    "statistics",
    "data",
    "tensors",
    "fit",
    "search",
    "certificate",
    "excerpt",
    "queried",
    "inference",
    "wording",
    "estimates",
    "results",
    "algorithms",
    "queries",
    "pipeline",
    "hinges",
    "simulate",
    "planning",
    "interop",
    "report",
    "__init__",
    "experiment",
    "reproduce",
    "terminal",
    "cli",
    "__main__",
)
# What a room does not look at although it stands above: a solver needs no networks, and sums, fits and searches need no
# comparison with a truth.
FORBIDDEN: dict[str, set[str]] = {
    "solve": {"activations", "models", "matching"},
    "statistics": {"matching"},
    "data": {"matching"},
    "tensors": {"models", "matching", "statistics", "data"},
    "fit": {"matching", "tensors"},
    "search": {"matching", "tensors"},
    "certificate": {"matching", "tensors"},
    "algorithms": {"matching"},
    "queries": {"matching"},
    "pipeline": {"matching"},
    "hinges": {"matching", "tensors", "algorithms", "queries"},
}
# What a result or a network shows of itself is a method there and lives in a later room, loaded when it is called.
DELEGATES: dict[str, set[str]] = {
    "models": {"report"},
    "matching": {"report"},
    "certificate": {"report"},
    "results": {"report"},
    "interop": {"report"},
}
ALLOWED = {name: set(ORDER[: place + 1]) - FORBIDDEN.get(name, set()) for place, name in enumerate(ORDER)}

# `pip install neurecover` brings these; every other package is an extra and is imported where it is needed.
CORE = {"numpy", "scipy", "sklearn", "threadpoolctl", "typer", "rich"}
HEAVY = ("sklearn", "pandas", "matplotlib", "scipy.stats")  # a second each: no call pays it that does not need it
NOT_AT_ONCE = (*HEAVY, "rich", "typer", "scipy.optimize", "scipy.sparse")  # nor does `import neurecover` load these
ROOMS_OF_EXTRAS = {"interop", "report"}

WITHOUT_A_ROW = {"random", "exceptions", "__init__", "__main__"}  # of the table of rooms: they belong to every room
MOST_FILES = 15  # side by side in one folder; a folder with more is two ideas


@dataclass(frozen=True)
class Import:
    """One imported module at one line; `outermost` where it runs with the import of the file."""

    file: Path
    line: int
    module: str
    outermost: bool

    @property
    def importer(self) -> str:
        return room(("neurecover", *self.file.relative_to(SOURCE).with_suffix("").parts))

    def __str__(self) -> str:
        return f"{self.file.relative_to(SOURCE.parent)}:{self.line} imports {self.module}"


def room(parts: tuple[str, ...]) -> str:
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> Iterator[Import]:
    tree = parsed(file)
    outermost = {id(node) for node in tree.body}
    package = ("neurecover", *file.relative_to(SOURCE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from neurecover import models` takes a room; `from neurecover.models import Network` names it already.
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "neurecover" else [module]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, name, id(node) in outermost)


def every_import() -> list[Import]:
    return [entry for file in sorted(SOURCE.rglob("*.py")) for entry in imports(file)]


def test_no_function_hides_a_module() -> None:
    """`import neurecover.data.loop` gives a module, whatever the package exports."""
    files = list(SOURCE.rglob("*.py"))
    assert len(files) > 100
    for file in files:
        name = ".".join(("neurecover", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        if name.endswith("__main__"):
            continue
        package, _, last = name.rpartition(".")
        module = importlib.import_module(name)
        if package:
            assert getattr(importlib.import_module(package), last) is module, f"{name} is hidden by something else"


def test_every_file_belongs_to_a_room() -> None:
    files = [file.relative_to(SOURCE).with_suffix("") for file in SOURCE.rglob("*.py")]
    unknown = [str(file) for file in files if file.parts[0] not in ALLOWED]
    assert not unknown, f"These files have no row in ALLOWED: {', '.join(unknown)}."


def test_nothing_imports_from_a_later_room() -> None:
    offences = []
    for entry in every_import():
        parts = tuple(entry.module.split("."))
        if parts[0] != "neurecover":
            continue
        wanted = room(parts)
        if wanted not in ALLOWED:  # a name that __init__ itself defines, such as __version__
            wanted = "__init__"
        if wanted in DELEGATES.get(entry.importer, ()) and not entry.outermost:
            continue
        if wanted not in ALLOWED[entry.importer]:
            offences.append(f"{entry}, and {entry.importer} may not import {wanted}")
    assert not offences, "\n".join(offences)


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of CONTRIBUTING, without its head."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(f"\n{heading}\n")[1]
    lines = [line for line in text.split("\n#")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_contributing_lists_the_rooms_in_their_order() -> None:
    paths = [path for names, _ in table("## Rooms") for path in re.findall(r"`([^`]+)`", names) if path != "src/"]
    assert paths[-1] == "benchmarks/"
    assert (ROOT / paths[-1]).is_dir()
    rooms = [path.rstrip("/").removesuffix(".py") for path in paths[:-1]]
    assert rooms == [room for room in ORDER if room not in WITHOUT_A_ROW]
    assert not [path for path in paths[:-1] if not (SOURCE / path).exists()]


def test_contributing_names_every_sub_folder() -> None:
    rows = table("## Rooms")
    assert len(rows) > 20
    for names, what in rows:
        first = re.findall(r"`([^`]+)`", names)[0]
        folder = SOURCE / first
        if not folder.is_dir():
            continue
        actual = {file.parent.name for file in folder.glob("*/__init__.py")}
        assert set(re.findall(r"`(\w+)/`", what)) == actual, f"The row of {first} names other sub-folders than it has."


def test_contributing_names_what_exists_on_every_path() -> None:
    """A step such as `data` (`as_source`, `Oracle.ask`) names a room, and what is defined in it."""
    steps = [step for _, path in table("### The paths") for step in path.split("→")]
    assert steps
    for step in steps:
        where, *names = re.findall(r"`([^`]+)`", step)
        files = [SOURCE / f"{where}.py"] if (SOURCE / f"{where}.py").exists() else list((SOURCE / where).rglob("*.py"))
        assert files, f"There is no room {where}."
        nodes = [node for file in files for node in ast.walk(parsed(file))]
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        defined |= {
            node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        missing = {part for name in names for part in name.split(".")} - defined
        assert not missing, f"{where} does not define {', '.join(sorted(missing))}."


def test_contributing_says_where_things_are() -> None:
    """Every row names a file or folder, and the names before it are in one of its files."""
    rows = table("### Where to find")
    assert len(rows) >= 4
    for _, where in rows:
        names = re.findall(r"`([^`]+)`", where)
        places = [SOURCE / name for name in names if "/" in name]
        assert places
        assert all(place.exists() for place in places), where
        text = "".join(file.read_text(encoding="utf-8") for file in places if file.is_file())
        assert all(name in text for name in names if "/" not in name), where


def test_no_folder_is_crowded() -> None:
    counts = {folder.relative_to(SOURCE): len(list(folder.glob("*.py"))) for folder in [SOURCE, *SOURCE.rglob("*/")]}
    crowded = {str(folder): n for folder, n in counts.items() if n > MOST_FILES}
    assert not crowded, f"These folders have more than {MOST_FILES} files side by side: {crowded}."


def test_the_import_is_light() -> None:
    """Heavy libraries are loaded where they are used, and so are the algorithms."""
    within = [entry for entry in every_import() if entry.importer not in ROOMS_OF_EXTRAS and entry.outermost]
    assert not [str(entry) for entry in within if entry.module in HEAVY or entry.module.split(".")[0] in HEAVY]
    script = "import sys, neurecover; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name in NOT_AT_ONCE]
    assert not [name for name in loaded if name.startswith(("neurecover.queries", "neurecover.algorithms.atv21"))]


def test_the_package_is_imported_without_extras() -> None:
    offences = [
        str(entry)
        for entry in every_import()
        if entry.outermost
        and entry.importer not in ROOMS_OF_EXTRAS
        and entry.module.split(".")[0] not in {"neurecover", "__future__", *CORE, *sys.stdlib_module_names}
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from neurecover import simulate", ["neurecover.simulate"]),
        ("def f():\n    import neurecover.cli as cli", ["neurecover.cli"]),
        ("from . import cli", ["neurecover.cli"]),
        ("from .simulate import teacher", ["neurecover.simulate"]),
        ("if True:\n    from neurecover.pipeline import recover", ["neurecover.pipeline"]),
        ("import neurecover", ["neurecover"]),
    ],
)
def test_imports_are_seen_wherever_they_stand(
    text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "matching.py").write_text(text)
    assert [entry.module for entry in every_import()] == expected
    assert {entry.importer for entry in every_import()} == {"matching"}
