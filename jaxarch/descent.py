"""How to descend, apart from what on: the optimiser, its steps, the examples of each."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypedDict, Unpack

import optax

from jaxarch.errors import ArgumentError, check_count, did_you_mean, shown

Sampling = Literal["independent", "epochs"]


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent: how a training goes, whatever it trains.

    Attributes:
      optimizer: any optax transformation.
      steps: gradient steps.
      batch_size: examples a step, or `None` for all of them at every step.
      sampling: how the examples of a step are chosen: `independent`, uniformly with replacement, as the
        theorems of [D] and [A] assume; or `epochs`, without: each comes once an epoch, in an order that is
        drawn anew for each (see `epochs.epoch_rows`).

    Raises:
      ArgumentError: an optimiser that is none, sizes that are no positive integers, an unknown word.

    Example:
      >>> import jaxarch, optax
      >>> descent = jaxarch.Descent(optax.adam(1e-3), steps=1000, batch_size=32, sampling="epochs")
      >>> descent.replace(steps=50).batch_size
      32
    """

    optimizer: optax.GradientTransformation
    steps: int
    batch_size: int | None = None
    sampling: Sampling = "independent"

    def __post_init__(self) -> None:
        if not callable(getattr(self.optimizer, "update", None)):
            raise ArgumentError(
                f"optimizer: expected an optax transformation, as of optax.adam(1e-3), got "
                f"{type(self.optimizer).__name__}"
            )
        if not isinstance(self.optimizer, tuple):
            # An object with these two methods, such as optax.MultiSteps.
            pair = optax.GradientTransformationExtraArgs(self.optimizer.init, self.optimizer.update)
            object.__setattr__(self, "optimizer", pair)
        check_count("steps", self.steps)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if self.sampling not in ("independent", "epochs"):
            raise ArgumentError(f"sampling: expected 'independent' or 'epochs', got {shown(self.sampling)}")

    def replace(self, **changes: Unpack[DescentChanges]) -> Descent:
        """The descent with some of its fields replaced."""
        return dataclasses.replace(self, **changes)


class DescentChanges(TypedDict, total=False):
    """What a stage has of its own in place of the problem's descent, by keyword.

    jaxarch.retrain("cold", steps=2000, optimizer=optax.adam(1e-3))
    """

    optimizer: optax.GradientTransformation | None
    steps: int
    batch_size: int | None
    sampling: Sampling


@dataclasses.dataclass(frozen=True)
class OwnDescent:
    """The descent of one stage: the problem's, but for what the stage has of its own.

    Attributes:
      changes: names and values in place of the problem's.
    """

    changes: tuple[tuple[str, Any], ...] = ()

    def of(self, descent: Descent) -> Descent:
        """The problem's descent with this stage's changes."""
        return dataclasses.replace(descent, **dict(self.changes)) if self.changes else descent


THE_PROBLEMS = OwnDescent()
"""Of a stage that has nothing of its own."""


def own_descent(changes: DescentChanges) -> OwnDescent:
    """A stage's own descent out of its keywords.

    Raises:
      ArgumentError: a keyword that is none of a descent's, a value that `Descent` does not take.

    Example:
      >>> import jaxarch, optax
      >>> own = jaxarch.descent.own_descent({"steps": 2000})
      >>> descent = own.of(jaxarch.Descent(optax.sgd(0.1), steps=1000, batch_size=32))
      >>> descent.steps, descent.batch_size
      (2000, 32)
    """
    known = [field.name for field in dataclasses.fields(Descent)]
    for name in changes:
        if name not in known:
            raise ArgumentError(f"{name}: no such argument; {did_you_mean(name, known)}")
    given = {name: value for name, value in changes.items() if (name, value) != ("optimizer", None)}
    # Made once to be checked: what is not given stands for the problem's.
    Descent(**{"optimizer": optax.identity(), "steps": 1, **given})
    return OwnDescent(tuple(given.items()))
