"""Chains are checked stage against stage and against the problem, before anything is trained."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from methods import keys, problem_for
from small import same

import jaxarch
from jaxarch import Needs, search, transforms
from jaxarch.run._training import joined

CONTRADICTIONS = {
    "weights that would forget a mask": (
        lambda: jaxarch.chain(search.random_mask(0.5), search.dense(nonnegative=False)),
        r"dense unconstrained makes a network from nothing, and would discard what random mask found; "
        r'to train what was found, use retrain\("cold", nonnegative=False\) instead',
    ),
    "a mask that would forget a mask": (
        lambda: jaxarch.chain(search.random_mask(0.5), search.two_temperature()),
        "two_temperature would restore the connections that random mask removed",
    ),
    "even if it is not the one just before": (
        lambda: jaxarch.chain(search.snip(0.5), jaxarch.retrain(), search.architecture_pruning(0.1)),
        "architecture pruning would restore the connections that snip removed",
    ),
    "a search after a search": (
        lambda: jaxarch.chain(search.random_mask(0.5), search.snip(0.5)),
        "snip makes a network from nothing",
    ),
    "a mask of connections for spectral networks": (
        lambda: jaxarch.chain(search.random_mask(0.5), search.spectral()),
        "spectral would restore the connections that random mask removed",
    ),
    "a mask over removed neurons": (
        lambda: jaxarch.chain(search.spectral(), jaxarch.recruit(), search.two_temperature()),
        "two_temperature would restore the neurons that recruit removed",
    ),
    "something after the host": (
        lambda: jaxarch.chain(search.logistic_regression(), jaxarch.threshold()),
        "logistic regression runs on the host, so no stage can follow it",
    ),
    "nothing at all": (lambda: jaxarch.chain(), "expected at least one stage"),
    "no stage": (lambda: jaxarch.chain("bin"), "expected stages, or functions .* got str"),
    "a function of one argument": (lambda: jaxarch.chain(abs), "expected stages, or functions"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_stages_that_contradict_one_another_make_no_chain(case):
    make, message = CONTRADICTIONS[case]
    with pytest.raises(jaxarch.ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def never_trained(problem):
    """The problem, with a loss that may be traced for its shapes and never be run."""

    def loss(params, state, batch, key):
        value, state = problem.loss(params, state, batch, key)

        def ran():
            raise AssertionError("something was trained")

        jax.debug.callback(ran)
        return value, state

    return dataclasses.replace(problem, loss=loss)


LACKS = {
    "a network": (
        lambda: jaxarch.prune(0.5),
        {},
        r"prune: it needs a network; .*chain\(search.dense\(\), ...\)",
    ),
    "a start": (
        lambda: jaxarch.chain(search.random_mask(0.5), jaxarch.retrain("rewind")),
        {},
        r"retrain rewind: it needs a network with `Start`; .*search.dense\(\)",
    ),
    "densities": (
        lambda: jaxarch.chain(search.dense(), jaxarch.at_density(0.5)),
        {},
        r"at density 0.5: it needs a network with `ByDensity`; .*search.snip",
    ),
    "another density": (
        lambda: jaxarch.chain(search.snip((0.5, 0.1)), jaxarch.at_density(0.2)),
        {},
        r"density: no mask has density 0.2; choose one of 0.1, 0.5",
    ),
    "densities after a training": (
        lambda: jaxarch.chain(search.snip((0.5, 0.1)), jaxarch.retrain(), jaxarch.at_density(0.1)),
        {},
        "at density 0.1: it needs a network with `ByDensity`",
    ),
    "a shared weight": (
        lambda: jaxarch.chain(search.untrained(), jaxarch.share_weight()),
        {},
        r"share best weight: it needs a network with `SharedWeight`; .*search.agnostic\(\)",
    ),
    "validation rows": (
        lambda: jaxarch.chain(search.spectral(), jaxarch.recruit()),
        {"parent": "spectral", "validation": None},
        "validation: recruit needs a problem with validation rows; give it `validation=rows`",
    ),
    "hidden eigenvalues": (
        lambda: jaxarch.chain(search.dense(), jaxarch.recruit()),
        {},
        "eigenvalues",
    ),
    "connections": (
        lambda: jaxarch.chain(search.spectral(), jaxarch.retrain()),
        {"parent": "spectral"},
        r"hidden neurons, not connections; .*search.spectral\(0.0\)",
    ),
    "what the last stage needs": (
        lambda: jaxarch.chain(search.dense(), jaxarch.retrain("warm"), jaxarch.share_weight()),
        {},
        "share best weight",
    ),
}


@pytest.mark.parametrize("case", LACKS)
def test_what_a_stage_lacks_is_said_before_the_first_step(case):
    make, changes, message = LACKS[case]
    learning = never_trained(problem_for(changes.pop("parent", "any")))
    learning = dataclasses.replace(learning, **changes)
    with pytest.raises(jaxarch.ArgumentError, match=message) as caught:
        jaxarch.over_seeds(make(), keys(), learning)
    assert "\n" not in str(caught.value)


def test_a_chain_called_by_hand_is_checked_as_a_whole_too():
    strategy = jaxarch.chain(search.dense(), jaxarch.share_weight())
    with pytest.raises(jaxarch.ArgumentError, match="share best weight"):
        strategy(keys()[0], never_trained(problem_for("any")).of_run(0))


@pytest.mark.long
def test_a_search_over_the_whole_network_may_follow_its_training():
    strategy = jaxarch.chain(
        search.dense(nonnegative=False), search.two_temperature(weights="initial", mean=2.0)
    )
    network, _ = jaxarch.over_seeds(strategy, keys(), problem_for("any"))
    dense, _ = jaxarch.over_seeds(search.dense(nonnegative=False), keys(), problem_for("any"))
    assert same(network.params, jaxarch.masks.apply_mask(network.mask, dense.params))


@pytest.mark.long
def test_a_network_that_lacks_connections_is_not_given_to_a_search_that_would_forget_them():
    masked, _ = jaxarch.over_seeds(search.random_mask(0.5), keys(), problem_for("any"))
    with pytest.raises(jaxarch.ArgumentError, match="two_temperature: it would restore the connections"):
        jaxarch.over_seeds(search.two_temperature(), keys(), problem_for("any"), network=masked)
    with pytest.raises(jaxarch.ArgumentError, match="dense: it makes a network from nothing"):
        jaxarch.over_seeds(search.dense(), keys(), problem_for("any"), network=masked)


@pytest.mark.long
def test_a_stage_of_one_s_own_says_what_it_needs():
    def halved(settings, key, problem, network):
        return network.replace(params=jax.tree.map(lambda w: w / 2, network.params))

    mine = jaxarch.FunctionStage("halved", halved, needs=Needs("required", records=(jaxarch.Start,)))
    with pytest.raises(jaxarch.ArgumentError, match="halved: it needs a network with `Start`"):
        jaxarch.over_seeds(jaxarch.chain(search.untrained(), mine), keys(), problem_for("any"))
    network, _ = jaxarch.over_seeds(jaxarch.chain(search.dense(), mine), keys(), problem_for("any"))
    dense, _ = jaxarch.over_seeds(search.dense(), keys(), problem_for("any"))
    assert same(network.params, jax.tree.map(lambda w: w / 2, dense.params))


def test_a_stage_of_one_s_own_may_need_a_problem_that_predicts():
    mine = jaxarch.FunctionStage(
        "calibrated", lambda s, key, problem, network: network, needs=Needs("required", predict=True)
    )
    learning = dataclasses.replace(never_trained(problem_for("any")), predict=None)
    with pytest.raises(jaxarch.ArgumentError, match="it has no `predict`, which calibrated needs"):
        jaxarch.over_seeds(jaxarch.chain(search.dense(), mine), keys(), learning)


@pytest.mark.long
def test_a_plain_function_keeps_what_it_does_not_set():
    def nothing(key, problem, network):
        return jaxarch.Network(info=jaxarch.TrainingInfo({"seen": jnp.zeros(())}))

    network, _ = jaxarch.over_seeds(jaxarch.chain(search.dense(), nothing), keys(), problem_for("any"))
    dense, _ = jaxarch.over_seeds(search.dense(), keys(), problem_for("any"))
    bare = jaxarch.TrainingInfo()
    assert same(network.replace(info=bare), dense.replace(info=bare))
    assert set(network.info) == {*dense.info, "seen"}


@pytest.mark.long
def test_neurons_are_no_mask_of_connections():
    network, _ = jaxarch.over_seeds(search.spectral(), keys(), problem_for("spectral"))
    assert network.mask is None
    assert network[jaxarch.NeuronMask].count().tolist() == [5, 5, 5]
    with pytest.raises((jaxarch.ArgumentError, TypeError)):
        jaxarch.masks.apply_mask(network[jaxarch.NeuronMask], network.params)


@pytest.mark.long
def test_a_stage_may_have_steps_an_optimiser_and_a_batch_size_of_its_own():
    import optax

    still = jaxarch.retrain("warm", nonnegative=False, steps=7, optimizer=optax.sgd(0.0), batch_size=None)
    strategy = jaxarch.chain(search.dense(nonnegative=False), still)
    network, _ = jaxarch.over_seeds(strategy, keys(), problem_for("any"))
    dense, _ = jaxarch.over_seeds(search.dense(nonnegative=False), keys(), problem_for("any"))
    assert network.info["loss"].shape == (3, 7)
    assert dense.info["loss"].shape == (3, 3)
    assert same(network.params, dense.params)
    # All examples at every step, and nothing moves.
    assert np.ptp(network.info["loss"], axis=1).max() == 0


@pytest.mark.parametrize(
    ("descent", "message"),
    [
        ({"step": 3}, "step: no such argument; did you mean 'steps'"),
        ({"steps": 0}, "steps: expected an integer of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size: expected an integer"),
        ({"optimizer": "adam"}, "optimizer: expected an optax transformation"),
    ],
)
def test_a_descent_that_is_none_is_refused_where_the_stage_is_made(descent, message):
    tickets = functools.partial(search.magnitude_pruning, 0.5)
    for make in (jaxarch.retrain, search.dense, search.two_temperature, search.spectral, tickets):
        with pytest.raises(jaxarch.ArgumentError, match=message):
            make(**descent)


@pytest.mark.long
def test_a_failure_once_is_a_failure_for_good():
    import optax

    broken = search.dense(nonnegative=False, optimizer=optax.sgd(float("nan")), steps=2)
    strategy = jaxarch.chain(broken, jaxarch.retrain("cold", steps=2))
    with pytest.warns(jaxarch.NonFiniteWarning):
        network, _ = jaxarch.over_seeds(strategy, keys(), problem_for("any"))
    assert network.info.failed_at.tolist() == [1, 1, 1]
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(network.params))


def test_a_failure_or_a_dead_start_is_one_for_good_whichever_training_it_was_of():
    def network(failed_at, is_dead):
        info = jaxarch.TrainingInfo(failed_at=jnp.asarray(failed_at), dead_start=jnp.asarray(is_dead))
        return jaxarch.Network(info=info)

    fine, failed = network(-1, False), network(0, True)
    for before, after in ((fine, failed), (failed, fine), (failed, network(5, False))):
        whole = joined(before, after)
        assert (int(whole.info.failed_at), bool(whole.info.dead_start)) == (0, True)
    whole = joined(fine, fine)
    assert (int(whole.info.failed_at), bool(whole.info.dead_start)) == (-1, False)


@pytest.mark.long
def test_an_equal_stage_after_another_beginning_is_another():
    masks = {share: jaxarch.chain(search.random_mask(share), jaxarch.reshuffle()) for share in (0.5, 0.25)}
    found = jaxarch.compare({str(share): masks[share] for share in masks}, keys(), problem_for("any"))
    for share, strategy in masks.items():
        alone, _ = jaxarch.over_seeds(strategy, keys(), problem_for("any"))
        assert same(found[str(share)][0].mask, alone.mask)


@pytest.mark.long
def test_runs_that_fill_up_the_last_group_of_a_plain_stage_are_dropped():
    drawn = search.random_mask(0.5)
    grouped, _ = jaxarch.over_seeds(drawn, keys(3), problem_for("any"), max_parallel_runs=2)
    whole, _ = jaxarch.over_seeds(drawn, keys(3), problem_for("any"))
    assert same(grouped.mask, whole.mask)


def test_what_is_forgotten_is_one_thing_and_what_is_removed_another():
    assert transforms.recruit().removes == ("neurons",)
    assert search.dense().removes == ()
    assert search.snip(0.5).removes == ("connections",)


@pytest.mark.long
def test_a_threshold_does_not_bring_back_what_is_not_there():
    strategy = jaxarch.chain(search.random_mask(0.5), jaxarch.retrain("cold", nonnegative=False))
    pruned, _ = jaxarch.over_seeds(strategy, keys(), problem_for("any"))
    binary, _ = jaxarch.over_seeds(
        jaxarch.chain(strategy, jaxarch.threshold((10,))), keys(), problem_for("any")
    )
    for before, after in zip(jax.tree.leaves(pruned.mask), jax.tree.leaves(binary.mask), strict=True):
        assert not (after & ~before).any()
        assert (after != before).any()


@pytest.mark.long
def test_every_run_of_a_network_that_is_given_is_looked_at():
    masked, _ = jaxarch.over_seeds(search.random_mask(0.5), keys(), problem_for("any"))
    first_whole = jax.tree.map(lambda leaf: leaf.at[0].set(True), masked.mask)
    with pytest.raises(jaxarch.ArgumentError, match="two_temperature: it would restore the connections"):
        given = masked.replace(mask=first_whole)
        jaxarch.over_seeds(search.two_temperature(), keys(), problem_for("any"), network=given)


@pytest.mark.long
@pytest.mark.parametrize("make", [search.two_temperature, lambda: search.architecture_pruning(0.9)])
def test_a_mask_is_learned_within_the_one_that_a_network_has_where_that_is_only_known_later(make):
    learning = problem_for("any")
    masked, _ = jaxarch.over_seeds(search.random_mask(0.5), keys(), learning)
    found = jax.jit(jax.vmap(make(), in_axes=(0, learning.in_axes(), 0)))(keys(), learning, masked)
    for before, after in zip(jax.tree.leaves(masked.mask), jax.tree.leaves(found.mask), strict=True):
        assert not (after & ~before).any()


@pytest.mark.parametrize(
    "changing",
    [
        jaxarch.share_weight("random"),
        jaxarch.prune(0.5),
        lambda key, problem, network: network.replace(params={}),
    ],
)
def test_architectures_by_density_go_with_the_network_that_they_are_of(changing):
    strategy = jaxarch.chain(search.snip((0.5, 0.1)), changing, jaxarch.at_density(0.5))
    with pytest.raises(jaxarch.ArgumentError, match=r"at density 0\.5: it needs a network with `ByDensity`"):
        jaxarch.over_seeds(strategy, keys(), problem_for("any"))


def test_a_training_of_one_s_own_is_taken_to_prune_unless_it_says_otherwise():
    mine = dataclasses.replace(search.dense(), removes=jaxarch.Training.removes)
    with pytest.raises(jaxarch.ArgumentError, match=r"two_temperature would restore"):
        jaxarch.chain(mine, search.two_temperature())


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (search.snip, r"expected a stage, got the function snip that makes one; call it, as in snip\(...\)"),
        (lambda key, problem: {"w": jnp.ones(3)}, "expected a stage to return a Network, got dict"),
        (lambda key, problem, network=None: None, "expected a stage to return a Network, got NoneType"),
    ],
)
def test_what_is_no_stage_or_makes_no_network_is_refused(part, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        jaxarch.over_seeds(part, keys(), problem_for("any"))


@pytest.mark.parametrize("run", [3, -4])
def test_a_run_that_there_is_none_of_is_refused(run):
    network, _ = jaxarch.over_seeds(search.untrained(), keys(), problem_for("any"))
    for many in (network, problem_for("any")):
        with pytest.raises(jaxarch.ArgumentError, match=f"run: expected -3 to 2, got {run}"):
            many.of_run(run)


def test_after_a_removal_of_neurons_the_way_out_is_the_refit():
    with pytest.raises(jaxarch.ArgumentError, match=r"use search\.spectral\(0\.0\) instead"):
        jaxarch.chain(search.spectral(), jaxarch.recruit(), search.two_temperature())
