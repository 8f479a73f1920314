"""What the errors of `resolve` say: where in the config, and what set it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from kauldron.errors import reworded
from kauldron.konfig.errors import PACKAGE_FOLDER
from kauldron.konfig.signatures import check_call
from kauldron.konfig.text.printing import format_value
from kauldron.konfig.tree.history import SetEvent, field_events
from kauldron.konfig.tree.node import QUALNAME_KEY, Key, Node, expression

_REPR_WIDTH = 300
_MAX_ARGUMENTS = 3


class CreatedHere(Exception):
    """Its traceback shows the line of the config that created a node."""


def explained_call(
    error: Exception,
    node: Node,
    parts: Sequence[Key],
    symbol: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Exception:
    """Return the error of a call with its place, arguments and hints in the text."""
    try:
        is_about_call = isinstance(error, TypeError)
        problems = [*check_call(symbol, args, kwargs)] if is_about_call else []
        hint = "\n".join(f"{p.message} {p.suggestion}".strip() for p in problems)
        names = [str(p.name) for p in problems if p.name is not None]
        names = names or _mentioned(error, node)
    except Exception:  # hints never replace the error
        hint, names = "", []
    return explained(error, node, parts, names, hint)


def _mentioned(error: Exception, node: Node) -> list[Key]:
    """Return the arguments that an error names, else all of them."""
    names = [key for key in node._fields if key != QUALNAME_KEY]
    words = set(re.findall(r"[a-zA-Z_]\w*", str(error)))
    return [key for key in names if key in words] or names


def explained(
    error: Exception,
    node: Node,
    parts: Sequence[Key],
    names: Iterable[Key] = (),
    hint: str = "",
) -> Exception:
    """Return the error with a text that tells where in the config it happened."""
    try:
        lines = [f"Resolving the config failed at {expression(parts)}:"]
        lines += [f"    {line}" for line in _cut(format_value(node)).splitlines()]
        created = node._konfig_origin
        if created is not None and created.text is not None:
            lines.append(f"    set by {created.text}")  # a flag, or a saved config
        elif created is not None and created.file is not None:
            lines.append(f"    created at {_place(created)}")
        lines += _last_writes(node, names)
        text = "\n".join([*lines, str(error) or type(error).__name__])
        text = f"{text}\n{hint}" if hint else text
    except Exception:
        return error
    _append_trace(error, created, expression(parts))
    return reworded(error, text)


def _last_writes(node: Node, names: Iterable[Key]) -> list[str]:
    created = node._konfig_origin
    lines = []
    for name in names:
        events = field_events(node, name)
        if events and (created is None or events[-1][2:] != created[2:]):
            what = f"argument {name}" if str(name).isdecimal() else repr(name)
            where = events[-1].text or _place(events[-1])
            lines.append(f"    {what} was last set by {where}")
    return lines[:_MAX_ARGUMENTS]


def _place(event: SetEvent) -> str:
    return f"{event.file}:{event.line} in {event.function}"


def _cut(text: str) -> str:
    return text if len(text) <= _REPR_WIDTH else text[: _REPR_WIDTH - 3] + "..."


# ------------------------------------------------------------------------------------
# Tracebacks
# ------------------------------------------------------------------------------------


def hide_inner_frames(error: BaseException) -> None:
    """Take the frames of this package out of the traceback of an error."""
    kept = []
    traceback = error.__traceback__
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
            kept.append(traceback)
        traceback = traceback.tb_next
    for outer, inner in zip(kept, [*kept[1:], None]):
        outer.tb_next = inner
    error.__traceback__ = kept[0] if kept else None


def _append_trace(error: BaseException, created: SetEvent | None, place: str) -> None:
    """Make the line that created the node the first cause of an error."""
    if created is None or created.file is None or created.line is None:
        return
    trace = CreatedHere(f"{place} was created here.")
    trace.__traceback__ = _traceback_at(created.file, created.line, created.function)
    seen = set()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    if isinstance(error, CreatedHere):
        return
    if not error.__suppress_context__:  # shown before the trace, not lost
        trace.__cause__ = error.__context__
    error.__cause__ = trace


def _traceback_at(file: str, line: int, function: str | None) -> TracebackType | None:
    """Return a traceback that shows a line of a file, made by raising there."""
    code = compile("raise _Marker", file, "exec")
    code = code.replace(co_firstlineno=line, co_name=function or "<module>")
    try:
        exec(code, {"_Marker": _Marker})
    except _Marker as marker:
        inner = marker.__traceback__
        return None if inner is None else inner.tb_next
    return None


class _Marker(Exception):
    """Raised only for its traceback."""
