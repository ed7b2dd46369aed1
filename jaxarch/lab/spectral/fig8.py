"""[S] figure 8: parameter counts of a search in spectral weights and in direct weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.checks import check_count, check_memory
from jaxarch.lab.harness import (
    FLOAT_BYTES,
    RESULT_NUMBERS,
    Context,
    Experiment,
    ExperimentSettings,
    Outcome,
    Results,
    finding,
    tables,
)
from jaxarch.lab.spectral import wording
from jaxarch.spectral import parameter_counts

FORMS = {"spectral": "spectral", "direct": "direct, with all skips", "mlp": "direct, without skips"}
COLUMNS = {"layers": "all layers, input and output included"}


@dataclasses.dataclass(frozen=True)
class Settings(ExperimentSettings):
    """Settings of `jaxarch run spectral.fig8`, changed with `--set NAME=VALUE`.

    Attributes:
      width: neurons in every layer.
      layers: largest number of layers, from 2 on, input and output included.
    """

    width: int = 100
    layers: int = 20

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        check_count("width", self.width)
        check_count("layers", self.layers, least=2)
        check_memory("layers", FLOAT_BYTES * self.layers * RESULT_NUMBERS, f"a table of {self.layers} rows")


def plan(settings: Settings) -> list[str]:
    """Describe the planned counts."""
    return [f"parameters of networks of 2 to {settings.layers} layers of {settings.width} neurons"]


def run(settings: Settings, context: Context) -> Outcome:
    """Count the parameters."""
    counts = [
        {"layers": layers, **parameter_counts((settings.width,) * layers)}
        for layers in range(2, settings.layers + 1)
    ]
    table = pd.DataFrame(counts)
    table.insert(0, "width", settings.width)
    found = [
        finding(
            f"parameters of the spectral form over those of all skips as weights, {layers} layers of "
            f"{settings.width}",
            spectral / direct,
        )
        for layers, spectral, direct in table[["layers", "spectral", "direct"]].itertuples(index=False)
    ]
    return Outcome(table, found)


def conclusion(results: Results) -> Iterable[str]:
    """Compare the parameters of the spectral form with both kinds of direct weights."""
    table = results.table.sort_values("layers")
    layers, width = table["layers"].to_numpy(), table["width"].iloc[0]
    ends = dict.fromkeys((layers.min(), layers.max()))
    compared = []
    for form, skips in (("direct", "with all skips"), ("mlp", "without skips")):
        ratios = pd.Series((table["spectral"] / table[form]).to_numpy(), layers)
        said = " and ".join(f"{ratios[end]:.3g} times ({end} layers)" for end in ends)
        fewer = ratios.index[ratios < 1]
        below = f"fewer from {fewer[0]} layers on" if len(fewer) else "in no case fewer"
        compared.append(f"{said} the parameters of direct weights {skips}, {below}")
    yield f"In layers of {width} neurons, the spectral form has {compared[0]}."
    yield f"It has {compared[1]}."


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build its table."""
    table = results.table
    layers, width = table["layers"].to_numpy(), table["width"].iloc[0]
    title = f"parameters, layers of {width} neurons"
    lines = {label: (layers, table[form].to_numpy(np.float64)) for form, label in FORMS.items()}
    least = min(values.min() for _, values in lines.values()) / 2
    figure = plots.curves({title: lines}, "layers, including input and output", logarithmic={title: least})
    results.draw(figure, "parameters")
    rows = [
        (str(row["layers"]), *(f"{row[form]:,}" for form in FORMS), f"{row['spectral'] / row['direct']:.3f}")
        for _, row in table.iterrows()
    ]
    columns = ("layers", *FORMS.values(), "spectral / direct with all skips")
    return [tables.table(title, columns, rows), *wording.explain(FORMS.values(), COLUMNS)]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, trains=False)
