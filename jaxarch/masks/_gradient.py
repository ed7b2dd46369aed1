"""The two-temperature gradient, and the scores that it trains."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxarch._internal.errors import (
    ArgumentError,
    check_beside,
    check_leaves,
    check_one_key,
    check_positive,
    check_strength,
    is_traced,
    shown,
)
from jaxarch._internal.precision import at_least_float32, widened
from jaxarch._internal.trees import PyTree, check_floating, map_selected
from jaxarch.masks._sharding import beside, split_like


def two_temperature(scores: ArrayLike, hard: ArrayLike, soft: ArrayLike, *, factor: bool = True) -> Array:
    r"""Return a mask in (0, 1) with the value of a sharp sigmoid and the gradient of a soft one.

    The value is `v = sigma(hard * w)`, the derivative `soft * sigma(soft * w) * (1 - sigma(soft * w))`.
    Gradient descent on the scores is then [D] eq. (5), Algorithm 1, and [A] eq. (7). At `hard == soft` the
    mask is the ordinary sigmoid with its ordinary gradient.

    Both temperatures may be traced, so a grid of temperatures is one `vmap`. They receive no gradient. The
    function can be differentiated in either mode, any number of times: `jax.grad`, `jax.jvp`, `jax.jacfwd`,
    `jax.hessian`.

    Args:
      scores: floating-point array of any shape.
      hard: inverse temperature of the value, positive; broadcast against the scores.
      soft: inverse temperature of the gradient, positive, at most `hard`.
      factor: whether the derivative carries its factor `soft` ([A] eq. 7 and the appendix of [D]) or not
        ([A] eq. 15). [D] section 3 also prints it without, but that is not the derivative of the sigmoid.

    Returns:
      An array of the scores' shape and dtype. Infinite products take their limits: no score and no
      temperature makes the value or the gradient NaN. bfloat16 and float16 are computed in float32 inside.

    Raises:
      ArgumentError: scores that are not floating point; concrete temperatures that are not positive, or
        soft > hard. Traced temperatures are clipped to the positive finite range.

    Example:
      >>> import jax, jaxarch
      >>> print(jaxarch.masks.two_temperature(0.0, hard=40.0, soft=4.0))
      0.5
      >>> mask = jax.value_and_grad(jaxarch.masks.two_temperature)
      >>> for soft in (4.0, 40.0):  # at a score of 0, the slope of a sigmoid is soft / 4
      ...     print(*mask(0.0, hard=40.0, soft=soft))
      0.5 1.0
      0.5 10.0
    """
    scores, hard, soft = _checked(scores, hard, soft)
    return _two_temperature(scores, hard, soft, factor)


# custom_jvp, not custom_vjp, so that forward mode and higher derivatives work, too.
@partial(jax.custom_jvp, nondiff_argnums=(3,))
def _two_temperature(scores: Array, hard: Array, soft: Array, factor: bool) -> Array:
    return jax.nn.sigmoid(hard * widened(scores)).astype(scores.dtype)


@_two_temperature.defjvp
def _tangent(
    factor: bool, primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    scores, hard, soft = primals
    # The tangents of the temperatures are dropped: they receive no gradient, at any order.
    pace = slope(scores, jax.lax.stop_gradient(soft), factor)
    tangent = (pace * tangents[0].astype(pace.dtype)).astype(scores.dtype)
    # Return the function itself, so that the derivative of this value is the soft one again.
    return _two_temperature(scores, hard, soft, factor), tangent


def slope(scores: Array, soft: Array, factor: bool) -> Array:
    """Return the slope of the soft sigmoid, with its factor `soft` or without."""
    # The sigmoid at -|x| is at most 1/2. At large positive x, 1 - sigma(x) would round to 0.
    below = jax.nn.sigmoid(-jnp.abs(soft * widened(scores)))
    product = below * (1 - below)
    return soft * product if factor else product


def _checked(scores: ArrayLike, hard: ArrayLike, soft: ArrayLike) -> tuple[Array, Array, Array]:
    check_temperatures(hard, soft)
    try:
        scores = jnp.asarray(scores)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"scores: expected an array of numbers, got {shown(scores)}") from None
    check_floating("scores", scores)
    dtype = at_least_float32(scores.dtype)
    limits = jnp.finfo(dtype)

    shapes = np.shape(hard), np.shape(soft)
    try:
        fits = np.broadcast_shapes(scores.shape, *shapes) == scores.shape
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"hard: temperatures of shapes {shapes[0]} and {shapes[1]} do not fit scores of "
            f"shape {scores.shape}; for a grid of temperatures use vmap"
        )

    def clip(temperature: ArrayLike) -> Array:
        # An infinite temperature times a score of 0 would be NaN.
        return jnp.clip(jnp.asarray(temperature, dtype), limits.tiny, limits.max)

    return scores, clip(hard), clip(soft)


def check_temperatures(hard: ArrayLike, soft: ArrayLike) -> None:
    """Raise unless 0 < soft <= hard (up to rounding), where the temperatures are concrete.

    Example:
      >>> import jaxarch
      >>> jaxarch.masks.check_temperatures(hard=5.0, soft=50.0)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: soft: expected at most hard = 5.0 ..., got 50.0
    """
    check_positive("hard", hard)
    check_positive("soft", soft)
    if not is_traced((hard, soft)) and (np.asarray(soft) > np.asarray(hard) * (1 + 1e-6)).any():
        raise ArgumentError(
            f"soft: expected at most hard = {shown(hard)} (the gradient uses the flatter sigmoid), got "
            f"{shown(soft)}"
        )


def check_clip(clip: ArrayLike) -> None:
    """Raise unless `clip` is a number in (0, 1/2); traced values pass.

    Example:
      >>> import jaxarch
      >>> jaxarch.masks.check_clip(0.5)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
          ...
      jaxarch.ArgumentError: clip: expected a number in (0, 1/2), got 0.5
    """
    check_positive("clip", clip)
    if not is_traced(clip) and not (np.asarray(clip) < 0.5).all():
        raise ArgumentError(f"clip: expected a number in (0, 1/2), got {shown(clip)}")


def clip_scores(scores: PyTree, clip: ArrayLike, hard: ArrayLike) -> PyTree:
    r"""Clip scores to keep the mask `sigma(hard w)` in [eps, 1 - eps]: `|hard w| <= log((1 - eps)/eps)`.

    A clipped connection comes back sooner (docs/theory.md, `two-temperature.vertex-distance`). Full-gradient
    steps reach a mask that is nearly stationary (`two-temperature.clipped-descent`). To clip at every step of
    gradient descent, use `optim.clip_scores`.

    Args:
      scores: w, floating point; `None` for leaves that are not masked.
      clip: eps, in (0, 1/2). May be traced.
      hard: inverse temperature of the value, positive. May be traced.

    Returns:
      Scores in the structure and dtypes of the scores given.

    Raises:
      ArgumentError: a clip outside (0, 1/2), or a temperature that is not positive; scores that are not
        arrays of numbers, or to which `clip` or `hard` does not broadcast.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = jaxarch.masks.clip_scores({"w": jnp.array([-9.0, 0.5, 9.0])}, 0.25, hard=1.0)
      >>> print(jaxarch.masks.soft_mask(scores, hard=1.0, soft=1.0)["w"].round(2))
      [0.25 0.62 0.75]
    """
    check_clip(clip)
    check_positive("hard", hard)
    check_beside("clip", clip, scores)
    check_beside("hard", hard, scores)
    check_leaves("scores", scores, real=True)
    limit = _limit(clip, hard)
    return map_selected(lambda w: jnp.clip(w, -limit, limit).astype(w.dtype), scores)


def _limit(clip: ArrayLike, hard: ArrayLike) -> Array:
    eps = jnp.asarray(clip, at_least_float32(jnp.result_type(clip)))
    # `1 - eps` would round to 1 for a small eps; `log1p` keeps its digits.
    return (jnp.log1p(-eps) - jnp.log(eps)) / hard


def init_scores(
    key: Array,
    selection: PyTree,
    mean: ArrayLike = -10.0,
    std: ArrayLike = 5.0,
    hard: ArrayLike | None = None,
) -> PyTree:
    """Draw random scores from `N(mean, std)` for every selected leaf (`std` is the standard deviation).

    Args:
      key: a `jax.random.key`.
      selection: the leaves to mask (see `select`), or anything with their shapes.
      mean: mean of the scores.
      std: standard deviation of the scores, at least 0.
      hard: if given, `mean` and `std` are in units of `1/hard`. The distribution of the initial mask
        `sigma(hard * w)` is then the same at every temperature. If not given, they are absolute.

    Returns:
      Scores with the selection's structure and shapes, split over devices like its leaves. They are float32
      whatever the leaves' dtype: in bfloat16, most steps of a descent are less than half a digit, and are
      lost. The defaults with `hard=50` are N(-.2, .1): on non-negative inputs, scores around 0 saturate the
      network of [D] and leave no gradient at all.

    Raises:
      ArgumentError: a `key` that is not a random key; numbers that do not broadcast to the leaves, or a
        negative `std`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxarch
      >>> selection = jaxarch.select({"kernel": jnp.zeros((200, 300)), "bias": jnp.zeros(300)})
      >>> scores = jaxarch.masks.init_scores(jax.random.key(0), selection, hard=50.0)
      >>> print(scores["bias"], f"{scores['kernel'].mean():.1f} {scores['kernel'].std():.1f}")
      None -0.2 0.1
    """
    check_one_key(key)
    check_strength("std", std)
    for name, number in {"mean": mean, "std": std, "hard": 1.0 if hard is None else hard}.items():
        check_beside(name, number, selection)
    unit = 1.0 if hard is None else 1.0 / jnp.asarray(hard, jnp.float32)
    leaves, treedef = jax.tree.flatten(selection)
    keys = jax.random.split(key, len(leaves))

    def normal(key: Array, leaf: Any) -> Array:
        return jax.random.normal(key, jnp.shape(leaf), jnp.float32)

    drawn = [
        beside(leaf, split_like(leaf, jnp.asarray((mean + std * normal(k, leaf)) * unit, jnp.float32)))
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, drawn)


def soft_mask(scores: PyTree, hard: ArrayLike, soft: ArrayLike, *, factor: bool = True) -> PyTree:
    """Return the mask in (0, 1) that training multiplies with the weights: `two_temperature`, leaf by leaf.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> scores = {"kernel": jnp.array([-0.1, 0.0, 0.1]), "bias": None}
      >>> [f"{v:.2f}" for v in jaxarch.masks.soft_mask(scores, hard=50.0, soft=5.0)["kernel"]]
      ['0.01', '0.50', '0.99']
    """
    return map_selected(lambda w: two_temperature(w, hard, soft, factor=factor), scores)


def hard_mask(scores: PyTree) -> PyTree:
    """Return the architecture: `1[w > 0]`, as booleans ([A] section 2.3; the limit of `sigma(M w)`).

    [D] footnote 3 keeps a connection whose score is exactly 0; this library, like [A], prunes it.

    Raises:
      ArgumentError: scores that are not arrays of numbers.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> jaxarch.masks.hard_mask({"kernel": jnp.array([-0.1, 0.0, 0.1]), "bias": None})
      {'bias': None, 'kernel': Array([False, False,  True], dtype=bool)}
    """
    check_leaves("scores", scores)
    return map_selected(lambda w: w > 0, scores)


def penalty(scores: PyTree, weights: PyTree, strength: ArrayLike = 1.0) -> Array:
    r"""Return the penalty that [A] adds to the loss to remove connections, equation (18).

    It is `gamma sum ((1 + w)^2 + theta^2)`. As a sum over connections it grows with the size of the network.
    It pulls every score to -1.

    Args:
      scores: w, floating point.
      weights: theta, the weights of the scored leaves, in the structure of the scores.
      strength: gamma, at least 0; may be traced.

    Returns:
      A scalar.

    Raises:
      ArgumentError: a strength that is negative or not finite; scores or weights that are not arrays.

    Example:
      >>> import jax.numpy as jnp, jaxarch
      >>> print(jaxarch.masks.penalty({"a": jnp.array([1.0, -1.0])}, {"a": jnp.array([2.0, 3.0])}, 0.5))
      8.5
    """
    check_strength("strength", strength)
    check_beside("strength", strength, ())
    check_leaves("scores", scores)
    check_leaves("weights", weights)
    squares = [jnp.sum(jnp.square(1 + widened(leaf))) for leaf in jax.tree.leaves(scores)]
    squares += [jnp.sum(jnp.square(widened(leaf))) for leaf in jax.tree.leaves(weights)]
    return jnp.asarray(strength) * jnp.sum(jnp.stack(squares))
