"""Which models in plain JAX and Flax can be made smaller in one plain call, and is the result right?

    python benchmarks/jax_models.py                              # some six minutes, on one core
    python benchmarks/jax_models.py --models "Llama" "Mamba 1"   # some models only
    python benchmarks/jax_models.py --page docs/jax_models.md    # writes the page

The models are tiny, and written as in public JAX code: sizes come from arrays or constants, heads from
reshapes, layers from Python loops or `jax.lax.scan`. Weights are random, and no weight starts at 0. Each
model is given to `jaxarch.structure.plan(apply, params, x, budget="50% multiply_adds").apply()`, without a
list of layers. Five things are checked:

- groups: each model lists the groups that can be cut by hand, by kind and size. Units of listed groups that
  jaxarch does not find are counted, and the reasons why axes stay whole are printed.
- outputs: the smaller model is compared with the masked one, in which all connections of the removed units
  are 0. The inputs are those of the plan and those of another batch size. It is called with and without jit.
- gradients: the gradient of a loss with respect to the smaller arrays is the masked model's, cut.
- bfloat16: the same units are cut from parameters in bfloat16, for inputs in bfloat16.
- export: the smaller model is exported for any number of examples, and compared with itself for two numbers.

The answer is docs/jax_models.md. Where units are normalized together with some that are gone, as experts are
by a softmax, a smaller model differs from the masked one. `apply` warns then.
"""

from __future__ import annotations

import argparse
import collections
import time as clock
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

import jaxarch

Tree = Any
Kinds = dict[str, list[int]]
"""By kind of unit, the sizes of the groups."""


class Model(NamedTuple):
    """A model to cut.

    Attributes:
      apply: `(params, *inputs) -> outputs`.
      params: the parameters.
      inputs: a batch of inputs.
      expected: the groups that can be cut by hand.
    """

    apply: Callable[..., Any]
    params: Tree
    inputs: tuple[Any, ...]
    expected: Kinds


# Parts of models -------------------------------------------------------------------------------------


def weights(rng, *shape):
    """Draw matrices (..., inputs, outputs), or a bias."""
    scale = 0.1 if len(shape) == 1 else shape[-2] ** -0.5
    return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)


def kernels(rng, *shape):
    """Draw the kernel of a convolution: (window, inputs, outputs)."""
    return jnp.asarray(rng.normal(size=shape) / np.prod(shape[:-1]) ** 0.5, jnp.float32)


def scales(rng, *shape):
    """Draw positive numbers about 1."""
    return jnp.asarray(rng.uniform(0.5, 1.5, shape), jnp.float32)


def drawn(rng, shapes):
    """Draw leaves of given shapes: positive scales and variances, and normal numbers otherwise."""

    def leaf(path, shape):
        positive = str(getattr(path[-1], "key", path[-1])).strip("'[]") in ("scale", "var")
        if positive:
            return scales(rng, *shape.shape)
        if len(shape.shape) == 1:
            return weights(rng, *shape.shape)
        return kernels(rng, *shape.shape)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def dense(rng, inputs, outputs):
    """Draw a matrix and a bias."""
    return {"kernel": weights(rng, inputs, outputs), "bias": weights(rng, outputs)}


def linear(p, x):
    return x @ p["kernel"] + p["bias"]


def mlp(p, x, activation=jax.nn.gelu):
    return linear(p["out"], activation(linear(p["in"], x)))


def rms_norm(scale, x, eps=1e-6):
    wide = x.astype(jnp.float32)
    normed = wide * lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
    return normed.astype(x.dtype) * scale


def normed(rng, size):
    return {"scale": scales(rng, size), "bias": weights(rng, size)}


def layer_norm(p, x, eps=1e-5):
    mean = x.mean(-1, keepdims=True)
    var = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + eps) * p["scale"] + p["bias"]


def group_norm(p, x, groups, eps=1e-5):
    shape = x.shape
    x = x.reshape(*shape[:-1], groups, shape[-1] // groups)
    mean = x.mean((1, 2, 4), keepdims=True)
    var = jnp.square(x - mean).mean((1, 2, 4), keepdims=True)
    return ((x - mean) * lax.rsqrt(var + eps)).reshape(shape) * p["scale"] + p["bias"]


def batch_normed(rng, size):
    return {**normed(rng, size), "mean": weights(rng, size), "var": scales(rng, size)}


def batch_norm(p, x, eps=1e-5):
    return (x - p["mean"]) * lax.rsqrt(p["var"] + eps) * p["scale"] + p["bias"]


def conv(kernel, x, stride=1, groups=1):
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def conv_bn(rng, window, inputs, outputs):
    return {"kernel": kernels(rng, window, window, inputs, outputs), "norm": batch_normed(rng, outputs)}


def rope(x, base=10_000.0):
    """Rotate the features of (batch, time, heads, features) by their positions."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * base ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[None, :, None, :], jnp.sin(angles)[None, :, None, :]
    first, second = jnp.split(x, 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


def softmax_attention(q, k, v, mask=None):
    """Attend over (batch, time, heads, features)."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    probabilities = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", probabilities, v)


def causal(time, window=None):
    row, column = jnp.arange(time)[:, None], jnp.arange(time)[None, :]
    mask = column <= row
    return mask if window is None else mask & (row - column < window)


def tokens(rng, vocabulary, batch=2, time=8):
    return jnp.asarray(rng.integers(0, vocabulary, (batch, time)))


def pictures(rng, side, channels=3, batch=2):
    return jnp.asarray(rng.normal(size=(batch, side, side, channels)), jnp.float32)


# Language models -------------------------------------------------------------------------------------

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, LAYERS = 23, 32, 8, 4, 4, 48, 2


def attention_weights(rng):
    return {
        "wq": weights(rng, WIDTH, HEADS * HEAD),
        "wk": weights(rng, WIDTH, KV_HEADS * HEAD),
        "wv": weights(rng, WIDTH, KV_HEADS * HEAD),
        "wo": weights(rng, HEADS * HEAD, WIDTH),
    }


def grouped_query_attention(p, x, window=None):
    batch, time, _ = x.shape
    q = rope((x @ p["wq"]).reshape(batch, time, HEADS, HEAD))
    k = rope((x @ p["wk"]).reshape(batch, time, KV_HEADS, HEAD))
    v = (x @ p["wv"]).reshape(batch, time, KV_HEADS, HEAD)
    k, v = (jnp.repeat(each, HEADS // KV_HEADS, axis=2) for each in (k, v))
    return softmax_attention(q, k, v, causal(time, window)).reshape(batch, time, -1) @ p["wo"]


def swiglu_weights(rng):
    return {
        "w1": weights(rng, WIDTH, HIDDEN),
        "w3": weights(rng, WIDTH, HIDDEN),
        "w2": weights(rng, HIDDEN, WIDTH),
    }


def swiglu(p, x):
    return (jax.nn.silu(x @ p["w1"]) * (x @ p["w3"])) @ p["w2"]


def block_weights(rng, attention=attention_weights, feed_forward=swiglu_weights):
    return {
        "attention_norm": scales(rng, WIDTH),
        "attention": attention(rng),
        "ffn_norm": scales(rng, WIDTH),
        "ffn": feed_forward(rng),
    }


def block(p, x, attention=grouped_query_attention, feed_forward=swiglu):
    x = x + attention(p["attention"], rms_norm(p["attention_norm"], x))
    return x + feed_forward(p["ffn"], rms_norm(p["ffn_norm"], x))


def language_model(rng, expected, attention=None, feed_forward=None, tied=True, weights_of=()):
    """Return a decoder of pre-normed blocks."""
    drawn_by = dict(zip(("attention", "feed_forward"), weights_of, strict=False))
    computed = {"attention": attention, "feed_forward": feed_forward}
    run = partial(block, **{name: part for name, part in computed.items() if part})
    params = {
        "embedding": weights(rng, VOCABULARY, WIDTH),
        "layers": [block_weights(rng, **drawn_by) for _ in range(LAYERS)],
        "norm": scales(rng, WIDTH),
    }
    if not tied:
        params["head"] = weights(rng, WIDTH, VOCABULARY)

    def apply(params, ids):
        x = params["embedding"][ids]
        for layer in params["layers"]:
            x = run(layer, x)
        head = params["embedding"].T if tied else params["head"]
        return rms_norm(params["norm"], x) @ head

    return Model(apply, params, (tokens(rng, VOCABULARY),), expected)


OF_LLAMA = {"heads": [KV_HEADS, HEADS // KV_HEADS] * LAYERS, "neurons": [HIDDEN] * LAYERS}


def llama(rng, tied=True):
    """Grouped-query attention with rotary positions, RMSNorm and SwiGLU."""
    return language_model(rng, OF_LLAMA, tied=tied)


def mistral(rng):
    """Llama with a sliding window."""
    return language_model(rng, OF_LLAMA, attention=partial(grouped_query_attention, window=4), tied=False)


def scanned_llama(rng):
    """Llama whose layers are stacked, under a checkpointed `jax.lax.scan`."""
    layers = [block_weights(rng) for _ in range(LAYERS)]
    params = {
        "embedding": weights(rng, VOCABULARY, WIDTH),
        "layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers),
        "norm": scales(rng, WIDTH),
    }

    def apply(params, ids):
        body = jax.checkpoint(lambda x, layer: (block(layer, x), None))
        x, _ = lax.scan(body, params["embedding"][ids], params["layers"])
        return rms_norm(params["norm"], x) @ params["embedding"].T

    expected = {"heads": [KV_HEADS, HEADS // KV_HEADS], "neurons": [HIDDEN]}
    return Model(apply, params, (tokens(rng, VOCABULARY),), expected)


EXPERTS, CHOSEN, OF_EXPERT = 4, 2, 16


def expert_weights(rng):
    return {
        "gate": weights(rng, WIDTH, EXPERTS),
        "w1": weights(rng, EXPERTS, WIDTH, OF_EXPERT),
        "w3": weights(rng, EXPERTS, WIDTH, OF_EXPERT),
        "w2": weights(rng, EXPERTS, OF_EXPERT, WIDTH),
    }


def all_experts(p, x):
    gates = jax.nn.softmax(x @ p["gate"], axis=-1)
    hidden = jax.nn.silu(jnp.einsum("btd,edf->btef", x, p["w1"])) * jnp.einsum("btd,edf->btef", x, p["w3"])
    return jnp.einsum("bte,btef,efd->btd", gates, hidden, p["w2"])


def chosen_experts(p, x):
    """Sort the tokens by their experts, and multiply each group of tokens with one matrix."""
    batch, time, width = x.shape
    rows = x.reshape(-1, width)
    gates, chosen = lax.top_k(rows @ p["gate"], CHOSEN)
    gates = jax.nn.softmax(gates, axis=-1)
    order = jnp.argsort(chosen.reshape(-1))
    sizes = jnp.bincount(chosen.reshape(-1), length=EXPERTS)
    sorted_rows = rows[order // CHOSEN]
    hidden = jax.nn.silu(lax.ragged_dot(sorted_rows, p["w1"], sizes))
    made = lax.ragged_dot(hidden * lax.ragged_dot(sorted_rows, p["w3"], sizes), p["w2"], sizes)
    unsorted = made[jnp.argsort(order)].reshape(-1, CHOSEN, width)
    return jnp.einsum("nk,nkd->nd", gates, unsorted).reshape(batch, time, width)


def dispatched_experts(p, x):
    """Send tokens to the slots of their experts, as in GShard and Switch Transformers."""
    batch, time, width = x.shape
    rows, capacity = x.reshape(-1, width), x.shape[0] * x.shape[1]
    probabilities = jax.nn.softmax(rows @ p["gate"], axis=-1)
    gate, chosen = probabilities.max(-1), probabilities.argmax(-1)
    one_hot = jax.nn.one_hot(chosen, EXPERTS, dtype=x.dtype)
    place = (jnp.cumsum(one_hot, axis=0) - 1) * one_hot
    slots = jax.nn.one_hot(place.sum(-1).astype(jnp.int32), capacity, dtype=x.dtype)
    dispatch = one_hot[:, :, None] * slots[:, None, :]
    inputs = jnp.einsum("nec,nd->ecd", dispatch, rows)
    hidden = jax.nn.silu(jnp.einsum("ecd,edf->ecf", inputs, p["w1"])) * jnp.einsum(
        "ecd,edf->ecf", inputs, p["w3"]
    )
    made = jnp.einsum("ecf,efd->ecd", hidden, p["w2"])
    combined = jnp.einsum("nec,ecd->nd", dispatch * gate[:, None, None], made)
    return combined.reshape(batch, time, width)


def mixture(rng, feed_forward):
    """Mixture of experts."""
    expected = {
        "heads": [KV_HEADS, HEADS // KV_HEADS] * LAYERS,
        "neurons": [OF_EXPERT] * LAYERS,
        "experts": [EXPERTS] * LAYERS,
    }
    drawn_by = (attention_weights, expert_weights)
    return language_model(rng, expected, feed_forward=feed_forward, tied=False, weights_of=drawn_by)


Q_RANK, KV_RANK, NOPE, ROTATED, VALUE = 12, 12, 4, 4, 6


def latent_weights(rng):
    return {
        "wq_a": weights(rng, WIDTH, Q_RANK),
        "q_norm": scales(rng, Q_RANK),
        "wq_b": weights(rng, Q_RANK, HEADS * (NOPE + ROTATED)),
        "wkv_a": weights(rng, WIDTH, KV_RANK + ROTATED),
        "kv_norm": scales(rng, KV_RANK),
        "wkv_b": weights(rng, KV_RANK, HEADS * (NOPE + VALUE)),
        "wo": weights(rng, HEADS * VALUE, WIDTH),
    }


def latent_attention(p, x):
    """Multi-head latent attention of DeepSeek: low-rank queries, keys and values, decoupled positions."""
    batch, time, _ = x.shape
    q = (rms_norm(p["q_norm"], x @ p["wq_a"]) @ p["wq_b"]).reshape(batch, time, HEADS, NOPE + ROTATED)
    q, rotated_q = jnp.split(q, [NOPE], axis=-1)
    latent, rotated_k = jnp.split(x @ p["wkv_a"], [KV_RANK], axis=-1)
    kv = (rms_norm(p["kv_norm"], latent) @ p["wkv_b"]).reshape(batch, time, HEADS, NOPE + VALUE)
    k, v = jnp.split(kv, [NOPE], axis=-1)
    rotated_k = jnp.broadcast_to(rope(rotated_k[:, :, None, :]), (batch, time, HEADS, ROTATED))
    q, k = jnp.concatenate([q, rope(rotated_q)], axis=-1), jnp.concatenate([k, rotated_k], axis=-1)
    return softmax_attention(q, k, v, causal(time)).reshape(batch, time, -1) @ p["wo"]


def mla(rng):
    """DeepSeek's block."""
    expected = {"heads": [HEADS] * LAYERS, "neurons": [HIDDEN] * LAYERS}
    return language_model(rng, expected, attention=latent_attention, weights_of=(latent_weights,))


# Recurrent and state space models --------------------------------------------------------------------

INNER, STATES, RANK, TAPS = 40, 4, 6, 4


def causal_conv(p, x):
    """Convolve each channel of (batch, time, channels) with its own past."""
    channels = x.shape[-1]
    kernel, padding = p["kernel"], [(p["kernel"].shape[0] - 1, 0)]
    made = lax.conv_general_dilated(
        x, kernel, (1,), padding, dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=channels
    )
    return made + p["bias"]


def mamba_weights(rng):
    return {
        "norm": scales(rng, WIDTH),
        "in_proj": weights(rng, WIDTH, 2 * INNER),
        "conv": {"kernel": kernels(rng, TAPS, 1, INNER), "bias": weights(rng, INNER)},
        "x_proj": weights(rng, INNER, RANK + 2 * STATES),
        "dt_proj": dense(rng, RANK, INNER),
        "a_log": jnp.log(scales(rng, INNER, STATES)),
        "d": scales(rng, INNER),
        "out_proj": weights(rng, INNER, WIDTH),
    }


def parallel_scan(decay, drive, c):
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    _, states = lax.associative_scan(combine, (decay, drive), axis=1)
    return jnp.einsum("btdn,btn->btd", states, c)


def sequential_scan(decay, drive, c):
    def step(state, now):
        decay, drive, c = now
        state = decay * state + drive
        return state, jnp.einsum("bdn,bn->bd", state, c)

    rows = [jnp.moveaxis(each, 1, 0) for each in (decay, drive, c)]
    _, made = lax.scan(step, jnp.zeros_like(decay[:, 0]), rows)
    return jnp.moveaxis(made, 0, 1)


def mamba_block(p, x, scan):
    u, gate = jnp.split(rms_norm(p["norm"], x) @ p["in_proj"], 2, axis=-1)
    u = jax.nn.silu(causal_conv(p["conv"], u))
    delta, b, c = jnp.split(u @ p["x_proj"], [RANK, RANK + STATES], axis=-1)
    delta = jax.nn.softplus(linear(p["dt_proj"], delta))
    decay = jnp.exp(delta[..., None] * -jnp.exp(p["a_log"]))
    drive = (delta * u)[..., None] * b[:, :, None, :]
    y = scan(decay, drive, c) + u * p["d"]
    return x + (y * jax.nn.silu(gate)) @ p["out_proj"]


def mamba(rng, scan):
    """Selective scans."""
    params = {"embedding": weights(rng, VOCABULARY, WIDTH), "norm": scales(rng, WIDTH)}
    params["layers"] = [mamba_weights(rng) for _ in range(LAYERS)]

    def apply(params, ids):
        x = params["embedding"][ids]
        for layer in params["layers"]:
            x = mamba_block(layer, x, scan)
        return rms_norm(params["norm"], x) @ params["embedding"].T

    expected = {"channels": [INNER] * LAYERS, "neurons": [RANK] * LAYERS}
    return Model(apply, params, (tokens(rng, VOCABULARY),), expected)


SSD_HEADS, SSD_HEAD, CHUNK = 8, 6, 4


def mamba2_weights(rng):
    inner = SSD_HEADS * SSD_HEAD
    mixed = inner + 2 * STATES
    return {
        "norm": scales(rng, WIDTH),
        "in_proj": weights(rng, WIDTH, inner + mixed + SSD_HEADS),
        "conv": {"kernel": kernels(rng, TAPS, 1, mixed), "bias": weights(rng, mixed)},
        "a_log": weights(rng, SSD_HEADS),
        "dt_bias": weights(rng, SSD_HEADS),
        "d": scales(rng, SSD_HEADS),
        "inner_norm": scales(rng, SSD_HEADS, SSD_HEAD),
        "out_proj": weights(rng, inner, WIDTH),
    }


def segment_sums(x):
    """Return the sums of x over (column, row], and -inf above the diagonal."""
    total = jnp.cumsum(x, axis=-1)
    sums = total[..., :, None] - total[..., None, :]
    return jnp.where(jnp.tril(jnp.ones((x.shape[-1],) * 2, bool)), sums, -jnp.inf)


def ssd(x, a, b, c):
    """State space duality in chunks, as in listing 1 of the paper on Mamba 2."""
    batch, time, heads, size = x.shape
    x, a, b, c = (each.reshape(batch, time // CHUNK, CHUNK, *each.shape[2:]) for each in (x, a, b, c))
    a = jnp.moveaxis(a, 3, 1)
    total = jnp.cumsum(a, axis=-1)
    inside = jnp.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, jnp.exp(segment_sums(a)), x)
    states = jnp.einsum("bcln,bhcl,bclhp->bchpn", b, jnp.exp(total[..., -1:] - total), x)
    states = jnp.concatenate([jnp.zeros_like(states[:, :1]), states], axis=1)
    between = jnp.exp(segment_sums(jnp.pad(total[..., -1], ((0, 0), (0, 0), (1, 0)))))
    states = jnp.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
    across = jnp.einsum("bcln,bchpn,bhcl->bclhp", c, states, jnp.exp(total))
    return (inside + across).reshape(batch, time, heads, size)


def mamba2_block(p, x):
    inner = SSD_HEADS * SSD_HEAD
    gate, mixed, dt = jnp.split(
        rms_norm(p["norm"], x) @ p["in_proj"], [inner, 2 * inner + 2 * STATES], axis=-1
    )
    mixed = jax.nn.silu(causal_conv(p["conv"], mixed))
    u, b, c = jnp.split(mixed, [inner, inner + STATES], axis=-1)
    u = u.reshape(*u.shape[:2], SSD_HEADS, SSD_HEAD)
    dt = jax.nn.softplus(dt + p["dt_bias"])
    y = ssd(u * dt[..., None], -jnp.exp(p["a_log"]) * dt, b, c) + u * p["d"][:, None]
    y = rms_norm(p["inner_norm"], y * jax.nn.silu(gate.reshape(y.shape)))
    return x + y.reshape(*y.shape[:2], inner) @ p["out_proj"]


def mamba2(rng):
    """State space duality with heads that are normed one by one, beside gated layers."""
    params = {"embedding": weights(rng, VOCABULARY, WIDTH), "norm": scales(rng, WIDTH)}
    params["layers"] = [
        {"mixer": mamba2_weights(rng), "ffn_norm": scales(rng, WIDTH), "ffn": swiglu_weights(rng)}
        for _ in range(LAYERS)
    ]

    def apply(params, ids):
        x = params["embedding"][ids]
        for layer in params["layers"]:
            x = mamba2_block(layer["mixer"], x)
            x = x + swiglu(layer["ffn"], rms_norm(layer["ffn_norm"], x))
        return rms_norm(params["norm"], x) @ params["embedding"].T

    expected = {"heads": [SSD_HEADS] * LAYERS, "neurons": [HIDDEN] * LAYERS}
    return Model(apply, params, (tokens(rng, VOCABULARY),), expected)


def rwkv_weights(rng):
    mixes = {f"mix_{name}": scales(rng, WIDTH) / 2 for name in "kvr"}
    return {
        "ln1": normed(rng, WIDTH),
        "att": {
            **mixes,
            "decay": weights(rng, INNER),
            "first": weights(rng, INNER),
            **{name: weights(rng, WIDTH, INNER) for name in ("key", "value", "receptance")},
            "output": weights(rng, INNER, WIDTH),
        },
        "ln2": normed(rng, WIDTH),
        "ffn": {
            "mix_k": scales(rng, WIDTH) / 2,
            "mix_r": scales(rng, WIDTH) / 2,
            "key": weights(rng, WIDTH, HIDDEN),
            "receptance": weights(rng, WIDTH, WIDTH),
            "value": weights(rng, HIDDEN, WIDTH),
        },
    }


def shifted(x):
    return jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]


def mixed_with(x, before, mix):
    return x * mix + before * (1 - mix)


def wkv(decay, first, k, v):
    """Average values with weights that decay, in a form that does not overflow."""

    def step(carry, now):
        top, bottom, largest = carry
        k, v = now
        most = jnp.maximum(largest, first + k)
        before, here = jnp.exp(largest - most), jnp.exp(first + k - most)
        made = (before * top + here * v) / (before * bottom + here)
        most = jnp.maximum(largest + decay, k)
        before, here = jnp.exp(largest + decay - most), jnp.exp(k - most)
        return (before * top + here * v, before * bottom + here, most), made

    zeros = jnp.zeros_like(k[:, 0])
    start = (zeros, zeros, jnp.full_like(zeros, -1e30))
    _, made = lax.scan(step, start, (jnp.swapaxes(k, 0, 1), jnp.swapaxes(v, 0, 1)))
    return jnp.swapaxes(made, 0, 1)


def time_mix(p, x):
    before = shifted(x)
    k = mixed_with(x, before, p["mix_k"]) @ p["key"]
    v = mixed_with(x, before, p["mix_v"]) @ p["value"]
    r = jax.nn.sigmoid(mixed_with(x, before, p["mix_r"]) @ p["receptance"])
    return (r * wkv(-jnp.exp(p["decay"]), p["first"], k, v)) @ p["output"]


def channel_mix(p, x):
    before = shifted(x)
    k = jnp.square(jax.nn.relu(mixed_with(x, before, p["mix_k"]) @ p["key"]))
    return jax.nn.sigmoid(mixed_with(x, before, p["mix_r"]) @ p["receptance"]) * (k @ p["value"])


def rwkv(rng):
    """Time mix and channel mix."""
    params = {"embedding": weights(rng, VOCABULARY, WIDTH), "norm": normed(rng, WIDTH)}
    params["layers"] = [rwkv_weights(rng) for _ in range(LAYERS)]
    params["head"] = weights(rng, WIDTH, VOCABULARY)

    def apply(params, ids):
        x = params["embedding"][ids]
        for layer in params["layers"]:
            x = x + time_mix(layer["att"], layer_norm(layer["ln1"], x))
            x = x + channel_mix(layer["ffn"], layer_norm(layer["ln2"], x))
        return layer_norm(params["norm"], x) @ params["head"]

    expected = {"neurons": [INNER, HIDDEN] * LAYERS}
    return Model(apply, params, (tokens(rng, VOCABULARY),), expected)


class BidirectionalLSTM(nn.Module):
    """A classifier of sequences."""

    @nn.compact
    def __call__(self, x):  # noqa: D102
        there, back = (nn.RNN(nn.OptimizedLSTMCell(24)) for _ in range(2))
        x = nn.Bidirectional(there, back)(x)
        return nn.Dense(5)(nn.relu(nn.Dense(20)(x.mean(1))))


def lstm(rng):
    """Bidirectional LSTM of Flax Linen."""
    x = jnp.asarray(rng.normal(size=(2, 7, 6)), jnp.float32)
    module = BidirectionalLSTM()
    params = drawn(rng, jax.eval_shape(module.init, jax.random.key(0), x))
    return Model(module.apply, params, (x,), {"neurons": [24, 24, 20]})


def ode(rng, loop):
    """Neural ODE with Runge-Kutta steps of order 4, between an encoder and a decoder."""
    params = {"encoder": dense(rng, 5, 16), "decoder": dense(rng, 16, 3)}
    params["field"] = {"in": dense(rng, 17, 32), "out": dense(rng, 32, 16)}

    def field(p, t, y):
        return mlp(p, jnp.concatenate([y, jnp.broadcast_to(t, (y.shape[0], 1))], axis=-1), jnp.tanh)

    def step(p, t, y, dt):
        k1 = field(p, t, y)
        k2 = field(p, t + dt / 2, y + dt / 2 * k1)
        k3 = field(p, t + dt / 2, y + dt / 2 * k2)
        k4 = field(p, t + dt, y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def apply(params, x):
        start = linear(params["encoder"], x)
        return linear(params["decoder"], loop(partial(step, params["field"], dt=0.25), start))

    x = jnp.asarray(rng.normal(size=(3, 5)), jnp.float32)
    return Model(apply, params, (x,), {"neurons": [16, 32]})


def by_scan(step, y):
    return lax.scan(lambda y, t: (step(t.astype(y.dtype), y), None), y, jnp.arange(4) * 0.25)[0]


def by_while(step, y):
    def body(carry):
        t, y = carry
        return t + 0.25, step(t.astype(y.dtype), y)

    return lax.while_loop(lambda carry: carry[0] < 1.0, body, (jnp.float32(0), y))[1]


# Vision ----------------------------------------------------------------------------------------------


class EncoderBlock(nn.Module):
    """A block of a vision transformer."""

    @nn.compact
    def __call__(self, x):  # noqa: D102
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=8)(y, y)
        y = nn.gelu(nn.Dense(64)(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(y)


class ViT(nn.Module):
    """Vision transformer with a class token."""

    @nn.compact
    def __call__(self, x):  # noqa: D102
        x = nn.Conv(32, (4, 4), strides=(4, 4), padding="VALID", name="embedding")(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        cls = self.param("cls", nn.initializers.zeros, (1, 1, x.shape[-1]))
        x = jnp.concatenate([jnp.tile(cls, (x.shape[0], 1, 1)), x], axis=1)
        x = x + self.param("positions", nn.initializers.zeros, (1, *x.shape[1:]))
        for _ in range(2):
            x = EncoderBlock()(x)
        return nn.Dense(5)(nn.LayerNorm()(x)[:, 0])


def vit(rng):
    """Vision transformer of Flax Linen."""
    x, module = pictures(rng, 16), ViT()
    params = drawn(rng, jax.eval_shape(module.init, jax.random.key(0), x))
    return Model(module.apply, params, (x,), {"heads": [8, 8], "neurons": [64, 64]})


WINDOW = 4


def relative_index():
    """Return the row of the table of relative positions, for each pair of places in a window."""
    place = np.stack(np.meshgrid(np.arange(WINDOW), np.arange(WINDOW), indexing="ij")).reshape(2, -1)
    apart = place[:, :, None] - place[:, None, :] + WINDOW - 1
    return apart[0] * (2 * WINDOW - 1) + apart[1]


def windows(x):
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, channels)


def windows_back(x, height, width):
    x = x.reshape(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, x.shape[-1])
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, height, width, x.shape[-1])


def shift_mask(height, width, shift):
    """Return (windows, places, places): 0 for pairs from the same region, -100 for others."""
    region = np.zeros((1, height, width, 1))
    parts = (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None))
    for number, (rows, columns) in enumerate((one, other) for one in parts for other in parts):
        region[:, rows, columns] = number
    region = region.reshape(1, height // WINDOW, WINDOW, width // WINDOW, WINDOW, 1)
    region = region.transpose(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW)
    return np.where(region[:, None] == region[:, :, None], 0.0, -100.0)


def window_attention_weights(rng, width, heads):
    return {
        "qkv": dense(rng, width, 3 * width),
        "table": weights(rng, (2 * WINDOW - 1) ** 2, heads),
        "out": dense(rng, width, width),
    }


def window_attention(p, x, mask=None):
    rows, places, width = x.shape
    heads = p["table"].shape[-1]
    qkv = linear(p["qkv"], x).reshape(rows, places, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = (q * (width // heads) ** -0.5) @ k.swapaxes(-1, -2)
    bias = p["table"][relative_index().reshape(-1)].reshape(places, places, heads)
    scores = scores + bias.transpose(2, 0, 1)[None]
    if mask is not None:
        mask = jnp.asarray(mask, scores.dtype)
        scores = scores.reshape(-1, mask.shape[0], heads, places, places) + mask[None, :, None]
        scores = scores.reshape(-1, heads, places, places)
    made = jax.nn.softmax(scores, axis=-1) @ v
    return linear(p["out"], made.swapaxes(1, 2).reshape(rows, places, width))


def swin_block(p, x, shift):
    _, height, width, _ = x.shape
    y = layer_norm(p["norm1"], x)
    if shift:
        y = jnp.roll(y, (-shift, -shift), axis=(1, 2))
    mask = shift_mask(height, width, shift) if shift else None
    y = windows_back(window_attention(p["attention"], windows(y), mask), height, width)
    if shift:
        y = jnp.roll(y, (shift, shift), axis=(1, 2))
    x = x + y
    return x + mlp(p["mlp"], layer_norm(p["norm2"], x))


def mlp_weights(rng, width, hidden):
    return {"in": dense(rng, width, hidden), "out": dense(rng, hidden, width)}


def swin_weights(rng, width, heads):
    return {
        "norm1": normed(rng, width),
        "attention": window_attention_weights(rng, width, heads),
        "norm2": normed(rng, width),
        "mlp": mlp_weights(rng, width, 2 * width),
    }


def swin(rng):
    """Shifted windows, in two stages with a patch merging between them."""
    params = {
        "embedding": kernels(rng, 2, 2, 3, 16),
        "first": [swin_weights(rng, 16, 4) for _ in range(2)],
        "merge": {"norm": normed(rng, 64), "reduction": weights(rng, 64, 32)},
        "second": [swin_weights(rng, 32, 8)],
        "norm": normed(rng, 32),
        "head": dense(rng, 32, 5),
    }

    def apply(params, x):
        x = conv(params["embedding"], x, stride=2)
        for number, layer in enumerate(params["first"]):
            x = swin_block(layer, x, shift=number * WINDOW // 2)
        x = jnp.concatenate([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], axis=-1)
        x = layer_norm(params["merge"]["norm"], x) @ params["merge"]["reduction"]
        for layer in params["second"]:
            x = swin_block(layer, x, shift=0)
        return linear(params["head"], layer_norm(params["norm"], x).mean((1, 2)))

    return Model(apply, params, (pictures(rng, 16),), {"heads": [4, 4, 8], "neurons": [32, 32, 64]})


def grid(x):
    batch, height, width, channels = x.shape
    x = x.reshape(batch, WINDOW, height // WINDOW, WINDOW, width // WINDOW, channels)
    return x.transpose(0, 2, 4, 1, 3, 5).reshape(-1, WINDOW * WINDOW, channels)


def grid_back(x, height, width):
    x = x.reshape(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, x.shape[-1])
    return x.transpose(0, 3, 1, 4, 2, 5).reshape(-1, height, width, x.shape[-1])


def squeeze_excite_weights(rng, channels, squeezed):
    return {"reduce": dense(rng, channels, squeezed), "expand": dense(rng, squeezed, channels)}


def squeeze_excite(p, x, activation, gate):
    scale = gate(linear(p["expand"], activation(linear(p["reduce"], x.mean((1, 2))))))
    return x * scale[:, None, None, :]


def mbconv_weights(rng, channels, hidden, squeezed, outputs=None, window=3):
    return {
        "expand": conv_bn(rng, 1, channels, hidden),
        "depthwise": conv_bn(rng, window, 1, hidden),
        "se": squeeze_excite_weights(rng, hidden, squeezed),
        "project": conv_bn(rng, 1, hidden, outputs or channels),
    }


def conv_then_norm(p, x, stride=1, groups=1):
    return batch_norm(p["norm"], conv(p["kernel"], x, stride, groups))


def mbconv(p, x, activation, gate, stride=1):
    y = activation(conv_then_norm(p["expand"], x))
    y = activation(conv_then_norm(p["depthwise"], y, stride, groups=y.shape[-1]))
    y = conv_then_norm(p["project"], squeeze_excite(p["se"], y, activation, gate))
    return x + y if x.shape == y.shape else y


def maxvit(rng):
    """MBConv, attention within blocks and attention over a grid."""
    width = 24
    params = {"stem": kernels(rng, 3, 3, 3, width), "norm": normed(rng, width), "head": dense(rng, width, 5)}
    params["layers"] = [
        {
            "mbconv": mbconv_weights(rng, width, 48, 8),
            "block": swin_weights(rng, width, 4),
            "grid": swin_weights(rng, width, 4),
        }
        for _ in range(2)
    ]

    def attend(p, x, split, join):
        _, height, width, _ = x.shape
        x = x + join(window_attention(p["attention"], split(layer_norm(p["norm1"], x))), height, width)
        return x + mlp(p["mlp"], layer_norm(p["norm2"], x))

    def apply(params, x):
        x = conv(params["stem"], x, stride=2)
        for layer in params["layers"]:
            x = mbconv(layer["mbconv"], x, jax.nn.gelu, jax.nn.sigmoid)
            x = attend(layer["block"], x, windows, windows_back)
            x = attend(layer["grid"], x, grid, grid_back)
        return linear(params["head"], layer_norm(params["norm"], x.mean((1, 2))))

    expected = {"heads": [4] * 4, "neurons": [48] * 4 + [8] * 2, "channels": [48] * 2}
    return Model(apply, params, (pictures(rng, 16),), expected)


def convnext_block(p, x):
    y = conv(p["depthwise"]["kernel"], x, groups=x.shape[-1]) + p["depthwise"]["bias"]
    return x + p["gamma"] * mlp(p["mlp"], layer_norm(p["norm"], y))


def convnext_weights(rng, width):
    return {
        "depthwise": {"kernel": kernels(rng, 7, 7, 1, width), "bias": weights(rng, width)},
        "norm": normed(rng, width),
        "mlp": mlp_weights(rng, width, 4 * width),
        "gamma": scales(rng, width),
    }


def convnext(rng):
    """Two stages with a downsampling between them."""
    params = {
        "stem": kernels(rng, 4, 4, 3, 16),
        "stem_norm": normed(rng, 16),
        "first": [convnext_weights(rng, 16) for _ in range(2)],
        "down_norm": normed(rng, 16),
        "down": kernels(rng, 2, 2, 16, 24),
        "second": [convnext_weights(rng, 24)],
        "norm": normed(rng, 24),
        "head": dense(rng, 24, 5),
    }

    def apply(params, x):
        x = layer_norm(params["stem_norm"], conv(params["stem"], x, stride=4))
        for layer in params["first"]:
            x = convnext_block(layer, x)
        x = conv(params["down"], layer_norm(params["down_norm"], x), stride=2)
        for layer in params["second"]:
            x = convnext_block(layer, x)
        return linear(params["head"], layer_norm(params["norm"], x.mean((1, 2))))

    return Model(apply, params, (pictures(rng, 32),), {"neurons": [64, 64, 96]})


def mobilenet(rng):
    """MobileNetV3: inverted residuals with squeeze and excitation and hard swish."""
    params = {
        "stem": conv_bn(rng, 3, 3, 16),
        "layers": [mbconv_weights(rng, 16, 40, 12), mbconv_weights(rng, 16, 40, 12, 24, window=5)],
        "last": conv_bn(rng, 1, 24, 48),
        "classifier": mlp_weights(rng, 48, 40) | {"out": dense(rng, 40, 5)},
    }

    def apply(params, x):
        x = jax.nn.hard_swish(conv_then_norm(params["stem"], x, stride=2))
        for layer, stride in zip(params["layers"], (1, 2), strict=True):
            x = mbconv(layer, x, jax.nn.hard_swish, jax.nn.hard_sigmoid, stride)
        x = jax.nn.hard_swish(conv_then_norm(params["last"], x)).mean((1, 2))
        return mlp(params["classifier"], x, jax.nn.hard_swish)

    expected = {"channels": [16, 40, 40, 24, 48], "neurons": [12, 12, 40]}
    return Model(apply, params, (pictures(rng, 16),), expected)


def conv_act(p, x, stride=1):
    return jax.nn.silu(conv_then_norm(p, x, stride))


def c2f_weights(rng, inputs, outputs):
    half = outputs // 2
    return {
        "cv1": conv_bn(rng, 1, inputs, outputs),
        "m": [{"cv1": conv_bn(rng, 3, half, half), "cv2": conv_bn(rng, 3, half, half)}],
        "cv2": conv_bn(rng, 1, 3 * half, outputs),
    }


def c2f(p, x, shortcut):
    parts = jnp.split(conv_act(p["cv1"], x), 2, axis=-1)
    for bottleneck in p["m"]:
        made = conv_act(bottleneck["cv2"], conv_act(bottleneck["cv1"], parts[-1]))
        parts.append(parts[-1] + made if shortcut else made)
    return conv_act(p["cv2"], jnp.concatenate(parts, axis=-1))


def pooled_pyramid(p, x):
    parts = [conv_act(p["cv1"], x)]
    for _ in range(3):
        parts.append(nn.max_pool(parts[-1], (5, 5), strides=(1, 1), padding="SAME"))
    return conv_act(p["cv2"], jnp.concatenate(parts, axis=-1))


BINS, CLASSES = 4, 3


def head_weights(rng, channels):
    def branch(outputs):
        last = {"kernel": kernels(rng, 1, 1, 12, outputs), "bias": weights(rng, outputs)}
        return {"first": conv_bn(rng, 3, channels, 12), "last": last}

    return {"box": branch(4 * BINS), "class": branch(CLASSES)}


def detect(p, levels):
    """Return boxes and classes of all places of all levels."""

    def branch(p, x):
        x = conv(p["last"]["kernel"], conv_act(p["first"], x)) + p["last"]["bias"]
        return x.reshape(x.shape[0], -1, x.shape[-1])

    pairs = [*zip(p, levels, strict=True)]
    boxes, classes = (
        jnp.concatenate([branch(level[name], x) for level, x in pairs], axis=1) for name in ("box", "class")
    )
    bins = jax.nn.softmax(boxes.reshape(*boxes.shape[:2], 4, BINS), axis=-1)
    return bins @ jnp.arange(BINS, dtype=bins.dtype), jax.nn.sigmoid(classes)


def yolo(rng):
    """C2f blocks, a pooled pyramid, a path back up, and a detection head for two levels."""
    params = {
        "stem": conv_bn(rng, 3, 3, 8),
        "down": [conv_bn(rng, 3, 8, 16), conv_bn(rng, 3, 16, 24)],
        "c2f": [c2f_weights(rng, 16, 16), c2f_weights(rng, 24, 24)],
        "sppf": {"cv1": conv_bn(rng, 1, 24, 12), "cv2": conv_bn(rng, 1, 48, 24)},
        "neck": c2f_weights(rng, 40, 16),
        "detect": [head_weights(rng, 16), head_weights(rng, 24)],
    }

    def apply(params, x):
        x = conv_act(params["stem"], x, stride=2)
        fine = c2f(params["c2f"][0], conv_act(params["down"][0], x, stride=2), shortcut=True)
        coarse = c2f(params["c2f"][1], conv_act(params["down"][1], fine, stride=2), shortcut=True)
        coarse = pooled_pyramid(params["sppf"], coarse)
        up = jnp.repeat(jnp.repeat(coarse, 2, axis=1), 2, axis=2)
        fine = c2f(params["neck"], jnp.concatenate([up, fine], axis=-1), shortcut=False)
        return detect(params["detect"], [fine, coarse])

    backbone = [8, 16, 8, 8, 8, 16, 24, 12, 12, 12, 24, 12, 24]
    neck, heads = [8, 8, 8, 8, 16], [12, 12, 12, 12]
    return Model(apply, params, (pictures(rng, 32),), {"channels": backbone + neck + heads})


# Generative models -----------------------------------------------------------------------------------


def timestep_embedding(t, size):
    frequencies = jnp.exp(-jnp.log(10_000.0) * jnp.arange(size // 2) / (size // 2))
    angles = t[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1).astype(t.dtype)


def residual_weights(rng, inputs, outputs, time):
    made = {
        "norm1": normed(rng, inputs),
        "conv1": kernels(rng, 3, 3, inputs, outputs),
        "time": dense(rng, time, outputs),
        "norm2": normed(rng, outputs),
        "conv2": kernels(rng, 3, 3, outputs, outputs),
    }
    return made if inputs == outputs else made | {"skip": kernels(rng, 1, 1, inputs, outputs)}


def residual_block(p, x, t, groups):
    y = conv(p["conv1"], jax.nn.silu(group_norm(p["norm1"], x, groups)))
    y = y + linear(p["time"], jax.nn.silu(t))[:, None, None, :]
    y = conv(p["conv2"], jax.nn.silu(group_norm(p["norm2"], y, groups)))
    return y + (conv(p["skip"], x) if "skip" in p else x)


def unet(rng, groups=4):
    """U-Net of a diffusion model: group norm, time embedding, attention in the middle."""
    time = 32
    params = {
        "time": {"in": dense(rng, 16, time), "out": dense(rng, time, time)},
        "stem": kernels(rng, 3, 3, 3, 16),
        "down": residual_weights(rng, 16, 16, time),
        "smaller": kernels(rng, 3, 3, 16, 32),
        "middle": residual_weights(rng, 32, 32, time),
        "attention": {"norm": normed(rng, 32), "qkv": dense(rng, 32, 96), "out": dense(rng, 32, 32)},
        "up": residual_weights(rng, 48, 16, time),
        "norm": normed(rng, 16),
        "out": kernels(rng, 3, 3, 16, 3),
    }

    def attention(p, x):
        batch, height, width, channels = x.shape
        qkv = linear(p["qkv"], group_norm(p["norm"], x, groups))
        q, k, v = jnp.split(qkv.reshape(batch, height * width, 4, -1), 3, axis=-1)
        return x + linear(p["out"], softmax_attention(q, k, v).reshape(batch, height, width, channels))

    def apply(params, x, t):
        t = mlp(params["time"], timestep_embedding(t, 16), jax.nn.silu)
        x = conv(params["stem"], x)
        skip = residual_block(params["down"], x, t, groups)
        x = residual_block(params["middle"], conv(params["smaller"], skip, stride=2), t, groups)
        x = attention(params["attention"], x)
        x = jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")
        x = residual_block(params["up"], jnp.concatenate([x, skip], axis=-1), t, groups)
        return conv(params["out"], jax.nn.silu(group_norm(params["norm"], x, groups)))

    t = jnp.asarray([3.0, 70.0])
    # Groups of a norm go whole. The frequencies of the time are units too.
    expected = {"neurons": [time, time, 8], "heads": [4], "channels": [4] * 4}
    return Model(apply, params, (pictures(rng, 8), t), expected)


class DiTBlock(nnx.Module):
    """A transformer block that a condition modulates, with gates that start at 0 (adaLN-zero)."""

    def __init__(self, width, heads, rngs):
        self.norm = nnx.LayerNorm(width, use_scale=False, use_bias=False, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.first = nnx.Linear(width, 2 * width, rngs=rngs)
        self.second = nnx.Linear(2 * width, width, rngs=rngs)
        self.modulation = nnx.Linear(width, 6 * width, rngs=rngs)

    def __call__(self, x, condition):  # noqa: D102
        shift1, scale1, gate1, shift2, scale2, gate2 = jnp.split(
            self.modulation(nnx.silu(condition))[:, None], 6, axis=-1
        )
        x = x + gate1 * self.attention(self.norm(x) * (1 + scale1) + shift1)
        hidden = nnx.gelu(self.first(self.norm(x) * (1 + scale2) + shift2), approximate=True)
        return x + gate2 * self.second(hidden)


class DiT(nnx.Module):
    """Diffusion transformer."""

    def __init__(self, width, heads, rngs):
        self.patches = nnx.Conv(3, width, (2, 2), strides=(2, 2), rngs=rngs)
        self.positions = nnx.Param(jnp.zeros((1, 16, width)))
        self.time = nnx.Linear(16, 40, rngs=rngs)
        self.time_out = nnx.Linear(40, width, rngs=rngs)
        self.labels = nnx.Embed(7, width, rngs=rngs)
        self.blocks = nnx.List([DiTBlock(width, heads, rngs) for _ in range(2)])
        self.norm = nnx.LayerNorm(width, use_scale=False, use_bias=False, rngs=rngs)
        self.modulation = nnx.Linear(width, 2 * width, rngs=rngs)
        self.out = nnx.Linear(width, 12, rngs=rngs)

    def __call__(self, x, t, label):  # noqa: D102
        batch, side = x.shape[0], x.shape[1] // 2
        x = self.patches(x).reshape(batch, side * side, -1) + self.positions[...]
        condition = self.time_out(nnx.silu(self.time(timestep_embedding(t, 16)))) + self.labels(label)
        for layer in self.blocks:
            x = layer(x, condition)
        shift, scale = jnp.split(self.modulation(nnx.silu(condition))[:, None], 2, axis=-1)
        x = self.out(self.norm(x) * (1 + scale) + shift)
        x = x.reshape(batch, side, side, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(batch, 2 * side, 2 * side, 3)


def dit(rng):
    """Diffusion transformer of Flax NNX."""
    layout, shapes = nnx.split(nnx.eval_shape(lambda: DiT(32, 8, nnx.Rngs(0))))
    params = drawn(rng, nnx.to_pure_dict(shapes))

    def apply(params, x, t, label):
        return nnx.merge(layout, nnx.State(params))(x, t, label)

    inputs = pictures(rng, 8), jnp.asarray([3.0, 70.0]), jnp.asarray([1, 5])
    return Model(apply, params, inputs, {"heads": [8, 8], "neurons": [64, 64, 40, 32, 8]})


def flow(rng):
    """Normalizing flow of affine couplings, with flips and a permutation between them."""
    size, couplings = 8, 4
    params = [
        {"in": dense(rng, size // 2, 24), "mid": dense(rng, 24, 24), "out": dense(rng, 24, size)}
        for _ in range(couplings)
    ]
    permutation = rng.permutation(size)

    def coupling(p, x):
        first, second = jnp.split(x, 2, axis=-1)
        hidden = jax.nn.relu(linear(p["mid"], jax.nn.relu(linear(p["in"], first))))
        log_scale, shift = jnp.split(linear(p["out"], hidden), 2, axis=-1)
        log_scale = jnp.tanh(log_scale)
        return jnp.concatenate([first, second * jnp.exp(log_scale) + shift], axis=-1), log_scale.sum(-1)

    def apply(params, x):
        log_det = jnp.zeros(x.shape[0], x.dtype)
        for number, layer in enumerate(params):
            x, change = coupling(layer, x)
            log_det = log_det + change
            x = x[:, permutation] if number % 2 else jnp.flip(x, axis=-1)
        return x, log_det

    x = jnp.asarray(rng.normal(size=(3, size)), jnp.float32)
    return Model(apply, params, (x,), {"neurons": [24] * (2 * couplings)})


# Graphs ----------------------------------------------------------------------------------------------


def gnn(rng):
    """Messages along edges, summed at their receivers by `segment_sum`."""
    width = 20
    params = {"encoder": dense(rng, 6, width), "decoder": dense(rng, width, 3)}
    params["layers"] = [
        {
            "message": {"in": dense(rng, 2 * width + 2, 32), "out": dense(rng, 32, 16)},
            "update": {"in": dense(rng, width + 16, 32), "out": dense(rng, 32, width)},
        }
        for _ in range(2)
    ]

    def apply(params, nodes, edges, senders, receivers):
        h = linear(params["encoder"], nodes)
        for layer in params["layers"]:
            both = jnp.concatenate([h[senders], h[receivers], edges], axis=-1)
            messages = mlp(layer["message"], both, jax.nn.relu)
            received = jax.ops.segment_sum(messages, receivers, num_segments=h.shape[0])
            h = h + mlp(layer["update"], jnp.concatenate([h, received], axis=-1), jax.nn.relu)
        return linear(params["decoder"], h)

    nodes, edges = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((7, 6), (12, 2)))
    senders, receivers = (jnp.asarray(rng.integers(0, 7, 12)) for _ in range(2))
    expected = {"neurons": [width] + [32, 16, 32] * 2}
    return Model(apply, params, (nodes, edges, senders, receivers), expected)


MODELS: dict[str, Callable[[np.random.Generator], Model]] = {
    "Llama, tied head": llama,
    "Llama, own head": partial(llama, tied=False),
    "Llama under scan": scanned_llama,
    "Mistral": mistral,
    "MoE, all experts": partial(mixture, feed_forward=all_experts),
    "MoE, ragged products": partial(mixture, feed_forward=chosen_experts),
    "MoE, dispatch": partial(mixture, feed_forward=dispatched_experts),
    "MLA": mla,
    "Mamba 1": partial(mamba, scan=parallel_scan),
    "Mamba 1, sequential": partial(mamba, scan=sequential_scan),
    "Mamba 2": mamba2,
    "RWKV": rwkv,
    "bidirectional LSTM": lstm,
    "neural ODE": partial(ode, loop=by_scan),
    "neural ODE, while": partial(ode, loop=by_while),
    "ViT": vit,
    "Swin": swin,
    "MaxViT": maxvit,
    "ConvNeXt": convnext,
    "MobileNetV3": mobilenet,
    "YOLO": yolo,
    "U-Net": unet,
    "DiT": dit,
    "flow": flow,
    "GNN": gnn,
}


# The checks ------------------------------------------------------------------------------------------


def masked(plan, params):
    """Return the parameters in which all connections of the removed units are 0."""
    return jaxarch.masks.apply_mask(plan.mask, params)


def more(inputs):
    """Return inputs of another batch size: all examples, and all again in reverse order, and the first."""
    return tuple(jnp.concatenate([x, x[::-1], x[:1]]) for x in inputs)


def difference(one, other, least=0.0):
    """Return the largest difference of two trees, in units of the largest number of the same array.

    Args:
      one: the tree whose numbers are the units.
      other: the other tree.
      least: the smallest unit, in units of the largest number of the whole tree.
    """
    found = [0.0]
    least = least * max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one))
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        left, right = np.asarray(left, np.float32), np.asarray(right, np.float32)
        if left.shape != right.shape:
            raise ValueError(f"expected the shape {left.shape}, got {right.shape}")
        largest = max(np.abs(left).max(), least)
        found.append(float(np.abs(left - right).max() / largest) if largest else float(np.abs(right).max()))
    return max(found)


def gradient(apply, params, inputs):
    """Return the gradient of a loss; of a loop of unknown length, the derivative along the parameters."""

    def loss(params):
        made = jax.tree.leaves(apply(params, *inputs))
        return sum(jnp.vdot(jnp.cos(jnp.arange(each.size)), each.ravel()) for each in made)

    try:
        return jax.jit(jax.grad(loss))(params)
    except ValueError:
        return jax.jit(lambda params: jax.jvp(loss, (params,), (params,))[1])(params)


def in_bfloat16(tree):
    """Return a tree with its float32 arrays in bfloat16."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 else leaf, tree)


def missing(plan, expected: Kinds) -> Kinds:
    """Return the groups that can be cut by hand and that the plan does not have."""
    found = collections.Counter((group.kind, group.size) for group in plan.groups.groups.values())
    wanted = collections.Counter((kind, size) for kind, sizes in expected.items() for size in sizes)
    left: Kinds = {}
    for kind, size in (wanted - found).elements():
        left.setdefault(kind, []).append(size)
    return left


def made(name: str) -> Model:
    """Return a model with random weights."""
    return MODELS[name](np.random.default_rng(0))


def plan_of(model: Model):
    """Return the plan of a model for half of its multiply-adds."""
    return jaxarch.structure.plan(model.apply, model.params, *model.inputs, budget="50% multiply_adds")


def planned(name: str):
    """Return a model, its plan, and the smaller model."""
    model = made(name)
    plan = plan_of(model)
    return model, plan, plan.apply()


def difference_of_outputs(model, plan, small, inputs):
    """Return how far the smaller model is from the masked one."""
    apply = jax.jit(model.apply)
    return difference(
        apply(masked(plan, model.params), *inputs), jax.jit(small.function)(small.tree, *inputs)
    )


def difference_by_jit(small, inputs):
    """Return how far the smaller model without jit is from the one with it."""
    return difference(small.function(small.tree, *inputs), jax.jit(small.function)(small.tree, *inputs))


def difference_of_gradients(model, plan, small):
    """Return how far the gradient of the smaller model is from the cut gradient of the masked one."""
    whole = gradient(model.apply, masked(plan, model.params), model.inputs)
    cut = whole if isinstance(whole, jax.Array) and whole.ndim == 0 else plan.cut(whole)
    # The gradient of a bias of keys is 0, up to rounding, so it has no scale of its own.
    return difference(cut, gradient(small.function, small.tree, model.inputs), least=1e-3)


def difference_in_bfloat16(model, plan):
    """Return how far the smaller model is from the masked one if all numbers are in bfloat16."""
    params, inputs = in_bfloat16(model.params), in_bfloat16(model.inputs)
    same = jaxarch.structure.plan(model.apply, params, *inputs, kept=plan.kept)
    return difference_of_outputs(model._replace(params=params), same, same.apply(), inputs)


def difference_of_export(small, inputs):
    """Return how far the model exported for any number of rows is from itself; `None` if it is refused."""
    counts = sorted({len(x) for x in inputs})
    symbols = dict(zip(counts, jax.export.symbolic_shape(", ".join("abc"[: len(counts)])), strict=True))
    shapes = [jax.ShapeDtypeStruct((symbols[len(x)], *x.shape[1:]), x.dtype) for x in inputs]
    try:
        exported = jax.export.export(jax.jit(small.function))(small.tree, *shapes)
    except jaxarch.ArgumentError:
        return None
    both = [inputs, more(inputs)]
    return max(difference(small.function(small.tree, *x), exported.call(small.tree, *x)) for x in both)


def measure(name: str) -> dict[str, Any]:
    """Cut a model, and return what was found."""
    begun = clock.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, plan, small = planned(name)
        seconds = clock.perf_counter() - begun
        row = {
            "groups": dict(collections.Counter(group.kind for group in plan.groups.groups.values())),
            "expected": sum(sum(sizes) for sizes in model.expected.values()),
            "missing": missing(plan, model.expected),
            "reasons": plan.groups.not_cut(),
            "share": plan.after.multiply_adds / plan.before.multiply_adds,
            "difference": difference_of_outputs(model, plan, small, model.inputs),
            "another batch": difference_of_outputs(model, plan, small, more(model.inputs)),
            "jit": difference_by_jit(small, model.inputs),
            "gradient": difference_of_gradients(model, plan, small),
            "bfloat16": difference_in_bfloat16(model, plan),
            "export": difference_of_export(small, model.inputs),
        }
    together = any(issubclass(warning.category, jaxarch.ResultWarning) for warning in caught)
    return row | {"together": together, "seconds": seconds}


COLUMNS = """\
| model | groups | units by hand | units found | share | difference | other batch | bfloat16 | gradient | any number | seconds |
|---|---|---|---|---|---|---|---|---|---|---|"""  # noqa: E501


def cells(name: str, row: dict[str, Any]) -> str:
    """Return a row of the table."""
    if "failed" in row:
        return f"| {name} | failed |" + " |" * 9
    groups = ", ".join(f"{count} {kind}" for kind, count in sorted(row["groups"].items()))
    gone = row["expected"] - sum(sum(sizes) for sizes in row["missing"].values())
    mark = " (together)" if row["together"] else ""
    numbers = [f"{row[key]:.0e}" for key in ("another batch", "bfloat16", "gradient")]
    numbers.append("no" if row["export"] is None else f"{row['export']:.0e}")
    apart = max(row["difference"], row["jit"])
    first = [name, groups, str(row["expected"]), str(gone), f"{row['share']:.1%}", f"{apart:.0e}{mark}"]
    return f"| {' | '.join([*first, *numbers])} | {row['seconds']:.1f} |"


OPENING = """\
# Which JAX models

This page tells which kinds of JAX models jaxarch makes smaller. Each model is written in plain JAX or Flax as people write
it, and tiny. One plain call of `jaxarch.structure.plan(apply, params, x, budget="50% multiply_adds").apply()` cut it.
`python benchmarks/jax_models.py --page docs/jax_models.md` writes the page; its docstring has the settings.
[Which PyTorch models](coverage.md) has models that others wrote, at full size.

- *Units by hand* counts the units that can be cut by hand, *units found* those that jaxarch finds.
- *Difference* is the largest difference of an output from the masked model's, in units of the largest output, with and
  without jit; then for another number of examples, and with all numbers in bfloat16.
- *Gradient* compares the gradient with respect to the smaller arrays with the masked model's in the same way.
- *Any number* compares the model exported for any number of examples with the same model, for two numbers. It is `no`
  for experts that take the tokens of all examples. The graph has a number of nodes and one of edges.
- `together` marks units that are normalized together with some that are gone. `apply` warns then.
- *Seconds* are those of the plan and of `apply`, on one CPU core that other work shared.
"""  # noqa: E501


def page(rows: dict[str, dict[str, Any]]) -> str:
    """Return the page: the table, and what was not cut or failed."""
    lines = [OPENING, COLUMNS, *(cells(name, row) for name, row in rows.items()), ""]
    for name, row in rows.items():
        if "failed" in row:
            lines.append(f"- {name} failed: `{row['failed']}`")
        elif row["missing"]:
            left = ", ".join(f"{kind} {sizes}" for kind, sizes in row["missing"].items())
            lines += [f"- {name} keeps {left} whole:", *(f"  - {reason}." for reason in row["reasons"])]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Cut the models, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=[*MODELS], help="some models only")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    arguments = parser.parse_args()
    rows = {}
    print(COLUMNS, flush=True)
    for name in arguments.models:
        try:
            rows[name] = measure(name)
        except Exception as error:
            rows[name] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
        print(cells(name, rows[name]), flush=True)
    if arguments.page:
        arguments.page.write_text(page(rows))
    else:
        print(page(rows).partition(cells(name, rows[name]))[2])


if __name__ == "__main__":
    main()
