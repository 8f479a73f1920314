"""What parts of an optimizer are called with, for those who look at it from outside."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

_RECORDS: contextvars.ContextVar[list[tuple[str, Any]] | None] = contextvars.ContextVar(
    "records", default=None
)


def record(kind: str, value: Any) -> None:
    """Add to the list of `recorded`, if there is one."""
    records = _RECORDS.get()
    if records is not None:
        records.append((kind, value))


@contextlib.contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """The kinds and values that are recorded inside, in a list that grows."""
    records: list[tuple[str, Any]] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)
