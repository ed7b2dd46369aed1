"""Certificates: their numbers, and how they are printed."""

from __future__ import annotations

import dataclasses
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import NamedTuple

import numpy as np

from jaxarch.run._network import Network


def rounded(number: float, towards: str) -> str:
    """Format a number with four significant digits, rounded in one direction."""
    exact = Decimal(number)
    if not exact.is_finite() or exact == 0:
        return f"{number:g}"
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding=towards)):.10g}"


def in_lines(lines: dict[str, str], assumptions: tuple[str, ...]) -> str:
    """Print values beside their names, and then the assumptions."""
    width = max(map(len, lines))
    told = [f"{name:<{width}}  {value}" for name, value in lines.items()]
    return "\n".join([*told, *(f"{'assumed':<{width}}  {line}" for line in assumptions)])


@dataclasses.dataclass(frozen=True)
class Flips:
    """The effect of single flips of connections on the loss.

    Attributes:
      tried: the number of flips that were evaluated, the most promising ones first.
      allowed: the number of possible flips: all connections, or only the ones that can be removed.
      better: the number of tried flips that lower the loss.
      change: the change of the loss by the best flip; `None` if none was tried.
      connection: the best flip: its leaf, and the index in it; `None` if none was tried.
    """

    tried: int
    allowed: int
    better: int
    change: float | None
    connection: tuple[str, tuple[int, ...]] | None

    @property
    def locally_optimal(self) -> bool:
        """True if every flip was tried and none lowers the loss."""
        return self.tried == self.allowed and self.better == 0

    def __str__(self) -> str:
        said = f"{self.tried:,} of {self.allowed:,} tried, "
        if self.tried == 0:
            return said.rstrip(", ")
        if not self.better:
            return said + (
                "none lowers the loss: locally optimal" if self.locally_optimal else "none lowers the loss"
            )
        assert self.connection is not None
        leaf, place = self.connection
        best = f"{leaf}[{', '.join(map(str, place))}]"
        return f"{said}{self.better:,} lower the loss, {best} by {-(self.change or 0):.3g}"


@dataclasses.dataclass(frozen=True)
class Errors:
    """The errors of a network on some examples, and a bound on its error rate on new ones.

    Attributes:
      errors: the number of errors counted.
      examples: the number of examples.
      bound: an upper bound on the probability of an error on a new example.
    """

    errors: int
    examples: int
    bound: float

    @property
    def rate(self) -> float:
        """Errors per example."""
        return self.errors / self.examples

    def __str__(self) -> str:
        counted = f"{self.errors:,} errors in {self.examples:,} examples: {self.rate:.4f}"
        return f"at most {rounded(self.bound, ROUND_CEILING)} ({counted})"


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The guarantees for one network, as returned by `certify`. `print` shows them in words.

    Attributes:
      connections: the number of possible connections.
      kept: the number of connections in the mask.
      examples: the number of training rows.
      loss: F of the mask, over all training rows.
      gap: how far the mask is from stationary; for losses convex in the mask, also how far from the best one.
      convex: whether the loss was claimed to be convex in the mask.
      growing: whether missing connections were considered, or only existing ones.
      flips: the results of single flips.
      delta: the accepted probability that an error bound is wrong, for each bound by itself.
      choices: the number of networks from which this one was chosen by the training rows.
      length: the length of the mask's description in nats, the price of choosing it by the training rows.
      training: errors on the training rows, and their bound for new examples; `None` if there is no bound.
      held_out: errors on the validation rows, and their bound; `None` if there is no bound.
      why_not: the reason why the training rows give no bound; empty if they give one.
      why_not_held_out: the same for the validation rows; also empty if there are none.
      assumptions: the assumptions that could not be checked.
    """

    connections: int
    kept: int
    examples: int
    loss: float
    gap: float
    convex: bool
    growing: bool
    flips: Flips
    delta: float
    choices: int
    length: float
    training: Errors | None
    held_out: Errors | None
    why_not: str
    why_not_held_out: str
    assumptions: tuple[str, ...]

    @property
    def best_loss(self) -> float | None:
        """A lower bound on the loss of all masks, if the loss is convex in the mask; otherwise `None`.

        With `growing=False` the bound holds for the subsets of this mask alone.
        """
        return self.loss - self.gap if self.convex else None

    def __str__(self) -> str:
        if self.convex:
            which = "mask" if self.growing else "subset of this mask"
            gap = f"{self.gap:.4g}: no {which} has a loss below {rounded(self.best_loss or 0, ROUND_FLOOR)}"
        else:
            gap = f"{self.gap:.4g} (0 if the mask is stationary)"
        lines = {
            "connections": f"{self.kept:,} of {self.connections:,}",
            "loss": f"{self.loss:.4g} on {self.examples:,} training examples",
            "gap": gap,
            "single flips": str(self.flips),
            "description": f"{self.length:,.0f} nats",
            "error on new data": self.why_not if self.training is None else f"{self.training}",
        }
        if self.held_out is not None or self.why_not_held_out:
            lines["from held-out rows"] = f"{self.held_out or self.why_not_held_out}"
        if self.training is not None or self.held_out is not None:
            lines["confidence"] = f"each bound is wrong with probability at most {self.delta:g}"
        return in_lines(lines, self.assumptions)


class Picked(NamedTuple):
    """A round of `pick_to_learn`.

    Attributes:
      picked: the number of rows that the network was trained on.
      errors: the number of the other rows that it gets wrong.
    """

    picked: int
    errors: int


@dataclasses.dataclass(frozen=True)
class Compression:
    """A network that a few training rows determine, as returned by `pick_to_learn`. `print` shows its bound.

    Attributes:
      network: the network of the best round.
      rows: the rows of the problem's data that it was trained on, in the order in which they were picked.
      examples: the number of training rows.
      errors: the number of the other training rows that the network gets wrong.
      bound: an upper bound on the probability of an error on a new example.
      rounds: all rounds that were computed, the first one without any picked row.
      delta: the accepted probability that the bound is wrong.
      choices: the number of networks that the bound pays for: all rounds of each setting.
      assumptions: the assumptions that could not be checked.
    """

    network: Network
    rows: np.ndarray
    examples: int
    errors: int
    bound: float
    rounds: tuple[Picked, ...]
    delta: float
    choices: int
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        others = self.examples - len(self.rows)
        rate = f"{self.errors:,} errors in the other {others:,}: {self.errors / others:.4f}"
        lines = {
            "picked": f"{len(self.rows):,} of {self.examples:,} training examples",
            "error on new data": f"at most {rounded(self.bound, ROUND_CEILING)} ({rate})",
            "confidence": f"the bound is wrong with probability at most {self.delta:g}",
        }
        return in_lines(lines, self.assumptions)
