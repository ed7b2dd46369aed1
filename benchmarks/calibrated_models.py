"""Does `jaxarch.calibrate` sum up what each weight of the models of docs/jax_models.md really meets?

    python benchmarks/calibrated_models.py                     # a few minutes, on one core of a CPU
    python benchmarks/calibrated_models.py --models "Llama"    # some models only

The reference knows nothing of programs. Each model of benchmarks/jax_models.py runs operation by operation,
its loops in Python. Each product that runs hands both of its factors to NumPy. Weights are drawn from a
normal distribution, so that each number tells which entry of which leaf it is. A factor that consists of
such numbers is a weight, and the squares of the other factor are added to its entries; for a table, the
times that an entry is looked up. The script prints the number of entries, the largest difference from
`Calibration.squares`, relative to the largest square of the leaf, and the leaves that `Calibration.left`
names, though the reference knows them.

All 25 models agree, with 418,480 entries: the largest difference is 8.4e-7. Only the tables of relative
positions in Swin and MaxViT are left, which fixed indices look up and which are added to scores.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives
from jax_models import MODELS

import jaxarch

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Reference:
    """Sums of squared inputs of each entry of some leaves, by the values of the entries."""

    def __init__(self, leaves: dict[str, Any]) -> None:
        self.paths = [path for path, leaf in leaves.items() if is_distinct(np.asarray(leaf))]
        values = [np.ravel(leaves[path]) for path in self.paths]
        together = np.concatenate(values)
        self._order = np.argsort(together)
        self._sorted = together[self._order]
        self._sums = np.zeros(len(together))
        self._ends = np.cumsum([len(of) for of in values])

    def add(self, factor: Any, squares: np.ndarray) -> None:
        """Add squared inputs, in the shape of a factor, if the factor consists of entries of the leaves."""
        flat = np.ravel(np.asarray(factor))
        at = np.minimum(np.searchsorted(self._sorted, flat), len(self._sorted) - 1)
        if (self._sorted[at] == flat).all():
            np.add.at(self._sums, self._order[at], np.broadcast_to(squares, np.shape(factor)).ravel())

    def of(self, path: str) -> np.ndarray:
        """Return the sums of a leaf, flattened."""
        index = self.paths.index(path)
        return np.split(self._sums, self._ends[:-1])[index]


def is_distinct(leaf: np.ndarray) -> bool:
    return leaf.dtype == np.float32 and leaf.ndim > 1 and len(np.unique(leaf)) == leaf.size


def with_distinct_entries(params: Any) -> Any:
    """Return parameters in which no two drawn entries are equal: of some thousand in float32, a few are."""
    leaves, treedef = jax.tree.flatten(params)
    leaves = [np.asarray(leaf) for leaf in leaves]
    drawn = [index for index, leaf in enumerate(leaves) if leaf.ndim > 1 and len(np.unique(leaf)) > 2]
    together = np.concatenate([leaves[index].ravel() for index in drawn])
    while (again := np.setdiff1d(np.arange(len(together)), np.unique(together, return_index=True)[1])).size:
        together[again] = np.nextafter(together[again], np.float32(np.inf))
    parts = np.split(together, np.cumsum([leaves[index].size for index in drawn])[:-1])
    for index, part in zip(drawn, parts, strict=True):
        leaves[index] = part.reshape(leaves[index].shape)
    return jax.tree.unflatten(treedef, [jnp.asarray(leaf) for leaf in leaves])


def squares_of_dot(other: Any, place: int, shape: tuple[int, ...], dimensions: Any) -> np.ndarray:
    """Return the squared inputs of a factor of a `dot_general`, whose other factor is at `place`."""
    (summed, batched) = dimensions
    letters = iter(LETTERS)
    own = [""] * len(shape)
    names = [""] * np.ndim(other)
    for axes in (summed, batched):
        for mine, its in zip(axes[1 - place], axes[place], strict=True):
            own[mine] = names[its] = next(letters)
    names = [name or next(letters) for name in names]
    kept = "".join(name for name in own if name)
    made = np.einsum(f"{''.join(names)}->{kept}", np.asarray(other, float) ** 2)
    return made.reshape([size if name else 1 for name, size in zip(own, shape, strict=True)])


def squares_of_conv(pictures: Any, kernel: Any, params: dict[str, Any]) -> np.ndarray:
    """Return the squared inputs of a kernel: each is the derivative of the sum of outputs."""

    def total(kernel: Any) -> Any:
        return primitives.conv_general_dilated_p.bind(pictures**2, kernel, **params).sum()

    return np.asarray(jax.grad(total)(kernel))


def times_looked_up(table: Any, indices: Any, params: dict[str, Any]) -> np.ndarray:
    """Return how often each entry of a table is looked up: the derivative of the sum of what is found."""

    def total(table: Any) -> Any:
        return primitives.gather_p.bind(table, indices, **params).sum()

    return np.asarray(jax.grad(total)(table))


Products = list[tuple[str, tuple[Any, ...], dict[str, Any]]]
"""The name of each product, its factors, and its parameters."""


@contextlib.contextmanager
def watched() -> Iterator[Products]:
    """Collect all products that run."""
    found: Products = []
    one = np.ones((1, 1), np.float32)
    by_experts = jax.make_jaxpr(lax.ragged_dot)(one, one[None], np.ones(1, np.int32)).eqns[0].primitive
    products = [primitives.dot_general_p, primitives.conv_general_dilated_p, by_experts, primitives.gather_p]

    def watch(name: str, bind: Any) -> Any:
        def run(*factors: Any, **params: Any) -> Any:
            if not any(isinstance(factor, jax.core.Tracer) for factor in factors):
                found.append((name, factors, params))
            return bind(*factors, **params)

        return run

    for product in products:
        product.bind = watch(product.name, product.bind)
    try:
        yield found
    finally:
        for product in products:
            del product.bind


def note(reference: Reference, name: str, factors: tuple[Any, ...], params: dict[str, Any]) -> None:
    if name == "conv_general_dilated":
        reference.add(factors[1], squares_of_conv(*factors, params))
    elif name == "gather":
        if jnp.issubdtype(factors[0].dtype, jnp.floating):
            reference.add(factors[0], times_looked_up(*factors, params))
    elif name == "dot_general":
        for place in (0, 1):
            shape = np.shape(factors[1 - place])
            squares = squares_of_dot(factors[place], place, shape, params["dimension_numbers"])
            reference.add(factors[1 - place], squares)
    else:
        rows, weights, sizes = map(np.asarray, factors)
        groups = np.split(rows, np.cumsum(sizes))[: len(sizes)]
        squares = np.stack([(group.astype(float) ** 2).sum(0) for group in groups])
        reference.add(weights, squares[..., None])


def compare(name: str) -> tuple[int, float, list[str]]:
    """Compare a model's squared inputs with the reference.

    Returns:
      How many entries are compared; the largest relative difference; and the leaves that only the reference
      has, which `Calibration.left` names.
    """
    model = MODELS[name](np.random.default_rng(0))
    params = with_distinct_entries(model.params)

    def apply(params: Any, batch: Any) -> Any:
        return model.apply(params, *batch)

    reference = Reference(jaxarch.named_leaves(params))
    with jax.disable_jit(), watched() as products:
        apply(params, model.inputs)
    for product in products:
        note(reference, *product)
    calibration = jaxarch.calibrate(apply, params, [model.inputs])
    squares = jaxarch.named_leaves(calibration.squares(params))
    entries, difference, left = 0, 0.0, []
    for path in reference.paths:
        expected = reference.of(path)
        if not expected.any():
            continue
        if path not in squares:
            left.append(path)
            continue
        found = np.ravel(squares[path])
        entries += len(found)
        difference = max(difference, float(np.abs(found - expected).max() / expected.max()))
    return entries, difference, left


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS], metavar="MODEL")
    for name in parser.parse_args().models:
        entries, difference, left = compare(name)
        print(f"{name:24} {entries:8,} entries  {difference:.1e}  {', '.join(left)}", flush=True)


if __name__ == "__main__":
    main()
