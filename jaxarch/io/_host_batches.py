"""Batches from loaders, as NumPy arrays of one common form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxarch._internal.errors import ArgumentError, first_line, shown
from jaxarch._internal.trees import PyTree, named_leaves


class Form(NamedTuple):
    """Common form of the batches of a stream.

    Attributes:
      treedef: their structure.
      paths: the paths of their arrays.
      shapes: the shape of each array, batch axis included.
      dtypes: the dtype of each array, as JAX stores it.
    """

    treedef: Any
    paths: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @classmethod
    def of(cls, batch: PyTree) -> Form:
        """Return the form of a batch."""
        leaves = named_leaves(batch)
        shapes, dtypes = zip(*((leaf.shape, leaf.dtype) for leaf in leaves.values()), strict=True)
        return cls(jax.tree.structure(batch), tuple(leaves), shapes, dtypes)

    def outline(self, count: int) -> PyTree:
        """Return the shapes of `count` batches along a new leading axis, as `jax.ShapeDtypeStruct`."""
        kinds = zip(self.shapes, self.dtypes, strict=True)
        leaves = [jax.ShapeDtypeStruct((count, *shape), dtype) for shape, dtype in kinds]
        return jax.tree.unflatten(self.treedef, leaves)


def host_batches(
    name: str, batches: Iterable[Any], form: Form | None = None, first: int = 0, same_shape: bool = True
) -> Iterator[PyTree]:
    """Yield batches as new NumPy arrays, in the dtypes in which JAX stores them.

    Args:
      name: the argument that held the batches, for errors.
      batches: tuples, lists, dicts and named tuples of anything that NumPy accepts, including PyTorch's and
        TensorFlow's tensors. Lists become tuples, mappings become dicts.
      form: the form of all batches; by default the form of the first one.
      first: the number of batches before these, for errors.
      same_shape: whether all batches need the shapes of the form. If not, structure, dtypes and the shapes of
        one example must agree.

    Raises:
      ArgumentError: raised at the batch in question: a value that is not an array of numbers; another
        structure, shape or dtype than before; values that are NaN, infinite, or beyond JAX's integers.
    """
    for index, batch in enumerate(batches, first):
        arrays = _arrays(name, index, batch)
        if not jax.tree.leaves(arrays):
            raise ArgumentError(f"{name}: batch {index} has no arrays; give at least one")
        form = form or Form.of(arrays)
        _check_form(name, index, arrays, form, same_shape)
        yield arrays


def _arrays(name: str, index: int, batch: Any) -> PyTree:
    if batch is None:
        return None
    if isinstance(batch, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name}: batch {index} has a masked array, whose mask would be lost; give data and mask as two "
            "arrays"
        )
    if isinstance(batch, Mapping):
        if not all(isinstance(key, str) for key in batch):
            raise ArgumentError(f"{name}: batch {index}: expected strings as keys, got {shown(list(batch))}")
        return {key: _arrays(name, index, part) for key, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [_arrays(name, index, part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return _numbers(name, index, batch)


def _numbers(name: str, index: int, leaf: Any) -> np.ndarray:
    """Copy one array of a batch, in the dtype in which JAX stores it."""
    try:
        array = np.array(leaf)
    except Exception as error:
        raise ArgumentError(
            f"{name}: batch {index} has a {type(leaf).__name__}, which NumPy cannot convert to an array: "
            f"{first_line(error)}"
        ) from error
    if not (jax.numpy.issubdtype(array.dtype, jax.numpy.number) or array.dtype == bool):
        raise ArgumentError(
            f"{name}: batch {index}: expected arrays of numbers in tuples and dicts, got {shown(leaf)}"
        )
    with np.errstate(over="ignore"):
        kept = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    if jax.numpy.issubdtype(kept.dtype, jax.numpy.inexact):
        bad = kept.size - int(np.isfinite(kept).sum())
        if bad:
            raise ArgumentError(f"{name}: batch {index} has {bad} values that are NaN or infinite")
    elif kept.dtype != array.dtype and not np.array_equal(kept, array):
        raise ArgumentError(
            f"{name}: batch {index} has integers beyond {kept.dtype}, in which JAX stores them; give smaller "
            "ones, or set jax_enable_x64"
        )
    return kept


def _check_form(name: str, index: int, batch: PyTree, form: Form, same_shape: bool) -> None:
    if jax.tree.structure(batch) != form.treedef:
        raise ArgumentError(
            f"{name}: batch {index} has another structure than earlier batches: its arrays are "
            f"{shown(list(named_leaves(batch)))}, theirs are {shown(list(form.paths))}"
        )
    for path, leaf, shape, dtype in zip(form.paths, jax.tree.leaves(batch), *form[2:], strict=True):
        fits = leaf.shape == shape if same_shape else leaf.shape[1:] == shape[1:]
        if not fits or leaf.dtype != dtype:
            where = f" in {path!r}" if path else ""
            is_short = leaf.dtype == dtype and leaf.shape[1:] == shape[1:]
            remedy = "; drop the short batch at the end of an epoch" if is_short else ""
            raise ArgumentError(
                f"{name}: batch {index} has {leaf.dtype} of shape {leaf.shape}{where}, but earlier batches "
                f"have {dtype} of shape {shape}{remedy}"
            )
