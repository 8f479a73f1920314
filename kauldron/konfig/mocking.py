"""`konfig.mock_modules()`: modules of the caller act as proxies for a while."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import MutableMapping
from types import FrameType, ModuleType
from typing import Any

from kauldron.konfig.configdict_proxy import ModuleTable


class mock_modules:
    """Inside the block, module variables of the caller build configs.

    For notebooks, where modules are imported already. Every variable among the
    caller's globals and locals that is bound to a module is replaced by a proxy, and
    put back on exit. `konfig` itself stays real.

    Example:
      >>> import fractions
      >>> from kauldron import konfig
      >>> with konfig.mock_modules():
      ...     cfg = fractions.Fraction(1, 3)
      >>> cfg
      <ConfigDict[fractions.Fraction(1, 3)]>
      >>> fractions.Fraction(1, 3)
      Fraction(1, 3)
    """

    def __init__(self) -> None:
        self._frame: FrameType | None = sys._getframe(1)
        self._replaced: list[tuple[bool, str, ModuleType, Any]] = []

    def __enter__(self) -> None:
        frame = self._frame
        if frame is None:
            raise RuntimeError("This mock_modules() was used already: make a new one.")
        table = ModuleTable()
        for is_local, scope in _scopes(frame):
            for name, value in list(scope.items()):
                if _is_mockable(name, value):
                    proxy = table.proxy(value.__name__)
                    scope[name] = proxy
                    self._replaced.append((is_local, name, value, proxy))
        _write_back(frame)

    def __exit__(self, *error: Any) -> None:
        frame, self._frame = self._frame, None
        assert frame is not None
        scopes = dict(_scopes(frame))
        for is_local, name, module, proxy in self._replaced:
            scope = scopes[is_local]
            if scope.get(name) is proxy:  # else it was bound to something new
                scope[name] = module
        _write_back(frame)

    def __call__(self, function: Any) -> Any:
        raise TypeError(
            "konfig.mock_modules() is not a decorator: it could not see the variables "
            "of the function. Write `with konfig.mock_modules():` inside of it."
        )


def _scopes(frame: FrameType) -> list[tuple[bool, MutableMapping[str, Any]]]:
    """The globals and, inside of a function, the locals: whether local, and which."""
    scopes: list[tuple[bool, MutableMapping[str, Any]]] = [(False, frame.f_globals)]
    # Reading f_locals brings the dict up to date; before Python 3.13 it is a copy.
    local_variables = frame.f_locals
    if local_variables is not frame.f_globals:
        scopes.append((True, local_variables))
    return scopes


def _is_mockable(variable: str, value: Any) -> bool:
    if not isinstance(value, ModuleType) or variable.startswith("__"):
        return False
    if value is sys.modules.get("kauldron.konfig"):
        return False
    name = getattr(value, "__name__", None)
    return isinstance(name, str) and all(name.split(".")) and name != "__main__"


def _write_back(frame: FrameType) -> None:
    """Makes writes to `f_locals` take effect."""
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
