"""`convert`, which makes klinen classes of flax classes, and layers made with it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import flax.linen as nn
import jax

from kauldron.klinen.definitions import REMAKE
from kauldron.klinen.module import RESERVED_NAMES, Module
from kauldron.klinen.training_mode import current_mode

_T = TypeVar("_T")


def convert(target: _T) -> _T:
    """Make a klinen class of a flax class, or a klinen module of a flax module.

    Args:
      target: A class deriving from `flax.linen.Module`, or an instance of one.

    Returns:
      A class that derives from `target` and from `knn.Module` (always the same one for
      a class); or an instance of such a class, with the same fields. What is klinen
      already is returned as it is.

    Example:
      >>> import jax.numpy as jnp
      >>> LayerNorm = convert(nn.LayerNorm)
      >>> norm = LayerNorm().init_bind(0, jnp.zeros((1, 8)))
      >>> norm(jnp.ones((2, 8))).shape
      (2, 8)
    """
    if inspect.isclass(target) and issubclass(target, nn.Module):
        is_klinen = issubclass(target, Module)
        return target if is_klinen else cast(_T, _convert_class(target))
    if isinstance(target, nn.Module):
        is_klinen = isinstance(target, Module)
        return target if is_klinen else cast(_T, _convert_instance(target))
    raise TypeError(
        "`knn.convert` takes a class that derives from `flax.linen.Module`, or an "
        f"instance of one, not {type(target).__name__}: {target!r:.80}."
    )


def once_per_class(make: Callable[[type[nn.Module]], _T]) -> Callable[..., _T]:
    """Cache what is made of a class: two threads must not make two."""
    cached, lock = functools.cache(make), threading.RLock()

    @functools.wraps(make)
    def get(cls: type[nn.Module]) -> _T:
        with lock:
            return cached(cls)

    return get


def same_name_class(
    cls: type[nn.Module], bases: tuple[type, ...], **namespace: Any
) -> Any:
    """Return a new class that looks like `cls`."""
    copied = {name: getattr(cls, name) for name in _LOOKS}
    return types.new_class(
        cls.__name__, bases, exec_body=lambda body: body.update(copied | namespace)
    )


_LOOKS = ("__module__", "__qualname__", "__doc__")


@once_per_class
def _convert_class(cls: type[nn.Module]) -> type[Module]:
    converted = same_name_class(cls, (cls, Module), **_plain_fields(cls))
    setattr(converted, REMAKE, functools.partial(convert, cls))
    return converted


def _plain_fields(cls: type[nn.Module]) -> dict[str, Any]:
    """Return the fields that properties of `Module` would hide."""
    names = {field.name for field in dataclasses.fields(cls)} & RESERVED_NAMES
    return {name: _PlainField(name) for name in names if not hasattr(cls, name)}


class _PlainField:
    """Lets the instance dict decide, unlike a property."""

    nowrap = True  # flax leaves it alone

    def __init__(self, name: str):
        self._name = name

    def __get__(self, module: nn.Module | None, owner: type) -> Any:
        if module is None:
            return self
        raise AttributeError(self._name)


def _convert_instance(module: nn.Module) -> Module:
    fields = {
        field.name: getattr(module, field.name)
        for field in dataclasses.fields(module)
        if field.init
    }
    return _convert_class(type(module))(**fields)


#
# Layers of flax
#


if TYPE_CHECKING:

    class Dense(nn.Dense, Module): ...

    class Sequential(nn.Sequential, Module): ...

    class _Dropout(nn.Dropout, Module): ...

else:
    Dense = convert(nn.Dense)
    Sequential = convert(nn.Sequential)
    _Dropout = convert(nn.Dropout)


class Dropout(_Dropout):
    """`flax.linen.Dropout` that is active exactly in training mode.

    Attributes:
      rate: Probability of a value to be zeroed.
      broadcast_dims: Dimensions along which values share their fate.
      deterministic: Not to be set; the mode decides.
      rng_collection: Name of the random stream.

    Example:
      >>> import jax.numpy as jnp
      >>> dropout = Dropout(0.5).init_bind(0, jnp.ones(4))
      >>> dropout.eval()(jnp.ones(4))
      Array([1., 1., 1., 1.], dtype=float32)
    """

    def __post_init__(self) -> None:
        if self.deterministic is not None:
            raise ValueError(
                "knn.Dropout(deterministic=...) is not supported: it drops values "
                "exactly when the model is in training. Use `model.eval()` and "
                "`model.train()`."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Zero a random part of the inputs and scale up the rest.

        Args:
          inputs: Any array.

        Returns:
          An array like `inputs`.
        """
        return super().__call__(inputs, deterministic=not current_mode(self))
