"""Pytrees in npz files: what is kept, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import same

import jaxarch

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


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"w": jnp.ones((3, 2))}, r"leaf 'w' of .* has shape \(2, 3\), dtype float32; expected \(3, 2\)"),
        ({"w": jnp.ones((2, 3), jnp.bfloat16)}, "leaf 'w' .* expected .* bfloat16"),
        ({"v": jnp.ones((2, 3))}, "has no leaf 'v'"),
        ({"w": jnp.ones((2, 3)), "x": jnp.ones(1)}, "has no leaf 'x'"),
        ({}, "has an unknown leaf 'w'"),
    ],
)
def test_another_structure_is_refused_by_path(tmp_path, like, message):
    jaxarch.save_tree(tmp_path / "tree.npz", {"w": jnp.ones((2, 3))})
    with pytest.raises(ValueError, match=message):
        jaxarch.load_tree(tmp_path / "tree.npz", like)


def test_foreign_files_are_refused(tmp_path):
    np.savez(tmp_path / "foreign.npz", w=np.ones(2))
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    for name, message in (("foreign.npz", "was not written by save_tree"), ("broken.npz", "no readable npz")):
        with pytest.raises(ValueError, match=message):
            jaxarch.load_tree(tmp_path / name, {"w": np.ones(2)})
    with pytest.raises(ValueError, match="no such file"):
        jaxarch.load_tree(tmp_path / "absent.npz", {})


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
