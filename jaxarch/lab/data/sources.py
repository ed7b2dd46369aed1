"""Data sets by name, with description, status and how to get them; and the user's own files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxarch import ArgumentError
from jaxarch.io import read_npz
from jaxarch.lab.checks import as_path, did_you_mean, from_extra, shown
from jaxarch.lab.data import citeseer, mnist
from jaxarch.lab.data.dataset import Dataset, from_arrays
from jaxarch.lab.data.images import Images, images_from_arrays
from jaxarch.lab.data.text import FILE as TINY_SHAKESPEARE
from jaxarch.lab.data.text import Text, text_from_bytes, tiny_shakespeare
from jaxarch.lab.data.tfds_files import find_prepared, prepared_status, read_prepared


@dataclasses.dataclass(frozen=True)
class Source:
    """Data set with a name; it has features, pictures or both, or a text.

    Attributes:
      description: a description in one line.
      how_to_get: how to get it, in one line.
      citation: the work to cite, in one line.
      status: returns whether it can be read, and its place or the reason why not; reads and fetches nothing.
      features: reads the features for `load`, if they are not the pixels of the pictures.
      images: reads the pictures, if there are any.
      text: reads the text, if it is one.
      download: fetches the data set and returns its folder, if that is possible.
    """

    description: str
    how_to_get: str
    citation: str
    status: Callable[[], tuple[bool, str]]
    features: Callable[[], Dataset] | None = None
    images: Callable[[], Images] | None = None
    text: Callable[[], bytes] | None = None
    download: Callable[[], Path] | None = None


def digits() -> Images:
    """Return the handwritten digits of scikit-learn: 1797 pictures of 8 x 8 pixels, 0 to 16."""
    with from_extra("lab", "dataset: digits"):
        from sklearn.datasets import load_digits

    data = load_digits()
    return images_from_arrays(data.images.astype(np.uint8), data.target, "digits")


def prepared(name: str, description: str, citation: str) -> Source:
    """Return the source of a data set of pictures that tensorflow-datasets prepares."""
    return Source(
        description,
        f"tfds build {name} (needs pip install 'jaxarch[data]' tensorflow; reading needs no TensorFlow); "
        "or set TFDS_DATA_DIR or JAXARCH_DATA to a folder where tensorflow-datasets has prepared it",
        citation,
        status=lambda: prepared_status(find_prepared(name)),
        images=lambda: load_prepared(name),
    )


def abstracts(form: str, features: Callable[[], Dataset]) -> Source:
    """Return a source of Citeseer's abstracts, which come with jaxarch, in some form."""
    return Source(
        f"abstracts of papers, 3312 x {form}, classes 0-5",
        "comes with jaxarch",
        "Z. Yang, W. Cohen, R. Salakhutdinov, Revisiting semi-supervised learning, 2016 (MIT licence)",
        status=lambda: (citeseer.FILE.is_file(), str(citeseer.FILE)),
        features=features,
    )


SOURCES: dict[str, Source] = {
    "digits": Source(
        "handwritten digits, 1797 x 64 (8 x 8 pixels), classes 0-9",
        "comes with scikit-learn",
        "E. Alpaydin, C. Kaynak, Optical recognition of handwritten digits, UCI repository, 1998",
        status=lambda: (True, "the files of scikit-learn"),
        images=digits,
    ),
    "mnist": Source(
        "handwritten digits, 70000 x 64 (28 x 28 pixels, cropped and pooled), classes 0-9",
        "jaxarch data mnist --download (needs pip install 'jaxarch[data]'); or set JAXARCH_DATA to a folder "
        f"with the files of tensorflow-datasets, or with the four archives in {mnist.FOLDER}/",
        "Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, 1998",
        mnist.status,
        mnist.features,
        mnist.images,
        download=mnist.download,
    ),
    "citeseer": abstracts("64 (principal components of 3703 words)", citeseer.features),
    "citeseer-words": abstracts("3703 (words, 0 or 1)", citeseer.bags_of_words),
    "tiny-shakespeare": Source(
        "plays, a text of 1115394 characters, 65 of them distinct",
        "comes with jaxarch",
        "A. Karpathy, char-rnn, 2015 (the selection; the text is in the public domain)",
        status=lambda: (TINY_SHAKESPEARE.is_file(), str(TINY_SHAKESPEARE)),
        text=tiny_shakespeare,
    ),
    "cifar10": prepared(
        "cifar10",
        "photographs of animals and vehicles, 60000 x 3072 (32 x 32 pixels, 3 channels), classes 0-9",
        "A. Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    ),
    "cifar100": prepared(
        "cifar100",
        "photographs of many things, 60000 x 3072 (32 x 32 pixels, 3 channels), classes 0-99",
        "A. Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    ),
}
"""All data sets with a name: description, origin, and functions that read them."""


def load(dataset: str | os.PathLike[str]) -> Dataset:
    """Load features by the name of a data set, or from an npz file with arrays `x` and `y`.

    MNIST and Citeseer are preprocessed as in [D] section 5, except for `unit_norm`. Any other data set of
    `load_images` is given as its pixels. No pickle is ever loaded, and nothing is downloaded.

    Raises:
      ArgumentError: an unknown name, a data set that is not there, a file that cannot be read or lacks `x` or
        `y`; see also `from_arrays`.

    Example:
      >>> import jaxarch
      >>> digits = jaxarch.lab.data.load("digits")
      >>> digits.x.shape, digits.x.max().item(), sorted(set(digits.y.tolist()))
      ((1797, 64), 16.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    name = _not_of_a_text(dataset)
    if name in SOURCES and (features := SOURCES[name].features):
        _check_ready(name)
        return features()
    if _is_file(name):
        return from_arrays(*_read_arrays(name), Path(name).stem)
    pictures = load_images(name)
    return from_arrays(pictures.x, pictures.y, pictures.name)


def load_images(dataset: str | os.PathLike[str]) -> Images:
    """Load labelled pictures, before any preprocessing.

    Args:
      dataset: a name, such as `cifar10`; or the name, or the path, of any other data set of pictures that
        tensorflow-datasets has prepared. Names are looked up in its folders (`TFDS_DATA_DIR`, `JAXARCH_DATA`,
        `~/tensorflow_datasets`). Or an npz file with arrays `x`, uint8, shape (examples, height, width) or
        (examples, height, width, channels), and `y`.

    Returns:
      `Images`. The rows of MNIST and of the digits are the same as in `load`.

    Raises:
      ArgumentError: an unknown data set, one without pictures, one that is not there or is damaged; see also
        `images_from_arrays`.

    Example:
      >>> import jaxarch
      >>> digits = jaxarch.lab.data.load_images("digits")
      >>> digits.x.shape, digits.x.dtype.name, digits.train
      ((1797, 8, 8, 1), 'uint8', 1797)
    """
    name = _not_of_a_text(dataset)
    if name in SOURCES:
        pictures = SOURCES[name].images
        if pictures is None:
            known = [other for other, source in SOURCES.items() if source.images]
            raise ArgumentError(f"dataset: {name} has no pictures; expected one of {', '.join(known)}")
        _check_ready(name)
        return pictures()
    if _is_file(name):
        return images_from_arrays(*_read_arrays(name), Path(name).stem)
    return load_prepared(name)


def load_text(dataset: str | os.PathLike[str], length: int) -> Text:
    """Load a text as windows of characters, the last tenth of them for testing.

    Args:
      dataset: the name of a text, such as `tiny-shakespeare`, or a file whose name ends with `.txt`.
      length: characters of a window.

    Raises:
      ArgumentError: a data set that is no text, or a file that cannot be read; see also `text_from_bytes`.

    Example:
      >>> import jaxarch
      >>> plays = jaxarch.lab.data.load_text("tiny-shakespeare", length=32)
      >>> plays.x.shape, plays.train, len(plays.characters)
      ((34855, 32), 31370, 65)
    """
    name = str(as_path(dataset, "dataset"))
    if not is_text(name):
        known = [*(other for other, source in SOURCES.items() if source.text), "a file FILE.txt"]
        raise ArgumentError(f"dataset: {shown(name)} is no text; expected {' or '.join(known)}")
    source = SOURCES.get(name)
    if source is None:
        try:
            return text_from_bytes(Path(name).read_bytes(), length, Path(name).stem)
        except OSError as error:
            raise ArgumentError(f"dataset: cannot read {shown(name)} ({error.strerror})") from None
    assert source.text is not None
    return text_from_bytes(source.text(), length, name)


def is_text(dataset: str | os.PathLike[str]) -> bool:
    """Tell, by the name alone, whether a data set is a text.

    Example:
      >>> import jaxarch
      >>> jaxarch.lab.data.is_text("mine.txt"), jaxarch.lab.data.is_text("digits")
      (True, False)
    """
    name = str(as_path(dataset, "dataset"))
    source = SOURCES.get(name)
    return Path(name).suffix.lower() == ".txt" if source is None else source.text is not None


def _not_of_a_text(dataset: str | os.PathLike[str]) -> str:
    """Return the name of a data set.

    Raises:
      ArgumentError: it is a text.
    """
    name = str(as_path(dataset, "dataset"))
    if is_text(name):
        raise ArgumentError(f"dataset: {shown(name)} is a text, not pictures or features; load_text reads it")
    return name


def load_examples(dataset: str | os.PathLike[str]) -> Images | Dataset:
    """Load pictures where the data set has some, and features otherwise.

    Args:
      dataset: as for `load` and `load_images`. An npz file has features if its `x` has two dimensions.

    Raises:
      ArgumentError: as `load` and `load_images` do.

    Example:
      >>> import jaxarch
      >>> type(jaxarch.lab.data.load_examples("digits")).__name__
      'Images'
      >>> jaxarch.lab.data.load_examples("citeseer-words").x.shape
      (3312, 3703)
    """
    name = _not_of_a_text(dataset)
    source = SOURCES.get(name)
    if source is None and _is_file(name):
        x, y = _read_arrays(name)
        if x.ndim != 2 and (x.dtype != np.uint8 or x.ndim not in (3, 4)):
            raise ArgumentError(
                "x: expected features of shape (examples, features), or uint8 pixels of shape (examples, "
                f"height, width) or (examples, height, width, channels), got {x.dtype} of shape {x.shape}"
            )
        return (from_arrays if x.ndim == 2 else images_from_arrays)(x, y, Path(name).stem)
    return load(name) if source is not None and source.images is None else load_images(name)


def load_prepared(name: str) -> Images:
    """Load pictures that tensorflow-datasets has prepared, by their name there or by their folder."""
    place = find_prepared(name)
    if place is None:
        raise ArgumentError(
            f"dataset: unknown {shown(name)}; {did_you_mean(name, SOURCES)}, or a data set that "
            "tensorflow-datasets has prepared, or the path of an npz with x and y"
        )
    return read_prepared(place)


def download(name: str) -> Path:
    """Fetch a data set over the network; no other function downloads anything.

    Returns:
      The folder of the data set.

    Raises:
      ArgumentError: an unknown data set, one that jaxarch does not fetch, no network, a file that is not the
        original.

    Example:
      >>> import jaxarch
      >>> folder = jaxarch.lab.data.download("mnist")  # doctest: +SKIP
      >>> jaxarch.lab.data.download("citeseer")  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      jaxarch.ArgumentError: download: jaxarch cannot download citeseer; to get it: ...
    """
    if not isinstance(name, str) or name not in SOURCES:
        raise ArgumentError(f"dataset: unknown {shown(name)}; {did_you_mean(str(name), SOURCES)}")
    source = SOURCES[name]
    if source.download is None:
        raise ArgumentError(f"download: jaxarch cannot download {name}; to get it: {source.how_to_get}")
    return source.download()


def _check_ready(name: str) -> None:
    source = SOURCES[name]
    ready, where = source.status()
    if not ready:
        raise ArgumentError(f"dataset: {name} is not ready: {where}; to get it: {source.how_to_get}")


def _is_file(name: str) -> bool:
    try:
        return Path(name).suffix == ".npz" or Path(name).is_file()
    except OSError as error:
        raise ArgumentError(f"dataset: cannot look up {shown(name)} ({error.strerror})") from None


def _read_arrays(name: str) -> tuple[np.ndarray, np.ndarray]:
    arrays = read_npz(name, "dataset")
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        raise ArgumentError(
            f"dataset: {name} has no array {' or '.join(missing)}; it has {shown(', '.join(arrays))}"
        )
    return arrays["x"], arrays["y"]
