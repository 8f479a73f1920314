"""What a terminal shows of a run: its name, a table of its values, and a live line."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import jax
import rich.console
import rich.live
from rich.control import Control
from rich.text import Text

from kauldron import status
from kauldron.train.run.terminal.metric_table import Best, MetricTable
from kauldron.train.run.terminal.notebook import NotebookConsole, calling_every
from kauldron.train.run.terminal.summaries import titled_summary
from kauldron.writers import read_scalars

if TYPE_CHECKING:
    from kauldron.train.run.terminal.progress import Progress
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer

HIGH_DATA_WAIT = 0.2
_REFRESHES_PER_SECOND = 5
_LEVELS = {logging.WARNING: "black on yellow", logging.ERROR: "white on red"}

_panels: list[Panel] = []
_complete_tables: set[str] = set()  # workdirs whose values were all shown in a table
_wishes_for_lines: list[str] = []  # workdirs of running trainings that want no panel


def has_shown_all(workdir: Any) -> bool:
    """Return whether a table in this process has shown all values of a run."""
    return str(workdir) in _complete_tables


def current() -> Panel | None:
    """Return the panel that is shown now, if there is one."""
    return _panels[-1] if _panels else None


class Panel:
    """Lines that stay, above some that change: the newest row, and how far the loop is.

    Attributes:
      loops: The loops that run, each inside the one before.
      table: The table of values; without one, values are shown as lines.
      workdir: The run that the table is of.
      phase: What happens while no loop runs.
    """

    def __init__(self, console: _Console | NotebookConsole, *, phase: str = ""):
        self.loops: list[Progress] = []
        self.table: MetricTable | None = None
        self.workdir = ""
        self.phase = phase
        self.is_utf8 = console.encoding.lower().startswith("utf")
        self._console = console
        self._texts: dict[tuple[str, str], tuple[int, str]] = {}
        self._stack = contextlib.ExitStack()

    @classmethod
    def of_console(cls, *, phase: str = "") -> Panel | None:
        """Return a panel if stderr is a terminal, or this is a notebook's lead host."""
        if not status.is_lead_host or _wishes_for_lines:
            return None
        if status.on_notebook:
            return cls(NotebookConsole(), phase=phase)
        console = _Console(stderr=True, highlight=False)
        can_move = console.is_terminal and not console.is_dumb_terminal
        return cls(console, phase=phase) if can_move and sys.stderr.isatty() else None

    @property
    def width(self) -> int:
        """Characters in a line."""
        return self._console.width

    def __enter__(self) -> Self:
        original = sys.stderr
        stack = self._stack
        _panels.append(self)
        stack.callback(_panels.remove, self)
        stack.callback(self._finish_table)
        if isinstance(self._console, NotebookConsole):
            stack.enter_context(self._console.showing(self))
        else:
            live = rich.live.Live(
                self,
                console=self._console,
                auto_refresh=False,
                transient=True,
                # Otherwise, what is printed into a pipe would go to the terminal.
                redirect_stdout=sys.stdout.isatty(),
            )
            stack.enter_context(self._console.alone(live))
            stack.enter_context(self._redrawn())
            stack.enter_context(_loggers_write_to(sys.stderr, instead_of=original))
        stack.enter_context(status.shown_by(self.show_record))
        stack.enter_context(self._shown_warnings())
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._stack.close()
        if kind is None:
            for (collection, name), (step, text) in self._texts.items():
                lines = titled_summary(
                    text, collection=collection, name=name, step=step, width=self.width
                )
                self._print(*lines)

    #
    # What stays
    #

    def show_record(self, record: logging.LogRecord) -> None:
        """Show what is logged: a row, a phase, or a message above the live lines."""
        values = getattr(record, "kauldron_values", None)
        if values is not None and self.table is not None:
            self._add_values(*values)
            return
        phase = getattr(record, "kauldron_phase", None)
        if phase is not None:
            self.phase = phase
            if self.loops:
                self.loops[0].doing(phase)
        elif record.getMessage():
            self._print(_message(record.levelno, record.getMessage()))

    def note_saved(self, step: int) -> None:
        """Show that a step was saved."""
        if self.table is not None:
            with self._console:  # so that nobody draws meanwhile
                self._print(*self.table.note_saved(step, self.width))

    def _add_values(
        self, step: int, collection: str, values: Mapping[str, Any]
    ) -> None:
        assert self.table is not None
        numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
        for name, text in values.items():
            if isinstance(text, str):
                self._texts[collection, name] = (step, text)
        if numbers:
            with self._console:
                self._print(*self.table.add(step, collection, numbers, self.width))

    def _finish_table(self) -> None:
        if self.table is not None:
            self._print(*self.table.finish(self.width))
            if not self.table.num_hidden(self.width):
                _complete_tables.add(self.workdir)

    def _print(self, *lines: Text) -> None:
        for line in lines:
            line.overflow = "ellipsis" if line.no_wrap else "fold"
        if lines:
            self._console.print(rich.console.Group(*lines))

    @contextlib.contextmanager
    def _shown_warnings(self) -> Iterator[None]:
        """Show what `warnings.warn` is given like a warning that is logged."""
        show = warnings.showwarning

        def shown(message, category, filename, lineno, file=None, line=None) -> None:
            if file is not None:
                show(message, category, filename, lineno, file, line)
                return
            place = f"{os.path.basename(filename)}:{lineno}"
            text = f"{message} ({category.__name__}, {place})"
            self._print(_message(logging.WARNING, text))

        warnings.showwarning = shown
        try:
            yield
        finally:
            if warnings.showwarning is shown:
                warnings.showwarning = show

    #
    # What changes
    #

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        """Draw the live lines as they are now."""
        del console
        if self.table is not None:
            yield from self.table.pending(options.max_width)
        yield self._line(options.max_width)

    @contextlib.contextmanager
    def _redrawn(self) -> Iterator[None]:
        """Draw the live lines now and then, in a thread."""

        def redraw() -> None:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._console.print(Control())

        with calling_every(1 / _REFRESHES_PER_SECOND, redraw):
            yield

    def _line(self, width: int) -> Text:
        loops = list(self.loops)
        if not loops:
            return Text(self.phase, style="bold", no_wrap=True, overflow="ellipsis")
        return loops[0].line(
            width,
            inner=loops[-1] if len(loops) > 1 else None,
            memory=device_memory(),
            has_table=self.table is not None,
        )


class _Console(rich.console.Console):
    """A console on which threads print one after the other.

    What rich prints above live lines is placed by their number when printing begins.
    """

    def __init__(self, **kwargs: Any):
        self._turn = threading.RLock()
        super().__init__(**kwargs)

    def __enter__(self) -> Self:
        self._turn.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._turn.release()

    @contextlib.contextmanager
    def alone(self, live: rich.live.Live) -> Iterator[None]:
        """Show live lines; nobody prints while they come and go."""
        with self._turn:
            live.start()
        try:
            yield
        finally:
            with self._turn:
                live.stop()


def _message(level: int, text: str) -> Text:
    style = _LEVELS.get(level)
    if style is None:
        return Text(text, style="dim")
    label = f" {logging.getLevelName(level).lower()} "
    return Text.assemble((label, style), " ", (text, "bold"))


def device_memory() -> str:
    """Return the memory in use of the fullest device; empty where it is not known."""
    shares = []
    for device in jax.local_devices():
        stats = device.memory_stats() or {}
        if stats.get("bytes_limit"):
            shares.append((stats["bytes_in_use"], stats["bytes_limit"]))
    if not shares:
        return ""
    used, limit = max(shares)
    return f"memory {used / 2**30:.1f}/{limit / 2**30:.0f} GiB"


@contextlib.contextmanager
def _loggers_write_to(stream: Any, *, instead_of: Any) -> Iterator[None]:
    """Have handlers that hold the terminal write above the live lines."""
    moved = []
    for logger in (logging.getLogger(), logging.getLogger("absl")):
        for handler in logger.handlers:
            handler = getattr(handler, "python_handler", handler)
            if (
                isinstance(handler, logging.StreamHandler)
                and handler.stream is instead_of
            ):
                handler.setStream(stream)
                moved.append(handler)
    try:
        yield
    finally:
        for handler in moved:
            handler.setStream(instead_of)


#
# The panel of a training
#


@contextlib.contextmanager
def shown(trainer: Trainer) -> Iterator[None]:
    """Show a panel for a training, if it can be shown and is wanted."""
    with contextlib.ExitStack() as stack:
        if trainer.setup.tqdm_info.display == "lines":
            _wishes_for_lines.append(str(trainer.workdir))
            stack.callback(_wishes_for_lines.remove, str(trainer.workdir))
        panel = None if current() else Panel.of_console(phase="starting")
        if panel is not None:
            stack.enter_context(panel)
        yield


def begin(
    trainer: Trainer, state: TrainState, *, step: int, last_step: int | None
) -> None:
    """Show what is trained; from now on, a panel shows values as a table."""
    text = describe(trainer, state, step=step)
    panel = current()
    if panel is None:
        status.log(text)
        return
    logged = ["train", *trainer.evals] if step else []
    _begin_table(panel, trainer, text, last_step=last_step, logged=logged)


def begin_evaluations(trainer: Trainer, names: Sequence[str]) -> None:
    """Show which evaluators follow a run; a panel shows their values as a table."""
    panel = current()
    if panel is None:
        return
    text = " · ".join((trainer.workdir.name, *names, str(trainer.workdir)))
    last_step = trainer.num_train_steps
    _begin_table(panel, trainer, text, last_step=last_step, logged=names)


def _begin_table(
    panel: Panel,
    trainer: Trainer,
    title: str,
    *,
    last_step: int | None,
    logged: Sequence[str],
) -> None:
    earlier = {name: read_scalars(trainer.workdir / name) for name in logged}
    panel._print(Text(title, style="bold", no_wrap=True))
    panel.workdir = str(trainer.workdir)
    panel.table = MetricTable(
        last_step=last_step,
        best=best_of(trainer, earlier),
        earlier={name: lines[-1]["values"] for name, lines in earlier.items() if lines},
        order={
            "train": list(trainer.train_metrics),
            **{
                name: list(getattr(evaluator, "metrics", ()))
                for name, evaluator in trainer.evals.items()
            },
        },
    )


def describe(trainer: Trainer, state: TrainState, *, step: int) -> str:
    """Return name, number of parameters, devices, first step and workdir of a run."""
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    devices = jax.devices()
    platform = devices[0].platform
    kind = platform if platform == "cpu" else devices[0].device_kind
    return " · ".join(
        (
            trainer.workdir.name or str(trainer.workdir),
            f"{_count(count)} parameters",
            f"{len(devices)} {kind}",
            *([f"from step {step}"] if step else []),
            str(trainer.workdir),
        )
    )


def _count(number: int) -> str:
    if number < 10_000_000:
        return f"{number:,}".replace(",", " ")
    return f"{number / 1e6:.1f} M" if number < 1e9 else f"{number / 1e9:.2f} G"


def best_of(trainer: Trainer, log: Mapping[str, Any]) -> Best | None:
    """Return what decides which row is the best, with the best value so far.

    That is the metric by which the checkpointer ranks, or the loss of the first evaluator.
    """
    checkpointer: Any = trainer.checkpointer
    path = getattr(checkpointer, "best_metric_path", None)
    along = [n for n, e in trainer.evals.items() if e.run.runs_in_training]
    if path is not None:
        collection, _, name = path.partition(".")
        name = name.replace(".", "/")
        key = name if name.startswith("losses/") else f"metrics/{name}"
        best = Best(
            collection=collection,
            key=key,
            is_lower=checkpointer.best_mode == "min",
        )
    elif along:
        best = Best(collection=along[0], key="losses/total", is_lower=True)
    else:
        return None
    for line in log.get(best.collection, ()):
        best.add(line["values"].get(best.key))
    return best
