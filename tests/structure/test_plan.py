"""Smaller models to a budget: costs, choices, and the models that come out."""

import itertools
import warnings

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import close
from test_axis_groups import SOME, family, random_units

import jaxarch
from jaxarch import ArgumentError, ResultWarning, named_leaves
from jaxarch.masks import apply_mask
from jaxarch.structure import axis_groups, cost_of, plan
from jaxarch.structure._allocation import Candidates, allowed_counts, by_score, knapsack
from jaxarch.structure._cost_table import Counts
from jaxarch.structure._latency import within_latency
from jaxarch.structure._products import find_products
from jaxarch.structure._size_costs import Polynomial, cost_polynomials

X = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6)), jnp.float32)


def mlp(params, x):
    for kernel in ("a", "b"):
        x = jax.nn.relu(x @ params[kernel])
    return x @ params["head"]


def weights(*sizes, seed=0):
    draw = np.random.default_rng(seed)
    names = [*"abcdefg"[: len(sizes) - 2], "head"]
    pairs = itertools.pairwise(sizes)
    return {
        name: jnp.asarray(draw.normal(size=pair), jnp.float32)
        for name, pair in zip(names, pairs, strict=True)
    }


PARAMS = weights(6, 32, 16, 3)


def counts(made):
    return {name: int(units.sum()) for name, units in made.kept.items()}


# Costs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
def test_the_cost_depends_on_the_numbers_of_units_as_the_polynomials_say(name):
    groups = family(name)[-1]
    found = find_products(groups._program, dict.fromkeys(groups._leaves))
    costs = cost_polynomials(groups, found, 1)
    for seed in range(3):
        kept = random_units(groups, seed)
        expected = sum(cost_of(groups, kept).values(), Counts())
        sizes = np.array([units.sum() for units in kept.values()])
        assert {name: round(cost(sizes)) for name, cost in costs.items()} == {
            name: round(getattr(expected, name)) for name in costs
        }


@pytest.fixture(scope="module")
def resnet():
    model = jaxarch.models.ResNet((8, 16), blocks=1, inputs=1, outputs=10, rngs=nnx.Rngs(0))
    model.eval()
    return model


PICTURES = jnp.asarray(np.random.default_rng(0).normal(size=(3, 8, 8, 1)), jnp.float32)


@pytest.mark.parametrize("scope", ["relative", "global", "isomorphic", "layer", "knapsack"])
@pytest.mark.parametrize("budget", ["60% multiply_adds", "40% parameters", "70% activations"])
def test_a_budget_is_met_and_has_no_room_for_a_further_unit(resnet, scope, budget):
    made = jaxarch.nnx.plan(resnet, PICTURES, budget=budget, scope=scope)
    share, quantity = budget.split("% ")
    limit = int(share) / 100 * getattr(made.before, quantity)
    assert getattr(made.after, quantity) <= limit
    for name, units in made.kept.items():
        if units.all():
            continue
        one_more = {**made.kept, name: units | (np.arange(units.size) == units.argmin())}
        paths = {*named_leaves(nnx.state(resnet, nnx.Param))}
        cost = sum(cost_of(made.groups, one_more, batch=3, parameters=paths).values(), Counts())
        assert getattr(cost, quantity) > limit  # No further unit fits.


@pytest.mark.parametrize("scope", ["relative", "global", "isomorphic", "layer", "knapsack"])
def test_where_units_are_small_at_least_98_percent_of_a_budget_are_used(scope):
    made = plan(mlp, weights(6, 200, 150, 3), X, budget="37% multiply_adds", scope=scope)
    assert 0.98 * 0.37 <= made.after.multiply_adds / made.before.multiply_adds <= 0.37


@pytest.mark.long
def test_the_cost_of_a_plan_is_that_of_the_smaller_model(resnet):
    made = jaxarch.nnx.plan(resnet, PICTURES, budget="50% multiply_adds")
    small = made.apply().model
    function, tree = jaxarch.nnx.as_function(small)
    total = jaxarch.cost(function, tree, PICTURES).total.dense
    assert (total.multiply_adds, total.activations) == (made.after.multiply_adds, made.after.activations)
    trainable = jax.tree.leaves(nnx.state(small, nnx.Param))
    assert sum(leaf.size for leaf in trainable) == made.after.parameters


def test_several_budgets_hold_together():
    both = plan(mlp, PARAMS, X, budget=("60% multiply_adds", "1.2 kB"))
    assert both.after.multiply_adds <= 0.6 * both.before.multiply_adds and both.after.bytes <= 1200


# Choices ---------------------------------------------------------------------------------------------


def test_a_scope_says_which_scores_are_compared():
    scores = {"a[1]": np.arange(1, 33) / 32, "b[1]": 100 + np.arange(16) / 100}
    budget = "50% multiply_adds"
    of_all, relative, layer = (
        counts(plan(mlp, PARAMS, X, budget=budget, scores=scores, scope=scope))
        for scope in ("global", "relative", "layer")
    )
    assert of_all["b[1]"] == 16 and of_all["a[1]"] < 16  # All 16 have larger scores than any of the others.
    assert 1 < relative["b[1]"] < 16 < relative["a[1]"] + 2  # All 16 are near their mean, as are half of a.
    assert abs(layer["a[1]"] / 32 - layer["b[1]"] / 16) <= 1 / 16


def test_isomorphic_groups_lose_the_same_share_and_are_ranked_together():
    params = weights(6, 16, 16, 16, 3)

    def model(params, x):
        for kernel in ("a", "b", "c"):
            x = jax.nn.relu(x @ params[kernel])
        return x @ params["head"]

    tree = {name: {"kernel": leaf} for name, leaf in params.items()}
    nested = lambda tree, x: model({name: of["kernel"] for name, of in tree.items()}, x)  # noqa: E731
    scores = {
        name: np.arange(1.0, 17) ** power
        for name, power in zip(axis_groups(nested, tree, X).groups, (0.1, 1, 3), strict=True)
    }
    made = counts(plan(nested, tree, X, budget="50% parameters", scores=scores, scope="isomorphic"))
    # One class of three groups: relative scores decide, so the group of unequal scores loses most.
    assert made["a/kernel[1]"] > made["b/kernel[1]"] > made["c/kernel[1]"]


def test_classes_of_groups_lose_equal_shares_whatever_the_order_of_their_groups():
    sizes = {"a": ("kernel", 6, 8), "b": ("weight", 8, 20), "c": ("kernel", 20, 30), "d": ("weight", 30, 3)}
    draw = np.random.default_rng(0)
    params = {
        layer: {name: jnp.asarray(draw.normal(size=shape), jnp.float32)}
        for layer, (name, *shape) in sizes.items()
    }
    # Read by products of the next layer: class one is a, kernels on both sides of weights, and so on.
    for layer in params:
        params[layer]["bias" if layer in "ac" else "offset"] = jnp.zeros(sizes[layer][2])

    def model(params, x):
        for layer, of in params.items():
            kernel, bias = (of[name] for name in (sizes[layer][0], "bias" if layer in "ac" else "offset"))
            x = jax.nn.relu(x @ kernel + bias[None])
        return x

    made = plan(model, params, X, budget="50% parameters", scope="isomorphic")
    kept = counts(made)
    assert [*kept] == ["a/bias[0]", "b/offset[0]", "c/bias[0]"]
    assert abs((kept["a/bias[0]"] + kept["c/bias[0]"]) / 38 - kept["b/offset[0]"] / 20) <= 1.5 / 20


@pytest.mark.parametrize(
    "budget", ["45% multiply_adds", "30% parameters", ("50% parameters", "40% activations")]
)
def test_the_knapsack_has_the_largest_total_score_of_all_choices(budget):
    params = weights(6, 8, 6, 3, seed=3)
    made = plan(mlp, params, X, budget=budget, scope="knapsack")
    texts = (budget,) if isinstance(budget, str) else budget

    def total(kept):
        return sum(float(np.sort(made.scores[name])[::-1][: kept[name]].sum()) for name in kept)

    def fits(kept):
        cost = sum(
            cost_of(
                made.groups, {name: np.arange(made.kept[name].size) < kept[name] for name in kept}
            ).values(),
            Counts(),
        )
        return all(
            getattr(cost, text.split()[1]) / 4 ** (text.split()[1] in ("multiply_adds", "activations"))
            <= float(text.split("%")[0]) / 100 * getattr(made.before, text.split()[1])
            for text in texts
        )

    choices = [{"a[1]": a, "b[1]": b} for a in range(1, 9) for b in range(1, 7)]
    best = max(total(kept) for kept in choices if fits(kept))
    assert total(counts(made)) == pytest.approx(best, rel=1e-4)
    assert abs(made.gap) <= 1e-3 and "none has a total score more than" in str(made)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_a_knapsack_holds_where_choices_cost_exactly_the_budget(seed):
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 6, 3)
    groups = [
        Candidates((*range(size, 0, -1),), np.sort(draw.integers(-2, 9, size).astype(float))[::-1])
        for size in sizes
    ]
    pairs = {(0, 1): float(draw.integers(1, 5)), (1, 2): float(draw.integers(1, 5)), (0,): 2.0}
    cost = Polynomial.of(pairs, 3)
    choices = [np.array(choice) for choice in itertools.product(*(group.counts for group in groups))]
    for limit in sorted({cost(choice) for choice in choices}):
        found = knapsack(groups, [(cost, limit)])

        def total(choice):
            return sum(group.value(count) for group, count in zip(groups, choice, strict=True))

        best = max(total(choice) for choice in choices if cost(choice) <= limit)
        assert cost(found.counts) <= limit
        assert total(found.counts) == pytest.approx(best, abs=1e-6) and found.bound >= best - 1e-6


def test_equal_scores_take_equal_shares_of_all_groups():
    scores = {"a[1]": np.ones(32), "b[1]": np.ones(16)}
    made = counts(plan(mlp, PARAMS, X, budget="50% multiply_adds", scores=scores))
    assert abs(made["a[1]"] / 32 - made["b[1]"] / 16) <= 1 / 16


def test_units_come_back_where_the_budget_has_room():
    # Without the second pass the large unit's removal would leave half of the budget unused.
    size = [Candidates((10, 9, 8), np.arange(10.0, 0, -1)), Candidates((2, 1), np.array([9.5, 5.5]))]
    cost = lambda sizes: float(sizes[0] + 50 * sizes[1])  # noqa: E731
    assert by_score(size, [(cost, 65.0)]).tolist() == [10, 1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((10, 0, 1, 1), (10, 9, 8, 7, 6, 5, 4, 3, 2, 1)),
        ((10, 0, 1, 4), (10, 8, 4)),
        ((16, 0.25, 1, 4), (16, 12, 8, 4)),
        ((16, 0.5, 0.5, 1), (8,)),
        ((10, 0.5, 0.5, 4), (4,)),  # No multiple of 4 is half of 10: the next smaller one.
        ((3, 0, 1, 8), (3,)),
        ((16, 0, 0.1, 8), (8,)),
        ((7, 1, 1, 1), (7,)),
    ],
)
def test_the_sizes_of_a_group_by_hand(arguments, expected):
    assert allowed_counts(*arguments) == expected


def test_sizes_are_rounded_and_shares_are_kept():
    shares = {"a": 1.0, "b": (0.5, 1.0)}
    made = plan(mlp, PARAMS, X, budget="60% multiply_adds", shares={"b": (0.25, 1.0)}, round_to=4)
    assert all(count % 4 == 0 for count in counts(made).values()) and counts(made)["b[1]"] >= 4
    left_alone = plan(mlp, PARAMS, X, budget="80% multiply_adds", shares=shares)
    assert counts(left_alone)["a[1]"] == 32 and "groups left whole" in str(left_alone)
    assert counts(plan(mlp, PARAMS, X, budget="99% parameters", shares={"b": 0.5}))["b[1]"] == 8


def test_only_the_units_that_were_asked_for_go():
    made = plan(mlp, PARAMS, X, budget="70% multiply_adds", units="b[1]")
    assert counts(made)["a[1]"] == 32 and counts(made)["b[1]"] < 16


def test_the_units_with_the_largest_scores_stay():
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds")
    for name, kept in made.kept.items():
        assert made.scores[name][kept].min() >= made.scores[name][~kept].max()


def test_scores_of_connections_are_averaged_over_each_unit():
    gradients = jax.jit(jax.grad(lambda params: (mlp(params, X) ** 2).sum()))(PARAMS)
    scores = jaxarch.saliency.snip(PARAMS, gradients)
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds", scores=scores)
    expected = (scores["a"].sum(0) + scores["b"].sum(1)) / (6 + 16)
    assert close(made.scores["a[1]"], expected, 1e-5)


# Smaller models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
def test_the_smaller_model_computes_what_the_masked_one_does(name):
    function, tree, inputs, groups = family(name)
    # Features may be normalized together, where a unit that is 0 counts and one that is gone does not.
    kinds = sorted({group.kind for group in groups.groups.values()} - {"features"})
    made = plan(function, tree, *inputs, budget="85% parameters", units=kinds or "features")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResultWarning)
        small = made.apply()
    masked = apply_mask(made.mask, tree)
    assert close(jax.jit(small.function)(small.tree, *inputs), jax.jit(function)(masked, *inputs), 1e-4)


def test_a_difference_from_the_masked_model_is_told():
    params = {"embed": PARAMS["a"], "head": jnp.ones((32, 3))}

    def model(params, x):
        x = x @ params["embed"]
        return jnp.tanh((x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)) @ params["head"]

    made = plan(model, params, X, budget="50% parameters", units="features")
    with pytest.warns(ResultWarning, match="normalized together"):
        small = made.apply()
    assert small.difference > 1e-3


def test_a_linen_module_becomes_a_program_of_smaller_arrays():
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(3)(linen.relu(linen.Dense(20)(x)))

    params = Model().init(jax.random.key(0), X)
    small = plan(Model().apply, params, X, budget="50% parameters").apply()
    assert not small.same_function and small.function(small.tree, X[:1]).shape == (1, 3)


@pytest.mark.long
def test_a_module_is_made_smaller_and_trains(resnet):
    before = jax.tree.map(jnp.copy, nnx.state(resnet))
    small = jaxarch.nnx.plan(resnet, PICTURES, budget="50% multiply_adds").apply().model
    assert nnx.jit(lambda model: model(PICTURES))(small).shape == (3, 10)
    small.train()
    gradients = nnx.jit(nnx.grad(lambda model: (model(PICTURES) ** 2).sum()))(small)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert all(map(np.array_equal, jax.tree.leaves(nnx.state(resnet)), jax.tree.leaves(before)))


@pytest.mark.long
def test_a_network_and_its_problem_are_made_smaller_together():
    data = jnp.asarray(np.random.default_rng(0).normal(size=(40, 6)), jnp.float32)
    problem = jaxarch.supervised(
        lambda rngs: nnx.Sequential(nnx.Linear(6, 20, rngs=rngs), nnx.relu, nnx.Linear(20, 3, rngs=rngs)),
        (data, np.arange(40) % 3),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.adam(1e-2),
        steps=5,
        batch_size=10,
    )
    found, _ = jaxarch.over_seeds(jaxarch.search.dense(), jax.random.split(jax.random.key(0), 1), problem)
    made = plan(found.of_run(0), problem, budget="50% parameters")
    small = made.apply()
    assert small.network.params["layers"][0]["kernel"].shape[1] == counts(made)["layers/0/bias[0]"]
    keys = jax.random.split(jax.random.key(1), 2)
    again, _ = jaxarch.over_seeds(
        jaxarch.retrain("warm"), keys, small.problem, network=small.network.repeated(2)
    )
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(again.params))


def test_a_whole_optimizer_state_is_cut_with_the_parameters():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(1e-2, 0, 10)))
    init, update = jax.jit(optimizer.init), jax.jit(optimizer.update)
    state = init(PARAMS)
    gradients = jax.jit(jax.grad(lambda params: (mlp(params, X) ** 2).sum()))(PARAMS)
    _, state = update(gradients, state, PARAMS)
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds")
    small, moments = made.cut(PARAMS), made.cut(state)
    expected = jax.tree.map(jnp.shape, init(small))
    assert jax.tree.map(jnp.shape, moments) == expected
    whole, _ = update(apply_mask(made.mask, gradients), state, PARAMS)
    updates, _ = update(made.cut(gradients), moments, small)
    assert close(updates, made.cut(whole), 1e-6)


def test_only_an_optimizer_s_state_may_have_further_names_around_the_leaves():
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds")
    with pytest.raises(ArgumentError, match="tree: the groups have no leaf 'another/a'"):
        made.cut({"another": {"a": PARAMS["a"]}})


def test_the_optimizer_state_of_a_single_array_is_cut():
    w = jnp.asarray(np.random.default_rng(0).normal(size=(6, 8)), jnp.float32)
    model = lambda w, x: jax.nn.relu(x @ w) @ w.T  # noqa: E731
    made = plan(model, w, X, budget="50% parameters")
    state = made.cut(optax.adam(1e-3).init(w))
    assert state[0].mu.shape == made.cut(w).shape == (6, 4) and state[0].count.shape == ()


def test_integer_matrices_have_no_say():
    table = jnp.arange(12).reshape(3, 4)

    def model(tree, x):
        return mlp({name: tree[name] for name in PARAMS}, x) + tree["table"].sum()

    made = plan(model, PARAMS | {"table": table}, X, budget="50% multiply_adds")
    assert {*made.scores} == {"a[1]", "b[1]"}


@pytest.mark.long
def test_a_module_that_trains_in_its_call_has_the_costs_of_one_example():
    model = nnx.Sequential(
        nnx.Linear(6, 16, rngs=nnx.Rngs(0)),
        nnx.BatchNorm(16, rngs=nnx.Rngs(0)),
        nnx.Linear(16, 3, rngs=nnx.Rngs(1)),
    )
    made = jaxarch.nnx.plan(model, X, budget="50% multiply_adds")
    assert made.before.multiply_adds == 6 * 16 + 16 * 3 and made.apply().model(X).shape == (4, 3)


def test_an_optimizer_state_of_other_shapes_is_refused():
    state = optax.adafactor(1e-2, min_dim_size_to_factor=2).init(PARAMS)
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds")
    with pytest.raises(ArgumentError, match=r"tree: the groups have no leaf '.*v_row.*optimizer state"):
        made.cut(state)


def test_the_gradient_of_the_smaller_model_is_that_of_the_masked_one():
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds")
    small = made.apply()
    loss = lambda function, tree: (function(tree, X) ** 2).sum()  # noqa: E731
    whole = jax.jit(jax.grad(lambda tree: loss(mlp, tree)))(apply_mask(made.mask, PARAMS))
    assert close(
        jax.jit(jax.grad(lambda tree: loss(small.function, tree)))(small.tree), made.cut(whole), 1e-5
    )


# Latency ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.3, 1, 3])
@pytest.mark.parametrize("limit", [0.3, 0.5, 0.9])
def test_the_search_for_a_latency_ends_close_below_it(power, limit):
    choice, seconds = within_latency(
        lambda share: share, lambda share: 0.1 + 0.9 * share**power, 1.0, limit, "5 ms"
    )
    assert 0.9 * limit <= seconds <= limit and seconds == pytest.approx(0.1 + 0.9 * choice**power)


def test_a_latency_below_that_of_the_smallest_model_is_refused():
    with pytest.raises(ArgumentError, match="5 ms cannot be met; the smallest model takes 500 ms, the dense"):
        within_latency(lambda share: share, lambda share: 0.5 + 0.5 * share, 1.0, 0.4, "5 ms")


@pytest.mark.long
def test_a_budget_of_latency_is_measured():
    made = plan(mlp, PARAMS, X, budget="10 s")
    assert all(seconds < 10 for seconds in made.seconds) and "10 s" in str(made)


def test_a_latency_that_hardly_depends_on_size_keeps_most_units():
    share, seconds = within_latency(
        lambda share: share, lambda share: 0.93 + 0.07 * share**8, 1.0, 0.96, "5 ms"
    )
    assert share > 0.8 and seconds <= 0.96


@pytest.mark.long
def test_a_knapsack_meets_a_latency():
    made = plan(mlp, PARAMS, X, budget=("10 s", "50% parameters"), scope="knapsack")
    assert made.after.parameters <= 0.5 * made.before.parameters


# Refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "half"}, "budget: expected a positive number and a quantity"),
        ({"budget": "50% multiply-adds"}, "budget: expected a positive number and a quantity"),
        ({"budget": "50% flops"}, "budget: unknown quantity 'flops'; known: multiply_adds"),
        ({"budget": "120% parameters"}, "budget: expected less than 100%"),
        ({"budget": "0 parameters"}, "budget: expected a positive number"),
        ({"budget": 0.5}, "budget: expected text such as"),
        ({"budget": ("50% bytes", "1 kB")}, "budget: expected one budget of bytes, got two"),
        (
            {"budget": "10 parameters"},
            "budget: 10 parameters cannot be met; the smallest model .* has 10 param",
        ),
        ({"scope": "all"}, "scope: "),
        ({"units": "heads"}, "units: the model has no heads"),
        ({"shares": {"c": 0.5}}, "shares: no group has a leaf 'c'"),
        ({"shares": {"a": 1.5}}, r"shares: expected a share in \[0, 1\]"),
        ({"shares": {"a": (0.5, 0.2)}}, r"shares: expected a share in \[0, 1\]"),
        ({"shares": {"a": 1.0, "b": 1.0}}, "units: no unit may go"),
        ({"round_to": 0}, "round_to: "),
        ({"scores": {"a[1]": np.full(32, np.nan)}}, "scores: expected 32 finite numbers for the units of"),
        ({"scores": {"a[1]": np.ones(3)}}, "scores: expected 32 finite numbers for the units of"),
        ({"scores": {"z": np.ones(3)}}, "units: they belong to another model"),
        ({"scores": {"a[1]": "high"}}, "scores: expected 32 finite numbers for the units of"),
        ({"scores": {"a[1]": np.ones(32), "c[1]": 1}}, r"scores: unknown group 'c\[1\]'; did you mean"),
        ({"budget": "1,5 kB"}, "budget: expected a positive number and a quantity"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, message):
    budget = arguments.pop("budget", "50% multiply_adds")
    if "cannot be met" in message:
        budget = "9 parameters"
        message = "budget: 9 parameters cannot be met; the smallest model .* has 10 parameters of 752"
    with pytest.raises(ArgumentError, match=message):
        plan(mlp, PARAMS, X, budget=budget, **arguments)


def test_shapes_in_place_of_arrays_are_refused():
    shapes = jax.eval_shape(lambda: PARAMS)
    with pytest.raises(ArgumentError, match="tree: expected arrays, since models are run"):
        plan(mlp, shapes, X, budget="50% parameters")


def test_a_plan_prints_units_costs_and_budgets():
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds")
    text = str(made)
    assert text.startswith("group  kind     units  kept\na[1]   neurons     32")
    assert "multiply-adds" in text and "50% multiply_adds" in text and "in a batch of 4" in text
    assert {*made.layers} == {"a", "b", "head"} and made.layers["a"][0].parameters == 192


def test_the_mask_keeps_the_entries_that_the_cut_keeps():
    made = plan(mlp, PARAMS, X, budget="50% multiply_adds", units="a[1]")
    assert made.mask["head"] is None  # It loses no unit.
    assert all(leaf.sum() == made.cut(PARAMS)[path].size for path, leaf in named_leaves(made.mask).items())


def test_knapsack_without_room_for_any_choice_but_the_smallest_takes_that():
    group = Candidates((3, 2, 1), np.array([3.0, 2.0, 1.0]))

    assert knapsack([group], [(Polynomial.of({(0,): 1.0}, 1), 1.0 + 1e-5)]).counts.tolist() == [1]


def test_a_module_whose_norm_counts_its_units_is_returned_with_the_difference():
    layers = nnx.Linear(6, 16, rngs=nnx.Rngs(0)), nnx.LayerNorm(16, rngs=nnx.Rngs(0))
    model = nnx.Sequential(*layers, nnx.Linear(16, 3, rngs=nnx.Rngs(1)))
    made = jaxarch.nnx.plan(model, X, budget="50% multiply_adds", units="features")
    with pytest.warns(ResultWarning, match="outputs of `model` differ"):
        small = made.apply()
    assert small.model.layers[0].out_features == small.model.layers[1].scale.shape[0] == 8
    assert not small.same_function


def test_a_module_that_fixes_its_sizes_gives_the_reason():
    class Heads(nnx.Module):
        def __init__(self):
            self.into, self.out = nnx.Linear(6, 12, rngs=nnx.Rngs(0)), nnx.Linear(12, 3, rngs=nnx.Rngs(1))

        def __call__(self, x):
            heads = self.into(x).reshape(-1, 3, 4)
            mixed = nnx.softmax(heads @ heads.swapaxes(1, 2)) @ heads
            return self.out(mixed.reshape(-1, 12))

    small = jaxarch.nnx.plan(Heads(), X, budget="70% multiply_adds").apply()
    assert small.model is None
    assert "does not take the smaller arrays" in small.why or "something else" in small.why
    assert "no smaller model" in str(small)


IMAGES = jnp.asarray(np.random.default_rng(2).normal(size=(2, 6, 6, 3)), jnp.float32)
WORDS = jnp.asarray(np.random.default_rng(3).normal(size=(2, 5, 12)), jnp.float32)


def layers_of(name, rngs):
    """Layers that keep their sizes beside their arrays, and an input."""
    if name == "attention":
        attention = nnx.MultiHeadAttention(3, 12, qkv_features=12, decode=False, rngs=rngs)
        return [nnx.Linear(12, 12, rngs=rngs), attention, nnx.Linear(12, 4, rngs=rngs)], WORDS
    if name == "general":
        into, out = (
            nnx.LinearGeneral(12, (3, 8), rngs=rngs),
            nnx.LinearGeneral((3, 8), 4, axis=(-2, -1), rngs=rngs),
        )
        return [into, nnx.relu, out], WORDS
    first, last = nnx.Conv(3, 8, (1, 1), rngs=rngs), nnx.Conv(8, 5, (1, 1), rngs=rngs)
    if name == "depthwise":
        inner = nnx.Conv(8, 8, (3, 3), feature_group_count=8, rngs=rngs)
    else:
        inner = nnx.GroupNorm(8, num_groups=4, rngs=rngs)
    return [first, inner, nnx.relu, last], IMAGES


@pytest.mark.long
@pytest.mark.parametrize("name", ["attention", "general", "depthwise", "group norm"])
def test_layers_that_keep_their_sizes_have_the_smaller_ones(name):
    layers, x = layers_of(name, nnx.Rngs(0))
    model = nnx.Sequential(*layers)
    made = jaxarch.nnx.plan(model, x, budget="65% multiply_adds")
    small = made.apply()
    assert small.model is not None, small.why
    graph, state = nnx.split(model)
    masked = nnx.merge(graph, apply_mask(made.mask, state))
    more = np.concatenate([x, x[:1] + 1])
    call = nnx.jit(lambda model: model(more))
    assert close(call(small.model), call(masked), 1e-5)
    again = jaxarch.nnx.plan(small.model, x, budget="80% multiply_adds")  # its sizes serve another plan
    assert again.before.multiply_adds == made.after.multiply_adds
