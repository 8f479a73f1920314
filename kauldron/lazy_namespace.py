"""Namespaces whose members are imported when they are first used."""

from __future__ import annotations

import difflib
import importlib
import sys
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


def _missing_message(namespace: str, name: str, members: Mapping[str, str]) -> str:
    message = f"module {namespace!r} has no attribute {name!r}."
    if name.startswith("__"):
        return message
    close = difflib.get_close_matches(name, members, n=1)
    if close:
        return f"{message} Did you mean {close[0]!r}?"
    return f"{message} It has: {', '.join(sorted(members))}."
