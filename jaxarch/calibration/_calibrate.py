"""Moments of the inputs of a model's weights, streamed over batches."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    ResultWarning,
    check_callable,
    check_function,
    check_leaves,
    shown,
)
from jaxarch._internal.trees import PyTree, Where, check_distinct, named_leaves, placed, select
from jaxarch.calibration._layouts import as_matrix, further_axes, shape_of_rows
from jaxarch.calibration._moments import of_lookup, of_product
from jaxarch.calibration._uses import Use, find_uses
from jaxarch.calibration._views import Places, Reading, wide
from jaxarch.masks._sharding import automatic
from jaxarch.structure._captures import run_recorded
from jaxarch.structure._flow import Program, Step, follow, fresh, shape_of
from jaxarch.structure._groups import check_shapes
from jaxarch.structure._network_function import check_arrays_given, check_batch, checked_batches
from jaxarch.structure._tracing import hashable, traced

Valid = Callable[[PyTree], Any]
"""From a batch, which of its rows count: booleans for the first axes of the inputs of products."""


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Moments of the inputs of a model's weights, as returned by `calibrate`.

    It is a predicate on (path, leaf) and can be passed as `where`: it selects the weights whose inputs are
    known. Tables that inputs look up are known, too, but only products make a leaf a weight.

    Attributes:
      left: by path, why the inputs of a leaf are not known.
      batches: the number of batches.
    """

    left: Mapping[str, str]
    batches: int
    _uses: Mapping[Hashable, Use] = dataclasses.field(repr=False)
    _moments: Mapping[Hashable, Any] = dataclasses.field(repr=False)
    _shapes: Mapping[str, jax.ShapeDtypeStruct] = dataclasses.field(repr=False)

    def __call__(self, path: str, leaf: Any = None) -> bool:
        """Return whether a leaf is a weight whose inputs are known."""
        return any(use.place is not None for use, _ in self._of(path))

    @functools.cached_property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """By path, the axes of a weight along which its inputs lie, for `masks.PerOutput`.

        All other axes are its outputs. A weight is left out if its products disagree, or if an axis holds
        both inputs and outputs.
        """
        found = {}
        for path in self._shapes:
            if self(path) and (axes := self._inputs(path)) is not None:
                found[path] = axes
        return found

    def squares(self, params: PyTree, selection: PyTree = None) -> PyTree:
        """Return the sum of squared inputs of each connection, over all rows of all batches.

        Args:
          params: the parameters. Their values matter only where a model multiplies a weight by other
            leaves, such as a mask: the factor counts as a factor of the input.
          selection: leaves whose squares are wanted, and `None` for others; by default all.

        Returns:
          Arrays in the structure of the parameters, in float32 or wider, and `None` for leaves whose inputs
          are not known. In a table, the number of times that an entry is looked up.

        Raises:
          ArgumentError: parameters of other shapes than the calibrated ones.
        """
        self.check_fits(params)
        leaves = named_leaves(params)
        wanted = [*leaves] if selection is None else [*named_leaves(selection)]
        return placed({path: self._squares(path, leaves) for path in wanted if self._of(path)}, params)

    def check_fits(self, params: PyTree) -> None:
        """Raise unless parameters have the paths and shapes of the calibrated ones."""
        shapes = {path: of.shape for path, of in self._shapes.items()}
        check_shapes(params, shapes, "with the calibrated", name="params")

    def shape(self, path: str) -> jax.ShapeDtypeStruct:
        """Return the shape and dtype of a leaf."""
        return self._shapes[path]

    def read(self, path: str) -> list[tuple[np.ndarray, Array | None]]:
        """Return how products read a leaf, with the second moments of their inputs.

        Returns:
          For each use, the places in the flattened leaf of its matrices' entries, -1 for entries of other
          arrays; shape (blocks, inputs, outputs). And the second moments, shape (blocks, inputs, inputs), if
          they are known.

        Raises:
          ArgumentError: a leaf whose entries are looked up, or multiplied by other arrays.
        """
        found = []
        for use, moments in self._of(path):
            if use.place is None or use.view.forms[path].scaled:
                how = "inputs look it up" if use.place is None else "other arrays scale it"
                raise ArgumentError(f"params: {path!r} is no matrix: {how}; leave it out with `where`")
            places, products = self._places(path, use), moments.products
            if products is not None:
                products = products.reshape(-1, *products.shape[-2:])
            found.append((places, products))
        return found

    def _places(self, path: str, use: Use) -> np.ndarray:
        """Return the places of a leaf's entries in a use's matrices, shape (blocks, inputs, outputs)."""
        places = np.asarray(_matrices(use, Places(self._shapes, path).of(use.view)))
        return places.reshape(-1, *places.shape[-2:])

    def _of(self, path: str) -> list[tuple[Use, Any]]:
        if path in self.left:
            return []
        return [(use, self._moments[key]) for key, use in self._uses.items() if path in use.paths]

    def _squares(self, path: str, leaves: Mapping[str, Any]) -> Array:
        leaf = jnp.asarray(leaves[path], wide(leaves[path].dtype))

        def squares(leaf: Array, leaves: Mapping[str, Any], moments: list[Any]) -> Array:
            uses = [use for use, _ in self._of(path)]
            pairs = zip(uses, moments, strict=True)
            return sum((_squares(use, of, path, leaf, leaves) for use, of in pairs), jnp.zeros_like(leaf))

        return automatic(squares, leaf, leaves, [of for _, of in self._of(path)], like=leaf)

    def _inputs(self, path: str) -> tuple[int, ...] | None:
        """Return the axes of a leaf along which its inputs lie, if all its products agree."""
        found = [self._inputs_of(path, use) for use, _ in self._of(path) if use.place is not None]
        return None if None in found or len({*found}) != 1 else found[0]

    def _inputs_of(self, path: str, use: Use) -> tuple[int, ...] | None:
        """Return the axes of a leaf along which its inputs in one product lie: the output stays the same."""
        if use.view.forms[path].scaled:
            return None
        matrices = self._places(path, use)
        output = np.full(self._shapes[path].size, -1)
        numbers = np.arange(matrices[:, :1].size).reshape(matrices[:, :1].shape)
        there = matrices >= 0
        output[matrices[there]] = np.broadcast_to(numbers, matrices.shape)[there]
        output = output.reshape(self._shapes[path].shape)
        axes = tuple(axis for axis in range(output.ndim) if (output == output.take([0], axis)).all())
        rows = output.size // max(np.prod([output.shape[axis] for axis in axes], dtype=int), 1)
        return axes if len(np.unique(output)) == rows else None


def _squares(use: Use, moments: Any, path: str, leaf: Array, leaves: Mapping[str, Any]) -> Array:
    """Return the squared inputs of a leaf's entries in one use."""
    # Each entry of the view is `c` times an entry of the leaf: the sum of `c^2 x^2` over its entries.
    _, along = jax.linearize(lambda of: Reading({**leaves, path: of}).of(use.view), leaf)
    factors = along(jnp.ones_like(leaf))
    at_view = moments if use.place is None else _spread(use, moments.squares, factors)
    (squares,) = jax.linear_transpose(along, leaf)((factors * at_view).astype(factors.dtype))
    return squares


def _matrices(use: Use, factor: Any) -> Any:
    """Return a view as matrices (..., blocks, inputs, outputs), with first axes for the rounds of loops."""
    assert use.place is not None
    function = functools.partial(as_matrix, use.step, use.place)
    for _ in range(sum(use.view.varies)):
        function = jax.vmap(function)
    return function(factor)


def _spread(use: Use, of_inputs: Array, factor: Array) -> Array:
    """Give each entry of a view a number of its input."""
    shape = jax.eval_shape(functools.partial(_matrices, use), factor)
    spread = jnp.broadcast_to(of_inputs[..., None], shape.shape)
    return jax.linear_transpose(functools.partial(_matrices, use), factor)(spread.astype(factor.dtype))[0]


def calibrate(
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Iterable[PyTree],
    where: Where | None = None,
    valid: Valid | None = None,
) -> Calibration:
    r"""Run a model on some batches, and sum up the inputs of each of its weights.

        calibration = jaxarch.calibrate(apply, params, batches)
        scores = jaxarch.saliency.wanda(params, calibration)

    Products are found in the traced program, without hooks: dense layers, einsums, convolutions, experts by
    `ragged_dot`, look-ups of embeddings; through calls, `vmap`, `scan`, `while` and `cond`. A weight may be
    transposed, reshaped, cast, split, put beside others, or multiplied by a mask on its way to the product.
    `Calibration.left` names the leaves that go another way.

    Args:
      function: `(params, batch) -> outputs`, jittable.
      params: the parameters of a trained model.
      batches: batches of examples. Each shape of a batch is compiled once.
      where: the leaves to calibrate; by default all that enter a product or are looked up.
      valid: `batch -> booleans`, for padded batches: of shape (examples, tokens), for instance. Rows of
        products whose first axes, or whose first axis flattened, have another shape all count; a
        `ResultWarning` names them.

    Returns:
      The moments.

    Raises:
      ArgumentError: no batch; a function that cannot be traced; inputs that are NaN or infinite; a selected
        leaf that enters no product.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((2, 3)), "out": jnp.ones((3, 1))}
      >>> def apply(params, x):
      ...     return jnp.tanh(x @ params["in"]) @ params["out"]
      >>> calibration = jaxarch.calibrate(apply, params, [jnp.array([[1.0, 2.0], [3.0, 0.0]])])
      >>> calibration.squares(params)["in"].tolist()  # 1 + 9 and 4 + 0, for each of 3 outputs
      [[10.0, 10.0, 10.0], [4.0, 4.0, 4.0]]
    """
    return captured(function, params, batches, where, valid, with_products=False)


def captured(
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Iterable[PyTree],
    where: Where | None = None,
    valid: Valid | None = None,
    *,
    with_products: bool,
) -> Calibration:
    """Run a model on some batches, as `calibrate` does, with or without second moments between inputs."""
    wanted = None if where is None else {*named_leaves(select(params, where))}
    run = _Stream(function, params, wanted, valid, with_products)
    for batch in checked_batches(batches):
        run.add(batch)
    calibration = run.result()
    for path in wanted or ():
        if path in calibration.left:
            raise ArgumentError(f"where: the inputs of {path!r} are not known: {calibration.left[path]}")
    return calibration


def outline(
    function: Callable[[PyTree, PyTree], Any], params: PyTree, batch: PyTree
) -> tuple[Calibration, dict[str, int]]:
    """Return how products read a model's leaves, without running it.

    Returns:
      A calibration without moments; and by path, the bytes of the second moments that a leaf needs.
    """
    return _Stream(function, params, None, None, with_products=True).outline(batch)


def _shapes(params: PyTree) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of the parameters by path.

    Raises:
      ArgumentError: two leaves with one path; leaves that are no arrays.
    """
    check_distinct("params", params)
    check_leaves("params", params, keys=True)
    check_arrays_given(params=params)
    leaves = named_leaves(params)
    return {path: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for path, leaf in leaves.items()}


class _Program(NamedTuple):
    """The program of a model for batches of one shape.

    Attributes:
      program: the program.
      of_step: the wanted uses of leaves, by `id` of their step.
      uses: the same, each once, in the order of the program.
      missed: by path, why a use of a leaf is not followed.
    """

    program: Program
    of_step: dict[int, Use]
    uses: dict[Hashable, Use]
    missed: dict[str, str]


def _program(
    function: Callable[[PyTree, PyTree], Any], params: PyTree, batch: PyTree, wanted: frozenset[str] | None
) -> _Program:
    """Trace a model, and find the uses of its leaves, of all or those that are wanted."""
    closed, _ = traced(function, params, batch)
    program = follow(closed, [fresh(var) for var in closed.jaxpr.invars])
    found = find_uses(program, named_leaves(params))
    of_step = {
        step: use
        for step, use in found.of_step.items()
        if use.paths and (wanted is None or wanted.intersection(use.paths))
    }
    return _Program(program, of_step, {use.key: use for use in of_step.values()}, found.missed)


@functools.partial(jax.jit, static_argnames=("function", "wanted", "valid", "with_products"))
def _moments(
    params: PyTree,
    batch: PyTree,
    *,
    function: Callable[[PyTree, PyTree], Any],
    wanted: frozenset[str] | None,
    valid: Valid | None,
    with_products: bool,
) -> list[Any]:
    """Run a model on a batch, and return the moments of each of its program's uses."""
    of = _program(function, params, batch, wanted)
    number = {key: index for index, key in enumerate(of.uses)}
    counted = None if valid is None else jnp.asarray(valid(batch))

    def record(step: Step, taken: list[Any], made: list[Any]) -> Any:
        if id(step) not in of.of_step:
            return None
        use = of.of_step[id(step)]
        if use.place is None:
            return automatic(functools.partial(of_lookup, step), taken, counted)
        return automatic(functools.partial(of_product, use, step, with_products), taken, counted)

    inputs = [*jax.tree.leaves(params), *jax.tree.leaves(batch)]
    stacked = {step: use.view.varies for step, use in of.of_step.items()}
    sums: dict[int, Any] = {}
    for step, moments in run_recorded(of.program, inputs, record, stacked)[1].items():
        index = number[of.of_step[step].key]
        sums[index] = _sum(sums[index], moments) if index in sums else moments
    return [sums[index] for index in range(len(number))]


class _Stream:
    """Sums over batches of the moments of a model's inputs. Each shape of a batch has its own program."""

    def __init__(
        self,
        function: Callable[[PyTree, PyTree], Any],
        params: PyTree,
        wanted: set[str] | None,
        valid: Valid | None,
        with_products: bool,
    ) -> None:
        if valid is not None:
            check_callable("valid", valid, "batch")
        self.batches = 0
        self._function, self._params, self._shapes = hashable(function), params, _shapes(params)
        self._wanted = None if wanted is None else frozenset(wanted)
        self._valid, self._with_products = valid, with_products
        self._programs: dict[Any, _Program] = {}
        self._uses: dict[Hashable, Use] = {}
        self._missed: dict[str, str] = {}
        self._sums: dict[Hashable, Any] = {}

    def add(self, batch: PyTree) -> None:
        """Run the model on a batch, and add the moments."""
        program = self._program(batch)
        for key, of in zip(program.uses, self._run(batch), strict=True):
            self._sums[key] = _added(self._sums[key], of) if key in self._sums else of
        self.batches += 1

    def outline(self, batch: PyTree) -> tuple[Calibration, dict[str, int]]:
        """Return a calibration without moments, and the bytes of second moments that each leaf needs."""
        check_batch(batch)
        uses = self._program(batch).uses
        shapes = dict(zip(uses, jax.eval_shape(self._run, batch), strict=True))
        sizes: dict[str, int] = {}
        for key, use in uses.items():
            if use.place is not None:
                products, shapes[key] = shapes[key].products, shapes[key]._replace(products=None)
                for path in use.paths:
                    sizes[path] = sizes.get(path, 0) + products.size * products.dtype.itemsize
        return self._calibration(shapes), sizes

    def result(self) -> Calibration:
        """Return the sums.

        Raises:
          ArgumentError: sums that are NaN or infinite.
        """
        for key, use in self._uses.items():
            sums = self._sums[key] if use.place is None else self._sums[key].squares
            if not bool(jnp.isfinite(sums).all()):
                raise ArgumentError(
                    f"batches: inputs of {use.paths[0]!r} are NaN or infinite; look at the batches, "
                    "and at the dtype of the model"
                )
        return self._calibration(self._sums)

    def _calibration(self, moments: Mapping[Hashable, Any]) -> Calibration:
        known = {path for use in self._uses.values() for path in use.paths}
        left = {}
        for path in self._shapes if self._wanted is None else sorted(self._wanted):
            if path in self._missed or path not in known:
                left[path] = self._missed.get(path, _unread(self._shapes[path]))
        return Calibration(left, self.batches, self._uses, moments, self._shapes)

    def _run(self, batch: PyTree) -> list[Any]:
        return _moments(
            self._params,
            batch,
            function=self._function,
            wanted=self._wanted,
            valid=self._valid,
            with_products=self._with_products,
        )

    def _program(self, batch: PyTree) -> _Program:
        """Return the program for batches of this shape, after a check of the function."""
        leaves, structure = jax.tree.flatten(batch)
        kind = structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        if kind not in self._programs:
            check_function("function", self._function, self._params, batch)
            valid = None if self._valid is None else traced(self._valid, batch, name="valid")[1]
            if valid is not None and (getattr(valid, "dtype", None) != jnp.bool_ or not valid.ndim):
                raise ArgumentError(
                    f"valid: expected an array of booleans for each batch, got {shown(valid)}"
                )
            program = _program(self._function, self._params, batch, self._wanted)
            if valid is not None:
                _check_rows(valid.shape, program.of_step.values())
            self._programs[kind] = program
            self._uses = {**program.uses, **self._uses}
            self._missed = {**program.missed, **self._missed}
        return self._programs[kind]


def _unread(leaf: jax.ShapeDtypeStruct) -> str:
    """Return why a leaf has no inputs."""
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return "no product or look-up reads it" if floating else f"its dtype is {leaf.dtype}"


def _check_rows(valid: tuple[int, ...], uses: Iterable[Use]) -> None:
    """Warn of uses whose rows are not those that `valid` speaks of."""
    for use in uses:
        made = shape_of(use.step.eqn.outvars[0])
        shape = made if use.place is None else shape_of_rows(use.step, use.place)
        if further_axes(valid, shape) is None:
            warnings.warn(
                f"valid: its shape {valid} does not fit the rows {shape} of the inputs of {use.paths[0]!r}; "
                "all of them count",
                ResultWarning,
                stacklevel=2,
            )


def _sum(first: Any, second: Any) -> Any:
    return jax.tree.map(jnp.add, first, second)


_added = jax.jit(_sum, donate_argnums=0)
