"""[D] figure 2: the binarization B_M and its derivative, for several M."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import RenderableType

from jaxarch import plots
from jaxarch.lab.checks import check_count, check_positive
from jaxarch.lab.harness import Context, Experiment, ExperimentSettings, Outcome, Results, finding, tables
from jaxarch.masks import two_temperature

NEAR_ZERO = 0.01
"""Share of its maximum below which a derivative counts as near 0."""


@dataclasses.dataclass(frozen=True)
class Settings(ExperimentSettings):
    """Settings of `jaxarch run disentangling.fig2`, changed with `--set NAME=VALUE`.

    Attributes:
      hards: the inverse temperatures M, one curve each.
      range: scores go from minus this number to this number.
      points: number of scores at which the curves are computed.
    """

    hards: tuple[float, ...] = (1.0, 5.0, 10.0, 50.0, 500.0)
    range: float = 1.0
    points: int = 2001

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        self.check_numbers(check_positive, "hards")
        check_positive("range", self.range)
        check_count("points", self.points, least=3)


def plan(settings: Settings) -> list[str]:
    """Describe the planned computation."""
    return [f"B_M and its derivative at {settings.points} scores, M = {', '.join(map(str, settings.hards))}"]


def run(settings: Settings, context: Context) -> Outcome:
    """Compute the curves with the mask function that Algorithm 1 trains with."""
    scores = jnp.linspace(-settings.range, settings.range, settings.points)

    def mask(score: jax.Array, hard: float, factor: bool) -> jax.Array:
        return two_temperature(score, hard, hard, factor=factor)

    parts = []
    for hard in settings.hards:
        slopes = {factor: jax.vmap(jax.grad(mask), (0, None, None)) for factor in (False, True)}
        parts.append(
            pd.DataFrame(
                {
                    "hard": hard,
                    "score": scores,
                    "mask": mask(scores, hard, True),
                    "printed_derivative": slopes[False](scores, hard, False),
                    "derivative": slopes[True](scores, hard, True),
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    found = [
        finding(
            f"share of scores in [-{settings.range:g}, {settings.range:g}] where the derivative of B_M is "
            f"below {NEAR_ZERO:.0%} of its maximum M/4, M = {hard:g}",
            share,
        )
        for hard, share in near_zero(table).items()
    ]
    return Outcome(table, found)


def near_zero(table: pd.DataFrame) -> dict[float, float]:
    """Return the share of scores with a derivative near 0, for each M."""
    return {
        float(str(hard)): float((curve["derivative"] < NEAR_ZERO * float(str(hard)) / 4).mean())
        for hard, curve in table.groupby("hard")
    }


def conclusion(results: Results) -> Iterable[str]:
    """Report how much of the domain has a vanishing derivative."""
    share = near_zero(results.table)
    reach = results.settings["range"]
    said = ", ".join(f"{share[hard]:.0%} at M = {hard:g}" for hard in share)
    yield (
        f"The derivative of B_M is below {NEAR_ZERO:.0%} of its maximum M/4 on this share of the scores in "
        f"[-{reach:g}, {reach:g}]: {said}."
    )


def report(results: Results) -> list[RenderableType]:
    """Draw the figure and build its table."""
    table = results.table
    curves = {
        title: {
            f"M = {hard:g}": (curve["score"].to_numpy(), curve[column].to_numpy())
            for hard, curve in table.groupby("hard")
        }
        for title, column in (
            ("$B_M(w) = \\sigma(M w)$", "mask"),
            ("$B_M (1 - B_M)$, as printed", "printed_derivative"),
            ("$B_M' = M\\, B_M (1 - B_M)$", "derivative"),
        )
    }
    figure = plots.curves(curves, "score w", logarithmic={list(curves)[-1]: 1e-3})
    results.draw(figure, "binarisation")
    rows = []
    for hard, share in near_zero(table).items():
        slope = table[table["hard"] == hard]["derivative"].max()
        rows.append((f"{hard:g}", f"{slope:.4g}", f"{np.log(1 / NEAR_ZERO * 4) / hard:.3g}", f"{share:.3f}"))
    columns = ("M", "largest slope (M/4)", "|w| where the slope is 1% of that", "share of scores beyond")
    return [tables.table("derivative of B_M", columns, rows)]


EXPERIMENT = Experiment(__name__, Settings, plan, run, report, conclusion, trains=False)
