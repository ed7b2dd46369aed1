"""Tables of docs/tournament.md, from the stored results.

    python docs/building/tournament_tables.py        # after a method was added to docs/results

A table of a task follows the words 'Every run is in `docs/results/FOLDER`'. Its first rows are the methods.
The dense network, chance, and all text around the tables are written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from jaxarch.lab.tournament import across_tasks
from jaxarch.lab.tournament.across_tasks import AcrossTasksSettings, Stored, stored
from jaxarch.lab.tournament.report import ranking_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tournament.md"
UNTRAINED, SIGNS = "weights never trained", "signs of weights never trained"
NAMES = {
    "two-temperature trained": "two-temperature, then trained",
    "two-temperature": f"two-temperature, {UNTRAINED}",
    "edge-popup": f"edge-popup, {UNTRAINED}",
    "edge-popup scaled": f"edge-popup scaled, {UNTRAINED}",
    "biprop": f"biprop, {SIGNS}",
    "biprop scaled": f"biprop scaled, {SIGNS}",
    "magnitude": "magnitude, one shot",
    "magnitude at start": "magnitude at initialization",
    "random ERK": "random, Erdos-Renyi densities",
    "random uniform": "random, uniform",
    "random as magnitude": "random, densities of magnitude",
}
"""Names of methods on the page, where they differ from those in results."""
TASKS = {
    "digits, mlp": "perceptron",
    "digits, cnn": "CNN",
    "mnist, lenet": "LeNet",
    "citeseer-words, mlp": "words",
    "tiny-shakespeare, gpt": "text",
}
"""Names of tasks in the table across them."""
RULE, ROWS = r"\|[-| ]*\n", r"(?:\|(?! the dense)[^\n]*\n)*"
OF_A_TASK = re.compile(
    rf"(Every\srun\sis\sin\s`(docs/results/\w+)`.*?\n\n)\| method \|[^\n]*density[^\n]*\n{RULE}{ROWS}",
    re.DOTALL,
)
ACROSS = re.compile(rf"\| method \| mean regret \|[^\n]*\n{RULE}{ROWS}")


def number(value: float, digits: int = 3) -> str:
    """Write a number without its leading zero."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def spread(values: np.ndarray) -> str:
    """Write median and quartiles; one number where all runs agree."""
    low, middle, high = map(number, np.nanpercentile(values, [25, 50, 75]))
    return middle if low == high and np.ptp(values) == 0 else f"{middle} [{low}, {high}]"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = (
        "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n" for cells in (head, *rows)
    )
    return next(lines) + "|---" * len(head) + "|\n" + "".join(lines)


def table_of_a_task(found: Stored) -> str:
    """Write the accuracies of all methods, sorted by mean rank."""
    ranks = ranking_of(across_tasks._runs(found)).table.set_index("strategy")["rank"]
    first, *others = (f"{density:g}".lstrip("0") for density in found.densities)
    return table(
        ("method", "mean rank", f"density {first}", *others),
        (
            (NAMES.get(name, name), f"{rank:.1f}", *map(spread, found.accuracy[name].T))
            for name, rank in ranks.items()
        ),
    )


def table_across(found: list[Stored]) -> str:
    """Write mean and largest regret, and the difference to the method of the least one on a new task."""
    regrets = pd.concat([across_tasks._regrets(one) for one in found], ignore_index=True)
    mean = across_tasks.mean_regrets(regrets)
    reference = str(mean.index[0])
    compared = across_tasks._differences(found, reference, AcrossTasksSettings()).set_index("method")
    rows = []
    for name, value in mean.items():
        of = regrets[regrets["strategy"] == name]
        worst = of.loc[of["regret"].idxmax()]
        where = f"{TASKS[worst['task']]}, {number(worst['density'], 2)}"
        last = ("", "") if name == reference else _compared(compared.loc[name])
        rows.append((NAMES.get(name, name), number(value), f"{number(worst['regret'])} ({where})", *last))
    head = ("method", "mean regret", "largest", f"minus {reference}", "new task: better, alike, worse")
    return table(head, rows)


def _compared(one: pd.Series) -> tuple[str, str]:
    """Write a difference with its interval, and the probabilities on a new task."""
    mean, low, high = (f"{one[part]:+.3f}".replace("0.", ".", 1) for part in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]", ", ".join(number(one[part], 2) for part in ("better", "alike", "worse"))


def written(page: str) -> str:
    """Return the page with all its tables made anew."""

    def of_a_task(match: re.Match[str]) -> str:
        return match[1] + table_of_a_task(stored(str(ROOT / match[2])))

    across = table_across([stored(str(ROOT / folder)) for folder in across_tasks.STORED])
    return ACROSS.sub(lambda match: across, OF_A_TASK.sub(of_a_task, page))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
