"""A network made physically smaller: without the neurons and channels that no longer do anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import tree_map_with_path

from jaxarch.errors import ArgumentError, did_you_mean, is_traced, shown
from jaxarch.masks import apply_mask, full_mask
from jaxarch.network import Network
from jaxarch.structure.nodes import Layer, Layers, dead_nodes, layer_chain, links_between
from jaxarch.trees import PyTree, merge, named_leaves, path_name


class Shrunk(NamedTuple):
    """A smaller network that computes what the one it was made from does.

    Attributes:
      params: of the structure that they had, with smaller arrays.
      mask: likewise.
      state: likewise.
      widths: how many outputs each layer has left, by name; those of the last layer as before.
      neurons: which ones, their indices in the network that it was made from.
      kept: how many of these are dead (`nodes.dead_nodes`) but could not be removed exactly, by name.
    """

    params: PyTree
    mask: PyTree
    state: PyTree
    widths: dict[str, int]
    neurons: dict[str, np.ndarray]
    kept: dict[str, int]


def shrink(
    network: Network, layers: Layers | None = None, *, activation: Callable[[Array], Array] = jax.nn.relu
) -> Shrunk:
    r"""Remove the neurons and channels that died with their connections, exactly.

        small = jaxarch.shrink(network.of_run(0), ("hidden", "head"))
        problem.predict(small.params, small.state, batch)    # as with network.of_run(0), to rounding
        MLP(hidden=small.widths["hidden"], rngs=rngs)        # where the model class takes its widths

    A neuron without outgoing connections is always removed. One into which nothing comes, or only constants,
    is constant itself: `c = f(b)`, f the activation and b its bias (and what those constants add). It is
    removed if c is 0, or if the next layer is dense and has a bias: that becomes `b' = b + c W`. Before a
    convolution a constant that is not 0 stays: padding with zeros makes it one thing at the border and
    another within. Behind batch norm the constant is known only if the value is the running mean, or the
    scale 0: it is then `f(norm bias)`. After a search the biases are mostly still 0, and all dead neurons go.
    Each layer keeps at least one neuron.

    The network must be a chain without skip connections, each hidden layer being: kernel, batch norm if there
    is any, activation; then dropout, pooling that leaves constants as they are (max, or mean without
    padding), a flatten with channels last. Layer and group norm depend on all neurons: with them nothing can
    be removed exactly. At training, batch statistics take the place of the running ones: outputs agree at
    evaluation.

    Flax's NNX layers take their sizes from the arrays, so that `problem.predict` computes with the smaller
    ones. Linen's compare shapes with their fields and refuse (`ScopeParamShapeError`): make the module anew
    with `widths`, and call it with `{"params": small.params, **small.state}`.

    Args:
      network: of one run, `network.of_run(0)`; concrete, since the shapes of the result depend on its values.
      layers: the chain (see `nodes.layer_chain`), a layer with batch norm as a tuple of both:
        `(("convs/0", "norms/0"), "head")`. By default the masked kernels, which then are all there are. A
        layer that is named may be without a mask.
      activation: f, elementwise, of all hidden layers.

    Returns:
      `Shrunk`. Retrain it on a problem whose model has its widths, with
      `Network(small.params, small.mask, small.state)`.

    Raises:
      ArgumentError: many runs at once, a bare architecture, traced values; a chain that does not fit; a
        normalization that is no batch norm, or batch norm that belongs to no layer; leaves beside a kernel
        other than a bias; an activation that is not elementwise.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> hidden = {"kernel": jnp.ones((2, 3)), "bias": jnp.array([0.0, 0.0, 2.0])}
      >>> params = {"hidden": hidden, "head": {"kernel": jnp.full((3, 1), 3.0), "bias": jnp.ones(1)}}
      >>> into, out = jnp.array([[True, True, False]] * 2), jnp.array([[True], [False], [True]])
      >>> mask = {"hidden": {"kernel": into, "bias": None}, "head": {"kernel": out, "bias": None}}
      >>> small = jaxarch.shrink(jaxarch.Network(params, mask, {}), ("hidden", "head"))
      >>> print(small.widths, small.neurons["hidden"], small.params["head"]["bias"])  # 1 + 3 relu(2)
      {'hidden': 1, 'head': 1} [0] [7.]
    """
    _check_one_run(network)
    params = apply_mask(network.mask, network.params)
    # A named layer may be without a mask: all of its connections are there.
    complete = merge(network.mask, full_mask(params))
    chain = layer_chain(network.mask if layers is None else complete, layers)
    leaves, masks, state = named_leaves(params), named_leaves(complete), named_leaves(network.state)
    vectors = [_vectors(layer, leaves, state) for layer in chain]
    if layers is None:
        _check_all_norms_belong(state, vectors)
    kernels = [np.asarray(leaves[layer.path], np.float64) for layer in chain]
    links = [np.asarray(links_between(masks[layer.path], layer)) for layer in chain]
    masked = named_leaves(network.mask)
    takes_constants = [
        kernel.ndim == 2 and of.bias is not None and of.bias not in masked
        for kernel, of in zip(kernels, vectors, strict=True)
    ]
    constants = _constants(chain, kernels, links, vectors, leaves, state, activation)
    left = _left(links, constants, takes_constants)
    dead = dead_nodes(complete, [layer.path for layer in chain])

    folded: dict[str, np.ndarray] = {}
    cuts: dict[str, _Indices] = {}
    state_cuts: dict[str, _Indices] = {}
    rows = np.arange(chain[0].inputs)
    for index, (layer, kernel, of) in enumerate(zip(chain, kernels, vectors, strict=True)):
        if index:
            before, constant = left[index - 1], constants[index - 1]
            rows = np.flatnonzero(np.tile(before, layer.positions))
            if of.bias is not None and takes_constants[index]:
                gone = np.where(constant.known & ~before, constant.value, 0)
                bias = np.asarray(leaves[of.bias], np.float64)
                folded[of.bias] = bias + np.tile(gone, layer.positions) @ kernel
        columns: _Indices = (np.flatnonzero(left[index]),)
        cuts |= {layer.path: (rows, *columns), **dict.fromkeys(of.in_params(), columns)}
        state_cuts |= dict.fromkeys(of.in_state(), columns)
    there = dict(zip([layer.name for layer in chain], left, strict=True))
    return Shrunk(
        params=_cut(_replaced(params, folded), cuts),
        mask=_cut(network.mask, cuts),
        state=_cut(network.state, state_cuts),
        widths={name: int(is_left.sum()) for name, is_left in there.items()},
        neurons={name: np.flatnonzero(is_left) for name, is_left in there.items()},
        kept={name: int((there[name] & np.asarray(gone)).sum()) for name, gone in dead.items()},
    )


_Indices = tuple[np.ndarray, ...]
"""What is left of the last axes of a leaf."""


class _Norm(NamedTuple):
    """Paths of a batch norm's arrays, by name: scale and bias if it has them, mean and variance."""

    params: dict[str, str]
    state: dict[str, str]


class _Vectors(NamedTuple):
    """Paths of the arrays with one number a neuron of a layer."""

    bias: str | None
    norms: tuple[_Norm, ...]

    def in_params(self) -> list[str]:
        per_run = [] if self.bias is None else [self.bias]
        return per_run + [path for norm in self.norms for path in norm.params.values()]

    def in_state(self) -> list[str]:
        return [path for norm in self.norms for path in norm.state.values()]


class _Constant(NamedTuple):
    """Which neurons of a layer have a value that is the same for all inputs, and the value."""

    known: np.ndarray
    value: np.ndarray


def _constants(
    chain: tuple[Layer, ...],
    kernels: list[np.ndarray],
    links: list[np.ndarray],
    vectors: list[_Vectors],
    leaves: Mapping[str, Array],
    state: Mapping[str, Array],
    activation: Callable[[Array], Array],
) -> list[_Constant]:
    """The constants among the hidden neurons of each layer."""
    known, value = np.zeros(chain[0].inputs, bool), np.zeros(chain[0].inputs)
    constants = []
    for layer, kernel, link, of in list(zip(chain, kernels, links, vectors, strict=True))[:-1]:
        is_dense = kernel.ndim == 2
        usable = known if is_dense else known & (value == 0)
        known = np.logical_not((link & ~usable[:, None]).any(0))
        z = np.zeros(layer.outputs) if of.bias is None else np.asarray(leaves[of.bias], np.float64)
        if is_dense:
            z = z + np.tile(np.where(usable, value, 0), layer.positions) @ kernel
        for norm in of.norms:
            arrays = {name: np.asarray(leaves[path], np.float64) for name, path in norm.params.items()}
            is_mean = z == np.asarray(state[norm.state["mean"]], np.float64)
            known = known & (is_mean | (arrays["scale"] == 0 if "scale" in arrays else False))
            z = arrays.get("bias", np.zeros(layer.outputs))
        value = _activated(activation, z, leaves[layer.path].dtype)
        known = known & np.isfinite(value)
        constants.append(_Constant(known, value))
    return constants


def _activated(activation: Callable[[Array], Array], z: np.ndarray, dtype: Any) -> np.ndarray:
    if not callable(activation):
        raise ArgumentError(f"activation: expected a function, got {shown(activation)}")
    values = activation(jnp.asarray(z, dtype))
    if values.shape != z.shape:
        raise ArgumentError(
            f"activation: expected a function of one value each; of shape {z.shape} it makes {values.shape}"
        )
    return np.asarray(values, np.float64)


def _left(
    links: list[np.ndarray], constants: list[_Constant], takes_constants: list[bool]
) -> list[np.ndarray]:
    """Which neurons of each layer are left."""
    left = [np.ones(links[-1].shape[1], bool)]
    for link, constant, takes in reversed(list(zip(links[1:], constants, takes_constants[1:], strict=True))):
        is_used = (link & left[0][None, :]).any(1)
        removable = constant.known & (takes | (constant.value == 0))
        stay = is_used & ~removable
        if not stay.any():
            stay[0] = True
        left.insert(0, stay)
    return left


def _vectors(layer: Layer, leaves: Mapping[str, Array], state: Mapping[str, Array]) -> _Vectors:
    """The arrays with one number a neuron: the bias beside the kernel, and those of batch norm."""
    if layer.name == layer.path:
        raise ArgumentError(
            f"layers: {layer.path!r} is not called `kernel`, so that its bias is not known; name parameters "
            "as Flax does: {'hidden': {'kernel': ..., 'bias': ...}}"
        )
    per_run = _leaves_of(layer.name, leaves)
    per_run.pop(layer.path.rpartition("/")[2])
    _check_known(per_run, ("bias",), "beside a kernel")
    norms = tuple(_norm(module, leaves, state) for module in layer.norms)
    vectors = _Vectors(per_run.get("bias"), norms)
    for tree, paths in ((leaves, vectors.in_params()), (state, vectors.in_state())):
        for path in paths:
            if tree[path].shape != (layer.outputs,):
                raise ArgumentError(
                    f"layers: {path!r} has shape {tree[path].shape}; expected ({layer.outputs},), one number "
                    f"for each output of {layer.path!r} (of many runs, take one: network.of_run(0))"
                )
    return vectors


def _norm(module: str, leaves: Mapping[str, Array], state: Mapping[str, Array]) -> _Norm:
    params = _leaves_of(module, leaves)
    # In Linen, the state's paths begin with the name of a collection.
    running = _leaves_of(module, state) or _leaves_of(module, state, in_collection=True)
    if not params and not running:
        modules = {path.rpartition("/")[0] for path in leaves}
        raise ArgumentError(f"layers: there is no module {shown(module)}; {did_you_mean(module, modules)}")
    if not {"mean", "var"} <= set(running):
        raise ArgumentError(
            f"layers: {shown(module)} keeps no running mean and variance. Layer and group norm depend on all "
            "neurons, and none can be removed exactly"
        )
    _check_known(params, ("scale", "bias"), "of batch norm")
    _check_known(running, ("mean", "var"), "of batch norm")
    return _Norm(params, running)


def _leaves_of(module: str, tree: Mapping[str, Any], *, in_collection: bool = False) -> dict[str, str]:
    """The paths of a module's leaves, by their names in it."""
    paths = {path.partition("/")[2] if in_collection else path: path for path in tree}
    prefix = f"{module}/"
    return {at.removeprefix(prefix): path for at, path in paths.items() if at.startswith(prefix)}


def _check_known(paths: Mapping[str, str], known: tuple[str, ...], where: str) -> None:
    for name, path in paths.items():
        if name not in known:
            raise ArgumentError(f"layers: {path!r}: {where}, only {' and '.join(known)} are understood")


def _check_all_norms_belong(state: Mapping[str, Array], vectors: list[_Vectors]) -> None:
    belonging = {path for of in vectors for path in of.in_state()}
    for path in state:
        if path.rpartition("/")[2] in ("mean", "var") and path not in belonging:
            raise ArgumentError(
                f"layers: {path!r} is batch norm's, of a layer that is not known; name them together, in the "
                "order of the data flow: layers=(('conv', 'norm'), 'head')"
            )


def _check_one_run(network: Network) -> None:
    if not isinstance(network, Network):
        raise ArgumentError(f"network: expected that of one run, network.of_run(0), got {shown(network)}")
    if network.params is None:
        raise ArgumentError("network: it is a bare architecture; retrain it first, retrain('cold')")
    if is_traced((network.params, network.mask, network.state)):
        raise ArgumentError(
            "network: the neurons that are left decide the shapes; shrink outside of jit and vmap"
        )
    if network.failed_at is not None and np.ndim(network.failed_at):
        raise ArgumentError("network: expected that of one run; take it with network.of_run(0)")


def _replaced(tree: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """A tree with other values in some leaves, in their dtypes."""

    def value(path: str, leaf: Array) -> Array:
        return jnp.asarray(arrays[path], leaf.dtype) if path in arrays else leaf

    return tree_map_with_path(lambda path, leaf: value(path_name(path), leaf), tree)


def _cut(tree: PyTree, cuts: Mapping[str, _Indices]) -> PyTree:
    """A tree with some indices of the last axes of some leaves, and the other leaves as they are."""

    def cut(path: str, leaf: Array) -> Array:
        # In NumPy, since new shapes would be compiled anew.
        values, kept = np.asarray(leaf), cuts.get(path, ())
        for axis, indices in enumerate(kept, values.ndim - len(kept)):
            values = values.take(indices, axis)
        return jnp.asarray(values) if kept else leaf

    return tree_map_with_path(lambda path, leaf: cut(path_name(path), leaf), tree)
