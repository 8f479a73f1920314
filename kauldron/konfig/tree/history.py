"""Who set which field, and where: the record behind `konfig.history`.

A node remembers where it was created; its fields remember their writes. A field without
an event of its own was set when its node was created, so that creating a node costs one
look at the calling frame, however many fields it has.

For code that writes on behalf of something else than the calling line:

>>> from kauldron import konfig
>>> cfg = konfig.ConfigDict({"lr": 0.1})
>>> with recording("cli", "--cfg.lr=0.2"):
...     cfg.lr = 0.2
>>> konfig.history(cfg, "lr")[-1].text
'--cfg.lr=0.2'
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import ml_collections
from ml_collections import FieldReference

from kauldron.konfig.errors import PACKAGE_FOLDER
from kauldron.konfig.symbols import display_name
from kauldron.konfig.tree.node import CONST_KEY, QUALNAME_KEY, Key, Node
from kauldron.konfig.tree.paths import holder, path_parts, raise_not_found

Kind: TypeAlias = Literal[
    "init", "set", "update", "del", "default", "cli", "sweep", "json"
]

MAX_EVENTS = 16
_VALUE_WIDTH = 80


class SetEvent(NamedTuple):
    """One write of a field.

    Attributes:
      kind: What wrote it.
      value_repr: The value, shortened.
      file: The file whose line made the write; `None` when it is not known.
      line: The line in that file.
      function: The function that the line is in.
      text: The flag, for `cli` and `sweep` events; the path of the saved config, for
        `json` events, if it was loaded from a file; else `None`.
    """

    kind: Kind
    value_repr: str
    file: str | None
    line: int | None
    function: str | None
    text: str | None = None

    @property
    def location(self) -> str:
        """The flag, or the file and line, to point the user at."""
        if self.text is not None:
            return self.text
        return f"{self.file}:{self.line}" if self.file else "an unknown place"


# ------------------------------------------------------------------------------------
# Recording
# ------------------------------------------------------------------------------------


class _Recorder(threading.local):
    """What the writes of this thread are attributed to."""

    kind: Kind | None = None
    text: str | None = None


_recorder = _Recorder()
_enabled = True

# Frames of these folders write on behalf of the code that called them.
_INNER_FOLDERS = (
    PACKAGE_FOLDER,
    os.path.dirname(str(ml_collections.__file__)) + os.sep,
    os.path.dirname(contextlib.__file__) + os.sep + "contextlib",
    os.path.dirname(contextlib.__file__) + os.sep + "copy",
)


def set_history(enabled: bool) -> None:
    """Turn the recording of writes (and of where nodes are created) on or off.

    Args:
      enabled: Off saves about a microsecond per write; errors of `resolve` then do not
        name the lines of the config.
    """
    global _enabled
    _enabled = bool(enabled)


@contextlib.contextmanager
def recording(kind: Kind, text: str | None = None) -> Iterator[None]:
    """Attribute the writes made by this thread inside the block."""
    before = _recorder.kind, _recorder.text
    _recorder.kind, _recorder.text = kind, text
    try:
        yield
    finally:
        _recorder.kind, _recorder.text = before


def _caller() -> tuple[str | None, int | None, str | None]:
    """Return file, line and function of the innermost frame outside konfig."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_INNER_FOLDERS):
            return code.co_filename, frame.f_lineno, code.co_name
        frame = frame.f_back
    return None, None, None


def origin(kind: Kind = "init") -> SetEvent | None:
    """Return the event of a node created now; `None` when recording is off."""
    if not _enabled:
        return None
    return SetEvent(_recorder.kind or kind, "", *_caller(), _recorder.text)


def record(node: Node, key: Key, value: Any, kind: Kind = "set") -> None:
    """Add an event to a field, before the write.

    The key is a tuple `(key, index, ...)` for a write into a list.
    """
    if not _enabled:
        return
    event = SetEvent(
        _recorder.kind or kind, short_repr(value), *_caller(), _recorder.text
    )
    events = field_events(node, key)[-(MAX_EVENTS - 1) :]
    table = node._konfig_history
    if table is None:
        table = node.__dict__["_konfig_history"] = {}
    table[key] = (*events, event)
    _forget_items(table, key if isinstance(key, tuple) else (key,))


def move_up(node: Node, removed: int, last: int) -> None:
    """Let the events of positional arguments move up after one was removed.

    Its own events are kept under the index that no longer exists.
    """
    table = node._konfig_history or {}
    places = {str(index): str(index - 1) for index in range(removed + 1, last + 1)}
    places[str(removed)] = str(last)

    def moved(key: Any) -> Any:
        if isinstance(key, tuple):  # of an item of a list
            return (places.get(key[0], key[0]), *key[1:])
        return places.get(key, key)

    node.__dict__["_konfig_history"] = {moved(k): v for k, v in table.items()} or None


def _forget_items(table: dict[Any, Any], place: tuple[Any, ...]) -> None:
    """Drop the events of the items of a list that is replaced."""
    size = len(place)
    gone = [k for k in table if type(k) is tuple and len(k) > size]
    for key in gone:
        if key[:size] == place:
            del table[key]


# ------------------------------------------------------------------------------------
# Reading
# ------------------------------------------------------------------------------------


def field_events(node: Node, key: Key) -> tuple[SetEvent, ...]:
    """Return the events of one field, oldest first; empty if nothing was recorded."""
    table, created = node._konfig_history, node._konfig_origin
    if table is not None and key in table:
        return table[key]
    fields = node._fields
    if created is None or isinstance(key, tuple) or key not in fields:
        return ()
    return (created._replace(value_repr=short_repr(fields[key])),)


def short_repr(value: Any, width: int = _VALUE_WIDTH) -> str:
    """Return one line for a value; never raise, evaluate or descend far."""
    try:
        text = _summary(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= width else text[: width - 3] + "..."


def _summary(value: Any) -> str:
    if isinstance(value, Node):
        fields = value._fields
        if CONST_KEY in fields:
            return display_name(str(fields[CONST_KEY]))
        if QUALNAME_KEY in fields:
            dots = "..." if len(fields) > 1 else ""
            return f"{display_name(str(fields[QUALNAME_KEY]))}({dots})"
        return f"{{{', '.join(f'{key!r}: ...' for key in list(fields)[:8])}}}"
    if isinstance(value, FieldReference):
        held = value.__dict__.get("_konfig_value", value)  # of a placeholder
        return repr(value) if held is value else _summary(held)
    if type(value) in (list, tuple):
        items = ", ".join(short_repr(item, 20) for item in value[:8])
        items += ", ..." if len(value) > 8 else ""
        return f"[{items}]" if type(value) is list else f"({items})"
    return repr(value)


def history(cfg: Node, path: str) -> tuple[SetEvent, ...]:
    """Return the writes of a field, oldest first; at most the last 16.

    Args:
      cfg: The config.
      path: The field, such as `"optimizer.learning_rate"` or `"layers[0].features"`.

    Returns:
      The events. Empty if recording is off. An item of a list that was not written by
      itself has the events of the list.

    Raises:
      KeyError: There is no such field, and never was. An index that is out of range is
        an `IndexError` as well.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"lr": 0.1})
      >>> cfg.lr = 0.2
      >>> [event.value_repr for event in konfig.history(cfg, "lr")]
      ['0.1', '0.2']
    """
    parts = path_parts(path)
    if not parts:
        raise ValueError("A history is that of a field: the path is empty.")
    node, keys = holder(cfg, parts)
    key = keys[0] if len(keys) == 1 else keys
    events = field_events(node, key) or field_events(node, keys[0])
    if not events and keys[0] not in node._fields:  # nor is it deleted
        raise_not_found(parts, len(parts) - 1, node)
    return events


def short_file(file: str) -> str:
    """Return a path relative to the working directory if it is below it."""
    if not os.path.isabs(file):
        return file
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def describe_origin(event: SetEvent) -> str:
    """Return `set by --cfg.a=1` or `set at configs/a.py:12`."""
    if event.text is not None:
        return f"set by {event.text}"
    if event.file is None:
        return "set at an unknown place"
    return f"set at {short_file(event.file)}:{event.line}"
