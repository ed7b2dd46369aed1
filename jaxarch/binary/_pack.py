"""Networks in bits: matrices of two or three values, and products that read them as they are."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, check_count, check_function
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.binary._bits import Bits, as_bits, matrix_of, nbytes
from jaxarch.binary._few_values import values_of_dtype
from jaxarch.binary._products import TABLES_UP_TO, by_counting, by_rounding, by_tables
from jaxarch.binary._walk import Product, Value, Walk, held, leaf
from jaxarch.masks._sharding import automatic
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._columns import columns
from jaxarch.structure._groups import check_arrays
from jaxarch.structure._network_function import check_arrays_given, check_examples, function_of
from jaxarch.structure._shrink import relative_difference
from jaxarch.structure._tracing import hashable, traced

COUNTED, ROUNDED, SUMMED, UNPACKED = "counted", "rounded and counted", "summed", "unpacked"
_OTHER_PROGRAM = (
    "inputs: the function is another program for them than for the examples that it was packed with; pack it "
    "with inputs like these"
)
_MOST_BITS = 8
_EXAMPLES = 8
"""Training examples on which a network and its packed form are compared."""


class Layer(NamedTuple):
    """A matrix of a packed network.

    Attributes:
      shape: the shape of the array before it was packed.
      values: the values of its entries: "c", "-c, c", "0, c" or "-c, 0, c".
      how: the way its products are computed: "counted", "rounded and counted", "summed" or "unpacked".
      before: its size in bytes.
      now: its size in bytes as bits.
    """

    shape: tuple[int, ...]
    values: str
    how: str
    before: int
    now: int


@dataclasses.dataclass(frozen=True, eq=False)  # So that it can be hashed, which jit needs.
class Packed:
    """A network in bits. Call it with inputs; `print` shows its matrices.

    Attributes:
      tree: by path, the matrices as bits and all other leaves that the function reads. It is a pytree, and
        `jaxarch.save_tree` saves it.
      function: `(tree, *inputs) -> outputs`. It can be jitted and mapped. Differentiate the original network
        instead: counts have no gradients, and custom derivatives, such as that of `jax.nn.relu`, are dropped.
      layers: by path, the matrices that were packed.
      before: the size of the network's leaves in bytes.
      now: the size of `tree` in bytes.
      difference: the largest difference of an output on the examples, in units of the largest number in the
        same array of outputs.
    """

    tree: dict[str, Any]
    function: Callable[..., Any]
    layers: dict[str, Layer]
    before: int
    now: int
    difference: float

    def __call__(self, *inputs: PyTree) -> Any:
        """Return the network's outputs."""
        return self.function(self.tree, *inputs)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = [("matrix", "shape", "values", "products", "bytes", "now")]
        for path, layer in self.layers.items():
            shape = " x ".join(map(str, layer.shape))
            rows.append((path, shape, layer.values, layer.how, f"{layer.before:,}", f"{layer.now:,}"))
        rows.append(("all leaves", "", "", "", f"{self.before:,}", f"{self.now:,}"))
        return "\n".join(
            [
                *columns(rows, right=(4, 5)),
                f"{self.before / max(self.now, 1):.1f} times smaller; outputs on the example differ by at "
                f"most {self.difference:.1e} of the largest",
            ]
        )


@overload
def pack(model: Network, about: Problem, /, *, activation_bits: int | None = None) -> Packed: ...
@overload
def pack(
    model: Callable[..., Any], about: PyTree, /, *inputs: PyTree, activation_bits: int | None = None
) -> Packed: ...
def pack(model: Any, about: Any, /, *inputs: PyTree, activation_bits: int | None = None) -> Packed:
    r"""Store the matrices of a weight-free or binary network as bits, and evaluate it on them.

        packed = jaxarch.binary.pack(network.of_run(0), problem)   # what a search found
        packed = jaxarch.binary.pack(function, params, x)          # any function of parameters and inputs
        outputs = jax.jit(packed)(x)

    A matrix is packed if its entries are -c, 0 or c, with one c or a c for each column: a mask over shared
    weights ([D]), a mask over weights of one size and two signs, or binary weights. It takes one bit an entry
    for 0 and c or for -c and c, and two bits for -c, 0 and c, in place of 32. Biases and other leaves stay.

    Products are computed in one of four ways. `Packed.layers` names it for each matrix.

    - "counted": the activations are -a, 0 or a whatever the inputs are, as after `jnp.sign(x)` or `x > 0`.
      The traced program shows it. Then `x @ W` is a difference of two counts of bits, after an `and` and an
      `xor`, as in XNOR-Net (Rastegari et al., 2016, https://arxiv.org/abs/1603.05279, section 3.2). The
      integers are exact.
    - "rounded and counted": with `activation_bits=b`, other activations are rounded to 2^b equally spaced
      numbers between the smallest and the largest of their example. Each of the b bits is counted. This
      computes another network, and `Packed.difference` says how far it is from the original on the examples.
    - "summed": for up to four examples, sums of eight activations are looked up in tables of all 256. For
      more examples, the matrix is unpacked for a dense product.
    - "unpacked": kernels of convolutions, and all else that is no single product, unpack the matrix.

    An example with a NaN or an infinity among its activations gets NaN from a product, except where the
    matrix is unpacked.

    A straight-through sign, `x + stop_gradient(sign(x) - x)`, is not exactly -1 or 1 in floating point, so
    its products are not counted. Write `sign(x)` with a gradient of its own (`jax.custom_vjp`). Loops are
    not entered: use `jaxarch.structure.unroll` for layers in a scan.

    Args:
      model: a network of one run, `network.of_run(0)`, or a function `(tree, *inputs) -> outputs` that JAX
        can trace.
      about: the network's problem; or the function's tree: the parameters and all other leaves, with pruned
        entries set to 0 (`masks.apply_mask`).
      *inputs: example inputs of the function, on which the two networks are compared. Later inputs may have
        other numbers of examples.
      activation_bits: b, from 1 to 8; `None` to round no activation.

    Returns:
      `Packed`. Called with inputs, a network's with a batch of its problem, it returns the outputs.

    Raises:
      ArgumentError: no matrix of two or three values; many runs at once, a bare architecture, traced values;
        a problem that predicts nothing; a function that cannot be traced or has side effects; inputs without
        examples. A packed network raises it for inputs with which the function is another program.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> first, second = jax.random.rademacher(jax.random.key(0), (2, 64, 64), dtype=jnp.float32)
      >>> def function(params, x):
      ...     return jnp.sign(x @ params["first"]) @ params["second"]
      >>> x = jax.random.normal(jax.random.key(1), (5, 64))
      >>> packed = jaxarch.binary.pack(function, {"first": first, "second": second}, x)
      >>> print(packed)
      matrix      shape    values  products   bytes    now
      first       64 x 64  -c, c   summed    16,384    516
      second      64 x 64  -c, c   counted   16,384    516
      all leaves                             32,768  1,032
      31.8 times smaller; outputs on the example differ by at most 0.0e+00 of the largest
      >>> bool((packed(x) == function({"first": first, "second": second}, x)).all())
      True
    """
    if activation_bits is not None:
        check_count("activation_bits", activation_bits)
        if activation_bits > _MOST_BITS:
            raise ArgumentError(f"activation_bits: expected at most {_MOST_BITS}, got {activation_bits}")
    function, tree, inputs = function_of(model, about, inputs, _EXAMPLES)
    check_function("model", function, tree, *inputs)
    check_arrays(tree)
    check_arrays_given(about=tree, inputs=inputs)
    check_examples(inputs)
    plan = _planned(function, tree, inputs, activation_bits)
    if not plan.layers:
        raise ArgumentError(
            "about: no matrix holds -c, 0 and c alone, with one c for each column; give a mask over weights "
            "of one size (jaxarch.share_weight), or binary weights"
        )
    run = _runner(function, _shapes(tree), plan.names, activation_bits)
    whole, made = jax.jit(hashable(function))(tree, *inputs), jax.jit(run)(plan.tree, *inputs)
    apart = relative_difference(whole, made)
    return Packed(plan.tree, run, plan.layers, nbytes(tree), nbytes(plan.tree), apart)


_Names = list[tuple[str, tuple[Any, ...]] | None]


class _Plan(NamedTuple):
    """A packed network's leaves.

    Attributes:
      tree: the factors of products, and the leaves that anything else reads.
      names: for each product with parameters, in the order of the program, the name of its factor and its
        recipe; `None` if it was not packed.
      layers: what was packed.
    """

    tree: dict[str, dict[str, Any]]
    names: _Names
    layers: dict[str, Layer]


def _planned(
    function: Callable[..., Any], tree: PyTree, inputs: tuple[PyTree, ...], activation_bits: int | None
) -> _Plan:
    """Walk through the program once, without its activations, and pack what can be packed."""
    closed, _ = traced(function, *_shapes((tree, *inputs)))
    leaves = named_leaves(tree)
    factors: dict[str, Any] = {}
    names: _Names = []
    layers: dict[str, Layer] = {}
    read: set[str] = set()

    def named(path: str) -> str:
        return path if path not in layers else named(f"{path} again")

    def replace(product: Product) -> Array | None:
        array = np.asarray(product.matrix.get())
        bits = as_bits(product.rows_first(array))
        if bits is None:
            names.append(None)
            return None
        name = named(min(product.matrix.leaves or ()))
        names.append((name, product.recipe))
        factors[name] = bits
        layers[name] = _layer(array, bits, _way(product, activation_bits))
        aval: Any = product.eqn.outvars[0].aval
        return jnp.zeros(aval.shape, aval.dtype)

    def walked(*inputs: PyTree) -> list[Any]:
        own = [leaf(path, held(of)) for path, of in leaves.items()]
        return Walk(replace, read.update, early=True).outputs(closed, [*own, *_inputs(inputs)])

    jax.eval_shape(walked, *_shapes(inputs))
    kept: dict[str, Any] = {path: of for path, of in leaves.items() if path in read}
    for path, of in kept.items():
        if jnp.ndim(of) < 2 or not jnp.issubdtype(of.dtype, jnp.floating):
            continue
        array = np.asarray(of)
        if (bits := as_bits(array.reshape(math.prod(array.shape[:-1]), array.shape[-1]))) is not None:
            kept[path] = bits
            layers[named(path)] = _layer(array, bits, UNPACKED)
    return _Plan(jax.tree.map(jnp.asarray, {"factors": factors, "leaves": kept}), names, layers)


def _shapes(tree: PyTree) -> PyTree:
    """Return the shapes of arrays; how they are split over devices is no part of the program.

    Raises:
      ArgumentError: inputs that are neither arrays nor numbers.
    """
    _, shapes = traced(lambda tree: tree, tree, name="inputs")
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type), shapes
    )


def _layer(array: np.ndarray, bits: Bits, how: str) -> Layer:
    return Layer(array.shape, bits.values, how, array.nbytes, bits.nbytes)


def _inputs(inputs: tuple[PyTree, ...]) -> list[Value]:
    leaves = map(jnp.asarray, jax.tree.leaves(inputs))
    return [Value(held(leaf), values_of_dtype(leaf)) for leaf in leaves]


def _way(product: Product, activation_bits: int | None) -> str:
    sizes = {abs(number) for number in product.activations.few} - {0.0}
    if product.activations.few and len(sizes) <= 1:
        return COUNTED
    return SUMMED if activation_bits is None else ROUNDED


def _runner(
    function: Callable[..., Any], shapes: PyTree, names: _Names, activation_bits: int | None
) -> Callable[..., Any]:
    """Return the function of a packed tree."""
    expected = named_leaves(shapes)

    def run(tree: PyTree, *inputs: PyTree) -> Any:
        closed, outputs = traced(function, shapes, *inputs)
        left = iter(names)

        def array_of(path: str) -> Array:
            found, shape = tree["leaves"].get(path), expected[path]
            if found is None:
                raise ArgumentError(_OTHER_PROGRAM)
            return matrix_of(found).reshape(shape.shape) if isinstance(found, Bits) else jnp.asarray(found)

        def replace(product: Product) -> Array | None:
            factor = next(left, ("", ()))
            if factor is None:
                return None
            name, recipe = factor
            if recipe != product.recipe:
                raise ArgumentError(_OTHER_PROGRAM)
            return _computed(product, tree["factors"][name], activation_bits)

        own = [leaf(path, functools.partial(array_of, path)) for path in expected]
        made = Walk(replace, lambda paths: None, early=False).outputs(closed, [*own, *_inputs(inputs)])
        return jax.tree.unflatten(jax.tree.structure(outputs), [*map(jnp.asarray, made)])

    # Products go over the words of a matrix, whose axes are none of the network's.
    return lambda tree, *inputs: automatic(run, tree, *inputs)


def _computed(product: Product, bits: Bits, activation_bits: int | None) -> Array:
    """Return a product of activations with bits."""
    way, x = _way(product, activation_bits), product.examples()
    examples = x.shape[0]  # A symbol, if the network is exported for any number of examples.
    if way == SUMMED and not (isinstance(examples, int) and examples <= TABLES_UP_TO):
        return product.with_matrix(matrix_of(bits))
    dtype = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    scale = jnp.broadcast_to(bits.scale.astype(dtype), (1, bits.shape[1]))
    if way == SUMMED:
        found = by_tables(x.astype(dtype), bits)
    elif way == ROUNDED:
        found = by_rounding(x.astype(dtype), activation_bits or 0, bits)
    else:
        few = product.activations.few
        found = by_counting(x, few, bits).astype(dtype) * jnp.asarray(max(map(abs, few)), dtype)
    # Entries that are 0 are skipped, but NaN and infinity times 0 are NaN.
    is_finite = jnp.isfinite(x).all(axis=1, keepdims=True)
    return product.outputs(jnp.where(is_finite, found * scale, jnp.full((), jnp.nan, dtype)))
