"""Operations of random programs, each with leaves in some layout, for `random_programs.py`.

An operation `(draw, h) -> array` draws all that it decides from `draw`. It never looks at the first axis, the
axis of examples, so that a program computes the same with any number of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

SIZES = (2, 3, 4, 6, 8)


class Draw:
    """The decisions of a program, and its leaves.

    Attributes:
      rng: draws the decisions of the next operation.
      params: the leaves; if none are given, they are made.
      pool: the values so far.
      differentiable: whether the program has a gradient in reverse.
    """

    def __init__(self, seed: int, params: dict[str, Any] | None = None) -> None:
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.making, self.params = params is None, {} if params is None else params
        self.count, self.differentiable = 0, True
        self.pool: list[Array] = []

    def chance(self, p: float = 0.5) -> bool:
        """Return true with a probability."""
        return bool(self.rng.random() < p)

    def one(self, options: Sequence[Any]) -> Any:
        """Return one of some options."""
        return options[self.rng.integers(len(options))]

    def size(self) -> int:
        """Return a number of units."""
        return int(self.one(SIZES))

    def leaf(self, *shape: int, fan: int = 1, like: Callable[..., Any] | None = None) -> Array:
        """Return the next leaf: normal numbers for `fan` inputs, or `like(rng, shape)`."""
        name = f"{self.count:02d}"
        self.count += 1
        if self.making:
            draws = np.random.default_rng([self.seed, self.count])
            normal = like or (lambda rng, shape: rng.normal(size=shape) / max(fan, 1) ** 0.5)
            self.params[name] = np.asarray(normal(draws, shape))
        return jnp.asarray(self.params[name])

    def axis(self, h: Array) -> int:
        """Return an axis other than the examples, mostly the last."""
        return h.ndim - 1 if self.chance(0.4) else int(self.rng.integers(1, h.ndim))

    def other(self, h: Array) -> Array:
        """Return an earlier value of the same shape, if there is one."""
        alike = [o for o in self.pool if o.shape[1:] == h.shape[1:]]
        return self.one(alike) if alike else h


def linear(d: Draw, h: Array) -> Array:
    n, axis = d.size(), h.shape[-1]
    way = d.rng.integers(4)
    if way == 0:
        h = h @ d.leaf(axis, n, fan=axis)
    elif way == 1:
        h = h @ d.leaf(n, axis, fan=axis).T
    elif way == 2:
        h = jnp.einsum("...i,oi->...o", h, d.leaf(n, axis, fan=axis))
    else:
        h = lax.dot_general(h, d.leaf(1, axis, n, fan=axis)[0], (((h.ndim - 1,), (0,)), ((), ())))
    return h + d.leaf(n) if d.chance(0.6) else h


def along(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = d.size()
    h = jnp.tensordot(h, d.leaf(h.shape[axis], n, fan=h.shape[axis]), ((axis,), (0,)))
    return h if d.chance() else jnp.moveaxis(h, -1, axis)


def two_axes(d: Draw, h: Array) -> Array:
    if h.ndim < 3:
        return linear(d, h)
    a, b, n = h.shape[-2], h.shape[-1], d.size()
    return jnp.einsum("...ab,abn->...n", h, d.leaf(a, b, n, fan=a * b))


def into_heads(d: Draw, h: Array) -> Array:
    a, b = d.one((2, 3)), d.one((2, 3))
    return jnp.einsum("...i,iab->...ab", h, d.leaf(h.shape[-1], a, b, fan=h.shape[-1]))


def low_rank(d: Draw, h: Array) -> Array:
    r, n = d.size(), d.size()
    return h @ (d.leaf(h.shape[-1], r, fan=h.shape[-1]) @ d.leaf(r, n, fan=r))


def masked_weight(d: Draw, h: Array) -> Array:
    n, i = d.size(), h.shape[-1]
    mask = d.rng.random((i, n)) < 0.6
    if d.chance(0.4):
        mask = d.leaf(i, n, like=lambda r, s: r.random(s) < 0.6)
    return h @ (d.leaf(i, n, fan=i) * mask)


def weight_norm(d: Draw, h: Array) -> Array:
    n, i = d.size(), h.shape[-1]
    w = d.leaf(i, n, fan=i)
    return h @ (w / jnp.sqrt((w * w).sum(d.one((0, 1, None)), keepdims=True) + 0.1) * d.leaf(n))


def tied(d: Draw, h: Array) -> Array:
    w = d.leaf(h.shape[-1], d.size(), fan=h.shape[-1])
    return jnp.tanh(h @ w) @ w.T


def twice(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    w = d.leaf(n, n, fan=n)
    return jnp.tanh(h @ w) @ w


def affine(d: Draw, h: Array) -> Array:
    scale = d.leaf(h.shape[-1])
    return h * scale + d.leaf(h.shape[-1]) if d.chance() else h + d.leaf(*h.shape[1:])


ACTIVATIONS = (
    jax.nn.relu, jax.nn.gelu, jax.nn.silu, jnp.tanh, jax.nn.elu, jax.nn.softplus, jnp.square, jnp.abs,
    jax.nn.sigmoid, jax.nn.leaky_relu, jax.nn.relu6, jnp.sin, lambda h: jnp.clip(h, -0.5, 0.5),
    lambda h: jnp.maximum(h, 0.0), lambda h: jnp.where(h > 0, h, 0.1 * h), jnp.expm1, jnp.sign,
    lambda h: jnp.sqrt(jnp.abs(h) + 0.1), lambda h: 1 / (1 + h * h), jnp.round,
    lambda h: lax.integer_pow(h, 3),
    lambda h: jnp.minimum(h, 0.2), jax.nn.hard_tanh, lambda h: jnp.log1p(jnp.abs(h)), jnp.floor,
    lambda h: jnp.remainder(h, 1.0), jax.nn.swish, jax.nn.celu, lambda h: jnp.arctan2(h, 1.0 + h * h),
)  # fmt: skip


def activation(d: Draw, h: Array) -> Array:
    return d.one(ACTIVATIONS)(h)


def softmax(d: Draw, h: Array) -> Array:
    return d.one((jax.nn.softmax, jax.nn.log_softmax, partial(jax.nn.standardize, epsilon=0.1)))(
        h, axis=d.axis(h)
    )


def norm(d: Draw, h: Array) -> Array:
    axis = d.one((-1, -1, d.axis(h), tuple(range(1, h.ndim))))
    if d.chance(0.6):
        h = h - h.mean(axis, keepdims=True)
    h = h / jnp.sqrt((h * h).mean(axis, keepdims=True) + 0.1)
    return h * d.leaf(h.shape[-1]) if d.chance(0.7) else h


def group_norm(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    if n % 2:
        return h
    g = h.reshape(*h.shape[:-1], 2, n // 2) if d.chance() else h.reshape(*h.shape[:-1], n // 2, 2)
    g = g / jnp.sqrt((g * g).mean(-1, keepdims=True) + 0.1)
    return g.reshape(h.shape) * d.leaf(n)


def residual(d: Draw, h: Array) -> Array:
    other = d.other(h)
    return d.one(
        (
            lambda a, b: a + b,
            lambda a, b: a - b,
            lambda a, b: a * jax.nn.sigmoid(b),
            jnp.maximum,
            lambda a, b: jnp.where(a > b, a, b),
            lambda a, b: lax.select(a < b, a, b),
        )
    )(h, other)


def block(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    inner = d.one((jax.nn.relu, jnp.tanh))(h @ d.leaf(n, m, fan=n) + d.leaf(m))
    return h + inner @ d.leaf(m, n, fan=m)


def outer_broadcast(d: Draw, h: Array) -> Array:
    if h.ndim > 3:
        return h
    n = d.size()
    return h[..., None] * d.leaf(n) if d.chance() else h[..., None, :] + d.leaf(n, 1)


def concat(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    fits = [
        o
        for o in d.pool
        if o.ndim == h.ndim and all(i in (axis, 0) or o.shape[i] == h.shape[i] for i in range(h.ndim))
    ]
    parts = [h, d.one(fits) if fits else h]
    if d.chance(0.2):
        parts.append(h[tuple(slice(0, 0) if i == axis else slice(None) for i in range(h.ndim))])
    if d.chance(0.3):
        parts = parts[::-1]
    return jnp.concatenate(parts, axis)


def split(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    if n % 2 == 0 and d.chance():
        a, b = jnp.split(h, 2, axis)
        return d.one(
            (lambda: a * jax.nn.sigmoid(b), lambda: jnp.concatenate([b, a], axis), lambda: a + b, lambda: a)
        )()
    at = int(d.rng.integers(1, n)) if n > 1 else 1
    a, b = jnp.split(h, [at], axis)
    return d.one(
        (lambda: jnp.concatenate([jnp.tanh(a), b], axis), lambda: jnp.concatenate([b, a], axis), lambda: a)
    )()


def cut_out(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    start = int(d.rng.integers(0, n))
    stop = int(d.rng.integers(start + 1, n + 1))
    return lax.slice_in_dim(h, start, stop, d.one((1, 1, 2)), axis)


def merge_axes(d: Draw, h: Array) -> Array:
    if h.ndim < 3:
        return h
    at = int(d.rng.integers(1, h.ndim - 1))
    return h.reshape(*h.shape[:at], h.shape[at] * h.shape[at + 1], *h.shape[at + 2 :])


def split_axis(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    parts = [p for p in range(2, n) if n % p == 0]
    if not parts or h.ndim > 4:
        return h
    p = int(d.one(parts))
    return h.reshape(*h.shape[:axis], p, n // p, *h.shape[axis + 1 :])


def reshape_any(d: Draw, h: Array) -> Array:
    n = int(np.prod(h.shape[1:]))
    parts = [p for p in range(1, n + 1) if n % p == 0]
    p = int(d.one(parts))
    return h.reshape(-1, p, n // p) if n else h


def transpose(d: Draw, h: Array) -> Array:
    order = [0, *(1 + d.rng.permutation(h.ndim - 1))]
    return h.transpose([int(i) for i in order])


def shuffle(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    if n % 2:
        return h
    g = 2 if d.chance() else n // 2
    return jnp.swapaxes(h.reshape(*h.shape[:-1], g, n // g), -1, -2).reshape(h.shape)


def pad(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    config = [(0, 0, 0)] * h.ndim
    config[axis] = d.one(((1, 0, 0), (0, 2, 0), (1, 1, 0), (0, 0, 1), (-1, 1, 0)))
    return lax.pad(h, jnp.asarray(d.one((0.0, 0.5)), h.dtype), config)


def where(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    return d.one((
        lambda: jnp.where(h > d.leaf(n), h, 0.0),
        lambda: jnp.where(jnp.arange(n) % 2 == 0, h, -h),
        lambda: jnp.where(d.leaf(n, like=lambda r, s: r.random(s) < 0.5), h, 0.0),
        lambda: (h > d.leaf(n)).astype(h.dtype) + h,
        lambda: jnp.where(jnp.ones((n, n)).cumsum(0)[0] > 0, h, 1.0),
        lambda: (h >= 0) * d.leaf(n),
        lambda: jnp.where(d.leaf(n) == 0, 0.0, h),
    ))()  # fmt: skip


def reduce(d: Draw, h: Array) -> Array:
    axis, keep = d.axis(h), d.chance(0.3)
    if h.ndim < 3 and not keep:
        return h
    if d.chance(0.1):
        h = jnp.tanh(h)
        return jnp.prod(h, axis, keepdims=keep)
    how = d.one((jnp.sum, jnp.mean, jnp.max, jnp.min, jax.nn.logsumexp, jnp.var, jnp.median, jnp.linalg.norm))
    made = how(h, axis=axis, keepdims=keep)
    return h * made if keep and d.chance() else made


def cumulate(d: Draw, h: Array) -> Array:
    return d.one((jnp.cumsum, jnp.cumprod, lax.cummax, lax.cumlogsumexp, lax.cummin))(
        jnp.tanh(h), axis=d.axis(h)
    )


def order(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    return d.one((
        lambda: jnp.sort(h, axis),
        lambda: jnp.moveaxis(lax.top_k(jnp.moveaxis(h, axis, -1), max(1, n // 2))[0], -1, axis),
        lambda: jax.nn.one_hot(jnp.argmax(h, axis), n, axis=axis) * h,
        lambda: jnp.take_along_axis(h, jnp.argsort(h, axis), axis),
        lambda: (h >= jnp.median(h, axis, keepdims=True)) * h,
        lambda: jax.nn.one_hot(jnp.argmax(h, axis), n, dtype=h.dtype),
        lambda: jnp.where(h == h.max(axis, keepdims=True), h, 0.0),
    ))()  # fmt: skip


def embed(d: Draw, h: Array) -> Array:
    rows, n = d.size(), d.size()
    table = d.leaf(rows, n)
    at = jnp.clip(jnp.floor(jnp.abs(h.sum(-1)) * 3), 0, rows - 1).astype(jnp.int32)
    made = d.one(
        (
            lambda: table[at],
            lambda: jnp.take(table, at, axis=0, mode="clip"),
            lambda: jax.nn.one_hot(at, rows) @ table,
            lambda: jnp.take(table, at, axis=0),
        )
    )()
    return made @ table.T if d.chance(0.3) else made


def gather(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    m = d.size()
    at = d.rng.integers(0, n, m)
    if d.chance(0.4):
        at = d.leaf(m, like=lambda r, s: r.integers(0, n, s))
    if d.chance(0.2):
        return jnp.take(h, jnp.sort(jnp.asarray(at)), axis=axis, indices_are_sorted=True)
    return jnp.take(h, jnp.asarray(at), axis=axis)


def scatter(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    first = jnp.moveaxis(h, axis, 1)
    at = jnp.asarray(d.rng.integers(0, n, 2))
    made = d.one((
        lambda: first.at[:, at].add(first[:, :1]),
        lambda: first.at[:, at].set(0.5),
        lambda: first.at[:, 0].multiply(d.leaf(*first.shape[2:])),
        lambda: first.at[:, at].max(0.1),
        lambda: first.at[:, :1].set(first[:, -1:]),
        lambda: first.at[:, d.leaf(2, like=lambda r, s: r.integers(0, n, s))].add(1.0),
    ))()  # fmt: skip
    return jnp.moveaxis(made, 1, axis)


def segments(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    rows = jnp.moveaxis(h, axis, 0)
    of = jnp.asarray(d.rng.integers(0, 3, n))
    if d.chance(0.3):
        of = d.leaf(n, like=lambda r, s: r.integers(0, 3, s))
    how = d.one((jax.ops.segment_sum, jax.ops.segment_sum, jax.ops.segment_max))
    made = how(rows, of, 3)
    return jnp.moveaxis(jnp.where(jnp.isfinite(made), made, 0.0), 0, axis)


def dynamic(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    n = h.shape[axis]
    m = int(d.rng.integers(1, n + 1))
    start = d.one((jnp.int32(0), d.leaf(like=lambda r, s: r.integers(0, 2, s)), jnp.argmax(h.ravel()[:3])))
    part = lax.dynamic_slice_in_dim(h, start, m, axis)
    return part if d.chance() else lax.dynamic_update_slice_in_dim(h, jnp.tanh(part), start, axis)


def pool(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    window, strides = [1] * h.ndim, [1] * h.ndim
    window[axis], strides[axis] = 2, d.one((1, 2))
    pads = d.one(("VALID", "SAME"))
    if pads == "VALID" and h.shape[axis] < 2:
        return h
    return d.one((
        lambda: lax.reduce_window(h, -jnp.inf, lax.max, window, strides, pads),
        lambda: lax.reduce_window(h, 0.0, lax.add, window, strides, pads) / 2,
        lambda: lax.reduce_window(h, jnp.inf, lax.min, window, strides, pads),
    ))()  # fmt: skip


def fourier(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    return d.one((
        lambda: jnp.abs(jnp.fft.fft(h, axis=axis)),
        lambda: jnp.fft.rfft(h, axis=axis).real,
        lambda: jnp.fft.irfft(jnp.fft.rfft(h, axis=axis) * 0.5, n=h.shape[axis], axis=axis),
    ))()  # fmt: skip


def rnn(d: Draw, h: Array) -> Array:
    if h.ndim != 3:
        return stacked(d, h)
    n, m = h.shape[-1], d.size()
    a, b, c = d.leaf(n, m, fan=n), d.leaf(m, m, fan=m), d.leaf(m)
    start = d.one(
        (jnp.zeros((h.shape[0], m), h.dtype), jnp.broadcast_to(d.leaf(m), (h.shape[0], m)).astype(h.dtype))
    )

    def step(carry, row):
        after = jnp.tanh(row @ a + carry @ b + c)
        return after, after

    last, rows = lax.scan(step, start, jnp.swapaxes(h, 0, 1), reverse=d.chance(0.3))
    return last if d.chance() else jnp.swapaxes(rows, 0, 1)


def stacked(d: Draw, h: Array) -> Array:
    layers, n, m = 2, h.shape[-1], d.size()
    leaves = d.leaf(layers, n, m, fan=n), d.leaf(layers, m), d.leaf(layers, m, n, fan=m)
    gains = jnp.ones((layers, m)) * 0.5 if d.chance() else d.leaf(layers, m)
    way = d.rng.integers(4)

    def layer(h, leaves):
        a, b, c, gain = leaves
        return h + (jax.nn.relu(h @ a + b) * gain) @ c

    leaves = (*leaves, gains)
    if way == 0:
        return lax.scan(lambda h, row: (layer(h, row), None), h, leaves)[0]
    if way == 1:
        return jax.vmap(layer, (None, 0))(h, leaves).sum(0)
    if way == 2:
        for i in range(layers):
            h = layer(h, jax.tree.map(lambda leaf, i=i: leaf[i], leaves))
        return h
    return lax.fori_loop(0, layers, lambda i, h: layer(h, jax.tree.map(lambda leaf: leaf[i], leaves)), h)


def mapped(d: Draw, h: Array) -> Array:
    w = d.leaf(h.shape[-1], d.size(), fan=h.shape[-1])
    if h.ndim < 3:
        return lax.map(lambda row: jnp.tanh(row @ w), h)
    return jnp.moveaxis(lax.map(lambda row: jnp.tanh(row @ w), jnp.moveaxis(h, 1, 0)), 0, 1)


def loop(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    w = d.leaf(n, n, fan=n)
    if d.chance():
        return lax.fori_loop(0, 2, lambda i, h: jnp.tanh(h @ w) + h, h)
    d.differentiable = False
    b = d.leaf(n)
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w + b)), (0, h))[1]


def branch(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    a, b = d.leaf(n, m, fan=n), d.leaf(n, m, fan=n)
    cases = [lambda h: h @ a, lambda h: jax.nn.relu(h @ b), lambda h: jnp.zeros((*h.shape[:-1], m), h.dtype)]
    which = d.one(
        (jnp.int32(1), (h.ravel()[0] > 0).astype(jnp.int32), d.leaf(like=lambda r, s: r.integers(0, 3, s)))
    )
    return lax.switch(which, cases if d.chance() else cases[:2], h)


@jax.custom_jvp
def steps(h):
    return jnp.round(h * 4) / 4


@steps.defjvp
def _(primals, tangents):
    return steps(primals[0]), tangents[0] * 0.7


@jax.custom_vjp
def scaled(h, w):
    return jnp.tanh(h) * w


scaled.defvjp(
    lambda h, w: (scaled(h, w), (h, w)),
    lambda rest, g: (g * rest[1] * 0.5, (g * jnp.tanh(rest[0])).sum(tuple(range(g.ndim - 1)))),
)


def custom(d: Draw, h: Array) -> Array:
    return steps(h) if d.chance() else scaled(h, d.leaf(h.shape[-1]))


def remat(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    return jax.checkpoint(lambda h, a, b: jnp.tanh(h @ a) @ b)(h, d.leaf(n, m, fan=n), d.leaf(m, n, fan=m))


def ragged(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    rows = h.reshape(-1, n)
    count = jnp.int32(rows.shape[0])
    sizes = jnp.stack([count // 2, count - count // 2]).astype(jnp.int32)
    return lax.ragged_dot(rows, d.leaf(2, n, m, fan=n), sizes).reshape(*h.shape[:-1], m)


def repeat(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    reps = [1] * h.ndim
    reps[axis] = 2
    return d.one(
        (
            lambda: jnp.tile(h, reps),
            lambda: jnp.repeat(h, 2, axis),
            lambda: lax.tile(h, reps) if hasattr(lax, "tile") else jnp.tile(h, reps),
        )
    )()


def turn(d: Draw, h: Array) -> Array:
    axis = d.axis(h)
    return d.one((lambda: jnp.flip(h, axis), lambda: jnp.roll(h, 1, axis), lambda: h[:, ::-1]))()


def solve(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    w = d.leaf(n, n, fan=n) * 0.3 + 2 * jnp.eye(n)
    if d.chance():
        return jax.scipy.linalg.solve_triangular(w, h.reshape(-1, n).T, lower=True).T.reshape(h.shape)
    return jnp.linalg.solve(w, h.reshape(-1, n).T).T.reshape(h.shape)


def complicated(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    w = lax.complex(d.leaf(n, m, fan=n), d.leaf(n, m, fan=n))
    z = h @ w
    return d.one(
        (
            lambda: jnp.abs(z),
            lambda: z.real * z.imag,
            lambda: (z * jnp.conj(z)).real,
            lambda: (z * jnp.exp(1j * d.leaf(m))).real,
        )
    )()


def integers(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    w = d.leaf(n, m, like=lambda r, s: r.integers(-3, 4, s))
    return d.one(
        (
            lambda: h @ (w * 0.2),
            lambda: h @ w.astype(h.dtype) * 0.2,
            lambda: (jnp.round(h * 3).astype(jnp.int32) @ w.astype(jnp.int32)).astype(h.dtype) * 0.1,
        )
    )()


def half(d: Draw, h: Array) -> Array:
    return (
        h.astype(d.one((jnp.bfloat16, jnp.float16))).astype(h.dtype) if d.chance() else lax.stop_gradient(h)
    )


def attention(d: Draw, h: Array) -> Array:
    if h.ndim != 3:
        return two_axes(d, h)
    n, heads, size = h.shape[-1], d.one((2, 3)), d.one((2, 3))
    if d.chance():
        q, k, v = (jnp.einsum("bti,ihd->bthd", h, d.leaf(n, heads, size, fan=n)) for _ in range(3))
    else:
        both = h @ d.leaf(n, 3 * heads * size, fan=n)
        q, k, v = jnp.moveaxis(both.reshape(*h.shape[:2], 3, heads, size), 2, 0)
    if d.chance(0.4):
        k, v = (each[:, :, :1] for each in (k, v))
        q = q.reshape(*q.shape[:2], heads, size)
        k, v = (jnp.repeat(each, heads, 2) for each in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    if d.chance(0.4):
        t = h.shape[1]
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    if d.chance(0.3):
        scores = scores + jnp.ones((2, heads))[d.rng.integers(2), :, None, None]
    out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    if d.chance(0.3):
        return out
    out = out.reshape(*h.shape[:2], heads * size)
    return out @ d.leaf(heads * size, n, fan=heads * size) if d.chance(0.7) else out


def conv(d: Draw, h: Array) -> Array:
    if h.ndim not in (3, 4):
        return linear(d, h)
    spatial, c = h.ndim - 2, h.shape[-1]
    groups = int(d.one([g for g in range(1, c + 1) if c % g == 0]))
    o = groups * int(d.one((1, 2, 3)))
    window = [d.one((1, 2, 3)) for _ in range(spatial)]
    letters = "HW"[:spatial]
    kernel = d.one((f"{letters}IO", f"OI{letters}"))
    shape = {
        "I": (c // groups,),
        "O": (o,),
        **{letter: (size,) for letter, size in zip(letters, window, strict=True)},
    }
    w = d.leaf(
        *itertools.chain(*(shape[letter] for letter in kernel)), fan=c // groups * int(np.prod(window))
    )
    numbers = (f"N{letters}C", kernel, f"N{letters}C")
    if d.chance(0.2) and groups == 1:
        return lax.conv_transpose(h, w, [2] * spatial, "SAME", dimension_numbers=numbers)
    strides = [d.one((1, 1, 2))] * spatial
    made = lax.conv_general_dilated(
        h,
        w,
        strides,
        d.one(("SAME", "SAME", [(1, 2)] * spatial)),
        rhs_dilation=[d.one((1, 1, 2))] * spatial,
        feature_group_count=groups,
        dimension_numbers=numbers,
    )
    return made + d.leaf(o) if d.chance() else made


def experts(d: Draw, h: Array) -> Array:
    n, e, m = h.shape[-1], 3, d.size()
    gate = jax.nn.softmax(h @ d.leaf(n, e, fan=n))
    if d.chance():
        top, at = lax.top_k(gate, 2)
        gate = jnp.sum(jax.nn.one_hot(at, e) * top[..., None], -2)
    each = jax.nn.relu(jnp.einsum("...i,eim->...em", h, d.leaf(e, n, m, fan=n)))
    return jnp.einsum("...e,...em->...m", gate, each)


def stack(d: Draw, h: Array) -> Array:
    other = d.other(h)
    axis = d.axis(h)
    both = jnp.stack([h, jnp.tanh(other)], axis)
    if d.chance() and h.ndim < 4:
        return both
    a, b = (lax.index_in_dim(both, i, axis, keepdims=False) for i in range(2))
    return a * 0.5 + b


def single(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    return d.one((
        lambda: jnp.tanh(h @ d.leaf(n, 1, fan=n)) * d.leaf(n),
        lambda: h[..., None, :].squeeze(-2) * d.leaf(1),
        lambda: h + d.leaf(1, n),
        lambda: jnp.concatenate([h, jnp.zeros((*h.shape[:-1], 0))], -1) + d.leaf(0).sum(),
        lambda: h + jnp.zeros((*h.shape[:-1], 0)) @ d.leaf(0, n),
        lambda: h[:, :, None].reshape(h.shape) * d.leaf(n),
    ))()  # fmt: skip


def constants(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    return d.one((
        lambda: h + jnp.arange(n) * 0.1,
        lambda: h * jax.random.normal(jax.random.key(3), (n,)),
        lambda: h @ jnp.asarray(d.rng.normal(size=(n, n)) / n**0.5),
        lambda: h * jnp.linspace(0.5, 1.5, n) + jnp.eye(n).sum(0),
        lambda: h * jnp.tril(jnp.ones((n, n)))[n // 2] + h,
        lambda: h * jnp.asarray(np.ones((2, n)))[0] + h * jnp.asarray(np.ones((2, n)))[1],
        lambda: h.at[..., 0].set(0.0) if n > 1 else h,
    ))()  # fmt: skip


def statistics(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    return d.one((
        lambda: h - d.leaf(n).mean(),
        lambda: h * (d.leaf(n) ** 2).sum(),
        lambda: h @ (lambda w: w * jax.nn.softmax(w, d.one((0, 1))))(d.leaf(n, n, fan=n)),
        lambda: h * d.leaf(n).max(),
        lambda: h @ (lambda w: w / (jnp.abs(w).max() + 0.1))(d.leaf(n, n)),
        lambda: h @ jnp.where(jnp.abs(w := d.leaf(n, n)) >= jnp.median(jnp.abs(w)), w, 0.0),
        lambda: h * jnp.sort(d.leaf(n)),
        lambda: h @ jnp.outer(d.leaf(n), d.leaf(n)),
        lambda: h + d.leaf(n) * jnp.roll(d.leaf(n), 1),
        lambda: h @ jnp.kron(jnp.eye(1), d.leaf(n, n, fan=n)),
        lambda: h @ (lambda w: w - w.T)(d.leaf(n, n, fan=n)),
        lambda: h * jnp.diag(d.leaf(n, n)),
        lambda: h @ jnp.diag(d.leaf(n)),
        lambda: h * jnp.cumsum(jax.nn.softmax(d.leaf(n))),
    ))()  # fmt: skip


def derived(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    w = d.leaf(n, m, fan=n)

    def energy(h):
        return d.one((jnp.sum, lambda z: jnp.max(z, -1).sum(), lambda z: jax.nn.logsumexp(z, -1).sum()))(
            jnp.tanh(h @ w)
        )

    way = d.rng.integers(3)
    if way == 0:
        return h - 0.1 * jax.grad(energy)(h)
    if way == 1:
        return jax.jvp(lambda h: jnp.tanh(h @ w), (h,), (jnp.ones_like(h) * d.leaf(n),))[1]
    return h - jax.vmap(jax.grad(lambda row: jax.nn.softplus(row @ w).sum()))(h)


def rare(d: Draw, h: Array) -> Array:
    n, m = h.shape[-1], d.size()
    key = jax.random.key(1)
    flat = h.reshape(-1)
    return d.one((
        lambda: h[..., 1:] + h[..., :-1] if n > 1 else h,
        lambda: jnp.diff(h, axis=d.axis(h)),
        lambda: lax.associative_scan(jnp.add, h, axis=d.axis(h)),
        lambda: jnp.abs(h[..., :, None] - h[..., None, :]).sum(-1),
        lambda: h @ (d.leaf(n, n, fan=n) * jnp.triu(jnp.ones((n, n)))),
        lambda: h * d.leaf(n)[jnp.arange(n)],
        lambda: h * d.leaf(n)[jnp.argsort(d.leaf(n))],
        lambda: jnp.zeros_like(h).at[..., jnp.arange(n)].add(h),
        lambda: flat.reshape(h.shape) + flat.sum(),
        lambda: flat.reshape(h.shape[::-1]).T if h.ndim == 2 else h,
        lambda: h * jax.random.bernoulli(key, 0.5, (n,)),
        lambda: h * jax.random.bernoulli(key, 0.5, h.shape[1:]),
        lambda: jax.random.permutation(key, h, axis=d.axis(h)),
        lambda: jnp.repeat(h, jnp.asarray(d.rng.integers(0, 3, n)), axis=-1, total_repeat_length=n),
        lambda: jnp.quantile(h, 0.3, axis=-1, keepdims=True) * h,
        lambda: h @ jnp.corrcoef(d.leaf(n, 5)) if n > 1 else h,
        lambda: jnp.nan_to_num(h) * jnp.nanmean(h, d.axis(h), keepdims=True),
        lambda: jax.vmap(lambda row, w: row @ w, (-1, 0), -1)(h[..., None] * d.leaf(m), d.leaf(m, n, fan=n)),
        lambda: jnp.einsum("...u,um->...um", h, d.leaf(n, m)).sum(-1),
        lambda: jnp.convolve(flat, d.leaf(3), "same").reshape(h.shape),
        lambda: h if n < 3 else jax.vmap(lambda row: jnp.convolve(row, BLUR, "same"))(
            h.reshape(-1, n)).reshape(h.shape),
        lambda: lax.reduce(h, jnp.zeros((), h.dtype), lax.add, (h.ndim - 1,))[..., None] * d.leaf(n),
        lambda: jax.vmap(lambda row, at: lax.dynamic_slice_in_dim(row, at, 1, 0) * row)(
            h, jnp.clip(jnp.round(h.reshape(h.shape[0], -1)[:, 0]), 0, 1).astype(int)),
        lambda: jnp.take_along_axis(h, jnp.zeros((*h.shape[:-1], 2), int), -1),
        lambda: jnp.select([h > 1, h < -1], [h * 0.5, d.leaf(n) * h], h * h),
        lambda: jax.vmap(lambda row: lax.cond(row.sum() > 0, jnp.tanh, jnp.negative, row))(h) * d.leaf(n),
        lambda: lax.scan(lambda c, _: ((c[1], jnp.tanh(c[0])), None), (h * d.leaf(n), h), None, 3)[0][0],
        lambda: lax.scan(lambda c, _: (jnp.roll(c, 1, -1), None), h * d.leaf(n), None, 2)[0],
        lambda: jnp.moveaxis(
            lax.scan(lambda c, u: (c + u, c * u), jnp.zeros_like(h[..., 0]), jnp.moveaxis(h, -1, 0))[1], 0, -1
        ),
        lambda: lax.map(lambda w: (h @ w).sum(-1), d.leaf(2, n, m, fan=n)).sum(0)[..., None] * d.leaf(m),
        lambda: jnp.kron(d.leaf(2), jnp.ones(n)) * jnp.concatenate([h, h], -1),
        lambda: h @ jnp.linalg.inv(d.leaf(n, n) * 0.2 + 2 * jnp.eye(n)),
        lambda: h @ jax.scipy.linalg.block_diag(d.leaf(n, 2, fan=n)),
        lambda: h @ jnp.linalg.qr(d.leaf(n, n))[0],
        lambda: h * jnp.polyval(d.leaf(3), h),
        lambda: jnp.where(jnp.isin(jnp.arange(n), jnp.array([0, 2])), h, 0.5 * h),
        lambda: h + jnp.tile(d.leaf(n // 2), 2) if n % 2 == 0 else h,
        lambda: h + jnp.repeat(d.leaf(n // 2), 2) if n % 2 == 0 else h,
        lambda: h * jnp.zeros((n, 0)).sum(1) + h,
        lambda: lax.conv_general_dilated_patches(
            h, (2,), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        if h.ndim == 3 else h,
        lambda: lax.dynamic_slice_in_dim(h, d.leaf(like=lambda r, s: r.integers(0, 2, s)), n, h.ndim - 1),
        lambda: jnp.cumsum(d.leaf(n))[::-1] * h,
        lambda: jax.named_call(lambda h: jnp.tanh(h) * d.leaf(n), name="f")(h),
        lambda: jax.nn.glu(h) if n % 2 == 0 else h,
        lambda: jnp.where(d.leaf(n) > 0, h, jnp.roll(h, 1, -1)),
        lambda: h.at[..., : n // 2].multiply(d.leaf(n // 2)) if n > 1 else h,
        lambda: jnp.vectorize(lambda row: row / (1 + jnp.abs(row).sum()), signature="(n)->(n)")(h),
        lambda: jnp.searchsorted(jnp.sort(d.leaf(m)), h).astype(h.dtype) * 0.1,
        lambda: jnp.interp(h, jnp.linspace(-1, 1, m), jnp.sort(d.leaf(m))),
        lambda: h * (jnp.argmax(d.leaf(n)) + 1.0),
        lambda: h * d.leaf(n, like=lambda r, s: r.integers(0, 3, s).astype(np.uint8)),
        lambda: lax.bitcast_convert_type(lax.bitcast_convert_type(h, jnp.int64), h.dtype)
        if h.dtype == jnp.float64 else h,
        lambda: jnp.stack(jnp.unstack(h, axis=-1)[::-1], -1) if n < 5 else h,
    ))()  # fmt: skip


BLUR = np.array([0.2, 0.5, 0.3])

OPERATIONS = (
    linear, linear, linear, along, two_axes, into_heads, low_rank, masked_weight, weight_norm, tied,
    twice, affine, activation, activation, activation, softmax, norm, group_norm, residual, residual,
    block, outer_broadcast, concat, split, cut_out, merge_axes, merge_axes, split_axis, reshape_any,
    transpose, shuffle, pad, where, reduce, cumulate, order, embed, gather, scatter, segments, dynamic,
    pool, fourier, rnn, stacked, mapped, loop, branch, custom, remat, ragged, repeat, turn, solve,
    complicated, integers, half, attention, conv, conv, experts, stack, single, constants, statistics,
    statistics, derived, rare, rare, rare, rare,
)  # fmt: skip


def head(d: Draw, h: Array) -> Array:
    n = h.shape[-1]
    if h.ndim > 2 and d.chance():
        h = h.mean(tuple(range(1, h.ndim - 1)))
        return h @ d.leaf(n, 2, fan=n)
    flat = h.reshape(h.shape[0], int(np.prod(h.shape[1:])))
    if d.chance(0.1):
        return flat.sum(-1)
    return flat @ d.leaf(flat.shape[1], 2, fan=flat.shape[1])
