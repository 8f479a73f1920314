"""Namespaces whose members are imported when they are first used."""

from __future__ import annotations

import difflib
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any


def lazy_namespace(
    namespace: str, members: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a module with lazy members.

    Args:
      namespace: The module's `__name__`.
      members: From public name to `"module"` (the member is that module) or
        `"module:attribute"`.

    Returns:
      The two functions, to be assigned to `__getattr__` and `__dir__`.

    Example:
      >>> get, list_names = lazy_namespace("my.package", {"root": "math:sqrt"})
      >>> get("root")(4)
      2.0
      >>> get("roots")
      Traceback (most recent call last):
      AttributeError: module 'my.package' has no attribute 'roots'. Did you mean 'root'?
    """

    def get_member(name: str) -> Any:
        if name not in members:
            raise AttributeError(_missing_message(namespace, name, members))
        module_name, _, attribute = members[name].partition(":")
        member = importlib.import_module(module_name)
        if attribute:
            member = getattr(member, attribute)
        if namespace in sys.modules:  # found without this detour the next time
            setattr(sys.modules[namespace], name, member)
        return member

    def list_members() -> list[str]:
        own = vars(sys.modules[namespace]) if namespace in sys.modules else {}
        return sorted(set(members) | {name for name in own if name.startswith("__")})

    return get_member, list_members


def older_modules(places: Mapping[str, str]) -> None:
    """Keep older module paths importable.

    Each becomes a module that looks its names up in another one when they are asked for.
    To be called where the package that holds the older paths is imported.

    Args:
      places: From the older path to the module that has the names now.

    Example:
      >>> older_modules({"kauldron.roots": "math"})
      >>> from kauldron.roots import sqrt
      >>> sqrt(4)
      2.0
    """
    for older, newer in places.items():
        sys.modules[older] = _OlderModule(older, newer)


class _OlderModule(types.ModuleType):
    def __init__(self, name: str, newer: str):
        super().__init__(name, f"Older path of `{newer}`.")
        self.__newer__ = newer

    def __getattr__(self, name: str) -> Any:
        # Whoever looks through `sys.modules` for a file must not import anything.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__newer__), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self.__newer__))


def _missing_message(namespace: str, name: str, members: Mapping[str, str]) -> str:
    message = f"module {namespace!r} has no attribute {name!r}."
    if name.startswith("__"):
        return message
    close = difflib.get_close_matches(name, members, n=1)
    if close:
        return f"{message} Did you mean {close[0]!r}?"
    return f"{message} It has: {', '.join(sorted(members))}."
