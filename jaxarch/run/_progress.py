"""A progress bar for `over_seeds` on terminals; plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from jaxarch._internal.memory import in_bytes
from jaxarch.run._options import Progress, RunPlan

PATIENCE = 5.0
"""Seconds of a wait that is worth a line where there are no bars."""


class _Count(ProgressColumn):
    """Steps taken and steps in all, as in `300/600`; empty before the first chunk's end."""

    def render(self, task: Task) -> Text:
        """Render the count."""
        return Text(
            "" if task.total is None else f"{task.completed:.0f}/{task.total:.0f}", "progress.download"
        )


class _Wait(NamedTuple):
    """A wait that is shown: its words, when it began, and its line among the bars."""

    words: str
    since: float
    task: TaskID | None


class ProgressBar:
    """Progress as bars: `with ProgressBar() as bar: over_seeds(..., progress=bar)`.

    Each training has one bar, and a line while its program is compiled. Until its first chunk ends, the bar
    says how much memory it takes; then it has step, time left and median loss. If the runs are trained in
    groups, the steps are those of all groups. A stage that does not train has a line while it runs. Where a
    line would not fit the terminal, names are cut off, and numbers are not.

    If the output is not a terminal, or outside of a `with` block, it prints one line when a training ends.
    Parts that other processes make have a bar too, which names them, or a line when their number changes.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        whole = Column(no_wrap=True)
        named = Column(ratio=1, no_wrap=True, overflow="ellipsis", min_width=12)
        self._bars = Bars(
            TextColumn("{task.description}", table_column=named),
            BarColumn(bar_width=12),
            _Count(table_column=whole),
            TimeRemainingColumn(compact=True, table_column=whole),
            TextColumn("{task.fields[told]}", table_column=whole),
            console=self.console,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._parts: int | None = None
        self._wait: _Wait | None = None

    def __enter__(self) -> ProgressBar:
        if self.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.doing("")
        # If the output is not a terminal, stopping bars that were not started would print an empty line.
        if self._bars.live.is_started:
            self._bars.stop()

    def doing(self, words: str) -> None:
        """Show what is waited for until the next call of any kind; with "" the wait is over.

        Without bars, a wait of five seconds or more is printed when it is over.
        """
        if self._wait is not None:
            seconds = time.monotonic() - self._wait.since
            if self._wait.task is not None:
                self._bars.remove_task(self._wait.task)
            elif seconds >= PATIENCE:
                self.console.print(f"{self._wait.words}: {seconds:.0f} s")
        self._wait = None
        if words:
            task = self._bars.add_task(words, total=None, told="") if self._bars.live.is_started else None
            self._wait = _Wait(words, time.monotonic(), task)

    def begins(self, plan: RunPlan) -> None:
        """Show a training before its first step, and the memory that it takes."""
        self.doing("")
        if self._bars.live.is_started and plan.name not in self._tasks:
            takes = "" if plan.memory is None else f", {in_bytes(plan.memory.whole)} a device"
            self._tasks[plan.name] = self._bars.add_task(plan.name, total=None, told=f"first steps{takes}")

    def __call__(self, progress: Progress) -> None:
        """Show a chunk's end."""
        self.doing("")
        group = f" ({progress.group + 1} of {progress.groups})" if progress.groups > 1 else ""
        description = f"{progress.name}{group}"
        told = "" if progress.loss is None else f"loss {progress.loss:.3g}"
        if progress.making is not None:
            told = ", ".join(progress.making)
            if not self._bars.live.is_started:
                if progress.step != self._parts:
                    self._parts = progress.step
                    self.console.print(f"{description}: {progress.step} of {progress.steps}")
                return
        if not self._bars.live.is_started:
            if progress.step >= progress.steps:
                runs = f"{progress.runs} runs" if progress.runs > 1 else "1 run"
                ended = [f"{progress.steps} steps", runs, *([told] if told else [])]
                self.console.print(f"{description}: {', '.join(ended)}")
            return
        if progress.name not in self._tasks:
            self._tasks[progress.name] = self._bars.add_task(description, told=told)
        total, completed = progress.groups * progress.steps, progress.group * progress.steps + progress.step
        task = self._tasks[progress.name]
        self._bars.update(task, description=description, total=total, completed=completed, told=told)
