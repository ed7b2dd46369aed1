"""Descriptions of figures in words, for readers who cannot see them: titles, axes, rows and lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter

from jaxarch.plots._style import named_handles


def described(figure: Figure) -> str:
    r"""Describe a figure by its own texts, without anything that only the eye can tell.

    Example:
      >>> import jaxarch, numpy as np
      >>> from jaxarch.plots._descriptions import described
      >>> losses = {"dense": np.array([[3.0, 2.0]])}
      >>> figure = jaxarch.plots.convergence(losses, r"loss $L_\mathrm{0}$", "digits")
      >>> described(figure)  # doctest: +ELLIPSIS
      'Panels: digits. Across: step (...). Up: loss L_0. Shown: dense.'
    """
    panels = [axes for axes in figure.axes if axes.axison]
    titles = [axes.get_title(where) for axes in panels for where in ("left", "center")]
    names = [
        label.get_text()
        for axes in panels
        if isinstance(axes.yaxis.get_major_formatter(), FixedFormatter)
        for label in axes.get_yticklabels()
    ]
    parts = {
        "": [figure.get_suptitle()],
        "Panels: ": titles,
        "Across: ": [axes.get_xlabel() for axes in panels],
        "Up: ": [axes.get_ylabel() for axes in panels],
        "Rows: ": names,
        "Shown: ": [
            *named_handles(figure),
            *(text.get_text() for legend in figure.legends for text in legend.get_texts()),
        ],
    }
    said = ((words, ", ".join(_each_once(texts))) for words, texts in parts.items())
    return " ".join(f"{words}{texts}." for words, texts in said if texts) or "A figure without texts."


def _each_once(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(map(plain, texts)) if text]


def plain(text: str) -> str:
    r"""Return a text without the markup of mathematics.

    Example:
      >>> from jaxarch.plots._descriptions import plain
      >>> plain(r"norm of $\Gamma$, $M_{\mathrm{hard}}$")
      'norm of Gamma, M_hard'
    """
    spoken = re.sub(r"\\math\w+|[${}\\]", "", text)
    return " ".join(spoken.split())
