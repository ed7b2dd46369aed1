"""Meaning of the methods' names, from the summaries and sources of the library's searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jaxarch
from jaxarch import search


class From(NamedTuple):
    """Origin of a method.

    Attributes:
      function: the search or transform of the library that makes it, with `jaxarch.method`.
      how: the settings that tell the method from others of the same function, in words.
    """

    function: Callable[..., Any]
    how: str = ""

    def __str__(self) -> str:
        """Join source and summary as in `jaxarch list`, and the settings."""
        facts = vars(self.function)["method"]
        words = facts.summary if facts.source in facts.summary else f"{facts.source}: {facts.summary}"
        return f"{words} Here {self.how}." if self.how else str(words)


ORIGINS: Mapping[str, From] = {
    "random": From(search.random_mask, "every set of connections is equally likely"),
    "random uniform": From(search.random_mask, "with the same density in each layer"),
    "random ERK": From(search.random_mask, "with Erdos-Renyi-Kernel densities (U. Evci et al., 2020)"),
    "random as magnitude": From(jaxarch.reshuffle, "a network that magnitude pruning found in one shot"),
    "random search": From(search.random_search),
    "magnitude at start": From(search.initial_magnitude),
    "SNIP": From(search.snip),
    "Fisher": From(search.fisher, "with the second-order term alone"),
    "Hutchinson": From(search.hutchinson, "with outputs divided by 200"),
    "GraSP": From(search.grasp),
    "ProsPr": From(search.prospr),
    "SynFlow": From(search.synflow),
    "PX": From(search.path_exclusion),
    "NTK-SAP": From(search.ntk_sap),
    "magnitude": From(search.magnitude_pruning, "in one shot"),
    "lottery tickets": From(search.magnitude_pruning, "in rounds that rewind to the initial weights"),
    "late tickets": From(search.magnitude_pruning, "in rounds that rewind to early weights"),
    "gradual magnitude": From(search.gradual_magnitude),
    "GraNet": From(search.granet),
    "AC/DC": From(search.acdc),
    "SET": From(search.sparse_evolution),
    "CHT": From(search.cht, "with Erdos-Renyi densities, as SET and RigL have"),
    "RigL": From(search.rigl),
    "Top-KAST": From(search.top_kast),
    "AP": From(search.architecture_pruning),
    "STR": From(search.soft_threshold),
    "continuous sparsification": From(search.continuous_sparsification),
    "hard concrete": From(search.hard_concrete),
    "movement": From(search.movement),
    "ProbMask": From(search.probmask),
    "two-temperature": From(
        search.two_temperature, "with the size held, over initial signs of one size that stay fixed"
    ),
    "two-temperature trained": From(
        search.two_temperature,
        "with Erdos-Renyi densities held, over initial signs of a size that suits each, trained afterwards",
    ),
    "edge-popup": From(search.edge_popup, "with the same density in each layer, over the initial weights"),
    "edge-popup scaled": From(
        search.edge_popup, "ranked over all layers, over signs of a size that suits the density"
    ),
    "biprop": From(search.biprop, "with the same density in each layer"),
    "biprop scaled": From(search.biprop, "ranked over all layers, with a size that suits the density"),
}
"""Origin of each method, by its name in results."""


def explain(names: Iterable[str], origins: Mapping[str, From] = ORIGINS) -> list[str]:
    """Return a line on each method of the library; a later one of the same function refers to the first."""
    first: dict[Callable[..., Any], str] = {}
    lines = []
    for name in names:
        if name in origins:
            of = origins[name]
            before = first.setdefault(of.function, name)
            lines.append(f"- {name}: {of if before == name else f'like {before}, but {of.how}'}")
    return lines
