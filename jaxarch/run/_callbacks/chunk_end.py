"""The end of a chunk of steps as callbacks see it, and the decisions that they may make there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree
from jaxarch.masks import density
from jaxarch.run._network import Network

TOO_LATE = "callbacks: the network of a chunk's end is available only inside the callback; ask for it there"


@dataclasses.dataclass(frozen=True)
class ChunkEnd:
    """The end of a chunk of steps, as every callback sees it.

    Its arrays are on the host and have all runs of the group, also those that other processes train.

    Attributes:
      name: name of the strategy and the stage.
      start: the chunk's first step.
      step: how many steps have been taken.
      steps: how many steps the training has.
      group: index of this group of runs. Groups are trained one after the other if memory, or the kind of
        model, does not allow all runs at once.
      groups: how many groups there are.
      labels: names of the group's runs.
      losses: loss before each step of the chunk, shape (runs, step - start); NaN for a run that had stopped.
      running: which runs early stopping lets go on, shape (runs,).
      failed_at: first step whose loss was NaN or infinite, shape (runs,); -1 if there is none.
      validation: metrics of the validation rows at this chunk's end, each of shape (runs,).
      settings: each run's settings in the chunk; `None` in a fit without settings.
      history: losses of all steps so far, shape (runs, step), read-only. A callback that decides by it alone
        decides the same after a restart from a checkpoint.
      look: function that makes the return value of `network`.
    """

    name: str
    start: int
    step: int
    steps: int
    group: int
    groups: int
    labels: tuple[str, ...]
    losses: np.ndarray = dataclasses.field(compare=False, repr=False)
    running: np.ndarray = dataclasses.field(compare=False, repr=False)
    failed_at: np.ndarray = dataclasses.field(compare=False, repr=False)
    validation: dict[str, np.ndarray] = dataclasses.field(compare=False, repr=False)
    settings: PyTree = dataclasses.field(compare=False, repr=False)
    history: np.ndarray = dataclasses.field(compare=False, repr=False)
    look: Callable[[], Network] = dataclasses.field(compare=False, repr=False)

    def network(self) -> Network:
        """Return the network that would be found if the training ended here, with a leading axis of runs.

        It is computed when it is first asked for, within the callback, and its masks are hard. An earlier
        state that early stopping may have kept is not considered. If there are several processes, all have to
        ask.

        Raises:
          ArgumentError: a call after the callback has returned.
        """
        return self.look()

    def densities(self) -> np.ndarray | None:
        """Return the share of connections that each run keeps, shape (runs,); `None` without a mask.

        Raises:
          ArgumentError: a call after the callback has returned.
        """
        return densities_of(self.network())


def densities_of(network: Network) -> np.ndarray | None:
    """Return the density of each run's mask, shape (runs,); `None` without a mask."""
    return np.asarray(_densities(network.mask)) if jax.tree.leaves(network.mask) else None


_densities = jax.jit(jax.vmap(density))


class Look:
    """A network that is made at most once, until it is too late to make it."""

    def __init__(self, make: Callable[[], Network], too_late: str = TOO_LATE) -> None:
        self._make: Callable[[], Network] | None = make
        self._made: Network | None = None
        self._too_late = too_late

    def __call__(self) -> Network:
        """Return the network.

        Raises:
          ArgumentError: it is asked for after `close`.
        """
        if self._make is None:
            raise ArgumentError(self._too_late)
        if self._made is None:
            self._made = self._make()
        return self._made

    def close(self) -> None:
        """Make no network from now on, and hold none."""
        self._make = self._made = None


@dataclasses.dataclass(frozen=True)
class Decision:
    """A callback's decision at the end of a chunk.

    Attributes:
      stop: whether the training of this group of runs ends here. A stopped training stays stopped: the same
        call goes on with the stages after it, also from its checkpoints. To go on later, raise instead.
      settings: settings of the chunks after this one, in the structure of `ChunkEnd.settings`; `None` for no
        change. Each leaf has a leading axis of runs, or is one number for all.
      note: a line for the report's notes.

    Raises:
      ArgumentError: `stop` is not a truth value, or `note` is not a text.

    Example:
      >>> import jaxarch
      >>> def small_enough(end):
      ...     if end.losses[:, -1].max() < 0.01:
      ...         return jaxarch.Decision(stop=True, note="the loss is below 0.01 in all runs")
    """

    stop: bool = False
    settings: PyTree = dataclasses.field(default=None, compare=False)
    note: str = ""

    def __post_init__(self) -> None:
        if np.shape(self.stop) != () or np.asarray(self.stop).dtype != bool:
            raise ArgumentError(f"stop: expected True or False, got {shown(self.stop)}")
        if not isinstance(self.note, str):
            raise ArgumentError(f"note: expected text, got {shown(self.note)}")
        object.__setattr__(self, "stop", bool(self.stop))


Callback = Callable[[ChunkEnd], Decision | None]
"""A function that is called at every chunk's end."""
