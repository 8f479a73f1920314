"""Properties of flax modules that only mean something inside `init` and `apply`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class InCallProperty(property):
    """A read-only property for the body of a flax module.

    Args:
      compute: From the bound module to the value.
      name: How the property is called in messages until the class body names it.
    """

    def __init__(self, compute: Callable[[Any], Any], name: str):
        super().__init__(self._read)
        self._compute = compute
        self._name = name

    def _read(self, module: Any) -> Any:
        if getattr(module, "scope", None) is None:
            raise ValueError(
                f"The `{self._name}` property can only be called inside `.init` or "
                f"`.apply` of a flax module: this {type(module).__name__} is not bound."
            )
        return self._compute(module)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        if name in inspect.get_annotations(owner):
            raise TypeError(
                f"`{owner.__qualname__}.{name}` has a type annotation, which makes it a "
                f"field of the module. Drop the annotation: `{name} = ...`."
            )
