"""Primitives on host arrays, so that reading a program compiles next to nothing.

An analysis computes each equation on arrays of many shapes, and JAX would compile each primitive for each
shape. Moves, exact functions of entries and products of marks are therefore computed by NumPy, with the same
bits. Functions that NumPy may round differently are computed by JAX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from jaxarch.structure._flow import ENTRYWISE, PRODUCTS, bind

Arrays = list[np.ndarray]


def computed(eqn: JaxprEqn, taken: Sequence[Any], **changed: Any) -> Arrays:
    """Evaluate an equation on some arrays, with some of its parameters changed."""
    name, arrays = eqn.primitive.name, [np.asarray(array) for array in taken]
    if name in _MOVES:
        return _MOVES[name](eqn, *arrays)
    if name in _EXACT and all(map(_is_real, [*arrays, _aval(eqn)])) and not _divides_integers(eqn):
        with np.errstate(all="ignore"):
            return [_flushed(np.asarray(_EXACT[name](*arrays)).astype(_aval(eqn).dtype, copy=False))]
    if name == "convert_element_type" and _is_exact_as(arrays[0], _aval(eqn)):
        return [arrays[0].astype(_aval(eqn).dtype)]
    if name in ENTRYWISE and name not in _PLACED and all(map(_is_uniform, arrays)):
        # If each array repeats one number, one entry is enough.
        rank = len(_aval(eqn).shape)
        one = [array[(slice(0, 1),) * array.ndim] for array in arrays]
        made = _bound(eqn, one, changed)
        if all(array.ndim == rank for array in made):
            return [np.broadcast_to(array, _aval(eqn).shape) for array in made]
    # Factors must be finite, since 0 times infinity is NaN.
    if name in PRODUCTS and not changed and _is_nothing(arrays):
        return [np.zeros(_aval(eqn).shape, _aval(eqn).dtype)]
    # Bytes are compared, since a maximum of -0 is not 0.
    if name in _REDUCTIONS and arrays[0].size and not arrays[0].tobytes().strip(b"\0"):
        return [np.zeros(_aval(eqn).shape, _aval(eqn).dtype)]
    return _bound(eqn, arrays, changed)


def _bound(eqn: JaxprEqn, arrays: Arrays, changed: dict[str, Any]) -> Arrays:
    # `jnp.asarray` would compile a program for each shape; `device_put` does not.
    return [np.asarray(array) for array in bind(eqn, jax.device_put(arrays), **changed)]


def _aval(eqn: JaxprEqn) -> Any:
    return eqn.outvars[0].aval


def _is_real(array: Any) -> bool:
    return array.dtype.kind in "biuf" or array.dtype == jnp.bfloat16


def _flushed(array: np.ndarray) -> np.ndarray:
    """Flush subnormal numbers to 0, as JAX does when it computes."""
    if array.dtype.kind not in "f" and array.dtype != jnp.bfloat16:
        return array
    return np.where(np.abs(array) < jnp.finfo(array.dtype).tiny, np.zeros_like(array), array)


def _is_nothing(factors: Arrays) -> bool:
    """Return whether all products are 0."""
    return any(not array.any() for array in factors) and all(np.isfinite(array).all() for array in factors)


def _is_uniform(array: np.ndarray) -> bool:
    return bool(array.size) and bool((array == array.flat[0]).all())


def _is_exact_as(array: np.ndarray, aval: Any) -> bool:
    """Return whether NumPy converts like JAX: to floats, or from booleans; others truncate or wrap around."""
    to_float = aval.dtype.kind == "f" or aval.dtype == jnp.bfloat16
    return _is_real(array) and (to_float or (array.dtype.kind == "b" and aval.dtype.kind in "iu"))


def _divides_integers(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "div" and _aval(eqn).dtype.kind in "iu"


_REDUCTIONS = ("reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_sum")
"""Reductions that turn zeros into zeros, unless these are negative."""
_PLACED = ("reshard", "sharding_constraint", "pvary")


# Functions of entries that NumPy rounds as JAX does --------------------------------------------------


def _chosen(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if which.dtype == bool:
        return np.where(which, cases[1], cases[0])
    return np.choose(np.broadcast_to(which, cases[0].shape), cases, mode="clip")


_EXACT: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "add": np.add, "add_any": np.add, "and": np.bitwise_and, "copy": np.copy,
    "copy_p": np.copy, "div": np.divide, "eq": np.equal, "ge": np.greater_equal, "gt": np.greater,
    "is_finite": np.isfinite, "le": np.less_equal, "lt": np.less, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "ne": np.not_equal, "neg": np.negative, "not": np.invert, "or": np.bitwise_or,
    "select_n": _chosen, "square": np.square, "stop_gradient": np.copy, "sub": np.subtract,
    "xor": np.bitwise_xor,
}  # fmt: skip


# Moves -----------------------------------------------------------------------------------------------


def _reshaped(eqn: JaxprEqn, array: np.ndarray, *_: Any) -> Arrays:
    return [array.reshape(_aval(eqn).shape)]


def _broadcast(eqn: JaxprEqn, array: np.ndarray, *_: Any) -> Arrays:
    shape = [1] * len(_aval(eqn).shape)
    for place, size in zip(eqn.params["broadcast_dimensions"], array.shape, strict=True):
        shape[place] = size
    return [np.broadcast_to(array.reshape(shape), _aval(eqn).shape)]


def _padded(eqn: JaxprEqn, array: np.ndarray, value: np.ndarray) -> Arrays:
    made = np.full(_aval(eqn).shape, value, array.dtype)
    to, of = [], []
    for size, now, (low, _, between) in zip(
        array.shape, made.shape, eqn.params["padding_config"], strict=True
    ):
        places = low + np.arange(size) * (between + 1)
        there = (places >= 0) & (places < now)
        to.append(places[there])
        of.append(np.flatnonzero(there))
    made[np.ix_(*to)] = array[np.ix_(*of)]
    return [made]


def _sliced(eqn: JaxprEqn, array: np.ndarray) -> Arrays:
    params = eqn.params
    strides = params["strides"] or (1,) * array.ndim
    return [array[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]]


def _split(eqn: JaxprEqn, array: np.ndarray) -> Arrays:
    return np.split(array, np.cumsum(eqn.params["sizes"])[:-1], eqn.params["axis"])


def _unstacked(eqn: JaxprEqn, array: np.ndarray) -> Arrays:
    return [*np.moveaxis(array, eqn.params["axis"], 0)]


def _iota(eqn: JaxprEqn) -> Arrays:
    shape, along = _aval(eqn).shape, eqn.params["dimension"]
    places = np.arange(shape[along]).astype(_aval(eqn).dtype)
    others = [axis for axis in range(len(shape)) if axis != along]
    return [np.broadcast_to(np.expand_dims(places, others), shape)]


_MOVES: dict[str, Callable[..., Arrays]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda eqn, *arrays: [np.concatenate(arrays, eqn.params["dimension"])],
    "iota": _iota,
    "pad": _padded,
    "reshape": _reshaped,
    "rev": lambda eqn, array: [np.flip(array, eqn.params["dimensions"])],
    "slice": _sliced,
    "split": _split,
    "squeeze": _reshaped,
    "stack": lambda eqn, *arrays: [np.stack(arrays, eqn.params["axis"])],
    "transpose": lambda eqn, array: [array.transpose(eqn.params["permutation"])],
    "unstack": _unstacked,
}


def moved_back(
    eqn: JaxprEqn, shapes: Sequence[tuple[int, ...]], needed: Sequence[np.ndarray]
) -> Arrays | None:
    """Return the entries that a move brings to needed places; `None` for other primitives."""
    if eqn.primitive.name not in _MOVES:
        return None
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    numbers = [
        np.arange(end - math.prod(shape), end).reshape(shape) for shape, end in zip(shapes, ends, strict=True)
    ]
    found = np.zeros(ends[-1], bool)
    for places, wanted in zip(_MOVES[eqn.primitive.name](eqn, *numbers), needed, strict=True):
        found[places[wanted]] = True
    parts = np.split(found, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


# Products of marks, and of counts --------------------------------------------------------------------


def multiplied(eqn: JaxprEqn, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Count the pairs of true entries that each entry of a product sums over, in float32."""
    if eqn.primitive.name == "dot_general":
        return _Matrices(eqn).product(first, second)
    return _Windows(eqn).product(first, second)


def multiplied_back(eqn: JaxprEqn, index: int, other: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """Return the entries of a factor that meet a true entry of the other factor, for a needed output.

    Args:
      eqn: the equation of a product or a convolution.
      index: the index of the factor.
      other: booleans for the other factor.
      needed: booleans for the output.
    """
    form = _Matrices(eqn) if eqn.primitive.name == "dot_general" else _Windows(eqn)
    return form.back(index, other, needed) > 0


class _Matrices:
    """A product in the form of stacked matrices: (batch, rows, summed) times (batch, summed, columns)."""

    def __init__(self, eqn: JaxprEqn) -> None:
        summed, batched = eqn.params["dimension_numbers"]
        self.shapes = [atom.aval.shape for atom in eqn.invars]  # type: ignore[attr-defined]
        self.made = _aval(eqn).shape
        free = [
            [axis for axis in range(len(shape)) if axis not in (*summed[index], *batched[index])]
            for index, shape in enumerate(self.shapes)
        ]
        self.orders = [
            [*batched[0], *free[0], *summed[0]],
            [*batched[1], *summed[1], *free[1]],
        ]

        def count(index: int, axes: Sequence[int]) -> int:
            return math.prod(self.shapes[index][axis] for axis in axes)

        batch, inner = count(0, batched[0]), count(0, summed[0])
        self.forms = [(batch, count(0, free[0]), inner), (batch, inner, count(1, free[1]))]

    def _matrix(self, index: int, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float32).transpose(self.orders[index]).reshape(self.forms[index])

    def product(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (self._matrix(0, first) @ self._matrix(1, second)).reshape(self.made)

    def back(self, index: int, other: np.ndarray, needed: np.ndarray) -> np.ndarray:
        wanted = needed.astype(np.float32).reshape(self.forms[0][0], self.forms[0][1], self.forms[1][2])
        matrix = self._matrix(1 - index, other).swapaxes(1, 2)
        found = wanted @ matrix if index == 0 else matrix @ wanted
        shape, order = self.shapes[index], self.orders[index]
        return found.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


class _Windows:
    """A convolution as products of (groups, outputs, inputs) and (groups, inputs, n), one for each place."""

    def __init__(self, eqn: JaxprEqn) -> None:
        self.eqn, params = eqn, eqn.params
        self.numbers, self.groups = params["dimension_numbers"], params["feature_group_count"]
        pictures, kernel = (atom.aval.shape for atom in eqn.invars)  # type: ignore[attr-defined]
        numbers = self.numbers
        # Pictures have channels first, then examples. Kernels have outputs first, then inputs.
        self.orders = [
            [numbers.lhs_spec[1], numbers.lhs_spec[0], *numbers.lhs_spec[2:]],
            [*numbers.rhs_spec],
            [numbers.out_spec[1], numbers.out_spec[0], *numbers.out_spec[2:]],
        ]
        self.shapes = [
            tuple(shape[axis] for axis in order)
            for shape, order in zip((pictures, kernel, _aval(eqn).shape), self.orders, strict=True)
        ]

    def _taps(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...], tuple[Any, ...]]]:
        """Yield each place of the window, with the places of pictures and outputs that it connects."""
        params, along = self.eqn.params, []
        sizes = zip(self.shapes[0][2:], self.shapes[1][2:], self.shapes[2][2:], strict=True)
        for axis, (size, window, made) in enumerate(sizes):
            between, taps = params["lhs_dilation"][axis], []
            for tap in range(window):
                places = np.arange(made) * params["window_strides"][axis]
                places = places + tap * params["rhs_dilation"][axis] - params["padding"][axis][0]
                there = (places >= 0) & (places <= (size - 1) * between) & (places % between == 0)
                if there.any():
                    taps.append((tap, _as_slice(places[there] // between), _as_slice(np.flatnonzero(there))))
            along.append(taps)
        for each in itertools.product(*along):
            taps_, inputs, outputs = zip(*each, strict=True) if each else ((), (), ())
            whole = (slice(None), slice(None))
            yield tuple(taps_), (*whole, *inputs), (*whole, *outputs)

    def _canonical(self, index: int, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float32).transpose(self.orders[index])

    def _rows(self, array: np.ndarray) -> np.ndarray:
        """Reshape to (groups, channels of a group, all places)."""
        return array.reshape(self.groups, array.shape[0] // self.groups, -1)

    def _weights(self, kernel: np.ndarray, tap: tuple[int, ...]) -> np.ndarray:
        place: Any = (slice(None), slice(None), *tap)
        return kernel[place].reshape(self.groups, -1, kernel.shape[1])

    def product(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        pictures, kernel = self._canonical(0, first), self._canonical(1, second)
        made = np.zeros(self.shapes[2], np.float32)
        for tap, inputs, outputs in self._taps():
            part = self._weights(kernel, tap) @ self._rows(pictures[inputs])
            made[outputs] += part.reshape(made[outputs].shape)
        return made.transpose(np.argsort(self.orders[2]))

    def back(self, index: int, other: np.ndarray, needed: np.ndarray) -> np.ndarray:
        wanted, factor = self._canonical(2, needed), self._canonical(1 - index, other)
        found = np.zeros(self.shapes[index], np.float32)
        for tap, inputs, outputs in self._taps():
            rows = self._rows(wanted[outputs])
            if index == 0:
                part = self._weights(factor, tap).swapaxes(1, 2) @ rows
                found[inputs] += part.reshape(found[inputs].shape)
            else:
                part = rows @ self._rows(factor[inputs]).swapaxes(1, 2)
                place: Any = (slice(None), slice(None), *tap)
                found[place] += part.reshape(self.shapes[1][:2])
        return found.transpose(np.argsort(self.orders[index]))


def _as_slice(places: np.ndarray) -> slice:
    """Return places at equal distances as a slice."""
    # Indexing by a slice makes a view; indexing by places would copy.
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    return slice(int(places[0]), int(places[-1]) + 1, step)
