"""Starts the processes of one command, watches them, and says which one ended: it uses no JAX itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from types import FrameType
from typing import IO

from jaxarch import ArgumentError
from jaxarch._internal.cpu_cores import available_cores
from jaxarch._internal.errors import shown

PLACE = "JAXARCH_PROCESS"
"""The environment variable that tells a process that was started here which one it is."""
LOST = 1
"""Exit status where a process ended by itself: it was killed, or could not reach the others."""
PATIENCE_SECONDS = 45.0
"""How long the others have to end by themselves when one has ended: longer than its heartbeat is missed."""
GRACE_SECONDS = 5.0
"""How long they have when they are told to."""

_FATAL = "JAX distributed service detected fatal errors"
_UNHEALTHY = re.compile(r"stopped sending heartbeats\):?\s*((?:\S*\d+\s)+)")


@dataclasses.dataclass(frozen=True)
class Place:
    """Which process of how many, as the command line says it; `None` is what JAX finds out by itself.

    Attributes:
      coordinator: `host:port` of the first process.
      processes: how many there are.
      process: which this is.
      cores: how many CPU cores it uses; `None` for all that it may.
      terminal: the file descriptor of what is shown while it runs, if it is shown at all.
      parent: one that ends with who has started it.
    """

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None
    cores: int | None = None
    terminal: int | None = None
    parent: int | None = None


def check(distributed: bool, coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Refuse options of the command line that do not go together.

    Raises:
      ArgumentError: naming what is missing.
    """
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    for name, value in given.items():
        if value is not None and not distributed:
            raise ArgumentError(f"{name}: expected --distributed beside it")
    if processes is not None and processes < 1:
        raise ArgumentError(f"--processes: expected at least 1, got {processes}")
    if coordinator is None and process is None:
        return
    for name, value in given.items():
        if value is None:
            raise ArgumentError(
                f"{name}: expected too: by hand it is --coordinator HOST:PORT --processes N --process I, in "
                "each of N processes; on one machine --processes N alone starts them"
            )
    host, _, port = str(coordinator).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ArgumentError(f"--coordinator: expected HOST:PORT of process 0, got {shown(coordinator)}")
    assert processes is not None and process is not None
    if not 0 <= process < processes:
        raise ArgumentError(f"--process: expected 0 to {processes - 1}, got {process}")


def place() -> Place | None:
    """Which process this is, if `launch` has started it."""
    told = os.environ.get(PLACE)
    return None if told is None else Place(**json.loads(told))


def take_place(mine: Place) -> None:
    """Be the process that `launch` has started: what libraries print goes to it, and not to the user.

    It ends when the one that has started it is gone.
    """
    shown_at = os.open(os.devnull, os.O_WRONLY) if mine.terminal is None else os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(shown_at, "w", buffering=1)
    if mine.terminal is not None:
        sys.stderr = os.fdopen(mine.terminal, "w", buffering=1)
    if mine.parent is not None:
        threading.Thread(target=_end_with, args=(mine.parent,), daemon=True).start()


def launch(coordinator: str | None, processes: int | None, process: int | None) -> int:
    """Run this command in a process of its own, or in all of them where they are on this machine.

    Returns:
      The exit status: that of the first process that failed by itself, `LOST` if one was killed.
    """
    is_local = coordinator is None and processes is not None
    if is_local:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    # The other end is closed with this process, however that ends.
    parent, _ = os.pipe()
    terminal = os.dup(2)
    children = []
    for index in range(processes) if is_local and processes else (process,):
        is_shown = not is_local or index == 0
        mine = Place(
            coordinator,
            processes,
            index,
            max(available_cores() // processes, 1) if is_local and processes else None,
            terminal if is_shown else None,
            parent,
        )
        children.append(_Child(mine))
    os.close(parent)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: _tell(children, number, frame))
    try:
        return _watched(children)
    finally:
        for child in children:
            child.end()


class _Child:
    """A process of the program: what it says below Python is kept, lines of the command are shown."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.said: deque[str] = deque(maxlen=400)
        fds = [fd for fd in (place.terminal, place.parent) if fd is not None]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jaxarch", *sys.argv[1:]],
            env=os.environ | {PLACE: json.dumps(dataclasses.asdict(place))} | _own_gpu(place),
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=fds,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @property
    def name(self) -> str:
        """Which of how many it is, as far as that is known."""
        if self.place.process is None:
            return f"the process on {socket.gethostname()}"
        return f"process {self.place.process} of {self.place.processes}"

    def status(self) -> int | None:
        """Its exit status, negative for a signal; `None` while it lives."""
        status = self.process.poll()
        if status is not None:
            self._reader.join(GRACE_SECONDS)
        return status

    def is_killed(self) -> bool:
        """Return whether a signal ended it, and not because it could not reach another one."""
        return (self.status() or 0) < 0 and not self.is_after_another()

    def is_after_another(self) -> bool:
        """Whether it was ended because it could not reach another one."""
        return self.status() == -signal.SIGABRT and _FATAL in "\n".join(self.said)

    def lost(self) -> str:
        """Who it could not reach."""
        text = "\n".join(self.said)
        found = _UNHEALTHY.search(text)
        numbers = sorted(set(re.findall(r"(\d+)\s", found[1]))) if found else ["0"]
        return f"process{'es' if len(numbers) > 1 else ''} {', '.join(numbers)}"

    def end(self) -> None:
        """End it for certain."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("jaxarch: ") and self.place.terminal is not None:
                _say(line.removeprefix("jaxarch: ").rstrip("\n"))
            else:
                self.said.append(line.rstrip("\n"))


def _own_gpu(place: Place) -> dict[str, str]:
    """Of processes of one machine each has a GPU of its own, where there are some; CPUs are not told so."""
    return {} if place.cores is None else {"JAX_LOCAL_DEVICE_IDS": str(place.process)}


def _watched(children: list[_Child]) -> int:
    """The exit status of them all, when all have ended."""
    failed = _wait_for(children)
    if failed is None:
        return 0
    if failed.is_after_another():
        _say(f"{failed.name} was ended, since {failed.lost()} ended or cannot be reached")
        return LOST
    status = failed.status() or 0
    if status > 0 and failed.place.terminal is None and children[0].status() != status:
        for line in failed.said:
            print(line, file=sys.stderr)
    return LOST if status < 0 else status


def _wait_for(children: list[_Child]) -> _Child | None:
    """Wait until all have ended, and end the others soon after one that failed, which is returned."""
    failed: _Child | None = None
    latest = float("inf")
    while any(child.status() is None for child in children):
        if failed is not None and time.monotonic() > latest:
            for child in children:
                child.end()
        elif failed is None and (failed := _first_failed(children)) is not None:
            if failed.is_killed():
                _say_killed(failed, len(children))
                _tell(children, signal.SIGTERM)
            is_signal = (failed.status() or 0) < 0
            latest = time.monotonic() + (GRACE_SECONDS if is_signal else PATIENCE_SECONDS)
        time.sleep(0.05)
    if failed is None and (failed := _first_failed(children)) is not None and failed.is_killed():
        _say_killed(failed, len(children))
    return failed


def _first_failed(children: list[_Child]) -> _Child | None:
    """One that has ended as it should not: rather one that was the cause than one that lost another."""
    failed = [child for child in children if child.status() not in (None, 0)]
    return min(failed, key=_Child.is_after_another, default=None)


def _say_killed(child: _Child, children: int) -> None:
    number = -(child.status() or 0)
    others = "; the others are ended too" if children > 1 else ""
    _say(f"{child.name} ended (signal {number}){others}")
    if number not in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        for line in child.said:
            print(line, file=sys.stderr)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"jaxarch: {line}\n".encode(errors="backslashreplace"))


def _tell(children: list[_Child], number: int, frame: FrameType | None = None) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(number)


def _end_with(parent: int) -> None:
    """End when the other end of a pipe is closed: its process is gone."""
    while os.read(parent, 1):
        pass
    os._exit(LOST)
