"""Every flax linen module takes `is_training_property=`, and our keys as `rngs`.

Users derive from plain `flax.linen.Module`, so its `init`, `init_with_output` and
`apply` are wrapped. This module imports neither jax nor flax: it waits until flax gets
loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kauldron.import_hooks import on_import

_METHODS = ("init", "init_with_output", "apply")
_ORIGINAL = "__kauldron_original__"


def install() -> None:
    """Wrap the methods now, or as soon as `flax.linen` is imported. May be repeated."""
    on_import("flax.linen", _wrap_methods)


def _wrap_methods() -> None:
    import flax.linen as nn

    for name in _METHODS:
        current = getattr(nn.Module, name)
        original = getattr(current, _ORIGINAL, current)  # replace, never stack
        setattr(nn.Module, name, _with_mode(original))


def _with_mode(method: Callable[..., Any]) -> Callable[..., Any]:
    from kauldron.nn.properties import set_train_property

    takes_rngs_first = method.__name__ != "apply"

    @functools.wraps(method)
    def wrapper(
        self: Any, *args: Any, is_training_property: bool | None = None, **kwargs: Any
    ) -> Any:
        __tracebackhide__ = True
        if "rngs" in kwargs:
            kwargs["rngs"] = _plain_rngs(kwargs["rngs"])
        elif takes_rngs_first and args:
            args = (_plain_rngs(args[0]), *args[1:])
        if is_training_property is None:
            return method(self, *args, **kwargs)
        with set_train_property(is_training_property):
            return method(self, *args, **kwargs)

    setattr(wrapper, _ORIGINAL, method)
    return wrapper


def _plain_rngs(rngs: Any) -> Any:
    """Return plain JAX keys, as flax wants them: a single one, or a dict."""
    from kauldron.random.prng_key import unwrap

    if isinstance(rngs, dict):
        return {name: unwrap(key) for name, key in rngs.items()}
    return unwrap(rngs)
