"""Runs whose model is split over devices: partition rules, and the same numbers as on one device."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax.sharding import PartitionSpec as P
from places import TESTS

import jaxarch
from jaxarch import ArgumentError, fully_sharded
from jaxarch.run._partition import Partition

KEYS = jax.random.split(jax.random.key(0), 3)
X = jax.random.normal(jax.random.key(1), (32, 8))
Y = jnp.tanh(X @ jax.random.normal(jax.random.key(2), (8, 4)))
SEARCH = jaxarch.search.two_temperature(weights="initial", mean=2.0, std=1.0)


def init(key):
    first, second = jax.random.split(key)
    return {"hidden": jax.random.normal(first, (8, 16)) / 3, "head": jax.random.normal(second, (16, 4)) / 4}


def apply(params, x):
    return jnp.tanh(x @ params["hidden"]) @ params["head"]


def learned(model=(init, apply), batch_size=8, **options):
    return jaxarch.supervised(
        model,
        (X, Y),
        loss=lambda outputs, y: jnp.square(outputs - y).mean(-1),
        optimizer=optax.adam(1e-2),
        steps=20,
        batch_size=batch_size,
        **options,
    )


PROBLEM = learned()


def mesh_of(*axes, runs=1):
    """Two devices in a mesh: an axis of runs, and one of each name, the last of which has what is left."""
    sizes = (runs, *(1 for _ in axes[1:]), 2 // runs)
    return jax.make_mesh(sizes, ("runs", *axes))


def shards(tree):
    return {
        path: leaf.sharding.shard_shape(leaf.shape)[1:] for path, leaf in jaxarch.named_leaves(tree).items()
    }


def same_masks(first, second):
    pairs = zip(jax.tree.leaves(first.mask), jax.tree.leaves(second.mask), strict=True)
    return all(np.array_equal(*pair) for pair in pairs)


@pytest.fixture(scope="module")
def on_one():
    return jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, devices=jax.devices()[:1], chunk=10)[0]


@pytest.fixture(scope="module")
def sharded():
    options = {"mesh": mesh_of("data"), "partition": fully_sharded()}
    return jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, chunk=10, **options)[0]


@pytest.mark.long
def test_fully_sharded_runs_find_the_masks_of_one_device(on_one, sharded):
    assert same_masks(on_one, sharded)
    np.testing.assert_allclose(sharded.info["loss"], on_one.info["loss"], rtol=2e-6)


@pytest.mark.long
def test_each_device_holds_its_share_of_what_was_found(sharded):
    assert shards(sharded.params) == shards(sharded.mask) == {"hidden": (8, 8), "head": (8, 4)}


@pytest.mark.long
def test_patterns_of_paths_say_how_parameters_are_split(on_one):
    rules = {"hidden": P(None, "model"), "*": P("model")}
    found, _ = jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, mesh=mesh_of("model"), partition=rules, chunk=10)
    assert shards(found.params) == {"hidden": (8, 8), "head": (8, 4)}
    assert same_masks(on_one, found)


@pytest.mark.long
def test_a_mesh_of_runs_alone_gives_what_devices_give():
    mesh = jax.make_mesh((2,), ("runs",))
    over_a_mesh, _ = jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, mesh=mesh, chunk=10)
    over_devices, _ = jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, chunk=10)
    np.testing.assert_array_equal(over_a_mesh.info["loss"], over_devices.info["loss"])


@pytest.mark.long
def test_groups_of_runs_find_what_all_at_once_find(sharded):
    options = {"mesh": mesh_of("data"), "partition": fully_sharded(), "max_parallel_runs": 2}
    found, report = jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, chunk=10, **options)
    assert (report.width, shards(found.params)) == (2, shards(sharded.params))
    assert same_masks(found, sharded)


@pytest.mark.long
def test_later_stages_stay_split(sharded):
    options = {"mesh": mesh_of("data"), "partition": fully_sharded()}
    again = jaxarch.chain(jaxarch.retrain("cold", nonnegative=False))
    found, _ = jaxarch.over_seeds(again, KEYS, PROBLEM, network=sharded, chunk=10, **options)
    assert shards(found.params) == shards(sharded.params)
    assert same_masks(found, sharded)


@pytest.mark.long
def test_outputs_over_a_mesh_are_those_of_one_device(on_one, sharded):
    rows = jnp.arange(6)
    options = {"mesh": mesh_of("data"), "partition": fully_sharded()}
    one = jaxarch.evaluate(SEARCH, on_one, PROBLEM, rows)
    split = jaxarch.evaluate(SEARCH, sharded, PROBLEM, rows, **options)
    np.testing.assert_allclose(split, one, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_batches_of_a_stream_are_split_as_those_of_rows():
    batches = [(np.asarray(X[i : i + 8]), np.asarray(Y[i : i + 8])) for i in (0, 8, 16, 24)] * 5
    streamed = learned(batch_size=None, stream=batches)
    one, _ = jaxarch.over_seeds(SEARCH, KEYS, streamed, devices=jax.devices()[:1], chunk=10)
    options = {"mesh": mesh_of("data"), "partition": fully_sharded()}
    split, _ = jaxarch.over_seeds(SEARCH, KEYS, streamed, chunk=10, **options)
    assert same_masks(one, split)


@pytest.mark.long
def test_a_fit_goes_on_over_the_mesh_that_it_was_begun_on(tmp_path, sharded):
    def stop(progress):
        if progress.step == 10:
            raise KeyboardInterrupt

    options = {"mesh": mesh_of("data"), "partition": fully_sharded(), "chunk": 10}
    folder = jaxarch.Checkpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, checkpoint=folder, progress=stop, **options)
    found, _ = jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, checkpoint=folder, **options)
    np.testing.assert_array_equal(found.info["loss"], sharded.info["loss"])
    options |= {"mesh": mesh_of("data", runs=2)}
    with pytest.raises(
        ArgumentError, match=r"started on runs=1 data=2 \(.*\): cpu with 1 shares of the runs; on runs=2"
    ):
        jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, checkpoint=folder, **options)


class WithStatistics(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.head = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)

    def __call__(self, x):
        return self.head(jnp.tanh(self.norm(self.hidden(x))))


@pytest.mark.long
def test_what_goes_with_no_parameter_is_whole_from_chunk_to_chunk():
    problem = learned(WithStatistics)
    options = {"mesh": mesh_of("data"), "partition": fully_sharded(), "chunk": 5}
    found, _ = jaxarch.over_seeds(SEARCH, KEYS, problem, **options)
    one, _ = jaxarch.over_seeds(SEARCH, KEYS, problem, devices=jax.devices()[:1], chunk=5)
    np.testing.assert_allclose(found.info["loss"], one.info["loss"], rtol=1e-5)


@pytest.mark.long
def test_over_an_axis_of_one_device_nothing_is_split(on_one):
    mesh = jax.make_mesh((1, 1), ("runs", "data"), devices=jax.devices()[:1])
    found, _ = jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, mesh=mesh, partition=fully_sharded(), chunk=10)
    np.testing.assert_array_equal(found.info["loss"], on_one.info["loss"])


@pytest.mark.long
def test_a_fit_does_not_go_on_with_another_partition(tmp_path):
    options = {"mesh": mesh_of("data"), "chunk": 10, "checkpoint": jaxarch.Checkpoints(tmp_path)}
    jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, partition=fully_sharded(), **options)
    with pytest.raises(
        ArgumentError, match=r"^checkpoint: 'two_temperature' was started on runs=1 data=2 \("
    ):
        jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, partition={"hidden": P("data")}, **options)


def test_a_later_stage_s_batches_are_checked_before_the_first_stage():
    chain = jaxarch.chain(SEARCH, jaxarch.retrain("cold", nonnegative=False, batch_size=7))
    steps = []
    options = {"mesh": mesh_of("data"), "progress": lambda told: steps.append(told.step)}
    with pytest.raises(ArgumentError, match="batches of 7 examples are not a multiple of 2"):
        jaxarch.over_seeds(chain, KEYS, PROBLEM, **options)
    assert not steps


class Annotated(nnx.Module):
    def __init__(self, rngs):
        start = nnx.initializers.lecun_normal()
        self.hidden = nnx.Linear(8, 16, kernel_init=nnx.with_partitioning(start, (None, "model")), rngs=rngs)
        self.head = nnx.Linear(16, 4, kernel_init=nnx.with_partitioning(start, ("model", None)), rngs=rngs)

    def __call__(self, x):
        return self.head(jnp.tanh(self.hidden(x)))


class AnnotatedLinen(linen.Module):
    @linen.compact
    def __call__(self, x):
        start = linen.initializers.lecun_normal()
        x = linen.Dense(16, kernel_init=linen.with_partitioning(start, (None, "model")), name="hidden")(x)
        start = linen.with_partitioning(start, ("model", None))
        return linen.Dense(4, kernel_init=start, name="head")(jnp.tanh(x))


@pytest.mark.long
@pytest.mark.parametrize("model", [Annotated, AnnotatedLinen()], ids=["NNX", "Linen"])
def test_a_model_says_itself_how_its_parameters_are_split(model):
    found, _ = jaxarch.over_seeds(SEARCH, KEYS, learned(model), mesh=mesh_of("model"), chunk=10)
    expected = {"hidden/kernel": (8, 8), "hidden/bias": (16,), "head/kernel": (8, 4), "head/bias": (4,)}
    assert shards(found.params) == expected


@pytest.mark.long
def test_needed_memory_counts_what_is_split_by_shares():
    one = jaxarch.needed_memory(SEARCH, KEYS, PROBLEM, devices=jax.devices()[:1], chunk=10)
    options = {"mesh": mesh_of("data"), "partition": fully_sharded(), "chunk": 10}
    two = jaxarch.needed_memory(SEARCH, KEYS, PROBLEM, **options)
    assert list(one) == list(two) == ["two_temperature"]
    assert two["two_temperature"].carry < 0.6 * one["two_temperature"].carry


def test_what_ends_with_the_path_of_a_parameter_and_has_its_shape_is_split_as_it():
    partition = Partition((("kernel", (4, 2), P("model")), ("head/kernel", (4, 2), P(None, "model"))))
    tree = {"mu": {"kernel": 0, "head": {"kernel": 0}}, "count": 0, "other": {"kernel": 0}}
    specs = jax.tree_util.tree_map_with_path(
        lambda path, leaf: partition.spec(path, (3,) if "other" in str(path) else (4, 2)), tree
    )
    assert specs["mu"] == {"kernel": P("model"), "head": {"kernel": P(None, "model")}}
    assert specs["count"] == specs["other"]["kernel"] == P()


@pytest.mark.long
def test_parameters_that_are_one_bare_array_are_split():
    bare = learned((lambda key: jax.random.normal(key, (8, 4)) / 3, lambda params, x: x @ params))
    options = {"mesh": mesh_of("model"), "partition": fully_sharded("model"), "chunk": 10}
    found, _ = jaxarch.over_seeds(SEARCH, KEYS, bare, **options)
    assert shards(found.params) == shards(found.mask) == {"": (4, 4)}


def test_fully_sharded_splits_the_largest_dimension_that_the_axis_divides():
    def spec(*shape, **options):
        leaf = jax.ShapeDtypeStruct(shape, jnp.float32)
        return fully_sharded("data", **options)("kernel", leaf, {"runs": 1, "data": 4})

    assert spec(8, 16) == P(None, "data")
    assert spec(8, 15) == P("data")
    assert spec(7, 15) == P()
    assert spec(8, 16, least=1000) == P()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mesh": 2}, r"^mesh: expected a mesh with an axis 'runs'"),
        ({"mesh": lambda: jax.make_mesh((2,), ("data",))}, r"^mesh: expected a mesh with an axis 'runs'"),
        ({"mesh": lambda: mesh_of("data"), "devices": jax.devices()}, r"^mesh: .* leave out `devices`$"),
        (
            {"mesh": lambda: mesh_of("data"), "loop": "step"},
            r"^loop: only 'scan' works with a mesh, got 'step'",
        ),
        ({"partition": fully_sharded()}, r"^partition: it needs a mesh to split over; give `mesh`"),
        ({"mesh": lambda: mesh_of("model")}, r"^partition: nothing is split over the mesh's axis 'model'"),
        (
            {"mesh": lambda: mesh_of("model"), "partition": fully_sharded()},
            r"^partition: the mesh has no axis 'data'; known: runs, model$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": {"hiden": P("model")}},
            r"^partition: no leaf is selected by 'hiden'; the leaves are: head, hidden$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": {"hidden": P("modle")}},
            r"^partition: cannot split 'hidden' over 'modle'; possible axes: model$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": {"hidden": P("runs")}},
            r"^partition: cannot split 'hidden' over 'runs'; possible axes: model$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": {"hidden": P(None, None, "model")}},
            r"^partition: 'hidden' has shape \(8, 16\), but .* has more dimensions$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": {"hidden": P("model", "model")}},
            r"^partition: .* splits 'hidden' twice over one axis; name it once$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": {"hidden": "model"}},
            r"^partition: expected a PartitionSpec for 'hidden', got 'model'$",
        ),
        (
            {"mesh": lambda: mesh_of("model"), "partition": 2},
            r"^partition: expected a dict from path patterns to PartitionSpecs",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(options, message):
    given = {
        name: value() if name == "mesh" and callable(value) else value for name, value in options.items()
    }
    with pytest.raises(ArgumentError, match=message):
        jaxarch.over_seeds(SEARCH, KEYS, PROBLEM, **given)


@pytest.fixture(scope="module")
def gpt():
    """What gpt_over_eight_devices.py printed."""
    script = TESTS / "gpt_over_eight_devices.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_of_a_gpt_each_of_8_devices_takes_an_eighth_and_little_more(gpt):
    eighth = gpt["bytes"]["one"] / 8
    assert eighth < gpt["bytes"]["eight"] <= 1.3 * eighth


@pytest.mark.long
def test_a_gpt_over_8_devices_has_the_mask_of_one_device(gpt):
    assert gpt["connections"] > 500_000
    assert gpt["differ"] == 0


def test_a_dimension_that_the_axis_does_not_divide_is_refused():
    odd = learned(
        (lambda key: {"w": jnp.zeros((8, 4)), "bias": jnp.zeros(3)}, lambda params, x: x @ params["w"])
    )
    with pytest.raises(ArgumentError, match=r"^partition: 'bias' of shape \(3,\) .* 2 does not divide 3$"):
        jaxarch.over_seeds(SEARCH, KEYS, odd, mesh=mesh_of("model"), partition={"*": P("model")})


def test_batches_that_the_axis_does_not_divide_are_refused():
    message = r"^mesh: its axis 'data' splits batches over 2 devices, but batches of 7 examples are not"
    with pytest.raises(ArgumentError, match=message):
        jaxarch.over_seeds(SEARCH, KEYS, learned(batch_size=7), mesh=mesh_of("data"))


def test_what_is_fitted_on_the_host_is_refused():
    classes = jaxarch.supervised(
        (lambda key: {"w": jnp.zeros((8, 2))}, lambda params, x: x @ params["w"]),
        (X, (Y[:, 0] > 0).astype(int)),
        loss=optax.softmax_cross_entropy_with_integer_labels,
        optimizer=optax.sgd(0.1),
        steps=1,
    )
    with pytest.raises(ArgumentError, match=r"^mesh: logistic regression is fitted on the host"):
        jaxarch.over_seeds(
            jaxarch.search.logistic_regression(), KEYS, classes, mesh=jax.make_mesh((2,), ("runs",))
        )
