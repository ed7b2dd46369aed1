"""Groups of units that each layer of a model reads, makes and carries along."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from jaxarch._internal.errors import ArgumentError, shown
from jaxarch.structure._axes import Axis
from jaxarch.structure._groups import Groups
from jaxarch.structure._products import find_products, module_of


class LayerUnits(NamedTuple):
    """The groups of units of a layer, by how it uses them.

    Attributes:
      layer: the module of its leaves.
      reads: the groups that its products sum over.
      makes: the groups that its products compute.
      carries: the groups for which its other leaves have entries, such as biases or the scales of a norm.
    """

    layer: str
    reads: frozenset[str]
    makes: frozenset[str]
    carries: frozenset[str]


def layer_units(groups: Groups) -> tuple[LayerUnits, ...]:
    """Find the groups of units that each layer reads, makes and carries, in the order of the program.

    Raises:
      ArgumentError: anything but the result of `axis_groups`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxarch.structure import axis_groups, layer_units
      >>> params = {"a": {"kernel": jnp.ones((3, 4)), "bias": jnp.ones(4)}, "b": {"kernel": jnp.ones((4, 2))}}
      >>> def model(params, x):
      ...     return jnp.tanh(x @ params["a"]["kernel"] + params["a"]["bias"]) @ params["b"]["kernel"]
      >>> for layer in layer_units(axis_groups(model, params, jnp.ones((1, 3)))):
      ...     print(layer.layer, sorted(layer.reads), sorted(layer.makes), sorted(layer.carries))
      a [] ['a/bias[0]'] ['a/bias[0]']
      b ['a/bias[0]'] [] []
    """
    if not isinstance(groups, Groups):
        raise ArgumentError(
            f"groups: expected the result of axis_groups(function, params, x), got {shown(groups)}"
        )
    names = {atom: name for name, atom in groups._atoms.items()}
    found: dict[str, tuple[set[str], set[str], set[str]]] = {}

    def of(axes: Collection[Axis]) -> set[str]:
        return {names[atom] for axis in axes for atom in axis.atoms() if atom in names}

    products = find_products(groups._program, dict.fromkeys(groups._leaves))
    in_products = set()
    for product in products.found:
        for factor, axes in zip(product.factors, product.step.inputs, strict=True):
            if factor is None or not factor.paths:
                continue
            in_products |= set(factor.paths)
            read = set(_read(product.step.eqn, product.factors.index(factor)))
            reads, makes, _ = found.setdefault(product.layer, (set(), set(), set()))
            reads |= of([axis for index, axis in enumerate(axes) if index in read])
            makes |= of([axis for index, axis in enumerate(axes) if index not in read])
    for path, axes in groups._leaves.items():
        if path not in in_products:
            found.setdefault(module_of(path), (set(), set(), set()))[2].update(of(axes))
    order = [*products.layers, *found]
    return tuple(
        LayerUnits(layer, *map(frozenset, found[layer])) for layer in dict.fromkeys(order) if layer in found
    )


def _read(eqn: object, index: int) -> tuple[int, ...]:
    """Return the axes of a factor that are summed over."""
    name, params = eqn.primitive.name, eqn.params  # type: ignore[attr-defined]
    if name == "dot_general":
        return params["dimension_numbers"][0][index]
    return (params["dimension_numbers"].rhs_spec[1],) if index else ()
