"""Namespaces whose members are imported when they are first used."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def suggest_names(namespace: str) -> None:
    """Make the error about a missing name of a module suggest the nearest one.

    To be called at the end of a module that imports its members at once.

    Args:
      namespace: The module's `__name__`.

    Example:
      >>> from kauldron import losses
      >>> losses.Hubr
      Traceback (most recent call last):
      AttributeError: module 'kauldron.losses' has no attribute 'Hubr'. Did you mean 'Huber'?
    """
    own = vars(sys.modules[namespace])

    def get_member(name: str) -> Any:
        raise missing_name(namespace, name, own)

    own["__getattr__"] = get_member


def missing_name(namespace: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error about a name that a module lacks."""
    message = f"module {namespace!r} has no attribute {name!r}."
    if not name.startswith("__"):
        public = [n for n in known if not n.startswith("_")]
        from kauldron.errors import did_you_mean  # what starts quickly goes without it

        # One wrong letter of two is half the name: several names may be that near.
        is_short = len(name) < 3
        options: Any = {"count": 2, "cutoff": 0.5} if is_short else {}
        message += did_you_mean(name, public, **options)
    return AttributeError(message, name=name)  # Python adds no suggestion of its own


@contextlib.contextmanager
def lazy_imports(namespace: str) -> Iterator[None]:
    """Import the members of a namespace when they are first used.

    Write plain `from module import name as name` statements in the block: type checkers
    understand them, but they import nothing. So one list of the members is enough.

    Args:
      namespace: The module's `__name__`.

    Example:
      ```
      with lazy_imports(__name__):
          from kauldron.data.pipeline import Pipeline as Pipeline
      ```
    """
    own = vars(sys.modules[namespace])
    with _LOCK:
        really_import = builtins.__import__

        def note(name: str, globals: Any = None, *args: Any, **kwargs: Any) -> Any:
            if globals is own:
                return _Noted(name)
            return really_import(name, globals, *args, **kwargs)  # of another thread

        builtins.__import__ = note
        try:
            yield
        finally:
            builtins.__import__ = really_import
    members = {
        name: value._place for name, value in own.items() if isinstance(value, _Noted)
    }
    for name in members:
        del own[name]

    def get_member(name: str) -> Any:
        if name not in members:
            raise _missing_member(namespace, name, members)
        own[name] = _import_member(namespace, members[name])
        return own[name]  # found without this detour the next time

    def list_members() -> list[str]:
        defined = {
            name
            for name, value in own.items()
            if name.startswith("__") or getattr(value, "__module__", "") == namespace
        }
        return sorted(defined.union(members))

    own["__getattr__"], own["__dir__"] = get_member, list_members


_LOCK = threading.RLock()


def _import_member(namespace: str, place: str) -> Any:
    module_name, _, attribute = place.partition(":")
    if module_name == namespace:  # its own sub-module
        return importlib.import_module(f"{namespace}.{attribute}")
    member = importlib.import_module(module_name)
    if not attribute:
        return member
    if not hasattr(member, attribute):
        importlib.import_module(f"{module_name}.{attribute}")
    return getattr(member, attribute)


def _missing_member(
    namespace: str, name: str, members: Mapping[str, str]
) -> AttributeError:
    error = missing_name(namespace, name, members)
    if name.startswith("__") or str(error).endswith("?"):
        return error
    return AttributeError(f"{error} It has: {', '.join(sorted(members))}.", name=name)


class _Noted:
    """Stands for a module, or as `module:name` for a name in it."""

    def __init__(self, place: str):
        self._place = place

    def __getattr__(self, name: str) -> _Noted:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Noted(f"{self._place}:{name}")


def older_modules(package: str, places: Mapping[str, str]) -> None:
    """Keep older module paths of a package importable.

    Each becomes a module that looks its names up, when they are asked for, in the modules
    that have them now. To be called while the package is imported.

    Args:
      package: The package that the older paths are part of.
      places: From the older path to the modules that have its names now, separated by
        spaces. Both are relative to the package, unless they begin with `kauldron.`.

    Example:
      >>> older_modules("kauldron", {"names": "errors path_grammar"})
      >>> from kauldron.names import did_you_mean
      >>> did_you_mean("logit", ["labels", "logits"])
      " Did you mean 'logits'?"
    """

    def absolute(name: str) -> str:
        return name if name.startswith("kauldron.") else f"{package}.{name}"

    for older, newer in places.items():
        path = absolute(older)
        sys.modules[path] = _OlderModule(
            path, [absolute(name) for name in newer.split()]
        )
        parent, _, name = path.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).setdefault(name, sys.modules[path])


class _OlderModule(types.ModuleType):
    def __init__(self, name: str, newer: list[str]):
        super().__init__(name, f"Older path of {', '.join(newer)}.")
        self.__path__ = []  # other older paths may lie below this one
        self.__newer__ = newer

    def __getattr__(self, name: str) -> Any:
        # Whoever looks through `sys.modules` for a file must not import anything.
        if not name.startswith("__"):
            for module in map(importlib.import_module, self.__newer__):
                with contextlib.suppress(AttributeError):
                    return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}.")

    def __dir__(self) -> list[str]:
        modules = map(importlib.import_module, self.__newer__)
        return sorted({name for module in modules for name in dir(module)})
