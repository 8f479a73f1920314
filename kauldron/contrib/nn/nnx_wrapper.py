"""NNX modules as linen modules, to be used inside models of linen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.core
import flax.linen as nn
from flax import nnx

from kauldron.contrib.nn import nnx_collections
from kauldron.nn import train_property


class LinenFromNnxDef(nn.Module):
    """A linen module that makes an NNX module at `init`, and rebuilds it at each call.

    Its parameters are those of the NNX module; everything else is in the collection
    `nnx`. Use `linen_from_nnx` to make one.

    Attributes:
      nnx_class: The class of the NNX module.
      args: Positional arguments of the class.
      kwargs: Keyword arguments of the class, without `rngs`.
    """

    nnx_class: Callable[..., nnx.Module]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = flax.core.FrozenDict()

    is_training = train_property()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("__call__", args, kwargs)

    def _call(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        rngs = {name: self.make_rng(name) for name in (self.scope and self.scope.rngs)}
        is_new = not self.has_variable("nnx", "graphdef")
        if is_new:
            with nnx_collections.naming_missing_streams(type(self).__name__):
                module = _make(self, nnx_collections.make_rngs(rngs))
        else:
            module = nnx_collections.merge(self.variables, rngs)
        nnx_collections.set_mode(module, self._mode())
        function = getattr(type(module), method)
        result, interms = nnx_collections.call(function, module, *args, **kwargs)
        changed = nnx_collections.split(module)
        if is_new:
            self._store("params", changed["params"])
        self._store("nnx", changed["nnx"])
        self._store("intermediates", interms)
        return result

    def _mode(self) -> bool | None:
        try:
            return self.is_training
        except ValueError:  # no mode was given: the module keeps its own
            return None

    def _store(self, collection: str, values: Mapping[str, Any]) -> None:
        if self.is_mutable_collection(collection):
            for name, value in values.items():
                self.put_variable(collection, name, value)


def linen_from_nnx(
    cls: Callable[..., nnx.Module], *args: Any, **kwargs: Any
) -> LinenFromNnxDef:
    """Return a linen module made of an NNX class.

    Its methods are those of the class. Keys (`kontext.Key`) of the class are not seen:
    wrap the result in `kd.nn.ExternalModule(model=..., keys=...)`.

    Args:
      cls: The NNX class.
      *args: Its arguments. Those that are made with `linen_from_nnx` themselves, also
        inside lists and dicts, become NNX modules.
      **kwargs: Its keyword arguments, without `rngs`.

    Example:
      >>> import jax
      >>> model = linen_from_nnx(nnx.Linear, in_features=3, out_features=4)
      >>> type(model).__name__
      'LinenFromNnxLinear'
      >>> variables = model.init(jax.random.key(0), jax.numpy.ones((2, 3)))
      >>> sorted(variables["params"])
      ['bias', 'kernel']
    """
    return _linen_class(cls)(nnx_class=cls, args=args, kwargs=kwargs)


@functools.cache
def _linen_class(cls: Any) -> Any:
    """Return a subclass with the public methods of an NNX class."""
    names = [
        name
        for name in dir(cls)
        if not name.startswith("_") and callable(getattr(cls, name))
    ]
    inherited = {*dir(nn.Module), *dir(nnx.Module)}
    methods = {name: _forward(cls, name) for name in names if name not in inherited}
    name = getattr(getattr(cls, "func", cls), "__name__", "Function")
    return type(
        f"LinenFromNnx{name}", (LinenFromNnxDef,), {"__module__": __name__, **methods}
    )


def _forward(cls: Any, name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(cls, name))
    def method(self: LinenFromNnxDef, *args: Any, **kwargs: Any) -> Any:
        return self._call(name, args, kwargs)

    return method


def _make(value: Any, rngs: nnx.Rngs) -> Any:
    """Make the NNX modules that a value stands for or contains."""
    if isinstance(value, LinenFromNnxDef):
        args = _make(tuple(value.args), rngs)
        kwargs = _make(dict(value.kwargs), rngs)
        if nnx_collections.takes_rngs(value.nnx_class):
            kwargs.setdefault("rngs", rngs)
        return value.nnx_class(*args, **kwargs)
    if isinstance(value, Mapping):
        return {name: _make(item, rngs) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_make(item, rngs) for item in value)
    return value
