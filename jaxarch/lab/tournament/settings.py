"""Settings of a tournament, and defaults per data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Self

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, check_distinct, check_known, check_positive
from jaxarch.lab.data import is_text
from jaxarch.lab.harness import PartSettings, TrainingSettings, check_room
from jaxarch.lab.pruning.initial_weights import Initial
from jaxarch.lab.pruning.parents import check_parent
from jaxarch.lab.pruning.settings import check_share
from jaxarch.lab.tournament.entrants import ENTRANTS, NUMBERS_ALONE
from jaxarch.masks import check_temperatures

WIDTHS = {"mlp": (100,), "cnn": (16, 32), "gpt": (32, 32)}
CONTROLS = ("reshuffled", "reinitialised", "inverted")
SUITS_ALL = {
    "model": "mlp",
    "densities": (0.2, 0.05, 0.02),
    "steps": 1000,
    "batch_size": 60,
    "rate": 3e-3,
    "seeds": 10,
}
SUITS: dict[str, dict[str, Any]] = {
    "citeseer-words": {"widths": (20,), "densities": (0.1, 0.03, 0.01), "steps": 250},
    "mnist": {
        "model": "lenet",
        "densities": (0.1, 0.03, 0.01),
        "steps": 10_000,
        "rate": 1.2e-3,
        "seeds": 5,
    },
    "cifar10": {
        "model": "resnet20",
        "densities": (0.2, 0.05, 0.02),
        "steps": 4000,
        "batch_size": 128,
        "seeds": 3,
    },
}
"""Defaults per data set, used where the user sets nothing; `SUITS_ALL` covers data sets without an entry."""
SUITS_TEXT: dict[str, Any] = {
    "model": "gpt",
    "length": 32,
    "steps": 500,
    "batch_size": 16,
    "rate": 6e-3,
    "seeds": 5,
}
"""Defaults for texts."""


@dataclasses.dataclass(frozen=True)
class PictureSettings(TrainingSettings):
    """Settings of pictures, and of a parent that takes them.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      dataset: pictures: a name of `jaxarch data`, or an npz file with x and y. In a tournament also features,
        standardized one by one unless all are 0 or 1; or a text, `tiny-shakespeare` or your own FILE.txt.
      model: the parent of all networks: an mlp or cnn of `widths`, LeNet-300-100, ResNet-18, ResNet-20,
        VGG11 or VGG16; for texts, and for them alone, a gpt.
      widths: hidden neurons, or channels, of each layer of an mlp or a cnn; features of a character in each
        block of a gpt, all alike.
      width_factor: factor of the channels of a ResNet or a VGG.
      pool: side of the windows whose means become the pixels; 1 leaves pictures as they are.
      seeds: independent runs of each method at each density.
      batch_size: examples a step.
    """

    dataset: str = "digits"
    model: Literal["auto", "mlp", "lenet", "cnn", "resnet18", "resnet20", "vgg11", "vgg16", "gpt"] = "auto"
    widths: tuple[int, ...] = ()
    width_factor: float = 1.0
    pool: int = 1
    seeds: int = 0
    batch_size: int = 0

    def suited(self, suits: Mapping[str, Any]) -> Self:
        """Fill in the data set's defaults."""
        settings = super().suited(suits)
        return dataclasses.replace(settings, widths=settings.widths or WIDTHS.get(settings.model, ()))

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_each(check_count, "pool", "widths")
        self.check_each(check_positive, "width_factor")
        check_parent(self.model, self.widths, self.width_factor)


@dataclasses.dataclass(frozen=True)
class PictureTrainingSettings(PictureSettings):
    """Settings of pictures, the parent's training, and the rows held out from it.

    Attributes:
      augment: whether pictures are cropped and flipped at random in training.
      steps: gradient steps of a phase.
      rate: learning rate of Adam, which trains the weights.
      held_out: the share of the training examples that is held out.
    """

    augment: bool = False
    steps: int = 0
    rate: float = 0.0
    held_out: float = 0.15

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        check_room(self.seeds, self.steps)
        self.check_each(check_count, "steps")
        self.check_each(check_positive, "rate")
        self.check_each(check_share, "held_out")


@dataclasses.dataclass(frozen=True)
class TournamentSettings(PartSettings, PictureTrainingSettings):
    """Settings of `jaxarch run tournament`, changed with `--set NAME=VALUE`.

    Values that are empty, 0 or `auto` become the data set's defaults.

    Attributes:
      methods: methods that take part; empty for all of them, or all that can score a text.
      own: a Python file; each public function `(density) -> strategy` takes part under its name.
      densities: shares of the connections that are kept.
      length: characters of a window of text, the longest context of a prediction; 0 without a text.
      initial: weights of the parent: its `model`'s own, or `normal` ones of the same standard deviations.
        Flax truncates normal distributions, which matters where weights of several layers are compared.
      steps: gradient steps of a phase. Most methods have two: a search, and training the found network.
      budget: `equal`, two phases' steps for each network whatever the method; or `published`, as many phases
        as the method's authors used.
      held_out: the share of the training examples that is held out, to choose settings on.
      controls: comparisons for each method's masks, trained from their initial weights: `reshuffled` within
        layers, `reinitialised` with fresh weights, `inverted`.
      tune: trials of each method's settings, judged on the held-out rows; 0 for the defaults.
      hard: the inverse temperature of two-temperature's masks in the loss.
      soft: the inverse temperature of the masks that its gradient passes through, at most `hard`.
    """

    methods: tuple[str, ...] = ()
    own: str = ""
    densities: tuple[float, ...] = ()
    length: int = 0
    initial: Initial = "model"
    budget: Literal["equal", "published"] = "equal"
    controls: tuple[str, ...] = ()
    tune: int = 0
    hard: float = 50.0
    soft: float = 5.0

    def complete(self) -> Self:
        """Fill in the data set's defaults."""
        of_text = is_text(self.dataset)
        of_kind = SUITS_TEXT if of_text else {}
        takes_part = (name for name in ENTRANTS if not (of_text and name in NUMBERS_ALONE))
        settings = self.suited(SUITS_ALL | of_kind | SUITS.get(self.dataset, {}))
        return dataclasses.replace(
            settings,
            methods=settings.methods or tuple(takes_part),
            densities=tuple(sorted(settings.densities, reverse=True)),
        )

    def which_parts(self) -> tuple[str, ...]:
        """Name the settings that select parts: each method, and each function of the user's file, is one.

        A function stays the same part as long as the file is unchanged.
        """
        return ("methods", "own")

    def check(self) -> None:
        """Raise on the first setting that cannot be used."""
        super().check()
        self.check_numbers(check_share, "densities")
        check_known("methods", self.methods, ENTRANTS)
        check_distinct("methods", self.methods)
        if self.controls:
            check_known("controls", self.controls, CONTROLS)
            check_distinct("controls", self.controls)
        check_temperatures(self.hard, self.soft)
        if is_text(self.dataset):
            self.check_each(check_count, "length")
            if numeric := [name for name in self.methods if name in NUMBERS_ALONE]:
                raise ArgumentError(
                    f"methods: {numeric[0]} replaces the inputs by numbers, which the characters of a text "
                    "cannot be; leave it out"
                )
        elif self.length:
            raise ArgumentError(f"length: {self.dataset} is no text to be cut in windows; leave it out")
        if self.tune < 0:
            raise ArgumentError(f"tune: expected 0 or a number of trials, got {self.tune}")
        if self.seeds < 2:
            raise ArgumentError(
                f"seeds: expected at least 2, to rank methods over several runs, got {self.seeds}"
            )
