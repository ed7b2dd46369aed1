"""Units that the outputs do not need: by hand, in networks of every family, in graphs that are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import close

from jaxarch import ArgumentError, matrices
from jaxarch._internal.trees import path_name
from jaxarch.structure import axis_groups


def masked(tree, draw, share=0.5, biases=0.0):
    """Random connections, whole rows and columns without any, and few biases: as after a search."""

    def of_leaf(path, leaf):
        name = path_name(path)
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or name.endswith(("var", "scale")):
            return leaf
        if not matrices(name, leaf):
            return leaf * (draw.random(leaf.shape) < biases)
        mask = draw.random(leaf.shape) < share
        mask[..., draw.random(leaf.shape[-1]) < 0.4] = False
        mask[..., draw.random(leaf.shape[-2]) < 0.4, :] = False
        return leaf * jnp.asarray(mask, leaf.dtype)

    return jax.tree_util.tree_map_with_path(of_leaf, tree)


def cut_to_what_is_needed(function, tree, inputs, groups, compiled=jax.jit):
    """Return the number of units that went; the smaller network computes what the whole one does."""
    kept = groups.needed(tree)
    small = compiled(groups.smaller(kept))(groups.cut(tree, kept), *inputs)
    assert close(small, compiled(function)(tree, *inputs), 1e-4)
    return sum(int((~units).sum()) for units in kept.values())


def needed_of(function, params, width=4):
    x = jnp.ones((2, 3))
    (units,) = axis_groups(function, params, x).needed(params).values()
    assert units.shape == (width,)
    return units.astype(int).tolist()


IN, OUT = jnp.array([[1.0, 1, 0, -1], [2, 0, 0, -1], [0, 1, 0, -1]]), jnp.array([[1.0], [0], [1], [1]])


def carried(x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(x + h), None), jnp.zeros_like(x), length=3)[0]


BY_HAND = {
    # The second is not read, the third has no inputs.
    "a chain": (lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"], [1, 0, 0, 1]),
    "what ReLU makes of what is never positive": (
        lambda p, x: jax.nn.relu(jnp.abs(x) @ p["a"]) @ p["b"],
        [1, 0, 0, 0],
    ),
    "a constant that is not 0 stays": (lambda p, x: jnp.exp(x @ p["a"]) @ p["b"], [1, 0, 1, 1]),
    "all that are normalized together stay": (
        lambda p, x: jax.nn.standardize(x @ p["a"]) @ p["b"],
        [1, 1, 1, 1],
    ),
    "a gate that is shut": (lambda p, x: ((x @ p["a"]) * p["b"].T) @ jnp.ones((4, 1)), [1, 0, 0, 1]),
    "the largest of all needs all": (lambda p, x: (x @ p["a"] * p["b"].T).max(-1), [1, 1, 1, 1]),
    "a truth value of what is never positive": (
        lambda p, x: jax.nn.relu((-jnp.abs(x) @ jnp.abs(p["a"])).astype(bool).astype(float)) @ p["b"],
        [1, 0, 0, 1],
    ),
    "a mean": (lambda p, x: (x @ p["a"] * p["b"].T).mean(-1), [1, 0, 0, 1]),
    "what a loop carries": (lambda p, x: carried(x @ p["a"]) @ p["b"], [1, 0, 0, 1]),
    "two readers": (
        lambda p, x: (lambda h: (h @ p["b"], h.sum(-1)))(jnp.tanh(x @ p["a"])),
        [1, 1, 0, 1],
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    function, expected = BY_HAND[case]
    assert needed_of(function, {"a": IN, "b": OUT}) == expected


def test_what_only_dead_units_read_is_dead():
    params = {
        "a": jnp.ones((3, 4)),
        "b": jnp.array([[1.0, 1], [1, 0], [1, 0], [1, 0]]),
        "c": jnp.array([[0.0], [1]]),
    }
    groups = axis_groups(
        lambda p, x: jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"]) @ p["c"], params, jnp.ones((1, 3))
    )
    needed = {name: units.astype(int).tolist() for name, units in groups.needed(params).items()}
    assert needed == {"a[1]": [1, 0, 0, 0], "b[1]": [0, 1]}


def test_what_is_read_only_by_units_that_are_always_0_is_dead():
    second = jnp.array([[-1.0, 1], [-1, 0], [-1, 0], [-1, 0]])
    params = {"a": jnp.ones((3, 4)), "b": second, "c": jnp.ones((2, 1))}

    def network(p, x):
        return jax.nn.relu(jnp.abs(x @ p["a"]) @ p["b"]) @ p["c"]

    groups = axis_groups(network, params, jnp.ones((1, 3)))
    needed = {name: units.astype(int).tolist() for name, units in groups.needed(params).items()}
    assert needed == {"a[1]": [1, 0, 0, 0], "b[1]": [0, 1]}


def test_a_stream_goes_where_all_of_its_writers_and_readers_are_dead():
    params = {name: jnp.ones((4, 4)).at[:, 1].set(0) for name in "ab"} | {"c": jnp.ones((4, 1))}
    first = {**params, "in": jnp.ones((3, 4)).at[:, 1].set(0)}

    def function(p, x):
        x = x @ p["in"]
        return (x + jnp.tanh(x @ p["a"]) @ p["b"]) @ p["c"]

    needed = axis_groups(function, first, jnp.ones((1, 3))).needed(first)
    assert needed["a[0]"].tolist() == [True, False, True, True]
    second = {**first, "in": jnp.ones((3, 4))}
    assert axis_groups(function, second, jnp.ones((1, 3))).needed(second)["a[0]"].all()


def test_a_group_keeps_one_unit():
    params = {"a": jnp.zeros((3, 4)), "b": jnp.ones((4, 2))}
    function = lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"]  # noqa: E731
    assert needed_of(function, params) == [1, 0, 0, 0]


def test_what_is_traced_is_refused():
    params = {"a": IN, "b": OUT}
    groups = axis_groups(lambda p, x: x @ p["a"] @ p["b"], params, jnp.ones((1, 3)))
    with pytest.raises(ArgumentError, match=r"^tree: .* values decide which units are needed"):
        jax.jit(groups.needed)(params)


WIDTH = 6


def drawn_graph(draw):
    """Layers that read what some layers before them made: vectors of one width, or pictures."""
    params, plan = {}, []
    for index in range(draw.integers(3, 8)):
        kind = draw.choice(
            ["dense", "residual", "gate", "concatenate", "norm", "grouped", "layer norm", "split"]
        )
        plan.append(
            (
                str(kind),
                int(draw.integers(0, index + 1)),
                int(draw.integers(0, index + 1)),
                int(draw.integers(4)),
            )
        )
        rows = {"concatenate": 2 * WIDTH, "grouped": WIDTH // 2}.get(str(kind), WIDTH)
        columns = 2 * WIDTH if kind == "split" else WIDTH
        params[f"{index}"] = {
            "kernel": draw.normal(size=(rows, columns)).astype(np.float32),
            "bias": draw.normal(size=columns).astype(np.float32),
            "scale": draw.normal(size=WIDTH).astype(np.float32),
        }
    params["head"] = {"kernel": draw.normal(size=(WIDTH, 2)).astype(np.float32)}
    functions = [jax.nn.relu, jax.nn.gelu, jnp.tanh, jax.nn.silu]

    def network(params, x):
        values = [x]
        for index, (kind, one, other, function) in enumerate(plan):
            p, act = params[f"{index}"], functions[function]
            first, second = values[one], values[other]
            if kind == "concatenate":
                first = jnp.concatenate([first, second], -1)
            if kind == "layer norm":
                first = jax.nn.standardize(first) * p["scale"][None]
            if kind == "grouped":
                parts = first.reshape(*first.shape[:-1], 2, WIDTH // 2)
                blocks = p["kernel"].reshape(WIDTH // 2, 2, WIDTH // 2)
                made = jnp.einsum("...gi,igo->...go", parts, blocks).reshape(first.shape)
            else:
                made = first @ p["kernel"]
            made = made + p["bias"][None]
            if kind == "split":
                left, right = jnp.split(made, 2, -1)
                made = left * jax.nn.sigmoid(right)
            if kind == "norm":
                made = (made - 0.1) * p["scale"][None]
            made = act(made)
            values.append(made + second if kind == "residual" else made * second if kind == "gate" else made)
        return values[-1] @ params["head"]["kernel"]

    return network, params


def check_drawn(seed, compiled=jax.jit):
    draw = np.random.default_rng(seed)
    network, params = drawn_graph(draw)
    params = masked(params, draw, draw.choice([0.1, 0.3, 0.6]), biases=0.2)
    x = jnp.asarray(draw.normal(size=(5, WIDTH)) * 3, jnp.float32)
    return cut_to_what_is_needed(network, params, (x,), axis_groups(network, params, x), compiled)


@pytest.mark.long
def test_drawn_graphs_without_what_is_not_needed_compute_the_same():
    smaller = [check_drawn(seed) > 0 for seed in range(2)]
    assert any(smaller)


@pytest.mark.long
def test_more_drawn_graphs_without_what_is_not_needed_compute_the_same():
    # Operation by operation, graphs share what compiles: whole programs are compiled in the test above.
    smaller = [check_drawn(seed, compiled=lambda function: function) > 0 for seed in range(100, 220)]
    assert np.mean(smaller) >= 0.9
