"""A network is an architecture and its weights; records and what was recorded go with it, and stay apart."""

import dataclasses
import functools
import pickle
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxarch
from jaxarch import ArgumentError, ByDensity, Network, NeuronMask, SharedWeight, Start, TrainingInfo

RUNS = 3


@functools.partial(jax.tree_util.register_dataclass, data_fields=["sizes"], meta_fields=["name"])
@dataclasses.dataclass(frozen=True)
class Measured:
    """A record of the user's own method."""

    sizes: jax.Array
    name: str = "mine"


class Pair(NamedTuple):
    """A record need not be a dataclass."""

    one: jax.Array
    other: jax.Array


class Unregistered:
    """A class that JAX does not know."""


def measure(settings, key, problem, network):
    sizes = jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(network.mask)])
    return network.with_records(Measured(sizes))


def read(settings, key, problem, network):
    return network.replace(info=network.info | {"seen": network[Measured].sizes})


NEEDS = jaxarch.Needs("required", ("params", "mask"))
MEASURE = jaxarch.FunctionStage("measure", measure, needs=NEEDS, removes=())
READ = jaxarch.FunctionStage("read", read, needs=jaxarch.Needs("required", records=(Measured,)), removes=())


def problem(steps=4):
    x, net = jnp.eye(4), jaxarch.direct_network((4, 8, 4), skips=False)
    return jaxarch.supervised(net, (x, x), loss=optax.l2_loss, optimizer=optax.sgd(0.1), steps=steps)


def keys():
    return jax.random.split(jax.random.key(0), RUNS)


def same(one, other):
    equal = jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), one, other)
    return jax.tree.structure(one) == jax.tree.structure(other) and jax.tree.all(equal)


def test_the_five_fields_are_all():
    fields = [field.name for field in dataclasses.fields(Network)]
    assert fields == ["params", "mask", "state", "records", "info"]


def test_a_record_is_had_by_its_type():
    start = Start({"w": jnp.ones(2)})
    network = Network().with_records(start)
    assert network[Start] is network.get(Start) is start
    assert network.get(ByDensity) is None
    assert network.without(Start, ByDensity).records == ()
    assert network.with_records(Start(None)).records == (Start(None),)


def test_records_do_not_depend_on_the_order_in_which_they_were_left():
    left = [Start(jnp.ones(2)), SharedWeight(jnp.ones(())), Measured(jnp.ones(3)), NeuronMask(jnp.ones(1))]
    forth, back = Network(records=left), Network(records=left[::-1])
    one_by_one = functools.reduce(Network.with_records, left[::-1], Network())
    assert jax.tree.structure(forth) == jax.tree.structure(back) == jax.tree.structure(one_by_one)
    assert forth.records == back.records == one_by_one.records
    assert jax.tree.structure(
        Network(records=left[:1]).then(Network(records=left[1:]))
    ) == jax.tree.structure(forth)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Network()[Start], "it has no Start from any stage; its records: none"),
        (lambda: Network(records=(Start(1),))[ByDensity], "its records: Start"),
        (
            lambda: Network()[0],
            r"expected a record's type .* got 0; to take one run, call network\.of_run\(0\)",
        ),
        (lambda: Network().get("Start"), "expected a record's type in brackets, .* got 'Start'"),
        (lambda: Network(records=(Start(1), Start(2))), "expected one per type, got two of Start"),
        (lambda: Network().with_records(Start(1), Start(2)), "expected one per type, got two of Start"),
        (
            lambda: Network().with_records(Unregistered()),
            "Unregistered is not a pytree; .*register_dataclass",
        ),
        (lambda: Network().with_records(Start), "expected objects of your own classes"),
        (lambda: Network().with_records(jnp.ones(2)), "expected objects of your own classes"),
        (lambda: Network().with_records({"start": 1}), "expected objects of your own classes"),
        (lambda: Network(records=Start(1)), "records: expected a tuple of records, got Start"),
        (lambda: Network(records=Pair(1, 2)), "records: expected a tuple of records, got Pair"),
        (lambda: Network(info={"loss": jnp.ones(2)}), "info: expected TrainingInfo"),
        (lambda: TrainingInfo(jnp.ones(2)), "arrays: expected a dict of arrays by name"),
        (lambda: TrainingInfo({"loss": 1})["lost"], "nothing was recorded as 'lost'; did you mean 'loss'"),
        (lambda: TrainingInfo()["failed_at"], "nothing was recorded as 'failed_at'; use `info.failed_at`"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(call, message):
    with pytest.raises(ArgumentError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_network_is_not_iterated_over():
    with pytest.raises(TypeError, match="not iterable"):
        iter(Network())


def test_info_is_a_mapping_of_arrays_with_two_numbers_beside():
    info = TrainingInfo({"loss": 1, "scores": 2}, failed_at=-1)
    assert dict(info) == {"loss": 1, "scores": 2} and list(info) == ["loss", "scores"]
    assert "loss" in info and "failed_at" not in info and info.get("lost") is None and len(info) == 2
    with pytest.raises(KeyError, match="nothing was recorded"):
        info["lost"]
    more = info | {"mine": 3}
    assert (more["mine"], more["loss"], more.failed_at, more.dead_start) == (3, 1, -1, None)
    assert dict(info) == {"loss": 1, "scores": 2}


def test_what_is_set_wins_and_all_else_stays():
    before = Network(
        1, 2, 3, records=(Start(4), Measured(5)), info=TrainingInfo({"a": 6, "b": 7}, failed_at=8)
    )
    made = before.then(
        Network(mask=20, records=(Start(40),), info=TrainingInfo({"b": 70, "c": 80}, dead_start=90))
    )
    assert (made.params, made.mask, made.state) == (1, 20, 3)
    assert (made[Start], made[Measured]) == (Start(40), Measured(5))
    assert dict(made.info) == {"a": 6, "b": 70, "c": 80}
    assert (made.info.failed_at, made.info.dead_start) == (8, 90)
    assert same(before.then(Network()), before) and same(Network().then(before), before)


def test_paths_name_the_fields():
    network = Network({"w": 1}, records=(Start({"w": 2}),), info=TrainingInfo({"loss": 3}, failed_at=4))
    assert [*jaxarch.named_leaves(network)] == [
        "params/w",
        "records/0/params/w",
        "info/arrays/loss",
        "info/failed_at",
    ]


def test_a_network_is_pickled_and_mapped_as_it_is():
    network = Network(jnp.ones((2, 3)), records=(Measured(jnp.ones(2), "a"), Pair(jnp.ones(2), jnp.ones(2))))
    assert same(pickle.loads(pickle.dumps(network)), network)
    assert same(jax.jit(jax.vmap(lambda one: one))(network), network)
    assert network.of_run(0)[Measured].name == "a"
    assert network.of_run(1)[Pair].other.shape == ()


@pytest.mark.long
def test_a_users_record_goes_through_stages_and_runs():
    retrain = jaxarch.retrain("rewind", nonnegative=False)
    strategy = jaxarch.chain(jaxarch.search.dense(), MEASURE, jaxarch.prune(0.5), retrain, READ)
    network, _ = jaxarch.over_seeds(strategy, keys(), problem())
    assert network[Measured].sizes.shape == (RUNS, 2)
    assert same(network.info["seen"], network[Measured].sizes)
    assert network[Measured].sizes.tolist() == [[32, 32]] * RUNS
    alone = jax.eval_shape(strategy, keys()[1], problem())
    assert jax.tree.structure(alone) == jax.tree.structure(network.of_run(1))
    again, _ = jaxarch.over_seeds(READ, keys(), problem(), network=network)
    assert same(again[Measured], network[Measured]) and same(again[Start], network[Start])


def test_a_stage_that_reads_a_record_is_refused_without_it():
    with pytest.raises(
        ArgumentError, match="read: it needs a network with `Measured`; put a stage that sets it"
    ):
        jaxarch.over_seeds(jaxarch.chain(jaxarch.search.dense(), READ), keys(), problem())


@pytest.mark.long
def test_a_users_record_goes_through_a_checkpoint(tmp_path):
    strategy = jaxarch.chain(jaxarch.search.dense(), MEASURE, jaxarch.retrain("warm"))
    whole, _ = jaxarch.over_seeds(strategy, keys(), problem())

    ends = []

    def stop(end):
        ends.append(end.step)
        if ends == [2, 4, 2, 4]:  # the second training, which the record came to
            raise KeyboardInterrupt

    options = {"chunk": 2, "checkpoint": jaxarch.Checkpoints(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        jaxarch.over_seeds(strategy, keys(), problem(), callbacks=(stop,), **options)
    resumed, _ = jaxarch.over_seeds(strategy, keys(), problem(), **options)
    assert same(resumed, whole)


@pytest.mark.parametrize("format", ["npz", "orbax"])
def test_a_file_of_another_structure_may_be_of_an_earlier_version(format, tmp_path):
    jaxarch.Checkpoints(tmp_path, format=format).save("fit", {"failed_at": jnp.ones(2)}, last=True)
    message = "it was written for another structure, or by an earlier version of jaxarch"
    with pytest.raises(ArgumentError, match=message) as raised:
        jaxarch.Checkpoints(tmp_path, format=format).load("fit", like={"info": {"failed_at": jnp.ones(2)}})
    assert "\n" not in str(raised.value)
