"""Interactive charts of an experiment's runs, drawn by the browser.

Altair is imported when the first chart is made into a specification.
"""

from jaxarch.lab.charts.chart import Chart
from jaxarch.lab.charts.vega_lite import javascript, specification

__all__ = ["Chart", "javascript", "specification"]
