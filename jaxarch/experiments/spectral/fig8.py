"""[S] figure 8: how many parameters a search needs, with spectral weights and with weights themselves."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots, results
from jaxarch.errors import check_count
from jaxarch.experiments.harness import records, tables
from jaxarch.experiments.harness.experiment import FLOAT_BYTES, RESULT_NUMBERS, Experiment
from jaxarch.memory import check_memory
from jaxarch.running.fit import Progress
from jaxarch.spectral.readout import parameter_counts

NAME = "spectral.fig8"
FORMS = {"spectral": "spectral", "direct": "direct, with all skips", "mlp": "direct, without skips"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What can be set with `jaxarch run spectral.fig8 --set NAME=VALUE`.

    Attributes:
      width: neurons in every layer.
      layers: networks have from 2 to this many, input and output included.
    """

    width: int = 100
    layers: int = 20

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        check_count("width", self.width)
        check_count("layers", self.layers, least=2)
        check_memory("layers", FLOAT_BYTES * self.layers * RESULT_NUMBERS, f"a table of {self.layers} rows")


def plan(settings: Settings) -> list[str]:
    """What would be counted."""
    settings.check()
    return [f"parameters of networks of 2 to {settings.layers} layers of {settings.width} neurons"]


def run(settings: Settings, folder: Path, progress: Callable[[Progress], None] | None = None) -> None:
    """Count the parameters."""
    started = time.time()
    settings.check()
    counts = [
        {"layers": layers, **parameter_counts((settings.width,) * layers)}
        for layers in range(2, settings.layers + 1)
    ]
    table = pd.DataFrame(counts)
    table.insert(0, "width", settings.width)
    found = [
        results.finding(
            f"parameters of the spectral form over those of all skips as weights, {layers} layers of "
            f"{settings.width}",
            spectral / direct,
        )
        for layers, spectral, direct in table[["layers", "spectral", "direct"]].itertuples(index=False)
    ]
    records.write(folder, NAME, settings, started, table, found)


def report(folder: Path) -> list[RenderableType]:
    """Draw the figure of a folder from its file, and make its table."""
    table = results.read_table(folder)
    layers, width = table["layers"].to_numpy(), table["width"].iloc[0]
    title = f"parameters, layers of {width} neurons"
    lines = {label: (layers, table[form].to_numpy(np.float64)) for form, label in FORMS.items()}
    least = min(values.min() for _, values in lines.values()) / 2
    figure = plots.curves({title: lines}, "layers, input and output included", logarithmic={title: least})
    plots.save(figure, folder, "parameters")
    rows = [
        (str(row["layers"]), *(f"{row[form]:,}" for form in FORMS), f"{row['spectral'] / row['direct']:.3f}")
        for _, row in table.iterrows()
    ]
    columns = ("layers", *FORMS.values(), "spectral / direct with all skips")
    return [tables.table(title, columns, rows)]


EXPERIMENT = Experiment(
    NAME,
    "figure 8 of [S]: parameters of spectral networks and of networks with all skip connections",
    Settings,
    plan,
    run,
    report,
)
