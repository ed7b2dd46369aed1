"""One Llama in the shapes of two frameworks' checkpoints, and a plain network that knows nothing of tracing.

Hugging Face's files hold a matrix of (outputs, inputs) for each layer: transformers 5.24.0. MaxText's hold
the kernels of all layers in one array, stacked along its second axis: commit e591f30 of August 2026. Its
query kernels are divided by the root of a query's size, and the two halves of each query and key alternate.
MaxText casts a head that is the embedding to bfloat16; here it stays in single precision.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxarch

WIDTH, HEADS, GROUPS, SIZE, HIDDEN, WORDS, LAYERS = 16, 4, 2, 4, 16, 13, 2
EMBEDDING, LAST = "model.embed_tokens.weight", "model.norm.weight"
KERNELS = {
    "self_attn.q_proj": ("self_attention", "query", (WIDTH, LAYERS, HEADS, SIZE)),
    "self_attn.k_proj": ("self_attention", "key", (WIDTH, LAYERS, GROUPS, SIZE)),
    "self_attn.v_proj": ("self_attention", "value", (WIDTH, LAYERS, GROUPS, SIZE)),
    "self_attn.o_proj": ("self_attention", "out", (HEADS, LAYERS, SIZE, WIDTH)),
    "mlp.gate_proj": ("mlp", "wi_0", (WIDTH, LAYERS, HIDDEN)),
    "mlp.up_proj": ("mlp", "wi_1", (WIDTH, LAYERS, HIDDEN)),
    "mlp.down_proj": ("mlp", "wo", (HIDDEN, LAYERS, WIDTH)),
}
NORMS = {"input_layernorm": "pre_self_attention", "post_attention_layernorm": "post_self_attention"}


@functools.cache
def maxtext_params():
    rng = np.random.default_rng(0)

    def normal(*shape, mean=0.0):
        return jnp.asarray(mean + rng.normal(size=shape) / 2, jnp.float32)

    layers = {f"{norm}_layer_norm": {"scale": normal(WIDTH, LAYERS, mean=1)} for norm in NORMS.values()}
    for block, name, shape in KERNELS.values():
        layers.setdefault(block, {})[name] = {"kernel": normal(*shape)}
    decoder = {"layers": layers, "decoder_norm": {"scale": normal(WIDTH, mean=1)}}
    return {"params": {"decoder": decoder, "token_embedder": {"embedding": normal(WORDS, WIDTH)}}}


def as_hugging_face(tree, scale=1):
    """Name leaves of MaxText's shape as Hugging Face's files do; multiply queries by a scale."""
    tree = jax.tree.map(np.asarray, tree)
    decoder, embedding = tree["params"]["decoder"], tree["params"]["token_embedder"]["embedding"]
    layers, found = decoder["layers"], {EMBEDDING: embedding, LAST: decoder["decoder_norm"]["scale"]}
    for index in range(LAYERS):
        for name, norm in NORMS.items():
            leaf = layers[f"{norm}_layer_norm"]["scale"]  # which has no squares, and no mask
            found[f"model.layers.{index}.{name}.weight"] = None if leaf is None else leaf[:, index]
        for name, (block, kernel, _) in KERNELS.items():
            leaf = layers[block][kernel]["kernel"][:, index]
            if kernel in ("query", "key"):
                leaf = np.concatenate([leaf[..., ::2], leaf[..., 1::2]], axis=-1)
            leaf = leaf * scale if kernel == "query" and scale != 1 else leaf
            matrix = leaf.reshape(-1, WIDTH) if kernel == "out" else leaf.reshape(len(leaf), -1)
            found[f"model.layers.{index}.{name}.weight"] = matrix.T
    return found


def hugging_face_params():
    return jax.tree.map(jnp.asarray, as_hugging_face(maxtext_params(), scale=2))


def normed(x):
    return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def turned(first, second):
    """Turn pairs of entries by their token's place: rotary positions."""
    angle = jnp.arange(first.shape[1])[None, :, None, None] / jnp.array([1, 100])[None, None, None]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(queries, keys, values):
    """Return what each head takes from the tokens so far. Two heads share their keys and values."""
    queries = queries.reshape(*queries.shape[:2], GROUPS, -1, SIZE)
    scores = jnp.einsum("bqghd,bkgd->bghqk", queries, keys)
    shares = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape)) > 0, scores, -1e9), axis=-1)
    return jnp.einsum("bghqk,bkgd->bqghd", shares, values).reshape(*values.shape[:2], HEADS, SIZE)


def hugging_face(params, tokens):
    h = params[EMBEDDING][tokens]
    for index in range(LAYERS):
        own = {name: params[f"model.layers.{index}.{name}.weight"] for name in (*KERNELS, *NORMS)}
        x = own["input_layernorm"][None, None] * normed(h)
        made = (x @ own[f"self_attn.{name}_proj"].T for name in "qkv")
        q, k, v = (of.reshape(*tokens.shape, -1, SIZE) for of in made)
        q, k = (turned(*jnp.split(of, 2, axis=-1)) for of in (q, k))
        h += attend(q / SIZE**0.5, k, v).reshape(*tokens.shape, -1) @ own["self_attn.o_proj"].T
        x = own["post_attention_layernorm"][None, None] * normed(h)
        gate, up, down = (own[f"mlp.{name}_proj"].T for name in ("gate", "up", "down"))
        h += (jax.nn.silu(x @ gate) * (x @ up)) @ down
    return (params[LAST][None, None] * normed(h)) @ params[EMBEDDING].T


def maxtext(params, tokens):
    def norm(x, of):
        return jnp.einsum("...k,k->...k", normed(x), of["scale"])

    def layer(h, of):
        own = {name: of[block][name]["kernel"] for block, name, _ in KERNELS.values()}
        x = norm(h, of["pre_self_attention_layer_norm"])
        q, k, v = (jnp.einsum("btd,dhk->bthk", x, own[name]) for name in ("query", "key", "value"))
        q, k = (turned(of[..., ::2], of[..., 1::2]) for of in (q, k))
        h += jnp.einsum("bthk,hkd->btd", attend(q, k, v), own["out"])
        x = norm(h, of["post_self_attention_layer_norm"])
        return h + (jax.nn.silu(x @ own["wi_0"]) * (x @ own["wi_1"])) @ own["wo"], None

    decoder, embedding = params["params"]["decoder"], params["params"]["token_embedder"]["embedding"]
    layers = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), decoder["layers"])
    h, _ = lax.scan(layer, embedding[tokens], layers)
    return norm(h, decoder["decoder_norm"]) @ embedding.T


def plain(params, sentence):
    """Return the logits of one sentence in double precision, and the inputs of each matrix."""
    inputs = {}

    def times(x, name):
        inputs[f"{name}.weight"] = x
        return x @ params[f"{name}.weight"].T

    def norm(x, name):
        return x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * params[f"{name}.weight"]

    def rotary(x):
        pairs = (x[..., :2] + 1j * x[..., 2:]) * np.exp(1j * np.outer(range(len(sentence)), [1, 0.01]))
        return np.concatenate([pairs.real, pairs.imag], axis=-1)

    h = params[EMBEDDING][sentence]
    for at in (f"model.layers.{index}" for index in range(LAYERS)):
        x = norm(h, f"{at}.input_layernorm")
        made = (times(x, f"{at}.self_attn.{name}_proj") for name in "qkv")
        q, k, v = (of.reshape(len(x), -1, SIZE).swapaxes(0, 1) for of in made)
        shares = np.tril(np.exp(rotary(q) @ rotary(k).repeat(2, 0).swapaxes(1, 2) / 2))
        taken = shares / shares.sum(2, keepdims=True) @ v.repeat(2, 0)
        h = h + times(taken.swapaxes(0, 1).reshape(len(x), -1), f"{at}.self_attn.o_proj")
        x = norm(h, f"{at}.post_attention_layernorm")
        gate, up = times(x, f"{at}.mlp.gate_proj"), times(x, f"{at}.mlp.up_proj")
        h = h + times(gate / (1 + np.exp(-gate)) * up, f"{at}.mlp.down_proj")
    return times(norm(h, "model.norm"), "model.embed_tokens"), inputs


BATCHES = [jnp.asarray(np.random.default_rng(seed).integers(0, WORDS, (6, 12))) for seed in (1, 2)]
SHAPES = {
    "Hugging Face": (hugging_face, hugging_face_params, lambda tree: tree),
    "MaxText": (maxtext, maxtext_params, as_hugging_face),
}


@functools.cache
def calibration(shape):
    return jaxarch.calibrate(SHAPES[shape][0], SHAPES[shape][1](), BATCHES)


@functools.cache
def pruned(shape, method):
    """Return the parameters before and after they are pruned, and the mask."""
    apply, params = SHAPES[shape][0], SHAPES[shape][1]()
    if method == "wanda":
        scores = jaxarch.saliency.wanda(params, calibration(shape))
        mask = jaxarch.masks.keep(scores, 0.5, jaxarch.masks.PerOutput(calibration(shape).inputs))
        return params, jaxarch.masks.apply_mask(mask, params), mask
    how = {"units": "2:4"} if method == "sparsegpt" else {"density": 0.5}
    with pytest.warns(jaxarch.ResultWarning, match="embed.* inputs look it up; it stays as it is"):
        return params, *getattr(jaxarch, method)(apply, params, BATCHES, **how)


@functools.cache
def recorded():
    """Return the logits of all sentences, and their sums of squared inputs, in double precision."""
    params = {name: np.asarray(leaf, float) for name, leaf in SHAPES["Hugging Face"][1]().items()}
    sentences = np.concatenate(BATCHES)
    logits, inputs = zip(*(plain(params, sentence) for sentence in sentences), strict=True)
    squares = {name: sum((of[name] ** 2).sum(0) for of in inputs) for name in inputs[0]}
    squares[EMBEDDING] = squares[EMBEDDING] + np.bincount(sentences.ravel(), minlength=WORDS)[:, None]
    return np.stack(logits), squares


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_plain_network(shape):
    logits = jax.jit(SHAPES[shape][0])(SHAPES[shape][1](), jnp.concatenate(BATCHES))
    np.testing.assert_allclose(logits, recorded()[0], rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_squares_are_those_of_the_recorded_inputs(shape):
    squares = SHAPES[shape][2](calibration(shape).squares(SHAPES[shape][1]()))
    assert {name for name, leaf in squares.items() if leaf is not None} == {*recorded()[1]}
    for name, expected in recorded()[1].items():
        np.testing.assert_allclose(squares[name], np.broadcast_to(expected, squares[name].shape), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("method", ["wanda", "sparsegpt", "alps"])
def test_both_shapes_are_pruned_to_the_same_network(method):
    _, own, mask = pruned("Hugging Face", method)
    _, other, other_mask = pruned("MaxText", method)
    other, other_mask = as_hugging_face(other, scale=2), as_hugging_face(other_mask)
    for name in own:
        np.testing.assert_allclose(own[name], other[name], rtol=1e-3, atol=1e-4)
        assert mask[name] is other_mask[name] is None or np.array_equal(mask[name], other_mask[name])


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["wanda", "sparsegpt", "alps"])
def test_all_that_is_not_pruned_stays_bit_for_bit(shape, method):
    before, after, mask = pruned(shape, method)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    before, after, mask = (jax.tree.map(np.asarray, tree) for tree in (before, after, mask))
    after, masked = jaxarch.named_leaves(after), jaxarch.named_leaves(mask)
    for path, leaf in jaxarch.named_leaves(before).items():
        # The head is the embedding, which only Wanda can score.
        assert (path in masked) == ("norm" not in path and ("embed" not in path or method == "wanda"))
        kept = masked.get(path, np.ones(leaf.shape, bool))
        assert after[path].dtype == leaf.dtype and not after[path][~kept].any()
        if method == "wanda" or path not in masked:
            assert (after[path] == leaf)[kept].all()
