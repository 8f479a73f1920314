"""The classes of bound models, and models as pytrees.

For each class of a user there is a hidden subclass of the same name, made when it is
first needed. Its instances are the bound models; only they are pytrees. So instances of
the user's class stay plain flax modules, which flax's lifted transforms rely on.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from kauldron.klinen import errors
from kauldron.klinen.definitions import (
    Location,
    Path,
    field_names,
    field_paths,
    map_structure,
    walk,
)
from kauldron.klinen.intermediate_fields import intermediate_field
from kauldron.klinen.layers import convert, once_per_class, same_name_class
from kauldron.klinen.module import VIEW, Module
from kauldron.klinen.variables import EVERYTHING, CodedTree, Form, Selection

if TYPE_CHECKING:
    from kauldron.klinen.view import Root, View


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
        children, static = flatten(view_of(self))
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


@once_per_class
def bound_class(cls: type[nn.Module]) -> type[Module]:
    """Return the class of bound models of a flax or klinen class."""
    hidden = same_name_class(cls, (_BoundMethods, convert(cls)))
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
        lambda model: flatten_with_keys(view_of(model)),
        lambda static, children: static.unflatten(children),
        lambda model: flatten(view_of(model)),
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


#
# As pytrees: what is a leaf and what is static
#


# The children of a node, as users see them in the paths of leaves.
CHILDREN = ("params", "collections", "rngs")


@dataclasses.dataclass(frozen=True, eq=False)
class Static:
    """The static part of a node: it holds no arrays and is compared by value.

    Attributes:
      view: The place, in a model without its arrays. Only where the model exposes
        nothing but parameters, the other arrays are in here, compared by identity.
      forms: The arrays that the leaves below `collections` stand for.
      rng_forms: The arrays that the leaves below `rngs` stand for.
    """

    view: View
    forms: tuple[Form, ...]
    rng_forms: tuple[Form, ...]

    def unflatten(self, children: tuple[Any, ...]) -> Any:
        """Return the model with these subtrees, whatever their leaves are."""
        changes = {"params": children[0]}
        if not self.view.root.params_only:
            changes["collections"] = CodedTree(codes=children[1], forms=self.forms)
            changes["rngs"] = CodedTree(codes=children[2], forms=self.rng_forms)
        root = self.view.root.replace(**changes)
        return bind(dataclasses.replace(self.view, root=root))

    def _key(self) -> tuple[Any, ...]:
        root = self.view.root
        hidden = (id(root.collections), id(root.rngs)) if root.params_only else ()
        return (
            self.view.location,
            root.settings,
            self.forms,
            self.rng_forms,
            hidden,
            root.blueprint,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        root = self.view.root
        mode = "train" if root.training else "eval"
        place = f", location={self.view.location}" if self.view.location else ""
        only = ", only params are leaves" if root.params_only else ""
        return f"{type(self.view.definition).__name__}({mode}{place}{only})"


def flatten(view: View) -> tuple[tuple[Any, ...], Static]:
    """Return the subtrees of a model and its static part."""
    root = view.root
    selection = needed_variables(view) if view.location else EVERYTHING
    params = selection.prune(root.params)
    if root.params_only:
        root = root.replace(params=None)
        return (params,), Static(dataclasses.replace(view, root=root), (), ())
    collections = root.collections
    if selection is not EVERYTHING and collections.forms:
        values = collections.values().items()
        pruned = {name: selection.prune(tree) for name, tree in values}
        collections = CodedTree(pruned)
    children = (params, collections.codes(), root.rngs.codes())
    root = root.replace(params=None, collections=None, rngs=None)
    static = Static(
        dataclasses.replace(view, root=root), collections.forms, view.root.rngs.forms
    )
    return children, static


def flatten_with_keys(view: View) -> tuple[tuple[Any, ...], Static]:
    """As `flatten`, with the names of the subtrees."""
    children, static = flatten(view)
    keys = map(jax.tree_util.GetAttrKey, CHILDREN)
    return tuple(zip(keys, children)), static


#
# Which variables of a model one of its sub-modules needs
#


def needed_variables(view: View) -> Selection:
    """Return the variables of a sub-module, and those that it needs from elsewhere.

    From elsewhere come those of modules that it shares with others. A sub-module that
    is made in the `setup()` of a module above also needs what that `setup()` needs.
    """
    blueprint = view.root.blueprint
    if view.location not in blueprint.selections:
        blueprint.selections[view.location] = _select(view.root, view.location)
    return blueprint.selections[view.location]


def _select(root: Root, location: Location) -> Selection:
    paths = root.blueprint.paths
    if location in paths:  # only fields on the way: no `setup()` has to run
        size = len(location)
        below = (path for where, path in paths.items() if where[:size] == location)
        return Selection(whole=frozenset(below))
    selection, _ = root.run(lambda module: _trace(module, location))
    return selection if _suffices(selection, root, location) else EVERYTHING


def _trace(module: nn.Module, location: Location) -> Selection:
    owners: set[Path] = set()
    found: Any = module
    for step in location:
        if isinstance(found, nn.Module) and step not in field_names(type(found)):
            owners.add(found.path)
        found = walk(found, (step,)) if isinstance(found, nn.Module) else found[step]
    below = field_paths(found, location).values()
    return Selection(whole=frozenset(below), own=frozenset(owners))


def _suffices(selection: Selection, root: Root, location: Location) -> bool:
    """Return whether the sub-module can be reached: a `setup()` may need siblings."""
    collections = root.collections.values().items()
    pruned = root.replace(
        params=selection.prune(root.params),
        collections=CodedTree({k: selection.prune(v) for k, v in collections}),
    )
    try:
        pruned.run(lambda module: walk(module, location))
    except Exception:
        return False
    return True
