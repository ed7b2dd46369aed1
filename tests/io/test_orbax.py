"""Orbax as what keeps checkpoints, and beside masks in one's own loop: resumed to the same bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import OTHER_STRUCTURES, Interrupted, interrupt_at, keys, same

import jaxarch
from jaxarch import ArgumentError
from jaxarch.search import dense

STATE = {
    "half": jnp.asarray([1.5, -2.25], jnp.bfloat16),
    "nested": [np.arange(3), {"deep": jnp.float32(1)}],
    "key": jax.random.split(jax.random.key(3), 2),
    "none": None,
}


def plain(tree):
    return tree | {"key": jax.random.key_data(tree["key"])}


def orbax(folder):
    return jaxarch.Checkpoints(folder, format="orbax")


@functools.cache
def learning():
    def init(key):
        return {"kernel": jax.random.normal(key, (3, 2))}

    def apply(params, x):
        return x @ params["kernel"]

    data = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)
    return jaxarch.supervised(
        (init, apply), data, loss=optax.squared_error, optimizer=optax.adam(0.1), steps=12
    )


def learned(**options):
    return jaxarch.over_seeds(dense(nonnegative=False), keys(), learning(), chunk=4, **options)[0]


@pytest.fixture(scope="module")
def ocp():
    """Orbax, which takes its time to load."""
    import orbax.checkpoint

    return orbax.checkpoint


@pytest.mark.long
def test_a_fit_goes_on_from_orbax_to_the_same_bits(tmp_path):
    with pytest.raises(Interrupted):
        learned(checkpoint=orbax(tmp_path), progress=interrupt_at(8))
    steps = []
    resumed = learned(checkpoint=orbax(tmp_path), progress=lambda told: steps.append(told.step))
    assert steps == [8, 12]
    assert same(resumed, learned())


@pytest.mark.long
def test_a_fit_is_not_begun_anew_beside_its_checkpoints_of_the_other_format(tmp_path):
    with pytest.raises(Interrupted):
        learned(checkpoint=jaxarch.Checkpoints(tmp_path), progress=interrupt_at(4))
    with pytest.raises(
        ArgumentError, match=r"^format: .* was saved as 'npz', got 'orbax'; pass format='npz'"
    ):
        learned(checkpoint=orbax(tmp_path))


@pytest.mark.parametrize("format", ["zarr", None, 3])
def test_an_unknown_format_is_refused(format, tmp_path):
    with pytest.raises(ArgumentError, match=r"^format: expected 'npz' or 'orbax', got "):
        jaxarch.Checkpoints(tmp_path, format=format)


def test_a_state_comes_back_as_it_was_whatever_its_dtypes(tmp_path):
    checkpoints = orbax(tmp_path)
    assert checkpoints.load("state", STATE) is None
    checkpoints.save("state", STATE | {"half": jnp.zeros(2, jnp.bfloat16)})
    checkpoints.save("state", STATE)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), STATE)
    loaded = checkpoints.load("state", STATE)
    assert same(plain(loaded), plain(STATE))
    assert same(plain(checkpoints.load("state", shapes | {"key": STATE["key"]})), plain(STATE))
    assert jax.tree.map(lambda leaf: leaf.dtype, loaded) == jax.tree.map(lambda leaf: leaf.dtype, STATE)


def test_a_state_goes_to_the_devices_of_what_it_is_loaded_for(tmp_path):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    state = {"w": jax.device_put(jnp.arange(8.0).reshape(4, 2), split)}
    orbax(tmp_path).save("state", state)
    loaded = orbax(tmp_path).load("state", jax.tree.map(jnp.zeros_like, state))
    assert loaded["w"].sharding.is_equivalent_to(split, 2)
    assert same(loaded, state)


def test_orbax_s_own_manager_reads_a_state_by_path(ocp, tmp_path):
    orbax(tmp_path).save("state", STATE)
    (folder,) = tmp_path.glob("*.orbax")
    with ocp.CheckpointManager(folder, item_handlers=ocp.StandardCheckpointHandler()) as manager:
        state = manager.restore(manager.latest_step())
    assert state.keys() == {"half", "nested/0", "nested/1/deep", "key"}
    assert state["nested/0"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("like", "message"), OTHER_STRUCTURES)
def test_another_structure_is_refused_by_path(tmp_path, like, message):
    orbax(tmp_path).save("state", {"w": jnp.ones((2, 3))})
    with pytest.raises(ArgumentError, match=f"^folder: .*{message}"):
        orbax(tmp_path).load("state", like)


def test_what_a_run_that_was_killed_left_is_not_read_and_goes(tmp_path):
    orbax(tmp_path).save("state", {"w": jnp.ones(2)})
    (folder,) = tmp_path.glob("*.orbax")
    (folder / "1.orbax-checkpoint-tmp").mkdir()
    assert orbax(tmp_path).load("state", {"w": jnp.zeros(2)})["w"].sum() == 2
    orbax(tmp_path).save("state", {"w": jnp.zeros(2)})
    assert [place.name for place in folder.iterdir()] == ["1"]


@pytest.mark.parametrize("lost", ["_METADATA", "manifest.ocdbt", "**/d/*"])
def test_a_damaged_folder_is_refused_in_one_line(lost, tmp_path):
    orbax(tmp_path).save("state", {"w": jnp.ones(2)})
    for path in tmp_path.glob(f"*.orbax/0/default/{lost}"):
        path.write_bytes(b"lost")
    with pytest.raises(ArgumentError, match=r"^folder: Orbax cannot read .*; use a fresh folder$") as error:
        orbax(tmp_path).load("state", {"w": jnp.ones(2)})
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 600


def test_what_orbax_cannot_keep_is_refused_in_one_line(tmp_path):
    with pytest.raises(ArgumentError, match=r"^folder: Orbax cannot write .* zero size") as error:
        orbax(tmp_path).save("state", {"w": jnp.zeros((0, 3))})
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(ArgumentError, match=r"^tree: two leaves have the same path"):
        orbax(tmp_path).save("state", {"a/b": jnp.ones(2), "a": {"b": jnp.zeros(2)}})


@pytest.mark.long
def test_a_mask_that_is_held_goes_on_from_orbax_in_one_s_own_loop_to_the_same_bits(ocp, tmp_path):
    key = jax.random.key(0)
    params = {"kernel": jax.random.normal(key, (6, 4)), "bias": jnp.zeros(4)}
    mask = jaxarch.masks.keep(jaxarch.saliency.magnitude(params), 0.25)
    tx = jaxarch.optim.hold(mask, optax.adamw(1e-2))
    params = jaxarch.masks.apply_mask(mask, params)

    @jax.jit
    def step(params, state, index):
        updates, state = tx.update(jax.tree.map(lambda leaf: jnp.cos(leaf + index), params), state, params)
        return optax.apply_updates(params, updates), state

    def train(params, state, steps):
        for index in steps:
            params, state = step(params, state, index)
        return params, state

    start = tx.init(params)
    whole = train(params, start, range(6))
    half = train(params, start, range(3))
    saved = {"params": half[0], "optimizer": half[1], "mask": mask}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", saved)
        checkpointer.wait_until_finished()
        like = jax.eval_shape(lambda: {"params": params, "optimizer": start, "mask": mask})
        again = checkpointer.restore(tmp_path / "state", like)
    assert jax.tree.structure(again) == jax.tree.structure(saved)
    assert same(again["mask"], mask)
    assert same(train(again["params"], again["optimizer"], range(3, 6)), whole)
    jaxarch.optim.check_held(again["mask"], whole[0])
