"""The nodes of a network (neurons, channels): which connections are theirs, and which of them are dead.

A *chain of layers* says which kernel's outputs are which next kernel's inputs. Kernels have shape
(..., inputs, outputs), as Flax has them: (in, out) for dense layers, (h, w, in, out) for convolutions. Where
a picture is flattened between two layers, an output of the first feeds many inputs of the second: input
`position * channels + channel`, channels last. Networks with skip connections are no chains. Matrices of
shape (outputs, inputs) are one, read backwards: name them from the last layer to the first.

Nodes are a dict from a layer's name to booleans of shape (outputs,). Only hidden ones are spoken of: a
network's inputs, and the outputs of its last layer, are always there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.tree_util import tree_map_with_path

from jaxarch.errors import ArgumentError, did_you_mean, shown
from jaxarch.masks import check_booleans
from jaxarch.trees import PyTree, matrices, named_leaves, natural_order, path_name

__all__ = ["KERNELS", "Layer", "Layers", "connection_mask", "dead_nodes", "layer_chain", "links_between"]

Layers = Sequence[str | Sequence[str]]
"""Layers by name, in the order of the data flow: `("hidden", "head")`.

A name is the path of a module with one kernel, or of the kernel itself. Where a layer is followed by a
normalization of its own, both are named: `(("convs/0", "norms/0"), "head")`.
"""

KERNELS = ("kernel", "embedding")
"""Flax's names of leaves of shape (..., inputs, outputs)."""


class Layer(NamedTuple):
    """One layer of a chain.

    Attributes:
      name: the path of its module, or of its kernel where that has another name than Flax's.
      path: the path of its kernel.
      inputs: of the kernel.
      outputs: its nodes.
      positions: how many of the inputs each node of the layer before feeds: 1, or more after a flatten.
      norms: the paths of normalizations between the layer and its activation, as they were named.
    """

    name: str
    path: str
    inputs: int
    outputs: int
    positions: int = 1
    norms: tuple[str, ...] = ()


def layer_chain(tree: PyTree, layers: Layers | None = None) -> tuple[Layer, ...]:
    """The layers of a network in the order of its data flow.

    Args:
      tree: a mask, or parameters; leaves without inputs and outputs (biases, scales) are passed over.
      layers: their names. By default all leaves of the tree, in the one order in which each layer's outputs
        fit the next one's inputs. Layers whose names differ in numbers only are taken in the order of these
        (`layers/2` before `layers/10`), and after a dense layer comes neither a flatten nor a convolution.

    Returns:
      At least one layer.

    Raises:
      ArgumentError: a name of no kernel, or of more than one; layers that do not fit one another; without
        names, leaves that fit in no order or in more than one, or that are not called as in Flax, so that
        their orientation is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import nodes
      >>> params = {"head": {"kernel": jnp.ones((4, 2))}, "hidden": {"kernel": jnp.ones((3, 4))}}
      >>> [(layer.name, layer.inputs, layer.outputs) for layer in nodes.layer_chain(params)]
      [('hidden', 3, 4), ('head', 4, 2)]
    """
    shapes = {path: leaf.shape for path, leaf in named_leaves(tree).items() if matrices(path, leaf)}
    if not shapes:
        raise ArgumentError("mask: it has no leaf with inputs and outputs")
    if layers is None:
        return _by_fit(shapes)
    entries = _entries(layers)
    paths = [_path(name, list(shapes)) for name, *_ in entries]
    if len(set(paths)) < len(paths):
        raise ArgumentError(f"layers: expected each layer once, got {', '.join(paths)}")
    found: list[Layer] = []
    for path, (_, *norms) in zip(paths, entries, strict=True):
        before = found[-1].outputs if found else None
        positions = _positions(before, shapes[path])
        if positions is None:
            raise ArgumentError(
                f"layers: {path!r} has {shapes[path][-2]} inputs, which do not fit the {before} outputs of "
                f"{found[-1].path!r}; name the layers in the order of the data flow"
            )
        found.append(_layer(path, shapes[path], positions)._replace(norms=tuple(norms)))
    return tuple(found)


def connection_mask(mask: PyTree, nodes: Mapping[str, Array], layers: Layers | None = None) -> PyTree:
    """The mask without the connections of nodes that are gone: one is kept if both its ends are.

    Args:
      mask: booleans; `full_mask` for all connections between the nodes.
      nodes: which nodes are there, by layer; all those of layers that are not in it.
      layers: the chain (see `layer_chain`).

    Raises:
      ArgumentError: as `layer_chain`; nodes of a layer that has none, or of another shape; a mask or nodes
        that are not boolean.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import nodes
      >>> mask = {"hidden": {"kernel": jnp.ones((3, 2), bool)}, "head": {"kernel": jnp.ones((2, 1), bool)}}
      >>> left = nodes.connection_mask(mask, {"hidden": jnp.array([True, False])})
      >>> [left[name]["kernel"].astype(int).tolist() for name in ("hidden", "head")]
      [[[1, 0], [1, 0], [1, 0]], [[1], [0]]]
    """
    check_booleans(mask)
    if not isinstance(nodes, Mapping):
        raise ArgumentError(f"nodes: expected a dict from layers to booleans, got {shown(nodes)}")
    chain = layer_chain(mask, layers)
    hidden = {layer.name: layer.outputs for layer in chain[:-1]}
    for name, present in nodes.items():
        if name not in hidden:
            raise ArgumentError(
                f"nodes: no hidden nodes are called {shown(name)}; {did_you_mean(name, hidden)}"
            )
        dtype = getattr(present, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.bool_) or present.shape != (hidden[name],):
            found = shown(present) if dtype is None else f"{dtype} of shape {present.shape}"
            raise ArgumentError(
                f"nodes: {shown(name)} has {hidden[name]} nodes; expected booleans of shape "
                f"({hidden[name]},), got {found}"
            )
    ends: dict[str, Array] = {}
    before = jnp.ones(chain[0].inputs, bool)
    for layer in chain:
        after = nodes.get(layer.name, jnp.ones(layer.outputs, bool))
        ends[layer.path] = jnp.tile(before, layer.positions)[:, None] & after[None, :]
        before = after

    def kept(path: str, leaf: Array) -> Array:
        return leaf & jnp.broadcast_to(ends[path], leaf.shape) if path in ends else leaf

    return tree_map_with_path(lambda path, leaf: kept(path_name(path), leaf), mask)


def dead_nodes(mask: PyTree, layers: Layers | None = None) -> dict[str, Array]:
    """The hidden nodes without incoming or without outgoing connections, and those that then have none left.

    They are the nodes that lie on no path from an input of the network to an output of it. One that nothing
    comes into still has a constant value, `f(bias)`, that those after it may use: see `jaxarch.shrink`.

    Args:
      mask: booleans, of one network; for many, `vmap`.
      layers: the chain (see `layer_chain`).

    Returns:
      Booleans of shape (outputs,) by layer, the last one left out: `{}` for a network of one layer.

    Raises:
      ArgumentError: as `layer_chain`; a mask that is not boolean.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import nodes
      >>> hidden, head = jnp.array([[1, 0, 1], [1, 0, 1]], bool), jnp.array([[1], [1], [0]], bool)
      >>> dead = nodes.dead_nodes({"hidden": {"kernel": hidden}, "head": {"kernel": head}})
      >>> {name: gone.tolist() for name, gone in dead.items()}  # one without inputs, one without outputs
      {'hidden': [False, True, True]}
    """
    check_booleans(mask)
    chain = layer_chain(mask, layers)
    leaves = named_leaves(mask)
    links = [links_between(leaves[layer.path], layer) for layer in chain]
    reached = [jnp.ones(chain[0].inputs, bool)]
    for link in links[:-1]:
        reached.append((link & reached[-1][:, None]).any(0))
    reaching = [jnp.ones(chain[-1].outputs, bool)]
    for link in reversed(links[1:]):
        reaching.append((link & reaching[-1][None, :]).any(1))
    pairs = zip(chain[:-1], reached[1:], reversed(reaching[1:]), strict=True)
    return {layer.name: ~(there & on) for layer, there, on in pairs}


def links_between(leaf: Array, layer: Layer) -> Array:
    """Which nodes of the layer before are connected to which of this one: shape (before, outputs).

    Args:
      leaf: the mask of the layer's kernel, booleans.
      layer: of a chain.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.structure import nodes
      >>> kernel = jnp.zeros((8, 1), bool).at[5].set(True)  # position 2 of channel 1
      >>> mask = {"conv": {"kernel": jnp.ones((3, 3, 1, 2), bool)}, "head": {"kernel": kernel}}
      >>> conv, head = nodes.layer_chain(mask)
      >>> head.positions, nodes.links_between(kernel, head).tolist()
      (4, [[False], [True]])
    """
    return leaf.reshape(-1, layer.positions, layer.inputs // layer.positions, layer.outputs).any((0, 1))


def _layer(path: str, shape: tuple[int, ...], positions: int) -> Layer:
    module, _, leaf = path.rpartition("/")
    name = module if module and leaf in KERNELS else path
    return Layer(name, path, shape[-2], shape[-1], positions)


def _entries(layers: Layers) -> list[tuple[str, ...]]:
    """Each layer's names: its kernel's, and those of what follows it."""
    given = layers if isinstance(layers, (tuple, list)) else ()
    entries = [(entry,) if isinstance(entry, str) else entry for entry in given]
    for entry in entries or [None]:
        is_names = isinstance(entry, (tuple, list)) and all(isinstance(name, str) for name in entry)
        if not entry or not is_names:
            raise ArgumentError(f"layers: expected names in the order of the data flow, got {shown(layers)}")
    return [tuple(entry) for entry in entries]


def _path(name: str, paths: list[str]) -> str:
    """The one kernel that a layer's name means."""
    fitting = [path for path in paths if path == name or path.startswith(f"{name}/")]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ArgumentError(
            f"layers: {shown(name)} has more than one kernel: {', '.join(fitting)}; name one each"
        )
    raise ArgumentError(f"layers: no kernel is called {shown(name)}; {did_you_mean(name, paths)}")


def _positions(before: int | None, shape: tuple[int, ...]) -> int | None:
    """How many inputs of a kernel each node before it feeds; `None` if they do not fit."""
    inputs = shape[-2]
    if before is None or inputs == before:
        return 1
    return inputs // before if len(shape) == 2 and before and inputs % before == 0 else None


def _by_fit(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Layer, ...]:
    """All leaves, in the one order in which they fit."""
    remedy = "name the layers in the order of the data flow: layers=('hidden', 'head')"
    unnamed = [path for path in shapes if path.rpartition("/")[2] not in KERNELS]
    if unnamed:
        raise ArgumentError(
            f"layers: whether {unnamed[0]!r} has shape (..., inputs, outputs) is not known, since it is not "
            f"called `kernel`; if it has, {remedy}"
        )
    series: dict[str, list[str]] = {}
    for path in sorted(shapes, key=natural_order):
        series.setdefault(re.sub(r"\d+", "#", path), []).append(path)
    orders = list(itertools.islice(_orders(shapes, list(series.values()), ()), 2))
    if len(orders) != 1:
        how = "in no order" if not orders else "in more than one order"
        listed = ", ".join(f"{path} {shape}" for path, shape in shapes.items())
        raise ArgumentError(f"layers: the outputs and inputs of {listed} fit {how}; {remedy}")
    return orders[0]


def _orders(
    shapes: Mapping[str, tuple[int, ...]], series: Sequence[list[str]], done: tuple[Layer, ...]
) -> Iterator[tuple[Layer, ...]]:
    """All orders in which layers fit one another, each series in its own order."""
    if not any(series):
        yield done
    for index, (path, *rest) in ((i, paths) for i, paths in enumerate(series) if paths):
        positions = _positions(done[-1].outputs if done else None, shapes[path])
        if positions is None:
            continue
        if done and len(shapes[done[-1].path]) == 2 and (positions > 1 or len(shapes[path]) > 2):
            continue
        left = [*series[:index], rest, *series[index + 1 :]]
        yield from _orders(shapes, left, (*done, _layer(path, shapes[path], positions)))
