"""Which symbols are accepted from a config that is not trusted.

Resolving a config calls what it names. Under a list, only what configs are made of is
accepted: dataclasses, flax modules, enums, dtypes, and functions that do nothing but
compute with their arguments. A symbol is judged by what it is and where it is defined,
not by the name it is reached by. Calling what a list accepts loads, opens and runs
nothing, with one exception: the functions of `kauldron.from_workdir` read an earlier
run, and resolve its config under the same list.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import enum
import importlib
import inspect
import numbers
import os
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from kauldron.konfig.symbols import import_qualname, normalize_qualname, split_qualname
from kauldron.konfig.text.leaves import PLAIN_SYMBOLS

# What a config without code of its own is made of.
COMMON_PACKAGES = ("kauldron", "flax", "jax", "numpy", "optax")

# Public namespaces whose functions only compute; `None` stands for all of them.
_ARRAY_MAKERS = "arange array asarray eye full linspace ones zeros"
_PURE_FUNCTIONS: dict[str, str | None] = {
    "flax.linen.activation": None,
    "flax.linen.initializers": None,
    "jax.nn": None,
    "jax.nn.initializers": None,
    "jax.numpy": _ARRAY_MAKERS,
    "kauldron.optim": None,
    "numpy": _ARRAY_MAKERS,
    "optax": None,
    # These read the config of an earlier run, and resolve it under the same list.
    "kauldron.from_workdir": "get_element_spec get_resolved locate",
}
_PURE_METHODS = frozenset({"kauldron.train.trainer.Trainer.eval_only"})

# Parts of kauldron whose classes are for programs, not for configs.
_NOT_FOR_CONFIGS = tuple(
    f"kauldron.{name}"
    for name in ("cli", "inspect", "konfig", "kxm", "main", "testing")
)

_PLAIN_TYPES = (str, bytes, numbers.Number, tuple, enum.Enum, type(None))

_active: contextvars.ContextVar[tuple[AllowList, ...]] = contextvars.ContextVar(
    "kauldron_allow_lists", default=()
)


@contextlib.contextmanager
def restricted(allow: Iterable[str], *, why: str = "") -> Iterator[None]:
    """Let every `resolve` inside, however deep, accept only what the list allows.

    Lists add up: what is called inside can narrow this one, not widen it.

    Args:
      allow: See `resolve`; `["*"]` allows everything, also in configs that other users
        saved.
      why: A sentence for the error, which says where the list comes from.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"__qualname__": "os:getcwd"})
      >>> with konfig.restricted(["kauldron"]):
      ...     konfig.resolve(cfg)
      Traceback (most recent call last):
      kauldron.konfig.errors.NotAllowedError: The config names what is not allowed ...
    """
    token = _active.set((*_active.get(), AllowList(allow, why)))
    try:
        yield
    finally:
        _active.reset(token)


@contextlib.contextmanager
def restricted_for(file: str, allow: Iterable[str] | None = None) -> Iterator[None]:
    """Restrict what is resolved inside as a saved config asks for.

    Args:
      file: The saved config. If another user owns it, only `COMMON_PACKAGES` are
        allowed, unless `restricted` around it says otherwise.
      allow: A list to use instead.
    """
    if allow is not None:
        context = restricted(allow)
    elif not _active.get() and _is_anothers(file):
        context = restricted(COMMON_PACKAGES, why=f"Another user owns {file}. ")
    else:
        context = contextlib.nullcontext()
    with context:
        yield


def _is_anothers(file: str) -> bool:
    try:
        return os.stat(file).st_uid != os.getuid()
    except (OSError, AttributeError):  # a store or a system without owners
        return False


def active_lists() -> tuple[AllowList, ...]:
    """Return the lists that configs resolved here are judged by."""
    return tuple(allow for allow in _active.get() if "*" not in allow.entries)


class AllowList:
    """Accepts what configs are made of from some packages, and single symbols.

    Attributes:
      entries: Packages and modules (`"kauldron"`), and symbols (`"my.module:function"`),
        which are accepted whatever they are.
      why: Where the list comes from.
    """

    def __init__(self, entries: Iterable[str], why: str = "") -> None:
        if isinstance(entries, str):
            raise TypeError(f"Expected a list of package names, got {entries!r}.")
        self.entries = tuple(entries)
        self.why = why
        self._packages = tuple(entry for entry in self.entries if ":" not in entry)
        self._symbols = {normalize_qualname(e) for e in self.entries if ":" in e}

    def covers(self, name: str) -> bool:
        """Return whether a module is one of the packages or below one."""
        return any(
            name == package or name.startswith(f"{package}.")
            for package in self._packages
        )

    def refusal_by_name(self, qualname: Any) -> str | None:
        """Return why a name is refused, judged without importing anything."""
        try:
            split_qualname(qualname)
        except ValueError as error:
            return f"is malformed ({error})"
        name = normalize_qualname(qualname)
        if name in PLAIN_SYMBOLS or name in self._symbols:
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
        """Import a symbol without leaving the allowed packages, and judge it."""
        name = normalize_qualname(qualname)
        if name in PLAIN_SYMBOLS or name in self._symbols:
            return import_qualname(qualname)
        symbol = import_qualname(qualname, guard=self._stay_inside)
        reason = self._refusal_of(symbol)
        if reason is not None:
            raise _Refused(reason)
        return symbol

    def _stay_inside(self, symbol: Any, name: str) -> None:
        """Refuse modules that an allowed package has merely imported."""
        if isinstance(symbol, ModuleType) and not self.covers(symbol.__name__):
            raise _Refused(f"reaches {name!r}, which belongs to {symbol.__name__!r}")

    def _refusal_of(self, symbol: Any) -> str | None:
        """Return why a symbol is refused, judged by what it is."""
        if isinstance(symbol, ModuleType):
            return "is a module"
        if not callable(symbol):
            kind = type(symbol)
            if isinstance(symbol, _PLAIN_TYPES) or self.covers(kind.__module__):
                return None
            return f"is a {kind.__name__}"
        home = str(getattr(symbol, "__module__", None))
        name = str(getattr(symbol, "__qualname__", None))
        if f"{home}.{name}" in self._symbols or self._is_pure(symbol, f"{home}.{name}"):
            return None
        if not self.covers(home):
            return f"belongs to {home!r}"
        if inspect.isclass(symbol) and _is_for_configs(symbol):
            return None
        return (
            "is not something configs are made of: a dataclass, flax module, enum, dtype "
            f"or a function known to be safe. '{home}:{name}' in the list would allow it"
        )

    def _is_pure(self, function: Any, home: str) -> bool:
        """Tell the functions of the table, which are looked up where they are public."""
        if home in _PURE_METHODS:
            return self.covers(home)
        if home.startswith("kauldron.lazy_namespace."):  # stands in every namespace
            return False
        name = str(getattr(function, "__name__", "_"))
        return not inspect.isclass(function) and any(
            self.covers(namespace)
            and (name in names.split() if names else not name.startswith("_"))
            and getattr(importlib.import_module(namespace), name, None) is function
            for namespace, names in _PURE_FUNCTIONS.items()
        )


class _Refused(Exception):
    """A qualified name leads to something that is not accepted."""


def _is_for_configs(cls: type) -> bool:
    if cls.__module__.startswith(_NOT_FOR_CONFIGS):
        return False
    return (
        dataclasses.is_dataclass(cls)
        or issubclass(cls, enum.Enum)
        or _is_dtype(cls)
        or any(base.__module__ == "flax.nnx.module" for base in cls.__mro__)
    )


def _is_dtype(cls: type) -> bool:
    """Tell numeric types: `numpy.float32`, `jax.numpy.bfloat16`."""
    import numpy as np

    if cls.__module__.partition(".")[0] not in ("jax", "ml_dtypes", "numpy"):
        return False
    try:
        return cls is np.dtype or np.dtype(cls).kind not in "OSU"
    except TypeError:
        return False
