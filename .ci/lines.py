"""Count the lines of every room of the package by kind: `make lines`."""

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "neurecover"
KINDS = ("statements", "docstrings", "imports", "comments", "blank")


def kinds(text: str) -> Counter[str]:
    """Return how many lines of a file are of each kind; a line with both is a statement."""
    found = [_kind(line.strip()) for line in text.splitlines()]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            for number in range(node.lineno, node.end_lineno or node.lineno):  # a line of a text is no comment
                found[number] = found[number].replace("comments", "statements")
            continue
        name, body = "imports", getattr(node, "body", [])
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            name, node = "docstrings", body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        found[first:last] = [name] * (last - first)
    return Counter(found)


def _kind(line: str) -> str:
    return "blank" if not line else "comments" if line.startswith("#") else "statements"


@cache
def rooms() -> dict[str, Counter[str]]:
    """Return the lines of every room by kind; files beside the rooms go by their own names."""
    counted: dict[str, Counter[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        room = file.relative_to(SOURCE).parts[0]
        counted[room] = counted.get(room, Counter()) + kinds(file.read_text(encoding="utf-8"))
    return counted


def table() -> str:
    """Return a row for every room, and one for all."""
    counted = rooms()
    rows = [*counted.items(), ("all", sum(counted.values(), Counter()))]
    lines = [f"{'':14}" + "".join(f"{kind:>12}" for kind in (*KINDS, "together"))]
    for room, count in rows:
        lines.append(f"{room:14}" + "".join(f"{n:>12,}" for n in (*(count[kind] for kind in KINDS), count.total())))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
