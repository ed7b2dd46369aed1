"""Vega-Lite specifications of charts, and the library that draws them in a browser."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from jaxarch import ArgumentError
from jaxarch.lab.charts.chart import Chart
from jaxarch.lab.checks import shown

COLOURS = ("#0072B2", "#D55E00", "#00875F", "#B5588F", "#A87400", "#3E7FC1", "#7A7A7A")
"""Colors as in the other figures, but each stands out from both a white and a dark page."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left")
ROW = 30
"""Height of a name's row, in pixels."""
HEIGHT = 340
DIGITS = 6
"""Significant digits of every number, in positions and tooltips."""
TEXTS = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12}
"""Style of axes and legends: the color of the page's own text."""

_BUNDLE = """
import sys, vl_convert
version = sys.argv[1] if sys.argv[1] in vl_convert.get_vegalite_versions() else None
sys.stdout.reconfigure(encoding="utf-8", newline="")
print(vl_convert.javascript_bundle(vl_version=version), end="")
"""
"""A bundle without a snippet makes Vega, Vega-Lite and vega-embed global."""


@cache
def javascript() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed; it needs no network, and sets `vegaEmbed`."""
    import altair

    wanted = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    # Its engine ends the whole process if virtual memory is limited, so run it in a process of its own.
    done = subprocess.run([sys.executable, "-c", _BUNDLE, wanted], capture_output=True, encoding="utf-8")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ArgumentError(
            "charts: vl-convert, which has their JavaScript library, ended with status "
            f"{done.returncode} ({shown(lines[-1])}); if virtual memory is limited, raise `ulimit -v`"
        )
    return done.stdout


def specification(chart: Chart) -> dict[str, Any]:
    """Return a chart as a Vega-Lite specification with its data, as wide as the page allows.

    Texts have the color of the page's text. `usermeta` has the length of the longest series name, in
    characters.

    Example:
      >>> import pandas as pd
      >>> from jaxarch.lab.charts import Chart, specification
      >>> runs = pd.DataFrame({"strategy": ["bin", "bin"], "auc": [0.9, 0.8], "seed": [0, 1]})
      >>> made = specification(Chart("digits", runs, x="auc", y="strategy", series="strategy"))
      >>> made["width"], [row["x"] for row in made["layer"][0]["data"]["values"]]
      ('container', [0.9, 0.8])
    """
    import altair as alt

    fields = _fields(chart)
    runs, medians = chart.points, chart.medians
    series = [str(name) for name in runs[chart.series].unique()]
    turns = [i + i // len(COLOURS) for i in range(len(series))]
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(series))]
    shapes = [SHAPES[turn % len(SHAPES)] for turn in turns]
    picked = alt.selection_point(name="picked", fields=[fields[chart.series]], bind="legend")
    legend = None if chart.by_name and chart.y == chart.series else alt.Legend()

    across, up = (
        alt.Scale(type="log", nice=False) if logarithmic else alt.Scale(zero=False)
        for logarithmic in chart.logarithmic
    )
    names = [str(name) for name in runs[chart.y].unique()] if chart.by_name else None
    by_series: dict[str, Any] = {"field": fields[chart.series], "type": "nominal"}
    by_series["title"] = chart.label(chart.series)
    colour = alt.Color(**by_series, legend=legend, scale=alt.Scale(domain=series, range=colours))
    shape = alt.Shape(**by_series, legend=legend, scale=alt.Scale(domain=series, range=shapes))

    def placed(rows: pd.DataFrame) -> alt.Chart:
        """Make the base of a layer: data, positions and color."""
        y = (
            alt.Y(fields[chart.y], type="nominal", title=None, sort=names)
            if chart.by_name
            else alt.Y(fields[chart.y], type="quantitative", title=chart.label(chart.y), scale=up)
        )
        of = alt.Chart(alt.Data(values=_records(rows, chart, fields))).encode(
            x=alt.X(fields[chart.x], type="quantitative", title=chart.label(chart.x), scale=across),
            y=y,
            color=colour,
        )
        if chart.by_name and chart.y != chart.series:
            of = of.encode(yOffset=alt.YOffset(fields[chart.series], type="nominal", sort=series))
        return of

    def telling(rows: pd.DataFrame) -> list[alt.Tooltip]:
        return [
            alt.Tooltip(fields[name], type=_type(chart, name), title=chart.label(name))
            for name in (*chart.columns, "runs")
            if name in rows
        ]

    faint = alt.when(picked).then(alt.value(0.55)).otherwise(alt.value(0.04))
    whole = alt.when(picked).then(alt.value(1.0)).otherwise(alt.value(0.06))
    points = placed(runs).mark_point(size=36, filled=True)
    layers = [points.encode(shape=shape, tooltip=telling(runs), opacity=faint).add_params(picked)]
    if len(medians) and chart.by_name:
        ticks = placed(medians).mark_tick(thickness=3, size=14)
        layers.append(ticks.encode(tooltip=telling(medians), opacity=whole))
    elif len(medians):
        order = alt.Order(fields[chart.at], type="quantitative")
        layers.append(placed(medians).mark_line(strokeWidth=1.6).encode(order=order, opacity=whole))
        points = placed(medians).mark_point(size=90, filled=True)
        layers.append(points.encode(shape=shape, tooltip=telling(medians), opacity=whole))
    layered = alt.layer(*layers).properties(
        width="container",
        height=HEIGHT if names is None else ROW * max(len(names), 2),
        description=chart.description,
        usermeta={"longest": max(map(len, series), default=0)},
    )
    return _in_the_page(layered)


def _fields(chart: Chart) -> dict[str, str]:
    """Return a safe field name for each column: columns may have any name, with dots and brackets too."""
    fields = {name: f"c{i}" for i, name in enumerate(chart.columns)} | {"runs": "runs"}
    fields[chart.x] = "x"
    if chart.y != chart.series:
        fields[chart.y] = "y"
    return fields


def _in_the_page(layered: Any) -> dict[str, Any]:
    """Return the specification of layers, in the width and the colors of the page."""
    import altair as alt

    made: dict[str, Any] = (
        layered.configure(background="transparent", autosize=alt.AutoSizeParams(type="fit-x"))
        .configure_view(stroke=None)
        .configure_axis(
            **TEXTS,
            domainColor="currentColor",
            tickColor="currentColor",
            gridColor="currentColor",
            gridOpacity=0.15,
            titleFontSize=12,
            titleFontWeight="normal",
        )
        .configure_legend(
            orient="bottom",
            **TEXTS,
            labelLimit=320,
            symbolOpacity=1,
            title=None,
        )
        .to_dict()
    )
    return made


def _type(chart: Chart, column: str) -> Any:
    """Return the type of a column: names and booleans are nominal."""
    if column == "runs":
        return "quantitative"
    values = chart.table[column]
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    return "quantitative" if numeric and column != chart.series else "nominal"


def _records(rows: pd.DataFrame, chart: Chart, fields: dict[str, str]) -> list[dict[str, Any]]:
    """Return rows for JSON: rounded numbers, `None` for non-finite ones, text for all else."""
    columns = {
        fields[name]: [_plain(value, name == chart.series) for value in rows[name]]
        for name in rows
        if name in fields
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(value: Any, name: bool) -> Any:
    if name or not isinstance(value, (int, float, np.number)) or isinstance(value, (bool, np.bool_)):
        return str(value)
    if not np.isfinite(value):
        return None
    number = float(f"{value:.{DIGITS}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
