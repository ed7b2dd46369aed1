"""The documentation site; `sphinx-build -W -b html docs docs/_build` builds it, without the network."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from building import pages

import jaxarch

project = "jaxarch"
author = "The jaxarch developers"
version = release = jaxarch.__version__

extensions = [
    "myst_parser",
    "sphinx_design",  # the cards of the first page
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "building.docstrings",
    "building.signatures",
    "building.links",
    "building.formulas",
]
exclude_patterns = ["_build"]
default_role = "code"
nitpicky = True
# Types of other libraries, whose pages are not at hand without the network.
nitpick_ignore_regex = [("py:.*", r"(?!jaxarch\.).*")]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 6

napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False

autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90

html_show_copyright = False
html_theme = "furo"
html_title = f"jaxarch {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Have the pages made that are not written by hand."""
    app.connect("builder-inited", pages.write_pages)
    app.connect("source-read", pages.with_scripts)
    app.connect("source-read", pages.with_links)
