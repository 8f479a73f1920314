"""How far a loop is: a live line in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from kauldron import status
from kauldron.train.run.terminal import panel as panel_lib
from kauldron.writers import texts

_PLAIN_LINE_SECONDS = 60.0
_PLAIN_LINE_SHARE = 0.05
_UPDATE_SECONDS = 0.1
_LONGEST_BAR = 30
_SHORTEST_BAR = 8
_STATUS_WIDTH = len("evaluating test ")
_SHORTEST_MEASURED = 0.3  # seconds


class Progress:
    """Step, speed and what happens now; lead host only.

    One inside the block of another (an evaluation along training) is shown at the end of
    the other's line. The loop only sets attributes: a thread draws them now and then.
    """

    def __init__(
        self,
        desc: str,
        *,
        step: int,
        last_step: int | None,
        activity: str = "training",
        is_compiled: bool = False,
    ):
        self._desc = desc
        self._first = step
        self._step = step
        self._last = last_step
        self._activity = activity
        self._work = activity if is_compiled else "compiling"  # what a step does
        self._shown = self._work
        self._plain_step = step
        self._plain_time = self._start = time.monotonic()
        self._next_update = 0.0
        self._values = ""
        self._speed: float | None = None
        self._compiled: tuple[int, float] | None = None  # the first step after it, when
        self._data_wait: float | None = None
        self._slowest_stage: str | None = None
        self._panel: panel_lib.Panel | None = None
        self._is_outermost = False

    def __enter__(self) -> Progress:
        panel = panel_lib.current()
        if panel is None:
            panel = panel_lib.Panel.of_console()
            if panel is None:
                return self
            self._is_outermost = True
            panel.__enter__()
        self._panel = panel
        panel.loops.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._panel is None:
            return
        self._panel.loops.remove(self)
        if not self._panel.loops:
            self._panel.phase = "finishing"
        if self._is_outermost:
            self._panel.__exit__(*error)
        self._panel = None

    def doing(self, what: str) -> None:
        """Show what happens now, until `resume`."""
        self._shown = what

    def resume(self) -> None:
        """Show that steps go on: the first one is compiled."""
        self._shown = self._work

    def saved(self, step: int) -> None:
        """Show that a step was saved."""
        if self._panel is not None:
            self._panel.note_saved(step)

    def update(
        self,
        step: int,
        values: Mapping[str, Any] | None = None,
        *,
        speed: float | None = None,
        data_wait: float | None = None,
        slowest_stage: str | None = None,
    ) -> None:
        """Show that `step` updates are done, with the newest losses.

        The `speed` is that of the log; without one, it is measured here.
        """
        now = time.monotonic()
        self._step = step
        self._note_compilation(now, speed)
        self._work = self._shown = self._activity
        self._speed = speed
        self._data_wait = data_wait
        self._slowest_stage = slowest_stage
        if now < self._next_update:  # faster than anyone reads
            return
        self._next_update = now + _UPDATE_SECONDS
        if values:
            self._values = _format_losses(values)
        if self._panel is None and status.is_lead_host:
            self._maybe_print_line(now)

    def _note_compilation(self, now: float, speed: float | None) -> None:
        """Measure the speed from the end of a compilation: a given one includes it."""
        if self._shown == "compiling":
            self._compiled = (self._step, now)
        elif self._compiled is not None and speed:
            measured = self._speed_since(*self._compiled)
            if measured and speed >= measured / 2:
                self._compiled = None

    def _speed_since(self, step: int, start: float) -> float | None:
        """Return steps per second since then; `None` if that is too short ago."""
        seconds = time.monotonic() - start
        return (self._step - step) / seconds if seconds > _SHORTEST_MEASURED else None

    def _maybe_print_line(self, now: float) -> None:
        total = (self._last or 0) - self._first
        is_far = self._step - self._plain_step >= max(1, total * _PLAIN_LINE_SHARE)
        if not is_far or now - self._plain_time < _PLAIN_LINE_SECONDS:
            return
        rate = self._speed or (self._step - self._plain_step) / (now - self._plain_time)
        self._plain_step, self._plain_time = self._step, now
        of_total = f" of {self._last}" if self._last is not None else ""
        status.log(
            f"{self._desc}: step {self._step}{of_total}, {texts.rate(rate)} steps/s "
            f"{self._values}".rstrip()
        )

    #
    # The live line; drawn by another thread, which only reads
    #

    def line(
        self, width: int, *, inner: Progress | None, memory: str, has_table: bool
    ) -> Text:
        """Return the line; where room is short, the least important parts are dropped.

        Losses are left out if they stand in a table above.
        """
        shown = self._shown if inner is None else inner.state()
        count = str(self._step)
        if self._last is not None:
            count = f"{count.rjust(len(str(self._last)))}/{self._last}"
        parts = {  # from the most to the least important
            "shown": Text(shown, style="bold"),
            "count": Text(count),
            "left": Text(self._time_left()),
            "speed": Text(self._speed_text()),
            "wait": self._wait_text(),
            "values": Text("" if has_table else self._values, style="cyan"),
            "memory": Text(memory),
            "desc": Text("" if has_table else self._desc, style="bold"),
        }
        kept, room = set(), width
        for name, part in parts.items():
            if part and part.cell_len + 2 <= room:
                kept.add(name)
                room -= part.cell_len + 2
        texts = {name: part for name, part in parts.items() if name in kept}
        order = ("desc", "bar", "count", "speed", "left", "wait", "memory", "values")
        if room >= _SHORTEST_BAR and self._last:
            # The bar does not grow and shrink as what happens changes.
            free = max(_SHORTEST_BAR, room - max(0, _STATUS_WIDTH - len(shown)))
            texts["bar"] = self._bar(min(free, _LONGEST_BAR))
        line = Text("  ").join(texts[n] for n in (*order, "shown") if n in texts)
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
        return line

    def state(self) -> str:
        """Return what an inner loop is at, such as `evaluating test 3/12`."""
        of_total = f"/{self._last}" if self._last is not None else ""
        return f"{self._shown} {self._desc} {self._step}{of_total}"

    def _bar(self, width: int) -> Text:
        assert self._last
        done = min(1.0, self._step / self._last)
        cells = int(done * width)
        is_utf8 = self._panel is not None and self._panel.is_utf8
        full, half, rest = "━╸─" if is_utf8 else "=>-"
        text = Text(full * cells, style="cyan")
        if cells < width:
            text.append(half, style="cyan")
        text.append(rest * (width - cells - 1), style="dim")
        return text

    def _speed_text(self) -> str:
        speed = self._rate()
        return f"{texts.rate(speed).rjust(4)} steps/s" if speed else ""

    def _rate(self) -> float | None:
        compiled = self._compiled
        if compiled is not None:
            return self._speed_since(*compiled)
        if self._speed or self._step == self._first:
            return self._speed
        return (self._step - self._first) / max(time.monotonic() - self._start, 1e-9)

    def _time_left(self) -> str:
        speed = self._rate()
        if not speed or self._last is None:
            return ""
        seconds = int((self._last - self._step) / speed)
        minutes, hours = seconds // 60, seconds // 3600
        if hours >= 48:
            return f"{hours // 24} days left"
        if hours:
            return f"{hours}:{minutes % 60:02}:{seconds % 60:02} left"
        return f"{minutes}:{seconds % 60:02} left"

    def _wait_text(self) -> Text:
        if self._data_wait is None:
            return Text()
        is_high = self._data_wait > panel_lib.HIGH_DATA_WAIT
        stage = f" ({self._slowest_stage})" if is_high and self._slowest_stage else ""
        text = f"data wait {texts.percent(self._data_wait)}{stage}"
        return Text(text, style="bold red" if is_high else "")


def _format_losses(values: Mapping[str, Any]) -> str:
    names = ["losses/total"] if "losses/total" in values else list(values)[:2]
    return " ".join(
        f"{name.removeprefix('losses/')}={float(values[name]):.4g}" for name in names
    )
