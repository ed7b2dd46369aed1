"""A result folder as one page for the browser, and two folders beside one another: no network, one file."""

from jaxarch.lab.html_report.comparison import Comparison, check_comparable, compare, comparison_page
from jaxarch.lab.html_report.pages import write
from jaxarch.lab.html_report.report import NAME, Reported, report_page

__all__ = [
    "NAME",
    "Comparison",
    "Reported",
    "check_comparable",
    "compare",
    "comparison_page",
    "report_page",
    "write",
]
