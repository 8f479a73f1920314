"""`View`: what a bound model, or a handle of one of its sub-modules, shows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
from flax.core import FrozenDict, freeze

from kauldron.klinen import capturing, model_text, pytree_nodes, rng_keys
from kauldron.klinen.bound_class import bind
from kauldron.klinen.captured import Intermediates
from kauldron.klinen.coded_leaves import CodedTree
from kauldron.klinen.definitions import Path, copy_definition, walk
from kauldron.klinen.intermediate_fields import COLLECTION
from kauldron.klinen.method_calls import Method, call_method
from kauldron.klinen.packed_modules import PackedModule, pack, unpack
from kauldron.klinen.root import Root
from kauldron.klinen.setup_attributes import find_setup_attribute
from kauldron.klinen.structures import Location, map_structure
from kauldron.klinen.variable_trees import (
    check_same_structure,
    subtree,
    with_subtree,
)


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """A place in a model.

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
        """This place in a model with other fields of `Root`."""
        return bind(dataclasses.replace(self, root=self.root.replace(**changes)))

    # ------------------------------------------------------------------------------
    # Attributes
    # ------------------------------------------------------------------------------

    def field(self, name: str) -> Any:
        """The value of a field, with handles in the place of modules."""
        location = (*self.location, name)
        return map_structure(self._as_handle, getattr(self.definition, name), location)

    def setup_attribute(self, name: str) -> Any:
        """What `setup()` assigned, with handles in the place of modules."""
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

    def raw_module(self) -> Any:
        """A module like this one without parameters."""
        return copy_definition(self.definition)

    # ------------------------------------------------------------------------------
    # Random keys
    # ------------------------------------------------------------------------------

    def with_rng(self, rng: Any) -> Any:
        if rng is not None:
            rngs = rng_keys.call_rngs(rng, self.root.streams)
        elif self.root.rngs.values():
            rngs = rng_keys.next_rngs(self.root.rngs.values())
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
        captures = capturing.captures_of(self)
        if captures:
            return capturing.call(self, captures, method, args, kwargs)
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
        output, captured = capturing.record(self, method, args, kwargs)
        return output, Intermediates(captured, self.path)

    def capture_intermediates(
        self,
    ) -> contextlib.AbstractContextManager[Intermediates]:
        return capturing.capture(self)

    def _run(
        self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        return self.root.run(
            lambda module: call_method(
                walk(module, self.location), method, args, kwargs
            )
        )

    # ------------------------------------------------------------------------------
    # As a value, as a pytree, as text
    # ------------------------------------------------------------------------------

    def flatten(self) -> tuple[tuple[Any, ...], Any]:
        return pytree_nodes.flatten(self)

    def flatten_with_keys(self) -> tuple[tuple[Any, ...], Any]:
        return pytree_nodes.flatten_with_keys(self)

    def describe(self) -> str:
        return model_text.describe(self)

    def __reduce__(self) -> tuple[Any, ...]:
        packed = pack(self.definition)
        return _restore_view, (self.root, self.location, self.path, packed)


def _restore_view(
    root: Root, location: Location, path: Path, definition: PackedModule
) -> View:
    return View(root, location, path, unpack(definition))
