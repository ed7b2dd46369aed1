"""Flax models, NNX and Linen, as pure functions."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxarch._internal.errors import ArgumentError, first_line
from jaxarch._internal.trees import PyTree
from jaxarch.models._model import Model
from jaxarch.models._spectral_network import spectral_network
from jaxarch.run._problem import Key
from jaxarch.spectral._network import FACTORS, Activation, Start
from jaxarch.spectral.algebra import Form

TRAINING_ARGUMENTS = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}
"""Arguments of a Linen module's `__call__` that tell training from evaluation, with their training value."""


_eager_sharding = getattr(nnx, "use_eager_sharding", contextlib.nullcontext)
"""Switch for Flax NNX from 0.12.1 on, which would split a variable over devices as soon as it is made."""


class Neurons(nnx.Variable):
    """Hidden neurons of a layer that are left, as booleans: state, not a parameter."""


class SpectralMLP(nnx.Module):
    """A spectral network as an NNX module: a classifier head that starts linear and grows as data demand.

        self.head = jaxarch.SpectralMLP((128, 100, 10), rngs=rngs)    # in place of an nnx.Linear

    It computes the same as `jaxarch.spectral_network`, by the feed-forward rule. Wherever it is in a model,
    `jaxarch.search.spectral` penalizes its hidden eigenvalues, and `jaxarch.recruit` removes its neurons.
    `spectral.direct_weights(network.params["head"], network.state["head"])` exports the remaining network of
    one run.

    Attributes:
      eigenvectors: `phi1, ..., phiB`, parameters of shape (N_{i+1}, N_i); in the gated form it is `factors`.
      eigenvalues: `L2, ..., L{B+1}`, parameters of shape (N_i,); also `L1` if it is trained.
      neurons: `L2, ..., LB`, booleans of shape (N_i,): all True at first.

    Args:
      widths: neurons per layer, N_1, ..., N_{B+1}, from features to outputs.
      form: `eigendecomposition`, as in [S], or `gated`, see `spectral_network`.
      activation: f, elementwise.
      bias: whether the input layer has one more neuron that is always 1.
      eigenvalues: `perceptron`, `random`, or one start per layer, with the default of `spectral_network`.
      train_input_eigenvalues: whether L_1 is a parameter; by default it is 0.
      rngs: the eigenvectors, and random eigenvalues, are drawn from `rngs.params()`.

    Raises:
      ArgumentError: arguments that `spectral_network` does not take.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> head = jaxarch.SpectralMLP((8, 16, 3), rngs=nnx.Rngs(0))
      >>> head(jnp.ones((5, 8))).shape
      (5, 3)
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        form: Form = "eigendecomposition",
        activation: Activation = jax.nn.relu,
        bias: bool = False,
        eigenvalues: Literal["perceptron", "random"] | Sequence[Start] | None = None,
        train_input_eigenvalues: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        network = spectral_network(
            widths,
            form=form,
            activation=activation,
            bias=bias,
            eigenvalues=eigenvalues,
            train_input_eigenvalues=train_input_eigenvalues,
        )
        params, _ = network.init(rngs.params())
        self._apply = network.apply
        self._kinds = (FACTORS[form], "eigenvalues")
        for kind in self._kinds:
            setattr(self, kind, nnx.Dict({k: nnx.Param(v) for k, v in params[kind].items()}))
        self.neurons = nnx.Dict(
            {f"L{i}": Neurons(jnp.ones(width, bool)) for i, width in enumerate(widths[1:-1], 2)}
        )

    def __call__(self, x: Array) -> Array:
        """Return outputs of shape (..., widths[-1]) for features of shape (..., widths[0])."""

        def arrays(variables: nnx.Dict) -> dict[str, Array]:
            return {name: variable[...] for name, variable in variables.items()}

        params = {kind: arrays(getattr(self, kind)) for kind in self._kinds}
        return self._apply(params, {"neurons": arrays(self.neurons)}, x, None)[0]


def as_model(model: Any, example: Array) -> Model:
    """Convert any supported network to a `Model`.

    Args:
      model: a `Model`; a Flax NNX module, whose weights are every run's start; a function `rngs ->
        nnx.Module`, so that every run draws its own weights; a Flax Linen module; or a pair of pure functions
        `(init, apply)`, `init(key) -> params` and `apply(params, x) -> outputs`.
      example: a batch of inputs, for shapes.

    Raises:
      ArgumentError: anything else, for instance a Linen class in place of a module, or an Equinox module; a
        function of rngs that raises, or returns something else.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> from flax import nnx
      >>> x = jnp.ones((5, 2))
      >>> model = jaxarch.models.as_model(lambda rngs: nnx.Linear(2, 3, rngs=rngs), x)
      >>> params, state = model.init(jax.random.key(0))
      >>> print(list(jaxarch.named_leaves(params)), model.apply(params, state, x, None)[0].shape)
      ['bias', 'kernel'] (5, 3)
    """
    kind = model if isinstance(model, type) else type(model)
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ArgumentError(
            f"model: got the Linen class {kind.__name__}; pass a module made of it, {kind.__name__}(...)"
        )
    _check_framework(model, kind)
    match model:
        case Model():
            return model
        case nnx.Module():
            # Split now: later changes to the module do not change the problem.
            graph, state = nnx.split(model)
            leaves, structure = jax.tree.flatten(state)
            return _nnx_model(partial(_rebuilt, graph, structure, tuple(leaves)))
        case nn.Module():
            if model.scope is not None:
                raise ArgumentError(
                    f"model: the Linen module {type(model).__name__} is bound to variables, which would be "
                    "replaced by new ones; pass the unbound module, or keep the variables with (lambda "
                    "key: params, apply)"
                )
            return _linen_model(model, example)
        case (init, apply) if callable(init) and callable(apply):
            return Model(lambda key: (init(key), {}), lambda params, state, x, key: (apply(params, x), state))
        case _ if callable(model):
            return _nnx_model(model)
    raise ArgumentError(
        "model: expected a Flax NNX module or a function of rngs that makes one, a Flax Linen module, a "
        f"jaxarch Model, or a pair of functions (init, apply); got {type(model).__name__}"
    )


def _check_framework(model: Any, kind: type) -> None:
    """Raise for a model of an unsupported library, with the line that converts it.

    Libraries are recognized by the modules of their classes and functions, so they need not be installed.
    """
    homes = {base.__module__.split(".")[0] for base in kind.__mro__}
    if "equinox" in homes:
        raise ArgumentError(
            f"model: {kind.__name__} is an Equinox module; pass (init, apply): with `params, static = "
            "eqx.partition(model, eqx.is_inexact_array)`, `(lambda key: params, lambda params, x: "
            "jax.vmap(eqx.combine(params, static))(x))`"
        )
    if "keras" in homes:
        raise ArgumentError(
            f"model: {kind.__name__} is a Keras model; under KERAS_BACKEND=jax, once it is built, pass "
            "`jaxarch.Model(lambda key: ({v.path: v.value for v in model.trainable_variables}, [v.value for "
            "v in model.non_trainable_variables]), lambda params, state, x, key: model.stateless_call("
            "[params[v.path] for v in model.trainable_variables], state, x, training=key is not None))`"
        )
    init, *others = model if isinstance(model, tuple) and len(model) == 2 else (None,)
    if not others or not callable(init):
        return
    if isinstance(owner := getattr(init, "__self__", None), nn.Module):
        raise ArgumentError(
            f"model: got functions of the Linen module {type(owner).__name__}; pass the module"
        )
    if (getattr(init, "__module__", None) or "").split(".")[0] == "haiku":
        if not callable(others[0]):
            raise ArgumentError(
                "model: hk.multi_transform returns several apply functions; pass a jaxarch.Model with one "
                "of them"
            )
        names = inspect.signature(others[0]).parameters
        of_state, of_key = "state, " * ("state" in names), "key, " * ("rng" in names)
        start, outputs = "net.init(key, x[:1])", f"net.apply(params, {of_state}{of_key}x)"
        if not of_state:
            start, outputs = f"({start}, {{}})", f"({outputs}, state)"
        raise ArgumentError(
            "model: got functions from Haiku; for `net` and inputs `x` pass jaxarch.Model, whose key is "
            f"None in evaluation: `jaxarch.Model(lambda key: {start}, lambda params, state, x, key: "
            f"{outputs})`"
        )


def _rebuilt(graph: Any, structure: Any, leaves: tuple[Array, ...], rngs: nnx.Rngs) -> nnx.Module:
    """Rebuild a module that was split; all runs start from the same weights."""
    return nnx.merge(graph, jax.tree.unflatten(structure, leaves))


def _nnx_model(given: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    def make(rngs: nnx.Rngs) -> nnx.Module:
        # Sharding annotations of parameters are for `over_seeds`, which has the mesh.
        with _eager_sharding(False):
            return given(rngs)

    def split(module: nnx.Module) -> tuple[Any, ...]:
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    # Trace, so that no weights are drawn here; only the structure is kept.
    try:
        abstract = nnx.eval_shape(lambda: make(nnx.Rngs(0)))
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            "model: expected a function of rngs that makes a module, such as `lambda rngs: MLP((64, 10), "
            f"rngs=rngs)`; called with rngs it raises {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(abstract, nnx.Module):
        raise ArgumentError(
            f"model: the function of rngs made a {type(abstract).__name__}, not an nnx.Module"
        )

    def init(key: Array) -> tuple[PyTree, PyTree]:
        _, params, _, state = split(make(nnx.Rngs(key)))
        return params, state

    def apply(params: PyTree, state: PyTree, x: Array, key: Key) -> tuple[Any, PyTree]:
        # Make the random state from the key at every call: it is not part of the model's state.
        graph, _, rngs, _ = split(make(nnx.Rngs(jax.random.key(0) if key is None else key)))
        module = nnx.merge(graph, params, rngs, state, copy=True)
        if key is None:
            module.eval()
        else:
            module.train()
            _reseed(module, key)
        outputs = module(x)
        return outputs, split(module)[3]

    return Model(init, apply)


def _reseed(module: nnx.Module, key: Array) -> None:
    """Draw every random stream of a module, such as dropout's, from a key."""
    streams = {node.tag for _, node in nnx.iter_graph(module) if isinstance(node, nnx.RngStream)}
    keys = jax.random.split(key, max(len(streams), 1))
    # Streams of stacked layers hold one key per layer, so their key is split.
    nnx.reseed(module, policy="match_shape", **dict(zip(sorted(streams), keys, strict=False)))


def _linen_model(module: nn.Module, example: Array) -> Model:
    accepted = inspect.signature(type(module).__call__).parameters
    training: dict[str, Any] = {name: value for name, value in TRAINING_ARGUMENTS.items() if name in accepted}
    evaluation: dict[str, Any] = {name: not value for name, value in training.items()}

    def init(key: Array) -> tuple[PyTree, PyTree]:
        params_key, dropout_key = jax.random.split(key)
        rngs = {"params": params_key, "dropout": dropout_key}
        variables = dict(module.init(rngs, example, **evaluation))
        return variables.pop("params"), variables

    def apply(params: PyTree, state: PyTree, x: Array, key: Key) -> tuple[Any, PyTree]:
        variables = {"params": params, **state}
        if key is None:
            return module.apply(variables, x, **evaluation), state
        params_key, dropout_key = jax.random.split(key)
        # Linen draws streams of any other name from `params`.
        rngs = {"params": params_key, "dropout": dropout_key}
        outputs, changed = module.apply(variables, x, **training, rngs=rngs, mutable=list(state))
        return outputs, {**state, **changed}

    return Model(init, apply)
