"""Budgets of a smaller model, as users write them: `50% multiply_adds`, `2 MB`, `5 ms`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxarch._internal.errors import ArgumentError, did_you_mean, shown

LATENCY = "latency"
QUANTITIES = ("multiply_adds", "parameters", "bytes", "activations", LATENCY)
_UNITS = {
    **{name: (name, 1.0) for name in QUANTITIES if name != LATENCY},
    **{unit: ("bytes", 1e3 ** (power + 1)) for power, unit in enumerate(("kB", "MB", "GB"))},
    **{unit: (LATENCY, 1e-3**power) for power, unit in enumerate(("s", "ms", "us"))},
}
"""By unit, its quantity and its size; latency is in seconds."""


_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_FORM = rf"\s*({_NUMBER})\s*(%?)\s*([A-Za-z_]+)\s*"


class Budget(NamedTuple):
    """The most that a smaller model may cost.

    Attributes:
      text: the budget as it was written.
      quantity: a name in `QUANTITIES`.
      number: the most, in seconds for latency; a share of the dense model's if `is_share`.
      is_share: whether the number is a share.
    """

    text: str
    quantity: str
    number: float
    is_share: bool

    def limit(self, dense: float) -> float:
        """Return the most that the model may cost, given the cost of the dense one."""
        return self.number * dense if self.is_share else self.number


def read_budgets(budget: Any) -> tuple[Budget, ...]:
    """Read one budget or several, at most one per quantity.

    Raises:
      ArgumentError: anything that is not text of this form; a share outside (0%, 100%); a number that is not
        positive; two budgets of one quantity.
    """
    texts = (budget,) if isinstance(budget, str) else budget
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(
            f"budget: expected text such as '50% multiply_adds', or several of these, got {shown(budget)}"
        )
    found = tuple(map(_read, texts))
    for index, one in enumerate(found):
        if one.quantity in {other.quantity for other in found[:index]}:
            raise ArgumentError(f"budget: expected one budget of {one.quantity}, got two")
    return found


def _read(text: str) -> Budget:
    match = re.fullmatch(_FORM, text, re.ASCII)
    number = float(match[1].replace(",", "")) if match else 0.0
    if not match or not number > 0:
        raise ArgumentError(
            "budget: expected a positive number and a quantity, such as '50% multiply_adds', '2 MB' or "
            f"'5 ms', got {shown(text)}"
        )
    is_share, word = bool(match[2]), match[3]
    if is_share and not number < 100:
        raise ArgumentError(f"budget: expected less than 100% of the dense model, got {shown(text)}")
    known = QUANTITIES if is_share else _UNITS
    if word not in known:
        raise ArgumentError(f"budget: unknown quantity {shown(word)}; {did_you_mean(word, known)}")
    quantity, size = (word, 0.01) if is_share else _UNITS[word]
    return Budget(" ".join(text.split()), quantity, number * size, is_share)
