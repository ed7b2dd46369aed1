"""What can be set where neurons or channels are cut out of networks, and what suits each data set."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Self

from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive
from jaxarch.lab.harness import check_room
from jaxarch.lab.pruning.parents import check_parent
from jaxarch.lab.pruning.settings import ArchitectureSettings, check_share

DENSE = "dense"
"""The whole network, of which all others are parts."""
LAYERWISE = " per layer"
METHODS = ("two-temperature", "AP", "magnitude", "magnitude" + LAYERWISE, "random")
UNITS = {"cnn": "channels", "resnet20": "channels", "mlp": "neurons", "lenet": "neurons"}
"""What is kept or removed together, by the parent."""
WIDTHS = {"mlp": (200, 100), "cnn": (16, 32)}
SUITS_ALL = {
    "model": "cnn",
    "pool": 1,
    "batch_size": 50,
    "search_steps": 300,
    "steps": 300,
    "strength": 1.5e-3,
}
SUITS: dict[str, dict[str, Any]] = {
    "mnist": {"model": "lenet", "search_steps": 2000, "steps": 2000, "strength": 3e-4},
    "cifar10": {
        "model": "resnet20",
        "batch_size": 128,
        "search_steps": 4000,
        "steps": 4000,
        "strength": 3e-4,
    },
}
"""What suits a data set where the user says nothing; and what suits those that have no entry."""


@dataclasses.dataclass(frozen=True)
class ChannelSettings(ArchitectureSettings):
    """What can be set with `jaxarch run pruning.channels --set NAME=VALUE`.

    Units, the channels of a convolutional network or the neurons of a perceptron, are found by several
    searches; what each keeps is trained from the same initial weights of its seed, for as many steps.

    Attributes:
      model: the parent of all networks; of a cnn and a resnet20 the units are channels, of an mlp and a lenet
        (LeNet-300-100) neurons.
      methods: two-temperature, over the initial weights; AP (architecture pruning); magnitude, the units of
        the largest mean weight of a trained network; the same share of each layer of these; random units.
      shares: of all units, how many are kept.
      mask_rate: learning rate of Adam, which trains the scores of two-temperature.
    """

    model: Literal["auto", "cnn", "mlp", "lenet", "resnet20"] = "auto"
    methods: tuple[str, ...] = METHODS
    shares: tuple[float, ...] = (0.5, 0.25, 0.125)
    mask_rate: float = 1e-3

    def complete(self) -> Self:
        """The same with what suits the data set where nothing is said."""
        settings = self.suited(SUITS_ALL | SUITS.get(self.dataset, {}))
        shares = tuple(sorted(settings.shares, reverse=True))
        return dataclasses.replace(
            settings, widths=settings.widths or WIDTHS.get(settings.model, ()), shares=shares
        )

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_room(self.seeds, max(self.steps, self.search_steps))
        self.check_numbers(check_share, "shares")
        self.check_each(check_positive, "mask_rate")
        check_known("model", (self.model,), UNITS)
        check_known("methods", self.methods, METHODS)
        check_distinct("methods", self.methods)
        check_count("methods", len(self.methods))
        check_parent(self.model, self.widths, self.width_factor)

    @property
    def units(self) -> str:
        """What is kept or removed together."""
        return UNITS[self.model]

    def search_steps_of(self, method: str) -> int:
        """The gradient steps of a search; none of what is drawn, or not searched for."""
        return 0 if method in ("random", DENSE) else self.search_steps
