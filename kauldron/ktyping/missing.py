"""`MISSING`: not given, where `None` is a value of its own."""

from __future__ import annotations

from typing import Any


class Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Any = Missing()
