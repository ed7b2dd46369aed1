"""Leaves that an optimizer holds still, read from the program of its update."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxarch._internal.errors import ArgumentError, ResultWarning, is_traced
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.run._descent import OwnDescent, accepted

_KEEP_ZEROS = {
    "abs", "add", "add_any", "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p",
    "max", "min", "neg", "reduce_max", "reduce_sum", "reshape", "select_n", "sign", "slice", "sqrt", "square",
    "squeeze", "sub", "transpose",
}  # fmt: skip
"""Operations whose outputs are zero if their inputs are; for `select_n`, its cases."""


def check_frozen(
    name: str, descent: OwnDescent, optimizer: optax.GradientTransformation, trained: PyTree
) -> None:
    """Warn of frozen scores, and raise for weights that are not frozen, if a search trains both.

    Args:
      name: the search's name.
      descent: the search's own descent.
      optimizer: the problem's optimizer.
      trained: what the search trains: entries that have optimizers of their own.

    Raises:
      ArgumentError: an optimizer of the search's own that trains weights which the problem's optimizer holds
        still.
    """
    own = dict(descent.entries)
    if not own:
        return
    of_all = dict(descent.changes).get("optimizer", optimizer)
    if own["weights"] is not None:
        held = set(frozen(of_all, trained["weights"]))
        if loose := sorted(held - set(frozen(own["weights"], trained["weights"]) if held else ())):
            raise ArgumentError(
                f"weights_optimizer: {name} would train {', '.join(map(repr, loose))}, which the problem's "
                "optimizer freezes; give a weights_optimizer that freezes them too"
            )
    if still := frozen(own["scores"] or of_all, trained["scores"]):
        warnings.warn(
            f"{name}: the optimizer freezes the scores of {', '.join(map(repr, still))}, like the weights, "
            "so their connections are ranked by the initial scores; leave them out by `where`, or give a "
            "`scores_optimizer`",
            ResultWarning,
            stacklevel=2,
        )


def frozen(optimizer: optax.GradientTransformation, params: PyTree) -> list[str]:
    """Return the paths of leaves whose update is provably 0, whatever the gradient and the state."""

    def update(gradients: PyTree, state: PyTree, params: PyTree, value: Any) -> tuple[PyTree, PyTree]:
        told = accepted(optimizer, {"value": value, "grad": gradients, "value_fn": lambda params: value})
        return optimizer.update(gradients, state, params, **told)

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    try:
        begin, state = jax.make_jaxpr(optimizer.init, return_shape=True)(shapes)
        program = jax.make_jaxpr(update)(shapes, state, shapes, jax.ShapeDtypeStruct((), jnp.float32))
    except (ArgumentError, AttributeError, LookupError, TypeError, ValueError):
        # Return nothing: the error is reported where the optimizer is used.
        return []
    paths = list(named_leaves(params))
    others = [False] * len(paths)
    held = _zeros(begin, others)
    # A state leaf stays 0 if it begins as 0 and a step keeps it 0, given the other such leaves.
    while True:
        zeros = _zeros(program, [*others, *held, *others, False])
        after = zeros[len(paths) :]
        still = [*map(all, zip(held, after, strict=True))] if len(after) == len(held) else [False] * len(held)
        if still == held:
            return [path for path, is_zero in zip(paths, zeros, strict=False) if is_zero]
        held = still


def _zeros(program: ClosedJaxpr, inputs: Sequence[bool]) -> list[bool]:
    """Return which outputs are 0, given which inputs are."""
    jaxpr: Jaxpr = program.jaxpr
    known = dict(zip(jaxpr.invars, inputs, strict=True))
    known |= {of: _is_zero(value) for of, value in zip(jaxpr.constvars, program.consts, strict=True)}

    def is_zero(atom: Any) -> bool:
        return _is_zero(atom.val) if isinstance(atom, Literal) else known.get(atom, False)

    for eqn in jaxpr.eqns:
        taken = [is_zero(atom) for atom in eqn.invars]
        made = _made(eqn, taken)
        known |= zip(eqn.outvars, made, strict=True)
    return [is_zero(atom) for atom in jaxpr.outvars]


def _is_zero(value: Any) -> bool:
    is_key = jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.prng_key)
    return not is_key and not is_traced(value) and not np.any(np.asarray(value))


def _made(eqn: Any, taken: list[bool]) -> list[bool]:
    """Return which outputs of an operation are 0."""
    name = eqn.primitive.name
    if name == "mul":
        return [any(taken)]
    if name == "div":
        return [taken[0]]
    if name == "select_n" and taken[0]:
        return [taken[1]]
    if name in _KEEP_ZEROS or (name == "integer_pow" and eqn.params["y"] > 0):
        return [all(taken[name == "select_n" :])]
    branches = eqn.params.get("branches") if name == "cond" else (eqn.params.get("jaxpr"),)
    if name not in ("cond", "jit", "pjit") or not all(isinstance(part, ClosedJaxpr) for part in branches):
        return [False] * len(eqn.outvars)
    inputs = taken[1:] if name == "cond" else taken
    return [all(of_each) for of_each in zip(*(_zeros(part, inputs) for part in branches), strict=True)]
