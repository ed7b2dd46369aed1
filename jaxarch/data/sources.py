"""Data sets by name: what each is, whether it is there, and how to get it; and the user's own files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxarch.data import citeseer, mnist
from jaxarch.data.dataset import Dataset, from_arrays
from jaxarch.errors import ArgumentError, did_you_mean
from jaxarch.storage import read_npz


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set that can be asked for by name.

    Attributes:
      description: what it is, one line.
      how_to_get: one line.
      citation: whom to cite, one line.
      status: whether it can be read, and where it is, or why it cannot. Nothing is read or fetched.
      read: read it.
      pictures: the pictures that it is made of, with labels, if it is made of any.
      download: fetch it, and say where it is, if that can be done.
    """

    description: str
    how_to_get: str
    citation: str
    status: Callable[[], tuple[bool, str]]
    read: Callable[[], Dataset]
    pictures: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None
    download: Callable[[], Path] | None = None


def digits() -> Dataset:
    """Scikit-learn's handwritten digits: 1797 pictures of 8 x 8 pixels, ten classes; in every install."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return from_arrays(x, y, "digits")


SOURCES: dict[str, Source] = {
    "digits": Source(
        "handwritten digits, 1797 x 64, classes 0-9",
        "comes with scikit-learn",
        "E. Alpaydin, C. Kaynak, Optical recognition of handwritten digits, UCI repository, 1998",
        lambda: (True, "the files of scikit-learn"),
        digits,
    ),
    "mnist": Source(
        "handwritten digits, 70000 x 64 (28 x 28 pixels, cropped and pooled), classes 0-9",
        "jaxarch data mnist --download (needs pip install 'jaxarch[data]'); or name in JAXARCH_DATA a folder "
        f"with the files of tensorflow-datasets, or with the four archives in {mnist.FOLDER}/",
        "Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, 1998",
        mnist.status,
        mnist.read,
        mnist.pictures,
        mnist.download,
    ),
    "citeseer": Source(
        "abstracts of papers, 3312 x 64 (principal components of 3703 words), classes 0-5",
        "comes with jaxarch",
        "Z. Yang, W. Cohen, R. Salakhutdinov, Revisiting semi-supervised learning, 2016 (MIT licence)",
        lambda: (citeseer.FILE.is_file(), str(citeseer.FILE)),
        citeseer.read,
    ),
}


def load(dataset: str | os.PathLike[str]) -> Dataset:
    """A data set by name, or from an npz file with arrays `x` and `y`.

    MNIST and Citeseer are preprocessed as in [D] section 5, up to `unit_norm`. No pickle is ever loaded, and
    nothing is downloaded.

    Raises:
      ArgumentError: an unknown name, a data set that is not there, a file that cannot be read or lacks `x` or
        `y`; see also `from_arrays`.
    """
    name = os.fspath(dataset)
    if name in SOURCES:
        return _ready(name).read()
    path = Path(name)
    if path.suffix != ".npz" and not path.exists():
        raise ArgumentError(
            f"dataset: unknown {name!r}; {did_you_mean(name, SOURCES)}, or the path of an npz with x and y"
        )
    arrays = read_npz(path, "dataset")
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        raise ArgumentError(
            f"dataset: {name} has no array {' or '.join(missing)}; it has {', '.join(arrays)}"
        )
    return from_arrays(arrays["x"], arrays["y"], path.stem)


def load_pictures(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The pictures that a data set is made of, before any preprocessing.

    Returns:
      Pixels, uint8, shape (examples, height, width), and class labels, int32, shape (examples,). The rows are
      those of `load(name)`.

    Raises:
      ArgumentError: no such data set, none of pictures, one that is not there or that is damaged.
    """
    with_pictures = [known for known, source in SOURCES.items() if source.pictures]
    if name not in with_pictures:
        raise ArgumentError(f"name: no pictures of {name!r}; {did_you_mean(name, with_pictures)}")
    pictures = _ready(name).pictures
    assert pictures is not None
    return pictures()


def download(name: str) -> Path:
    """Fetch a data set over the network; the only function that does.

    Returns:
      The folder that it is in now.

    Raises:
      ArgumentError: no such data set, none that is fetched, no network, a file that is not the original.
    """
    if name not in SOURCES:
        raise ArgumentError(f"dataset: unknown {name!r}; {did_you_mean(name, SOURCES)}")
    source = SOURCES[name]
    if source.download is None:
        raise ArgumentError(f"download: {name} needs none; it {source.how_to_get}")
    return source.download()


def _ready(name: str) -> Source:
    source = SOURCES[name]
    ready, where = source.status()
    if not ready:
        raise ArgumentError(f"dataset: {name} is not ready: {where}; to get it: {source.how_to_get}")
    return source
