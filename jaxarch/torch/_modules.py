"""PyTorch modules as functions of their arrays, and smaller modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from jaxarch._internal.errors import from_extra
from jaxarch._internal.trees import PyTree
from jaxarch.structure._framework_models import ShrunkModel
from jaxarch.structure._network_function import check_arrays_given
from jaxarch.structure._plan import Options, Plan, PlanScope, Shares, plan_of, subject_of
from jaxarch.structure._shrink import Shrunk, shrink_function

if TYPE_CHECKING:
    import torch
    from torch import nn


def as_function(model: nn.Module) -> tuple[Callable[..., Any], dict[str, jax.Array]]:
    """Turn a PyTorch module into a function and its arrays: `function(tree, *inputs)` is `model(*inputs)`.

        function, tree = jaxarch.torch.as_function(model.eval())
        print(jaxarch.structure.axis_groups(function, tree, x))

    torchax translates the module's operations. The result is a JAX function like any other: jit it,
    differentiate it, score its connections, or read its structure. `plan` and `shrink` compare its outputs
    with the module's; this function does not.

    Args:
      model: a module in evaluation mode. It is not changed. Do not change its attributes while you use the
        function; its arrays may change, since the result shares no memory with them.

    Returns:
      The function of JAX arrays, and the parameters and buffers by their names in the module. A parameter
      that several layers share has its first name alone.

    Raises:
      ArgumentError: a `model` that is no PyTorch module, or is in training mode; 64-bit numbers that JAX
        would cut to 32 bits.

    Example:
      >>> import jax.numpy as jnp, torch, jaxarch
      >>> function, tree = jaxarch.torch.as_function(torch.nn.Linear(3, 2).eval())
      >>> print(sorted(tree), function(tree, jnp.ones((1, 3))).shape)
      ['bias', 'weight'] (1, 2)
    """
    with from_extra("torch", "as_function: a PyTorch module"):
        from jaxarch.torch._reading import function_of
    return function_of(model)


@dataclasses.dataclass(frozen=True, repr=False)
class ShrunkModule(ShrunkModel):
    """A smaller PyTorch module. `print` shows the removed units.

    Attributes:
      model: the module with smaller arrays, and with their sizes in its layers, in evaluation mode. It is
        `None` if the module's code does not take them, for instance because it fixes the number of heads.
        Then `function` and `state_dict` are what there is.
      why: the reason if there is no `model`; otherwise empty.
      state_dict: the smaller tensors by name, as `model.state_dict()` would return them.
    """

    state_dict: dict[str, torch.Tensor]
    _names: dict[nn.Parameter, str] = dataclasses.field(repr=False)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Cut the state of an optimizer of the original module, so that training goes on where it was.

            smaller = torch.optim.Adam(small.model.parameters())
            smaller.load_state_dict(small.optimizer_state(optimizer))

        Args:
          optimizer: an optimizer of the original module's parameters.

        Returns:
          The optimizer's `state_dict()`, with tensors of the smaller shapes.

        Raises:
          ArgumentError: parameters of another module; states of other shapes than the parameters.
        """
        from jaxarch.torch._optimizer_states import cut_state

        return cut_state(optimizer, self._names, self.groups, self.kept)


def shrink(model: nn.Module, *inputs: PyTree) -> ShrunkModule:
    """Remove the neurons, channels and heads that have no effect: `jaxarch.shrink` for PyTorch modules.

        small = jaxarch.torch.shrink(pruned, x)
        small.model(x)  # an ordinary module, to be trained on and saved

    Args:
      model: a module in evaluation mode, with pruned weights at 0. It is not changed, and shares no memory
        with the result.
      *inputs: example inputs of a call, on which both modules are compared.

    Raises:
      ArgumentError: the errors of `as_function` and `jaxarch.shrink`; a module that torchax cannot translate,
        or whose translation computes something else.

    Example:
      >>> import torch, jaxarch
      >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
      >>> with torch.no_grad():
      ...     _ = model[2].weight[:, 1:3].zero_()  # two of four neurons are not read
      >>> small = jaxarch.torch.shrink(model.eval(), torch.ones(1, 3))
      >>> print(small.model[0])
      Linear(in_features=3, out_features=2, bias=True)
    """
    with from_extra("torch", "shrink: a PyTorch module"):
        from jaxarch.torch import _reading, _smaller_modules
    function, tree, examples = _reading.read(model, inputs)
    small = shrink_function(function, tree, examples)
    return _smaller_modules.finished(small, model, function, tree, inputs, exact=True)


def plan(
    model: nn.Module,
    *inputs: PyTree,
    budget: str | Sequence[str] | None = None,
    scores: Any = None,
    scope: PlanScope = "relative",
    units: str | Sequence[str] | None = None,
    shares: Shares | None = None,
    round_to: int = 1,
    kept: Mapping[str, Any] | None = None,
) -> Plan:
    """Choose the units of a PyTorch module to keep, so that it meets a budget: `structure.plan` for modules.

        plan = jaxarch.torch.plan(model, x, budget="50% multiply_adds")
        print(plan)
        small = plan.apply().model  # an ordinary module, to be trained on and saved

    The groups of units are read from the program that torchax traces. No list of layers is needed, and no
    layer is left out because its class is unknown.

    Args:
      model: a module in evaluation mode. It is not changed, and shares no memory with the result.
      *inputs: example inputs of a call.
      budget: see `structure.plan`, as for all other arguments. Latency is that of the compiled JAX function.
      scores: tensors by parameter name, larger for connections that are needed more, for instance
        `{name: (p * p.grad).abs() for name, p in model.named_parameters()}`; or as in `structure.plan`.
      scope: see `structure.plan`.
      units: see `structure.plan`.
      shares: see `structure.plan`. Patterns are on names of parameters: `{"layer1.*": 1.0}`.
      round_to: see `structure.plan`.
      kept: see `structure.plan`.

    Returns:
      `Plan`. Its `apply()` returns a `ShrunkModule`, and raises an `ArgumentError` if torchax's translation
      computes something else than the module.

    Raises:
      ArgumentError: the errors of `as_function` and `structure.plan`; a module that torchax cannot translate.

    Example:
      >>> import torch, jaxarch
      >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
      >>> plan = jaxarch.torch.plan(model.eval(), torch.ones(1, 3), budget="30 parameters")
      >>> print(plan.before.parameters, plan.after.parameters, plan.apply().model[0].out_features)
      50 26 4
    """
    with from_extra("torch", "plan: a PyTorch module"):
        from jaxarch.torch import _reading, _smaller_modules
    function, tree, examples = _reading.read(model, inputs)
    check_arrays_given(inputs=examples)
    parameters = {name for name, _ in model.named_parameters()} & tree.keys()

    def finish(small: Shrunk) -> ShrunkModule:
        return _smaller_modules.finished(small, model, function, tree, inputs, exact=False)

    subject = subject_of(function, tree, examples, parameters, finish)
    given = _reading.scores_of(scores, tree)
    return plan_of(subject, Options(budget, given, scope, units, shares, round_to, kept))
