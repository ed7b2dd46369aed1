r"""Bounds of the change when connections or units are removed, for all inputs of a region.

Let r be 1 at the weights that go and 0 elsewhere. Between the whole network and the one without them lies

    g(t) = fun(params o (1 - t r), x),  0 <= t <= 1,    g(1) - g(0) = integral of g'(t) over [0, 1].

So the change lies between the least and the largest g'(t) over t in [0, 1] and x in the box. g' is a program,
`jax.jvp` of fun along -params o r, and is bounded by `theory.relaxation` over the box of t and x. To bound
`fun(params o m, x) - fun(params, x)` itself forgets that both networks nearly agree: each unit whose sign is
open is relaxed twice, and the bounds do not shrink with the weights that are removed. These do.

B. Paulsen, J. Wang and C. Wang, *ReluDiff: differential verification of deep neural networks*, 2020,
https://arxiv.org/abs/2001.03662, compare two networks as well, by intervals of each unit's change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxarch._internal.errors import (
    ArgumentError,
    check_arrays,
    check_concrete,
    check_instance,
    check_one_strength,
    items,
    shown,
)
from jaxarch._internal.trees import PyTree, map_selected, merge, named_leaves, placed, restructured
from jaxarch.masks import apply_mask, check_fits
from jaxarch.structure._groups import Groups
from jaxarch.structure._readers import readers
from jaxarch.theory.intervals import check_box, intervals
from jaxarch.theory.lipschitz import check_floats
from jaxarch.theory.relaxation import as_computed, by_lines, jumps

KINDS = ("neurons", "channels", "heads")
"""Kinds of units that are looked at by default."""

__all__ = ["CertifiedUnits", "certified_units", "removal_bounds"]


def removal_bounds(
    fun: Callable[[PyTree, PyTree], PyTree], *, rows_at_once: int | None = None
) -> Callable[[PyTree, PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]:
    r"""Bound what removing weights changes: return `(params, mask, lower, upper) -> (lower, upper)`.

        least, largest = removal_bounds(apply)(params, mask, image - eps, image + eps)

    encloses `fun(params o mask, x) - fun(params, x)` for all x in the box, by the derivative between both.

    Args:
      fun: a JAX function of parameters and of one pytree of floating-point arrays.
      rows_at_once: as in `relaxation.linear_bounds`.

    Returns:
      A pure function of the parameters, a mask of booleans for some of their leaves (`None` for the others),
      and of two pytrees as in `intervals.interval_bounds`. It returns bounds of each output's change in
      exact arithmetic; they are rounded outwards, and to evaluate either network rounds beside them. They are
      infinite where the derivative has no bound, and where fun may jump. As for `lipschitz.lipschitz_bound`,
      a choice does not count as a jump where both cases agree to a thousand roundings of their size; so
      small a jump, and what later layers make of it, is not in the bounds. They can be jitted and mapped,
      over masks too.

    Raises:
      ArgumentError: as `lipschitz.lipschitz_bound`; a mask that does not fit, or is not of booleans.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.removal import removal_bounds
      >>> def fun(params, x):
      ...     return jnp.maximum(x * params["in"], 0) @ params["out"]
      >>> params = {"in": jnp.array([1.0, -1.0]), "out": jnp.array([3.0, 2.0])}
      >>> mask = {"in": None, "out": jnp.array([True, False])}  # 2 max(-x, 0) goes
      >>> change = removal_bounds(fun)(params, mask, jnp.array(-1.0), jnp.array(2.0))
      >>> [round(float(end), 3) for end in change]
      [-2.0, 0.0]
    """
    narrow = by_lines(rows_at_once)

    def bounds(params: PyTree, mask: PyTree, lower: PyTree, upper: PyTree) -> tuple[PyTree, PyTree]:
        lower, upper = jax.tree.map(jnp.asarray, (lower, upper))
        check_box(lower, upper)
        check_floats("lower", lower)
        _check_mask(mask, params)
        shapes = jax.eval_shape(fun, params, lower)
        check_floats("fun", shapes)
        (low, unravel), (high, _) = map(ravel_pytree, (lower, upper))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        nothing, restored = ravel_pytree(zeros)

        def along(place: Array) -> Array:
            return ravel_pytree(fun(_between(params, mask, place[0]), unravel(place[1:])))[0]

        def derivative(place: Array) -> Array:
            return jax.jvp(computed, (place,), (jnp.zeros_like(place).at[0].set(1),))[1]

        start, end = (jnp.concatenate([jnp.full(1, t, low.dtype), x]) for t, x in ((0, low), (1, high)))
        outputs = intervals(along, start, end)
        if outputs.exact or not nothing.size:
            return zeros, zeros
        computed = as_computed(outputs)
        change = intervals(derivative, start, end, narrow)
        is_open = jumps(outputs) | jnp.isnan(change.lower) | jnp.isnan(change.upper)
        least, largest = jnp.where(is_open, -jnp.inf, change.lower), jnp.where(is_open, jnp.inf, change.upper)
        return restored(least), restored(largest)

    return bounds


def _between(params: PyTree, mask: PyTree, removed: Array) -> PyTree:
    """Return the parameters on the way to those without the removed weights, a share of which is gone."""
    mask = restructured(mask, params)

    def scaled(kept: Array, leaf: Array) -> Array:
        # To shorten the share that is left would be a jump.
        dtype = jnp.promote_types(leaf.dtype, removed.dtype)
        return leaf.astype(dtype) * jnp.where(kept, 1, 1 - removed.astype(dtype))

    return merge(map_selected(scaled, mask, params), params)


def _check_mask(mask: PyTree, params: PyTree) -> None:
    check_fits(mask, params)
    for path, leaf in named_leaves(mask).items():
        if leaf.dtype != bool:
            raise ArgumentError(f"mask: expected booleans, got {leaf.dtype} at {path!r}")


@dataclasses.dataclass(frozen=True)
class CertifiedUnits:
    """Units that may go, with a proof of what that changes at most.

    Attributes:
      kept: by group name, booleans of shape (size,): the argument `kept` of `Groups.cut` and `smaller`.
      bound: the largest change of any output over all boxes, if all others are removed together.
      alone: by group name, shape (size,): the largest change if a unit is removed alone.
    """

    kept: dict[str, np.ndarray]
    bound: float
    alone: dict[str, np.ndarray]

    @property
    def removed(self) -> int:
        """Count the units that are removed."""
        return sum(int((~kept).sum()) for kept in self.kept.values())


def certified_units(
    groups: Groups,
    params: PyTree,
    lower: PyTree,
    upper: PyTree,
    tolerance: float,
    *,
    units: Sequence[str] = (),
    rows_at_once: int | None = None,
) -> CertifiedUnits:
    r"""Find units without which no output changes by more than a tolerance, for all inputs of a region.

        found = certified_units(groups, params, lower, upper, 0.01)
        smaller, run = groups.cut(params, found.kept), groups.smaller(found.kept)

    The region is a union of boxes, such as the parts of a domain, or small ones around examples. More and
    smaller boxes give closer bounds. Units are sorted by what `removal_bounds` proves for each alone. How
    many of the first of them may go together is found by bisection: the bound is of all of them, not a sum.
    Units go by the weights that read them, and a group keeps one unit. With a tiny tolerance, what goes is
    what the region never uses, such as a ReLU that is never active there.

    Args:
      groups: the groups of the model, from `structure.axis_groups`.
      params: its leaves.
      lower: the smallest inputs of each box: the groups' inputs with a leading axis of boxes, as a tuple if
        there are several inputs.
      upper: the largest ones.
      tolerance: the largest change of an output that is accepted.
      units: kinds of units, or names of single groups, as for `Groups.units`; by default all neurons,
        channels and heads.
      rows_at_once: as in `relaxation.linear_bounds`.

    Returns:
      The units to keep, and the proven bound. Nothing is removed if nothing can be.

    Raises:
      ArgumentError: anything but groups; leaves of other shapes; a tolerance below 0; values that are traced;
        units that something else than a product with weights reads; as `removal_bounds`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> from jaxarch.theory.removal import certified_units
      >>> params = {"in": jnp.array([[1.0, 1.0, 0.1]]), "bias": jnp.array([0.0, -5.0, 0.0])}
      >>> params["out"] = jnp.ones((3, 1))
      >>> def model(params, x):
      ...     return jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]
      >>> groups = jaxarch.structure.axis_groups(model, params, jnp.ones((1, 1)))
      >>> lower, upper = jnp.array([[[-1.0]], [[1.0]]]), jnp.array([[[1.0]], [[3.0]]])  # two boxes
      >>> found = certified_units(groups, params, lower, upper, 0.5)  # x - 5 < 0, and .1 x is at most .3
      >>> found.kept["bias[0]"].tolist(), round(found.bound, 3)
      ([True, False, False], 0.3)
    """
    check_instance("groups", groups, Groups, "the result of structure.axis_groups")
    check_one_strength("tolerance", tolerance)
    check_concrete("tolerance", tolerance)
    groups._check_whole(params)
    for name, given in (("params", params), ("lower", lower), ("upper", upper)):
        check_concrete(name, given)
    named = items("units", units, str, "kinds of units, or names of groups")
    change = _Change.of(groups, params, *_boxes(lower, upper), named, rows_at_once)
    alone = {
        name: np.array([change.without({name: [unit]}) for unit in range(groups.groups[name].size)])
        for name in change.names
    }
    # A group keeps the unit of the largest effect.
    order = sorted(
        (effect, name, unit)
        for name, effects in alone.items()
        for unit, effect in enumerate(effects.tolist())
        if unit != effects.argmax()
    )
    fewest, most, bound = 0, len(order), 0.0
    while fewest < most:
        count = (fewest + most + 1) // 2
        found = change.without(_by_group(order[:count]))
        if found <= tolerance:
            fewest, bound = count, found
        else:
            most = count - 1
    return CertifiedUnits(change.kept(_by_group(order[:fewest])), bound, alone)


def _boxes(lower: PyTree, upper: PyTree) -> tuple[PyTree, PyTree]:
    """Return the ends of boxes as arrays.

    Raises:
      ArgumentError: ends that are no numbers, or do not have one leading axis of at least one box.
    """
    for name, ends in (("lower", lower), ("upper", upper)):
        check_arrays(name, ends)
        sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(ends)}
        if len(sizes) > 1 or sizes & {(), (0,)}:
            raise ArgumentError(
                f"{name}: expected a leading axis of one box or more, as many for each input, got "
                f"{shown([leaf.shape for leaf in jax.tree.leaves(ends)])}"
            )
    lower, upper = jax.tree.map(jnp.asarray, (lower, upper))
    check_box(lower, upper)
    check_floats("lower", lower)
    return lower, upper


def _by_group(units: Sequence[tuple[float, str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _, name, unit in units:
        found.setdefault(name, []).append(unit)
    return found


@dataclasses.dataclass(frozen=True)
class _Change:
    """Changes of a model's outputs over boxes, by the units that it loses."""

    groups: Groups
    params: PyTree
    boxes: tuple[PyTree, PyTree]
    names: list[str]
    read: Mapping[str, Collection[str]]
    bounds: Callable[..., tuple[PyTree, PyTree]]

    @classmethod
    def of(
        cls,
        groups: Groups,
        params: PyTree,
        lower: PyTree,
        upper: PyTree,
        units: list[str],
        rows_at_once: int | None,
    ) -> _Change:
        units = units or [name for name, of in groups.groups.items() if of.kind in KINDS]
        if not units:
            raise ArgumentError(f"units: the model has no {', '.join(KINDS[:-1])} or {KINDS[-1]}")
        names = groups.of_kinds(units)
        read = readers(groups)
        for name in names:
            if name not in read:
                raise ArgumentError(f"units: no product with leaves reads the units of {name!r}")
        function = groups.smaller({})

        def fun(params: PyTree, inputs: PyTree) -> PyTree:
            return function(params, *(inputs if isinstance(inputs, tuple) else (inputs,)))

        bounds = jax.jit(jax.vmap(removal_bounds(fun, rows_at_once=rows_at_once), (None, None, 0, 0)))
        change = cls(groups, params, (lower, upper), names, read, bounds)
        # Whether units can go by what reads them is known before anything is bounded.
        for name in names:
            change.kept({name: [*range(1, groups.groups[name].size)]})
        return change

    def kept(self, removed: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        """Return the units that a model without some units needs.

        Raises:
          ArgumentError: something else than the products with leaves reads a unit.
        """
        needed = self.groups.needed(apply_mask(self._mask(removed), self.params))
        for name, units in removed.items():
            if needed[name][units].any():
                raise ArgumentError(
                    f"units: something else than products with leaves reads the units of {name!r}; name "
                    "other groups"
                )
        return needed

    def without(self, removed: Mapping[str, Sequence[int]]) -> float:
        """Return the largest change of any output."""
        ends = self.bounds(self.params, self._mask(removed), *self.boxes)
        return max(float(jnp.abs(end).max(initial=0)) for end in jax.tree.leaves(ends))

    def _mask(self, removed: Mapping[str, Sequence[int]]) -> PyTree:
        """Return the masks of all leaves that read units, without what reads those removed."""
        shapes = {path: jnp.shape(leaf) for path, leaf in named_leaves(self.params).items()}
        masks = {path: np.ones(shapes[path], bool) for name in self.names for path in self.read[name]}
        for name, units in removed.items():
            kept = np.ones(self.groups.groups[name].size, bool)
            kept[units] = False
            of_all = self.groups.mask({name: kept})
            for path in self.read[name]:
                masks[path] = masks[path] & of_all[path]
        return placed(masks, self.params)
