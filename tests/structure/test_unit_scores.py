"""Scores of whole units: their activations, and the distances between their weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from small import close
from test_axis_groups import SOME, family

import jaxarch
from jaxarch import ArgumentError, saliency
from jaxarch.structure import axis_groups, plan

DRAW = np.random.default_rng(0)


def drawn(*shape):
    return jnp.asarray(DRAW.normal(size=shape), jnp.float32)


X = drawn(5, 6)
PARAMS = {"a": drawn(6, 8), "b": drawn(8, 7), "head": drawn(7, 3)}


def mlp(params, x):
    first = jax.nn.relu(x @ params["a"])
    return jnp.tanh(first @ params["b"]) @ params["head"]


GROUPS = axis_groups(mlp, PARAMS, X)


def test_activations_are_those_that_the_next_layer_reads():
    first = jax.nn.relu(X @ PARAMS["a"])
    second = jnp.tanh(first @ PARAMS["b"])
    for statistic, of in (("rms", lambda a: jnp.sqrt((a**2).mean(0))), ("std", lambda a: a.std(0))):
        scores = saliency.activation(GROUPS, PARAMS, X, statistic=statistic)
        assert close(scores, {"a[1]": of(first), "b[1]": of(second)}, 1e-4)


def test_a_small_spread_around_a_large_mean_is_seen():
    params = PARAMS | {"a": jnp.ones((6, 8))}
    x = 1000 + X
    first = np.asarray(x @ params["a"], np.float64)
    scores = saliency.activation(GROUPS, params, x, statistic="std")
    assert close(scores["a[1]"], first.std(0), 1e-3)


def test_activations_are_of_the_inputs_that_are_passed():
    more = jnp.concatenate([X, 3 * X])  # The groups were found with another number of examples.
    first = jax.nn.relu(more @ PARAMS["a"])
    expected = jnp.sqrt((first**2).mean(0))
    assert close(saliency.activation(GROUPS, PARAMS, more)["a[1]"], expected, 1e-4)


def test_channels_count_all_places_and_heads_all_their_values():
    kernel, out = drawn(3, 3, 2, 4), drawn(3, 3, 4, 5)
    dims = ("NHWC", "HWIO", "NHWC")

    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dims)

    def model(params, x):
        return convolve(jax.nn.relu(convolve(x, params["in"])), params["out"]).mean((1, 2)) @ jnp.ones((5, 2))

    params, x = {"in": kernel, "out": out}, drawn(2, 6, 6, 2)
    scores = saliency.activation(axis_groups(model, params, x), params, x)
    assert close(scores["in[3]"], jnp.sqrt((jax.nn.relu(convolve(x, kernel)) ** 2).mean((0, 1, 2))), 1e-4)

    attention = {name: drawn(6, 3, 4) for name in ("q", "k", "v")} | {"o": drawn(12, 6)}

    def attend(params, x):
        q, k, v = (jnp.einsum("btd,dhe->bthe", x, params[name]) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhe,bkhe->bhqk", q, k))
        return jnp.einsum("bhqk,bkhe->bqhe", weights, v).reshape(*x.shape[:2], 12), params["o"]

    texts = drawn(2, 5, 6)
    made, _ = attend(attention, texts)
    groups = axis_groups(lambda p, x: jnp.matmul(*attend(p, x)), attention, texts)
    (heads,) = [name for name, group in groups.groups.items() if group.kind == "heads"]
    expected = jnp.sqrt((made.reshape(2, 5, 3, 4) ** 2).mean((0, 1, 3)))
    assert close(saliency.activation(groups, attention, texts)[heads], expected, 1e-4)


def test_layers_in_a_loop_count_together():
    stacked, head = drawn(3, 6, 6), drawn(6, 2)
    into = drawn(3, 6, 9), drawn(3, 9, 6)

    def scanned(params, x):
        def layer(x, of):
            return x + jax.nn.relu(x @ of[0]) @ of[1], None

        return jax.lax.scan(layer, x, params["layers"])[0] @ params["head"]

    params = {"layers": into, "head": head}
    squares, x = 0, X
    for index in range(3):
        hidden = jax.nn.relu(x @ into[0][index])
        squares, x = squares + (hidden**2).mean(0), x + hidden @ into[1][index]
    groups = axis_groups(scanned, params, X)
    scores = saliency.activation(groups, params, X)
    (hidden,) = [name for name, group in groups.groups.items() if group.size == 9]
    assert close(scores[hidden], jnp.sqrt(squares / 3), 1e-4)
    assert stacked.shape == (3, 6, 6)


@pytest.mark.parametrize("name", SOME)
def test_every_network_has_finite_activations_that_plan_takes(name):
    function, tree, inputs, groups = family(name)
    scores = saliency.activation(groups, tree, *inputs)
    assert all(scores[of].shape == (groups.groups[of].size,) for of in scores)
    assert all(jnp.isfinite(score).all() for score in scores.values())
    made = plan(function, tree, *inputs, budget="90% parameters", scores=scores, units=[*scores])
    assert made.after.parameters <= 0.9 * made.before.parameters


def test_a_unit_that_never_fires_goes_first():
    params = PARAMS | {"a": PARAMS["a"].at[:, 3].set(0.0)}
    scores = saliency.activation(GROUPS, params, X)
    made = plan(mlp, params, X, budget="95% parameters", scores=scores, units="a[1]")
    assert not made.kept["a[1]"][3]


@pytest.mark.long
def test_the_geometric_median_has_the_distances_between_the_connections_of_units():
    rows = jnp.concatenate([PARAMS["a"].T, PARAMS["b"]], 1)  # into and out of each unit
    expected = jnp.linalg.norm(rows[:, None] - rows[None], axis=-1).sum(1)
    assert close(saliency.geometric_median(GROUPS, PARAMS)["a[1]"], expected, 1e-4)
    only = saliency.geometric_median(GROUPS, PARAMS, where="a")
    assert [*only] == ["a[1]"]
    expected = jnp.linalg.norm(PARAMS["a"].T[:, None] - PARAMS["a"].T[None], axis=-1).sum(1)
    assert close(only["a[1]"], expected, 1e-4)


@pytest.mark.long
def test_of_equal_units_the_geometric_median_is_smallest():
    model = nnx.Sequential(nnx.Linear(4, 6, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(6, 2, rngs=nnx.Rngs(1)))
    model.layers[0].kernel[:, 1:4] = model.layers[0].kernel[:, :1]
    function, tree = jaxarch.nnx.as_function(model)
    groups = axis_groups(function, tree, jnp.ones((1, 4)))
    (scores,) = saliency.geometric_median(groups, tree, where="layers/0/kernel").values()
    assert set(np.argsort(scores)[:4].tolist()) == {0, 1, 2, 3}


@pytest.mark.long
def test_heads_and_their_features_have_distances_of_their_own():
    params = {"q": drawn(6, 3, 4), "k": drawn(6, 3, 4)}

    def model(params, x):
        q, k = (jnp.einsum("td,dhe->the", x, params[name]) for name in "qk")
        return jnp.einsum("qhe,khe->qk", q, jax.nn.softmax(k, 0))

    groups = axis_groups(model, params, X)
    scores = saliency.geometric_median(groups, params)
    for name, score in scores.items():
        axis = dict(groups.groups[name].axes)["q"]
        rows = jnp.concatenate(
            [jnp.moveaxis(leaf, axis, 0).reshape(leaf.shape[axis], -1) for leaf in params.values()], 1
        )
        assert close(score, jnp.linalg.norm(rows[:, None] - rows[None], axis=-1).sum(1), 1e-4)
    assert scores


def test_other_arguments_than_groups_are_refused():
    for call in (saliency.activation, saliency.geometric_median):
        with pytest.raises(ArgumentError, match=r"groups: expected the result of structure\.axis_groups"):
            call(PARAMS, PARAMS)
    with pytest.raises(ArgumentError, match="tree: expected 'a' with the shape"):
        saliency.activation(GROUPS, {**PARAMS, "a": PARAMS["a"][:, 1:]}, X)
