"""What is kept or removed together: neurons, channels, heads, blocks, N of M; in `keep` and in searches."""

import dataclasses
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from long_suite import partly_long
from methods import keys
from small import close, digits, problem_in_containers, same

import jaxarch
from jaxarch import masks, search
from jaxarch.run import begin
from jaxarch.structure import axis_groups
from jaxarch.structure._network_function import example_batch, joined_leaves, problem_function

RUNS = 2


class MLP(nnx.Module):
    """Eight inputs, hidden layers of 8 and of 4 with biases, two classes."""

    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.b(nnx.relu(self.a(x)))))


HIDDEN = {"a/bias[0]": ("a/bias", 8), "b/bias[0]": ("b/bias", 4)}
"""The groups of its neurons: a bias, which is masked as they are, and how many there are."""


def learning(**changes):
    return jaxarch.supervised(
        MLP,
        (digits().x[:60, 18:26], (digits().y[:60] >= 5).astype(np.int32)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=3,
        batch_size=10,
        **changes,
    )


SEARCHES = {
    "two_temperature": lambda units: search.two_temperature(
        weights="initial", mean=0.0, std=5.0, units=units
    ),
    "architecture_pruning": lambda units: search.architecture_pruning(0.5, strength=0.01, units=units),
    "snip": lambda units: search.snip(0.5, units=units),
    "fisher": lambda units: search.fisher(0.5, units=units),
    "hutchinson": lambda units: search.hutchinson(0.5, samples=2, units=units),
    "grasp": lambda units: search.grasp(0.5, units=units),
    "prospr": lambda units: search.prospr(0.5, steps=1, units=units),
    "synflow in rounds": lambda units: search.synflow(0.5, rounds=5, units=units),
    "synflow in one": lambda units: search.synflow(0.5, rounds=1, units=units),
    "ntk_sap": lambda units: search.ntk_sap(0.5, rounds=1, draws=1, units=units),
    "path_exclusion": lambda units: search.path_exclusion(0.5, rounds=1, units=units),
    "magnitude_pruning in rounds": lambda units: search.magnitude_pruning(
        (0.75, 0.5), fraction=0.4, units=units
    ),
    "magnitude_pruning in one shot": lambda units: search.magnitude_pruning(0.5, fraction=None, units=units),
    "random_mask": lambda units: search.random_mask(0.5, units=units),
}
QUICK = ("snip",)


def some(names):
    """All of them, most not in the quick suite."""
    names = list(names)
    return partly_long(names, set(names) - set(QUICK))


OF_A_SIZE = [name for name in SEARCHES if name != "two_temperature"]
LIKE_SNIP = ("fisher", "hutchinson", "grasp", "prospr", "synflow in one", "ntk_sap", "path_exclusion")
"""Other saliencies, of which units are kept in the same way."""
IN_ONE_GO = [name for name in SEARCHES if "rounds" not in name]


@cache
def found(name, units):
    return jaxarch.over_seeds(SEARCHES[name](units), keys(RUNS), learning())[0]


def groups_of(problem, network):
    function = problem_function(problem, network.params, network.state)
    leaves = joined_leaves(network.params, network.state)
    return function, leaves, axis_groups(function, leaves, example_batch(problem, 1))


def kept_neurons(network):
    """Which neurons a mask keeps, by group: the entries of their biases."""
    leaves = jaxarch.named_leaves(network.mask)
    return {name: np.asarray(leaves[bias]) for name, (bias, _) in HIDDEN.items()}


# Searches --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", some(OF_A_SIZE))
def test_a_search_keeps_exactly_its_share_of_the_units_and_one_of_each_group(name):
    for run in range(RUNS):
        kept = kept_neurons(found(name, "neurons").of_run(run))
        assert sum(units.sum() for units in kept.values()) == 6  # half of 8 + 4
        assert all(units.any() for units in kept.values())


@pytest.mark.long
@pytest.mark.parametrize("name", some(SEARCHES))
def test_the_units_that_a_search_removes_are_not_needed_and_without_them_the_network_is_the_same(name):
    problem, network = learning(), found(name, "neurons").of_run(1)
    function, leaves, groups = groups_of(problem, network)
    kept = groups.needed(leaves)
    assert sum((~units).sum() for units in kept.values()) > 0
    assert all((kept[group] == units).all() for group, units in kept_neurons(network).items())
    batch = example_batch(problem, 20)
    small = jax.jit(groups.smaller(kept))(groups.cut(leaves, kept), batch)
    assert close(small, jax.jit(function)(leaves, batch))


@pytest.mark.long
@pytest.mark.parametrize("name", some(SEARCHES))
def test_all_of_a_unit_is_masked_and_nothing_else(name):
    network = found(name, "neurons").of_run(0)
    (first, second), mask = kept_neurons(network).values(), jaxarch.named_leaves(network.mask)
    assert mask.keys() == {"a/bias", "a/kernel", "b/bias", "b/kernel", "head/kernel"}
    assert same(mask["a/kernel"], np.tile(first, (8, 1)))
    assert same(mask["b/kernel"], np.outer(first, second))
    assert same(mask["head/kernel"], np.tile(second[:, None], (1, 2)))
    assert same(masks.apply_mask(network.mask, network.params), network.params)


@pytest.mark.long
@pytest.mark.parametrize("name", some(name for name in IN_ONE_GO if name not in LIKE_SNIP))
def test_of_every_four_inputs_of_an_output_two_are_left(name):
    network = found(name, "2:4")
    leaves = jax.tree.leaves(network.mask)
    for leaf in leaves:
        assert (leaf.reshape(RUNS, -1, 4, leaf.shape[-1]).sum(2) == 2).all()
    assert any(leaf.std(0).any() for leaf in leaves)  # each run has its own


@pytest.mark.long
@pytest.mark.parametrize(
    "name", some(["snip", "synflow in rounds", "magnitude_pruning in rounds", "random_mask"])
)
def test_a_search_keeps_exactly_its_share_of_the_blocks(name):
    blocks = [
        leaf.reshape(RUNS, leaf.shape[1] // 4, 4, leaf.shape[2] // 2, 2).transpose(0, 1, 3, 2, 4)
        for leaf in jax.tree.leaves(found(name, (4, 2)).mask)
    ]
    assert all((block.any((-1, -2)) == block.all((-1, -2))).all() for block in blocks)
    assert (
        sum(block.all((-1, -2)).sum((1, 2)) for block in blocks) == 6
    ).all()  # of 8 + 4 + 1, half, rounded to even


@pytest.mark.long
@pytest.mark.parametrize("name", some(SEARCHES))
def test_a_second_equal_call_compiles_nothing(name, units="neurons"):
    found(name, units)
    with compilations() as seen:
        jaxarch.over_seeds(SEARCHES[name](units), keys(RUNS), learning())
    assert seen == []


@pytest.mark.long
def test_a_second_equal_call_over_n_of_m_compiles_nothing():
    test_a_second_equal_call_compiles_nothing("snip", "2:4")


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SEARCHES if name not in LIKE_SNIP])
def test_a_run_is_the_same_alone_and_mapped(name):
    one = jax.jit(jaxarch.chain(SEARCHES[name]("neurons")))(keys(RUNS)[1], learning())
    assert close(one.mask, found(name, "neurons").of_run(1).mask)


@pytest.mark.long
@pytest.mark.parametrize("units", ["neurons", "2:4"])
def test_scores_of_units_are_learned(units):
    search_ = SEARCHES["two_temperature"](units)
    before = jax.vmap(lambda key: begin(search_, key, learning(), None).state.trainable)(keys(RUNS))
    after = found("two_temperature", units).info["scores"]
    moved = jax.tree.map(lambda one, other: (one != other).any(), before, after)
    assert all(jax.tree.leaves(moved))


@pytest.mark.long
def test_architecture_pruning_is_done_when_so_few_units_have_positive_scores():
    info = found("architecture_pruning", "neurons").info
    units = 12 * info["lowest_density"]
    assert (info["reached_at"] >= 1).all()
    assert close(units, jnp.round(units)) and (units > 0).all() and (units <= 6).all()


@pytest.mark.long
def test_a_round_removes_no_unit_twice():
    network = found("magnitude_pruning in rounds", "neurons")
    many, few = (network[jaxarch.ByDensity].masks[density] for density in ("0.75", "0.5"))
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a | ~b).all(), many, few)))


def test_a_unit_is_measured_by_the_connections_that_are_left():
    kernel, mask = jnp.array([[1.0, 2], [3, 9], [5, 6]]), jnp.array([[1, 1], [1, 0], [0, 0]], bool)
    means, left = masks.Blocks(1, 2).score_within({"w": kernel}, {"w": mask})
    assert means["w"].tolist() == [[1.5], [3.0], [0.0]] and left["w"].tolist() == [[True], [True], [False]]


@pytest.mark.long
def test_the_penalty_of_architecture_pruning_is_of_units_and_of_the_weights_that_they_mask():
    training = search.architecture_pruning(0.5, strength=0.5, units="neurons", where=["a/kernel", "head/*"])
    state = training.init(training.settings, keys(1)[0], learning(), None)
    state.trainable["weights"] = jax.tree.map(lambda w: w + 1, state.trainable["weights"])
    scores, weights = state.trainable["scores"], jaxarch.named_leaves(state.trainable["weights"])
    assert scores.keys() == HIDDEN.keys()
    counted = [1 + score for score in scores.values()] + [weights["a/kernel"], weights["head/kernel"]]
    expected = 0.5 * sum(jnp.square(leaf).sum() for leaf in counted)
    assert close(training.penalty(training.settings, state), expected)


@pytest.mark.long
def test_units_that_were_found_elsewhere_are_those_that_a_search_reads():
    drawn = search.random_mask(0.5, units=mlp_units())(keys(1)[0], learning())
    assert same(drawn.mask, search.random_mask(0.5, units="neurons")(keys(1)[0], learning()).mask)


@pytest.mark.long
def test_running_statistics_are_not_masked_by_a_search():
    x = np.random.default_rng(0).normal(size=(12, 5, 5, 3)).astype(np.float32)
    problem = jaxarch.supervised(
        Normed,
        (x, np.arange(12) % 2),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    mask = jaxarch.named_leaves(search.random_mask(0.6, units="channels")(keys(1)[0], problem).mask)
    assert {"norm/scale", "norm/bias", "conv/kernel"} <= mask.keys()


@pytest.mark.long
def test_without_weights_biases_stay_as_they_were():
    settings = search.two_temperature(mean=0.0, std=5.0, units="neurons")
    state = settings.init(settings.settings, keys(1)[0], learning(), None)
    raised = state.fixed._replace(weights=jax.tree.map(lambda w: w + 2, state.fixed.weights))
    params = jaxarch.named_leaves(settings.network(settings.settings, state._replace(fixed=raised)).params)
    assert set(np.unique(params["a/kernel"])) == {0, 1}
    assert set(np.unique(params["a/bias"])) == {0, 2}


@pytest.mark.long
def test_a_problem_whose_runs_have_arrays_of_their_own_is_read_within_vmap():
    def gather(data, per_run, rows):
        return data[0][rows] + per_run[None], data[1][rows]

    problem = learning(per_run=jax.random.normal(keys(1)[0], (RUNS, 8)), gather=gather)
    network, _ = jaxarch.over_seeds(SEARCHES["snip"]("neurons"), keys(RUNS), problem)
    assert kept_neurons(network.of_run(0)).keys() == HIDDEN.keys()


# Other stages ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_at_density_retrain_and_evaluate_take_the_masks_of_units():
    chosen = search.random_mask((0.75, 0.5), units="neurons")
    again = jaxarch.retrain("cold", nonnegative=False, weights="he")
    strategy = jaxarch.chain(chosen, jaxarch.at_density(0.75), again)
    network, _ = jaxarch.over_seeds(strategy, keys(RUNS), learning())
    kept = kept_neurons(network.of_run(0))
    assert sum(units.sum() for units in kept.values()) == 9
    assert (network.params["a"]["bias"][0][~kept["a/bias[0]"]] == 0).all()
    assert np.isfinite(jaxarch.evaluate(strategy, network, learning(), np.arange(5))).all()


@pytest.mark.long
def test_biases_that_are_masked_are_not_drawn_as_kernels_are():
    strategy = jaxarch.chain(
        search.random_mask(0.5, units="neurons"),
        jaxarch.retrain("cold", nonnegative=False, weights="he", optimizer=optax.sgd(0.0)),
    )
    params = strategy(keys(1)[0], learning()).params
    assert (params["a"]["bias"][...] == 0).all()
    assert (params["a"]["kernel"][...] != 0).any()


@pytest.mark.long
def test_a_new_head_reads_the_neurons_that_are_left():
    network = found("random_mask", "neurons").of_run(0)
    more = learning()
    wider = dataclasses.replace(more, init=lambda key: _with_head(more.init(key), 5))
    mask = jaxarch.new_head()(keys(1)[0], wider, network).mask
    assert same(mask["head"]["kernel"], np.tile(kept_neurons(network)["b/bias[0]"][:, None], (1, 5)))


def _with_head(made, classes):
    params, state = made
    head = jaxarch.named_leaves(params)["head/kernel"]

    def of(path, leaf):
        wide = jnp.ones((*leaf.shape[:-1], classes))
        return wide if jaxarch._internal.trees.path_name(path).startswith("head") else leaf

    assert head.shape[-1] != classes
    return jax.tree_util.tree_map_with_path(of, params), state


def test_masks_of_units_are_saved_and_loaded(tmp_path):
    network = found("snip", "neurons").of_run(0)
    jaxarch.save_mask(tmp_path / "mask.npz", network.mask)
    assert same(jaxarch.load_mask(tmp_path / "mask.npz", learning()), network.mask)


@pytest.mark.long
@pytest.mark.parametrize("name", ["two_temperature", "architecture_pruning"])
def test_a_fit_over_units_goes_on_from_its_checkpoint(name, tmp_path):
    strategy, folder = SEARCHES[name]("neurons"), jaxarch.Checkpoints(tmp_path)
    first, _ = jaxarch.over_seeds(strategy, keys(RUNS), learning(), checkpoint=folder)
    again, _ = jaxarch.over_seeds(strategy, keys(RUNS), learning(), checkpoint=folder)
    assert same(again.params, first.params)


# Units of a model, in a loop of one's own ------------------------------------------------------------


def function_of(model):
    """A Flax NNX model as a function of its parameters and batch statistics."""
    model.eval()
    graph, both, rest = nnx.split(model, nnx.Any(nnx.Param, nnx.BatchStat), ...)

    def function(both, x):
        return nnx.merge(graph, both, rest, copy=True)(x)

    return function, both


class Normed(nnx.Module):
    """Three channels to four, a norm, two groups of convolution, two classes."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.grouped = nnx.Conv(4, 4, (3, 3), feature_group_count=2, rngs=rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        return self.head(nnx.relu(self.grouped(x)).mean((1, 2)))


@cache
def normed():
    function, both = function_of(Normed(nnx.Rngs(0)))
    # A norm that turns 0 into something else.
    shifted = jax.tree.map(lambda leaf: leaf + 0.5, both)
    x = jax.random.normal(jax.random.key(1), (2, 5, 5, 3))
    return function, shifted, x, axis_groups(function, shifted, x)


@pytest.mark.long
def test_channels_go_with_their_norm_and_are_exactly_zero_behind_a_padded_convolution():
    function, both, x, groups = normed()
    scores = jaxarch.saliency.magnitude(both, "*kernel")
    mask = masks.keep(scores, 0.5, units=groups.units("channels"))
    kept = jaxarch.named_leaves(mask)
    for path in ("conv/kernel", "norm/scale", "norm/bias", "norm/mean", "norm/var"):
        assert same(kept[path], np.broadcast_to(kept["norm/scale"], kept[path].shape))
    masked = masks.apply_mask(mask, both)
    needed = groups.needed(masked)
    assert sum((~units).sum() for units in needed.values()) > 0
    values = groups.units("channels").over(scores).score(mask_as_scores(mask, scores))
    assert all((needed[name] == (values[name] > 0)).all() for name in values)
    small = jax.jit(groups.smaller(needed))(groups.cut(masked, needed), x)
    assert close(small, jax.jit(function)(masked, x))


def mask_as_scores(mask, scores):
    return jaxarch._internal.trees.map_selected(lambda score, m: m.astype(float), scores, mask)


@pytest.mark.long
def test_a_channel_of_a_grouped_convolution_belongs_to_its_group_and_to_its_place_in_it():
    _, both, _, groups = normed()
    units = groups.units("channels").over(jaxarch.select(both, "*kernel"))
    values = {name: jnp.arange(2.0, 2 + size) for name, size in units.groups().items()}
    (group,) = [name for name in values if len(groups.groups[name].axes) > 6]
    (place,) = [name for name in values if ("grouped/bias", 0) in groups.groups[name].axes and name != group]
    assert same(
        units.spread(values, both)["grouped"]["bias"], jnp.outer(values[group], values[place]).ravel()
    )


@cache
def gpt():
    model = jaxarch.models.GPT(depth=1, features=8, heads=4, length=6, vocabulary=5, rngs=nnx.Rngs(0))
    function, params = function_of(model)
    tokens = jnp.arange(6)[None] % 5
    return function, params, tokens, axis_groups(function, params, tokens)


@pytest.mark.long
def test_heads_are_kept_by_the_mean_of_their_scores_with_all_that_is_theirs():
    function, params, tokens, groups = gpt()
    scores = jaxarch.saliency.magnitude(params)
    mask = masks.keep(scores, 0.5, units=groups.units("heads"))
    of_leaf, attention = jaxarch.named_leaves(mask), "encoder/0/attention/"
    sums = [0.0] * 4
    for name, axis in (("query", 1), ("key", 1), ("value", 1), ("out", 0)):
        kernel = jnp.moveaxis(jaxarch.named_leaves(scores)[f"{attention}{name}/kernel"], axis, 0)
        sums = [total + kernel[head].sum() for head, total in enumerate(sums)]
    best = np.isin(np.arange(4), np.argsort(sums)[2:])
    assert same(of_leaf[f"{attention}query/bias"][:, 0], best)
    assert set(of_leaf) == {
        f"{attention}{name}"
        for name in (
            "query/bias",
            "query/kernel",
            "key/bias",
            "key/kernel",
            "value/bias",
            "value/kernel",
            "out/kernel",
        )
    }
    masked = masks.apply_mask(mask, params)
    kept = groups.needed(masked)
    assert same(kept[f"{attention}key/bias[0]"], best)
    small = jax.jit(groups.smaller(kept))(groups.cut(masked, kept), tokens)
    assert close(small, jax.jit(function)(masked, tokens))


@pytest.mark.long
def test_units_of_several_kinds_are_kept_together():
    _, params, _, groups = gpt()
    units = groups.units("heads", "neurons").over(jaxarch.select(params))
    assert sorted(units.groups().values()) == [4, 32]


def chain_of(sizes=(3, 4, 5, 2)):
    """A chain of tanh layers without biases, its parameters, and its groups."""
    names = [f"w{index}" for index in range(len(sizes) - 1)]

    def function(params, x):
        for name in names[:-1]:
            x = jnp.tanh(x @ params[name])
        return x @ params[names[-1]]

    ones = {name: jnp.ones(shape) for name, shape in zip(names, pairwise(sizes), strict=True)}
    return function, ones, axis_groups(function, ones, jnp.ones((1, sizes[0])))


def scored(seed=0):
    _, params, groups = chain_of()
    drawn = jax.random.normal(jax.random.key(seed), (100,))
    return jax.tree.map(lambda leaf: drawn[: leaf.size].reshape(leaf.shape), params), groups.units("neurons")


@pytest.mark.parametrize("density", [2 / 9, 0.3, 0.5, 0.9, 1.0])
def test_keep_keeps_exactly_its_share_of_the_units(density):
    scores, units = scored()
    for seed in range(5):
        scores, units = scored(seed)
        mask = masks.keep(scores, density, units=units)
        kept = [mask["w1"].any(1), mask["w1"].any(0)]
        assert sum(int(of_group.sum()) for of_group in kept) == round(density * 9)
        assert all(of_group.any() for of_group in kept)


def test_the_same_share_of_every_group_and_a_share_of_each():
    scores, units = scored()
    mask = masks.keep(scores, 0.6, scope="layer", units=units)
    assert (mask["w1"].any(1).sum(), mask["w1"].any(0).sum()) == (2, 3)
    mask = masks.keep(scores, {"w0[1]": 0.25, "w1[1]": 0.8}, units=units)
    assert (mask["w1"].any(1).sum(), mask["w1"].any(0).sum()) == (1, 4)


def test_a_group_keeps_its_best_unit_though_all_of_another_are_better():
    scores, units = scored()
    scores = scores | {"w2": scores["w2"] + 100}
    mask = masks.keep(scores, 5 / 9, units=units)
    best = units.over(scores).score(scores)["w0[1]"].argmax()
    assert mask["w1"].any(1).astype(int).tolist() == np.eye(4, dtype=int)[best].tolist()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_the_size_is_exact_whatever_the_scores(number):
    scores, units = scored()
    broken = scores | {"w0": jnp.full((3, 4), number)}
    for size in range(2, 10):
        mask = masks.keep(broken, size / 9, units=units)
        assert mask["w1"].any(1).sum() + mask["w1"].any(0).sum() == size


def test_a_traced_density_and_a_map_keep_the_same_units():
    scores, units = scored()
    several = jnp.asarray([0.3, 0.5])
    many = jax.jit(jax.vmap(lambda density: masks.keep(scores, density, units=units)))(several)
    for index, density in enumerate((0.3, 0.5)):
        assert same(
            jax.tree.map(lambda leaf, i=index: leaf[i], many), masks.keep(scores, density, units=units)
        )


def test_a_unit_s_score_is_the_mean_over_its_connections():
    scores, units = scored()
    values = units.score(scores)
    both = jnp.concatenate([scores["w0"].T, scores["w1"]], axis=1)
    assert close(values["w0[1]"], both.mean(1))


def test_leaves_that_are_not_scored_neither_count_nor_are_masked():
    scores, units = scored()
    first = {**scores, "w1": None, "w2": None}
    mask = masks.keep(first, 0.5, units=units)
    assert mask["w1"] is None and mask["w2"] is None
    assert same(mask["w0"].any(0), masks.top_k(scores["w0"].mean(0), 2))


@pytest.mark.long
def test_what_is_spread_has_the_gradient_of_a_product():
    scores, units = scored()
    units = units.over(scores)
    values = jax.tree.map(lambda leaf: jnp.linspace(0.5, 1.5, leaf.size), units.score(scores))

    def total(values):
        return sum(
            (weight * leaf).sum()
            for weight, leaf in zip(
                jax.tree.leaves(scores), jax.tree.leaves(units.spread(values, scores)), strict=True
            )
        )

    slope = jax.grad(total)(values)["w0[1]"]
    by_hand = scores["w0"].sum(0) + scores["w1"] @ values["w1[1]"]
    assert close(slope, by_hand)


def test_an_axis_that_is_a_product_or_a_row_of_others_has_their_products():
    def function(params, x):
        outer = jnp.tanh(x @ params["a"])[:, :, None] * jnp.tanh(x @ params["b"])[:, None, :]
        both = jnp.concatenate([outer.reshape(x.shape[0], 6), jnp.tanh(x @ params["c"])], axis=1)
        return both @ params["out"]

    params = {"a": jnp.ones((2, 2)), "b": jnp.ones((2, 3)), "c": jnp.ones((2, 4)), "out": jnp.ones((10, 1))}
    groups = axis_groups(function, params, jnp.ones((1, 2)))
    units = groups.units("a[1]", "b[1]", "c[1]").over(params)
    values = {"a[1]": jnp.array([2.0, 3]), "b[1]": jnp.array([5.0, 7, 11]), "c[1]": jnp.arange(13.0, 17)}
    expected = [*np.outer([2, 3], [5, 7, 11]).ravel(), 13, 14, 15, 16]
    assert units.spread(values, params)["out"].ravel().tolist() == expected
    alone = groups.units("b[1]").over(params)
    of_b = alone.spread({"b[1]": values["b[1]"]}, params)["out"].ravel()
    assert of_b.tolist() == [5, 7, 11, 5, 7, 11, 1, 1, 1, 1]
    means = units.score({**jax.tree.map(jnp.zeros_like, params), "out": jnp.arange(10.0)[:, None]})
    assert close(means["b[1]"], jnp.array([0 + 3, 1 + 4, 2 + 5]) / 4)
    assert close(means["c[1]"], jnp.array([6, 7, 8, 9]) / 3)


@pytest.mark.long
@pytest.mark.parametrize("axis_type", ["Auto", "Explicit"])
@pytest.mark.parametrize("pattern", ["of the model", (2, 2), masks.NOfM(2, 4, axis=-2)], ids=str)
def test_arrays_that_are_split_stay_so(axis_type, pattern):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(getattr(jax.sharding.AxisType, axis_type),))
    kernels = {"in": jax.random.normal(jax.random.key(0), (8, 4)), "out": jnp.ones((4, 2))}
    groups = axis_groups(lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], kernels, jnp.ones((1, 8)))
    units = groups.units("neurons") if pattern == "of the model" else pattern
    split = jax.device_put(kernels, NamedSharding(mesh, PartitionSpec("x")))
    mask = masks.keep(split, 0.5, units=units)
    assert same(mask, masks.keep(kernels, 0.5, units=units))
    assert all(mask[path].sharding.is_equivalent_to(split[path].sharding, 2) for path in kernels)


@pytest.mark.parametrize("name", some(name for name in SEARCHES if name != "path_exclusion"))  # not with tanh
def test_parameters_may_be_any_pytree(name):
    problem = problem_in_containers()
    network = jax.eval_shape(jaxarch.chain(SEARCHES[name]("neurons")), keys(1)[0], problem)
    params, _ = jax.eval_shape(problem.init, keys(1)[0])
    assert jax.tree.structure(network.params) == jax.tree.structure(params)
    kernels = {path: leaf.shape for path, leaf in jaxarch.named_leaves(params).items() if path != "bias"}
    assert {path: leaf.shape for path, leaf in jaxarch.named_leaves(network.mask).items()} == kernels


def test_units_of_equal_models_are_equal_and_a_pytree_without_leaves():
    (_, one), (_, other) = scored(), scored()
    assert one is not other
    assert (one, hash(one)) == (other, hash(other))
    assert jax.tree.leaves(one) == []


# Blocks, and N of every M ----------------------------------------------------------------------------


def test_the_last_block_of_an_axis_may_be_smaller():
    kernel = jnp.arange(15.0).reshape(3, 5)
    means = masks.Blocks(2, 2).score({"w": kernel})["w"]
    assert means.tolist() == [[3.0, 5.0, 6.5], [10.5, 12.5, 14.0]]
    mask = masks.keep({"w": kernel, "bias": None}, 0.5, units=(2, 2))
    assert mask["w"].astype(int).tolist() == [[0] * 5, [0] * 5, [1] * 5]
    assert mask["bias"] is None


def test_blocks_larger_than_a_leaf_and_leaves_of_one_column_are_one_block():
    mask = masks.keep({"a": jnp.ones((3, 1)), "b": jnp.zeros((2, 3, 1))}, 1 / 3, units=(4, 4))
    assert mask["a"].all() and not mask["b"].any()


def test_n_of_m_are_the_largest_the_first_of_equal_ones_and_nan_comes_last():
    kernel = jnp.array([[1.0, 5, jnp.nan], [1, 2, -jnp.inf], [1, 3, jnp.nan], [1, 4, 0]])
    mask = masks.keep({"w": kernel}, units="2:4")["w"]
    assert mask.astype(int).T.tolist() == [[1, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1]]
    assert masks.keep({"w": kernel}, 0.25, units="1:4")["w"].sum() == 3


@pytest.mark.parametrize("m", [4, 40])  # compared with each other, and sorted
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.float16])
def test_n_of_m_within_a_mask_are_the_largest_that_are_left(m, dtype):
    rng = np.random.default_rng(m)
    scores = rng.integers(0, 50, (30, m)).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        scores[rng.random(scores.shape) < 0.2] = np.nan
    left = rng.random(scores.shape) < 0.6
    found = masks.NOfM(2, m, axis=-1).largest({"w": jnp.asarray(scores)}, None, {"w": jnp.asarray(left)})["w"]
    for row, there, kept in zip(scores, left, np.asarray(found), strict=True):
        order = sorted(np.flatnonzero(there), key=lambda place: (np.isnan(row[place]), -float(row[place])))
        assert [*np.flatnonzero(kept)] == sorted(order[:2])


def test_n_of_m_of_large_integers_are_exact_and_make_no_nan():
    scores = {"w": jnp.array([[2**24, 2**24 + 1]])}
    everything = {"w": jnp.ones((1, 2), bool)}
    with jax.debug_nans(True):
        for left in (None, everything):
            assert masks.NOfM(1, 2, axis=-1).largest(scores, None, left)["w"].tolist() == [[False, True]]


@pytest.mark.parametrize("axis", [-1, -2, 0])
def test_n_of_m_goes_along_the_axis_of_the_inputs(axis):
    scores = jax.random.normal(jax.random.key(0), (6, 6, 6))
    mask = jnp.moveaxis(masks.keep({"w": scores}, units=masks.NOfM(1, 3, axis=axis))["w"], axis, 0)
    assert (mask.reshape(2, 3, 36).sum(1) == 1).all()


def test_what_goes_into_the_sigmoid_is_positive_for_n_of_m_and_its_slope_is_that_of_the_score():
    pattern = masks.NOfM(2, 4, axis=-2)
    scores = jax.random.normal(jax.random.key(0), (8, 3)) - 10
    assert same(pattern.centred(scores) > 0, pattern.hard(scores))
    slope = jax.grad(lambda scores: pattern.centred(scores).sum())(scores)
    assert (slope == 1).all()


# Refusals --------------------------------------------------------------------------------------------

KERNEL = {"w": jnp.ones((8, 4))}


def refused(call):
    with pytest.raises(jaxarch.ArgumentError) as error:
        call()
    assert str(error.value).isprintable()
    return str(error.value)


REFUSED = {
    "units: expected 'neurons', 'channels', 'heads', 'experts', blocks such as (4, 4) or '2:4', got ": (
        lambda: search.snip(0.5, units="neuron")
    ),
    "units: expected 'N:M' with 1 <= N < M, got '4:2'": lambda: search.random_mask(0.5, units="4:2"),
    "units: expected 'N:M' with 1 <= N < M, got '2:x'": lambda: masks.keep(KERNEL, units="2:x"),
    "units: expected two positive integers": lambda: search.architecture_pruning(0.5, units=(4, 0)),
    "units: 2:4 does not fit 'w' of shape (6, 4), since 4 does not divide 6": (
        lambda: masks.keep({"w": jnp.ones((6, 4))}, units="2:4")
    ),
    "units: blocks need leaves of 2 axes or more, got 'w' of shape (8,)": (
        lambda: masks.keep({"w": jnp.ones(8)}, 0.5, units=(2, 2))
    ),
    "units: 'neurons' are read from a model's computation; give axis_groups(function, params, x).units(": (
        lambda: masks.keep(KERNEL, 0.5, units="neurons")
    ),
    "units: the model has no channels; it has neurons": lambda: chain_of()[2].units("channels"),
    "units: unknown units 'neurns'; did you mean 'neurons'?": lambda: chain_of()[2].units("neurns"),
    "units: expected 'neurons', 'channels', 'heads' or 'experts', or names of groups": lambda: chain_of()[
        2
    ].units(),
    "units: they belong to another model: it has no 'w', got shape (8, 4)": (
        lambda: masks.keep(KERNEL, 0.5, units=scored()[1])
    ),
    "units: they belong to another model: there 'w0' has shape (3, 4), got shape (3, 5)": (
        lambda: masks.keep({"w0": jnp.ones((3, 5))}, 0.5, units=scored()[1])
    ),
    "units: the scores have no entry for 'a/bias', which is pruned with its units": (
        lambda: masks.keep({"a": {"kernel": jnp.ones((8, 8))}}, 0.5, units=mlp_units())
    ),
    "density: 0.1 of 9 units is too low: each of 2 groups keeps at least one": (
        lambda: masks.keep(scored()[0], 0.1, units=scored()[1])
    ),
    "density: expected a number in (0, 1]": lambda: masks.keep(KERNEL, units=(4, 4)),
    "density: 2:4 keeps 0.5 of the connections, got 0.25": lambda: search.snip(0.25, units="2:4"),
    "density: 2:4 keeps 0.5 of the connections, got a traced one": (
        lambda: jax.jit(lambda density: masks.keep(KERNEL, density, units="2:4"))(0.5)
    ),
    "density: expected a number in (0, 1], 1 - sparsity; got {'w': 0.5}": (
        lambda: masks.keep(KERNEL, {"w": 0.5}, units="2:4")
    ),
    "fraction: 2:4 is pruned in one shot": lambda: search.magnitude_pruning(0.5, units="2:4"),
    "scope: 'erk' works only for single connections": lambda: masks.keep(
        KERNEL, 0.5, scope="erk", units=(4, 4)
    ),
    "units: the model has no heads; it has neurons": (
        lambda: search.snip(0.5, units="heads")(keys(1)[0], learning())
    ),
    "units: no unit lies in the selected leaves (head/bias)": (
        lambda: search.snip(0.5, where="head/bias", units="neurons")(keys(1)[0], learning())
    ),
    "problem: it has no `predict`, which snip needs": (
        lambda: jaxarch.over_seeds(
            search.snip(0.5, units="neurons"), keys(1), dataclasses.replace(learning(), predict=None)
        )
    ),
}


def mlp_units():
    function, params = function_of(MLP(nnx.Rngs(0)))
    return axis_groups(function, params, jnp.ones((1, 8))).units("neurons")


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_meant_is_refused_in_one_line(message):
    assert refused(REFUSED[message]).startswith(message)
