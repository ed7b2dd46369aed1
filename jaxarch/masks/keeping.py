"""The mask of the largest scores: of an exact size, of connections or of whole units."""

from __future__ import annotations

from collections.abc import Mapping

from jax.typing import ArrayLike

from jaxarch.masks.largest import Per, check_per, check_scores
from jaxarch.masks.units import UnitsLike, as_units
from jaxarch.trees import PyTree


def keep(
    scores: PyTree,
    density: ArrayLike | Mapping[str, float] | None = None,
    per: Per = "all",
    units: UnitsLike = None,
) -> PyTree:
    r"""The mask of the largest scores: exactly `round(d D)` of the D connections, or of the units.

    Of equal scores, the first in flattening order; NaN comes last, after -inf. By counting, as `top_k`:
    nothing is sorted, and arrays that are split over devices stay so; under `units` that are blocks or N:M,
    those that are split over explicit axes are gathered, and split again.

    Args:
      scores: one a connection, `None` for leaves that are not masked; as of `jaxarch.saliency`.
      density: d, the share of connections that are kept, in (0, 1]; it may be traced, and is then a
        float32. Or the density of each leaf, by path: `round(d_l D_l)` in leaf l. With `units`, their share,
        or the shares of the groups, by name; of N:M nothing, since it is N/M.
      per: where they are kept: `all`, wherever scores are largest; `leaf`, the same density in every leaf,
        or group of units; `erk`, the densities of `erk_densities`. Whole numbers are made by the largest
        remainders, so that their sum is `round(d D)` in each case.
      units: what is kept together, by the mean of its scores. `None` for single connections; `(4, 4)` for
        blocks of 4 inputs by 4 outputs, the last two axes of a leaf (`Blocks`); `"2:4"` for 2 of every 4
        inputs in a row of each output (`NOfM`); neurons, channels or heads of a model are
        `axis_groups(function, params, x).units("neurons")`, of which each group keeps one at least.

    Returns:
      Booleans in the scores' structure and shapes. With units of a model also for leaves that go with them,
      such as biases, and `None` for leaves that have none.

    Raises:
      ArgumentError: a density outside (0, 1], of a leaf that there is none of or not of all, or so low that
        nothing is left of a group; an unknown word; scores that are no arrays, or of another model than the
        units; blocks or N:M that do not fit a leaf.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"a": jnp.array([0.1, 0.9, 0.2, 0.3]), "b": jnp.array([0.8, 0.7, 0.6, 0.5])}
      >>> [leaf.astype(int).tolist() for leaf in jaxarch.masks.keep(scores, 0.5).values()]
      [[0, 1, 0, 0], [1, 1, 1, 0]]
      >>> [leaf.astype(int).tolist() for leaf in jaxarch.masks.keep(scores, 0.5, per="leaf").values()]
      [[0, 1, 0, 1], [1, 1, 0, 0]]
      >>> kernel = {"a": jnp.array([[0.1, 0.9], [0.2, 0.3], [0.4, 0.1], [0.3, 0.2]])}
      >>> jaxarch.masks.keep(kernel, units="2:4")["a"].astype(int).tolist()
      [[0, 1], [0, 1], [1, 0], [1, 0]]
    """
    check_scores(scores)
    check_per(per)
    together = as_units(units).over(scores)
    values = together.score(scores)
    return together.spread(together.largest(values, together.counts(values, density, per)), scores)
