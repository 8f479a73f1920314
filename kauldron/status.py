"""Messages to the user, and which process is the lead.

This module is itself the object `kd.utils.status`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kauldron.import_hooks import on_import

on_xmanager = False
on_kxm: bool
xid: int | None  # of the experiment that a launcher started
wid: int | None  # the work unit
job: str | None
is_lead_host: bool
on_notebook: bool

_LOGGER = logging.getLogger("kauldron")
_RUN = contextvars.ContextVar("run", default="")


def log(msg: Any, *, stacklevel: int = 1) -> None:
    """Tell the user something: printed in a notebook, otherwise logged at INFO.

    Args:
      msg: The message.
      stacklevel: 1 to show the line that calls this function, 2 for its caller, ...
    """
    _log_at(logging.INFO, msg, stacklevel + 1)


def log_warning(msg: Any, *, stacklevel: int = 1) -> None:
    """Log, as a warning, what went wrong in a run that goes on."""
    _log_at(logging.WARNING, msg, stacklevel + 1)


def log_error(msg: Any, *, stacklevel: int = 1) -> None:
    """Log, as an error, what was lost or broken."""
    _log_at(logging.ERROR, msg, stacklevel + 1)


def log_status(msg: Any, *, stacklevel: int = 1) -> None:
    """Tell the user that a new phase of the run begins.

    The one place to attach an external display of the run's state to.
    """
    _log_at(logging.INFO, msg, stacklevel + 1, kauldron_phase=str(msg))


def log_values(
    line: str, *, step: int, collection: str, values: Mapping[str, Any]
) -> None:
    """Show the user the values of a step: as a row of the panel, or else as a line.

    Args:
      line: What to show where there is no panel; if empty, nothing is shown there.
      step: The step.
      collection: Which values these are, such as `"train"`.
      values: The values by name.
    """
    told = (step, collection, values)
    if line:
        _log_at(logging.INFO, line, 2, kauldron_values=told)
    elif _FALLBACK.display is not None:
        record = logging.makeLogRecord({"msg": line, "kauldron_values": told})
        _FALLBACK.display(record)


def warn(
    msg: Any, category: type[Warning] | None = None, *, stacklevel: int = 1
) -> None:
    """`warnings.warn` for the caller's line; in a notebook also printed."""
    if _on_notebook() and _FALLBACK.display is None:
        print(f"Warning: {msg}")
    warnings.warn(str(msg), category, stacklevel=stacklevel + 1)


@contextlib.contextmanager
def speaking_of(run: str) -> Iterator[None]:
    """Begin messages with the name of a run, where several runs share one log."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def _log_at(level: int, msg: Any, stacklevel: int, **extra: Any) -> None:
    if _RUN.get():
        msg = f"{_RUN.get()}: {msg}"
    if _on_notebook():
        if _FALLBACK.display is None:
            print(msg)
        else:
            name = logging.getLevelName(level)
            told = {"levelno": level, "levelname": name, "msg": str(msg), **extra}
            _FALLBACK.display(logging.makeLogRecord(told))
        return
    _make_visible()
    _LOGGER.log(level, "%s", msg, stacklevel=stacklevel + 1, extra=extra)


# --------------------------------------------------------------------------------------
# Where we are
# --------------------------------------------------------------------------------------


@functools.cache
def _is_lead_host() -> bool:
    import jax

    return jax.process_index() == 0


@functools.cache
def _on_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def __getattr__(name: str) -> Any:
    # Asked for when first needed: the index is known once distributed jax has started.
    if name == "is_lead_host":
        return _is_lead_host()
    if name == "on_notebook":
        return _on_notebook()
    if name in ("xid", "wid"):
        number = os.environ.get(f"KXM_{name.upper()}")
        return int(number) if number else None
    if name == "job":
        return os.environ.get("KXM_JOB")
    if name == "on_kxm":
        return "KXM_XID" in os.environ
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --------------------------------------------------------------------------------------
# Logging
# --------------------------------------------------------------------------------------


class _CurrentStderr(logging.StreamHandler):
    """Writes where `sys.stderr` is now, or hands records to the panel that is there."""

    display: Callable[[logging.LogRecord], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.display is not None:
            self.display(record)
        else:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno < logging.WARNING:
            return text
        time, _, rest = text.partition(" ")
        return f"{time} {record.levelname.lower()}: {rest}"

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        del value


_FALLBACK = _CurrentStderr()
_FALLBACK.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))


@contextlib.contextmanager
def shown_by(display: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Hand messages to `display` instead of writing them to stderr.

    An application that configured its logging gets them by its own handlers, as usual.

    Args:
      display: Called with each record; `kauldron_values` and `kauldron_phase` among its
        attributes tell what `log_values` and `log_status` were given.
    """
    earlier, _FALLBACK.display = _FALLBACK.display, display
    try:
        yield
    finally:
        _FALLBACK.display = earlier


def _make_visible() -> None:
    """Show INFO on stderr if the application had configured no logging at first."""
    root = logging.getLogger()
    if any(handler is not _FALLBACK for handler in _LOGGER.handlers):
        _LOGGER.removeHandler(_FALLBACK)
        _LOGGER.propagate = True
    elif _FALLBACK in _LOGGER.handlers:
        _LOGGER.propagate = not _is_configured_by_accident(root)
    elif _LOGGER.level == logging.NOTSET and _is_configured_by_accident(root):
        _LOGGER.addHandler(_FALLBACK)
        _LOGGER.setLevel(logging.INFO)
        _LOGGER.propagate = False


def _is_configured_by_accident(root: logging.Logger) -> bool:
    """Return whether at most a library's first message gave the root logger a handler."""
    return root.level == logging.WARNING and all(
        type(handler) is logging.StreamHandler
        and getattr(handler.formatter, "_fmt", None) == logging.BASIC_FORMAT
        for handler in root.handlers
    )


def _is_ours_to_show(record: logging.LogRecord) -> bool:
    del record
    return not (_LOGGER.propagate and logging.getLogger().handlers)


_FALLBACK.addFilter(_is_ours_to_show)

status = sys.modules[__name__]


#
# Fewer messages from the libraries underneath
#


_PACKAGES = ("orbax", "grain", "tensorstore")


def quieten_libraries() -> None:
    """Hide INFO records of the checkpointing and data libraries. May be repeated.

    They are back with `logging.getLogger("orbax").setLevel(logging.INFO)`.
    """
    for package in _PACKAGES:
        logger = logging.getLogger(package)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    on_import("absl.logging", _filter_absl)


def _filter_absl() -> None:
    # These libraries log through absl's single logger, which also serves the user. It
    # is asked for only now: absl has to be the one that creates it.
    logging.getLogger("absl").addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    for package in _PACKAGES:
        if f"{os.sep}{package}{os.sep}" in record.pathname:
            return record.levelno >= logging.getLogger(package).level
    return True
