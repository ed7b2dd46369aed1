"""Text as windows of characters, each with the characters that come next; also the user's own."""

from __future__ import annotations

import bz2
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, shown

FILE = Path(__file__).with_name("tiny_shakespeare.txt.bz2")
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TESTED = 10
"""The last tenth of a text is for testing, as in `nanoGPT`'s split of Tiny Shakespeare."""


class Text(NamedTuple):
    """Windows of a text, one after the other, for a model that predicts the next character.

    Attributes:
      name: shown in results.
      x: tokens, int32, shape (windows, length): places in `characters`.
      y: the token after each of `x`, int32, of the same shape.
      train: number of windows for training, which come first; the rest is for testing.
      characters: the distinct bytes of the text, in ascending order.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    train: int
    characters: bytes


def text_from_bytes(text: bytes, length: int, name: str = "text") -> Text:
    """Cut a text into windows, the last tenth of it for testing.

    A character is a byte: a whole one of ASCII, a part of most others in UTF-8. The windows to test on, and
    their answers, have no character of the training part. A rest that is shorter than a window is left out.

    Args:
      text: the text.
      length: characters of a window, from 1 on.
      name: shown in results.

    Raises:
      ArgumentError: a text that is not bytes, or has only one character; one that is too short for a window
        to train on and one to test on; a length that is not a positive integer.

    Example:
      >>> import jaxarch
      >>> text = jaxarch.lab.data.text_from_bytes(b"abcabcab" * 5, length=3)
      >>> text.x.shape, text.train, text.characters
      ((12, 3), 11, b'abc')
      >>> text.x[0].tolist(), text.y[0].tolist()
      ([0, 1, 2], [1, 2, 0])
    """
    if not isinstance(text, bytes):
        raise ArgumentError(f"text: expected bytes, got {shown(text)}; a str has encode()")
    check_count("length", length)
    tested = len(text) // TESTED
    parts = (text[: len(text) - tested], text[len(text) - tested :])
    if min(map(len, parts)) <= length:
        raise ArgumentError(
            f"text: {name} has {len(text)} characters; expected at least {TESTED * (length + 1)}, for a "
            f"window of {length} in its last tenth"
        )
    is_there = np.bincount(np.frombuffer(text, np.uint8), minlength=256) > 0
    found = np.flatnonzero(is_there).astype(np.uint8)
    if len(found) < 2:
        raise ArgumentError(f"text: {name} has a single character, {found.tobytes()!r}, again and again")
    places = np.cumsum(is_there, dtype=np.int32) - 1
    windows = [_windows(places[np.frombuffer(part, np.uint8)], length) for part in parts]
    x, y = (np.concatenate(of) for of in zip(*windows, strict=True))
    return Text(name, x, y, len(windows[0][0]), found.tobytes())


def _windows(tokens: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens, and the tokens after them, both of shape (windows, length)."""
    count = (len(tokens) - 1) // length
    x, y = (tokens[first : first + count * length].reshape(count, length) for first in (0, 1))
    return x, y


def tiny_shakespeare() -> bytes:
    """Return the text: 1,115,394 characters of plays, 65 of them distinct.

    Raises:
      ArgumentError: the file is not the installed one.
    """
    try:
        text = bz2.decompress(FILE.read_bytes())
    except (OSError, ValueError, EOFError):
        text = b""
    if hashlib.sha256(text).hexdigest() != SHA256:
        raise ArgumentError(f"dataset: {FILE} is missing, truncated or altered; install jaxarch again")
    return text
