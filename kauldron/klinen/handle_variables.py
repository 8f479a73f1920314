"""Which variables of a model one of its sub-modules needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flax.linen as nn

from kauldron.klinen.coded_leaves import CodedTree
from kauldron.klinen.definitions import Path, field_names, field_paths, walk
from kauldron.klinen.structures import Location
from kauldron.klinen.variable_trees import EVERYTHING, Selection

if TYPE_CHECKING:
    from kauldron.klinen.root import Root
    from kauldron.klinen.view import View


def needed_variables(view: View) -> Selection:
    """The variables of a sub-module, and those that it needs from elsewhere.

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
    """Whether the sub-module can be reached: a `setup()` may also call siblings."""
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
