"""Docstrings of everything public: the numpydoc sections, every parameter named, and examples that run."""

import doctest
import inspect
from typing import Any

import pytest

import neurecover as nr

PUBLIC = [name for name in nr.__all__ if not inspect.ismodule(getattr(nr, name))]


def sections(docstring: str) -> dict[str, str]:
    """Return the text of every section, by its heading."""
    lines, found, name = docstring.splitlines(), {}, ""
    for line, below in zip(lines, [*lines[1:], ""]):
        if line and set(below) == {"-"} and len(below) == len(line):
            name = line
        found[name] = found.get(name, "") + line + "\n"
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_have_their_sections(name: str) -> None:
    public: Any = getattr(nr, name)
    parts = sections(inspect.getdoc(public) or "")
    assert "Examples" in parts
    if not inspect.isclass(public):
        assert "Returns" in parts
        missing = [one for one in inspect.signature(public).parameters if one not in parts.get("Parameters", "")]
        assert not missing, f"{name} does not explain {', '.join(missing)}"
    else:
        assert "Parameters" in parts or "Attributes" in parts


METHODS = [
    (kind, name)
    for kind in (nr.Recovery, nr.Network, nr.DeepNetwork, nr.HingeRegression, nr.NetworkRecovery, nr.HalfspaceUnion)
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
    and method.__module__.startswith("neurecover")
    and name not in ("rows", "take", "to_arrays")
] + [(nr.simulate, name) for name in ("teacher", "sample", "smoothed")]


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=lambda one: getattr(one, "__name__", one))
def test_methods_say_their_parameters_and_what_they_return(kind: type, name: str) -> None:
    method = getattr(kind, name)
    parts, signature = sections(inspect.getdoc(method) or ""), inspect.signature(method)
    assert "Returns" in parts or signature.return_annotation in (None, "None")
    missing = [one for one in signature.parameters if one != "self" and one not in parts.get("Parameters", "")]
    assert not missing, f"{kind.__name__}.{name} does not explain {', '.join(missing)}"
    for test in doctest.DocTestFinder(recurse=False).find(method, name, globs={}):
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


# The example of `endpoint` needs a server, as tests/data/test_endpoint.py has one.
@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "endpoint"])
def test_examples_of_docstrings_run(name: str) -> None:
    public: Any = getattr(nr, name)
    tests = doctest.DocTestFinder(recurse=False).find(public, name, globs={})
    results = [doctest.DocTestRunner(verbose=False).run(test) for test in tests]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
