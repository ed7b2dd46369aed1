"""Several processes that run one program: they exchange arrays, do the same, and fail together."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxarch._internal.errors import ArgumentError, first_line
from jaxarch._internal.trees import PyTree, keyed_as, raw_numbers

ALL_HOSTS = "all hosts"
"""Value of `devices` for the devices of all processes of the program."""

PROCESSES = "processes"
HEARTBEAT_SECONDS = 20
"""Seconds without an answer after which a process counts as ended."""
START_SECONDS = 60
"""Seconds that processes wait for one another when they start."""
SHUTDOWN_SECONDS = 30
"""Seconds that processes wait for one another when they are done."""
SMALL_BYTES = 2**14
"""Bytes of the first block that each process sends; mostly it is the only one."""
LARGER_BYTES = (2**18, 2**22)
"""Sizes of further blocks: the first that is enough, or the last again and again."""
ALL_BYTES = 2**26
"""Limit on the bytes of one block, summed over all processes."""
# A block begins with a failure flag, the message's length, and the title, cut after 254 bytes.
_HEAD = struct.Struct("<?Q255p")


class LostProcessError(RuntimeError):
    """Another process of the program has ended, or cannot be reached."""


@dataclasses.dataclass(frozen=True)
class Team:
    """The processes that train together. All call the same methods, in the same order.

    Each process receives what the others receive, so that all decide alike. Messages are bytes, in blocks of
    three sizes, which compile once. `title` names the subject of a message, which must be the same in all
    processes.

    Attributes:
      index: index of this process.
      devices: how many devices each process has.
    """

    index: int
    devices: tuple[int, ...]

    @classmethod
    def of(cls, devices: Sequence[jax.Device] | str | None) -> Team:
        """Return the team of all processes of the program for `all hosts`, otherwise of this one alone."""
        if devices != ALL_HOSTS or jax.process_count() == 1:
            return cls(0, (len(local_devices(devices)),))
        counts = Counter(device.process_index for device in jax.devices())
        return cls(jax.process_index(), tuple(counts[index] for index in range(jax.process_count())))

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self.devices)

    def exchange(self, title: str, message: bytes, failed: bool = False) -> list[bytes]:
        """Return the messages of all processes: bytes of any length, in the order of the processes.

        Raises:
          ArgumentError: another process has failed, with its message, or has another title.
          LostProcessError: another process has ended.
        """
        if self.size == 1:
            return [message]
        here = min(len(message), SMALL_BYTES - _HEAD.size)
        told = self._told(_HEAD.pack(failed, len(message), title.encode()) + message[:here], SMALL_BYTES)
        heads = [_HEAD.unpack(bytes(row[: _HEAD.size])) for row in told]
        parts = [[bytes(row[_HEAD.size :])] for row in told]
        longest = max(length for _, length, _ in heads)
        enough = [size for size in LARGER_BYTES if size >= longest]
        size = max(min((*enough, LARGER_BYTES[-1])[0], ALL_BYTES // self.size), SMALL_BYTES)
        for start in range(SMALL_BYTES - _HEAD.size, longest, size):
            for part, row in zip(parts, self._told(message[start : start + size], size), strict=True):
                part.append(bytes(row))
        messages = [b"".join(part)[:length] for part, (_, length, _) in zip(parts, heads, strict=True)]
        if failed:
            # The caller raises its own error, not that of another process.
            return messages
        for index, ((is_failure, _, _), message) in enumerate(zip(heads, messages, strict=True)):
            if is_failure:
                text = message.decode(errors="replace")
                raise _known_to_all(ArgumentError(f"process {index} of {self.size}: {text}"))
        for index, (_, _, other) in enumerate(heads):
            if other != heads[0][2]:
                raise _known_to_all(
                    ArgumentError(
                        "processes: they are out of step: process 0 is at "
                        f"{heads[0][2].decode(errors='replace')!r}, process {index} at "
                        f"{other.decode(errors='replace')!r}; start the same program everywhere"
                    )
                )
        return messages

    def gather(self, title: str, tree: PyTree, rows: Sequence[int]) -> PyTree:
        """Join the pytrees of all processes along the first axis of their leaves, on the host.

        Args:
          title: the subject.
          tree: this process's pytree, of which the first rows are sent.
          rows: how many rows each process sends.

        Raises:
          ArgumentError: trees of other shapes.
        """
        if self.size == 1:
            return tree
        leaves, treedef = jax.tree.flatten(tree)
        mine = [np.asarray(raw_numbers(leaf))[: rows[self.index]] for leaf in leaves]
        messages = self.exchange(title, b"".join(leaf.tobytes() for leaf in mine))
        gathered = [np.empty((sum(rows), *leaf.shape[1:]), leaf.dtype) for leaf in mine]
        start = 0
        for count, message in zip(rows, messages, strict=True):
            parts = [whole[start : start + count] for whole in gathered]
            if len(message) != sum(part.nbytes for part in parts):
                raise _known_to_all(
                    ArgumentError(f"processes: they computed arrays of different shapes ({title})")
                )
            offset = 0
            for part in parts:
                part[...] = np.frombuffer(message, part.dtype, part.size, offset).reshape(part.shape)
                offset += part.nbytes
            start += count
        kept = [keyed_as(leaf, numbers) for leaf, numbers in zip(leaves, gathered, strict=True)]
        return jax.tree.unflatten(treedef, kept)

    def of_the_first(self, title: str, tree: PyTree | None, like: PyTree) -> PyTree | None:
        """Return the first process's pytree, or `None`, in all; with the structure and shapes of `like`."""
        if self.size == 1:
            return tree
        message = b""
        if self.index == 0 and tree is not None:
            message = b"".join(np.asarray(raw_numbers(leaf)).tobytes() for leaf in jax.tree.leaves(tree))
        message = self.exchange(title, message)[0]
        leaves, treedef = jax.tree.flatten(like)
        # No bytes stand for `None`.
        if not message:
            return None
        kept, offset = [], 0
        for leaf in leaves:
            numbers = np.asarray(raw_numbers(leaf))
            part = np.frombuffer(message, numbers.dtype, numbers.size, offset).reshape(numbers.shape)
            # Arrays over the bytes of a message are read-only.
            kept.append(keyed_as(leaf, part.copy()))
            offset += part.nbytes
        return jax.tree.unflatten(treedef, kept)

    def least(self, title: str, number: int) -> int:
        """Return the smallest of all processes' numbers."""
        told = self.exchange(title, number.to_bytes(8, "little"))
        return min(int.from_bytes(each, "little") for each in told)

    def largest(self, title: str, *numbers: float) -> list[float]:
        """Return the elementwise maximum of all processes' numbers."""
        told = self.exchange(title, np.asarray(numbers, np.float64).tobytes())
        return np.max([np.frombuffer(each) for each in told], axis=0).tolist()

    def neighbours(self, title: str) -> int:
        """Return the number of processes on this one's machine, itself included."""
        hosts = self.exchange(title, platform.node().encode())
        return hosts.count(hosts[self.index])

    def check_alike(self, said: Mapping[str, Any]) -> None:
        """Raise unless all processes say the same; the error names the difference.

        Raises:
          ArgumentError: a value that differs between two processes.
        """
        ours = {**_versions(), "backend": jax.default_backend(), **said}
        told = [json.loads(text) for text in self.exchange("start", json.dumps(ours).encode())]
        for index, theirs in enumerate(told):
            for name in ours:
                if theirs.get(name) != told[0].get(name):
                    shown = [str(each.get(name)) for each in (told[0], theirs)]
                    told_apart = f" ({shown[0]} and {shown[1]})" if max(map(len, shown)) < 40 else ""
                    raise _known_to_all(
                        ArgumentError(
                            f"processes: process 0 and process {index} differ in {name}{told_apart}; start "
                            "the same program everywhere"
                        )
                    )

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make a failure of one process within the block a failure of all, with its message."""
        try:
            yield
            self.exchange("end", b"")
        except LostProcessError:
            raise
        except Exception as error:
            if self.size > 1 and not getattr(error, _KNOWN, False):
                kind = "" if isinstance(error, ArgumentError) else f"{type(error).__name__}: "
                self.exchange("failure", f"{kind}{error}".encode(errors="replace"), failed=True)
                _known_to_all(error)
            raise

    def _told(self, message: bytes, size: int) -> np.ndarray:
        """Exchange one block of bytes per process; return them, shape (processes, size)."""
        block = np.zeros((1, size), np.uint8)
        block[0, : len(message)] = np.frombuffer(message, np.uint8)
        first: dict[int, jax.Device] = {}
        for device in jax.devices():
            first.setdefault(device.process_index, device)
        mesh = Mesh(np.asarray([first[index] for index in range(self.size)]), (PROCESSES,))
        try:
            # One device per process holds its block; resharding them to every device is the exchange.
            split = NamedSharding(mesh, PartitionSpec(PROCESSES))
            blocks = jax.make_array_from_process_local_data(split, block, (self.size, size))
            return np.asarray(_everywhere(mesh, blocks).addressable_data(0))
        except (ValueError, jax.errors.JaxRuntimeError) as error:
            raise LostProcessError(
                f"processes: another process has ended, or cannot be reached ({first_line(error)})"
            ) from error


@partial(jax.jit, static_argnums=0)
def _everywhere(mesh: Mesh, blocks: Array) -> Array:
    return jax.lax.with_sharding_constraint(blocks, NamedSharding(mesh, PartitionSpec()))


@contextlib.contextmanager
def taking_part(is_one_of_several: bool = True) -> Iterator[None]:
    """Run a command's block in `Team.together` of all processes; wait if another process has ended.

    JAX reports below Python which process ended, and ends this one, as soon as it misses the heartbeat.
    """
    if not is_one_of_several:
        yield
        return
    try:
        with Team.of(ALL_HOSTS).together():
            yield
    except LostProcessError:
        time.sleep(2 * HEARTBEAT_SECONDS)
        raise


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Join a program of several processes by `jax.distributed.initialize`, before JAX does anything else.

    The others notice within `HEARTBEAT_SECONDS` that a process has ended, not after JAX's 100.

    Args:
      coordinator: `host:port`, where the first process can be reached; `None` for what JAX finds out by
        itself, from SLURM, Open MPI, Kubernetes or a TPU pod, as for the others.
      processes: how many there are.
      process: index of this process.

    Raises:
      ArgumentError: a port that is taken, a coordinator that does not answer, no cluster.
    """
    if coordinator is not None:
        host, port = coordinator.rsplit(":", 1)
        if process == 0:
            _check_free(int(port), coordinator)
        else:
            _wait_for(host.strip("[]"), int(port), coordinator)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        if coordinator is None:
            raise ArgumentError(
                "--distributed: found no cluster of SLURM, Open MPI, Kubernetes or a TPU pod "
                f"({first_line(error)}); give --processes N to start N on this machine, or --coordinator "
                "HOST:PORT --processes N --process I"
            ) from None
        raise ArgumentError(
            f"--processes: not all {processes} have joined within {START_SECONDS} s ({first_line(error)})"
        ) from None


def _check_free(port: int, coordinator: str) -> None:
    with socket.socket(socket.AF_INET) as there:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            there.bind(("", port))
        except OSError as error:
            raise ArgumentError(
                f"--coordinator: cannot listen at {coordinator} ({error.strerror}); choose another port"
            ) from None


def _wait_for(host: str, port: int, coordinator: str) -> None:
    latest = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), timeout=5):
                return
        except OSError as error:
            if time.monotonic() > latest:
                raise ArgumentError(
                    f"--coordinator: no answer from {coordinator} after {START_SECONDS} s "
                    f"({error.strerror or error}); is process 0 running there?"
                ) from None
        time.sleep(0.2)


def local_devices(devices: Sequence[jax.Device] | str | None) -> list[jax.Device]:
    """Return this process's devices that an option `devices` names."""
    if devices is None or isinstance(devices, str):
        return list(jax.local_devices())
    return list(devices)


_KNOWN = "is_known_to_all_processes"


def _known_to_all(error: Any) -> Any:
    """Mark an error that every process raises by itself, so that it is not sent to the others."""
    setattr(error, _KNOWN, True)
    return error


def _versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in ("jaxarch", "jax", "jaxlib")}
