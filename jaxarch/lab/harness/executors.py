"""Executors for `--cluster`: processes of this machine, or the workers of a Dask scheduler."""

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
    """Return a function that makes an executor: `local:N` processes here, or a Dask scheduler's workers.

    Raises:
      ArgumentError: neither `local:N` nor an address; Dask is not installed.

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
    """Spawned processes of this machine; they end with this process, however it ends.

    If there are GPUs, each process sees one of them.

    Args:
      workers: the number of processes.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        # Whatever ends this process closes its end of the pipe; the workers see that and end too.
        ends, self._alive = context.Pipe(duplex=False)
        super().__init__(workers, context, initializer=_begin, initargs=(ends, _gpus()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Hand a call to a process."""
        # This process handles Ctrl-C and ends the workers; they inherit the blocked signal.
        with _without_interrupts():
            return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: after their current work if `wait`, else at once."""
        if not wait:
            self._alive.close()
        super().shutdown(wait=True, cancel_futures=cancel_futures)
        self._alive.close()


def _begin(ends: Connection, gpus: Sequence[str]) -> None:
    """Set up a worker process: assign its GPU, and watch for the end of the parent."""
    if gpus:
        # Python numbers the processes that it starts, in their names. A shared counter would need a
        # semaphore, which would be left behind if this process is interrupted.
        number = int(multiprocessing.current_process().name.rpartition("-")[2])
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
        # The driver may use the same GPU, so do not reserve its memory in advance.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    threading.Thread(target=_end_with, args=(ends,), daemon=True).start()


def _end_with(ends: Connection) -> None:
    with contextlib.suppress(OSError):
        ends.poll(None)
    os._exit(1)


def _gpus() -> tuple[str, ...]:
    """Return the GPUs of this process, as `CUDA_VISIBLE_DEVICES` names them."""
    count = sum(device.platform == "gpu" for device in jax.local_devices())
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(named.split(",") if named else map(str, range(count)))[:count]


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended; processes started in the block never get it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class DaskWorkers(Executor):
    """Workers of a Dask scheduler, which report their progress.

    Args:
      address: the address of the scheduler.

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
        # If calls counted as pure, Dask would answer a repeated call with the result of the first.
        self._executor = self._client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Hand a call to a worker."""
        return self._executor.submit(fn, *args, **kwargs)

    def told(self) -> list[dict[str, Any]]:
        """Return the messages of workers since the last call."""
        return [self._told.get() for _ in range(self._told.qsize())]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the scheduler, which drops unfinished calls."""
        with contextlib.suppress(Exception):
            self._executor.shutdown(wait and not cancel_futures)
            self._client.close(timeout=CLOSE_SECONDS)
