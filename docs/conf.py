"""The documentation site: `make docs` builds it from these pages and the docstrings."""

import neurecover

project = "neurecover"
copyright = "the neurecover contributors"
release = version = neurecover.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "neurecover"
html_static_path: list[str] = []
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b5e8c", "color-brand-content": "#1b5e8c"},
    "dark_css_variables": {"color-brand-primary": "#7fc1ee", "color-brand-content": "#7fc1ee"},
}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
numpydoc_show_class_members = False
