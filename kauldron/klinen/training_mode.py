"""Whether the model that runs is in training.

The mode is a Python bool that modules read while they are traced, so whatever caches
traces has to depend on it: it lives in a JAX user context, which is part of the keys of
JAX's tracing and compilation caches. Training is the default value, so that it shares
those caches with everything outside of models.

`kd.nn` has a mode of its own (`kd.nn.train_property`). Once it is loaded, calls of
klinen models set both, and what is set there wins here: `kd.nn.set_train_property`
works inside klinen modules, and klinen modules work inside `kd.train.Trainer`.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax

from kauldron.import_hooks import on_import

_KD_NN = "kauldron.nn.properties"

_is_training = jax.make_user_context(default_value=True)
# The calls that are running, outermost first: should one of them import `kd.nn`.
_running: contextvars.ContextVar[tuple[tuple[contextlib.ExitStack, bool], ...]] = (
    contextvars.ContextVar("klinen_calls", default=())
)

_set_in_kd_nn: Callable[[bool], contextlib.AbstractContextManager[None]] | None = None
_read_in_kd_nn: Callable[..., bool] | None = None


@contextlib.contextmanager
def use_mode(training: bool) -> Iterator[None]:
    """Set the mode for what is called inside the `with` block, in this thread."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_is_training(training))
        token = _running.set((*_running.get(), (stack, training)))
        stack.callback(_running.reset, token)
        if _set_in_kd_nn is not None:
            stack.enter_context(_set_in_kd_nn(training))
        yield


def current_mode(module: nn.Module) -> bool:
    """Return the mode in which flax runs this module; training is the default."""
    if _read_in_kd_nn is not None:
        with contextlib.suppress(ValueError):  # not set there
            return _read_in_kd_nn(module, type(module))
    return _is_training.value


def _connect_to_kd_nn() -> None:
    global _set_in_kd_nn, _read_in_kd_nn
    kd_nn: Any = sys.modules[_KD_NN]
    _set_in_kd_nn = kd_nn.set_train_property
    _read_in_kd_nn = kd_nn.train_property().__get__
    for stack, training in _running.get():
        stack.enter_context(kd_nn.set_train_property(training))


on_import(_KD_NN, _connect_to_kd_nn)
