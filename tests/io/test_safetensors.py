"""Pytrees and masks in safetensors files: what is kept, who else reads them, what is refused in one line."""

import errno
import importlib.util
import json
import os
import struct
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from small import OTHER_STRUCTURES, same

import jaxarch
from jaxarch import ArgumentError
from jaxarch.io import _safetensors_files as safetensors_files
from jaxarch.io._npz import LIMIT
from jaxarch.io._safetensors_files import read_safetensors

pytest.importorskip("safetensors")

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32"]
TREE = {
    "dtypes": {dtype: jnp.asarray([[0, 1]], dtype) for dtype in DTYPES},
    "narrow": jnp.asarray([1.5, -2.0], jnp.float8_e4m3fn),
    "nested": [jnp.arange(3), {"deep": jnp.float32(1)}],
    "empty": jnp.zeros((3, 0)),
    "key": jax.random.split(jax.random.key(3), 2),
    "none": None,
}
MASK = {"hidden": {"kernel": jnp.arange(12).reshape(4, 3) % 2 == 0, "bias": None}}
PARAMS = {"hidden": {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}}


def plain(tree):
    return tree | {"key": jax.random.key_data(tree["key"])}


def test_a_tree_comes_back_as_it_was_whatever_its_dtypes(tmp_path):
    jaxarch.save_tree(tmp_path / "tree.safetensors", TREE)
    loaded = jaxarch.load_tree(tmp_path / "tree.safetensors", like=TREE)
    assert same(plain(loaded), plain(TREE))
    assert jax.tree.map(lambda leaf: leaf.dtype, loaded) == jax.tree.map(lambda leaf: leaf.dtype, TREE)
    assert list(tmp_path.iterdir()) == [tmp_path / "tree.safetensors"]


def test_a_transposed_array_is_kept_as_it_is_seen(tmp_path):
    tree = {"w": np.arange(6.0).reshape(2, 3).T, "x": np.arange(4)[::2]}
    jaxarch.save_tree(tmp_path / "tree.safetensors", tree)
    assert same(jaxarch.load_tree(tmp_path / "tree.safetensors", tree), tree)


@pytest.mark.parametrize("runs", [(), (5,)])
def test_a_mask_comes_back_for_the_parameters_that_it_is_of(tmp_path, runs):
    mask = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*runs, *leaf.shape)), MASK)
    jaxarch.save_mask(tmp_path / "mask.safetensors", mask)
    loaded = jaxarch.load_mask(tmp_path / "mask.safetensors", like=PARAMS)
    assert same(loaded, mask)
    assert loaded["hidden"]["bias"] is None


def test_a_mask_is_read_for_an_nnx_state(tmp_path):
    jaxarch.save_mask(tmp_path / "mask.safetensors", {"kernel": MASK["hidden"]["kernel"]})
    state = nnx.state(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), nnx.Param)
    loaded = jaxarch.load_mask(tmp_path / "mask.safetensors", like=state)
    assert same(jaxarch.named_leaves(loaded), {"kernel": MASK["hidden"]["kernel"]})


@pytest.mark.parametrize("name", ["mask.npz", "mask", "mask.safetensors.npz", "safetensors"])
def test_every_other_suffix_means_npz(name, tmp_path):
    jaxarch.save_mask(tmp_path / name, MASK)
    with np.load(tmp_path / name) as file:
        assert set(file.files) == {"hidden/kernel", "__leaves__"}


def test_whoever_may_read_npz_may_read_it(tmp_path):
    for name in ("mask.npz", "mask.safetensors"):
        jaxarch.save_mask(tmp_path / name, MASK)
    assert (tmp_path / "mask.npz").stat().st_mode == (tmp_path / "mask.safetensors").stat().st_mode


def metadata(path):
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return file.metadata()


def test_a_file_says_what_it_is(tmp_path):
    jaxarch.save_mask(tmp_path / "mask.safetensors", MASK)
    jaxarch.save_tree(tmp_path / "tree.safetensors", TREE)
    mask, tree = metadata(tmp_path / "mask.safetensors"), metadata(tmp_path / "tree.safetensors")
    assert (mask["format"], mask["version"], mask["content"]) == ("jaxarch", "1", "mask")
    assert "true where a connection is kept" in mask["about"]
    assert (tree["format"], tree["version"], tree["content"]) == ("jaxarch", "1", "parameters")
    assert json.loads(tree["raw"]) == {"narrow": "float8_e4m3fn", "key": "key:threefry2x32"}


TORCH = [pytest.param("torch", marks=pytest.mark.long)]
READERS = ["numpy", *(TORCH if importlib.util.find_spec("torch") else [])]


@pytest.mark.parametrize("library", READERS)
def test_other_libraries_read_it_by_path(library, tmp_path):
    theirs = importlib.import_module(f"safetensors.{library}")
    jaxarch.save_mask(tmp_path / "mask.safetensors", MASK)
    jaxarch.save_tree(tmp_path / "tree.safetensors", TREE)
    mask = theirs.load_file(tmp_path / "mask.safetensors")
    assert mask.keys() == {"hidden/kernel"}
    assert str(mask["hidden/kernel"].dtype).removeprefix("torch.") == "bool"
    assert np.array_equal(np.asarray(mask["hidden/kernel"]), MASK["hidden"]["kernel"])
    tree = theirs.load_file(tmp_path / "tree.safetensors")
    for dtype in DTYPES:
        leaf = tree[f"dtypes/{dtype}"]
        assert str(leaf.dtype).removeprefix("torch.") == dtype
        assert leaf.tolist() == [[0, 1]]
    assert tree["nested/1/deep"] == 1


@pytest.mark.parametrize("library", READERS)
def test_what_other_libraries_write_is_read(library, tmp_path):
    theirs = importlib.import_module(f"safetensors.{library}")
    for name, tree in (("mask", MASK), ("weights", PARAMS)):
        arrays = {path: np.asarray(leaf) for path, leaf in jaxarch.named_leaves(tree).items()}
        if library == "torch":
            arrays = {path: sys.modules["torch"].tensor(array) for path, array in arrays.items()}
        theirs.save_file(arrays, tmp_path / f"{name}.safetensors")
    assert same(jaxarch.load_mask(tmp_path / "mask.safetensors", like=PARAMS), MASK)
    assert same(jaxarch.load_tree(tmp_path / "weights.safetensors", like=PARAMS), PARAMS)


def refused(call, message):
    with pytest.raises(ArgumentError, match=message) as error:
        call()
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(("like", "message"), OTHER_STRUCTURES)
def test_another_structure_is_refused_by_path(tmp_path, like, message):
    jaxarch.save_tree(tmp_path / "tree.safetensors", {"w": jnp.ones((2, 3))})
    refused(lambda: jaxarch.load_tree(tmp_path / "tree.safetensors", like), f"^path: .*{message}")


def test_weights_are_no_mask(tmp_path):
    jaxarch.save_tree(tmp_path / "weights.safetensors", PARAMS)
    refused(
        lambda: jaxarch.load_mask(tmp_path / "weights.safetensors", like=PARAMS),
        "^path: leaf 'hidden/.*' .* dtype float32; expected booleans",
    )


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"w": np.ones(2, np.complex64)}, "^tree: leaf 'w' has dtype complex64, .* save it as npz"),
        ({"__metadata__": np.ones(2)}, "^tree: safetensors reserves the name '__metadata__'; rename"),
        ({"a/b": np.ones(2), "a": {"b": np.zeros(2)}}, "^tree: two leaves have the same path"),
    ],
)
def test_what_it_has_no_place_for_is_refused_and_no_file_is_left(tmp_path, tree, message):
    refused(lambda: jaxarch.save_tree(tmp_path / "tree.safetensors", tree), message)
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_refused_and_the_one_before_stays(tmp_path, monkeypatch):
    def full(partial, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "mask.safetensors"
    jaxarch.save_mask(path, MASK)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", full)
    refused(lambda: jaxarch.save_mask(path, MASK), r"^path: cannot write .* \(No space left on device\)")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    refused(lambda: jaxarch.save_mask(path / "mask.safetensors", MASK), "^path: cannot write")


@pytest.mark.parametrize("there", [True, False])
def test_without_the_library_the_extra_is_named(there, tmp_path, monkeypatch):
    path = tmp_path / "mask.safetensors"
    if there:
        jaxarch.save_mask(path, MASK)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    message = r"^path: .* needs safetensors, which is not installed; pip install 'jaxarch\[safetensors\]'$"
    for call in (
        lambda: jaxarch.save_mask(path, MASK),
        lambda: jaxarch.save_tree(path, PARAMS),
        lambda: jaxarch.load_mask(path, like=PARAMS),
        lambda: jaxarch.load_tree(path, like=PARAMS),
    ):
        refused(call, message)
    jaxarch.save_mask(tmp_path / "mask.npz", MASK)


def write(path, header, data=b"", length=None):
    """A file whose header says what it likes, of any length."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return path


def array(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


EIGHT = b"\0" * 8
HOSTILE = {
    "nothing": (b"", b"", 0),
    "a header longer than the file": ({}, b"", 10**6),
    "a header of absurd length": ({}, b"", 2**63),
    "a header that is no JSON": (b"{", b""),
    "a header that is no text": (b"\xff\xfe", b""),
    "a header of another kind": (b"[1]", b""),
    "a deep header": (b"[" * 100_000, b""),
    "overlapping arrays": ({"x": array([2], 0, 8), "y": array([1], 4, 8)}, EIGHT),
    "a hole between arrays": ({"x": array([1], 0, 4), "y": array([1], 8, 12)}, EIGHT + EIGHT[:4]),
    "a hole before the first": ({"x": array([1], 4, 8)}, EIGHT),
    "bytes after the last": ({"x": array([1], 0, 4)}, EIGHT),
    "offsets beyond the file": ({"x": array([4], 0, 16)}, EIGHT),
    "offsets backwards": ({"x": array([2], 8, 0)}, EIGHT),
    "no offsets": ({"x": {"dtype": "F32", "shape": [2]}}, EIGHT),
    "another size than the shape's": ({"x": array([3], 0, 8)}, EIGHT),
    "a shape beyond all numbers": ({"x": array([2**62, 8], 0, 8)}, EIGHT),
    "a shape beyond all numbers of nothing": ({"x": array([2**62, 0], 0, 0)}, b""),
    "a negative shape": ({"x": array([-2], 0, 8)}, EIGHT),
    "seventy axes": ({"x": array([1] * 70, 0, 4)}, EIGHT[:4]),
    "an unknown dtype": ({"x": array([2], 0, 8, "X32")}, EIGHT),
    "a dtype that NumPy has not": ({"x": array([8], 0, 8, "F8_E8M0")}, EIGHT),
    "bytes that are no booleans": ({"x": array([2], 0, 2, "BOOL")}, b"\1\2"),
    "metadata that are no texts": ({"__metadata__": {"format": 3}}, b""),
    "a later version": ({"__metadata__": {"format": "jaxarch", "version": "2"}}, b""),
    "raw numbers that are none": ({"__metadata__": {"format": "jaxarch", "version": "1", "raw": "[]"}}, b""),
    "deep raw numbers": ({"__metadata__": {"format": "jaxarch", "version": "1", "raw": "[" * 10**5}}, b""),
    "raw numbers of others": (
        {"__metadata__": {"format": "jaxarch", "version": "1", "raw": '{"y": "int4"}'}},
        b"",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_damaged_or_hostile_file_is_refused_in_one_line(what, tmp_path):
    path = write(tmp_path / "a.safetensors", *HOSTILE[what])
    refused(lambda: read_safetensors(path, "dataset"), "^dataset: .* is not a readable safetensors file")
    refused(lambda: jaxarch.load_tree(path, like=PARAMS), "^path: .* is not a readable safetensors file")
    refused(lambda: jaxarch.load_mask(path, like=PARAMS), "^path: .* is not a readable safetensors file")


@pytest.mark.parametrize("kind", ["float33", "O", "float32", "key:nothing", "key:", "x" * 10_000])
def test_raw_numbers_of_a_kind_that_they_cannot_be_are_refused_with_the_leaf_s_path(kind, tmp_path):
    said = {"format": "jaxarch", "version": "1", "raw": json.dumps({"x": kind})}
    path = write(tmp_path / "a.safetensors", {"__metadata__": said, "x": array([2], 0, 8, "I32")}, EIGHT)
    refused(lambda: jaxarch.load_tree(path, like={"x": jnp.zeros(2)}), "^path: leaf 'x' of .* is damaged")


@pytest.mark.parametrize("cut", [0, 7, 8, 30, -1])
def test_a_file_that_is_cut_off_is_refused(cut, tmp_path):
    path = tmp_path / "a.safetensors"
    jaxarch.save_mask(path, MASK)
    path.write_bytes(path.read_bytes()[:cut])
    refused(lambda: jaxarch.load_mask(path, like=PARAMS), "^path: .* is not a readable safetensors file")


@pytest.mark.parametrize("at", range(0, 600, 13))
def test_a_changed_byte_is_refused_in_one_line_or_changes_no_name_shape_or_dtype(at, tmp_path):
    path = tmp_path / "a.safetensors"
    jaxarch.save_tree(path, PARAMS)
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0xFF
    path.write_bytes(content)
    try:
        loaded = jaxarch.load_tree(path, like=PARAMS)
    except ArgumentError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert jax.tree.map(jnp.shape, loaded) == jax.tree.map(jnp.shape, PARAMS)


def test_a_header_that_would_fill_the_memory_is_refused_before_it_is_read(tmp_path):
    path = write(tmp_path / "a.safetensors", b" " * 2**23 + b"{}")
    refused(lambda: read_safetensors(path), "its header claims a size of 8 MiB")


def test_a_header_that_would_not_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_files, "HEADER_LIMIT", 1000)
    tree = {f"layer {index}": np.ones(1) for index in range(20)}
    refused(
        lambda: jaxarch.save_tree(tmp_path / "tree.safetensors", tree), "^tree: its names and shapes take"
    )
    assert not list(tmp_path.iterdir())


def test_a_file_larger_than_the_limit_is_refused_unless_it_is_as_large_as_what_it_replaces(
    tmp_path, monkeypatch
):
    monkeypatch.setenv(LIMIT, "1000")
    mask, params = {"w": jnp.ones(4000, bool)}, {"w": jnp.ones(4000)}
    jaxarch.save_mask(tmp_path / "mask.safetensors", mask)
    jaxarch.save_tree(tmp_path / "tree.safetensors", params)
    refused(
        lambda: jaxarch.load_mask(tmp_path / "mask.safetensors", like=params),
        r"it has 4.\d+ KiB, and the limit is 1000 bytes; set JAXARCH_NPZ_LIMIT=BYTES",
    )
    assert jaxarch.load_tree(tmp_path / "tree.safetensors", like=params)["w"].sum() == 4000


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("pipe", "folder"):
        refused(lambda name=name: read_safetensors(tmp_path / f"{name}.safetensors"), "a folder, a pipe or")
    refused(lambda: read_safetensors(tmp_path / "none.safetensors"), "^path: no such file")
    refused(lambda: read_safetensors(tmp_path / ("x" * 300 + ".safetensors")), "File name too long")
    refused(lambda: read_safetensors(3), "^path: expected a path, got 3")
