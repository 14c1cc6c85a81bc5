"""No test can pass without having tried anything: in every one there is a check that is sure to be reached.

A check within an `if`, or within a loop over what may be empty, is none: what it stands in may never happen, as where a
test of sentences finds no sentence. A loop is sure where it goes over a literal, a range or a constant of the module;
else the test counts what it has tried, and asks for it.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
CHECKS = ("np.testing.", "pytest.raises", "pytest.warns", "pytest.fail")
LOOPS = ("range", "np.linspace", "np.geomspace", "np.arange")
OVER = ("zip", "enumerate", "reversed", "sorted", "itertools.product", "product")


def is_sure(loop: ast.expr, known: set[str]) -> bool:
    """Return whether a loop over this has a first turn, as far as the text tells."""
    if isinstance(loop, ast.Tuple | ast.List | ast.Set):
        return bool(loop.elts)
    if isinstance(loop, ast.Dict):
        return bool(loop.keys)
    if isinstance(loop, ast.Call) and ast.unparse(loop.func) in OVER:
        return all(is_sure(argument, known) for argument in loop.args)
    if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Attribute) and loop.func.attr in ("items", "values"):
        return is_sure(loop.func.value, known)
    if isinstance(loop, ast.Call):
        return ast.unparse(loop.func) in LOOPS
    name = loop.id if isinstance(loop, ast.Name) else loop.attr if isinstance(loop, ast.Attribute) else ""
    return name.isupper() or name in known


def checks(body: list[ast.stmt], known: set[str], helpers: set[str]) -> bool:
    """Return whether a check is sure to be reached; `helpers` are functions that make one."""
    return any(_checks(statement, known, helpers) for statement in body)


def _checks(statement: ast.stmt, known: set[str], helpers: set[str]) -> bool:
    match statement:
        case ast.FunctionDef() | ast.ClassDef() | ast.While():
            return False
        case ast.If(body=body, orelse=other):
            return checks(body, known, helpers) and checks(other, known, helpers)
        case ast.For(iter=loop, body=body):
            return is_sure(loop, known) and checks(body, known, helpers)
        case ast.With(items=items, body=body):
            return any(_is_check(item.context_expr, helpers) for item in items) or checks(body, known, helpers)
        case ast.Try(body=body, finalbody=last):
            return checks([*body, *last], known, helpers)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_sure(value, known):
            known.add(name)
    return any(_is_check(node, helpers) for node in ast.walk(statement))


def _is_check(node: ast.AST, helpers: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert)
    called = ast.unparse(node.func)
    return called.startswith(CHECKS) or called.rpartition(".")[2] in helpers


@cache
def every_function() -> list[tuple[Path, ast.FunctionDef]]:
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(ROOT.rglob("*.py"))}
    every = [(file, node) for file, tree in trees.items() for node in ast.walk(tree)]
    return [(file, node) for file, node in every if isinstance(node, ast.FunctionDef)]


def functions(tests: bool) -> list[tuple[Path, ast.FunctionDef]]:
    return [(file, node) for file, node in every_function() if node.name.startswith("test_") == tests]


def helpers_that_check() -> set[str]:
    """Return the functions in which a check is sure to be reached, by way of others too, and `check(estimator)`."""
    found, before = {"check"}, 0
    while len(found) > before:
        before = len(found)
        found |= {node.name for _, node in functions(tests=False) if checks(node.body, set(), found)}
    return found


def test_every_test_tries_something() -> None:
    helpers, tests = helpers_that_check(), functions(tests=True)
    assert len(tests) > 1_000
    idle = [f"{file.name}: {node.name}" for file, node in tests if not checks(node.body, set(), helpers)]
    assert not idle


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("assert f()", True),
        ("if f(): assert g()", False),
        ("if f(): assert g()\nelse: assert h()", True),
        ("for x in found: assert x", False),
        ("for x in (1, 2): assert x", True),
        ("for x in SEEDS: assert x", True),
        ("names = ('a', 'b')\nfor name in names: assert name", True),
        ("for x in zip(range(3), found): assert x", False),
        ("with pytest.raises(ValueError): f()", True),
        ("with f(): g()", False),
        ("def inner(): assert f()", False),
    ],
)
def test_what_counts_as_a_check(text: str, sure: bool) -> None:
    assert checks(ast.parse(text).body, set(), set()) == sure
