"""The uses of a model's leaves: in products that sum over their axes, or in look-ups.

A leaf is followed through the traced program as long as only its form changes: it may be transposed,
reshaped, cast, masked, put beside other leaves, or handed to loops and calls. When it meets a value that
depends on the inputs, a product or convolution that sums over one of its axes makes it a *weight*. A look-up
makes it a *table*. Biases, scales and tables of positions are added or multiplied entry by entry, and are
neither.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxarch._internal.errors import ArgumentError, check_function, first_line, shown
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.structure._flow import CALLED, LOOKUPS, inner
from jaxarch.structure._scans import scan_counts

Dims = tuple[tuple[int, ...], ...] | None
"""For each axis of an array, the axes of the leaf that form it, the last one fastest; `None` if unknown."""

Views = dict[str, Dims]
"""By path, the leaves in an array that does not depend on the inputs; empty for a constant."""


class Along(NamedTuple):
    """The axes of a leaf in one product.

    Attributes:
      inputs: the axes that are summed over, in order.
      outputs: the axes that stay, in order.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights and tables of a model, as returned by `weights_of`.

    It is a predicate on (path, leaf) and can be passed as `where`.

    Attributes:
      products: by path, the axes of a leaf in each product; empty axes if they could not be followed.
      tables: paths of the leaves that inputs look up.
      entrywise: paths of leaves that meet the inputs entry by entry, such as biases and scales.
      unread: paths of leaves that go into an unknown primitive, with the primitive's name.
    """

    products: tuple[tuple[str, tuple[Along, ...]], ...]
    tables: tuple[str, ...] = ()
    entrywise: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    def __call__(self, path: str, leaf: Any = None) -> bool:
        """Return whether a leaf is a weight or a table."""
        return path in dict(self.products) or path in self.tables

    @property
    def axes(self) -> dict[str, tuple[int, int]]:
        """By path, the axis of a leaf that all its products sum over, and the axis that they keep.

        If there are several, as in a kernel (heads, features, outputs), the last one is taken. Leaves on
        whose axes products disagree are left out.
        """
        found = {}
        for path, uses in self.products:
            ends = {(use.inputs[-1], use.outputs[-1]) for use in uses if use.inputs and use.outputs}
            if len(ends) == 1 and len(uses) == sum(bool(use.inputs and use.outputs) for use in uses):
                found[path] = ends.pop()
        return found


def weights_of(function: Callable[..., Any], tree: PyTree, *inputs: PyTree) -> Weights:
    """Find the leaves of a model that are weights or tables, from its traced program.

        where = jaxarch.structure.weights_of(model, params, x)
        scores = jaxarch.saliency.magnitude(params, where)
        mask = jaxarch.masks.keep(scores, units=jaxarch.masks.NOfM(2, 4, axis=where.axes))

    Nothing is run: only shapes matter, not values.

    Args:
      function: `(tree, *inputs) -> outputs`.
      tree: the parameters, arrays or their shapes.
      *inputs: example inputs, arrays or their shapes.

    Returns:
      A predicate on (path, leaf), for `where`, with the axes that products sum over.

    Raises:
      ArgumentError: a function that cannot be traced with these arguments.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> params = {"in": jnp.ones((8, 4)), "gain": jnp.ones((1, 8)), "out": jnp.ones((8, 2))}
      >>> def model(params, x):  # the first kernel is (outputs, inputs), the second (inputs, outputs)
      ...     return (jnp.tanh(x @ params["in"].T) * params["gain"]) @ params["out"]
      >>> weights = jaxarch.structure.weights_of(model, params, jnp.ones((1, 4)))
      >>> list(jaxarch.named_leaves(jaxarch.select(params, weights))), weights.axes
      (['in', 'out'], {'in': (1, 0), 'out': (0, 1)})
    """
    for path, leaf in named_leaves(tree).items():
        if not hasattr(leaf, "dtype"):
            raise ArgumentError(f"tree: leaf {path!r} has no dtype; give an array, got {shown(leaf)}")
    check_function("function", function, tree, *inputs)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype), tree)
    try:
        closed = jax.make_jaxpr(function)(shapes, *inputs)
    except Exception as error:
        raise ArgumentError(f"function: it cannot be traced: {first_line(error)}") from error
    leaves = named_leaves(shapes)
    views: list[Views | None] = [{path: _own(leaf.shape)} for path, leaf in leaves.items()]
    found = _Found()
    found.walk(closed, [*views, *[None] * (len(closed.jaxpr.invars) - len(views))])
    products = tuple((path, tuple(sorted(uses))) for path, uses in found.products.items())
    return Weights(products, tuple(found.tables), tuple(found.entrywise), tuple(found.unread.items()))


def _own(shape: Sequence[int]) -> Dims:
    return tuple((axis,) for axis in range(len(shape)))


@dataclasses.dataclass
class _Found:
    """The uses found so far, in the order of the program."""

    products: dict[str, set[Along]] = dataclasses.field(default_factory=dict)
    tables: dict[str, None] = dataclasses.field(default_factory=dict)
    entrywise: dict[str, None] = dataclasses.field(default_factory=dict)
    unread: dict[str, str] = dataclasses.field(default_factory=dict)

    def walk(self, closed: ClosedJaxpr, inputs: Sequence[Views | None]) -> list[Views | None]:
        """Follow leaves through a program, and return the leaves in its outputs."""
        jaxpr = closed.jaxpr
        known: dict[Any, Views | None] = {var: {} for var in jaxpr.constvars}
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Views | None:
            return {} if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            made = self._step(eqn, [read(atom) for atom in eqn.invars])
            known.update(zip(eqn.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _step(self, eqn: JaxprEqn, taken: list[Views | None]) -> Sequence[Views | None]:
        name = eqn.primitive.name
        if name in CALLED:
            return self.walk(inner(eqn), taken)
        with_programs = {"scan": self._scan, "while": self._while, "cond": self._cond}
        if name in with_programs:
            return with_programs[name](eqn, taken)
        self._note(eqn, taken)
        if None in taken:
            return [None] * len(eqn.outvars)
        return [
            _made(eqn, index, [views for views in taken if views is not None])
            for index in range(len(eqn.outvars))
        ]

    def _note(self, eqn: JaxprEqn, taken: list[Views | None]) -> None:
        """Record the uses of leaves in an equation without inner programs."""
        name = eqn.primitive.name
        if name == "dot_general":
            self._product(eqn.params["dimension_numbers"], taken)
        elif name == "conv_general_dilated":
            spec = eqn.params["dimension_numbers"].rhs_spec
            self._use(taken[1], [spec[1]], [spec[0]])
            self._use(taken[0], [eqn.params["dimension_numbers"].lhs_spec[1]], [])
        elif name in LOOKUPS and taken[0] and None in taken[1:]:
            self.tables |= dict.fromkeys(taken[0])
        elif not _is_known(name):
            self.unread |= dict.fromkeys(_paths(taken), name)
        elif None in taken:
            self.entrywise |= dict.fromkeys(_paths(taken))

    def _product(self, numbers: Any, taken: Sequence[Views | None]) -> None:
        for views, summed, batched in zip(taken, *numbers, strict=True):
            for path, dims in (views or {}).items():
                others = None if dims is None else set(range(len(dims))) - {*summed, *batched}
                self._use({path: dims}, summed, sorted(others or ()))

    def _use(self, views: Views | None, summed: Sequence[int], others: Sequence[int]) -> None:
        """Record that a product sums over some axes; if it sums over none, it multiplies entry by entry."""
        for path, dims in (views or {}).items():
            if dims is None:
                self.products.setdefault(path, set()).add(Along((), ()))
            elif inputs := tuple(sorted(axis for place in summed for axis in dims[place])):
                outputs = tuple(sorted(axis for place in others for axis in dims[place]))
                self.products.setdefault(path, set()).add(Along(inputs, outputs))
            else:
                self.entrywise[path] = None

    def _scan(self, eqn: JaxprEqn, taken: list[Views | None]) -> Sequence[Views | None]:
        consts, carries = scan_counts(eqn)
        rows = [
            views and {path: None if dims is None else dims[1:] for path, dims in views.items()}
            for views in taken[consts + carries :]
        ]
        carried = taken[consts : consts + carries]
        # Only the last walk counts, in which the views of the carry no longer change.
        while True:
            inside = _Found()
            made = inside.walk(eqn.params["jaxpr"], [*taken[:consts], *carried, *rows])
            after = [_together(pair) for pair in zip(carried, made[:carries], strict=True)]
            if after == carried:
                break
            carried = after
        self._take(inside)
        ys = [views and dict.fromkeys(views) for views in made[carries:]]
        return [*carried, *ys]

    def _while(self, eqn: JaxprEqn, taken: list[Views | None]) -> Sequence[Views | None]:
        of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        carry: list[Views | None] = [None] * len(eqn.outvars)
        self.walk(eqn.params["cond_jaxpr"], [*taken[:of_condition], *carry])
        self.walk(eqn.params["body_jaxpr"], [*taken[of_condition : of_condition + of_body], *carry])
        carried = taken[of_condition + of_body :]  # Carried leaves may become anything.
        self.unread |= dict.fromkeys(_paths(carried), "while")
        return carry

    def _cond(self, eqn: JaxprEqn, taken: list[Views | None]) -> Sequence[Views | None]:
        made = [self.walk(branch, taken[1:]) for branch in eqn.params["branches"]]
        return [_together(of) if taken[0] is not None else None for of in zip(*made, strict=True)]

    def _take(self, other: _Found) -> None:
        for path, uses in other.products.items():
            self.products.setdefault(path, set()).update(uses)
        self.tables |= other.tables
        self.entrywise |= other.entrywise
        self.unread |= other.unread


def _paths(values: Iterable[Views | None]) -> Iterator[str]:
    """Yield the paths of the leaves in some values."""
    return (path for views in values for path in views or ())


def _is_known(name: str) -> bool:
    """Return whether a primitive runs no program or code of its own."""
    return not any(word in name for word in ("call", "pallas", "ffi", "shard_map", "run_state"))


def _together(views: Sequence[Views | None]) -> Views | None:
    """Return the view of a value that is one of several arrays; axes that differ are unknown."""
    if any(of is None for of in views):
        return None
    found: Views = {}
    for of in views:
        for path, dims in (of or {}).items():
            found[path] = dims if path not in found or found[path] == dims else None
    return found


def _made(eqn: JaxprEqn, output: int, taken: Sequence[Views]) -> Views:
    """Return the leaves in an output of an equation whose inputs are leaves and constants alone."""
    name, shape = eqn.primitive.name, eqn.outvars[output].aval.shape  # type: ignore[attr-defined]
    if name in ("concatenate", "split", "slice", "dynamic_slice", "rev", "pad"):
        return _together(taken) or {}
    if name == "dot_general":
        return _product_of(eqn, taken)
    moved = {
        "transpose": lambda dims: tuple(dims[axis] for axis in eqn.params["permutation"]),
        "squeeze": lambda dims: tuple(
            of for axis, of in enumerate(dims) if axis not in eqn.params["dimensions"]
        ),
        "broadcast_in_dim": lambda dims: _broadcast(eqn, dims),
        "reduce": lambda dims: tuple(of for axis, of in enumerate(dims) if axis not in eqn.params["axes"]),
        "reshape": lambda dims: _reshaped(eqn.invars[0].aval.shape, shape, dims),  # type: ignore[attr-defined]
    }
    if name.startswith("reduce_") and "axes" in eqn.params:
        name = "reduce"
    if name in moved:
        return {path: None if dims is None else moved[name](dims) for path, dims in taken[0].items()}
    shapes = [atom.aval.shape for atom in eqn.invars]  # type: ignore[attr-defined]
    alike = [views for of, views in zip(shapes, taken, strict=True) if of == shape]
    if alike and all(len(of) in (0, len(shape)) for of in shapes):
        # A leaf that was broadcast, such as the norm of a kernel, only scales the others.
        whole = [
            {path: dims for path, dims in views.items() if dims is None or _is_whole(dims, shape)}
            for views in alike
        ]
        return _together(whole if any(whole) else alike) or {}
    return {path: None for views in taken for path in views}


def _is_whole(dims: tuple[tuple[int, ...], ...], shape: Sequence[int]) -> bool:
    return all(of or size == 1 for of, size in zip(dims, shape, strict=True))


def _broadcast(eqn: JaxprEqn, dims: tuple[tuple[int, ...], ...]) -> Dims:
    shape, before = eqn.params["shape"], eqn.invars[0].aval.shape  # type: ignore[attr-defined]
    made: list[tuple[int, ...]] = [()] * len(shape)
    for axis, place in enumerate(eqn.params["broadcast_dimensions"]):
        made[place] = dims[axis] if before[axis] == shape[place] else ()
    return tuple(made)


def _product_of(eqn: JaxprEqn, taken: Sequence[Views]) -> Views:
    """Join the axes of a product of leaves, such as low-rank factors: batch axes, then all free axes."""
    summed, batched = eqn.params["dimension_numbers"]
    ranks = [len(atom.aval.shape) for atom in eqn.invars]  # type: ignore[attr-defined]
    free = [
        [axis for axis in range(rank) if axis not in (*summed[side], *batched[side])]
        for side, rank in enumerate(ranks)
    ]
    found: Views = {}
    for side, views in enumerate(taken):
        nothing: list[tuple[int, ...]] = [()] * len(free[1 - side])
        for path, dims in views.items():
            if dims is None or path in found:
                found[path] = None
                continue
            first, own = [dims[axis] for axis in batched[side]], [dims[axis] for axis in free[side]]
            found[path] = tuple([*first, *own, *nothing] if side == 0 else [*first, *nothing, *own])
    return found


def _reshaped(before: Sequence[int], after: Sequence[int], dims: tuple[tuple[int, ...], ...]) -> Dims:
    """Return the axes of a reshaped array, matched in the smallest groups of equal size."""
    if 0 in before:
        return None
    left = [(size, of) for size, of in zip(before, dims, strict=True) if size != 1]
    made: list[tuple[int, ...]] = [()] * len(after)
    right = [place for place, size in enumerate(after) if size != 1]
    while left or right:
        sources, places = [left.pop(0)], [right.pop(0)]
        while (size := math.prod(s for s, _ in sources)) != (made_of := math.prod(after[p] for p in places)):
            if size < made_of:
                sources.append(left.pop(0))
            else:
                places.append(right.pop(0))
        together = tuple(axis for _, of in sources for axis in of)
        for place in places:
            made[place] = together
    return tuple(made)
