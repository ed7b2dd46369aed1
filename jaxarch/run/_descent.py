"""How to descend, apart from what on: the optimiser, its steps, the examples of each."""

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
    """Gradient descent: how a training goes, whatever it trains.

    Attributes:
      optimizer: any optax transformation.
      steps: gradient steps.
      batch_size: examples a step, or `None` for all of them at every step.
      sampling: how the examples of a step are chosen: `independent`, uniformly with replacement, as the
        theorems of [D] and [A] assume; or `epochs`, without: each comes once an epoch, in an order that is
        drawn anew for each.

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
        object.__setattr__(self, "optimizer", _as_optimizer("optimizer", self.optimizer))
        check_count("steps", self.steps)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_choice("sampling", self.sampling, ("independent", "epochs"))

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
      taken: how many of its steps an earlier training has taken, so that so many fewer are left.
      entries: where what is trained is a dict whose entries have optimisers of their own: its names, each
        with its optimiser, or with `None` for the descent's.

    Raises:
      ArgumentError: where no step is left.
    """

    changes: tuple[tuple[str, Any], ...] = ()
    taken: int = 0
    entries: tuple[tuple[str, optax.GradientTransformation | None], ...] = ()

    @property
    def has_optimizer(self) -> bool:
        """Whether it has optimisers for all that is trained, so that the descent's is not used."""
        of_all = dict(self.changes).get("optimizer")
        return all(own or of_all for _, own in self.entries) if self.entries else of_all is not None

    def of(self, descent: Descent) -> Descent:
        """The problem's descent with this stage's changes."""
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
"""Of a stage that has nothing of its own."""


def check_rewind(step: int, steps: int) -> None:
    """Raise unless a step that is gone back to has others after it."""
    if step >= steps:
        raise ArgumentError(f"rewind_to: expected fewer steps than the {steps} of the training, got {step}")


def own_descent(
    changes: DescentChanges, entries: Mapping[str, optax.GradientTransformation | None] | None = None
) -> OwnDescent:
    """A stage's own descent out of its keywords.

    Args:
      changes: the keywords.
      entries: for a stage that trains a dict: all its entries, each with an optimiser of its own, which sees
        the tree of this entry alone, or with `None` for the descent's.

    Raises:
      ArgumentError: a keyword that is none of a descent's, a value that `Descent` does not take.

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
    given = {name: value for name, value in changes.items() if (name, value) != ("optimizer", None)}
    # Made once to be checked: what is not given stands for the problem's.
    Descent(**{"optimizer": optax.identity(), "steps": 1, **given})
    each = {
        name: optimizer if optimizer is None else _as_optimizer(f"{name}_optimizer", optimizer)
        for name, optimizer in (entries or {}).items()
    }
    return OwnDescent(tuple(given.items()), entries=tuple(each.items()))


def value_at(value: ArrayLike | optax.Schedule, step: int | Array) -> Any:
    """A number, or what a function of the step says of a step."""
    if not callable(value):
        return value
    # Optax mixes integers and floating-point numbers, whatever `jax_numpy_dtype_promotion` says.
    with jax.numpy_dtype_promotion("standard"):
        return value(step)


def _as_optimizer(name: str, optimizer: Any) -> optax.GradientTransformation:
    """An optax transformation, also of an object with its two methods, such as `optax.MultiSteps`."""
    methods = [getattr(optimizer, method, None) for method in ("init", "update")]
    if isinstance(optimizer, type) or not all(map(callable, methods)):
        raise ArgumentError(
            f"{name}: expected an optax transformation, as of optax.adam(1e-3), got "
            f"{type(optimizer).__name__}"
        )
    if isinstance(optimizer, tuple):
        return optimizer
    return optax.GradientTransformationExtraArgs(optimizer.init, optimizer.update)


class EachState(NamedTuple):
    """The states of the optimisers of a dict's entries.

    Attributes:
      states: by the entries' names.
    """

    states: dict[str, PyTree]


def _each(optimizers: dict[str, optax.GradientTransformation]) -> optax.GradientTransformationExtraArgs:
    """An optimiser for every entry of a dict; each sees the tree of its entry alone, and its gradient."""

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
    """The loss along a line, for an optimiser that moves scores or weights alone: refused."""
    raise ArgumentError(
        "optimizer: it looks for its steps along a line, and this search moves scores and weights at once, "
        "each by an optimizer of its own; take one without a line search"
    )


def accepted(
    optimizer: optax.GradientTransformation, extra: Mapping[str, Any], step: Any = None
) -> dict[str, Any]:
    """Those extra arguments that an optimiser's update takes.

    The step goes to one that names it. What takes any argument hands them on, and may skip updates, as
    `optax.MultiSteps`: what is inside counts its own.
    """
    parameters = inspect.signature(optimizer.update).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        told = dict(extra)
    else:
        told = {name: value for name, value in extra.items() if name in parameters}
    return told | {"step": step} if "step" in parameters and step is not None else told


def asked(of: str, function: Callable[..., Any], *args: Any, **extra: Any) -> Any:
    """Call an optimizer's function; its errors about the trees that it is shown become one line.

    Raises:
      ArgumentError: an error of the optimiser, whose trees of labels or of decay do not fit for instance.
    """
    try:
        # Optax mixes integers and floating-point numbers, whatever `jax_numpy_dtype_promotion` says.
        with jax.numpy_dtype_promotion("standard"):
            return function(*args, **extra)
    except ArgumentError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"optimizer: it does not take the {of}, {shown(list(named_leaves(args[0])))}: {first_line(error)}"
        ) from error
