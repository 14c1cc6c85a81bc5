"""A number in a constant of a module has its reason beside it: a comment, or the module's docstring names it.

A number that decides about an answer is a field of the room's options. What is left are sizes of blocks, definitions
and numbers that follow from others. Settings of experiments and of pictures are their own reason.
"""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "neurecover"
OWN_REASON = ("reproduce", "report", "cli")  # settings of experiments and pictures, exit statuses
DEFINITIONS = {"_FIXED", "FAMILIES"}  # activations and families of outputs by name


def constants(file: Path) -> list[tuple[str, bool]]:
    """Return the names of a module's constants that hold a number, and whether each has a reason."""
    text = file.read_text(encoding="utf-8")
    tree, lines, found = ast.parse(text), text.splitlines(), []
    docstring = ast.get_docstring(tree) or ""
    for statement in tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        names = re.findall(r"\w+", ast.unparse(target))
        values = [node.value for node in ast.walk(statement.value) if isinstance(node, ast.Constant)]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if numbers and all(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in names):
            beside = any("#" in line for line in lines[statement.lineno - 1 : statement.end_lineno])
            above = statement.lineno > 1 and lines[statement.lineno - 2].startswith("#")
            named = any(re.search(rf"\b{name}\b", docstring) for name in names)
            found += [(name, beside or above or named) for name in names]
    return found


def test_every_number_has_its_reason() -> None:
    files = [file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] not in OWN_REASON]
    every = [(f"{file.relative_to(SOURCE)}: {name}", reason) for file in files for name, reason in constants(file)]
    assert len(every) > 50
    assert not [where for where, reason in every if not reason and where.rpartition(" ")[2] not in DEFINITIONS]


def test_what_counts_as_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""NAMED is two."""\nA = 1\nB = 1  # one\n# two\nC = 2\nNAMED = 2\nlower = 1\nD = "text"\n')
    assert constants(file) == [("A", False), ("B", True), ("C", True), ("NAMED", True)]
