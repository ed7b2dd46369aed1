"""The products and convolutions of a traced program, with their weights and how often each runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from jaxarch.structure._axes import Axis
from jaxarch.structure._constants import is_key
from jaxarch.structure._flow import (
    ENTRYWISE,
    MOVES,
    PRODUCTS,
    REDUCTIONS,
    Program,
    Step,
    bind,
    literal,
    shape_of,
)
from jaxarch.structure._scans import scan_counts
from jaxarch.structure._smaller import Kept, sizes

NO_PARAMETERS = "(no parameters)"
"""The layer of products without a leaf: of two activations, as in attention, or with a constant."""


class Factor(NamedTuple):
    """An array that is made of leaves and constants alone, for any inputs.

    Attributes:
      paths: the paths of these leaves; empty for a constant.
      value: the array; `None` if it is not known.
      by_round: whether the value has an extra first axis: its values in each round of its loops.
    """

    paths: tuple[str, ...]
    value: Any = None
    by_round: bool = False


class Product(NamedTuple):
    """A product or a convolution, at one call.

    Attributes:
      step: its equation.
      layer: the module of the leaves in its factors.
      times: how often it runs: the number of rounds of its loops.
      factors: both factors; `None` for one that depends on the inputs.
    """

    step: Step
    layer: str
    times: int
    factors: tuple[Factor | None, Factor | None]

    @property
    def activation(self) -> int | None:
        """The place of the factor that depends on the inputs; `None` if both factors do, or none does."""
        places = [place for place, factor in enumerate(self.factors) if factor is None]
        return places[0] if len(places) == 1 else None


@dataclasses.dataclass
class Products:
    """The results of `find_products`.

    Attributes:
      found: the products, in the order of the program.
      layers: the layers of the products, and the modules of all leaves that meet a value that depends on the
        inputs, in that order.
      uncounted: by name, primitives that may multiply and are not among the products.
      chosen: whether the most expensive of several branches was taken somewhere.
      with_values: whether values made of leaves and constants alone are computed.
    """

    found: list[Product] = dataclasses.field(default_factory=list)
    layers: dict[str, None] = dataclasses.field(default_factory=dict)
    uncounted: dict[str, None] = dataclasses.field(default_factory=dict)
    chosen: bool = False
    with_values: bool = False

    def inside(self) -> Products:
        """Return empty results for a part of the program."""
        return Products(with_values=self.with_values)

    def take(self, other: Products) -> None:
        """Add the results of another part of the program."""
        self.found += other.found
        self.layers |= other.layers
        self.uncounted |= other.uncounted
        self.chosen |= other.chosen


def find_products(program: Program, leaves: Mapping[str, Any]) -> Products:
    """Find all products and convolutions of a model's program, including calls, loops and branches.

    Args:
      program: a program made by `_flow.follow`, whose first inputs are the model's leaves.
      leaves: the leaves by path, in this order: arrays, or `None` if their values do not matter.
    """
    inputs = [
        Factor((path,), None if value is None or is_key(value) else value) for path, value in leaves.items()
    ]
    products = Products(with_values=any(value is not None for value in leaves.values()))
    _walk(program, [*inputs, *[None] * (len(program.inputs) - len(inputs))], 1, products)
    return products


def summed_axes(step: Step, place: int) -> Sequence[int]:
    """Return the axes of a factor that a product sums over, without those that a convolution moves along."""
    params = step.eqn.params["dimension_numbers"]
    if step.eqn.primitive.name == "dot_general":
        return tuple(params[0][place])
    return ((params.rhs_spec if place else params.lhs_spec)[1],)


def module_of(path: str) -> str:
    """Return a leaf's module: its path without the last part, if it has more; `.` if the tree is a leaf."""
    return path.rpartition("/")[0] or path or "."


def multiplied_axes(product: Product) -> tuple[int, list[Axis]]:
    """Return a number and the axes whose sizes, multiplied with it, are the multiply-adds of a product.

    For a convolution, places in its padding count too, as in the literature. For a transposed convolution
    they do not count, and neither do the zeros between the places of its input.
    """
    step = product.step
    (first, second), (made, *_) = step.inputs[:2], step.outputs
    if step.eqn.primitive.name == "dot_general":
        summed = step.eqn.params["dimension_numbers"][0][0]
        return product.times, [*made, *(first[axis] for axis in summed)]
    numbers = step.eqn.params["dimension_numbers"]
    places = math.prod(int(counts.sum()) for counts in taps(step.eqn))
    return product.times * places, [
        made[numbers.out_spec[0]],
        *(second[axis] for axis in numbers.rhs_spec[:2]),
    ]


def multiply_adds(product: Product, kept: Kept) -> int:
    """Count the multiply-adds of a product of whole arrays from which units were cut."""
    number, axes = multiplied_axes(product)
    return number * math.prod(sizes(tuple(axes), kept))


def taps(eqn: JaxprEqn) -> list[np.ndarray]:
    """Count how often each kernel entry is multiplied, along each axis that a convolution moves along."""
    params, outputs = eqn.params, shape_of(eqn.outvars[0])
    pictures, kernel = map(shape_of, eqn.invars)
    numbers, counts = params["dimension_numbers"], []
    is_transposed = max(params["lhs_dilation"], default=1) > 1
    for index, (low, _) in enumerate(params["padding"]):
        moves = np.arange(outputs[numbers.out_spec[2 + index]]) * params["window_strides"][index]
        window = np.arange(kernel[numbers.rhs_spec[2 + index]]) * params["rhs_dilation"][index]
        places, between = moves[:, None] + window - low, params["lhs_dilation"][index]
        last = (pictures[numbers.lhs_spec[2 + index]] - 1) * between
        there = (places >= 0) & (places <= last) if is_transposed else True
        counts.append(((places % between == 0) & there).sum(0))
    return counts


# From equation to equation ---------------------------------------------------------------------------

Factors = list[Factor | None]

_LOOPS_AND_BRANCHES = ("cond", "scan", "while")
_WITHOUT_PRODUCTS = {
    *ENTRYWISE, *MOVES, *REDUCTIONS,
    "approx_top_k", "argmax", "argmin", "bitcast_convert_type", "create_token", "cumlogsumexp", "cummax",
    "cummin", "cumprod", "cumsum", "device_put", "dynamic_slice", "dynamic_update_slice", "empty", "gather",
    "iota", "optimization_barrier", "random_bits", "random_clone", "random_fold_in", "random_seed",
    "random_split", "random_unwrap", "random_wrap", "reduce_and", "reduce_window_max", "reduce_window_min",
    "reduce_window_sum", "rng_bit_generator", "rng_uniform", "scatter", "scatter-add", "scatter-max",
    "scatter-min", "scatter-mul", "scatter-sub", "scatter_add", "scatter_max", "scatter_min", "scatter_mul",
    "scatter_sub", "select_and_gather_add", "select_and_scatter_add", "sort", "threefry2x32", "top_k",
}  # fmt: skip
"""Functions of entries, sums, moves and random bits, none of which is a sum of products."""


def _walk(program: Program, inputs: Sequence[Factor | None], times: int, products: Products) -> Factors:
    """Add the products of a program to some, and say which of its outputs are made of leaves alone."""
    jaxpr = program.closed.jaxpr

    def constant(value: Any) -> Factor:
        return Factor((), value if products.with_values and not is_key(value) else None)

    known: dict[Any, Factor | None] = dict(
        zip(jaxpr.constvars, map(constant, program.closed.consts), strict=True)
    )
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Factor | None:
        return constant(literal(atom)) if isinstance(atom, Literal) else known[atom]

    for step in program.steps:
        taken = [read(atom) for atom in step.eqn.invars]
        known.update(zip(step.eqn.outvars, _step(step, taken, times, products), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(step: Step, taken: Factors, times: int, products: Products) -> Factors:
    name = step.eqn.primitive.name
    if step.called:
        return _walk(step.called, taken, times, products)
    if name in _LOOPS_AND_BRANCHES:
        {"cond": _cond, "scan": _scan, "while": _while}[name](step, taken, times, products)
    elif name in PRODUCTS:
        first, second = taken
        products.found.append(Product(step, _layer(first, second), times, (first, second)))
        products.layers[products.found[-1].layer] = None
    elif name not in _WITHOUT_PRODUCTS:
        products.uncounted[name] = None
    of_leaves = [factor for factor in taken if factor is not None]
    if len(of_leaves) == len(taken):
        return _evaluated(step, of_leaves, products.with_values)
    products.layers |= dict.fromkeys(module_of(path) for factor in of_leaves for path in factor.paths)
    return [None] * len(step.eqn.outvars)


def _layer(*factors: Factor | None) -> str:
    """Name the module of some factors, or all modules if there are several."""
    modules = dict.fromkeys(
        module_of(path) for factor in factors if factor is not None for path in factor.paths
    )
    return " + ".join(modules) or NO_PARAMETERS


def _evaluated(step: Step, taken: Sequence[Factor], with_values: bool) -> Factors:
    """Return the outputs of a step that reads leaves and constants alone, computed if they are known."""
    eqn, outputs = step.eqn, range(len(step.eqn.outvars))
    of = list(taken)
    if eqn.primitive.name in ENTRYWISE:
        # A kernel divided by the norm of all kernels belongs to that kernel's module.
        entries = [math.prod(shape_of(atom)) for atom in eqn.invars]
        of = [factor for factor, size in zip(taken, entries, strict=True) if size == max(entries)]
    paths = tuple(dict.fromkeys(path for factor in of for path in factor.paths))
    if not with_values or any(factor.value is None for factor in taken):
        return [Factor(paths) for _ in outputs]
    values, by_round = [factor.value for factor in taken], [factor.by_round for factor in taken]
    if not any(by_round):
        return [Factor(paths, made) for made in bind(eqn, values)]
    mapped = jax.vmap(lambda *arrays: bind(eqn, arrays), [0 if by else None for by in by_round])
    return [Factor(paths, made, True) for made in mapped(*values)]


# Loops and branches ----------------------------------------------------------------------------------


def _scan(step: Step, taken: Factors, times: int, products: Products) -> None:
    """Walk a scan's body; it counts once for each round, and each round has its own rows."""
    (body,), length = step.programs, step.eqn.params["length"]
    consts, carries = scan_counts(step.eqn)
    # A carry changes from round to round, so its value is unknown.
    carried = [factor and Factor(factor.paths) for factor in taken[consts : consts + carries]]
    outside = [*(_repeated(factor, times, length) for factor in taken[:consts]), *carried]
    rows = [_rows(factor, times, length) for factor in taken[consts + carries :]]
    while True:
        inside = products.inside()
        made = _walk(body, [*outside, *rows], times * length, inside)
        lost = [
            consts + index
            for index in range(carries)
            if made[index] is None and outside[consts + index] is not None
        ]
        # A carry that the body makes depend on the inputs is no factor: the body is walked again without it.
        if not lost:
            break
        for index in lost:
            outside[index] = None
    products.take(inside)


def _repeated(factor: Factor | None, times: int, length: int) -> Factor | None:
    """Repeat a factor from outside a loop for each of its rounds."""
    if factor is None or not factor.by_round:
        return factor
    return factor._replace(value=np.repeat(np.asarray(factor.value), length, axis=0))


def _rows(factor: Factor | None, times: int, length: int) -> Factor | None:
    """Return a factor that a loop takes row by row."""
    if factor is None or factor.value is None:
        return factor
    rows = np.asarray(factor.value)
    if factor.by_round:
        return factor._replace(value=rows.reshape(times * length, *rows.shape[2:]))
    return Factor(factor.paths, np.tile(rows, (times, *[1] * (rows.ndim - 1))), True)


def _while(step: Step, taken: Factors, times: int, products: Products) -> None:
    """Walk a while loop; its number of rounds is unknown, so its products are not counted."""
    inside = products.inside()
    of_condition, of_body = step.eqn.params["cond_nconsts"], step.eqn.params["body_nconsts"]
    carry: Factors = [None] * len(step.eqn.outvars)
    condition, body = step.programs
    _walk(condition, [*taken[:of_condition], *carry], times, inside)
    _walk(body, [*taken[of_condition : of_condition + of_body], *carry], times, inside)
    products.layers |= inside.layers
    if inside.found or inside.uncounted:
        products.uncounted["while"] = None


def _cond(step: Step, taken: Factors, times: int, products: Products) -> None:
    """Walk all branches, and count the one with the most multiply-adds."""
    branches = []
    for program in step.programs:
        branches.append(products.inside())
        _walk(program, taken[1:], times, branches[-1])
    work = [sum(multiply_adds(product, {}) for product in branch.found) for branch in branches]
    for branch, own in zip(branches, work, strict=True):
        chosen = branch is branches[work.index(max(work))]
        products.take(branch if chosen else dataclasses.replace(branch, found=[]))
        products.chosen |= own > 0
