"""ALPS: mask and weights of each layer found together, by the alternating direction method of multipliers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxarch._internal.errors import check_count
from jaxarch._internal.order_statistics import largest_along
from jaxarch._internal.trees import PyTree, Where
from jaxarch.calibration._calibrate import Valid
from jaxarch.calibration._matrices import MEMORY
from jaxarch.calibration._pruning import Pattern, pruned_by
from jaxarch.calibration._reconstruct import conjugate_gradients, damped_moments
from jaxarch.masks._largest import top_k
from jaxarch.masks._units import UnitsLike

_EACH, _LEAST_ROUNDS = 3, 10
"""The steps of a round, which has one rho, and the rounds after which few changes end the search."""
_RHO = 0.01
"""The first rho."""


def alps(
    function: Callable[[PyTree, PyTree], Any],
    params: PyTree,
    batches: Iterable[PyTree],
    density: float | Mapping[str, float] | None = None,
    units: UnitsLike = None,
    *,
    where: Where | None = None,
    valid: Valid | None = None,
    damping: float = 0.01,
    rounds: int = 100,
    steps: int = 30,
    memory: int = MEMORY,
) -> tuple[PyTree, PyTree]:
    r"""Prune a trained model by a few batches: slower than `sparsegpt`, and nearer to the dense outputs.

    For each weight matrix, with dense weights w_0, inputs X and `H = X^T X + damping mean(diag(X^T X)) I`,
    the weights minimize `(w - w_0)^T H (w - w_0)` over all w with the wanted number of connections. Inputs
    are divided by `H_jj^(1/4)`. Then the alternating direction method of multipliers repeats

        w <- (H + rho I)^{-1} (H w_0 - v + rho z)
        z <- the k largest of w + v / rho, and 0 elsewhere
        v <- v + rho (w - z)

    and rho grows the faster, the more connections of z change, until none does. Weights are solved for as by
    `reconstruct`, under the last mask, that of the largest weights, and that of the largest products of
    weights and norms of inputs. The best of the three is returned. X. Meng, K. Behdin, H. Wang and R.
    Mazumder, ALPS: Improved optimization for highly sparse one-shot pruning for large language models, 2024,
    algorithms 1 and 2.

    Departures: the authors divide inputs by `H_jj^(1/2)`. They begin with rho at .1 in place of .01, and go
    lower where few connections change. They have no simple masks beside. On layers of a sentence encoder,
    errors are .85 to 1.01 times those of their code. With a large input that is mixed into others, theirs
    may be worse than the largest weights. The mask is that of z, where the authors take the largest of w.

    Args:
      function: `(params, batch) -> outputs`, jittable.
      params: the parameters of a trained model.
      batches: batches of examples, read once for each group of leaves that fit into `memory` together.
      density: d, the share of connections that is kept in each leaf, in (0, 1], or by path.
      units: `None` for single connections, or N:M along the axis of inputs, such as `"2:4"`: channels for
        convolutions. `masks.NOfM` takes another axis.
      where: the leaves that are pruned; see `sparsegpt`.
      valid: see `calibrate`.
      damping: the share of the mean squared input that is added to each.
      rounds: the largest number of values of rho, with three steps each.
      steps: steps of conjugate gradients.
      memory: bytes of second moments that are held at a time; at least those of one leaf are.

    Returns:
      The parameters, with zeros for removed connections, and the mask: booleans for pruned leaves, `None` for
      others.

    Raises:
      ArgumentError: as for `sparsegpt`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> params = {"kernel": jnp.array([[1.0], [0.9], [-2.0]])}
      >>> apply = lambda params, x: x @ params["kernel"]
      >>> x = jax.random.normal(jax.random.key(0), (64, 1)) + jnp.zeros((1, 3))  # three times one input
      >>> pruned, mask = jaxarch.alps(apply, params, [x], 1 / 3)
      >>> mask["kernel"].ravel().tolist(), pruned["kernel"].ravel().round(1)  # 1 + 0.9 - 2
      ([False, False, True], Array([ 0. ,  0. , -0.1], dtype=float32))
    """
    check_count("rounds", rounds)
    check_count("steps", steps)
    return pruned_by(
        functools.partial(_pruned, rounds=rounds, steps=steps),
        function,
        params,
        batches,
        density,
        units,
        where=where,
        valid=valid,
        damping=damping,
        memory=memory,
    )


@functools.partial(jax.jit, static_argnames=("pattern", "rounds", "steps"))
def _pruned(
    weights: Array,
    products: Array,
    counts: np.ndarray,
    pattern: Pattern,
    damping: float,
    rounds: int,
    steps: int,
) -> tuple[Array, Array]:
    """Prune matrices of shape (blocks, inputs, outputs), and return them with their masks."""

    def one(of: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        dense, products, count = of
        damped = damped_moments(products, damping)
        # Weights of inputs that are always 0 count as 0, so that they go first; unless all inputs are.
        squares = jnp.diagonal(products)[:, None]
        read = jnp.where((squares > 0) | (squares.max() == 0), dense, 0)
        near, kept = _searched(read, damped, count, pattern, rounds)
        simple = [_largest(values, count, pattern) for values in (read, read * jnp.sqrt(squares))]

        def solved(of: tuple[Array, Array]) -> tuple[Array, Array]:
            made = conjugate_gradients(dense, of[0], damped, of[1], steps)
            change = dense - made
            return made, (change * jnp.matmul(damped, change, precision=lax.Precision.HIGHEST)).sum()

        masks = jnp.stack([kept, *simple])
        made, errors = lax.map(solved, (masks, jnp.stack([near, dense, dense])))
        best = jnp.argmin(errors)
        return made[best], masks[best]

    return lax.map(one, (weights, products, jnp.asarray(counts)))


class _State(NamedTuple):
    """The state of the search, in weights whose inputs are scaled.

    Attributes:
      sparse: z.
      dual: v.
      kept: the mask of z.
      rho: the weight of the distance between w and z.
      ended: whether the mask is found.
      rounds: the number of rounds so far.
    """

    sparse: Array
    dual: Array
    kept: Array
    rho: Array
    ended: Array
    rounds: Array


def _searched(
    weights: Array, damped: Array, count: Array, pattern: Pattern, rounds: int
) -> tuple[Array, Array]:
    """Return a matrix of shape (inputs, outputs) at the end of the search, and its mask."""
    scale = jnp.sqrt(jnp.sqrt(jnp.diagonal(damped)))[:, None]
    dense, scaled = weights * scale, damped / scale / scale.T
    product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    target = product(scaled, dense)
    values, basis = jnp.linalg.eigh(scaled)
    values = jnp.maximum(values, 0)  # but for rounding
    total = jnp.maximum(count if pattern is None else weights.size * pattern[0] // pattern[1], 1)
    mark = functools.partial(_largest, count=count, pattern=pattern)

    def one_round(state: _State) -> _State:
        rho = state.rho
        inverse = product(basis / (values + rho)[None], basis.T)

        def step(_: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            sparse, dual, _ = carry
            near = product(inverse, target - dual + rho * sparse)
            moved = near + dual / rho
            kept = mark(moved)
            sparse = jnp.where(kept, moved, 0)
            return sparse, rho * (moved - sparse), kept

        sparse, dual, kept = lax.fori_loop(0, _EACH, step, (state.sparse, state.dual, state.kept))
        change = (kept != state.kept).sum() / total
        faster = jnp.where(change > 0.1, 1.3, jnp.where(change > 0.005, 1.2, 1.1)).astype(rho.dtype)
        ended = (change == 0) | ((state.rounds >= _LEAST_ROUNDS) & (change < 0.0003))
        return _State(sparse, dual, kept, rho * faster, ended, state.rounds + 1)

    first = mark(dense)
    start = _State(
        sparse=jnp.where(first, dense, 0),
        dual=jnp.zeros_like(dense),
        kept=first,
        rho=jnp.full((), _RHO, dense.dtype),
        ended=jnp.zeros((), bool),
        rounds=jnp.zeros((), jnp.int32),
    )
    end = lax.while_loop(lambda state: ~state.ended & (state.rounds < rounds), one_round, start)
    return end.sparse / scale, end.kept


def _largest(values: Array, count: Array, pattern: Pattern) -> Array:
    """Mark the largest entries: so many of the matrix, or N of every M inputs of an output."""
    if pattern is None:
        return top_k(jnp.abs(values), count)
    n, m = pattern
    rows = jnp.abs(values).T.reshape(values.shape[1], -1, m)
    return largest_along(rows, n).reshape(values.shape[::-1]).T
