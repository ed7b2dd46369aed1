"""Launcher of one command's processes: it watches them, says which one ended, and uses no JAX itself."""

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
"""Environment variable that gives a process started here its `Place`, as JSON."""
LOST = 1
"""Exit status if a process was killed or could not reach the others."""
PATIENCE_SECONDS = 45.0
"""Seconds that the others have to end by themselves once one has failed; longer than a heartbeat timeout."""
GRACE_SECONDS = 5.0
"""Seconds that the others have to end once they are told to."""

_FATAL = "JAX distributed service detected fatal errors"
_UNHEALTHY = re.compile(r"stopped sending heartbeats\):?\s*((?:\S*\d+\s)+)")


@dataclasses.dataclass(frozen=True)
class Place:
    """Place of a process among all processes of a command; JAX itself finds out what is `None`.

    Attributes:
      coordinator: `host:port` of the first process.
      processes: the number of processes.
      process: the index of this process, from 0.
      cores: the number of CPU cores that it uses; `None` for all that it may use.
      terminal: the file descriptor for messages shown while it runs; `None` to show none.
      parent: the file descriptor of a pipe that closes when the parent process ends.
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
      ArgumentError: names the option that is missing or wrong.
    """
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    for name, value in given.items():
        if value is not None and not distributed:
            raise ArgumentError(
                f"{name}: works only with --distributed; add --distributed, or leave {name} out"
            )
    if processes is not None and processes < 1:
        raise ArgumentError(f"--processes: expected at least 1, got {processes}")
    if coordinator is None and process is None:
        return
    for name, value in given.items():
        if value is None:
            raise ArgumentError(
                f"{name}: missing; to start N processes by hand, give --coordinator HOST:PORT --processes N "
                "--process I in each; to start all on this machine, give --processes N alone"
            )
    host, _, port = str(coordinator).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ArgumentError(f"--coordinator: expected HOST:PORT of process 0, got {shown(coordinator)}")
    assert processes is not None and process is not None
    if not 0 <= process < processes:
        raise ArgumentError(f"--process: expected 0 to {processes - 1}, got {process}")


def place() -> Place | None:
    """Return the place of this process if `launch` has started it, else `None`."""
    told = os.environ.get(PLACE)
    return None if told is None else Place(**json.loads(told))


def take_place(mine: Place) -> None:
    """Take the place given by `launch`: what libraries print goes to the parent, not to the user.

    The process ends when its parent is gone.
    """
    shown_at = os.open(os.devnull, os.O_WRONLY) if mine.terminal is None else os.dup(1)
    # Libraries that print to stdout below Python now write to the pipe that the parent reads.
    os.dup2(2, 1)
    sys.stdout = os.fdopen(shown_at, "w", buffering=1)
    if mine.terminal is not None:
        sys.stderr = os.fdopen(mine.terminal, "w", buffering=1)
    if mine.parent is not None:
        threading.Thread(target=_end_with, args=(mine.parent,), daemon=True).start()


def launch(coordinator: str | None, processes: int | None, process: int | None) -> int:
    """Run this command in a child process, or in all N if they are started on this machine.

    Returns:
      The exit status of the first process that failed by itself; `LOST` if one was killed.
    """
    is_local = coordinator is None and processes is not None
    if is_local:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    # However this process ends, its end of the pipe closes with it; the children see that and end too.
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
    # Otherwise the thread of `interruption.watch` would end this process a while after the first signal.
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
    """Child process: `jaxarch: ` lines are shown if it has a terminal; other lines of stderr are kept."""

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
            # Ctrl-C in the terminal then reaches only this process, which passes it on.
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @property
    def name(self) -> str:
        """Index and number of processes in words, as far as they are known."""
        if self.place.process is None:
            return f"the process on {socket.gethostname()}"
        return f"process {self.place.process} of {self.place.processes}"

    def status(self) -> int | None:
        """Return the exit status, negative for a signal; `None` while the process lives."""
        status = self.process.poll()
        if status is not None:
            self._reader.join(GRACE_SECONDS)
        return status

    def is_killed(self) -> bool:
        """Return whether a signal ended it for any reason other than losing another process."""
        return (self.status() or 0) < 0 and not self.is_after_another()

    def is_after_another(self) -> bool:
        """Return whether it was ended because it could not reach another process."""
        return self.status() == -signal.SIGABRT and _FATAL in "\n".join(self.said)

    def lost(self) -> str:
        """Name the processes that it could not reach."""
        text = "\n".join(self.said)
        found = _UNHEALTHY.search(text)
        numbers = sorted(set(re.findall(r"(\d+)\s", found[1]))) if found else ["0"]
        return f"process{'es' if len(numbers) > 1 else ''} {', '.join(numbers)}"

    def end(self) -> None:
        """Kill the process if it still lives, and wait for its end."""
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
    """Give each process started on this machine one GPU, where there are some; CPUs are not assigned."""
    return {} if place.cores is None else {"JAX_LOCAL_DEVICE_IDS": str(place.process)}


def _watched(children: list[_Child]) -> int:
    """Wait until all processes have ended, and return the exit status of the command."""
    failed = _wait_for(children)
    if failed is None:
        return 0
    if failed.is_after_another():
        _say(f"{failed.name} was ended because {failed.lost()} ended or cannot be reached")
        return LOST
    status = failed.status() or 0
    if status > 0 and failed.place.terminal is None and children[0].status() != status:
        for line in failed.said:
            print(line, file=sys.stderr)
    return LOST if status < 0 else status


def _wait_for(children: list[_Child]) -> _Child | None:
    """Wait until all have ended; end the others soon after a failure. Return the failed process, if any."""
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
    """Return a failed process, if any: the cause of a failure before a process that lost another."""
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
    """End this process when the other end of the pipe closes, which means that the parent is gone."""
    while os.read(parent, 1):
        pass
    os._exit(LOST)
