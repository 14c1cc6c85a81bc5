"""The documentation site: `make docs` builds it from these pages and the docstrings."""

import re
from typing import Any

import latex2mathml.converter
from docutils import nodes

import neurecover

project = "neurecover"
copyright = "the neurecover contributors"
release = version = neurecover.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "neurecover"
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b5e8c", "color-brand-content": "#1b5e8c"},
    "dark_css_variables": {"color-brand-primary": "#7fc1ee", "color-brand-content": "#7fc1ee"},
}
default_role = "code"  # what stands in single quotes in a docstring is a name
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False


def _mathml(self: Any, node: nodes.math | nodes.math_block) -> None:
    """Formulas as MathML, which browsers draw by themselves: the site asks no other for anything."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    self.body.append(latex2mathml.converter.convert(node.astext(), display=display))
    raise nodes.SkipNode


def _described(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings say `name : what it is`, where numpydoc expects a type: the words go below the name.

    What follows the list of parameters without being one is a note. The estimators have types, as scikit-learn's do.
    """
    if "Parameters" not in lines or getattr(obj, "__module__", "").startswith("neurecover.interop"):
        return
    begin = lines.index("Parameters") + 2
    headings = [at - 1 for at, line in enumerate(lines) if re.fullmatch("-{3,}", line) and at > begin]
    end = min(headings, default=len(lines))
    made: list[str] = []
    for at, line in enumerate(lines[begin:end], begin):
        told = re.match(r"([\w*]+(?:, [\w*]+)*) : (.*)", line)
        if told is not None:
            made += [told[1], f"    {told[2]}"]
        elif line and not line.startswith(" "):
            made += ["Notes", "-----", *lines[at:end]]
            break
        else:
            made.append(line)
    lines[begin:end] = made


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _described, priority=100)  # before numpydoc reads the sections
    app.add_html_math_renderer("mathml", (_mathml, None), (_mathml, None))
