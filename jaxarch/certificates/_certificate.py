"""A certificate: the numbers, and how they are told."""

from __future__ import annotations

import dataclasses
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def rounded(number: float, towards: str) -> str:
    """A number with four significant digits, rounded in one direction."""
    exact = Decimal(number)
    if not exact.is_finite() or exact == 0:
        return f"{number:g}"
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding=towards)):.10g}"


@dataclasses.dataclass(frozen=True)
class Flips:
    """What single flips of connections do to the loss.

    Attributes:
      tried: how many were evaluated, those first that promise most.
      allowed: how many there are: all connections, or those that can be removed.
      better: how many of those that were tried lower the loss.
      change: of the loss by the best one; `None` if none was tried.
      connection: the best one: its leaf, and where in it.
    """

    tried: int
    allowed: int
    better: int
    change: float | None
    connection: tuple[str, tuple[int, ...]] | None

    @property
    def locally_optimal(self) -> bool:
        """Whether every flip was tried, and none lowers the loss."""
        return self.tried == self.allowed and self.better == 0

    def __str__(self) -> str:
        said = f"{self.tried:,} of {self.allowed:,} tried, "
        if self.tried == 0:
            return said.rstrip(", ")
        if not self.better:
            return said + ("none is better: locally optimal" if self.locally_optimal else "none is better")
        assert self.connection is not None
        leaf, place = self.connection
        best = f"{leaf}[{', '.join(map(str, place))}]"
        return f"{said}{self.better:,} lower the loss, {best} by {-(self.change or 0):.3g}"


@dataclasses.dataclass(frozen=True)
class Errors:
    """How often a network errs on some examples, and at most on new ones.

    Attributes:
      errors: counted.
      examples: of how many.
      bound: on the chance of an error on a new example.
    """

    errors: int
    examples: int
    bound: float

    @property
    def rate(self) -> float:
        """Errors an example."""
        return self.errors / self.examples

    def __str__(self) -> str:
        counted = f"{self.errors:,} errors in {self.examples:,} examples: {self.rate:.4f}"
        return f"at most {rounded(self.bound, ROUND_CEILING)} ({counted})"


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What theorems say of one network: what `certify` returns. `print` shows it in words.

    Attributes:
      connections: how many may be there.
      kept: how many are.
      examples: the training rows.
      loss: F of the mask, over all of them.
      gap: how far it is from stationary, and on losses that are convex in the mask from the best mask.
      convex: whether the loss was said to be so.
      growing: whether connections that the network lacks were taken into account, or only those that it has.
      flips: of single connections.
      delta: the chance that is taken of the error bounds being wrong, each by itself.
      choices: among how many networks this one was chosen by the training rows.
      length: of the mask's description in nats, the price of having chosen it by the training rows.
      training: errors on the training rows, and their bound for new examples; `None` where there is none.
      held_out: of the validation rows, likewise.
      why_not: why there is no bound from the training rows; empty where there is one.
      why_not_held_out: likewise of the validation rows; empty too if there are none.
      assumptions: what the numbers rest on that could not be looked up.
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
        """What no mask is below, where the loss is convex in it; of `growing=False`, no part of this one."""
        return self.loss - self.gap if self.convex else None

    def __str__(self) -> str:
        if self.convex:
            which = "mask" if self.growing else "part of it"
            gap = f"{self.gap:.4g}: no {which} has a loss below {rounded(self.best_loss or 0, ROUND_FLOOR)}"
        else:
            gap = f"{self.gap:.4g} (0 where no direction into the cube descends)"
        lines = {
            "connections": f"{self.kept:,} of {self.connections:,}",
            "loss": f"{self.loss:.4g} on {self.examples:,} training examples",
            "gap": gap,
            "single flips": str(self.flips),
            "description": f"{self.length:,.0f} nats",
            "new errors": self.why_not if self.training is None else f"{self.training}",
        }
        if self.held_out is not None or self.why_not_held_out:
            lines["by held-out rows"] = f"{self.held_out or self.why_not_held_out}"
        if self.training is not None or self.held_out is not None:
            lines["each but with"] = f"probability {self.delta:g}"
        width = max(map(len, lines))
        told = [f"{name:<{width}}  {value}" for name, value in lines.items()]
        return "\n".join([*told, *(f"{'assumed':<{width}}  {line}" for line in self.assumptions)])
