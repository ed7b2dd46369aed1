"""Ctrl-C and SIGTERM end the command line with one line and status 130 or 143, at any moment."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

GRACE_SECONDS = 2.0
"""How long the main thread has to clean up; it may be in a compiler that does not look at signals."""

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Stopped(BaseException):
    """The process was asked to stop. No `KeyboardInterrupt`: other libraries catch that one."""


def run(command: Callable[[], None]) -> None:
    """Run a command so that a signal ends it with one line, where it cleans up on `Stopped`."""
    stop = _Stop()
    try:
        try:
            stop.watch()
            command()
        finally:
            stop.ignore()
    except BaseException:
        # Whatever a library made of `Stopped` on its way.
        if stop.received is not None:
            stop.end()
        raise


def tell(what_is_left: Callable[[], str]) -> None:
    """From here on there is something to clean up: a signal raises, and the line says what it leaves.

    Before, a signal ends the process where it is: an exception would pass through the imports of other
    libraries, which do not expect it.
    """
    _Stop.what_is_left = staticmethod(what_is_left)
    _Stop.raises = True


class _Stop:
    """The signals of this process."""

    what_is_left: Callable[[], str] = staticmethod(lambda: "nothing was written")
    raises = False

    def __init__(self) -> None:
        self.received: int | None = None
        # One that the shell has told the process to ignore stays ignored, as under `nohup`.
        self._signals = [number for number in _WORDS if signal.getsignal(number) != signal.SIG_IGN]
        self._ending = threading.Lock()

    def watch(self) -> None:
        """From here on a signal ends the process, or raises `Stopped` where something is to be cleaned up.

        What does not get through ends the process too, after a while.
        """
        self._wakeup, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._insist, daemon=True).start()
        for number in self._signals:
            signal.signal(number, self._stop)
        show = sys.unraisablehook
        # In a finaliser nothing can be raised. The process ends all the same, when its time is over.
        sys.unraisablehook = lambda args: None if issubclass(args.exc_type, Stopped) else show(args)

    def ignore(self) -> None:
        """All is done; the end of the interpreter is not to be disturbed."""
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)

    def end(self) -> None:
        """Say what is left, and end the process at once, whatever its other threads do."""
        self._ending.acquire()  # Never released: the line is said once.
        assert self.received is not None
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        # On a terminal, over the ^C and what a progress bar has left; and the cursor is shown again.
        clear = "\r\x1b[K\x1b[?25h" if os.isatty(2) else ""
        line = f"{clear}jaxarch: {_WORDS[signal.Signals(self.received)]}; {self.what_is_left()}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode(errors="backslashreplace"))
        os._exit(128 + self.received)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            if not self.raises:
                self.end()
            raise Stopped

    def _insist(self) -> None:
        """End the process when the main thread has had its time, or is told a second time."""
        received = os.read(self._wakeup, 1)[0]
        select.select([self._wakeup], [], [], GRACE_SECONDS)
        self.received = received if self.received is None else self.received
        self.end()
