"""Pictures from files of tensorflow-datasets (TFDS), in either of its formats, read without TensorFlow."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import as_path, did_you_mean, one_line, shown
from jaxarch.lab.data.cache import cached
from jaxarch.lab.data.folders import data_folders
from jaxarch.lab.data.images import Images, images_from_arrays
from jaxarch.lab.data.tfrecords import read_tfrecords

INFO = "dataset_info.json"


def read_tfds(name: str, split: str, folder: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read pictures and their labels from a data set that TFDS has prepared.

    They are decoded once, then read from a cache.

    Args:
      name: the data set, such as `mnist`; with a configuration, `name/configuration`. The newest version is
        read.
      split: the name of a split, such as `train`.
      folder: TFDS's data directory.

    Returns:
      Pictures, uint8, shape (examples, height, width, channels), and labels, int32, shape (examples,); in
      the order of the files.

    Raises:
      ArgumentError: an unknown data set or split; no features `image` and `label`; pictures of different
        sizes; a file that is truncated, altered or foreign; a package that is not installed.

    Example:
      >>> import jaxarch
      >>> x, y = jaxarch.lab.data.read_tfds("mnist", "test", "tensorflow_datasets")  # doctest: +SKIP
      >>> x.shape, y.shape  # doctest: +SKIP
      ((10000, 28, 28, 1), (10000,))
      >>> jaxarch.lab.data.read_tfds("mnist", "test", "nowhere")
      Traceback (most recent call last):
      jaxarch.ArgumentError: folder: no data set 'mnist' prepared by tensorflow-datasets in nowhere
    """
    place = prepared_folder(name, folder)
    if place is None:
        raise ArgumentError(f"folder: no data set {shown(name)} prepared by tensorflow-datasets in {folder}")
    return _read_split(place, split)


def read_prepared(place: Path) -> Images:
    """Read all pictures of a data set that TFDS has prepared, first `train`, then `test`.

    If there is no `test`, `validation` takes its place; without either, all pictures are for training.

    Args:
      place: the folder of one version, as `find_prepared` finds it.

    Raises:
      ArgumentError: as `read_tfds`; labels that are not published, -1.
    """
    try:
        info = json.loads((place / INFO).read_bytes())
        name, splits = str(info["name"]), [str(split["name"]) for split in info["splits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"dataset: cannot read {place / INFO} ({one_line(error)})") from None
    x, y = _read_split(place, "train")
    train = len(x)
    for split in ("test", "validation"):
        if split in splits:
            others, labels = _read_split(place, split)
            x, y = np.concatenate([x, others]), np.concatenate([y, labels])
            break
    return images_from_arrays(x, y, name, train)


def find_prepared(name: str) -> Path | None:
    """Find a data set that TFDS has prepared, in the first of `data_folders` that has it.

    Args:
      name: the name in TFDS; or the path of its folder, or of the folder of one of its versions.
    """
    if Path(name, INFO).is_file():
        return Path(name)
    places = (prepared_folder(name, folder) for folder in [*data_folders(), Path()])
    return next(filter(None, places), None)


def prepared_status(place: Path | None) -> tuple[bool, str]:
    """Return whether a prepared data set can be read, and its folder or the reason why not."""
    if place is None:
        return False, f"none of {', '.join(map(str, data_folders()))} has it"
    try:
        check_packages(place)
    except ArgumentError as error:
        return False, str(error).removeprefix("dataset: ")
    return True, str(place)


def prepared_folder(name: str, folder: str | os.PathLike[str]) -> Path | None:
    """Return the folder of a data set's newest version in TFDS's data directory; `None` if there is none."""
    places = [info.parent for info in (as_path(folder, "folder") / as_path(name, "name")).glob(f"*/{INFO}")]
    versions = [place for place in places if re.fullmatch(r"\d+\.\d+\.\d+", place.name)]
    return max(versions, key=lambda place: [int(part) for part in place.name.split(".")], default=None)


def check_packages(place: Path) -> None:
    """Raise unless the packages that read a prepared data set are installed.

    Raises:
      ArgumentError: names the first missing package, and how to install it.
    """
    needed = ["tensorflow_datasets", "PIL"]
    if any(place.glob("*.array_record*")):
        needed.append("array_record")
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise ArgumentError(
                f"dataset: {place} cannot be read without {package}; pip install 'jaxarch[data]'"
            )


def _read_split(place: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    check_packages(place)
    path_hash = hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:12]
    kept = re.sub(r"\W", "_", f"{place.resolve().parent.name}-{split}") + f"-{path_hash}"
    files = sorted(file for file in place.iterdir() if file.is_file())
    arrays = cached(kept, files, lambda: _decode(place, split))
    return arrays["images"], arrays["labels"]


def _decode(place: Path, split: str) -> dict[str, np.ndarray]:
    import tensorflow_datasets as tfds

    logging.getLogger("absl").addFilter(_no_advice)
    try:
        info = tfds.builder_from_directory(place).info
        splits, features = info.splits, info.features
    except Exception as error:  # TFDS's parsers may raise anything on text that TFDS did not write
        raise ArgumentError(
            f"dataset: tensorflow-datasets cannot read {place / INFO} or features.json ({one_line(error)})"
        ) from None
    if split not in splits:
        raise ArgumentError(f"split: {place} has no {shown(split)}; {did_you_mean(split, splits)}")
    _check_features(place, features)
    images = np.empty((splits[split].num_examples, *features["image"].shape), np.uint8)
    labels = np.empty(len(images), np.int32)
    row = 0
    for part in splits[split].file_instructions:
        path = Path(part.filename)
        try:
            for record in _records(path, part.examples_in_shard):
                example = features.deserialize_example_np(record)
                images[row], labels[row] = example["image"], example["label"]
                row += 1
        except ArgumentError:
            raise
        except Exception as error:  # the decoders may raise anything on foreign bytes
            raise ArgumentError(
                f"dataset: {path} is missing, damaged or another file ({one_line(error)})"
            ) from None
    return {"images": images, "labels": labels}


def _check_features(place: Path, features: Any) -> None:
    from tensorflow_datasets import features as kinds

    for key, kind in (("image", kinds.Image), ("label", kinds.ClassLabel)):
        if key not in features or not isinstance(features[key], kind):
            raise ArgumentError(
                f"dataset: {place} has no {kind.__name__} {shown(key)}; its features are "
                f"{', '.join(features)}"
            )
    image = features["image"]
    if None in image.shape or image.np_dtype != np.uint8:
        raise ArgumentError(
            f"dataset: {place} has pictures of shape {image.shape} and {np.dtype(image.np_dtype)}; expected "
            "pictures of one size and uint8"
        )


def _records(path: Path, count: int) -> list[bytes]:
    """Read the records of one file; raise unless there are `count`."""
    if ".tfrecord" in path.name:
        records = read_tfrecords(path)
    elif ".array_record" in path.name:
        from array_record.python.array_record_module import ArrayRecordReader

        reader = ArrayRecordReader(str(path))
        try:
            records = reader.read_all() if reader.num_records() else []
        finally:
            reader.close()
    else:
        raise ArgumentError(f"dataset: cannot read {path}; expected a tfrecord or array_record file")
    if len(records) != count:
        raise ArgumentError(
            f"dataset: {path} is truncated or another file: it has {len(records)} records, not {count}"
        )
    return records


def _no_advice(record: logging.LogRecord) -> bool:
    """Filter out TFDS's advice, on each start, to install OpenCV: Pillow suffices."""
    return "OpenCV" not in record.getMessage()
