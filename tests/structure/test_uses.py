"""Products of a model, whatever its leaves are called, and the leaves that are masked by default."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import jaxarch
from jaxarch import masks, search
from jaxarch._internal.kernels import not_matrices
from jaxarch.structure import weights_of

X = jnp.ones((2, 8))
SQUARE, WIDE = jnp.ones((8, 8)), jnp.ones((8, 6))


def in_a_scan(params, x):
    def layer(h, own):
        return jnp.tanh(h @ own["k"] + own["b"][None]) * own["g"][None], None

    return jax.lax.scan(layer, x, params)[0]


def normalised(params, x):
    kernel = params["v"] / jnp.linalg.norm(params["v"], axis=0, keepdims=True) * params["g"]
    return x @ kernel


STACKED = {"k": jnp.ones((3, 8, 8)), "b": jnp.ones((3, 8)), "g": jnp.ones((3, 8))}
PROGRAMS = {
    "inputs by outputs": (
        lambda p, x: x @ p["k"] + p["b"],
        {"k": SQUARE, "b": jnp.ones((1, 8))},
        {"k": (0, 1)},
    ),
    "outputs by inputs": (lambda p, x: x @ p["k"].T, {"k": SQUARE}, {"k": (1, 0)}),
    "residual": (lambda p, x: x + jnp.tanh(x @ p["k"].T), {"k": SQUARE}, {"k": (1, 0)}),
    "heads": (lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["k"]), {"k": jnp.ones((8, 2, 3))}, {"k": (0, 2)}),
    "reshaped": (lambda p, x: x @ p["k"].reshape(8, 6), {"k": jnp.ones((8, 2, 3))}, {"k": (0, 2)}),
    "out of heads": (
        lambda p, x: jnp.einsum("bhd,hdo->bo", x.reshape(2, 2, 4), p["k"]),
        {"k": jnp.ones((2, 4, 5))},
        {"k": (1, 2)},
    ),
    "in a scan": (in_a_scan, STACKED, {"k": (1, 2)}),
    "experts": (lambda p, x: jax.vmap(lambda k: x @ k.T)(p["k"]), {"k": jnp.ones((3, 6, 8))}, {"k": (2, 1)}),
    "low rank": (
        lambda p, x: x @ (p["k"] + p["a"] @ p["low"]),
        {"k": WIDE, "a": jnp.ones((8, 2)), "low": jnp.ones((2, 6))},
        {"k": (0, 1)},
    ),
    "weight norm": (normalised, {"v": WIDE, "g": jnp.ones((1, 6))}, {"v": (0, 1)}),
    "beside another": (
        lambda p, x: x @ jnp.concatenate([p["q"], p["k"]], axis=1),
        {"q": SQUARE, "k": WIDE},
        {"q": (0, 1), "k": (0, 1)},
    ),
    "recomputed": (jax.checkpoint(lambda p, x: jax.nn.gelu(x @ p["k"])), {"k": WIDE}, {"k": (0, 1)}),
}


@pytest.mark.parametrize("function, params, axes", PROGRAMS.values(), ids=PROGRAMS)
def test_products_sum_over_these_axes_of_a_leaf_in_any_layout(function, params, axes):
    found = weights_of(function, params, X)
    assert {path: found.axes[path] for path in axes} == axes
    assert {path for path in params if found(path)} - set(axes) <= {"a", "low"}


def test_tables_that_tokens_look_up_are_weights_and_those_of_positions_are_not():
    params = {"e": jnp.ones((10, 4)), "where": jnp.ones((6, 4)), "head": jnp.ones((4, 10))}

    def model(params, tokens):
        return (params["e"][tokens] + params["where"][jnp.arange(tokens.shape[1])][None]) @ params["head"]

    found = weights_of(model, params, jnp.zeros((2, 5), int))
    assert [path for path in params if found(path)] == ["e", "head"] and found.entrywise == ("where",)


@pytest.mark.parametrize(
    "module, shape",
    [
        pytest.param(linen.MultiHeadDotProductAttention(num_heads=2), (2, 5, 8), marks=pytest.mark.long),
        (linen.Conv(4, (3,)), (2, 5, 8)),
    ],
    ids=["attention", "convolution along one axis"],
)
def test_n_of_m_is_along_the_inputs_of_a_search_s_model(module, shape):
    x = np.ones(shape, np.float32)
    problem = jaxarch.supervised(
        module, (x, 0 * x), loss=lambda y, _: y.sum(-1), optimizer=optax.sgd(0.1), steps=1
    )
    params = jax.eval_shape(problem.init, jax.random.key(0))[0]
    network = jax.jit(search.random_mask(0.5, units="2:4"))(jax.random.key(0), problem)
    axes = weights_of(lambda p, x: problem.predict(p, {}, (x, x)), params, x).axes
    for path, mask in jaxarch.named_leaves(network.mask).items():
        rows = jnp.moveaxis(mask, axes[path][0], -1)
        assert (rows.reshape(*rows.shape[:-1], -1, 4).sum(-1) == 2).all()


# By names and shapes ---------------------------------------------------------------------------------

TREES = {
    "matrices in a dict": ({"a": (8, 8), "b": (8, 4), "beta": (4, 4)}, ["a", "b", "beta"]),
    "matrices in a list": ({"0": (3, 3, 8, 8), "1": (8, 8), "2": (8, 1)}, ["0", "1", "2"]),
    "rows of one input": ({"l/weight": (1, 8), "l/bias": (1, 8)}, ["l/weight"]),
    "a modulation": ({"adaLN_modulation/weight": (48, 8)}, ["adaLN_modulation/weight"]),
    "positions that are projected": ({"linear_pos/weight": (8, 8)}, ["linear_pos/weight"]),
    "Equinox, stacked": (
        {"n/weight": (4, 8), "n/bias": (4, 8), "linear/weight": (4, 8, 8), "linear/bias": (4, 8)},
        ["linear/weight"],
    ),
    "a gain and a shift": ({"a/weight": (4, 8), "a/bias": (4, 8), "q": (8, 8)}, ["q"]),
    "norms without shifts, stacked": (
        {"ffn_norm/weight": (4, 8), "q/weight": (4, 8, 8), "gate": (4, 8)},
        ["q/weight"],
    ),
    "a vector a layer, stacked": (
        {"layers/x/gain": (4, 8), "layers/q/kernel": (4, 8, 8), "layers/q/bias": (4, 8), "head": (8, 4)},
        ["layers/q/kernel", "head"],
    ),
    "Haiku, stacked": (
        {"norm/scale": (4, 8), "norm/offset": (4, 8), "l/w": (4, 8, 8), "l/b": (4, 8)},
        ["l/w"],
    ),
    "Haiku's batch norm": (
        {"bn/scale": (1, 1, 1, 8), "bn/offset": (1, 1, 1, 8), "c/w": (3, 3, 1, 8)},
        ["c/w"],
    ),
    "Keras, variables in a list": (
        {"0": (8, 2, 4), "1": (2, 4), "2": (2, 4, 8), "3": (8,)},
        ["0", "2"],
    ),
    "pairs, stacked": ({"0/0": (5, 8, 6), "0/1": (5, 6), "1/0": (5, 6, 1), "1/1": (5, 1)}, ["0/0", "1/0"]),
    "PyTorch, stacked": (
        {"in_proj_weight": (2, 24, 8), "in_proj_bias": (2, 24), "n.weight": (2, 8)},
        ["in_proj_weight"],
    ),
    "a vision transformer": (
        {
            "cls_token": (1, 1, 8),
            "pos_embed": (1, 17, 8),
            "patch/kernel": (4, 4, 3, 8),
            "register_tokens": (4, 8),
        },
        ["patch/kernel"],
    ),
    "GPT-2": (
        {"transformer.wte.weight": (50, 8), "transformer.wpe.weight": (32, 8), "h.0.ln_1.weight": (8,)},
        ["transformer.wte.weight"],
    ),
    "Mamba": (
        {"A_log": (16, 4), "conv1d/weight": (16, 1, 4), "x_proj/weight": (6, 16)},
        ["conv1d/weight", "x_proj/weight"],
    ),
    "Haiku's bias of two axes": ({"bias/b": (6, 16), "linear/w": (8, 8)}, ["linear/w"]),
    "Equinox's weight norm": ({"g": (3, 1), "layer/weight": (3, 4), "layerscale": (1, 8)}, ["layer/weight"]),
    "PyTorch's weight norm": ({"weight_g": (8, 1), "weight_v": (8, 4)}, ["weight_v"]),
}


@pytest.mark.parametrize("shapes, selected", TREES.values(), ids=TREES)
def test_by_default_kernels_and_embeddings_are_selected(shapes, selected):
    left_out = not_matrices({path: np.empty(shape) for path, shape in shapes.items()})
    assert [path for path in shapes if path not in left_out] == selected


def test_norms_of_stacked_equinox_layers_are_not_scored():
    eqx = pytest.importorskip("equinox")

    class Block(eqx.Module):
        first: eqx.nn.LayerNorm
        linear: eqx.nn.Linear

        def __init__(self, key):
            self.first, self.linear = eqx.nn.LayerNorm(8), eqx.nn.Linear(8, 8, key=key)

    stack = eqx.filter(eqx.filter_vmap(Block)(jax.random.split(jax.random.key(0), 4)), eqx.is_inexact_array)
    assert list(jaxarch.named_leaves(jaxarch.saliency.magnitude(stack))) == ["linear/weight"]


@pytest.mark.parametrize("name, shape", [("table", (3, 8)), ("w", (1, 8))])
def test_a_problem_says_which_leaves_are_masked_by_default_and_enter_no_product(name, shape):
    def init(key):
        return {"in": {"w": SQUARE}, name: jnp.ones(shape), "out": {"w": jnp.ones((8, 2))}}, {}

    def apply(params, state, x, key):
        return jnp.tanh((x + params[name][None]) @ params["in"]["w"]).mean(1) @ params["out"]["w"], state

    with pytest.warns(
        jaxarch.ResultWarning, match=f"model: '{name}' would be masked by default, but enters no"
    ):
        jaxarch.supervised(
            jaxarch.Model(init, apply), (np.ones((4, 3, 8)), np.zeros(4, int)), steps=1,
            loss=optax.softmax_cross_entropy_with_integer_labels, optimizer=optax.sgd(0.1),
        )  # fmt: skip


# N:M and blocks without a model ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, shape",
    [
        ("weight", (8, 4)),
        ("a", (8, 4)),
        ("kernel", (8, 4, 4)),
        ("w", (4, 3, 8, 4)),
        ("conv2_d_transpose/w", (3, 3, 8, 4)),
        ("conv/kernel", (3, 3, 8, 1)),
    ],
)
def test_n_of_m_without_a_model_is_refused_where_the_layout_is_not_known(name, shape):
    for units, option in (("2:4", "NOfM"), ((4, 2), "Blocks")):
        with pytest.raises(
            jaxarch.ArgumentError, match=f"units: cannot tell which ax.s of {name!r} .* masks.{option}"
        ):
            masks.keep({name: jnp.ones(shape)}, None if units == "2:4" else 0.5, units=units)


def test_n_of_m_takes_the_axes_of_a_model_by_path():
    params = {
        "a": jax.random.normal(jax.random.key(0), (8, 4)),
        "b": jax.random.normal(jax.random.key(1), (8, 8)),
    }
    axes = weights_of(lambda p, x: jnp.tanh(x @ p["b"]) @ p["a"], params, X).axes | {"b": (1, 0)}
    mask = masks.keep(params, units=masks.NOfM(2, 4, axis=axes))
    assert (mask["a"].reshape(2, 4, 4).sum(1) == 2).all() and (mask["b"].reshape(8, 2, 4).sum(2) == 2).all()


def test_blocks_lie_along_the_axes_that_are_given():
    scores = {"weight": jnp.arange(24.0).reshape(4, 6)}
    mask = masks.keep(scores, 1 / 6, units=masks.Blocks(2, 2, axes=(1, 0)))["weight"]
    tall = masks.keep(scores, 0.25, units=masks.Blocks(6, 1, axes=(1, 0)))["weight"]
    assert mask.sum() == 4 and mask[2:, 4:].all() and tall[3].all() and tall.sum() == 6
