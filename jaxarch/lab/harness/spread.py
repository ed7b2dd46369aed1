"""Spread parts over an executor's workers; retry a part whose worker died, a bounded number of times."""

from __future__ import annotations

import contextlib
import time
import warnings
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from pickle import PicklingError
from typing import Any

from jaxarch import ArgumentError, Progress
from jaxarch.lab.checks import first_line, shown
from jaxarch.lab.harness.at_worker import Conditions, Failed, Made, make
from jaxarch.lab.harness.part import Part

ATTEMPTS = 10
"""Maximum attempts at a part. If Dask gives one up, after four workers died of it, that is one attempt."""
LOOK_SECONDS = 0.5
NEVER_AGAIN = (ImportError, AttributeError, TypeError, PicklingError)
"""Errors of an executor whose workers can never begin any part."""


class Spread:
    """Executor that makes parts, with a record of what happened to them.

    Args:
      executor: any executor with the interface of `concurrent.futures`; or a function without arguments that
        makes one. With a function, a broken executor is replaced, and the last one is shut down in the end.
      attempts: the maximum number of attempts at a part.

    Attributes:
      made: the number of parts that each worker process has made.
      again: the number of times that each part was made again, by name.
      warned: jaxarch's own warnings in the workers, one line each.

    Raises:
      ArgumentError: neither an executor nor a function; an executor that would fork this process, which uses
        JAX.
    """

    def __init__(self, executor: Executor | Callable[[], Executor], *, attempts: int = ATTEMPTS) -> None:
        self._factory: Callable[[], Executor] | None = None
        self._executor: Executor | None = None
        self._attempts = attempts
        if hasattr(executor, "submit"):
            self._executor = checked(executor)
        elif callable(executor):
            self._factory = executor
        else:
            raise ArgumentError(
                "executor: expected one of concurrent.futures, or a function that makes one, got "
                f"{shown(executor)}"
            )
        self.made: Counter[str] = Counter()
        self.devices: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.warned: dict[str, None] = {}

    def facts(self) -> dict[str, Any]:
        """Return the record for the manifest."""
        return {
            "workers": dict(self.made),
            "devices": dict(self.devices),
            "made again": dict(self.again),
            "warnings": list(self.warned),
        }

    def results(
        self,
        parts: Sequence[Part],
        package: Callable[[Part], bytes],
        *,
        devices: int = 0,
        done: int = 0,
        progress: Callable[[Progress], None] | None = None,
    ) -> Generator[tuple[Part, Any]]:
        """Make parts, and yield each when it is made.

        Args:
          parts: the parts to make.
          package: pickles a part for a worker; called when all parts that it needs were yielded.
          devices: the number of CPU devices of each worker; 0 for one.
          done: the number of parts of the experiment that exist already.
          progress: called for parts and, if workers can report, for their trainings; always in this thread.

        Raises:
          ArgumentError: the error of a part; a broken executor that cannot be replaced; a part whose worker
            died too often.
          RuntimeError: any other error of a part, with its traceback.
        """
        waiting = {part.name: part for part in parts}
        flying: dict[Future, tuple[Part, Executor]] = {}
        total, running = done + len(parts), _Running(progress)
        complete = False
        try:
            running.tell(done, total)
            while waiting or flying:
                self._submit(waiting, flying, package, max(devices, 1))
                finished, _ = wait(flying, LOOK_SECONDS, FIRST_COMPLETED)
                self._check_connected()
                running.look(self._executor, flying)
                failure = None
                # Go in the order of submission: the order of a set is arbitrary.
                for future in [future for future in flying if future in finished]:
                    part, executor = flying.pop(future)
                    try:
                        outcome = self._outcome(part, future, executor)
                    except Exception as error:
                        # Keep the other parts that are finished by now before raising.
                        failure = failure or error
                        continue
                    if outcome is None:
                        waiting[part.name] = part
                        continue
                    done += 1
                    running.end(part, outcome.ends)
                    yield part, self._noted(part, outcome)
                if failure is not None:
                    raise failure
                running.tell(done, total)
            complete = True
        finally:
            self._leave(flying, complete)

    def _submit(
        self,
        waiting: dict[str, Part],
        flying: dict[Future, tuple[Part, Executor]],
        package: Callable[[Part], bytes],
        devices: int,
    ) -> None:
        """Submit the parts that can be made now."""
        missing = set(waiting) | {part.name for part, _ in flying.values()}
        for name, part in list(waiting.items()):
            if missing & set(part.after):
                continue
            if self._executor is None:
                self._executor = self._made_anew()
            executor = self._executor
            if len(flying) >= _room(executor):
                break
            sent = Conditions.here(devices, getattr(executor, "topic", "")), package(part)
            try:
                future = executor.submit(make, *sent)
            except Exception as error:
                self._check_connected()
                self._lost(part, error, executor, broken=True)
                time.sleep(LOOK_SECONDS)
                break
            del waiting[name]
            flying[future] = (part, executor)

    def _check_connected(self) -> None:
        """Raise if Dask's client has lost its scheduler, since its futures would never end.

        A client that has lost it cancels its futures and tries to reconnect: nothing can be submitted before
        it has ended, in one way or the other.

        Raises:
          ArgumentError: the client is closed.
        """
        client = getattr(self._executor, "_client", None)
        while getattr(client, "status", "") in ("connecting", "closing"):
            time.sleep(LOOK_SECONDS)
        if getattr(client, "status", "") == "closed":
            raise ArgumentError(
                "cluster: the scheduler is gone; with `resume`, the same command goes on from the parts that "
                "are made"
            )

    def _made_anew(self) -> Executor:
        assert self._factory is not None
        return checked(self._factory())

    def _outcome(self, part: Part, future: Future, executor: Executor) -> Made | None:
        """Return what a worker made; `None` if the part is to be made again.

        Raises:
          ArgumentError: see `results`.
          RuntimeError: likewise.
        """
        try:
            outcome = future.result()
        except NEVER_AGAIN as error:
            raise ArgumentError(
                f"executor: its workers cannot make {part.name}: {type(error).__name__}: {first_line(error)}"
            ) from error
        except (Exception, CancelledError) as error:
            self._lost(part, error, executor, broken=isinstance(error, BrokenExecutor))
            return None
        if isinstance(outcome, Failed):
            if outcome.argument:
                raise ArgumentError(outcome.message)
            raise RuntimeError(f"{part.name} failed in {outcome.where}:\n{outcome.message}")
        return outcome

    def _lost(self, part: Part, error: BaseException, executor: Executor, broken: bool) -> None:
        """Count a part whose worker died, and drop the executor if it is broken.

        Raises:
          ArgumentError: no other executor can be made, or the part has used up its attempts.
        """
        self.again[part.name] += 1
        died = f"{type(error).__name__}: {first_line(error)}"
        if self.again[part.name] >= self._attempts:
            raise ArgumentError(
                f"executor: {part.name} was begun {self._attempts} times, and its worker died each time, the "
                f"last with {died}; has it memory enough?"
            ) from error
        if broken and executor is self._executor:
            if self._factory is None:
                raise ArgumentError(
                    f"executor: a worker died while {part.name} was made, and left the executor broken "
                    f"({died}); give a function that makes it, and it is made again"
                ) from error
            self._executor = None
            with contextlib.suppress(Exception):
                executor.shutdown(wait=False)

    def _noted(self, part: Part, outcome: Made) -> Any:
        self.made[outcome.where] += 1
        self.devices[outcome.devices] += 1
        for category, text in outcome.warned:
            if category.__module__ == "jaxarch":
                self.warned[f"{part.name}: {category.__name__}: {text}"] = None
            warnings.warn(text, category, stacklevel=2)
        return outcome.result

    def _leave(self, flying: dict[Future, tuple[Part, Executor]], complete: bool) -> None:
        """Cancel pending parts, and shut down the executor if it was made here."""
        # If Dask's scheduler is gone, nothing can be cancelled.
        with contextlib.suppress(Exception):
            for future in flying:
                future.cancel()
        if self._factory is None or self._executor is None:
            return
        executor, self._executor = self._executor, None
        if not complete:
            # Python waits at exit for the work that a pool's processes have begun, so end them here.
            for process in list((getattr(executor, "_processes", None) or {}).values()):
                process.terminate()
        with contextlib.suppress(Exception):
            executor.shutdown(wait=complete)


class _Running:
    """Parts that are being made, and the callback to report them to."""

    def __init__(self, progress: Callable[[Progress], None] | None) -> None:
        self._progress = progress
        self._running: dict[str, None] = {}
        self._told: tuple[Any, ...] = ()

    def look(self, executor: Executor | None, flying: dict[Future, tuple[Part, Executor]]) -> None:
        """Update the running parts, and pass on the messages of workers."""
        names = [part.name for part, _ in flying.values()]
        begun = {part.name for future, (part, _) in flying.items() if future.running()}
        for told in getattr(executor, "told", list)():
            begun.add(told.pop("part"))
            told.pop("worker", None)  # Dask's own.
            if told and self._progress is not None:
                self._progress(Progress(**told))
        self._running = {name: None for name in names if name in begun or name in self._running}

    def end(self, part: Part, ends: tuple[Progress, ...]) -> None:
        """Note that a part is made, and report the ends of its trainings."""
        self._running.pop(part.name, None)
        if self._progress is not None:
            for told in ends:
                self._progress(told)

    def tell(self, done: int, total: int) -> None:
        """Report the number of finished parts and the names of running ones, if they changed."""
        now = (done, tuple(self._running))
        if self._progress is not None and now != self._told:
            self._progress(Progress("parts", done, total, 0, 1, 1, None, making=now[1]))
        self._told = now


def checked(executor: Any) -> Executor:
    """Return the executor if it can be used.

    Raises:
      ArgumentError: not an executor, or one that would fork a process that uses JAX.
    """
    if not hasattr(executor, "submit"):
        raise ArgumentError(f"executor: expected one of concurrent.futures, got {shown(executor)}")
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ArgumentError(
            "executor: a process that uses JAX must not be forked; expected "
            "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))"
        )
    return executor


def _room(executor: Executor) -> float:
    """Return how many parts may be submitted at a time.

    When a worker of a pool dies, the pool loses all its parts. So it gets no more parts than it has workers.
    """
    workers = getattr(executor, "_max_workers", None)
    return workers if isinstance(workers, int) else float("inf")
