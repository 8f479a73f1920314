"""Run code with user checks where nobody looks at them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def checkify_ignore(fn: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Make `fn` run its `checkify.check` calls without effect.

    A function with such checks cannot be jitted as it is. This makes it possible, for
    example to initialise a model, at the price of dropping what the checks find.

    Args:
      fn: Any function of JAX arrays.

    Returns:
      The function, with the same signature and name.

    Example:
      >>> import jax
      >>> from jax.experimental import checkify
      >>> @jax.jit
      ... @checkify_ignore
      ... def root(x):
      ...     checkify.check(x >= 0, "negative")
      ...     return x**0.5
      >>> float(root(4.0))
      2.0
    """
    from jax.experimental import checkify

    checked = checkify.checkify(fn, errors=checkify.user_checks)

    @functools.wraps(fn)
    def ignoring(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        _, result = checked(*args, **kwargs)
        return result

    return ignoring
