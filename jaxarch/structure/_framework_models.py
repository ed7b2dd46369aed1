"""Smaller models of a framework, compared with the smaller function that they stand for."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax

from jaxarch._internal.errors import ResultWarning, first_line
from jaxarch._internal.trees import PyTree
from jaxarch.structure._shrink import Shrunk, derives_alike, relative_difference, runs_alike

Made = tuple[Any, Callable[..., Any]]
"""A model, and the function of the smaller arrays that calls it."""


@dataclasses.dataclass(frozen=True, repr=False)
class ShrunkModel(Shrunk):
    """A smaller model of a framework. `print` shows what was removed.

    Attributes:
      model: the smaller model, or `None` if the framework cannot express it. Then use `function`.
      why: the reason if there is no `model`; otherwise empty.
    """

    model: Any
    why: str

    def _lines(self) -> list[str]:
        *lines, numbers, compared = super()._lines()
        how = f"no smaller model: {self.why}" if self.model is None else "the model has these sizes"
        return [*lines, f"{numbers.split(';')[0]}; {how}", compared]


def smaller_model(
    small: Shrunk,
    candidates: Iterable[Callable[[], Made]],
    inputs: tuple[PyTree, ...],
    exact: bool,
    outputs_of: Callable[[Any], PyTree] | None = None,
) -> dict[str, Any]:
    """Return the fields of a `ShrunkModel`: the first candidate that computes what the function computes.

    Args:
      small: the smaller function.
      candidates: functions that make a model, or raise if it does not take the arrays.
      inputs: the inputs to compare on.
      exact: whether the model must compute the same. Otherwise it may divide by the new number of units where
        it takes a mean over units; then a `ResultWarning` gives the difference.
      outputs_of: for frameworks with operations of their own, the outputs of a model on the inputs.
    """
    program = small.groups.smaller(small.kept)
    why = ""
    for make in candidates:
        try:
            model, function = make()
        except Exception as error:
            why = why or f"its code does not take the smaller arrays: {first_line(error)}"
            continue
        arguments = function, program, small.tree, *inputs
        alike = runs_alike(*arguments)
        same = alike and derives_alike(function, program, small.groups, small.tree, inputs)
        # What runs alike and is not the same has another derivative.
        if not same and (exact or alike or not runs_alike(*arguments, but_for_numbers=True)):
            why = why or "its code computes something else on the smaller arrays"
            continue
        expected = small.function if same else function
        if outputs_of is not None:
            apart = relative_difference(jax.jit(expected)(small.tree, *inputs), outputs_of(model))
            if apart > small.groups.rounding():
                why = why or f"its own outputs differ from those in JAX by {apart:.1e} of the largest"
                continue
        if not same:
            _warn_of_means(function, program, small, inputs)
        return {"model": model, "why": ""}
    kinds = {small.groups.groups[name].kind for name, units in small.kept.items() if not units.all()}
    return {"model": None, "why": why + ("; leave heads whole, by `units`" if "heads" in kinds else "")}


def _warn_of_means(
    function: Callable[..., Any], program: Callable[..., Any], small: Shrunk, inputs: tuple[PyTree, ...]
) -> None:
    outputs = (jax.jit(each)(small.tree, *inputs) for each in (program, function))
    apart = relative_difference(*outputs)
    if apart > small.groups.rounding():
        warnings.warn(
            f"apply: the outputs of `model` differ by {apart:.1e} of the largest from those of `function`, "
            "since its code uses a number of units that is smaller now, as in a mean; compare accuracies",
            ResultWarning,
            stacklevel=5,
        )


def fields_of(small: Shrunk) -> dict[str, Any]:
    """Return the fields of a smaller function."""
    return {field.name: getattr(small, field.name) for field in dataclasses.fields(Shrunk)}
