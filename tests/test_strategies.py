"""The contract that every strategy keeps: pure, jittable, mappable, one trace, any pytree of parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import RUNS, close, keys, problem, same, task

import jaxarch
from jaxarch.running import HostSearch

STRATEGIES = jaxarch.disentangling_strategies(lottery_rounds=1, agnostic_draws=2, agnostic_weights=2)
IN_JAX = [name for name, strategy in STRATEGIES.items() if not isinstance(strategy, HostSearch)]
# The fewest that have every stage of the others among theirs.
ALL_STAGES = ["real->bin", "bin->real cold", "lottery", "agnostic->real best", "random", "unconstrained real"]


def strategy_of(name):
    return jaxarch.chain(STRATEGIES[name])


def two_layers(make):
    """A network on any container: `make(first, second)` holds the kernels, next to a bias vector."""

    def init(key):
        first, second = jax.random.split(key)
        kernels = make(0.1 * jax.random.normal(first, (6, 64)), 0.1 * jax.random.normal(second, (1, 6)))
        return {"kernels": kernels, "bias": jnp.zeros((1,))}

    def apply(params, x):
        first, second = jax.tree.leaves(params["kernels"])
        return (jnp.tanh(x @ first.T) @ second.T + params["bias"][None])[:, 0]

    return init, apply


def test_a_few_strategies_have_every_kind_of_stage():
    def kinds(names):
        stages = {stage for name in names for stage in strategy_of(name).stages}
        return {getattr(stage, "name", None) or stage.__name__ for stage in stages}

    # Each of these two differs from one that is there by an argument alone.
    assert kinds(IN_JAX) - kinds(ALL_STAGES) == {"retrain warm", "share random weight"}


CONTAINERS = {
    "list": lambda a, b: [a, b],
    "nested dict": lambda a, b: {"first": {"w": a}, "second": {"w": b}},
    "tuple": lambda a, b: (a, b),
}


@pytest.mark.parametrize("name", ["real->bin", "bin", "agnostic", "random"])
def test_jit_gives_what_eager_gives(name):
    learning = problem(steps=3).of_run(0)
    jitted = jax.jit(strategy_of(name))(keys()[0], learning)
    assert close(strategy_of(name)(keys()[0], learning), jitted)


@pytest.mark.parametrize("name", ALL_STAGES)
def test_vmap_gives_what_a_loop_gives(name):
    learning = problem(steps=3)
    strategy = jax.jit(strategy_of(name))
    mapped = jax.jit(jax.vmap(strategy_of(name), in_axes=(0, learning.in_axes())))(keys(), learning)
    for run in range(2):
        assert close(strategy(keys()[run], learning.of_run(run)), mapped.of_run(run), 1e-4)


@pytest.mark.parametrize("name", ALL_STAGES)
def test_its_loss_is_traced_as_often_for_many_runs_as_for_one(name):
    counts = []
    for runs in (1, RUNS):
        traces = []
        learning = problem(runs=runs)

        def loss(params, state, batch, key, learning=learning, traces=traces):
            traces.append(1)
            return learning.loss(params, state, batch, key)

        jaxarch.over_seeds(STRATEGIES[name], keys(runs), dataclasses.replace(learning, loss=loss))
        counts.append(len(traces))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("name", "container"),
    [(name, "nested dict") for name in ALL_STAGES] + [("bin", "list"), ("real->bin", "tuple")],
)
def test_parameters_may_be_any_pytree(name, container):
    x = np.linspace(0, 1, 20 * 64, dtype=np.float32).reshape(20, 64)
    learning = jaxarch.supervised(
        two_layers(CONTAINERS[container]),
        (x, np.arange(20) % 2),
        loss=optax.sigmoid_binary_cross_entropy,
        optimizer=optax.adam(1e-2),
        steps=2,
    )
    network = jax.jit(strategy_of(name))(keys()[0], learning)
    params, _ = jax.eval_shape(learning.init, keys()[0])
    assert jax.tree.structure(network.params) == jax.tree.structure(params)
    assert network.mask["bias"] is None
    assert 0 <= float(jaxarch.density(network.mask)) <= 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_over_seeds_gives_one_result_a_run(name):
    network, report = jaxarch.over_seeds(STRATEGIES[name], keys(), problem())
    outputs = jaxarch.evaluate(STRATEGIES[name], network, problem(), task().test)
    assert outputs.shape == task().test.shape
    assert np.isfinite(outputs).all()
    assert report.seconds >= 0
    assert all(leaf.shape[0] == RUNS for leaf in jax.tree.leaves(network))


@pytest.mark.parametrize("name", ["real->bin", "bin", "random->bin", "lottery->bin", "agnostic"])
def test_binary_strategies_have_no_weights_but_zero_and_one(name):
    network, _ = jaxarch.over_seeds(STRATEGIES[name], keys(), problem())
    for params, mask in zip(jax.tree.leaves(network.params), jax.tree.leaves(network.mask), strict=True):
        assert same(params, mask.astype(jnp.float32))


@pytest.mark.parametrize("name", ["bin->real warm", "bin->real cold"])
def test_retraining_leaves_the_architecture_as_it_was_found(name):
    results = jaxarch.compare({n: STRATEGIES[n] for n in ("bin", name)}, keys(), problem())
    architecture, retrained = results["bin"][0], results[name][0]
    assert same(architecture.mask, retrained.mask)
    pruned = jax.tree.map(lambda m, w: jnp.where(m, 0, w), retrained.mask, retrained.params)
    assert all(not leaf.any() for leaf in jax.tree.leaves(pruned))
    assert all((leaf >= 0).all() for leaf in jax.tree.leaves(retrained.params))


def test_a_warm_start_is_at_the_found_weights_and_a_cold_one_is_not():
    from jaxarch.running import training

    network = jaxarch.chain(STRATEGIES["bin"])(keys()[0], problem().of_run(0))
    for start, is_found in (("warm", True), ("cold", False)):
        stage = jaxarch.retrain(start)
        carry = training.begin(stage, keys()[1], problem().of_run(0), network)
        assert close(stage.params(stage.settings, carry.state), network.params) == is_found


def test_strategies_that_begin_alike_share_the_beginning_exactly():
    together = jaxarch.compare({n: STRATEGIES[n] for n in ("real", "real->bin")}, keys(), problem())
    alone, _ = jaxarch.over_seeds(STRATEGIES["real->bin"], keys(), problem())
    assert same(together["real->bin"][0].mask, alone.mask)
    assert same(together["real->bin"][0].info["loss"], together["real"][0].info["loss"])
    reports = [together[n][1] for n in ("real", "real->bin")]
    assert reports[0].stages[0] is reports[1].stages[0]
    assert reports[1].seconds > reports[0].seconds


def test_runs_with_different_keys_differ_and_with_equal_keys_are_equal():
    learning = problem()
    first, _ = jaxarch.over_seeds(STRATEGIES["bin"], keys(), learning)
    again, _ = jaxarch.over_seeds(STRATEGIES["bin"], keys(), learning)
    assert same(first, again)
    assert not same(first.of_run(0).mask, first.of_run(1).mask)


def test_a_host_search_says_that_it_cannot_be_jitted_or_finished():
    logistic = STRATEGIES["logistic regression"]
    with pytest.raises(ValueError, match="logistic regression: it runs on the host"):
        jaxarch.chain(logistic)(keys()[0], problem().of_run(0))
    with pytest.raises(
        ValueError, match="logistic regression runs on the host, and nothing can come after it"
    ):
        jaxarch.chain(logistic, jaxarch.threshold())


def test_chains_of_chains_are_chains():
    search, binary, retrained = jaxarch.search.dense(), jaxarch.threshold(), jaxarch.retrain()
    flat = jaxarch.chain(search, binary, retrained)
    assert jaxarch.chain(jaxarch.chain(search, binary), retrained) == flat
    assert jaxarch.chain(search, jaxarch.chain(binary, retrained)) == flat


def test_things_that_are_no_stages_are_refused():
    with pytest.raises(ValueError, match=r"chain: expected stages, or functions .* got str"):
        jaxarch.chain("bin")


def test_a_problem_with_rows_of_many_runs_asks_for_one_of_them():
    with pytest.raises(ValueError, match=r"its rows have shape \(4, 120\), one set a run"):
        jaxarch.chain(STRATEGIES["bin"])(keys()[0], problem())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jaxarch.search.two_temperature(-1.0, 1.0), "hard: expected a positive"),
        (lambda: jaxarch.search.two_temperature(1.0, 2.0), "soft: expected at most hard"),
        (lambda: jaxarch.search.two_temperature(weights="random"), "weights: expected 'ones', 'initial'"),
        (lambda: jaxarch.search.two_temperature(units="hard"), "units: expected '1/hard' or 'absolute'"),
        (lambda: jaxarch.retrain("lukewarm"), "start: expected 'warm', 'cold' or 'rewind'"),
        (lambda: jaxarch.threshold((10, 120)), "percentiles: expected numbers in"),
        (lambda: jaxarch.threshold(()), "percentiles: expected numbers in"),
        (lambda: jaxarch.search.logistic_regression(C=0), "C: expected a positive"),
    ],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_retrain_cannot_begin_a_strategy():
    with pytest.raises(ValueError, match="retrain cold: it needs a network; put a search before it"):
        jaxarch.over_seeds(jaxarch.retrain(), keys(), problem())


@pytest.mark.parametrize(
    "weights", ["initial", lambda key, masked: jax.tree.map(lambda w: -jnp.ones_like(w), masked)]
)
def test_the_weights_under_the_mask_can_be_chosen(weights):
    search = jaxarch.search.two_temperature(weights=weights)
    network = jaxarch.chain(search)(keys()[0], problem().of_run(0))
    kept = network.params["w1"][network.mask["w1"]]
    if weights == "initial":
        assert kept.std() > 0.1
    else:
        assert (kept == -1).all()


def test_absolute_scores_are_those_in_units_of_one_over_hard():
    learning = problem(steps=1).of_run(0)
    relative = jaxarch.search.two_temperature(50.0, 5.0, mean=-10.0, std=5.0)
    absolute = jaxarch.search.two_temperature(50.0, 5.0, mean=-0.2, std=0.1, units="absolute")
    scores = [jaxarch.chain(s)(keys()[0], learning).info["scores"] for s in (relative, absolute)]
    assert close(*scores)
