"""Reader of TFRecord files without TensorFlow, which checks every checksum.

A record is its length (8 bytes), a checksum of the length, the bytes, and a checksum of the bytes. A checksum
is a CRC-32C, rotated and shifted (https://www.tensorflow.org/tutorials/load_data/tfrecord).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxarch import ArgumentError

BLOCK = 4096


def read_tfrecords(path: Path) -> list[bytes]:
    """Read the records of a file.

    Raises:
      ArgumentError: the file ends within a record, or has a wrong checksum; names the file.
    """
    content = path.read_bytes()
    lengths, records, checksums = [], [], []
    at = 0
    while at < len(content):
        if at + 16 > len(content):
            raise ArgumentError(f"dataset: {path} is truncated: it ends within a record")
        (length,) = struct.unpack_from("<Q", content, at)
        end = at + 12 + length
        lengths.append(content[at : at + 8])
        records.append(content[at + 12 : end])
        checksums.append(content[at + 8 : at + 12] + content[end : end + 4])
        at = end + 4
    if at > len(content):
        raise ArgumentError(f"dataset: {path} is truncated or altered: it ends within a record")
    stated = np.frombuffer(b"".join(checksums), "<u4").reshape(-1, 2)
    for index, parts in enumerate((lengths, records)):
        wrong = np.flatnonzero(_masked(crc32c(parts)) != stated[:, index])
        if wrong.size:
            raise ArgumentError(f"dataset: {path} is altered: record {wrong[0]} has a wrong checksum")
    return records


def crc32c(texts: Sequence[bytes]) -> np.ndarray:
    """Compute the CRC-32C (Castagnoli) of each text, uint32, shape (texts,).

    Each step takes one byte of thousands of texts together. The longest texts come first, so the texts with a
    byte left are always the first few.
    """
    result = np.zeros(len(texts), np.uint32)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        lengths = np.array([len(texts[i]) for i in block])
        steps = np.zeros((lengths[0], len(block)), np.uint8)
        for column, i in enumerate(block):
            steps[: len(texts[i]), column] = np.frombuffer(texts[i], np.uint8)
        state = np.full(len(block), 0xFFFFFFFF, np.uint32)
        for step, row in enumerate(steps):
            left = np.searchsorted(-lengths, -step)
            state[:left] = _TABLE[(state[:left] ^ row[:left]) & 0xFF] ^ (state[:left] >> 8)
        result[block] = ~state
    return result


def _masked(crc: np.ndarray) -> np.ndarray:
    return (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


_TABLE = _table()
