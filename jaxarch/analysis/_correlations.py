"""Correlations between the units of two networks, by their values on data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxarch._internal.errors import ArgumentError
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree
from jaxarch.analysis._pair import checked_pair, function_and_trees
from jaxarch.masks._sharding import automatic
from jaxarch.masks._units import Span
from jaxarch.run._problem import Problem
from jaxarch.structure._captures import run_recorded
from jaxarch.structure._flow import Step
from jaxarch.structure._groups import Groups, span_of
from jaxarch.structure._network_function import checked_batches
from jaxarch.structure._products import find_products
from jaxarch.structure._tracing import hashable


class _Moments(NamedTuple):
    """Moments of n values of each unit, of two networks.

    Attributes:
      count: the number n of values of a unit.
      means: the mean of each unit, of both networks; shape (2, units).
      squares: the sums of squared differences from the means; shape (2, units).
      products: the sums of products of the differences, of each unit of the first network with each unit of
        the second; shape (units, units).
    """

    count: Any
    means: Any
    squares: Any
    products: Any

    def joined(self, other: _Moments) -> _Moments:
        """Return the moments of both samples together (Chan, Golub and LeVeque, 1983)."""
        count = self.count + other.count
        apart, weight = other.means - self.means, self.count * other.count / count
        return _Moments(
            count,
            self.means + apart * other.count / count,
            self.squares + other.squares + weight * apart**2,
            self.products + other.products + weight * np.outer(apart[0], apart[1]),
        )

    def correlations(self) -> np.ndarray:
        """Return the correlations; 0 for a unit that is constant."""
        scale = np.where(self.squares > 0, self.squares, np.inf) ** -0.5
        return np.clip(self.products * np.outer(scale[0], scale[1]), -1.0, 1.0)


def unit_correlations(
    function: Callable[[PyTree, PyTree], Any] | Problem,
    first: PyTree,
    second: PyTree,
    batches: Iterable[PyTree],
) -> dict[str, np.ndarray]:
    r"""Correlate each unit of a network with each unit of another, over some batches.

        correlations = jaxarch.analysis.unit_correlations(apply, a, b, batches)
        aligned = jaxarch.analysis.align(apply, a, b, batches[0], by=correlations)

    A unit's values are what the model's products with leaves read of it: the outputs of a neuron behind its
    nonlinearity, or a channel at all places of all examples. The correlation of units i and j is Pearson's,

        C_ij = \sum_n (x_in - \bar x_i)(y_jn - \bar y_j) / (|x_i - \bar x_i| |y_j - \bar y_j|).

    Where several products read a group's units, such as a residual stream's, it is the mean over products.
    Complex values count by both of their parts. A high correlation of matched units says that both networks
    learned the same features, if it is higher than that of untrained networks (Li et al., *Convergent
    learning: Do different neural networks learn the same representations?*, 2015,
    https://arxiv.org/abs/1511.07543). Ainsworth et al. (2023, section 3.1) match by `\sum_n x_in y_jn`
    instead, without means and norms.

    Args:
      function: `(params, batch) -> outputs`, jittable; or a `Problem` with `predict`.
      first: the parameters of the first network; for a problem, a `Network` of one run.
      second: the parameters of the second network, of the same shapes; for a problem, a `Network`.
      batches: batches of examples; for a problem, pairs (x, y) as its `gather` returns. Each shape of a batch
        is compiled once, and each batch runs both networks.

    Returns:
      By group name (see `structure.axis_groups`), correlations of shape (size, size), in [-1, 1]; 0 for a
      unit whose value is constant. Left out are groups that no product reads, such as those inside of
      branches and `while` loops, and groups that lie in values together, such as heads and their dimensions:
      these cannot be compared before both are in order.

    Raises:
      ArgumentError: parameters of different shapes; no batch; a function that cannot be traced; values that
        are NaN or infinite.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return jax.nn.relu(x @ params["in"]) @ params["out"]
      >>> a = {"in": jnp.array([[1.0, -1.0]]), "out": jnp.ones((2, 1))}
      >>> b = {"in": jnp.array([[-2.0, 3.0]]), "out": jnp.ones((2, 1))}
      >>> batches = [jnp.array([[1.0], [-1.0]]), jnp.array([[2.0], [-2.0]])]
      >>> jaxarch.analysis.unit_correlations(apply, a, b, batches)["in[1]"].round(2).tolist()
      [[-0.82, 1.0], [1.0, -0.82]]
    """
    function, (first, second) = function_and_trees(function, first, second)
    second = checked_pair(first, second)
    function = hashable(function)
    sums: dict[tuple[str, str], _Moments] = {}
    for batch in checked_batches(batches):
        found = jax.device_get(_moments(first, second, batch, function=function))
        for name, products in found.items():
            for number, moments in products.items():
                # Merged in double precision: a long stream loses nothing.
                wide, key = _scaled(*moments), (name, number)
                sums[key] = sums[key].joined(wide) if key in sums else wide
    if not sums:
        raise ArgumentError("function: no product reads units of one group alone")
    by_group: dict[str, list[np.ndarray]] = {}
    for (name, _), moments in sums.items():
        if not np.isfinite(moments.products).all():
            raise ArgumentError(f"batches: units of {name!r} have values that are NaN or infinite")
        by_group.setdefault(name, []).append(moments.correlations())
    return {name: np.mean(each, axis=0) for name, each in by_group.items()}


@functools.partial(jax.jit, static_argnames="function")
def _moments(
    first: PyTree, second: PyTree, batch: PyTree, *, function: Callable[[PyTree, PyTree], Any]
) -> dict[str, dict[str, tuple[_Moments, Any]]]:
    """Return the moments of each group's units on a batch and their scales, by product and occurrence."""
    groups = Groups(function, first, (batch,))
    names = {atom: name for name, atom in groups._atoms.items()}
    products = find_products(groups._program, dict.fromkeys(groups._leaves)).found
    read = {id(of.step): of for of in products if of.activation is not None}

    def record(step: Step, taken: list[Any], made: list[Any]) -> Any:
        place = read[id(step)].activation if id(step) in read else None
        return None if place is None else taken[place]

    of_batch = jax.tree.leaves(batch)
    pair = [
        run_recorded(groups._program, [*jax.tree.leaves(tree), *of_batch], record)[1]
        for tree in (first, second)
    ]
    found: dict[str, dict[str, tuple[_Moments, Any]]] = {}
    for number, (key, product) in enumerate(read.items()):
        if key not in pair[0]:
            continue
        axes = product.step.inputs[product.activation or 0]
        values = [of[key] for of in pair]
        loops = values[0].ndim - len(axes)
        spans = [span_of(axis, names) for axis in axes]
        if len({name for span in spans for name, _ in span.groups()}) == 1:
            for index, span in enumerate(spans):
                for place, (name, of) in enumerate(_of_units(span, loops + index, *values)):
                    found.setdefault(name, {})[f"{number}/{index}/{place}"] = of
    return found


def _of_units(span: Span, axis: int, *values: Any) -> list[tuple[str, Any]]:
    """Return the moments of the units that lie along an axis, by the names of their groups."""
    if not [*span.groups()]:
        return []

    def all_of(*values: Any) -> list[Any]:
        rows = ([*span.rows(jnp.moveaxis(value, axis, 0))] for value in values)
        return [_joint(one, other) for (_, one), (_, other) in zip(*rows, strict=True)]

    return [*zip([name for name, _ in span.groups()], automatic(all_of, *values), strict=True)]


def _scaled(moments: Sequence[Any], scales: Any) -> _Moments:
    """Return moments in double precision, of values that were divided by a scale for each unit."""
    # Merged in double precision, a long stream loses nothing, and large scales do not overflow.
    count, means, squares, products = (np.asarray(of, np.float64) for of in moments)
    scales = np.asarray(scales, np.float64)
    products = products * np.outer(scales[0], scales[1])
    return _Moments(count, means * scales, squares * scales**2, products)


def _joint(one: Any, other: Any) -> tuple[_Moments, Any]:
    """Return the moments of rows of values, of shape (units, n), each divided by a scale; and the scales."""
    pair = [_parts(rows) for rows in (one, other)]
    # A constant becomes 1, whose mean is 1 to the last bit: its squares are 0.
    largest = [jnp.abs(rows).max(1) for rows in pair]
    scales = [jnp.where(each > 0, each, jnp.ones_like(each)) for each in largest]
    pair = [rows / scale[:, None] for rows, scale in zip(pair, scales, strict=True)]
    means = [rows.mean(1) for rows in pair]
    centred = [rows - mean[:, None] for rows, mean in zip(pair, means, strict=True)]
    moments = _Moments(
        jnp.asarray(pair[0].shape[1], means[0].dtype),
        jnp.stack(means),
        jnp.stack([(rows**2).sum(1) for rows in centred]),
        jnp.matmul(centred[0], centred[1].T, precision="highest"),
    )
    return moments, jnp.stack(scales)


def _parts(rows: Any) -> Any:
    """Return real numbers in float32 or wider; imaginary parts come after the real parts."""
    if jnp.iscomplexobj(rows):
        rows = jnp.concatenate([rows.real, rows.imag], 1)
    return widened(rows)
