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


# The example of `endpoint` needs a server, as tests/data/test_endpoint.py has one.
@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "endpoint"])
def test_examples_of_docstrings_run(name: str) -> None:
    public: Any = getattr(nr, name)
    tests = doctest.DocTestFinder(recurse=False).find(public, name, globs={})
    results = [doctest.DocTestRunner(verbose=False).run(test) for test in tests]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
