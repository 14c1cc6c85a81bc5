"""The documentation site: `make docs` builds it from these pages and the docstrings."""

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
autodoc_member_order = "bysource"
autodoc_typehints = "description"
numpydoc_show_class_members = False


def _mathml(self: Any, node: nodes.math | nodes.math_block) -> None:
    """Formulas as MathML, which browsers draw by themselves: the site asks no other for anything."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    self.body.append(latex2mathml.converter.convert(node.astext(), display=display))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (_mathml, None), (_mathml, None))
