"""Arrays that are made of a model's leaves alone, and how each of their entries depends on a leaf.

A product of a model reads a *view* of a leaf: the leaf itself, transposed, reshaped, cast, sliced, put beside
others, masked, or one layer of a stack of them. As long as each entry of a view is an entry of the leaf,
times a factor, plus numbers that do not depend on it, the inputs of the product are inputs of the leaf's
entries.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import JaxprEqn

from jaxarch._internal.trees import is_key
from jaxarch.structure._flow import AS_THEY_ARE, LOOKUPS, MOVES, bind, shape_of

Leaves = Mapping[str, Any]
"""The leaves of a model by path."""

_FEW = 64
"""The largest number of entries by which constants are compared; larger ones are compared by identity."""


class Form(NamedTuple):
    """Dependence of an array's entries on a leaf.

    Attributes:
      lost: why they are no longer entries of the leaf, each times a factor plus a number; empty if they are.
      scaled: whether there may be such factors or numbers.
      repeated: whether an entry of the leaf may occur several times.
    """

    lost: str = ""
    scaled: bool = False
    repeated: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """An array made of leaves and constants alone, at one place of a program.

    Attributes:
      forms: how it depends on floating-point leaves, by path.
      varies: for each loop around the place, whether the array differs from round to round. It then has an
        axis for the rounds; these axes come first.
      source: a leaf's path; a constant; or the equation that makes it.
      output: its number among the outputs of the equation.
      unknown: why its value is not known, such as that of a constant that a loop changes; empty if it is.
    """

    forms: Mapping[str, Form]
    varies: tuple[bool, ...]
    source: str | _Constant | _Applied
    output: int = 0
    unknown: str = ""

    @functools.cached_property
    def key(self) -> str:
        """The way from leaves to the view: equal for views that are made by the same steps."""
        match self.source:
            case str(path):
                way: tuple[Any, ...] = ("leaf", path)
            case _Constant(value=value) if value.size <= _FEW:
                way = ("constant", str(value.dtype), value.shape, np.asarray(value).tobytes())
            case _Applied(eqn=eqn, taken=taken):
                params = [(name, str(value)) for name, value in sorted(eqn.params.items())]
                way = (eqn.primitive.name, params, [view.key for view in taken], self.output)
            case constant:
                way = ("constant", id(constant.value))
        # A digest, since nested tuples would be hashed as often as paths lead to them.
        return hashlib.sha256(repr((way, self.varies)).encode()).hexdigest()

    def inside(self, varies: bool) -> View:
        """Return the view inside one more loop, which takes it whole or row by row."""
        return dataclasses.replace(self, varies=(*self.varies, varies))

    def outside(self) -> View:
        """Return the view outside of the innermost loop; its rounds become an axis if it varies."""
        return dataclasses.replace(self, varies=self.varies[:-1])

    def with_forms(self, forms: Mapping[str, Form]) -> View:
        """Return the view with other forms."""
        return dataclasses.replace(self, forms=forms)

    def is_made_of(self, views: Collection[View]) -> bool:
        """Return whether the view is made of constants whose values are known, and of other views."""
        seen, left = {*views}, [self]
        while left:
            view = left.pop()
            if view not in seen:
                seen.add(view)
                if isinstance(view.source, str):
                    return False
                left += view.source.taken if isinstance(view.source, _Applied) else ()
        return True

    def lost(self, why: str) -> View:
        """Return the view as a value that is not followed, for a given reason."""
        forms = {path: form._replace(lost=form.lost or why) for path, form in self.forms.items()}
        return dataclasses.replace(self, forms=forms, unknown=self.unknown or why)


@dataclasses.dataclass(frozen=True, eq=False)
class _Constant:
    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class _Applied:
    eqn: JaxprEqn
    taken: tuple[View, ...]


def leaf_view(path: str, leaf: Any) -> View:
    """Return a leaf as it is; a leaf that is not floating point, or has no entry, counts as a constant."""
    return View({path: Form()} if _is_floating(leaf) and leaf.size else {}, (), path)


def constant_view(value: Any, depth: int) -> View:
    """Return a constant inside some loops."""
    return View({}, (False,) * depth, _Constant(value))


def applied(eqn: JaxprEqn, taken: Sequence[View], depth: int) -> list[View]:
    """Return the outputs of an equation that reads leaves and constants alone, inside some loops."""
    varies = tuple(any(view.varies[loop] for view in taken) for loop in range(depth))
    paths = dict.fromkeys(path for view in taken for path in view.forms)
    forms = {path: _form(eqn, [view.forms.get(path) for view in taken]) for path in paths}
    source = _Applied(eqn, tuple(taken))
    views = [View(forms, varies, source, output) for output in range(len(eqn.outvars))]
    unknown = next((view.unknown for view in taken if view.unknown), "")
    return [view.lost(unknown) for view in views] if unknown else views


_CASTS = ("copy", "copy_p", "name", "reduce_precision", "reshard", "sharding_constraint", "stop_gradient")
_SAME_ENTRIES = (*MOVES, *AS_THEY_ARE, *_CASTS)
_REPEATS = ("broadcast_in_dim", "gather", "tile")
_SCALES = ("add", "add_any", "div", "mul", "neg", "select_n", "sub")


def _form(eqn: JaxprEqn, forms: Sequence[Form | None]) -> Form:
    """Return how the outputs of an equation depend on a leaf, given how its inputs do."""
    name = eqn.primitive.name
    there = [(place, form) for place, form in enumerate(forms) if form is not None]
    lost = next((form.lost for _, form in there if form.lost), "")
    joined = Form(lost, any(of.scaled for _, of in there), any(of.repeated for _, of in there))
    grown = _grows(eqn, there[0][0])
    if name == "convert_element_type" and not _is_floating(eqn.outvars[0].aval):
        return joined._replace(lost=lost or f"it is cast to {eqn.outvars[0].aval.dtype}")  # type: ignore[attr-defined]
    if lost or name == "convert_element_type" or name in _SAME_ENTRIES:
        # Beside itself, a leaf may lie twice among the inputs of an output.
        repeated = joined.repeated or len(there) > 1 or (name in _REPEATS and grown)
        return joined._replace(repeated=repeated)
    places = [place for place, _ in there]
    if name in LOOKUPS and places == [0]:
        return joined._replace(repeated=joined.repeated or name == "gather")
    # `1 / w` and a choice by the leaf are not linear in it.
    fits = {"div": [0], "select_n": None}.get(name, places)
    linear = places != [0] if fits is None else places == fits
    if name in _SCALES and len(places) == 1 and linear:
        return joined._replace(scaled=True, repeated=joined.repeated or grown)
    return joined._replace(lost=f"it goes through {name!r} before it meets the inputs")


def _grows(eqn: JaxprEqn, place: int) -> bool:
    """Return whether an output has more entries than an input."""
    return math.prod(shape_of(eqn.outvars[0])) > math.prod(shape_of(eqn.invars[place]))


def wide(dtype: Any) -> Any:
    """Return float64 for float64, and float32 for all other floating-point numbers."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


class Reading:
    """The values of views, given the leaves; each is computed once.

    All floating-point numbers are float32, or wider if a leaf is, whatever the model casts them to.

    Args:
      leaves: the leaves by path.
      given: values of views that are given.
    """

    def __init__(self, leaves: Leaves, given: Mapping[View, Any] | None = None) -> None:
        self._leaves, self._given = leaves, given or {}
        is_double = any(leaf.dtype == jnp.float64 for leaf in leaves.values())
        self._dtype = wide(jnp.float64 if is_double else jnp.float32)
        self._known: dict[_Applied, list[Any]] = {}

    def of(self, view: View) -> Array:
        """Return the value of a view, with an axis for each loop in which it varies."""
        if view in self._given:
            return self._given[view]
        match view.source:
            case str(path):
                return self._leaf(path)
            case _Constant(value=value):
                return self._widened(value)
            case source:
                if source not in self._known:
                    self._known[source] = self._applied(source)
                return self._known[source][view.output]

    def _applied(self, source: _Applied) -> list[Array]:
        eqn, values = source.eqn, [self.of(view) for view in source.taken]
        # The compiler splits what is read here over devices.
        if eqn.primitive.name in ("reshard", "sharding_constraint"):
            return values
        # A cast would round indices and squares that are sent through a view.
        is_cast = eqn.primitive.name in ("convert_element_type", "reduce_precision")
        if is_cast and all(_is_floating(atom.aval) for atom in (*eqn.invars, *eqn.outvars)):
            return values[:1]
        return [self._widened(value) for value in _lifted(eqn, values, [of.varies for of in source.taken])]

    def _leaf(self, path: str) -> Any:
        return self._widened(self._leaves[path])

    def _widened(self, value: Any) -> Any:
        return jnp.asarray(value, self._dtype) if _is_floating(value) else value


class Places(Reading):
    """The place in a leaf of each entry of its views, in flattening order; -1 for entries of other arrays.

    Args:
      leaves: the leaves by path, arrays or their shapes.
      path: the path of the leaf, whose views must be neither lost nor scaled.
    """

    def __init__(self, leaves: Leaves, path: str) -> None:
        super().__init__(leaves)
        self._path = path

    def _leaf(self, path: str) -> Any:
        leaf = self._leaves[path]
        if path != self._path:
            return np.full(leaf.shape, -1, np.int32) if _is_floating(leaf) else leaf
        return np.arange(leaf.size, dtype=np.int32).reshape(leaf.shape)

    def _widened(self, value: Any) -> Any:
        return np.full(value.shape, -1, np.int32) if _is_floating(value) else value


def _is_floating(value: Any) -> bool:
    return not is_key(value) and jnp.issubdtype(value.dtype, jnp.floating)


def _lifted(eqn: JaxprEqn, values: Sequence[Any], varies: Sequence[tuple[bool, ...]]) -> list[Any]:
    """Evaluate an equation for all rounds of the loops around it."""

    def function(*arrays: Any) -> list[Any]:
        return bind(eqn, arrays)

    for flags in reversed([*zip(*varies, strict=True)]):
        if any(flags):
            function = jax.vmap(function, [0 if flag else None for flag in flags])
    return function(*values)
