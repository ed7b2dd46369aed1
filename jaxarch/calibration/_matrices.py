"""Leaves as the matrices that products read, solved for one after the other within a limit of memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, ResultWarning, check_batches
from jaxarch._internal.trees import PyTree, named_leaves
from jaxarch.calibration._calibrate import Calibration, Valid, captured
from jaxarch.calibration._views import wide
from jaxarch.masks._sharding import beside, whole

MEMORY = 2**30
"""Bytes of second moments that are held at a time, unless one leaf alone needs more."""


_REMEDY = "; leave it out with `where`"


class Matrix(NamedTuple):
    """A leaf, or a part of it, as its products read it.

    Attributes:
      places: the place in the flattened leaf of each weight, shape (blocks, inputs, outputs).
      products: second moments of the inputs, `sum x x^T`, shape (blocks, inputs, inputs); `None` if they were
        not summed up.
    """

    places: np.ndarray
    products: Any


class Layer(NamedTuple):
    """A leaf that products read as matrices.

    Attributes:
      path: its path.
      leaf: the leaf.
      matrices: the matrices that it consists of.
    """

    path: str
    leaf: Any
    matrices: list[Matrix]

    def parts(self, array: Any) -> list[Array]:
        """Return an array in the leaf's shape as matrices of shape (blocks, inputs, outputs)."""
        flat = whole(jnp.asarray(array)).ravel()
        if flat.dtype != bool:
            flat = flat.astype(wide(flat.dtype))
        return [flat[matrix.places] for matrix in self.matrices]

    def joined(self, parts: Sequence[Array], dtype: Any) -> Array:
        """Return matrices as an array in the leaf's shape, placed like the leaf: the inverse of `parts`."""
        flat = jnp.zeros(np.size(self.leaf), parts[0].dtype)
        for matrix, part in zip(self.matrices, parts, strict=True):
            flat = flat.at[matrix.places].set(part)
        return beside(self.leaf, flat.reshape(np.shape(self.leaf)).astype(dtype))


def matrices_of(calibration: Calibration, path: str) -> list[Matrix]:
    """Return the matrices that a leaf consists of.

    Raises:
      ArgumentError: a leaf that is not read as matrices: scaled by other arrays, read in part, or read by
        products that sum over different axes.
    """
    found: list[Matrix] = []
    for places, products in calibration.read(path):
        new = _own_part(path, places, products)
        for index, one in enumerate(found):
            if one.places.shape == new.places.shape and (one.places == new.places).all():
                if one.products is not None and new.products is not None:
                    found[index] = one._replace(products=one.products + new.products)
                break
        else:
            found.append(new)
    together = np.concatenate([matrix.places.ravel() for matrix in found])
    times = np.bincount(together, minlength=calibration.shape(path).size)
    if times.max() > 1:
        raise _unread(path, "its products sum over different axes of it, or read an entry twice")
    if unread := int((times == 0).sum()):
        raise _unread(path, f"no product reads {unread} of its {len(times)} entries")
    return found


def _own_part(path: str, places: np.ndarray, products: Array | None) -> Matrix:
    """Return the part of a matrix that consists of a leaf's entries: other leaves may lie beside it."""
    own = places >= 0
    blocks, inputs, outputs = (np.flatnonzero(own.any(axes)) for axes in ((1, 2), (0, 2), (0, 1)))
    part = places[np.ix_(blocks, inputs, outputs)]
    if (part < 0).any():
        raise _unread(path, "other leaves lie among its entries")
    return Matrix(part, None if products is None else products[blocks][:, inputs][:, :, inputs])


def _unread(path: str, why: str) -> ArgumentError:
    return ArgumentError(f"params: {path!r} cannot be solved for: {why}{_REMEDY}")


def layers_of(
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Sequence[PyTree],
    selection: PyTree,
    valid: Valid | None,
    sizes: Mapping[str, int],
    memory: int,
) -> Iterator[Layer]:
    """Yield selected leaves with the second moments of their inputs.

    Args:
      function: `(params, batch) -> outputs`.
      params: the parameters.
      batches: batches of examples, which are read once for each group of leaves.
      selection: the leaves, `None` elsewhere.
      valid: see `calibrate`.
      sizes: the bytes of second moments that each leaf needs, by path.
      memory: bytes of second moments that are held at a time; at least those of one leaf are.
    """
    leaves = named_leaves(selection)
    for paths in _groups([*leaves], sizes, memory):
        calibration = captured(
            function, params, batches, lambda path, leaf, of=paths: path in of, valid, with_products=True
        )
        for path in paths:
            yield Layer(path, leaves[path], matrices_of(calibration, path))


def solvable(calibration: Calibration, params: PyTree) -> Callable[[str, Any], bool]:
    """Return a predicate that selects all weights that products read as matrices; warn of the others.

    Raises:
      ArgumentError: no such weight.
    """
    found = []
    for path, leaf in named_leaves(params).items():
        try:
            if calibration(path, leaf):
                matrices_of(calibration, path)
                found.append(path)
        except ArgumentError as error:
            warnings.warn(
                f"{str(error).removesuffix(_REMEDY)}; it stays as it is", ResultWarning, stacklevel=4
            )
    if not found:
        reasons = "; ".join(f"{path!r}: {why}" for path, why in [*calibration.left.items()][:3])
        raise ArgumentError(f"params: no product reads a weight as a matrix; {reasons}".rstrip("; "))
    return lambda path, leaf: path in found


def _groups(paths: Sequence[str], sizes: Mapping[str, int], memory: int) -> list[list[str]]:
    """Divide leaves into groups whose second moments fit into memory together, in their order."""
    groups: list[list[str]] = [[]]
    held = 0
    for path in paths:
        held += sizes.get(path, 0)
        if groups[-1] and held > memory:
            groups.append([])
            held = sizes.get(path, 0)
        groups[-1].append(path)
    return groups


def listed(batches: Any) -> list[PyTree]:
    """Return batches that can be read several times.

    Raises:
      ArgumentError: no list of batches, or none in it.
    """
    check_batches(batches)
    again = [*batches]
    if not again:
        raise ArgumentError("batches: expected at least one, got none")
    return again
