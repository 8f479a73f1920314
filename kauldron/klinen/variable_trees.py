"""Parts of nested dicts of variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from flax import traverse_util
from flax.core import FrozenDict, freeze, unfreeze

from kauldron.klinen.definitions import Path


def subtree(tree: Mapping[str, Any], path: Path) -> FrozenDict[str, Any]:
    """The part at a path; empty if there is none.

    >>> subtree({"a": {"b": {"c": 1}}}, ("a", "b"))
    FrozenDict({
        c: 1,
    })
    """
    for name in path:
        tree = tree.get(name, {})
    return tree if isinstance(tree, FrozenDict) else freeze(dict(tree))


def with_subtree(
    tree: Mapping[str, Any], path: Path, new: Mapping[str, Any]
) -> FrozenDict[str, Any]:
    """The tree with another part at a path.

    >>> with_subtree({"a": {"b": 1}, "c": 2}, ("a",), {"b": 3})
    FrozenDict({
        a: {
            b: 3,
        },
        c: 2,
    })
    """
    if not path:
        return freeze(unfreeze(new))
    name, *rest = path
    part = with_subtree(tree.get(name, {}), tuple(rest), new)
    return freeze({**unfreeze(tree), name: part})


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which variables to keep.

    Attributes:
      whole: Modules of which everything is kept.
      own: Modules of which only their own variables are kept.
    """

    whole: frozenset[Path] = frozenset({()})
    own: frozenset[Path] = frozenset()

    def prune(self, tree: Any, path: Path = ()) -> Any:
        """The selected part of a nested dict; what is none stays."""
        if any(path[: len(kept)] == kept for kept in self.whole):
            return tree
        kept = {}
        for name, value in tree.items():
            if isinstance(value, Mapping):
                part = self.prune(value, (*path, name))
                if part:
                    kept[name] = part
            elif path in self.own:
                kept[name] = value
        return FrozenDict(kept)


EVERYTHING = Selection()


def check_same_structure(current: Any, new: Any, where: str) -> None:
    """Raise `ValueError` with the paths that are missing or too many."""
    if not isinstance(new, Mapping):
        raise ValueError(
            f"{where} takes a dict, not {type(new).__name__}: {new!r:.80}."
        )
    have, want = _leaf_paths(new), _leaf_paths(current)
    missing, unexpected = want - have, have - want
    if missing or unexpected:
        raise ValueError(
            f"{where} takes a tree like the one it replaces."
            + _listing("Missing", missing)
            + _listing("Unexpected", unexpected)
        )
    old_def, new_def = (jax.tree.structure(freeze(tree)) for tree in (current, new))
    if old_def != new_def:
        raise ValueError(
            f"{where} takes a tree like the one it replaces. The names are the same, but "
            f"what they hold differs (boxes such as `nn.Partitioned`, or `None`): "
            f"{new_def} instead of {old_def}."
        )


def _leaf_paths(tree: Mapping[str, Any]) -> set[str]:
    return set(traverse_util.flatten_dict(unfreeze(tree), sep="/"))


def _listing(title: str, paths: Iterable[str]) -> str:
    names = sorted(paths)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f" {title}: {', '.join(names[:10])}{more}." if names else ""
