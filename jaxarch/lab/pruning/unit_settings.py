"""Settings of experiments that cut neurons or channels out of networks, and defaults per data set."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Self

from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive
from jaxarch.lab.harness import check_room
from jaxarch.lab.pruning.parents import check_parent
from jaxarch.lab.pruning.settings import ArchitectureSettings, check_share

DENSE = "dense"
"""Name of the whole network, of which all others are parts."""
LAYERWISE = " per layer"
METHODS = ("two-temperature", "AP", "TAS", "magnitude", "magnitude" + LAYERWISE, "random")
CANDIDATES = tuple(sixteenths / 16 for sixteenths in (1, 2, 3, 4, 6, 8, 10, 12, 14, 16))
"""Shares of a layer's units among which TAS chooses; its paper's, from .3 up, cannot reach an eighth."""
TOLERANCE = 0.05
"""Share by which the number of units that TAS keeps may differ from its target."""
UNITS = {"cnn": "channels", "resnet20": "channels", "mlp": "neurons", "lenet": "neurons"}
"""Kind of unit that is kept or removed as a whole, by parent."""
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
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""


@dataclasses.dataclass(frozen=True)
class ChannelSettings(ArchitectureSettings):
    """Settings of `jaxarch run pruning.channels`, changed with `--set NAME=VALUE`.

    Units are the channels of a convolutional network or the neurons of a perceptron. Several searches find
    them. Each search's units are trained from the same initial weights of their seed, for equally many steps.

    Attributes:
      model: the parent of all networks; the units are channels for cnn and resnet20, and neurons for mlp and
        lenet (LeNet-300-100).
      methods: two-temperature, over the initial weights; AP (architecture pruning); TAS (transformable
        architecture search), the most probable widths of layers; magnitude, the units of the largest mean
        weight of a trained network; magnitude per layer, the same share of each layer; random units.
      shares: shares of all units that are kept.
      mask_rate: learning rate of Adam, which trains the scores of two-temperature.
      logits_rate: learning rate of Adam, which trains the logits of TAS.
    """

    model: Literal["auto", "cnn", "mlp", "lenet", "resnet20"] = "auto"
    methods: tuple[str, ...] = METHODS
    shares: tuple[float, ...] = (0.5, 0.25, 0.125)
    mask_rate: float = 1e-3
    logits_rate: float = 3e-2

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
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
        self.check_each(check_positive, "mask_rate", "logits_rate")
        check_known("model", (self.model,), UNITS)
        check_known("methods", self.methods, METHODS)
        check_distinct("methods", self.methods)
        check_count("methods", len(self.methods))
        check_parent(self.model, self.widths, self.width_factor)

    @property
    def units(self) -> str:
        """Return the kind of unit that is kept or removed as a whole."""
        return UNITS[self.model]

    def search_steps_of(self, method: str) -> int:
        """Return the gradient steps of a method's search; 0 for random units and the dense network."""
        return 0 if method in ("random", DENSE) else self.search_steps
