"""The progress display of a run: a live bar, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import rich.console
import rich.progress
import rich.table

from kauldron import status

_PLAIN_LINE_SECONDS = 60.0
_PLAIN_LINE_SHARE = 0.05
_UPDATE_SECONDS = 0.1


class Progress:
    """A live bar in a terminal or notebook, plain lines elsewhere; lead host only.

    One inside the block of another (an evaluation along training) is a second line of
    the same display.
    """

    _display: ClassVar[rich.progress.Progress | None] = None

    def __init__(
        self, desc: str, *, step: int, last_step: int | None, activity: str = "training"
    ):
        self._desc = desc
        self._first = step
        self._step = step
        self._last = last_step
        self._activity = activity
        self._work = "compiling"  # what the next step does
        self._shown = self._work
        self._start = time.monotonic()
        self._plain_step = step
        self._plain_time = self._start
        self._next_update = 0.0
        self._values = ""
        self._bar: rich.progress.Progress | None = None
        self._is_outermost = False

    def __enter__(self) -> Progress:
        console = rich.console.Console(stderr=True)
        if not status.is_lead_host or not (console.is_terminal or console.is_jupyter):
            return self
        display = Progress._display
        self._is_outermost = display is None
        if display is None:
            display = Progress._display = _make_bar(console)
            display.start()
        self._bar = display
        self._task = display.add_task(
            self._desc,
            total=self._last,
            completed=self._step,
            values="",
            doing=self._shown,
        )
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is None:
            return
        self._bar.remove_task(self._task)
        if self._is_outermost:
            self._bar.stop()
            Progress._display = None
        self._bar = None

    def doing(self, what: str) -> None:
        """Show what happens between steps, until `resume`."""
        self._shown = what
        if self._bar is not None:
            self._bar.update(self._task, completed=self._step, doing=what)

    def resume(self) -> None:
        """Show that steps go on: the first one is compiled."""
        if self._shown != self._work:
            self.doing(self._work)

    def update(
        self,
        step: int,
        values: Mapping[str, Any] | None = None,
        *,
        speed: float | None = None,
    ) -> None:
        """Show that `step` updates are done, with the newest losses.

        Args:
          step: Number of updates.
          values: Losses by name.
          speed: Steps per second as the log reports them; otherwise they are measured.
        """
        self._step = step
        self._work = self._activity
        now = time.monotonic()
        if now < self._next_update and step != self._last:  # faster than anyone reads
            return
        self._next_update = now + _UPDATE_SECONDS
        if values:
            self._values = _format_losses(values)
        if self._bar is not None:
            self._shown = self._work
            self._bar.update(
                self._task,
                completed=step,
                values=self._values,
                doing=self._work,
                speed=speed,
            )
        elif status.is_lead_host:
            self._maybe_print_line(now, speed)

    def _maybe_print_line(self, now: float, speed: float | None) -> None:
        total = (self._last or 0) - self._first
        is_far = self._step - self._plain_step >= max(1, total * _PLAIN_LINE_SHARE)
        if not is_far or now - self._plain_time < _PLAIN_LINE_SECONDS:
            return
        rate = speed or (self._step - self._plain_step) / (now - self._plain_time)
        self._plain_step, self._plain_time = self._step, now
        of_total = f" of {self._last}" if self._last is not None else ""
        status.log(
            f"{self._desc}: step {self._step}{of_total}, {rate:.3g} steps/s "
            f"{self._values}".rstrip()
        )


def _make_bar(console: rich.console.Console) -> rich.progress.Progress:
    return rich.progress.Progress(
        rich.progress.TextColumn("[bold]{task.description}"),
        rich.progress.BarColumn(bar_width=30),
        rich.progress.MofNCompleteColumn(),
        _StepsPerSecond(),
        rich.progress.TimeRemainingColumn(compact=True),
        rich.progress.TextColumn("[cyan]{task.fields[values]}"),
        rich.progress.TextColumn("[dim]{task.fields[doing]}"),
        console=console,
        transient=True,
    )


class _StepsPerSecond(rich.progress.ProgressColumn):
    def render(self, task: rich.progress.Task) -> str:
        speed = task.fields.get("speed") or task.speed
        return f"{speed:.3g} steps/s" if speed else "- steps/s"


def _format_losses(values: Mapping[str, Any]) -> str:
    names = ["losses/total"] if "losses/total" in values else list(values)[:2]
    return " ".join(
        f"{name.removeprefix('losses/')}={float(values[name]):.4g}" for name in names
    )
