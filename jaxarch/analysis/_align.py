"""Alignment of two networks: the units of one, put in the order of the other's."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxarch._internal.errors import ArgumentError, as_array, check_count, check_mapping, check_one_key, shown
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, is_key, named_leaves
from jaxarch.analysis._pair import checked_pair, function_and_trees
from jaxarch.masks._sharding import beside
from jaxarch.masks._units import Span
from jaxarch.run._network import Network
from jaxarch.run._problem import Problem
from jaxarch.structure._columns import columns
from jaxarch.structure._groups import Groups, axis_groups
from jaxarch.structure._network_function import (
    check_arrays_given,
    check_examples,
    example_batch,
    split_leaves,
)
from jaxarch.structure._shrink import relative_difference

TOLD_APART = "the function tells its units apart"
NO_NUMBERS = "only integers have its units"
NOT_GIVEN = "`by` has no entry for it"
_EXAMPLES = 32
"""Number of a problem's examples on which the aligned network is compared with the original."""
_LEAST_GAIN = 1e-6
"""Smallest relative gain of the inner product that counts: below it lies the rounding of float32."""


@dataclasses.dataclass(frozen=True)
class Alignment:
    """Two aligned networks, as returned by `align`. `print` shows a table of the groups.

    Attributes:
      second: the second network, with its units in the order of the first's: a tree or a `Network`, like the
        argument.
      orders: by group name, a permutation of shape (size,): unit i of the first network matches unit
        `orders[i]` of the second.
      left: by group name, the reason why the units keep their order.
      cosine: the cosine of the angle between all parameters of the two networks, before and after.
      cosines: by group name, the same for the leaves that have the group's units.
      groups: the groups of the function.
    """

    second: Any
    orders: dict[str, np.ndarray]
    left: dict[str, str]
    cosine: tuple[float, float]
    cosines: dict[str, tuple[float, float]]
    groups: Groups

    def permute(self, tree: PyTree) -> PyTree:
        """Put another tree of the second network in the same order: a mask, or an optimizer state.

        Raises:
          ArgumentError: leaves of other shapes than the network's.
        """
        return self.groups.permute(tree, self.orders)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = [("group", "units", "moved", "cosine", "aligned")]
        for name, (before, after) in self.cosines.items():
            order = self.orders.get(name)
            moved = self.left[name] if order is None else f"{(order != np.arange(len(order))).sum():,}"
            rows.append((name, f"{self.groups.groups[name].size:,}", moved, f"{before:.3f}", f"{after:.3f}"))
        before, after = self.cosine
        return "\n".join(
            [*columns(rows, right=(1, 3, 4)), f"cosine of all parameters: {before:.3f}, aligned {after:.3f}"]
        )


def align(
    model: Any,
    first: Any,
    second: Any,
    *inputs: PyTree,
    by: Mapping[str, Any] | None = None,
    restarts: int = 0,
    key: Array | None = None,
) -> Alignment:
    r"""Put the units of a network in the order of another network's, without changing what it computes.

        aligned = jaxarch.analysis.align(apply, a, b, x)                 # any function and two trees
        aligned = jaxarch.analysis.align(problem, network_a, network_b)  # two networks that searches found
        jaxarch.overlap(mask_a, aligned.permute(mask_b))

    The neurons, channels and heads of a network have no order of their own, so two networks may be the same
    and still have no weight in common. The groups of units are read from the traced program (see
    `structure.axis_groups`). Their permutations P maximize the inner product

        \sum_l <A_l, (P B)_l>

    over all leaves l, which minimizes the distance between the networks' parameters. All groups together are
    a hard problem. One group at a time is a linear assignment, which is solved exactly; the groups are passed
    over until none gains any more (Ainsworth, Hayase and Srinivasa, *Git Re-Basin: Merging models modulo
    permutation symmetries*, 2023, https://arxiv.org/abs/2209.04836, section 3.2 and algorithm 1).

    Departures: groups are visited in the order of the program instead of a random order. The descent is begun
    twice, and the better end is returned: from the order as given, and from a matching of each unit's
    *sorted* weights. Their inner product does not depend on the order of other groups, and bounds the inner
    product of two units from above. If the networks are the same up to permutation, and no two units of a
    group have the same sorted weights, it finds the permutation.

    With `by`, each group is matched by a similarity of its units instead: `analysis.unit_correlations` gives
    the correlations of their values on data (section 3.1; Li et al., *Convergent learning*, 2015,
    https://arxiv.org/abs/1511.07543).

    A function may tell its units apart, as rotary embeddings do. Such a group keeps its order, and `left`
    names it. Orders are tried on the inputs, and on random weights and inputs; differences below rounding do
    not count. In a loop over stacked layers all layers share one order, since they are one group. The aligned
    network is compared with the original before it is returned. Assignments are computed on the host.

    Args:
      model: a function `(tree, *inputs) -> outputs` that JAX can trace, or a `Problem` with `predict`.
      first: the tree, or the `Network` of one run, that stays as it is.
      second: the tree or the network to align. Masked networks are aligned with their masks applied.
      *inputs: example inputs of the function, on which the aligned network is compared with the original.
      by: by group name, similarities of shape (size, size), of each unit of the first network with each of
        the second; larger is more alike. Groups without an entry keep their order.
      restarts: further starts of the descent by weights, in random orders. It ends in one of many local
        optima: between trained perceptrons, eight restarts found inner products up to 6% larger.
      key: a random key, which restarts need.

    Returns:
      `Alignment`, with the aligned network as `second`. A network loses its records, such as `Start`, which
      have the old order.

    Raises:
      ArgumentError: trees of different paths or shapes; weights or outputs that are NaN or infinite; a
        function that cannot be traced, has no group or no output of real numbers, or tells units apart only
        where several groups are permuted; networks of many runs or without weights.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> def apply(params, x):
      ...     return jax.nn.relu(x @ params["in"]) @ params["out"]
      >>> a = {"in": jnp.array([[1.0, 2.0, 3.0]]), "out": jnp.array([[1.0], [-1.0], [0.5]])}
      >>> b = {"in": jnp.array([[3.1, 0.9, 2.0]]), "out": jnp.array([[0.4], [1.0], [-1.1]])}
      >>> aligned = jaxarch.analysis.align(apply, a, b, jnp.ones((1, 1)))
      >>> print(aligned.orders["in[1]"], aligned.second["in"], aligned.second["out"].T)
      [1 2 0] [[0.9 2.  3.1]] [[ 1.  -1.1  0.4]]
    """
    draws = _checked_draws(by, restarts, key)
    if isinstance(model, Problem):
        return _align_networks(model, first, second, inputs, by, draws)
    return _align_trees(model, first, second, inputs, by, draws)


def _checked_draws(by: Any, restarts: int, key: Array | None) -> list[np.random.Generator]:
    """Return a generator of random orders for each restart."""
    check_count("restarts", restarts, 0)
    if not restarts:
        return []
    if by is not None:
        raise ArgumentError("restarts: a match by similarities has one optimum; leave them out")
    if key is None:
        raise ArgumentError("key: expected a random key for the restarts, such as jax.random.key(0)")
    check_one_key(key)
    seeds = jax.random.bits(key, (restarts,))
    return [np.random.default_rng(int(seed)) for seed in np.asarray(seeds)]


def _align_networks(
    problem: Problem, first: Network, second: Network, inputs: tuple[PyTree, ...], by: Any, draws: Any
) -> Alignment:
    if inputs:
        raise ArgumentError("inputs: a problem has its own examples; leave the inputs out")
    function, (one, other) = function_and_trees(problem, first, second)
    found = _align_trees(function, one, other, (example_batch(problem, _EXAMPLES),), by, draws)
    params, state = split_leaves(found.second, second.params, second.state)
    mask = None if second.mask is None else found.permute(second.mask)
    aligned = dataclasses.replace(second, params=params, mask=mask, state=state, records=())
    return dataclasses.replace(found, second=aligned)


def _align_trees(
    function: Callable[..., Any],
    first: PyTree,
    second: PyTree,
    inputs: tuple[PyTree, ...],
    by: Any,
    draws: Any,
) -> Alignment:
    second = checked_pair(first, second)
    check_arrays_given(inputs=inputs)
    check_examples(inputs)
    groups = axis_groups(function, first, *inputs)
    if not groups.groups:
        raise ArgumentError(f"model: {groups}")
    pair = _numbers("first", first), _numbers("second", second)
    if pair[0].keys() != pair[1].keys():
        path = min(pair[0].keys() ^ pair[1].keys())
        raise ArgumentError(f"second: {path!r} has integers in one network, and real numbers in the other")
    similarities = None if by is None else _checked(by, groups)
    same = _trial(groups, function, second, inputs)
    left = dict.fromkeys(_told_apart(groups, same), TOLD_APART)
    for name, group in groups.groups.items():
        if not pair[0].keys() & dict(group.axes).keys():
            left[name] = NO_NUMBERS
    names = [name for name in groups.groups if name not in left]
    if similarities is None:
        orders = _by_weights(groups, names, *pair, draws)
    else:
        orders = {name: _assigned(similarities[name]) for name in names if name in similarities}
        left |= {name: NOT_GIVEN for name in names if name not in similarities}
    if not same(orders):
        raise ArgumentError("model: it tells units apart, since the aligned network computes other outputs")
    before = _cosines(groups, *pair)
    cosine, cosines = _cosines(groups, pair[0], groups.permute(pair[1], orders))
    both = {name: (before[1][name], cosines[name]) for name in cosines}
    return Alignment(groups.permute(second, orders), orders, left, (before[0], cosine), both, groups)


def _numbers(name: str, tree: PyTree) -> dict[str, np.ndarray]:
    """Return the numbers of a tree by path, on the host; booleans are 0 and 1, and integers are left out."""
    numbers = {}
    for path, leaf in named_leaves(tree).items():
        if is_key(leaf) or jnp.issubdtype(leaf.dtype, jnp.integer):
            continue
        numbers[path] = widened(np.asarray(leaf))
        if not np.isfinite(numbers[path]).all():
            raise ArgumentError(f"{name}: {path!r} has entries that are NaN or infinite")
    # The match does not depend on a network's scale, and products of large numbers would overflow.
    largest = max((np.abs(leaf).max(initial=0) for leaf in numbers.values()), default=0) or 1
    return {path: leaf / np.asarray(largest, leaf.real.dtype) for path, leaf in numbers.items()}


def _trial(
    groups: Groups, function: Callable[..., Any], tree: PyTree, inputs: tuple[PyTree, ...]
) -> Callable[[Mapping[str, np.ndarray]], bool]:
    """Return a test whether a network in another order computes the same.

    The network may be blind to an order where another of the same shapes is not: units may be dead, or the
    inputs 0. So the order is tried with random weights and inputs too, if these give numbers.
    """
    run = jax.jit(function)
    outputs = run(tree, *inputs)
    if not any(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(outputs)):
        raise ArgumentError("model: expected outputs of real numbers, in which a wrong order shows")
    if _has_nan(outputs):
        raise ArgumentError("second: it computes NaN, so it cannot be compared after it is aligned")
    probes = [(tree, inputs, outputs)]
    drawn = _drawn((tree, inputs))
    if not _has_nan(others := run(drawn[0], *drawn[1])):
        probes.append((*drawn, others))

    def same(orders: Mapping[str, np.ndarray]) -> bool:
        return all(
            relative_difference(before, run(groups.permute(weights, orders), *given)) <= groups.rounding()
            for weights, given, before in probes
        )

    return same


def _has_nan(outputs: PyTree) -> bool:
    return any(
        jnp.issubdtype(leaf.dtype, jnp.inexact) and bool(np.isnan(leaf).any())
        for leaf in jax.tree.leaves(outputs)
    )


def _drawn(tree: PyTree) -> PyTree:
    """Return random real numbers of the sizes of a tree's, and at least 0 where all of them are."""
    draw = np.random.default_rng(0)

    def like(leaf: Any) -> Any:
        if is_key(leaf) or not jnp.issubdtype(leaf.dtype, jnp.inexact) or not leaf.size:
            return leaf
        numbers = widened(np.asarray(leaf))
        scale = np.sqrt(np.mean(np.abs(numbers).astype(np.float64) ** 2)) or 1.0
        made = draw.normal(size=leaf.shape) * scale
        signed = np.iscomplexobj(numbers) or (numbers < 0).any() or not numbers.any()
        made = (made if signed else np.abs(made)).astype(leaf.dtype)
        return beside(leaf, made) if isinstance(leaf, jax.Array) else made

    return jax.tree.map(like, tree)


def _checked(by: Any, groups: Groups) -> dict[str, np.ndarray]:
    check_mapping("by", by, "arrays by name of the group, as analysis.unit_correlations returns them")
    checked = {}
    for name, similarity in by.items():
        groups._check_group("by", name)
        array, size = np.asarray(as_array(f"by: {name}", similarity)), groups.groups[name].size
        if array.shape != (size, size) or not np.isfinite(array).all():
            raise ArgumentError(
                f"by: expected finite numbers of shape {(size, size)} for {shown(name)}, got "
                f"{shown(similarity)}"
            )
        checked[name] = array
    return checked


def _told_apart(groups: Groups, same: Callable[[Mapping[str, np.ndarray]], bool]) -> list[str]:
    """Return the groups whose units a function tells apart: their order changes its outputs.

    A cycle of all units and a swap of two generate all permutations.
    """
    units = {name: np.arange(group.size) for name, group in groups.groups.items()}
    cycles = {name: np.roll(order, 1) for name, order in units.items()}
    swaps = {name: np.r_[order[1::-1], order[2:]] for name, order in units.items()}
    if same(cycles) and same(swaps):
        return []
    return [name for name in units if not (same({name: cycles[name]}) and same({name: swaps[name]}))]


def _assigned(similarity: np.ndarray) -> np.ndarray:
    """Return the second's unit for each of the first's, so that the sum of similarities is the largest."""
    # SciPy comes with JAX, and takes a while to import.
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(similarity, maximize=True)[1]


# By weights -------------------------------------------------------------------------------------------

Leaves = Mapping[str, np.ndarray]
Spans = Mapping[str, tuple[Span, ...]]


def _by_weights(
    groups: Groups,
    names: Collection[str],
    first: Leaves,
    second: Leaves,
    draws: Sequence[np.random.Generator],
) -> dict[str, Any]:
    """Return the orders with the largest inner product, of those that the starts lead to."""
    spans = {path: axes for path, axes in groups.units_of(names).leaves if path in first}
    sorted_rows = functools.partial(np.sort, axis=1)
    kept = {name: np.arange(groups.groups[name].size) for name in names}
    by_sorted = {name: _assigned(_products(spans, name, first, second, sorted_rows)) for name in names}
    drawn = [{name: draw.permutation(order) for name, order in kept.items()} for draw in draws]
    ends = [_climbed(groups, spans, first, second, start) for start in (kept, by_sorted, *drawn)]
    return max(ends, key=lambda end: end[1])[0]


def _climbed(
    groups: Groups,
    spans: Spans,
    first: Leaves,
    second: Leaves,
    start: Mapping[str, Any],
) -> tuple[dict[str, Any], float]:
    """Match one group after another until the inner product grows no more, and return it with the orders."""
    orders, now = dict(start), dict(groups.permute(second, start))
    rising = True
    while rising:
        rising = False
        for name in orders:
            order = _assigned(_products(spans, name, first, now))
            paths = [path for path, _ in groups.groups[name].axes if path in now]
            part = {path: now[path] for path in paths}
            moved = groups.permute(part, {name: order})
            # Where both axes of a leaf have the units, an assignment may lose: it takes one axis as fixed.
            before, after = _inner(first, part), _inner(first, moved)
            if after - before > _LEAST_GAIN * abs(before):
                now.update(moved)
                orders[name] = orders[name][order]
                rising = True
    return orders, _inner(first, now)


def _products(
    spans: Spans,
    name: str,
    first: Leaves,
    second: Leaves,
    of: Any = lambda rows: rows,
) -> np.ndarray:
    """Return the inner products of a group's units, over all leaves: `sum_l A_l[i] . B_l[j]`."""
    total: Any = 0
    for path, axes in spans.items():
        for index, span in enumerate(axes):
            if name in dict(span.groups()):
                pair = (span.rows(np.moveaxis(leaves[path], index, 0)) for leaves in (first, second))
                for (group, one), (_, other) in zip(*pair, strict=True):
                    if group == name:
                        total = total + (of(one) @ of(other).conj().T).real
    return total


def _inner(first: Leaves, second: Leaves) -> float:
    return float(sum(np.vdot(first[path], leaf).real for path, leaf in second.items()))


def _cosines(groups: Groups, first: Leaves, second: Leaves) -> tuple[float, dict[str, float]]:
    """Return the cosine of two networks, and of the leaves of each group."""

    def cosine(paths: Collection[str]) -> float:
        one, other = ({path: leaves[path] for path in paths if path in leaves} for leaves in (first, second))
        norms = (_inner(one, one) * _inner(other, other)) ** 0.5
        return _inner(one, other) / norms if norms else 0.0

    of_groups = {name: cosine([*dict(group.axes)]) for name, group in groups.groups.items()}
    return cosine([*first]), of_groups
