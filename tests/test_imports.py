"""Data flows one way through the package: no room imports from one that comes after it."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "neurecover"

# The rooms in the order in which data flows through them. A room may import from itself, from those above it, and from
# `random` and `exceptions`, which hold nothing but themselves. `solve` knows of neither networks nor samples.
ORDER = (
    "random",
    "exceptions",
    "solve",
    "activations",
    "models",
    "matching",
    "simulate",
    "statistics",
    "data",
    "tensors",
    "fit",
    "search",
    "certificate",
    "excerpt",
    "results",
    "planning",
    "algorithms",
    "queries",
    "pipeline",
    "report",
    "interop",
    "__init__",
    "experiment",
    "reproduce",
    "terminal",
    "cli",
    "__main__",
)
# What a room does not look at although it stands above: networks and their comparison are not needed to add up sums.
FORBIDDEN: dict[str, set[str]] = {
    "tensors": {"models", "matching", "simulate", "statistics", "data"},
    "statistics": {"matching", "simulate"},
    "data": {"matching", "simulate"},
    "fit": {"matching", "simulate", "tensors"},
    "search": {"matching", "simulate", "tensors"},
    "certificate": {"matching", "simulate", "tensors"},
    "algorithms": {"matching", "simulate", "planning"},
    "queries": {"matching", "simulate"},
    "pipeline": {"matching", "simulate"},
}
# What a result or a network shows of itself is a method there and lives in a later room, loaded when it is called.
DELEGATES: dict[str, set[str]] = {
    "models": {"report"},
    "matching": {"report"},
    "certificate": {"report"},
    "results": {"report"},
}
ALLOWED = {name: set(ORDER[: place + 1]) - FORBIDDEN.get(name, set()) for place, name in enumerate(ORDER)}

# `pip install neurecover` brings these; every other package is an extra and is imported where it is needed.
CORE = {"numpy", "scipy", "sklearn", "threadpoolctl", "typer", "rich"}
ROOMS_OF_EXTRAS = {"interop", "report"}


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


def imports(file: Path) -> Iterator[Import]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
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
    for file in SOURCE.rglob("*.py"):
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


def test_the_import_is_light() -> None:
    """Heavy libraries are loaded where they are used, and so are the algorithms."""
    script = "import sys, neurecover; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("sklearn", "pandas", "matplotlib", "rich", "typer", "scipy.stats", "scipy.optimize", "scipy.sparse")
    assert not [name for name in loaded if name in heavy]
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
