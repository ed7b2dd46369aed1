"""The cost of a model as a table: by layer and in total, for four kinds of connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from jaxarch._internal.errors import from_extra

if TYPE_CHECKING:
    import pandas as pd

Connections = Literal["dense", "masked", "effective", "shrunk"]
"""The kinds of connections that are counted; see `cost.cost`."""
BatchIs = Literal["given", "found", "unknown"]
"""The source of the number of examples; see `Cost`."""
FIRST_AXIS = "the input's first axis"


@dataclasses.dataclass(frozen=True)
class Counts:
    """The cost of some connections: for one example, or for the whole call if `Cost.batch_is` is `unknown`.

    Attributes:
      parameters: the number of parameters.
      bytes: the size of the parameters in their dtypes. If only some entries of an array count, the storage
        of their positions is not included.
      multiply_adds: the number of multiply-adds in products and convolutions.
      activations: the number of values that products and convolutions compute.

    Example:
      >>> from jaxarch.structure import Counts
      >>> Counts(24, 96, 24, 8) + Counts(16, 64, 16, 2)
      Counts(parameters=40, bytes=160, multiply_adds=40, activations=10)
    """

    parameters: int = 0
    bytes: int = 0
    multiply_adds: float = 0
    activations: float = 0

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counts(*(one + another for one, another in pairs))


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """The cost of a layer, or of a whole model; see `cost`.

    Attributes:
      dense: all connections.
      masked: the connections that the mask leaves. `None`, like the next two, if only shapes are known.
      effective: the masked connections that matter to the outputs.
      shrunk: all connections of the units that are needed.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> mask = {"w": jnp.array([[True, False], [False, True]])}
      >>> cost = jaxarch.cost(lambda p, x: x @ p["w"], {"w": jnp.ones((2, 2))}, jnp.ones((1, 2)), mask=mask)
      >>> layer = cost.layers["w"]
      >>> layer.dense.multiply_adds, layer.masked.multiply_adds, layer.shrunk.multiply_adds
      (4, 2, 4)
    """

    dense: Counts
    masked: Counts | None = None
    effective: Counts | None = None
    shrunk: Counts | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a model, as returned by `cost`. `print` shows it as a table.

    Attributes:
      layers: the cost by module, in the order in which the program meets them.
      total: the cost of all layers together.
      batch: the number of examples that were traced. Multiply-adds and activations are divided by it.
      batch_is: the source of `batch`: `given`, by the caller or the problem; `found`, the first axis of an
        input (see `cost`); or `unknown`, and the numbers are for the whole call.
      is_masked: whether there is a mask.
      uncounted: primitives that may multiply and are not counted: loops with an unknown number of rounds, and
        primitives that are not understood.
      notes: further remarks on the numbers, in sentences.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> shapes = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}
      >>> print(jaxarch.cost(lambda p, x: x @ p["w"], shapes, jnp.ones((4, 3))))
             parameters  multiply-adds of one example, batch of 4: the input's first axis
      layer       dense  dense
      w               6      6
      total           6      6
      bytes of parameters: 24 dense
      activations: 2 dense
    """

    layers: dict[str, LayerCost]
    total: LayerCost
    batch: int
    batch_is: BatchIs
    is_masked: bool
    uncounted: tuple[str, ...]
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each layer and each known kind of connections, without the total.

        Example:
          >>> import jax, jax.numpy as jnp, jaxarch
          >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 2))}
          >>> cost = jaxarch.cost(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], params, jnp.ones((1, 3)))
          >>> frame = cost.to_frame()
          >>> print(frame[frame.connections == "dense"].drop(columns="connections").to_string(index=False))
          layer  parameters  bytes  multiply_adds  activations
             in          24     96             24            8
            out          16     64             16            2
        """
        with from_extra("lab", "to_frame: a table"):
            import pandas as pd

        rows = [
            {"layer": name, "connections": kind, **dataclasses.asdict(counts)}
            for name, layer in self.layers.items()
            for kind in get_args(Connections)
            if (counts := getattr(layer, kind)) is not None
        ]
        columns = ["layer", "connections", *(field.name for field in dataclasses.fields(Counts))]
        return pd.DataFrame(rows, columns=columns)

    def kinds(self) -> tuple[Connections, ...]:
        """Return the kinds of connections to show; the masked ones only if there is a mask."""
        return tuple(
            kind
            for kind in get_args(Connections)
            if getattr(self.total, kind) is not None and (kind != "masked" or self.is_masked)
        )

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        kinds = self.kinds()
        numbers = ("parameters", "multiply_adds")
        rows = [
            [name, *(_number(getattr(getattr(layer, kind), of)) for of in numbers for kind in kinds)]
            for name, layer in [*self.layers.items(), ("total", self.total)]
        ]
        cells = [["layer", *kinds, *kinds], *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        widths[1] = max(widths[1], len("parameters") if len(kinds) == 1 else 0)
        lines = [
            "  ".join(
                f"{cell:>{width}}" if column else f"{cell:<{width}}"
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        second = sum(widths[: len(kinds) + 1]) + 2 * (len(kinds) + 1)
        title = f"{'':<{widths[0]}}  parameters".ljust(second) + f"multiply-adds of {self.of}{self._batch()}"
        return "\n".join([title, *lines, *self._below(kinds)])

    @property
    def of(self) -> str:
        """The scope of multiply-adds and activations: `one example`, or `the whole call`."""
        return "the whole call" if self.batch_is == "unknown" else "one example"

    def _batch(self) -> str:
        if self.batch == 1:
            return ""
        return f", batch of {self.batch}: {'as given' if self.batch_is == 'given' else FIRST_AXIS}"

    def _below(self, kinds: Iterable[Connections]) -> list[str]:
        def of_all(name: str) -> str:
            return ", ".join(f"{_number(getattr(getattr(self.total, kind), name))} {kind}" for kind in kinds)

        lines = [f"bytes of parameters: {of_all('bytes')}", f"activations: {of_all('activations')}"]
        if self.uncounted:
            lines.append(f"not counted: {', '.join(self.uncounted)}")
        return [*lines, *self.notes]


def _number(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"
