"""Signal handling: Ctrl-C and SIGTERM end the command line with one line and status 130 or 143."""

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
"""Seconds for the main thread to clean up; it may be in a compiler that does not react to signals."""

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Stopped(BaseException):
    """The process was asked to stop. Not a `KeyboardInterrupt`, which other libraries catch."""


def run(command: Callable[[], None]) -> None:
    """Run a command so that a signal ends it with one line, after any cleanup on `Stopped`."""
    stop = _Stop()
    try:
        try:
            stop.watch()
            command()
        finally:
            stop.ignore()
    except BaseException:
        # A library may have turned `Stopped` into another exception on the way.
        if stop.received is not None:
            stop.end()
        raise


def tell(what_is_left: Callable[[], str]) -> None:
    """Raise on a signal from now on, so that code can clean up; the final line says what is left.

    Before this call, a signal ends the process on the spot: an exception would pass through the imports of
    other libraries, which do not expect it.
    """
    _Stop.what_is_left = staticmethod(what_is_left)
    _Stop.raises = True


class _Stop:
    """Signal handlers of this process."""

    what_is_left: Callable[[], str] = staticmethod(lambda: "nothing was written")
    raises = False

    def __init__(self) -> None:
        self.received: int | None = None
        # A signal that the shell told the process to ignore stays ignored, as under `nohup`.
        self._signals = [number for number in _WORDS if signal.getsignal(number) != signal.SIG_IGN]
        self._ending = threading.Lock()

    def watch(self) -> None:
        """End the process on a signal from now on, or raise `Stopped` if there is something to clean up.

        If the exception does not get through, the process ends after a while.
        """
        self._wakeup, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._insist, daemon=True).start()
        for number in self._signals:
            signal.signal(number, self._stop)
        show = sys.unraisablehook
        # A finalizer cannot raise. The process still ends when the grace period is over.
        sys.unraisablehook = lambda args: None if issubclass(args.exc_type, Stopped) else show(args)

    def ignore(self) -> None:
        """Ignore signals once all work is done, so that they do not disturb the interpreter's exit."""
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)

    def end(self) -> None:
        """Print what is left, and end the process at once, whatever its other threads do."""
        self._ending.acquire()  # Never released, so that the line is printed only once.
        assert self.received is not None
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        # On a terminal, overwrite the ^C and a leftover progress bar, and show the cursor again.
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
        """End the process when the main thread's grace period is over, or at a second signal."""
        received = os.read(self._wakeup, 1)[0]
        select.select([self._wakeup], [], [], GRACE_SECONDS)
        self.received = received if self.received is None else self.received
        self.end()
