"""Formulas as MathML, which browsers show without a script and without the network."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

FUNCTION = re.compile(
    r"(?<=<mi>)(cosh|inf|log|max|min|sin|sinh|tanh)(?=</mi>(?!<mo stretchy=\"false\">&#x00028;))"
)


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line."""
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula in lines of its own, which scrolls where the page is narrow."""
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def mathml(latex: str, display: str) -> str:
    """MathML of LaTeX, with a thin space after `log` and its like."""
    return FUNCTION.sub("\\1\N{THIN SPACE}", convert(latex, display=display))


def setup(app: Sphinx) -> dict[str, bool]:
    """Make it the way in which HTML has its formulas."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
