"""Depth in transformable architecture search: chains of blocks, their cost, and what is no block."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close, same

import jaxarch
from jaxarch import ArgumentError
from jaxarch.search import _chains as chains
from jaxarch.search import _transformable as tas

KEY = jax.random.key(0)
X = jax.random.normal(jax.random.key(1), (80, 4))
Y = jnp.sin(X[:, :1]) + X[:, 1:2] * X[:, 2:3]
PAIR = "blocks/[12]"


class Block(nnx.Module):
    """A branch with batch norm where it ends."""

    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(6, 5, rngs=rngs), nnx.Linear(5, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)

    def __call__(self, x):
        return x + self.norm(self.down(nnx.relu(self.up(x))))


class Attention(nnx.Module):
    """Two branches, the first of which multiplies activations with each other."""

    def __init__(self, rngs):
        self.first, self.second = nnx.LayerNorm(6, rngs=rngs), nnx.LayerNorm(6, rngs=rngs)
        self.query, self.key = (nnx.Linear(1, 3, use_bias=False, rngs=rngs) for _ in range(2))
        self.value = nnx.Linear(1, 1, use_bias=False, rngs=rngs)
        self.up, self.down = nnx.Linear(6, 5, rngs=rngs), nnx.Linear(5, 6, rngs=rngs)

    def __call__(self, x):
        tokens = self.first(x)[..., None]
        scores = self.query(tokens) @ self.key(tokens).mT
        x = x + (jax.nn.softmax(scores) @ self.value(tokens))[..., 0]
        return x + self.down(jnp.tanh(self.up(self.second(x))))


class Deep(nnx.Module):
    """A stream of 6 neurons with three blocks."""

    def __init__(self, rngs, block=Block, blocks=3):
        self.stem, self.head = nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 1, rngs=rngs)
        self.blocks = nnx.List(block(rngs) for _ in range(blocks))

    def __call__(self, x):
        x = jnp.tanh(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def problem_of(model, **settings):
    return jaxarch.supervised(
        model, (X, Y), loss=optax.squared_error, optimizer=optax.adam(1e-2), steps=30, batch_size=20,
        train=np.arange(40), validation=np.arange(40, 80), **settings,
    )  # fmt: skip


@cache
def problem():
    return problem_of(Deep)


def search(target=0.5, depth=PAIR, **settings):
    made = {"scores_optimizer": optax.adam(0.1), "widths": (0.4, 1.0)} | settings
    return jaxarch.search.transformable(target, depth=depth, **made)


def started(training, learned=None):
    return training.init(training.settings, KEY, learned or problem(), None)


def with_depth(state, depth, count=3):
    """A state whose most probable depth is this one, and whose widths are the largest."""
    logits = {name: jnp.arange(of.size, dtype=jnp.float32) for name, of in state.trainable["scores"].items()}
    logits[PAIR] = jax.nn.one_hot(depth, count)
    return state._replace(trainable={**state.trainable, "scores": logits})


def network_of(training, state):
    chosen = tas._chosen(training.settings, state)
    return training.network(training.settings, state._replace(memory=chosen))


def test_a_pattern_is_matched_part_by_part_with_the_beginning_of_paths():
    paths = ["net/block_10/w", "net/block_2/w", "net/block_2/b", "net/head/w", "block_2/w"]
    assert chains.leaves_of(["net/block_*"], paths) == {
        "net/block_2": ["net/block_2/w", "net/block_2/b"],
        "net/block_10": ["net/block_10/w"],
    }
    assert list(chains.leaves_of(["*/block_10", "*/block_2"], paths)) == ["net/block_10", "net/block_2"]
    assert chains.leaves_of(["block"], paths) == {}


def test_one_pattern_is_a_chain_and_several_are_several():
    assert chains.check_depth(None) == ()
    assert chains.check_depth("a/*") == (("a/*",),)
    assert chains.check_depth(("a/*", "b/*")) == (("a/*",), ("b/*",))
    assert chains.check_depth((("a/1", "a/2"), "b/*")) == (("a/1", "a/2"), ("b/*",))


@pytest.mark.long
@pytest.mark.parametrize("key", [None, KEY])
def test_each_block_adds_its_branch_times_the_weight_of_the_depths_that_have_it(key, monkeypatch):
    training = search(widths=(1.0,))
    state = started(training)
    drawn = {3: jnp.array([0.25, 0.0, 0.75]), 1: jnp.ones(1)}
    monkeypatch.setattr(tas, "_two_drawn", lambda key, logits, tau: drawn[logits.size])
    weights = jax.tree.map(lambda leaf: leaf + 0.1, state.trainable["weights"])
    state = state._replace(trainable={**state.trainable, "weights": weights})
    graph, _, rest = nnx.split(Deep(nnx.Rngs(0)), nnx.Param, ...)

    def module(params):
        made = nnx.merge(graph, params, rest, copy=True)
        made.train() if key is not None else made.eval()
        return made

    whole = module(weights)
    x = jnp.tanh(whole.stem(X))
    for block, weight in zip(whole.blocks, (1.0, 0.75, 0.75), strict=True):
        x = x + weight * (block(x) - x)
    made = module(training.params(training.settings, state))(X)
    assert close(made, whole.head(x), 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_removed_block_is_masked_whole_and_passes_what_it_gets(depth):
    training = search()
    state = with_depth(started(training), depth)
    network = network_of(training, state)
    assert int(network.info["depths"][PAIR]) == depth
    gone = tuple(f"blocks/{number}/" for number in range(depth + 1, 3))
    for path, leaf in jaxarch.named_leaves(network.mask).items():
        assert bool(leaf.any()) != path.startswith(gone)
    graph, _, rest = nnx.split(Deep(nnx.Rngs(0)), nnx.Param, ...)
    whole = nnx.merge(graph, state.trainable["weights"], rest, copy=True)
    whole.eval()
    x = jnp.tanh(whole.stem(X))
    for block in list(whole.blocks)[: depth + 1]:
        x = block(x)
    made = problem().predict(network.params, network.state, (X, Y))
    assert close(made, whole.head(x), 1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("first", "depth", "last"), [(2, 2, 2), (1, 2, 1), (1, 0, 0), (0, 2, 0)])
def test_a_block_that_an_earlier_mask_removed_is_in_no_depth(first, depth, last):
    training = search(cost="parameters")
    earlier = network_of(training, with_depth(started(training), first))
    weights = jax.tree.map(lambda leaf: leaf + 0.1, earlier.params)  # No bias is 0.
    state = training.init(training.settings, KEY, problem(), earlier.replace(params=weights))
    network = network_of(training, with_depth(state, depth))
    assert int(network.info["depths"][PAIR]) == last
    total = jaxarch.cost(network, problem()).total
    assert close(network.info["cost"], total.effective.parameters / total.dense.parameters, 1e-5)


@pytest.mark.long
def test_widths_within_a_removed_block_are_reported_as_0():
    training = search()
    network = network_of(training, with_depth(started(training), 1))
    kept = {name: int(count) for name, count in network.info["kept"].items()}
    assert sorted(kept.values()) == [0, 5, 5, 6]
    assert next(name for name, count in kept.items() if not count).startswith("blocks/2")


@pytest.mark.long
@pytest.mark.parametrize("cost", ["multiply_adds", "parameters", "units"])
def test_the_expected_cost_is_the_mean_over_all_widths_and_depths(cost):
    training = search(cost=cost)
    state = started(training)
    choices = {name: of.size for name, of in state.trainable["scores"].items()}
    probabilities = {
        name: jax.nn.softmax(jax.random.normal(jax.random.key(number), (count,)))
        for number, (name, count) in enumerate(choices.items())
    }

    @jax.jit
    def kept(places):
        network = training.network(training.settings, state._replace(memory=tas.Chosen(places, 0.0, True)))
        if cost == "units":
            return sum(network.info["kept"].values())
        # Each entry of a kernel is one multiply-add.
        leaves = jaxarch.named_leaves(jaxarch.masks.apply_mask(network.mask, ones))
        return sum(leaf.sum() for path, leaf in leaves.items() if cost == "parameters" or "kernel" in path)

    ones = jax.tree.map(jnp.ones_like, state.trainable["weights"])
    mean = 0.0
    for places in itertools.product(*map(range, choices.values())):
        of = dict(zip(choices, map(jnp.asarray, places), strict=True))
        mean += float(kept(of)) * np.prod([probabilities[name][int(place)] for name, place in of.items()])
    whole = float(kept({name: jnp.asarray(count - 1) for name, count in choices.items()}))
    assert close(tas._cost(state.fixed, probabilities), mean / whole, 1e-5)


@pytest.mark.long
def test_the_cost_found_is_that_of_the_effective_connections():
    learned = problem_of(lambda rngs: Deep(rngs, Attention))
    made = {}
    for cost in ("multiply_adds", "parameters", "bytes", "activations"):
        training = search(cost=cost)
        state = started(training, learned)
        weights = jax.tree.map(lambda leaf: leaf + 0.1, state.trainable["weights"])  # No bias is 0.
        state = state._replace(trainable={**state.trainable, "weights": weights})
        network = made[cost] = network_of(training, with_depth(state, 1))
    total = jaxarch.cost(network, learned).total
    for cost, network in made.items():
        share = getattr(total.effective, cost) / getattr(total.dense, cost)
        assert share < 0.9
        assert close(network.info["cost"], share, 1e-5)


@pytest.mark.long
def test_logits_of_depth_move_along_the_gradient_of_the_loss_and_of_the_pull():
    training = search(optimizer=optax.sgd(0.1), scores_optimizer=optax.sgd(1.0), batch_size=None)
    learned = training.on(problem())
    state = training.init(training.settings, KEY, learned, None)
    # The most probable candidates, by which the pull is towards the target, stay the same nearby.
    logits = {name: jnp.linspace(0.0, 2.0, of.size) for name, of in state.trainable["scores"].items()}
    state = state._replace(trainable={**state.trainable, "scores": logits})
    optimizer = training.optimizer(KEY, learned, state)
    nothing = jax.tree.map(jnp.zeros_like, state.trainable)
    updates, _ = optimizer.update(nothing, optimizer.init(state.trainable), state.trainable, step=0)
    batch = learned.gather(learned.data, None, learned.validation)

    def loss(moved):
        moved = {**logits, PAIR: logits[PAIR] + jnp.asarray(moved)}
        at = state._replace(trainable={**state.trainable, "scores": moved}, sample=jnp.int32(1))
        value, _ = learned.loss(training.params(training.settings, at), state.model, batch, KEY)
        return float(value + tas._pull(training.settings, state.fixed, moved))

    step = 2e-2
    found = [(loss(step * row) - loss(-step * row)) / (2 * step) for row in np.eye(3)]
    assert np.abs(found).max() > 0.05
    assert close(-updates["scores"][PAIR], jnp.array(found, jnp.float32), 2e-2)


@pytest.mark.long
def test_depth_alone_is_searched_if_the_only_width_is_1():
    learned = problem()
    network = jax.jit(search(0.7, widths=(1.0,), cost="multiply_adds"))(KEY, learned)
    # The stem and the head have 30 multiply-adds, and each block 60.
    assert close(network.info["cost"], 150 / 210, 1e-6)
    assert int(network.info["depths"][PAIR]) == 1


@pytest.mark.long
def test_many_targets_and_seeds_in_one_program_are_as_one_alone():
    learned, keys = problem(), jax.random.split(KEY, 2)
    network, _ = jaxarch.over_seeds(
        lambda of: search(of, tolerance=0.2), keys, learned, jnp.array([0.3, 0.6])
    )
    one, _ = jaxarch.over_seeds(search(0.6, tolerance=0.2), keys, learned)
    assert same(one.of_run(1).mask, network.of_run(1).mask)
    assert same(one.of_run(1).info["depths"], network.of_run(1).info["depths"])


@pytest.mark.long
def test_no_removed_block_is_reported_as_an_empty_layer():
    training = search()
    network = network_of(training, with_depth(started(training), 0))
    runs = jax.tree.map(lambda leaf: leaf[None], network)
    assert len(list(tas._remarks((), runs))) > len(list(tas._remarks(((PAIR,),), runs)))


@pytest.mark.long
def test_the_cost_is_right_inside_jit_where_names_of_groups_are_sorted_otherwise():
    """The group w1[1] comes before w10[1] in the model, and after it as text."""
    shapes = {"w1": (4, 6), "w10": (6, 12), "w11": (12, 1)}

    def init(key):
        return {path: jax.random.normal(key, shape) for path, shape in shapes.items()}

    def apply(params, x):
        return jnp.tanh(jnp.tanh(x @ params["w1"]) @ params["w10"]) @ params["w11"]

    learned = problem_of((init, apply))
    training = search(0.5, None, widths=(0.25, 0.5, 1.0))
    state = jax.jit(lambda key: training.init(training.settings, key, learned, None))(KEY)
    one, other = jnp.array([1.0, 0, 0]), jnp.array([0, 0, 1.0])
    cost = tas._cost(state.fixed, {"w1[1]": one, "w10[1]": other})
    assert close(cost, (4 * 1 + 1 * 12 + 12) / (4 * 6 + 6 * 12 + 12), 1e-6)


@pytest.mark.long
def test_a_group_may_have_a_single_candidate():
    training = search(0.9, widths=(1 - 1e-12, 1.0))
    network = jax.jit(training)(KEY, problem())
    assert sorted(int(count) for count in network.info["kept"].values())[-1] == 6


@pytest.mark.long
def test_batches_of_the_logits_go_through_the_validation_rows_once_an_epoch():
    learned = problem().descending(sampling="epochs", batch_size=10)
    rows = [tas._held_out(learned, KEY, step)[0] for step in range(4)]
    assert same(jnp.sort(jnp.concatenate(rows)[:, 0]), jnp.sort(X[40:, 0]))


class Projected(Block):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.skip = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        return self.skip(x) + self.norm(self.down(nnx.relu(self.up(x))))


class Saturating(Block):
    def __call__(self, x):
        return x + jnp.tanh(self.down(self.up(x)))


class Plain(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = (nnx.Linear(6, 6, use_bias=False, rngs=rngs) for _ in range(2))

    def __call__(self, x):
        return x + self.down(nnx.relu(self.up(x)))


def tied(rngs):
    """A network whose second and third block share a layer."""
    made = Deep(rngs, Plain)
    made.blocks[2].down = made.blocks[1].down
    return made


def refused(depth, block=Block):
    learned = problem() if block is Block else problem_of(lambda rngs: Deep(rngs, block))
    return lambda: started(search(depth=depth), learned)


WRONG = {
    "number": (lambda: search(depth=2), "depth: expected patterns of blocks"),
    "none": (lambda: search(depth=()), "depth: expected patterns of blocks"),
    "empty chain": (lambda: search(depth=((),)), "depth: expected patterns of blocks"),
    "mapping": (lambda: search(depth={"a": "b"}), "depth: expected patterns of blocks"),
    "no block": (
        refused("layers/*"),
        "depth: no block is selected by 'layers/\\*'; the leaves are: blocks/0/",
    ),
    "no second block": (refused((("blocks/1", "blocks/7"),)), "no block is selected by 'blocks/7'"),
    "overlap": (refused(("blocks/*", "blocks/1")), "is in two blocks, 'blocks/1' and 'blocks/1'"),
    "overlap in a chain": (
        refused((("blocks/1", "blocks/1/up"),)),
        "is in two blocks, 'blocks/1' and 'blocks",
    ),
    "no skip": (refused("stem"), "depth: 'stem' is not known to be its shortcut"),
    "a part of a branch": (refused("blocks/1/up"), "'blocks/1/up' is not known to be its shortcut"),
    "a projection": (refused("blocks/1", Projected), "'blocks/1' is not known to be its shortcut"),
    "a tied leaf": (
        lambda: started(search(), problem_of(tied)),
        "depth: 'blocks/2' and 'blocks/1' are not apart: a leaf of one is used in the other",
    ),
    "tied leaves of two chains": (
        lambda: started(search(depth=("blocks/2", "blocks/1")), problem_of(tied)),
        "depth: 'blocks/1' and 'blocks/2' are not apart",
    ),
    "no leaves at the end": (refused("blocks/1", Saturating), "'blocks/1' is not known to be its shortcut"),
    "out of reach": (lambda: started(search(0.05)), "target: 0.05 of the multiply_adds is out of reach"),
    "one width without depth": (lambda: search(depth=None, widths=(1.0,)), "widths: expected two or more"),
    "no width": (
        lambda: search(widths=(0.5,)),
        "widths: expected one or more shares .* the largest of them 1",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_chain_of_blocks_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
