"""Pictures from the files of tensorflow-datasets: both formats, the cache, and what is refused."""

import importlib.util
import json
import re
import socket

import numpy as np
import pytest
import tfds_form

from jaxarch.lab.data import read_tfds
from jaxarch.lab.data.cache import cached
from jaxarch.lab.data.folders import own_folder
from jaxarch.lab.data.tfrecords import crc32c, read_tfrecords

FORMS = ["tfrecord", "array_record"]


@pytest.fixture(autouse=True)
def _no_network_and_a_cache_of_its_own(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise AssertionError("the network was reached for")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def _packages():
    for package in ("tensorflow_datasets", "array_record", "PIL"):
        pytest.importorskip(package)


def test_the_checksum_of_the_standard_s_test_text_is_the_standard_s():
    longer = bytes(range(256)) * 3
    checksums = crc32c([b"", b"123456789", longer, bytes(32)])
    assert checksums[[0, 1, 3]].tolist() == [0, 0xE3069283, 0x8A9136AA]
    assert checksums[2] == crc32c([longer])[0]


def test_records_of_any_length_are_read_as_written(tmp_path):
    records = [b"", b"a", bytes(1000), b"123456789"] * 3
    tfds_form.write_tfrecords(tmp_path / "some.tfrecord", records)
    assert read_tfrecords(tmp_path / "some.tfrecord") == records


@pytest.mark.parametrize("at", [0, 3, 9, 12, 30, 51])
def test_a_changed_bit_anywhere_in_a_tfrecord_file_is_refused(at, tmp_path):
    path = tmp_path / "some.tfrecord"
    tfds_form.write_tfrecords(path, [b"first record", b"the second"])
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"dataset: .*some\.tfrecord is (truncated or )?altered"):
        read_tfrecords(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("_packages")
def test_pictures_are_read_from_all_files_in_order(form, tmp_path):
    tfds_form.write(tmp_path, form)
    images, labels = read_tfds("tiny", "train", tmp_path)
    assert np.array_equal(images, tfds_form.IMAGES)
    assert np.array_equal(labels, tfds_form.LABELS)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int32)


@pytest.mark.usefixtures("_packages")
def test_the_newest_version_is_read(tmp_path):
    place = tfds_form.write(tmp_path, "tfrecord")
    for other in ("0.9.9", "incomplete.2.0.0"):
        place.with_name(other).mkdir()
        (place.with_name(other) / "dataset_info.json").write_text("{}")
    assert len(read_tfds("tiny", "train", tmp_path)[0]) == 7


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def alter(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") + 20] ^= 1
    path.write_bytes(content)


def replace(path):
    path.write_bytes(b"something else altogether")


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, alter, replace, empty])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("_packages")
def test_a_damaged_file_is_refused_in_one_line_that_names_it(form, damage, tmp_path):
    place = tfds_form.write(tmp_path, form)
    (path,) = place.glob("*-00001-of-00002")
    damage(path)
    with pytest.raises(ValueError, match=r"dataset: .*-00001-of-00002 is") as refused:
        read_tfds("tiny", "train", tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["dataset_info.json", "features.json"])
@pytest.mark.usefixtures("_packages")
def test_damaged_descriptions_are_refused(name, tmp_path):
    place = tfds_form.write(tmp_path, "tfrecord")
    cut(place / name)
    with pytest.raises(ValueError, match=rf"tensorflow-datasets cannot read .*{re.escape(name)}"):
        read_tfds("tiny", "train", tmp_path)


@pytest.mark.usefixtures("_packages")
def test_a_missing_file_split_data_set_or_feature_is_refused_by_name(tmp_path):
    place = tfds_form.write(tmp_path, "tfrecord")
    tfds_form.write(tmp_path, "tfrecord", name="odd", features=("image",))
    with pytest.raises(ValueError, match=r"split: .* has no 'trian'; did you mean 'train'"):
        read_tfds("tiny", "trian", tmp_path)
    with pytest.raises(ValueError, match="folder: no data set 'tinny' prepared by tensorflow-datasets in"):
        read_tfds("tinny", "train", tmp_path)
    with pytest.raises(ValueError, match=r"dataset: .* has no ClassLabel 'label'; its features are image"):
        read_tfds("odd", "train", tmp_path)
    next(place.glob("*-00001-of-00002")).unlink()
    with pytest.raises(ValueError, match=r"dataset: .*-00001-of-00002 is missing"):
        read_tfds("tiny", "train", tmp_path)


@pytest.mark.parametrize("package", ["tensorflow_datasets", "array_record", "PIL"])
def test_a_package_that_is_not_installed_is_named_with_the_way_to_get_it(package, tmp_path, monkeypatch):
    place = tmp_path / "tiny" / "1.0.0"
    place.mkdir(parents=True)
    (place / "dataset_info.json").write_text(json.dumps({"name": "tiny"}))
    (place / "tiny-train.array_record-00000-of-00001").write_text("")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else "there")
    with pytest.raises(ValueError, match=rf"without {package}; pip install 'jaxarch\[data\]'"):
        read_tfds("tiny", "train", tmp_path)


@pytest.fixture
def kept(tmp_path):
    """A file, and a function that counts how often it is decoded."""
    file = tmp_path / "file"
    file.write_text("source")
    made = []

    def read():
        def make():
            made.append(1)
            return {"a": np.arange(5), "b": np.ones((2, 2), np.uint8)}

        arrays = cached("some", [file], make)
        assert arrays.keys() == {"a", "b"}
        assert np.array_equal(arrays["a"], np.arange(5))
        return len(made)

    return file, read


def test_arrays_are_decoded_once(kept):
    _, read = kept
    assert [read(), read()] == [1, 1]
    assert [path.name for path in own_folder().iterdir()] == ["some.npz"]


def test_arrays_are_decoded_again_when_the_file_has_changed(kept):
    file, read = kept
    read()
    file.write_text("another source")
    assert [read(), read()] == [2, 2]


def test_an_altered_or_truncated_cache_is_not_used(kept):
    _, read = kept
    read()
    path = own_folder() / "some.npz"
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    np.savez(path, **arrays | {"a": np.arange(5) + 1})
    assert read() == 2
    cut(path)
    assert read() == 3
    np.savez(path, **arrays | {"a": np.array([{"no": "array"}], dtype=object)})
    assert read() == 4


def test_a_cache_that_cannot_be_written_costs_only_time(kept, tmp_path, monkeypatch):
    _, read = kept
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no folder"))
    assert [read(), read()] == [1, 2]
