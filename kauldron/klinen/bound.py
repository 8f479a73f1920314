"""The classes of bound models.

For each class of a user there is a hidden subclass of the same name, made when it is
first needed. Its instances are the bound models; only they are pytrees. So instances of
the user's class stay plain flax modules, which flax's lifted transforms rely on.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from kauldron.klinen import errors
from kauldron.klinen.definitions import field_names, map_structure
from kauldron.klinen.intermediates import intermediate_field
from kauldron.klinen.layers import convert
from kauldron.klinen.module import VIEW, Module

if TYPE_CHECKING:
    from kauldron.klinen.view import View


def bind(view: View) -> Any:
    """Return the model that shows this view."""
    model: Any = object.__new__(bound_class(type(view.definition)))
    # With what flax keeps in a module it is, for flax, like the definition.
    model.__dict__.update(vars(view.definition))
    model.__dict__[VIEW] = view
    return model


def view_of(model: Any) -> View:
    """Return the view behind a bound model."""
    return vars(model)[VIEW]


class _BoundMethods:
    """What bound models do differently."""

    def __getattr__(self, name: str) -> Any:
        field = intermediate_field(type(self), name)
        if field is not None:
            raise field.read_error(self)  # pyright: ignore[reportArgumentType]
        if name.startswith("__") or VIEW not in vars(self):
            raise AttributeError(name)
        return view_of(self).setup_attribute(name)

    def __setattr__(self, name: str, value: Any) -> None:
        field = intermediate_field(type(self), name)
        if field is not None:
            field.__set__(self, value)  # pyright: ignore[reportArgumentType]
        raise errors.frozen(self, name)  # pyright: ignore[reportArgumentType]

    def __delattr__(self, name: str) -> None:
        raise errors.frozen(self, name)  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        return view_of(self).describe()

    def __reduce_ex__(self, protocol: Any) -> Any:
        children, static = view_of(self).flatten()
        return static.unflatten, (children,)


def _is_equal(self: Any, other: Any) -> Any:
    """Like flax modules, models are equal if their definitions are."""
    return view_of(self).definition == _raw(other)


def _hash(self: Any) -> int:
    # JAX finds compiled programs by equality: of functions, as in `jax.jit(model)`, and
    # of static arguments. It would take the program of one model for that of another.
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.partition(".")[0] == "jax":
        raise errors.not_a_key_of_programs(self)
    try:
        return hash(view_of(self).definition)
    except TypeError:  # some field is a list or a dict
        return hash(type(self))


def _raw(value: Any, _: Any = ()) -> Any:
    """Return the definition of a bound model; anything else as it is."""
    if isinstance(value, nn.Module) and VIEW in vars(value):
        return view_of(value).definition
    return value


# Methods of flax that are about the definition and the variables given to them.
_OF_THE_DEFINITION = (
    "apply",
    "bind",
    "clone",
    "copy",
    "init",
    "init_with_output",
    "lazy_init",
    "module_paths",
    "tabulate",
)


_making_a_class = threading.RLock()  # two threads must not make two classes


def bound_class(cls: type[nn.Module]) -> type[Module]:
    """Return the class of bound models of a flax or klinen class."""
    with _making_a_class:
        return _make_class(cls)


@functools.cache
def _make_class(cls: type[nn.Module]) -> type[Module]:
    namespace = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    hidden: Any = types.new_class(
        cls.__name__,
        (_BoundMethods, convert(cls)),
        exec_body=lambda body: body.update(namespace),
    )
    # From here on flax does not look at the class any more.
    hidden.__new__ = staticmethod(_constructor(cls))
    hidden.__eq__ = _is_equal
    hidden.__hash__ = _hash
    for name in field_names(cls):
        setattr(hidden, name, _FieldOfModel(name))
    for name in _names_set_in_setup(cls):
        setattr(hidden, name, _SetupField(name))
    for name in _OF_THE_DEFINITION:
        setattr(hidden, name, _on_definition(name, getattr(cls, name)))
    for name in _method_names(cls):
        setattr(hidden, name, _on_model(name, getattr(cls, name)))
    jax.tree_util.register_pytree_with_keys(
        hidden,
        lambda model: view_of(model).flatten_with_keys(),
        lambda static, children: static.unflatten(children),
        lambda model: view_of(model).flatten(),
    )
    return hidden


class _FieldOfModel:
    """A field of the definition, with handles in the place of modules."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        return self if model is None else view_of(model).field(self._name)

    def __set__(self, model: Any, value: Any) -> None:
        raise errors.frozen(model, self._name)


class _SetupField(_FieldOfModel):
    """A field for which `setup()` has a value; its default would hide that."""

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        return self if model is None else view_of(model).setup_attribute(self._name)


def _names_set_in_setup(cls: type[nn.Module]) -> list[str]:
    if cls.setup is nn.Module.setup:
        return []
    names = [field.name for field in dataclasses.fields(cls) if not field.init]
    return [name for name in names if intermediate_field(cls, name) is None]


def _constructor(cls: type[nn.Module]) -> Callable[..., nn.Module]:
    """Let `type(model)(...)`, as in `dataclasses.replace`, make a plain module."""

    def new(_: type, *args: Any, **kwargs: Any) -> nn.Module:
        return cls(*map_structure(_raw, args), **map_structure(_raw, kwargs))

    return new


def _on_definition(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method, updated=())
    def on_definition(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(view_of(self).definition, name)(*args, **kwargs)

    return on_definition


def _on_model(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method, updated=())
    def on_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        if VIEW not in vars(self):  # `raw.apply(variables, x, method=model.encode)`
            return getattr(self, name)(*args, **kwargs)
        return view_of(self).call(name, args, kwargs)

    return on_model


def _method_names(cls: type[nn.Module]) -> list[str]:
    """Return the methods that run inside flax."""
    fields = set(field_names(cls))
    return [name for name in dir(cls) if name not in fields and _is_method(cls, name)]


def _is_method(cls: type[nn.Module], name: str) -> bool:
    if name.startswith("_") and name != "__call__":
        return False
    if name == "setup" or name in _OF_THE_DEFINITION:
        return False
    owner = next(base for base in cls.__mro__ if name in vars(base))
    method = vars(owner)[name]
    if owner in Module.__mro__ or not callable(method) or inspect.isclass(method):
        return False
    if isinstance(method, staticmethod | classmethod):
        return False
    # Flax marks the methods of `nn.compact_name_scope` as `nowrap` too.
    return not hasattr(method, "nowrap") or hasattr(method, "compact_name_scope")
