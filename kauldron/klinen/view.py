"""What is behind a bound model: `Root`, the model, and `View`, a place in it.

A handle such as `model.encoder` is a `View` of the same `Root` at another location.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import flax.errors
import flax.linen as nn
import jax
import numpy as np
from flax.core import DenyList, FrozenDict, freeze

from kauldron.klinen import errors
from kauldron.klinen.bound import bind
from kauldron.klinen.definitions import (
    Blueprint,
    Location,
    Method,
    PackedModule,
    Path,
    attribute,
    call_method,
    field_names,
    map_structure,
    pack,
    unpack,
    walk,
)
from kauldron.klinen.intermediate_fields import COLLECTION
from kauldron.klinen.intermediates import (
    Intermediates,
    call_and_record,
    captures_of,
    recorded_call,
)
from kauldron.klinen.rngs import call_rngs, next_rngs
from kauldron.klinen.training_mode import use_mode
from kauldron.klinen.variables import (
    CodedTree,
    check_same_structure,
    subtree,
    with_subtree,
)

#
# The model
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Root:
    """A model: its definition, variables, random keys and mode.

    Attributes:
      blueprint: The definition.
      params: The parameters.
      collections: All other variables.
      rngs: The key of each random stream.
      training: The mode.
      streams: For which streams `with_rng(key)` makes keys.
      params_only: Whether, as a pytree, the parameters are the only leaves.
      handles: Sub-modules in use, by path: a shared one is one object. Weak, so that
        there is no cycle that keeps arrays alive.
    """

    blueprint: Blueprint
    params: FrozenDict[str, Any]
    collections: CodedTree
    rngs: CodedTree
    training: bool
    streams: tuple[str, ...]
    params_only: bool = False
    handles: weakref.WeakValueDictionary[Path, nn.Module] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary, init=False
    )

    def replace(self, **changes: Any) -> Root:
        """Return a root with other fields."""
        return dataclasses.replace(self, **changes)

    @property
    def settings(self) -> tuple[Any, ...]:
        """What is neither an array nor part of the definition."""
        return self.training, self.streams, self.params_only

    def __reduce__(self) -> tuple[Any, ...]:
        fields = [field.name for field in dataclasses.fields(self) if field.init]
        return _restore_root, ({name: getattr(self, name) for name in fields},)

    def variables(self) -> dict[str, Any]:
        """Return everything that flax needs."""
        return {"params": self.params, **self.collections.values()}

    def run(
        self, fn: Callable[[nn.Module], Any], *, keep_intermediates: bool = False
    ) -> tuple[Any, dict[str, Any]]:
        """Run a function on the module, with its variables, as flax's `apply`.

        Return what `fn` returns, and all variables as they are afterwards.
        """
        rngs = self.rngs.values()
        denied = set() if keep_intermediates else {COLLECTION}
        if "params" in rngs:  # else a missing parameter would be made, at random
            denied.add("params")

        def run_in_scope(module: nn.Module) -> Any:
            try:
                return fn(module)
            except (errors.MissingRngError, errors.WrongShapeError):
                raise  # of another model, called inside this one
            except flax.errors.InvalidRngError as error:
                raise errors.missing_rng(error, rngs, self.streams) from error
            except flax.errors.ScopeParamShapeError as error:
                raise errors.wrong_shape(error) from error

        apply = nn.apply(
            run_in_scope, self.blueprint.definition, mutable=DenyList(tuple(denied))
        )
        with use_mode(self.training):
            return apply(self.variables(), rngs=rngs)


def _restore_root(fields: dict[str, Any]) -> Root:
    return Root(**fields)


#
# A place in it
#


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """A place in a model: what a bound model or a handle shows.

    Attributes:
      root: The model.
      location: How to get from its root module to this one: attributes and items.
      path: Where flax keeps the variables of this module.
      definition: This module, without parameters.
    """

    root: Root
    location: Location
    path: Path
    definition: nn.Module

    def derive(self, **changes: Any) -> Any:
        """Return this place in a model with other fields of `Root`."""
        return bind(dataclasses.replace(self, root=self.root.replace(**changes)))

    # ------------------------------------------------------------------------------
    # Attributes
    # ------------------------------------------------------------------------------

    def field(self, name: str) -> Any:
        """Return the value of a field, with handles in the place of modules."""
        location = (*self.location, name)
        return map_structure(self._as_handle, getattr(self.definition, name), location)

    def setup_attribute(self, name: str) -> Any:
        """Return what `setup()` assigned, with handles in place of modules."""
        return map_structure(self._as_handle, *find_setup_attribute(self, name))

    def _as_handle(self, value: Any, location: Location) -> Any:
        if not isinstance(value, nn.Module):
            return value
        path = self.root.blueprint.paths.get(location)
        if path is None:  # below a module that is made in `setup()`
            path, _ = self.root.run(lambda module: walk(module, location).path)
        handle = self.root.handles.get(path)
        if handle is None:
            location = self.root.blueprint.first_locations.get(path, location)
            handle = bind(View(self.root, location, path, value))
            self.root.handles[path] = handle
        return handle

    # ------------------------------------------------------------------------------
    # Variables
    # ------------------------------------------------------------------------------

    @property
    def params(self) -> FrozenDict[str, Any]:
        return subtree(self.root.params, self.path)

    @property
    def collections(self) -> dict[str, FrozenDict[str, Any]]:
        values = self.root.collections.values()
        return {name: subtree(tree, self.path) for name, tree in values.items()}

    @property
    def variables(self) -> dict[str, FrozenDict[str, Any]]:
        return {"params": self.params, **self.collections}

    def with_params(self, params: Mapping[str, Any]) -> Any:
        check_same_structure(self.params, params, "`with_params`")
        return self.derive(params=with_subtree(self.root.params, self.path, params))

    def with_variables(self, variables: Mapping[str, Any]) -> Any:
        check_same_structure(self.variables, variables, "`with_variables`")
        new = {
            name: with_subtree(tree, self.path, variables.get(name, {}))
            for name, tree in self.root.variables().items()
        }
        return self.derive(params=new.pop("params"), collections=CodedTree(new))

    # ------------------------------------------------------------------------------
    # Random keys
    # ------------------------------------------------------------------------------

    def with_rng(self, rng: Any) -> Any:
        if rng is not None:
            rngs = call_rngs(rng, self.root.streams)
        elif self.root.rngs.values():
            rngs = next_rngs(self.root.rngs.values())
        else:
            raise ValueError(
                "`with_rng()` continues from the random keys of the model, but it has "
                "none yet. Call `model.with_rng(key)` first."
            )
        return self.derive(rngs=CodedTree(rngs))

    # ------------------------------------------------------------------------------
    # Calls
    # ------------------------------------------------------------------------------

    def call(
        self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        captures = captures_of(self)
        if captures:
            return recorded_call(self, captures, method, args, kwargs)
        output, _ = self._run(method, args, kwargs)
        return output

    def call_and_update(
        self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any]:
        output, variables = self._run(method, args, kwargs)
        collections = {
            name: freeze(tree)
            for name, tree in variables.items()
            if name not in ("params", COLLECTION)
        }
        return output, self.derive(collections=CodedTree(collections))

    def call_with_intermediates(
        self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Intermediates]:
        output, captured = call_and_record(self, method, args, kwargs)
        return output, Intermediates(captured, self.path)

    def _run(
        self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        return self.root.run(
            lambda module: call_method(
                walk(module, self.location), method, args, kwargs
            )
        )

    # ------------------------------------------------------------------------------
    # As text, as a value
    # ------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return the definition, and a line about parameters, mode and random keys."""
        mode = "train" if self.root.training else "eval"
        keys = self.root.rngs.codes()
        streams = ", ".join(keys) if isinstance(keys, dict) and keys else "none"
        count = sum(map(_size, jax.tree.leaves(self.params)))
        settings = f"{mode} mode, {count:,} parameters, rngs: {streams}"
        return f"{self.definition!r}\n# bound: {settings}"

    def __reduce__(self) -> tuple[Any, ...]:
        packed = pack(self.definition)
        return _restore_view, (self.root, self.location, self.path, packed)


def _restore_view(
    root: Root, location: Location, path: Path, definition: PackedModule
) -> View:
    return View(root, location, path, unpack(definition))


def _size(leaf: Any) -> int:
    return int(np.prod(getattr(leaf, "shape", ()), dtype=np.int64))


#
# Attributes made in `setup()`
#


def find_setup_attribute(view: View, name: str) -> tuple[Any, Location]:
    """Return the value of an attribute, with definitions in the place of modules.

    Also return its location.
    """
    cls = type(view.definition)
    if cls.setup is nn.Module.setup:
        raise AttributeError(_missing_message(view, name))

    def read(module: nn.Module) -> Any:
        owner = walk(module, view.location)
        try:
            value = attribute(owner, name)
        except AttributeError as error:
            raise AttributeError(_missing_message(view, name)) from error
        return map_structure(lambda leaf, _: _as_definition(leaf, view, name), value)

    value, _ = view.root.run(read)
    return value, (*view.location, name)


def _as_definition(value: Any, view: View, name: str) -> Any:
    if isinstance(value, nn.Module):
        definition, _ = nn.Module.unbind(value)
        return definition
    if isinstance(value, nn.Variable):
        raise AttributeError(
            f"`{type(view.definition).__name__}.{name}` is a flax variable, which exists "
            "only inside a call. Its value is in "
            f"`model.collections[{value.collection!r}][{value.name!r}]`."
        )
    return value


def _missing_message(view: View, name: str) -> str:
    cls = type(view.definition)
    fields = ", ".join(field_names(cls)) or "none"
    return (
        f"{cls.__name__!r} object has no attribute {name!r}: it is neither a field "
        f"({fields}) nor set in `setup()`. Modules that are made inside a call have "
        "no attribute; their parameters are in `model.params['<name>']`."
    )
