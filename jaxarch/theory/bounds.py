r"""Certified gradient bounds: numbers G with `norm(grad_v f(v, z)) <= G` for every mask v in [0, 1]^d.

The theorems on the two-temperature gradient need such numbers (`theory.mirror`). They come from interval
arithmetic on the gradient (`theory.intervals`), so they are never below the truth, rounding included. They
are loose, since intervals ignore dependencies between values; `looseness` measures by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxarch._internal.errors import (
    ArgumentError,
    check_choice,
    check_count,
    check_leaves,
    check_one_key,
    first_line,
    shown,
)
from jaxarch._internal.precision import widened
from jaxarch._internal.trees import PyTree, Where, check_floating, map_selected, matrices, select
from jaxarch.masks import apply_mask, weight_free
from jaxarch.run._problem import Problem, as_rows, check_is_problem
from jaxarch.theory.intervals import interval_bounds

__all__ = ["Looseness", "gradient_bound", "gradient_bounds", "interval_bounds", "largest_norms", "looseness"]

FixedWeights = Literal["ones", "initial"]


def gradient_bound(
    loss: Callable[..., Array], selection: PyTree, lower: tuple[Any, ...] = (), upper: tuple[Any, ...] = ()
) -> Array:
    """Return G, with `norm(grad_v loss(v, *z)) <= G` for every mask v in [0, 1]^d and every z in a box.

        gradient_bound(loss, selection)                      # all masks, what loss closes over fixed
        gradient_bound(loss, selection, (x, y), (x, y))      # one batch
        gradient_bound(loss, selection, (zeros, y), (ones, y))  # every batch of inputs in [0, 1]

    Args:
      loss: `(mask, *z) -> scalar`, of JAX primitives that have interval rules.
      selection: the leaves that are masked, or anything with their shapes and dtypes; `None` elsewhere.
      lower: the smallest values of the further arguments z, pytrees of arrays.
      upper: the largest values of these arguments.

    Returns:
      A scalar, an upper bound in floating point too. It is infinite if the intervals cannot bound the
      gradient.

    Raises:
      ArgumentError: as in `interval_bounds`; a selection without floating-point leaves; a loss that does not
        take such arguments, or is no scalar.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxarch.theory.bounds import gradient_bound
      >>> def loss(mask):  # its gradient is (3, 4) times 3 v_1 + 4 v_2
      ...     return jnp.square(mask @ jnp.array([3.0, 4.0])) / 2
      >>> round(float(gradient_bound(loss, jnp.zeros(2))), 3)
      35.0
    """
    check_floating("selection", selection)
    for name, ends in (("lower", lower), ("upper", upper)):
        if not isinstance(ends, (tuple, list)):
            raise ArgumentError(
                f"{name}: expected a tuple with an entry for each argument, got {shown(ends)}"
            )
    if len(lower) != len(upper):
        raise ArgumentError(f"upper: expected {len(lower)} arguments, as lower has, got {len(upper)}")
    none, every = (
        map_selected(lambda leaf, value=value: jnp.full(jnp.shape(leaf), value, leaf.dtype), selection)
        for value in (0, 1)
    )
    _check_loss(loss, none, *lower)
    gradient = interval_bounds(lambda at: jax.grad(loss)(at[0], *at[1]))
    return _norm_above(*gradient((none, tuple(lower)), (every, tuple(upper))))


def gradient_bounds(
    problem: Problem,
    params: PyTree,
    state: PyTree = None,
    *,
    weights: FixedWeights = "ones",
    where: Where = matrices,
    rows: Array | None = None,
    batch_size: int = 64,
) -> Array:
    """Return a certified G for each example: a bound over all masks on the norm of its gradient in the mask.

        params, state = problem.init(key)
        G = gradient_bounds(problem, params, state).max()

    The loss is the one that `search.two_temperature` descends on: the problem's loss in evaluation mode (no
    dropout, running statistics) at `mask o theta`. The largest bound holds for every batch and for the mean
    F.

    Args:
      problem: the problem to learn; of one run, if runs have their own rows (`problem.of_run`).
      params: parameters from `problem.init`. Leaves that are not masked keep these values.
      state: the model's state, from `problem.init`.
      weights: theta: `ones` for weight-free networks, `initial` for the weights in `params`.
      where: the leaves to mask, as in `search.two_temperature`.
      rows: the examples, shape (n,); by default the training rows.
      batch_size: the number of examples to process at a time.

    Returns:
      Bounds of shape (n,).

    Raises:
      ArgumentError: an unknown `weights`; rows that are not in the data; a problem whose runs have their own
        values, or that does not fit the params; a primitive in the loss that has no interval rule.

    Example:
      >>> import jax.numpy as jnp, jaxarch, optax
      >>> from jaxarch.theory.bounds import gradient_bounds
      >>> model = (lambda key: {"kernel": jnp.ones((2, 1))}, lambda params, x: x @ params["kernel"])
      >>> x, y = jnp.array([[3.0, 4.0], [1.0, 0.0]]), jnp.zeros((2, 1))
      >>> problem = jaxarch.supervised(model, (x, y), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=1)
      >>> bounds = gradient_bounds(problem, {"kernel": jnp.ones((2, 1))})
      >>> [round(bound, 3) for bound in bounds.tolist()]  # (v . x) x is largest at v = (1, 1)
      [35.0, 1.0]
    """
    loss, selection, rows = _masked_loss(problem, params, state, weights, where, rows)
    return _in_blocks(lambda row: gradient_bound(lambda mask: loss(mask, row), selection), rows, batch_size)


def largest_norms(
    key: Array,
    problem: Problem,
    params: PyTree,
    state: PyTree = None,
    *,
    weights: FixedWeights = "ones",
    where: Where = matrices,
    rows: Array | None = None,
    masks: int = 20,
    ascent: int = 20,
    batch_size: int = 64,
) -> Array:
    """Search for the largest gradient norm of each example: a lower bound of the true G.

    Masks are drawn at densities from one connection per unit to all connections. From each mask the search
    climbs the norm by projected steps along the sign of its derivative, of length 1/4 down to 1/40.

    Args:
      key: a `jax.random.key`.
      problem: as in `gradient_bounds`.
      params: as in `gradient_bounds`.
      state: as in `gradient_bounds`.
      weights: as in `gradient_bounds`.
      where: as in `gradient_bounds`.
      rows: as in `gradient_bounds`.
      masks: the number of masks from which each example starts.
      ascent: the number of steps from each mask.
      batch_size: the number of examples to process at a time.

    Returns:
      Norms of shape (n,), each attained by some mask.

    Raises:
      ArgumentError: as in `gradient_bounds`; several keys, or none.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> from jaxarch.theory.bounds import largest_norms
      >>> model = (lambda key: {"kernel": jnp.ones((2, 1))}, lambda params, x: x @ params["kernel"])
      >>> x, y = jnp.array([[3.0, 4.0], [1.0, 0.0]]), jnp.zeros((2, 1))
      >>> problem = jaxarch.supervised(model, (x, y), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=1)
      >>> norms = largest_norms(jax.random.key(0), problem, {"kernel": jnp.ones((2, 1))})
      >>> [round(norm, 3) for norm in norms.tolist()]  # found at v = (1, 1), where they are largest
      [35.0, 1.0]
    """
    check_one_key(key)
    loss, selection, rows = _masked_loss(problem, params, state, weights, where, rows)
    check_count("masks", masks)
    check_count("ascent", ascent, least=0)
    # The last length is 0: the norm at the last mask is evaluated, but no step follows.
    lengths = jnp.append(jnp.geomspace(0.25, 0.025, ascent), 0.0)

    def from_start(key: Array, row: Array) -> Array:
        def norm(mask: PyTree) -> Array:
            gradient = jax.grad(loss)(mask, row)
            squares = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient))
            # The derivative of the norm is undefined at 0. The double `where` makes it 0, without a NaN.
            return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)

        def climb(carry: tuple[PyTree, Array], length: Array) -> tuple[tuple[PyTree, Array], None]:
            mask, best = carry
            value, slope = jax.value_and_grad(norm)(mask)
            mask = jax.tree.map(lambda v, s: jnp.clip(v + length * jnp.sign(s), 0, 1), mask, slope)
            return (mask, jnp.maximum(best, value)), None

        start = _random_mask(key, selection)
        return jax.lax.scan(climb, (start, jnp.zeros(())), lengths)[0][1]

    def of_row(row: Array) -> Array:
        keys = jax.random.split(jax.random.fold_in(key, row), masks)
        return jax.lax.map(lambda key: from_start(key, row), keys).max()

    return _in_blocks(of_row, rows, batch_size)


class Looseness(NamedTuple):
    """A certified gradient bound beside the largest gradient found; the truth lies between them.

    Attributes:
      certified: the largest of `gradient_bounds`; the true G is no larger.
      found: the largest of `largest_norms`; the true G is no smaller.
      ratio: certified over found, at least 1.
    """

    certified: Array
    found: Array
    ratio: Array


def looseness(
    key: Array,
    problem: Problem,
    params: PyTree,
    state: PyTree = None,
    *,
    weights: FixedWeights = "ones",
    where: Where = matrices,
    rows: Array | None = None,
    masks: int = 20,
    ascent: int = 20,
) -> Looseness:
    """Compare the certified G of a problem with the largest gradient found.

    The arguments are as in `largest_norms`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch, optax
      >>> from jaxarch.theory.bounds import looseness
      >>> model = (lambda key: {"kernel": jnp.ones((2, 1))}, lambda params, x: x @ params["kernel"])
      >>> x, y = jnp.array([[3.0, -4.0]]), jnp.zeros((1, 1))  # (v . x) x is largest at v = (0, 1), of norm 20
      >>> problem = jaxarch.supervised(model, (x, y), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=1)
      >>> found = looseness(jax.random.key(0), problem, {"kernel": jnp.ones((2, 1))})
      >>> print(f"{found.certified:.1f} {found.found:.1f} {found.ratio:.1f}")
      20.0 20.0 1.0
    """
    check_one_key(key)
    certified = gradient_bounds(problem, params, state, weights=weights, where=where, rows=rows).max()
    found = largest_norms(
        key, problem, params, state, weights=weights, where=where, rows=rows, masks=masks, ascent=ascent
    ).max()
    return Looseness(certified, found, certified / found)


def _masked_loss(
    problem: Problem, params: PyTree, state: PyTree, weights: str, where: Where, rows: Array | None
) -> tuple[Callable[[PyTree, Array], Array], PyTree, Array]:
    check_choice("weights", weights, ("ones", "initial"))
    check_is_problem(problem)
    check_leaves("problem: data", problem.data, keys=True)
    masked = weight_free if weights == "ones" else apply_mask
    state = {} if state is None else state
    if rows is None:
        rows = problem.training_rows()
    else:
        rows = as_rows("rows", rows, problem)
        if rows.ndim != 1:
            raise ArgumentError(f"rows: expected the rows of one run, shape (n,), got shape {rows.shape}")

    def loss(mask: PyTree, row: Array) -> Array:
        batch = problem.gather(problem.data, problem.per_run, row[None])
        return problem.loss(masked(mask, params), state, batch, None)[0]

    selection = select(params, where)
    try:
        jax.eval_shape(loss, selection, rows[0])
    except Exception as error:
        raise ArgumentError(
            "params: the problem's loss fails with them; pass parameters from its `init`, and "
            f"problem.of_run(i) if runs have their own values ({first_line(error)})"
        ) from None
    return loss, selection, rows


def _check_loss(loss: Callable[..., Array], *args: PyTree) -> None:
    """Raise unless the loss takes the arguments and returns a scalar."""
    try:
        value = jax.eval_shape(loss, *args)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(f"loss: it does not take (mask, *z): {first_line(error)}") from None
    if getattr(value, "shape", None) != ():
        raise ArgumentError(f"loss: expected a scalar, got shapes {shown(jax.tree.map(jnp.shape, value))}")


def _in_blocks(of_row: Callable[[Array], Array], rows: Array, batch_size: int) -> Array:
    """Compute one number per row in equal blocks; the last block is filled with rows from the beginning."""
    check_count("batch_size", batch_size)
    count = rows.shape[0]
    size = min(batch_size, count)
    blocks = jnp.resize(rows, (-(-count // size), size))
    return jax.lax.map(jax.vmap(of_row), blocks).ravel()[:count]


def _random_mask(key: Array, selection: PyTree) -> PyTree:
    """Draw a mask with one random density; in half of the draws kept entries are 1, otherwise uniform."""
    key, settings_key = jax.random.split(key)
    level, binary = jax.random.uniform(settings_key, (2,))
    leaves, treedef = jax.tree.flatten(selection)
    # Densities are log-uniform between one connection per unit and all.
    density = max(max(leaf.shape, default=1) for leaf in leaves) ** -level
    drawn = []
    for leaf, leaf_key in zip(leaves, jax.random.split(key, len(leaves)), strict=True):
        # It is below 1 with probability `density`, and uniform in [0, 1) if it is.
        share = jax.random.uniform(leaf_key, leaf.shape) / density
        drawn.append(jnp.where(share < 1, jnp.where(binary < 0.5, 1, share), 0).astype(leaf.dtype))
    return jax.tree.unflatten(treedef, drawn)


def _norm_above(lower: PyTree, upper: PyTree) -> Array:
    """Return the largest Euclidean norm in a box, rounded upwards.

    Entries are scaled by the largest one, so that no square underflows or overflows.
    """
    sizes = [
        jnp.maximum(jnp.abs(low), jnp.abs(high)).ravel()
        for low, high in zip(jax.tree.leaves(lower), jax.tree.leaves(upper), strict=True)
    ]
    pooled = jnp.concatenate([widened(size) for size in sizes])
    largest = pooled.max()
    scaled = pooled / jnp.where(largest > 0, largest, 1)
    norm = largest * jnp.sqrt(jnp.sum(jnp.square(scaled)))
    # A sum of n squares is off by at most gamma_n, about n eps / 2; the root halves that.
    rounding = 1 + (pooled.size / 2 + 8) * jnp.finfo(norm.dtype).eps
    return jnp.where(jnp.isfinite(largest), norm * rounding, jnp.inf)
