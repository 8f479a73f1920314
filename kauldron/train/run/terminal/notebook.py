"""The output of a notebook cell in which lines stay and others change."""

from __future__ import annotations

import contextlib
import io
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self

import rich.console
from rich.control import Control
from rich.terminal_theme import TerminalTheme

_WIDTH = 110
_REFRESH_SECONDS = 0.3
# Black, red, green, yellow, blue, magenta, cyan, white: readable on light and on dark.
_COLORS = [
    *((60, 60, 60), (209, 69, 59), (42, 157, 88), (196, 138, 20)),
    *((59, 125, 221), (155, 89, 208), (19, 149, 165), (150, 150, 150)),
]
_THEME = TerminalTheme((255, 255, 255), (0, 0, 0), _COLORS, _COLORS)
_FORMAT = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:1.3;'
    "font-family:ui-monospace,Menlo,'DejaVu Sans Mono',monospace\">{code}</pre>"
)


@contextlib.contextmanager
def calling_every(seconds: float, function: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again, in a thread."""
    is_over = threading.Event()

    def call() -> None:
        while not is_over.wait(seconds):
            function()

    thread = threading.Thread(target=call, name="kauldron-panel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class NotebookConsole(rich.console.Console):
    """A console whose lines are one output of the cell that runs, replaced as it grows."""

    def __init__(self) -> None:
        super().__init__(
            file=io.StringIO(), width=_WIDTH, force_jupyter=False, highlight=False
        )
        self._turn = threading.RLock()
        self._kept: list[Any] = []
        self._live: Any = None
        self._display_id = uuid.uuid4().hex
        self._shown: str | None = None

    def __enter__(self) -> Self:
        self._turn.acquire()
        return self

    def __exit__(self, *error: Any) -> None:
        self._turn.release()

    def print(self, *objects: Any, **options: Any) -> None:
        """Keep lines, and show them soon."""
        del options
        with self:
            self._kept += [each for each in objects if not isinstance(each, Control)]
            if self._live is None:
                self.refresh()

    @contextlib.contextmanager
    def showing(self, live: Any) -> Iterator[None]:
        """Draw `live` below the lines that stay, now and then, in a thread."""
        self._live = live
        self.refresh()  # by this thread, whose cell the output belongs to
        try:
            with calling_every(_REFRESH_SECONDS, self.refresh):
                yield
        finally:
            self._live = None
            self.refresh()

    def refresh(self) -> None:
        """Show the lines as they are now, if they have changed."""
        with self:
            recorder = rich.console.Console(
                file=io.StringIO(), width=_WIDTH, force_jupyter=False, record=True
            )
            parts = [*self._kept, *([] if self._live is None else [self._live])]
            for part in parts:
                recorder.print(part)
            html = recorder.export_html(
                theme=_THEME,
                code_format=_FORMAT,
                inline_styles=True,
                clear=False,
            )
            if html != self._shown:
                text = recorder.export_text().rstrip()
                self._show({"text/html": html if parts else "", "text/plain": text})
                self._shown = html

    def _show(self, data: dict[str, str]) -> None:
        from IPython.display import display

        is_first = self._shown is None
        display(data, raw=True, display_id=self._display_id, update=not is_first)
