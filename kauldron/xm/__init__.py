"""Another name of `kauldron.kxm`, with the launcher as a program and its configs."""

from __future__ import annotations

from typing import Any

from kauldron import kxm


def __getattr__(name: str) -> Any:
    return getattr(kxm, name)


def __dir__() -> list[str]:
    return dir(kxm)
