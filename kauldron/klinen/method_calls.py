"""Calling a method that is given by name, as a function, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn

Method = str | Callable[..., Any] | None


def call_method(
    module: nn.Module,
    method: Method,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a method of a module that flax runs.

    Args:
      module: The module, inside flax.
      method: A name; a method of this or another instance, or of its class; a function
        that takes the module first; or `None` for `__call__`.
      args: Positional arguments.
      kwargs: Keyword arguments.

    Returns:
      What the method returns.
    """
    if isinstance(getattr(method, "__self__", None), nn.Module):
        method = getattr(method, "__name__", None)
    if method is None or method == "__call__":
        return module(*args, **kwargs)
    if isinstance(method, str):
        return getattr(module, method)(*args, **kwargs)
    if callable(method):
        return method(module, *args, **kwargs)
    raise TypeError(
        "`method` is the name of a method or a function that takes the module, not "
        f"{type(method).__name__}: {method!r:.80}."
    )
