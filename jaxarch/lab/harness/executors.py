"""What `--cluster` names: processes of this machine, or the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import queue
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import jax

from jaxarch import ArgumentError
from jaxarch.lab.checks import check_count, first_line, shown

CONNECT_SECONDS = 10
CLOSE_SECONDS = 2


def executor_of(cluster: str) -> Callable[[], Executor]:
    """What makes the executor that a text names: `local:N` for processes here, or a Dask scheduler's address.

    Raises:
      ArgumentError: a text that is neither; Dask is not installed.

    Example:
      >>> from jaxarch.lab.harness import executor_of
      >>> make = executor_of("local:2")  # nothing is started before it is called
      >>> executor_of("8786")
      Traceback (most recent call last):
      jaxarch.ArgumentError: cluster: expected local:N or the address of a Dask scheduler, as \
tcp://HOST:8786, got '8786'
    """
    kind, _, rest = cluster.partition(":")
    if kind == "local" and rest.isdecimal():
        check_count("cluster", int(rest))
        return partial(LocalProcesses, int(rest))
    if "://" not in cluster:
        raise ArgumentError(
            "cluster: expected local:N or the address of a Dask scheduler, as tcp://HOST:8786, got "
            f"{shown(cluster)}"
        )
    if importlib.util.find_spec("distributed") is None:
        raise ArgumentError("cluster: Dask is not installed; pip install 'jaxarch[cluster]'")
    return partial(DaskWorkers, cluster)


class LocalProcesses(ProcessPoolExecutor):
    """Processes of this machine, which are spawned, and end with this one however that ends.

    Where there are GPUs, each process sees one of them.

    Args:
      workers: how many.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        # The other end is closed by whatever ends this process, and then they end too.
        ends, self._alive = context.Pipe(duplex=False)
        super().__init__(workers, context, initializer=_begin, initargs=(ends, _gpus()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Hand a call to a process."""
        # Ctrl-C is for this process, which ends them; they inherit that it is blocked.
        with _without_interrupts():
            return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: when they have made what they have, or at once."""
        if not wait:
            self._alive.close()
        super().shutdown(wait=True, cancel_futures=cancel_futures)
        self._alive.close()


def _begin(ends: Connection, gpus: Sequence[str]) -> None:
    """The first thing that a process does."""
    if gpus:
        # Python numbers the processes that it starts, in their names. A number that they share would take a
        # semaphore, which is left behind where this process is interrupted.
        number = int(multiprocessing.current_process().name.rpartition("-")[2])
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
        # The process that hands out parts may have the same one.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    threading.Thread(target=_end_with, args=(ends,), daemon=True).start()


def _end_with(ends: Connection) -> None:
    with contextlib.suppress(OSError):
        ends.poll(None)
    os._exit(1)


def _gpus() -> tuple[str, ...]:
    """The GPUs of this process, as `CUDA_VISIBLE_DEVICES` names them."""
    count = sum(device.platform == "gpu" for device in jax.local_devices())
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(named.split(",") if named else map(str, range(count)))[:count]


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits until the block has ended; what is started in it never hears of it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class DaskWorkers(Executor):
    """The workers of a Dask scheduler, which tell how far they are.

    Args:
      address: the scheduler's.

    Raises:
      ArgumentError: no scheduler answers there.
    """

    def __init__(self, address: str) -> None:
        from distributed import Client

        self.topic = f"jaxarch-{uuid.uuid4().hex}"
        self._told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False, name="jaxarch")
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"cluster: no Dask scheduler answers at {shown(address)} ({first_line(error)})"
            ) from error
        self._client.subscribe_topic(self.topic, lambda event: self._told.put(event[1]))
        self._executor = self._client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Hand a call to a worker."""
        return self._executor.submit(fn, *args, **kwargs)

    def told(self) -> list[dict[str, Any]]:
        """What workers have told since the last time."""
        return [self._told.get() for _ in range(self._told.qsize())]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the scheduler, which forgets what was not made."""
        with contextlib.suppress(Exception):
            self._executor.shutdown(wait and not cancel_futures)
            self._client.close(timeout=CLOSE_SECONDS)
