"""Pytrees in npz files: what is kept, what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from small import OTHER_STRUCTURES, same

import jaxarch
from jaxarch.io import digest
from jaxarch.io._npz import LIMIT

TREE = {
    "mask": jnp.asarray([[True, False]]),
    "half": jnp.asarray([1.5, -2.25], jnp.bfloat16),
    "nested": [jnp.arange(3), {"deep": jnp.float32(1)}],
    "key": jax.random.split(jax.random.key(3), 2),
    "none": None,
}


def plain(tree):
    return tree | {"key": jax.random.key_data(tree["key"])}


def test_a_tree_comes_back_as_it_was_whatever_its_dtypes(tmp_path):
    jaxarch.save_tree(tmp_path / "tree.npz", TREE)
    loaded = jaxarch.load_tree(tmp_path / "tree.npz", TREE)
    assert same(plain(loaded), plain(TREE))
    assert loaded["half"].dtype == jnp.bfloat16
    assert loaded["none"] is None
    assert list(tmp_path.iterdir()) == [tmp_path / "tree.npz"]


def test_other_programs_can_read_the_arrays_by_path(tmp_path):
    jaxarch.save_tree(tmp_path / "tree.npz", TREE)
    with np.load(tmp_path / "tree.npz", allow_pickle=False) as file:
        assert file["nested/1/deep"] == 1
        assert file["mask"].dtype == bool


def test_shapes_suffice_to_load(tmp_path):
    jaxarch.save_tree(tmp_path / "tree.npz", {"w": jnp.ones((2, 3))})
    like = jax.eval_shape(lambda: {"w": jnp.zeros((2, 3))})
    assert same(jaxarch.load_tree(tmp_path / "tree.npz", like), {"w": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize(("like", "message"), OTHER_STRUCTURES)
def test_another_structure_is_refused_by_path(tmp_path, like, message):
    jaxarch.save_tree(tmp_path / "tree.npz", {"w": jnp.ones((2, 3))})
    with pytest.raises(ValueError, match=message):
        jaxarch.load_tree(tmp_path / "tree.npz", like)


def test_foreign_files_are_refused(tmp_path):
    np.savez(tmp_path / "foreign.npz", w=np.ones(2))
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    for name, message in (
        ("foreign.npz", "was not written by save_tree"),
        ("broken.npz", "not a readable npz"),
    ):
        with pytest.raises(ValueError, match=message):
            jaxarch.load_tree(tmp_path / name, {"w": np.ones(2)})
    with pytest.raises(ValueError, match="no such file"):
        jaxarch.load_tree(tmp_path / "absent.npz", {})


def tampered(path, **changes):
    """A file of `save_tree`'s, some arrays in it replaced."""
    jaxarch.save_tree(path, {"w": jnp.ones((2, 3), jnp.bfloat16), "key": jax.random.key(0)})
    with np.load(path) as file:
        arrays = dict(file) | changes
    np.savez(path, **arrays)
    return path


LIKE = {"w": jnp.ones((2, 3), jnp.bfloat16), "key": jax.random.key(0)}


def kinds(**changes):
    return json.dumps({"w": "bfloat16", "key": "key:threefry2x32"} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"__leaves__": "[1, 2]"},
        {"__leaves__": '"w"'},
        {"__leaves__": "{"},
        {"__leaves__": "[" * 100_000},
        {"__leaves__": '{"w": 3, "key": null}'},
        {"__leaves__": '{"w": "bfloat16"}'},
        {"__leaves__": kinds(w="float33")},
        {"__leaves__": kinds(w="O")},
        {"__leaves__": kinds(w="float32")},
        {"__leaves__": kinds(w="key:threefry2x32")},
        {"__leaves__": kinds(key="key:nothing")},
        {"__leaves__": kinds(key="key:")},
        {"__leaves__": kinds(key="uint32")},
        {"__leaves__": kinds(w="x" * 10_000)},
        {"__leaves__": np.arange(3)},
        {"w": np.ones((2, 3), np.float32)},
        {"w": np.ones((3, 2), np.uint16)},
        {"w": np.ones((2, 3), np.uint8)},
        {"key": np.ones(3, np.uint32)},
        {"key": np.ones(2, np.uint64)},
        {"key": np.ones((), np.uint32)},
        {"more": np.ones(2)},
    ],
)
def test_a_file_that_was_tampered_with_is_refused_in_one_line(changes, tmp_path):
    jaxarch.load_tree(tampered(tmp_path / "tree.npz", __leaves__=kinds()), LIKE)
    with pytest.raises(jaxarch.ArgumentError, match=r"^path: ") as error:
        jaxarch.load_tree(tampered(tmp_path / "tree.npz", **changes), LIKE)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 600


def test_numbers_in_another_byte_order_are_not_taken_for_others(tmp_path):
    jaxarch.save_tree(tmp_path / "tree.npz", {"w": jnp.arange(3.0)})
    with np.load(tmp_path / "tree.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "tree.npz", **arrays | {"w": arrays["w"].astype(">f4")})
    with pytest.raises(ValueError, match=r"leaf 'w' .* is damaged"):
        jaxarch.load_tree(tmp_path / "tree.npz", {"w": jnp.zeros(3)})


def test_a_tree_as_large_as_what_it_replaces_is_read_whatever_the_limit_for_strangers(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT, "1000")
    jaxarch.save_tree(tmp_path / "tree.npz", {"w": jnp.ones(1000)})
    assert jaxarch.load_tree(tmp_path / "tree.npz", {"w": jnp.zeros(1000)})["w"].sum() == 1000


def test_arrays_of_the_same_bytes_but_another_shape_or_dtype_have_another_digest():
    arrays = np.zeros((2, 3)), np.zeros((3, 2)), np.zeros((2, 3), np.int64)
    assert len({digest(array) for array in arrays}) == 3


@pytest.mark.parametrize("every", [np.nan, np.inf, -1, "often"])
def test_checkpoints_are_spaced_by_a_time(every, tmp_path):
    with pytest.raises(ValueError, match=r"^every: expected a finite number of at least 0"):
        jaxarch.Checkpoints(tmp_path, every=every)


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="path: cannot write"):
        jaxarch.save_tree(tmp_path / "file" / "tree.npz", TREE)
    with pytest.raises(ValueError, match="folder: cannot use"):
        jaxarch.Checkpoints(tmp_path / "file" / "folder")


def test_checkpoints_may_be_spaced_in_time(tmp_path):
    checkpoints = jaxarch.Checkpoints(tmp_path, every=3600)
    for value in (1, 2):
        checkpoints.save("state", {"w": jnp.full(2, value)})
    assert checkpoints.load("state", {"w": jnp.zeros(2, int)})["w"].tolist() == [1, 1]
    assert checkpoints.load("other", {}) is None
    checkpoints.save("state", {"w": jnp.full(2, 3)}, last=True)
    assert checkpoints.load("state", {"w": jnp.zeros(2, int)})["w"].tolist() == [3, 3]


def model(hidden=3, name="hidden"):
    def init(key):
        return {name: {"kernel": jnp.ones((2, hidden)), "bias": jnp.zeros(hidden)}}

    def apply(params, x):
        return x @ params[name]["kernel"] + params[name]["bias"][None]

    data = np.ones((4, 2), np.float32), np.zeros((4, hidden), np.float32)
    return jaxarch.supervised(
        (init, apply), data, loss=optax.squared_error, optimizer=optax.sgd(0.1), steps=1
    )


def mask_of(learning, runs=()):
    selected = jaxarch.select(jax.eval_shape(learning.init, jax.random.key(0))[0])
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(draw.random((*runs, *leaf.shape)) < 0.5), selected)


@pytest.mark.parametrize("runs", [(), (5,)])
def test_a_mask_comes_back_for_the_model_that_it_is_of(tmp_path, runs):
    mask = mask_of(model(), runs)
    jaxarch.save_mask(tmp_path / "mask.npz", mask)
    loaded = jaxarch.load_mask(tmp_path / "mask.npz", model())
    assert same(loaded, mask)
    assert loaded["hidden"]["bias"] is None


def test_a_mask_is_read_for_parameters_without_a_problem(tmp_path):
    params = {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}
    mask = {"kernel": jnp.arange(12).reshape(4, 3) % 2 == 0, "bias": None}
    jaxarch.save_mask(tmp_path / "mask.npz", mask)
    assert same(jaxarch.load_mask(tmp_path / "mask.npz", like=params), mask)
    shapes = jax.eval_shape(lambda: params)
    assert same(jaxarch.load_mask(tmp_path / "mask.npz", like=shapes), mask)
    state = nnx.state(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), nnx.Param)
    loaded = jaxarch.load_mask(tmp_path / "mask.npz", like=state)
    assert same(jaxarch.named_leaves(loaded), {"kernel": mask["kernel"]})


def test_a_mask_is_read_to_where_the_parameters_are(tmp_path):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    jaxarch.save_mask(tmp_path / "mask.npz", {"kernel": jnp.ones((4, 3), bool)})
    like = {"kernel": jax.device_put(jnp.ones((4, 3)), split)}
    assert jaxarch.load_mask(tmp_path / "mask.npz", like=like)["kernel"].sharding.is_equivalent_to(split, 2)


@pytest.mark.long
def test_a_mask_from_a_file_is_an_architecture_to_go_on_from(tmp_path):
    learning, keys = model(), jax.random.split(jax.random.key(0), 5)
    mask = mask_of(learning, (5,))
    jaxarch.save_mask(tmp_path / "mask.npz", mask)
    bare = jaxarch.architecture(jaxarch.load_mask(tmp_path / "mask.npz", learning))
    again = jaxarch.retrain("cold", nonnegative=False)
    network, _ = jaxarch.over_seeds(again, keys, learning, network=bare, dead_start="ignore")
    assert same(network.mask, mask)
    assert same(network.params["hidden"]["kernel"] != 0, mask["hidden"]["kernel"])


@pytest.mark.parametrize(
    ("learning", "message"),
    [
        (
            model(name="body"),
            "masks 'hidden/kernel', which `like` does not have; its leaves are: body/bias, body/kernel",
        ),
        (model(hidden=4), r"leaf 'hidden/kernel' of .* has shape \(2, 3\), dtype bool; expected .* \(2, 4\)"),
    ],
)
def test_a_mask_of_another_model_is_refused_with_the_leaf_s_path(tmp_path, learning, message):
    jaxarch.save_mask(tmp_path / "mask.npz", mask_of(model()))
    with pytest.raises(ValueError, match=message):
        jaxarch.load_mask(tmp_path / "mask.npz", learning)


def test_a_mask_is_of_booleans(tmp_path):
    with pytest.raises(ValueError, match="mask: leaf 'w' has dtype float32; expected booleans"):
        jaxarch.save_mask(tmp_path / "mask.npz", {"w": jnp.ones(2)})
    jaxarch.save_tree(tmp_path / "weights.npz", {"hidden": {"kernel": jnp.ones((2, 3))}})
    with pytest.raises(ValueError, match="dtype float32; expected booleans"):
        jaxarch.load_mask(tmp_path / "weights.npz", model())


def test_a_mask_is_loaded_for_parameters_beside_leaves_of_any_kind(tmp_path):
    jaxarch.save_mask(tmp_path / "mask.npz", {"kernel": np.array([True, False])})
    params = {"kernel": np.ones(2, np.float32), "count": np.arange(3)}
    assert jaxarch.load_mask(tmp_path / "mask.npz", like=params)["count"] is None
