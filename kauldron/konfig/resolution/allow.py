"""Which symbols `resolve(allow=...)` accepts from a config that is not trusted."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from kauldron.konfig.symbols import import_qualname, normalize_qualname, split_qualname
from kauldron.konfig.text.leaves import PLAIN_SYMBOLS


class AllowList:
    """Accepts the symbols of some packages, and what makes plain data."""

    def __init__(self, packages: Iterable[str]) -> None:
        if isinstance(packages, str):
            raise TypeError(f"Expected a list of package names, got {packages!r}.")
        self.packages = tuple(packages)

    def covers(self, module_name: str) -> bool:
        """Return whether a module is one of the packages or below one."""
        return any(
            module_name == package or module_name.startswith(f"{package}.")
            for package in self.packages
        )

    def refusal_by_name(self, qualname: Any) -> str | None:
        """Return why a name is refused, judged without importing anything."""
        try:
            split_qualname(qualname)
        except ValueError as error:
            return f"is malformed ({error})"
        name = normalize_qualname(qualname)
        if name in PLAIN_SYMBOLS:
            return None
        if not self.covers(name):
            return "is not from an allowed package"
        if any(part.startswith("__") for part in name.split(".")):
            return "goes through a dunder attribute"
        return None

    def refusal_by_import(self, qualname: str) -> str | None:
        """Return why a symbol is refused although its name is accepted."""
        try:
            self.import_qualname(qualname)
        except _Refused as refused:
            return str(refused)
        except Exception:
            return None  # not importable: reported, with its place, when it is built
        return None

    def import_qualname(self, qualname: str) -> Any:
        """Import a symbol without leaving the allowed packages on the way."""
        is_plain = normalize_qualname(qualname) in PLAIN_SYMBOLS
        return import_qualname(qualname, guard=None if is_plain else self._guard)

    def _guard(self, symbol: Any, name: str) -> None:
        """Refuse what an allowed package has merely imported from elsewhere."""
        if isinstance(symbol, ModuleType):
            home = symbol.__name__
        elif inspect.isclass(symbol) or inspect.isroutine(symbol):
            home = getattr(symbol, "__module__", None)
        else:
            return
        if home is None or self.covers(home):
            return
        raise _Refused(f"reaches {name!r}, which belongs to {home!r}")


class _Refused(Exception):
    """The walk along a qualified name left the allowed packages."""
