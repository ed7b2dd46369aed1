"""Files of arrays that anybody may have written: what is read, and what is refused in one line."""

import io
import os
import struct
import warnings
import zipfile

import numpy as np
import pytest

import jaxarch
from jaxarch.io import _npz as npz
from jaxarch.io import read_npz
from jaxarch.io._npz import LIMIT


def write(path, shape, data=b"", dtype="<f4", name="x.npy", compression=zipfile.ZIP_STORED, **changes):
    """An archive of one array whose header says what it likes."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}".encode()
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(name, content)
    patch(path, **changes)
    return path


def patch(path, flags=None, method=None):
    """Change the directory of an archive, and the head of its only member."""
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    for value, at, head in ((flags, directory + 8, 6), (method, directory + 10, 8)):
        if value is not None:
            content[at : at + 2] = content[head : head + 2] = struct.pack("<H", value)
    path.write_bytes(content)


def refused(path, message, **options):
    with pytest.raises(jaxarch.ArgumentError, match=message) as error:
        read_npz(path, "dataset", **options)
    assert str(error.value).startswith("dataset: ")
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 600


ARRAYS = {
    "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
    "transposed": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "booleans": np.array([True, False]),
    "text": np.array("some"),
    "complex": np.array([1 + 2j]),
    "empty": np.zeros((3, 0)),
    "single": np.array(1.5),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read_to_the_bit(save, tmp_path):
    save(tmp_path / "a.npz", **ARRAYS)
    read = read_npz(tmp_path / "a.npz")
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(read[name], array)
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("count", [10**12, 10**30])
def test_a_header_that_claims_more_numbers_than_there_are_is_refused(count, tmp_path):
    refused(write(tmp_path / "a.npz", f"({count},)", b"1234"), "'x.npy' in it claims")


@pytest.mark.parametrize("shape", [(10**30, 0), (-1,), (True,), (2,), (0,)])
def test_a_shape_that_no_array_of_the_file_has_is_refused(shape, tmp_path):
    refused(write(tmp_path / "a.npz", shape, b"1234"), "'x.npy' in it claims")


@pytest.mark.parametrize("header", ["()" * 2000, "(" * 4000, "(1,), **{}", "0"])
def test_a_header_that_is_no_header_is_refused(header, tmp_path):
    refused(write(tmp_path / "a.npz", header), "is not a readable npz file of plain arrays")


def test_an_encrypted_array_is_refused(tmp_path):
    refused(write(tmp_path / "a.npz", (1,), b"1234", flags=1), "'x.npy' in it is encrypted")


@pytest.mark.parametrize("method", [14, 99])
def test_another_compression_than_numpy_s_is_refused(method, tmp_path):
    refused(write(tmp_path / "a.npz", (1,), b"1234", method=method), f"compressed by method {method}")


@pytest.mark.parametrize("dtype", ["|O", "<M8[s]", "<m8[s]", "|V2", "|S4", [("a", "<f4")]])
def test_what_are_neither_numbers_nor_booleans_nor_text_is_refused(dtype, tmp_path):
    refused(write(tmp_path / "a.npz", (1,), b"12345678", dtype), "'x.npy' in it is of dtype")


def test_a_member_that_is_no_array_and_a_name_that_occurs_twice_are_refused(tmp_path):
    refused(write(tmp_path / "a.npz", (1,), b"1234", name="x.txt"), "'x.txt' in it is not an array")
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            array = io.BytesIO()
            np.save(array, np.ones(2))
            archive.writestr("x.npy", array.getvalue())
    refused(tmp_path / "b.npz", "two arrays with the same name")


def test_arrays_beyond_the_limit_are_refused_before_any_is_expanded(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(10**6), y=np.zeros(10))
    monkeypatch.setattr(npz, "_array", lambda archive, member: pytest.fail("was expanded"))
    refused(
        tmp_path / "bomb.npz",
        r"its arrays take 7.63 MiB, and the limit is 976.6 KiB; .*LIMIT=BYTES",
        limit=999999,
    )


def test_the_limit_is_of_all_arrays_together(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(100), y=np.zeros(100))
    refused(tmp_path / "a.npz", "its arrays take", limit=1500)
    assert set(read_npz(tmp_path / "a.npz", limit=2500)) == {"x", "y"}


def test_a_directory_that_lies_about_the_size_of_a_bomb_expands_no_more_than_it_says(tmp_path):
    path = write(tmp_path / "a.npz", (10**6,), bytes(4 * 10**6), compression=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<I", 1000)
    path.write_bytes(content)
    refused(path, "Bad CRC-32", limit=2000)


def test_the_limit_is_that_of_the_environment_or_half_of_the_free_memory(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", x=np.ones(10**6))
    monkeypatch.setattr(npz, "free_memory", lambda: 15 * 10**6)
    refused(tmp_path / "a.npz", "the limit is 7.153 MiB")
    monkeypatch.setenv(LIMIT, str(10**7))
    assert read_npz(tmp_path / "a.npz")["x"].sum() == 10**6
    monkeypatch.setenv(LIMIT, "ten")
    with pytest.raises(ValueError, match=f"^{LIMIT}: expected a number of bytes, got 'ten'"):
        read_npz(tmp_path / "a.npz")


def test_pipes_folders_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", tmp_path, "/dev/zero"):
        refused(path, "it is a folder, a pipe or a device")


@pytest.mark.parametrize("path", [None, 3, b"a.npz", "", "a\0b", 1.5])
def test_what_is_no_path_is_refused(path):
    refused(path, "^dataset: expected a path, got ")


def test_a_file_that_is_not_there_or_cannot_be_looked_for_is_refused(tmp_path):
    refused(tmp_path / "none.npz", "no such file")
    refused(tmp_path / ("x" * 300 + ".npz"), "File name too long")


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_changed_byte_is_refused_in_one_line_or_changes_nothing_that_is_read(at, tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.arange(20), y=np.ones(3))
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0xFF
    path.write_bytes(content)
    try:
        read = read_npz(path)
    except jaxarch.ArgumentError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert [array.sum() for array in read.values()] == [190, 3]
