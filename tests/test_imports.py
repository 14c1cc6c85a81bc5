"""Data flows one way through the package: no room imports from one that comes after it."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "neurecover"

_NUMBERS = {"activations", "network"}
_SAMPLES = _NUMBERS | {"statistics", "data"}
_SOLVERS = _SAMPLES | {"tensors", "refine", "methods"}
_ANSWERS = _SOLVERS | {
    "risk",
    "deep",
    "compare",
    "identifiability",
    "results",
    "certify",
    "recover",
    "recover_deep",
    "simulate",
}

# What each room may import besides itself and `random`, through which all randomness comes.
ALLOWED: dict[str, set[str]] = {
    "random": set(),
    "activations": set(),
    "network": {"activations"},
    "risk": _NUMBERS | {"tensors"},
    "compare": _NUMBERS | {"risk"},
    "statistics": {"activations"},
    "data": {"statistics"},
    "tensors": {"activations"},
    "deep": _NUMBERS | {"compare"},
    "simulate": _NUMBERS | {"deep"},
    "results": {"network"},
    "refine": _SAMPLES,
    "methods": _SAMPLES | {"tensors", "refine", "deep"},
    "identifiability": _NUMBERS | {"tensors", "refine"},
    "certify": _SAMPLES | {"results", "identifiability"},
    "verify": _SAMPLES | {"results", "certify"},
    "recover": _SOLVERS | {"results", "identifiability", "certify"},
    "recover_deep": _SOLVERS | {"deep", "results", "recover"},
    "report": {"network", "results", "compare"},
    "__init__": _ANSWERS | {"verify", "interop"},
    "interop": _SOLVERS | {"deep", "results", "recover"},
    "experiments": _ANSWERS | {"verify", "interop", "report", "__init__"},
    "terminal": _ANSWERS | {"verify", "experiments"},
    "cli": _ANSWERS | {"verify", "interop", "report", "experiments", "terminal", "__init__"},
    "__main__": {"cli"},
}

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
            # `from neurecover import compare` takes a room; `from neurecover.compare import compare` names it already.
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "neurecover" else [module]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, name, id(node) in outermost)


def every_import() -> list[Import]:
    return [entry for file in sorted(SOURCE.rglob("*.py")) for entry in imports(file)]


def test_the_table_of_rooms_has_no_cycle() -> None:
    order = list(TopologicalSorter({name: sorted(others) for name, others in ALLOWED.items()}).static_order())
    assert order.index("network") < order.index("refine") < order.index("recover") < order.index("cli")


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
        if wanted not in {entry.importer, "random", *ALLOWED.get(entry.importer, ())}:
            offences.append(f"{entry}, and {entry.importer} may not import {wanted}")
    assert not offences, "\n".join(offences)


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
        ("if True:\n    from neurecover.recover import recover", ["neurecover.recover"]),
        ("import neurecover", ["neurecover"]),
    ],
)
def test_imports_are_seen_wherever_they_stand(
    text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "network.py").write_text(text)
    assert [entry.module for entry in every_import()] == expected
    assert {entry.importer for entry in every_import()} == {"network"}
