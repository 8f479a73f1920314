"""Whether a flax module is called in training or in evaluation.

The mode is a Python bool that modules read while they are traced, so whatever caches
traces has to depend on it. It therefore lives in a JAX user context: local to the
thread, and part of the keys of JAX's tracing and compilation caches. A jitted function
never replays the trace of the other mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from kauldron.nn.in_call_property import InCallProperty

_mode = jax.make_user_context(default_value=None)


def train_property() -> Any:
    """Property of a flax module telling whether it is called in training.

    The value is what the outermost `init` or `apply` got as `is_training_property=`, or
    what `set_train_property` says. It holds for all sub-modules.

    Returns:
      A descriptor to assign, without annotation, in the body of a flax module.

    Example:
      >>> import flax.linen as nn
      >>> from kauldron import kd
      >>> class Net(nn.Module):
      ...     is_training = kd.nn.train_property()
      ...
      ...     def __call__(self):
      ...         return "train" if self.is_training else "eval"
      >>> Net().apply({}, is_training_property=False)
      'eval'
    """
    return InCallProperty(_current_mode, name="is_training")


@contextlib.contextmanager
def set_train_property(is_training: bool) -> Iterator[None]:
    """Set the mode for what is called inside the `with` block, in this thread.

    Use it in a module to run a sub-module in another mode, or around the call of a
    module by code that does not know the `is_training_property=` keyword.

    Args:
      is_training: A Python or NumPy bool; not a traced value.

    Example:
      >>> import flax.linen as nn
      >>> from kauldron import kd
      >>> class Net(nn.Module):
      ...     is_training = kd.nn.train_property()
      ...
      ...     def __call__(self):
      ...         return self.is_training
      >>> with set_train_property(True):
      ...     Net().apply({})
      True
    """
    with _mode(_as_bool(is_training)):
        yield


def _current_mode(module: Any) -> bool:
    if _mode.value is None:
        raise ValueError(
            "The `is_training_property=` kwargs was not set, so "
            f"{type(module).__name__} cannot know whether it is in training. Give it to "
            "the outermost call, `model.apply(..., is_training_property=True)` (or "
            "`init`), or call the module inside "
            "`with kd.nn.set_train_property(True):`."
        )
    return _mode.value


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    message = f"`is_training_property` must be a bool, not {type(value).__name__}"
    if isinstance(value, jax.core.Tracer):
        raise ValueError(
            f"{message} (a traced value). Make the argument static: "
            '`jax.jit(model.apply, static_argnames="is_training_property")`.'
        )
    raise ValueError(f"{message}: {value!r:.80}.")
