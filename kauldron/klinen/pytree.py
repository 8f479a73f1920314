"""Bound models as pytrees: what is a leaf and what is static."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from kauldron.klinen.bound import bind
from kauldron.klinen.definitions import Location, Path, field_names, field_paths, walk
from kauldron.klinen.variables import EVERYTHING, CodedTree, Form, Selection

if TYPE_CHECKING:
    from kauldron.klinen.view import Root, View

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
