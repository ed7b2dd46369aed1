"""Facts about a method, kept where it is defined: lists, pages and contract tests read them there."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar

from jaxarch.run._stage import Needs
from jaxarch.run._strategy import chain

P = ParamSpec("P")
Made = TypeVar("Made")

Parent = Literal["any", "spectral", "direct", "batch norm", "piecewise linear", "binary"]


@dataclasses.dataclass(frozen=True)
class Method:
    """A search or a transform, as lists show it and contract tests run it.

    Attributes:
      name: name of the function that makes it.
      make: the function that makes it.
      source: the publication that it is from.
      parent: which models it is for: `any`, `spectral` networks, `direct` ones, those with `batch norm`,
        with `piecewise linear` activations or with `binary` labels.
      example: arguments for a small case, if some are required.
    """

    name: str
    make: Callable[..., Any]
    source: str
    parent: Parent
    example: Mapping[str, Any]

    def stage(self) -> Any:
        """Return the method with its example's arguments: a stage or a strategy."""
        return self.make(**self.example)

    @property
    def needs(self) -> Needs:
        """Requirements of the method's first stage."""
        return chain(self.stage()).stages[0].needs

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.make) or "").split("\n")[0]


def method(
    source: str, *, parent: Parent = "any", **example: Any
) -> Callable[[Callable[P, Made]], Callable[P, Made]]:
    """Attach facts about the method to a function that makes a search or a transform; a decorator.

        @method("N. Lee et al., 2019", densities=0.5)
        def snip(densities, *, batches=1, where=matrices): ...

    Args:
      source: where the method is from.
      parent: which models it is for (see `Method`).
      **example: arguments for a small case.

    Example:
      >>> import jaxarch
      >>> @jaxarch.method("a page of ours", density=0.5)
      ... def largest(density):
      ...     "The largest weights of a trained network."
      ...     return jaxarch.search.magnitude_pruning(density, fraction=None)
      >>> print(largest.method.name, largest.method.source, largest.method.summary, sep="; ")
      largest; a page of ours; The largest weights of a trained network.
      >>> [stage.name for stage in largest.method.stage().stages]
      ['dense unconstrained', 'largest weights']
    """

    def describe(make: Callable[P, Made]) -> Callable[P, Made]:
        make.method = Method(make.__name__, make, source, parent, example)  # type: ignore[attr-defined]
        return make

    return describe


def methods_of(*packages: Any) -> dict[str, Method]:
    """Return all methods that packages export, by name."""
    exported: Iterable[Any] = (value for package in packages for value in vars(package).values())
    described = (getattr(value, "method", None) for value in exported)
    return {method.name: method for method in described if isinstance(method, Method)}
