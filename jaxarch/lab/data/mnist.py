"""MNIST, read from the four original archives or from TFDS's files, whichever is there."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.data.dataset import Dataset, from_arrays
from jaxarch.lab.data.folders import data_folders, own_folder
from jaxarch.lab.data.images import Images, images_from_arrays
from jaxarch.lab.data.network import download_with_tfds
from jaxarch.lab.data.tfds_files import prepared_folder, prepared_status, read_tfds
from jaxarch.lab.data.transforms import crop_and_pool

FOLDER = "mnist_idx"
ARCHIVES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""SHA-256 of each archive, as tensorflow-datasets registers it."""

CONTENT = {
    "train": "54e1ab866c9484947dd4821c52bb7a43938f555d6b046be6af55247f8e6ffc64",
    "test": "97b756d55950f1841ebd48df7379b9b2fc87a10d63e08d6213dad41d564e8508",
}
"""SHA-256 over the sorted SHA-256s of all pictures with their labels, for each split."""


def features() -> Dataset:
    """Return MNIST as in [D] section 5: 70,000 examples of 64 means in [0, 255]; see `crop_and_pool`."""
    pictures = images()
    return from_arrays(crop_and_pool(pictures.x[..., 0]), pictures.y, "mnist")


def images() -> Images:
    """Return the 70,000 pictures of 28 x 28 pixels; the first 60,000 are for training.

    The archives and TFDS's files have the same pictures in different orders. Each part is therefore sorted by
    its pictures' SHA-256s, so that both forms give the same rows, and a seed gives the same split.

    Raises:
      ArgumentError: MNIST is not there; a truncated, altered or foreign file, which the message names.
    """
    place = find()
    if place is None:
        folders = ", ".join(map(str, data_folders()))
        raise ArgumentError(f"dataset: mnist is in none of {folders}; jaxarch data mnist --download gets it")
    if place.name == FOLDER:
        parts = {"train": _read_archives(place, "train"), "test": _read_archives(place, "t10k")}
    else:
        parts = {split: read_tfds("mnist", split, place.parent.parent) for split in CONTENT}
    x, y = zip(*(_in_order(*parts[split], split, place) for split in CONTENT), strict=True)
    return images_from_arrays(np.concatenate(x), np.concatenate(y), "mnist", len(x[0]))


def find() -> Path | None:
    """Return the folder to read MNIST from: the first in `data_folders` that has either form."""
    for folder in data_folders():
        if all((folder / FOLDER / name).is_file() for name in ARCHIVES):
            return folder / FOLDER
        if prepared := prepared_folder("mnist", folder):
            return prepared
    return None


def status() -> tuple[bool, str]:
    """Return whether MNIST can be read, and its folder or the reason why not."""
    place = find()
    if place is not None and place.name == FOLDER:
        return True, str(place)
    return prepared_status(place)


def download() -> Path:
    """Fetch the four archives into our own folder with TFDS, which checks their checksums.

    Raises:
      ArgumentError: no network, an archive that is not the original, a package that is not installed.
    """
    folder = own_folder() / FOLDER
    return download_with_tfds("tensorflow_datasets.image_classification.mnist", "MNIST", folder)


def _read_archives(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    images = _read_archive(folder / f"{part}-images-idx3-ubyte.gz")
    labels = _read_archive(folder / f"{part}-labels-idx1-ubyte.gz")
    return images, labels


def _read_archive(path: Path) -> np.ndarray:
    """Read the array of an archive in IDX format: a type, the number of axes, their lengths, the values."""
    packed = path.read_bytes()
    if hashlib.sha256(packed).hexdigest() != ARCHIVES[path.name]:
        raise ArgumentError(f"dataset: {path} is not MNIST's, or damaged (wrong SHA-256); download it again")
    content = gzip.decompress(packed)
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _in_order(
    images: np.ndarray, labels: np.ndarray, split: str, place: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Sort rows by their hashes; raise if they are not MNIST's."""
    hashes = [
        hashlib.sha256(image.tobytes() + bytes([label])).digest()
        for image, label in zip(images, labels.astype(np.uint8), strict=True)
    ]
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    if hashlib.sha256(b"".join(hashes[row] for row in order)).hexdigest() != CONTENT[split]:
        raise ArgumentError(
            f"dataset: {place} has pictures in {split!r} that are not MNIST's; download it again"
        )
    return images[order].reshape(-1, 28, 28), labels[order].astype(np.int32)
