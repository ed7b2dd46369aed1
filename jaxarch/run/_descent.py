"""Settings of gradient descent: the optimizer, the number of steps and the examples of each step."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import jax
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import ArgumentError, check_choice, check_count, did_you_mean, first_line, shown
from jaxarch._internal.trees import PyTree, named_leaves

Sampling = Literal["independent", "epochs"]


@dataclasses.dataclass(frozen=True)
class Descent:
    """Settings of gradient descent, whatever is trained.

    Attributes:
      optimizer: any optax transformation.
      steps: gradient steps.
      batch_size: examples per step, or `None` for all of them at every step.
      sampling: how the examples of a step are chosen. `independent`: uniformly with replacement, as the
        theorems of [D] and [A] assume. `epochs`: without replacement; each example comes once an epoch, in an
        order that is drawn anew for each epoch.

    Raises:
      ArgumentError: an optimizer that is not an optax transformation, sizes that are not positive integers,
        an unknown word.

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
        object.__setattr__(self, "optimizer", _as_optimizer("optimizer", self.optimizer))
        check_count("steps", self.steps)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_choice("sampling", self.sampling, ("independent", "epochs"))

    def replace(self, **changes: Unpack[DescentChanges]) -> Descent:
        """Return the descent with some of its fields replaced."""
        return dataclasses.replace(self, **changes)


class DescentChanges(TypedDict, total=False):
    """Keyword arguments by which a stage changes the problem's descent.

    jaxarch.retrain("cold", steps=2000, optimizer=optax.adam(1e-3))
    """

    optimizer: optax.GradientTransformation | None
    steps: int
    batch_size: int | None
    sampling: Sampling


@dataclasses.dataclass(frozen=True)
class OwnDescent:
    """The descent of one stage: the problem's descent with the stage's own changes.

    Attributes:
      changes: names and values that replace the problem's.
      taken: how many of the steps an earlier training has taken already; that many fewer are left.
      entries: for a stage that trains a dict whose entries have optimizers of their own: the names of the
        entries, each with its optimizer, or with `None` for the descent's.

    Raises:
      ArgumentError: no step is left.
    """

    changes: tuple[tuple[str, Any], ...] = ()
    taken: int = 0
    entries: tuple[tuple[str, optax.GradientTransformation | None], ...] = ()

    @property
    def has_optimizer(self) -> bool:
        """True if all that is trained has an optimizer of the stage, so that the problem's is unused."""
        of_all = dict(self.changes).get("optimizer")
        return all(own or of_all for _, own in self.entries) if self.entries else of_all is not None

    def of(self, descent: Descent) -> Descent:
        """Return the problem's descent with this stage's changes."""
        changes = dict(self.changes)
        if self.entries:
            of_all = changes.get("optimizer", descent.optimizer)
            changes["optimizer"] = _each({name: own or of_all for name, own in self.entries})
        own = dataclasses.replace(descent, **changes) if changes else descent
        if not self.taken:
            return own
        check_rewind(self.taken, own.steps)
        return own.replace(steps=own.steps - self.taken)


THE_PROBLEMS = OwnDescent()
"""The descent of a stage without changes of its own: the problem's."""


def check_rewind(step: int, steps: int) -> None:
    """Raise unless the step to rewind to has steps after it."""
    if step >= steps:
        raise ArgumentError(f"rewind_to: expected fewer than the {steps} steps of the training, got {step}")


def own_descent(
    changes: DescentChanges, entries: Mapping[str, optax.GradientTransformation | None] | None = None
) -> OwnDescent:
    """Make a stage's own descent from its keywords.

    Args:
      changes: the keywords.
      entries: for a stage that trains a dict: all its entries, each with an optimizer of its own, which sees
        the tree of this entry alone, or with `None` for the descent's.

    Raises:
      ArgumentError: a keyword that a descent does not have, a value that `Descent` does not take.

    Example:
      >>> import jaxarch, optax
      >>> own = jaxarch.run._descent.own_descent({"steps": 2000})
      >>> descent = own.of(jaxarch.Descent(optax.sgd(0.1), steps=1000, batch_size=32))
      >>> descent.steps, descent.batch_size
      (2000, 32)
    """
    known = [field.name for field in dataclasses.fields(Descent)]
    for name in changes:
        if name not in known:
            raise ArgumentError(f"{name}: no such argument; {did_you_mean(name, known)}")
    given = {name: value for name, value in changes.items() if name != "optimizer" or value is not None}
    # Build a descent only to check the values; fields that are not given get placeholders.
    Descent(**{"optimizer": optax.identity(), "steps": 1, **given})
    each = {
        name: optimizer if optimizer is None else _as_optimizer(f"{name}_optimizer", optimizer)
        for name, optimizer in (entries or {}).items()
    }
    return OwnDescent(tuple(given.items()), entries=tuple(each.items()))


def value_at(value: ArrayLike | optax.Schedule, step: int | Array) -> Any:
    """Return a number, or the value of a schedule at a step."""
    if not callable(value):
        return value
    # Optax mixes integers and floating-point numbers, whatever `jax_numpy_dtype_promotion` says.
    with jax.numpy_dtype_promotion("standard"):
        return value(step)


def _as_optimizer(name: str, optimizer: Any) -> optax.GradientTransformation:
    """Return an optax transformation; wrap an object with its two methods, such as `optax.MultiSteps`."""
    methods = [getattr(optimizer, method, None) for method in ("init", "update")]
    if isinstance(optimizer, type) or not all(map(callable, methods)):
        raise ArgumentError(
            f"{name}: expected an optax transformation, such as optax.adam(1e-3), got "
            f"{type(optimizer).__name__}"
        )
    if isinstance(optimizer, tuple):
        return optimizer
    return optax.GradientTransformationExtraArgs(optimizer.init, optimizer.update)


class EachState(NamedTuple):
    """States of the optimizers of a dict's entries.

    Attributes:
      states: by the entries' names.
    """

    states: dict[str, PyTree]


def _each(optimizers: dict[str, optax.GradientTransformation]) -> optax.GradientTransformationExtraArgs:
    """Make an optimizer of one optimizer per dict entry; each sees only its entry's tree and gradient."""

    def init(params: PyTree) -> EachState:
        states = {name: asked(name, tx.init, params[name]) for name, tx in optimizers.items()}
        return EachState(states)

    def update(
        updates: PyTree, state: EachState, params: PyTree = None, *, step: Any = None, **extra: Any
    ) -> tuple[PyTree, EachState]:
        moved, after = {}, {}
        if "value_fn" in extra:
            extra["value_fn"] = _no_line
        for name, optimizer in optimizers.items():
            own = extra | {"grad": extra["grad"][name]} if "grad" in extra else extra
            of = None if params is None else params[name]
            told = accepted(optimizer, own, step)
            args = updates[name], state.states[name], of
            moved[name], after[name] = asked(name, optimizer.update, *args, **told)
        return moved, EachState(after)

    return optax.GradientTransformationExtraArgs(init, update)


def _no_line(*_: Any, **__: Any) -> Any:
    """Refuse the loss along a line: each optimizer moves scores or weights alone, not both."""
    raise ArgumentError(
        "optimizer: a line search does not work here, since this search trains scores and weights together, "
        "each with its own optimizer; use one without a line search"
    )


def accepted(
    optimizer: optax.GradientTransformation, extra: Mapping[str, Any], step: Any = None
) -> dict[str, Any]:
    """Return the extra arguments that an optimizer's update takes.

    The step is passed only to an update with a parameter named `step`. An update that takes any keyword, such
    as the one of `optax.MultiSteps`, passes its arguments on to an inner optimizer. It may skip updates, so
    the inner optimizer counts its own steps.
    """
    parameters = inspect.signature(optimizer.update).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        told = dict(extra)
    else:
        told = {name: value for name, value in extra.items() if name in parameters}
    return told | {"step": step} if "step" in parameters and step is not None else told


def asked(of: str, function: Callable[..., Any], *args: Any, **extra: Any) -> Any:
    """Call an optimizer's function; turn its errors about the trees that it is given into one line.

    Raises:
      ArgumentError: an error of the optimizer, for instance because its trees of labels or of decay do not
        fit.
    """
    try:
        # Optax mixes integers and floating-point numbers, whatever `jax_numpy_dtype_promotion` says.
        with jax.numpy_dtype_promotion("standard"):
            return function(*args, **extra)
    except ArgumentError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"optimizer: it failed on the {of}, {shown(list(named_leaves(args[0])))}: {first_line(error)}"
        ) from error
