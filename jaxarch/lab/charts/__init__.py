"""Figures that answer to the mouse: what an experiment shows of its runs, drawn by the browser.

Altair is imported with the first that is made into a specification.
"""

from jaxarch.lab.charts.chart import Chart
from jaxarch.lab.charts.vega_lite import javascript, specification

__all__ = ["Chart", "javascript", "specification"]
