"""Web pages of a result folder, or of two side by side: one file each, without network access."""

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
