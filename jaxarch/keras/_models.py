"""Keras models as functions of their variables, and smaller models."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch._internal.trees import PyTree, copied
from jaxarch.structure import _framework_models
from jaxarch.structure._network_function import check_arrays_given
from jaxarch.structure._plan import Options, Plan, PlanScope, Shares, plan_of, subject_of
from jaxarch.structure._shrink import Shrunk, shrink_function

if TYPE_CHECKING:
    import keras


def as_function(model: keras.Model) -> tuple[Callable[..., Any], dict[str, jax.Array]]:
    """Turn a Keras model into a function and its arrays: `function(tree, *inputs)` is `model(*inputs)`.

        function, tree = jaxarch.keras.as_function(model)
        print(jaxarch.structure.axis_groups(function, tree, x))

    The function calls the model in inference mode: no dropout, and batch norm uses its running statistics.

    Args:
      model: a built Keras model on the JAX backend. It is not changed.

    Returns:
      The function, and the model's floating-point variables by path.

    Raises:
      ArgumentError: a `model` that is no Keras model, or is not built; another backend; two variables with
        the same path.

    Example:
      >>> import jax.numpy as jnp, jaxarch, keras
      >>> model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="head")])
      >>> function, tree = jaxarch.keras.as_function(model)
      >>> print(len(tree), function(tree, jnp.ones((1, 3))).shape)
      2 (1, 2)
    """
    keras = sys.modules.get("keras")  # whoever has a model has imported it
    if keras is None or not isinstance(model, keras.Model):
        raise ArgumentError(f"model: expected a Keras model, got {shown(model)}")
    if (backend := keras.backend.backend()) != "jax":
        raise ArgumentError(f"model: Keras runs on {backend}; set KERAS_BACKEND=jax before you import keras")
    if not model.built:
        raise ArgumentError("model: it is not built; call it once on an input")
    named: dict[str, Any] = {}
    for variable in model.variables:
        if variable.path in named:
            raise ArgumentError(f"model: two variables have the path {variable.path!r}; name their layers")
        named[variable.path] = variable
    tree = {
        path: copied(jax.numpy.asarray(variable.value))
        for path, variable in named.items()
        if "float" in str(variable.dtype)
    }

    def function(tree: dict[str, jax.Array], *inputs: PyTree) -> Any:
        def values(variables: Any) -> list[Any]:
            return [tree.get(variable.path, variable.value) for variable in variables]

        trainable, others = values(model.trainable_variables), values(model.non_trainable_variables)
        # Keras broadcasts over ranks, as NumPy does, whatever the user's setting.
        with jax.numpy_rank_promotion("allow"):
            outputs, _ = model.stateless_call(trainable, others, *inputs)
        return outputs

    return function, tree


@dataclasses.dataclass(frozen=True, repr=False)
class ShrunkModel(_framework_models.ShrunkModel):
    """A smaller Keras model. `print` shows the removed units.

    Attributes:
      model: the smaller model, not compiled. It is `None` if Keras cannot build it, for instance from a
        subclass of `keras.Model`. Then `function` computes the smaller model.
      why: the reason if there is no `model`; otherwise empty.
    """


def shrink(model: keras.Model, *inputs: PyTree) -> ShrunkModel:
    """Remove the neurons, channels and heads that have no effect: `jaxarch.shrink` for Keras models.

        small = jaxarch.keras.shrink(pruned, x)
        small.model.save("small.keras")

    Args:
      model: a built Keras model on the JAX backend, with pruned weights at 0. It is not changed.
      *inputs: example inputs of a call, on which both models are compared.

    Raises:
      ArgumentError: the errors of `as_function` and `jaxarch.shrink`.

    Example:
      >>> import jax.numpy as jnp, jaxarch, keras
      >>> into, out = keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)
      >>> model = keras.Sequential([keras.layers.Input((3,)), into, out])
      >>> _ = out.kernel.assign(out.kernel.value.at[1:3].set(0.0))  # two of four neurons are not read
      >>> print(jaxarch.keras.shrink(model, jnp.ones((1, 3))).model.layers[0].units)
      2
    """
    function, tree = as_function(model)
    return _finished(shrink_function(function, tree, inputs), model, [*tree], inputs, exact=True)


def plan(
    model: keras.Model,
    *inputs: PyTree,
    budget: str | Sequence[str] | None = None,
    scores: Any = None,
    scope: PlanScope = "relative",
    units: str | Sequence[str] | None = None,
    shares: Shares | None = None,
    round_to: int = 1,
    kept: Mapping[str, Any] | None = None,
) -> Plan:
    """Choose the units of a Keras model to keep, so that it meets a budget: `structure.plan` for Keras.

        plan = jaxarch.keras.plan(model, x, budget="50% multiply_adds")
        small = plan.apply().model  # an ordinary model; compile it, then train and save it

    Args:
      model: a built Keras model on the JAX backend. It is not changed.
      *inputs: example inputs of a call.
      budget: see `structure.plan`, as for all other arguments. Parameters are the trainable variables.
      scores: see `structure.plan`. Scores of connections are by path of the variables, as in `as_function`.
      scope: see `structure.plan`.
      units: see `structure.plan`.
      shares: see `structure.plan`.
      round_to: see `structure.plan`.
      kept: see `structure.plan`.

    Returns:
      `Plan`. Its `apply()` returns a `ShrunkModel`.

    Raises:
      ArgumentError: the errors of `as_function` and `structure.plan`.

    Example:
      >>> import jax.numpy as jnp, jaxarch, keras
      >>> layers = keras.layers.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)
      >>> model = keras.Sequential(layers)
      >>> plan = jaxarch.keras.plan(model, jnp.ones((1, 3)), budget="30 parameters")
      >>> print(plan.before.parameters, plan.after.parameters, plan.apply().model.layers[0].units)
      50 26 4
    """
    function, tree = as_function(model)
    check_arrays_given(inputs=inputs)
    parameters = {variable.path for variable in model.trainable_variables}
    finish = partial(_finished, model=model, paths=[*tree], inputs=inputs, exact=False)
    subject = subject_of(function, tree, inputs, parameters, finish)
    return plan_of(subject, Options(budget, scores, scope, units, shares, round_to, kept))


def _finished(
    small: Shrunk, model: keras.Model, paths: Sequence[str], inputs: tuple[PyTree, ...], exact: bool
) -> ShrunkModel:
    """Put the smaller arrays into a model with these sizes, and compare it with the smaller function.

    Args:
      small: the smaller function and its arrays.
      model: the original model.
      paths: the paths of its variables in the tree, in the model's order.
      inputs: inputs of a call.
      exact: see `smaller_model`.
    """
    from jaxarch.keras._sizes import with_arrays

    def made(fewer: bool) -> tuple[Any, Callable[..., Any]]:
        smaller = with_arrays(model, small.tree, fewer)
        function, tree = as_function(smaller)
        # The paths of the smaller model's variables may begin with another name; their order is the same.
        names = dict(zip(tree, paths, strict=True))
        return smaller, lambda arrays, *inputs: function(
            {path: arrays[name] for path, name in names.items()}, *inputs
        )

    candidates = [partial(made, fewer) for fewer in (False, True)]
    found = _framework_models.smaller_model(small, candidates, inputs, exact)
    return ShrunkModel(**_framework_models.fields_of(small), **found)
