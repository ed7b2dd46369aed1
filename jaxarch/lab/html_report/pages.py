"""Pages from templates, with every text escaped, and their files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jaxarch.io._files import complete_file
from jaxarch.lab import charts
from jaxarch.lab.charts import Chart

FILES = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("jaxarch.lab.html_report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["in_script"] = in_script
    made.filters["specification"] = charts.specification
    return made


def page(template: str, shown: Sequence[Chart] = (), **values: Any) -> str:
    """Render a page from a template, with its styles, its scripts, and libraries if there are charts."""
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            charts=shown,
            style=Markup((FILES / "style.css").read_text(encoding="utf-8")),
            script=Markup((FILES / "page.js").read_text(encoding="utf-8")),
            sorting=_library(_tables()),
            drawing_library=_library(charts.javascript()) if shown else "",
        )
    )


def write(text: str, path: Path) -> None:
    """Write a page to a file, whole or not at all."""
    with complete_file(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def in_script(value: Any) -> Markup:
    """Return a value as JSON for a script; `<` is escaped, so that no text in it can end the script."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))


@cache
def _tables() -> str:
    """Return itables' JavaScript of DataTables: a module whose default export makes tables sortable."""
    from itables.utils import read_package_file

    return read_package_file("html", "dt_bundle.js")


def _library(source: str) -> Markup:
    return Markup(source.replace("</script", "<\\/script"))
