"""Jitted methods whose compiled programs live and die with their object."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


class jit_method:
    """Compile a method with `jax.jit`, once per object.

    `jax.jit` with a static `self` keeps every object that was ever used in a global
    cache, with all that it refers to. Here the object owns its programs, so that both
    are freed together. On an object, the method has what jitted functions have, such
    as `.lower`.

    Args:
      **jit_options: Options of `jax.jit`; `self` is not an argument.

    Example:
      >>> class Scaler:
      ...     factor = 3
      ...     @jit_method()
      ...     def scale(self, x):
      ...         return self.factor * x
      >>> int(Scaler().scale(2))
      6
    """

    def __init__(self, **jit_options: Any):
        self._options = jit_options
        self._fn: Callable[..., Any]

    def __call__(self, fn: Callable[..., Any]) -> Any:
        """Decorate `fn`."""
        self._fn = fn
        functools.update_wrapper(self, fn)
        return self

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_program_of_{owner.__name__}_{name}"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        programs = vars(instance)
        if self._key not in programs:
            import jax

            method = types.MethodType(self._fn, instance)
            programs[self._key] = jax.jit(method, **self._options)
        return programs[self._key]
