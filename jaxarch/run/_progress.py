"""A progress bar for `over_seeds` on terminals; plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from jaxarch._internal.memory import in_bytes
from jaxarch.run._options import Progress, RunPlan


class ProgressBar:
    """Progress as bars: `with ProgressBar() as bar: over_seeds(..., progress=bar)`.

    Each training has one bar, with step, time left and median loss; if its runs are trained in groups, the
    steps are those of all groups. If the output is not a terminal, or outside of a `with` block, it prints
    one line when a training ends. Parts that other processes make have a bar too, which names them, or a line
    when their number changes.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description:<40}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[loss]}"),
            console=self.console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._parts: int | None = None

    def __enter__(self) -> ProgressBar:
        if self.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # If the output is not a terminal, stopping bars that were not started would print an empty line.
        if self._bars.live.is_started:
            self._bars.stop()

    def begins(self, plan: RunPlan) -> None:
        """Show a training before its first step, and the memory that it takes."""
        if self._bars.live.is_started and plan.name not in self._tasks:
            takes = "" if plan.memory is None else f"{in_bytes(plan.memory.whole)} per device"
            self._tasks[plan.name] = self._bars.add_task(plan.name, total=None, loss=takes)

    def __call__(self, progress: Progress) -> None:
        """Show a chunk's end."""
        group = f" ({progress.group + 1} of {progress.groups})" if progress.groups > 1 else ""
        description = f"{progress.name}{group}"
        loss = "" if progress.loss is None else f"loss {progress.loss:.3g}"
        if progress.making is not None:
            loss = ", ".join(progress.making)
            if not self._bars.live.is_started:
                if progress.step != self._parts:
                    self._parts = progress.step
                    self.console.print(f"{description}: {progress.step} of {progress.steps}")
                return
        if not self._bars.live.is_started:
            if progress.step >= progress.steps:
                runs = f"{progress.runs} runs" if progress.runs > 1 else "1 run"
                told = [f"{progress.steps} steps", runs, *([loss] if loss else [])]
                self.console.print(f"{description}: {', '.join(told)}")
            return
        if progress.name not in self._tasks:
            self._tasks[progress.name] = self._bars.add_task(description, loss=loss)
        total, completed = progress.groups * progress.steps, progress.group * progress.steps + progress.step
        task = self._tasks[progress.name]
        self._bars.update(task, description=description, total=total, completed=completed, loss=loss)
