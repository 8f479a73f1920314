"""Does a checkpoint fit a state? Compared before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from kauldron import kontext

_MOST_SHOWN = 20


class StructureMismatch(ValueError):
    """The checkpoint holds another structure than the state."""


def flatten(tree: Any) -> dict[str, Any]:
    """From dotted path to leaf; containers of any type with the same names agree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(_name(part) for part in path): leaf for path, leaf in leaves}


def with_leaves(tree: Any, leaves: Mapping[str, Any]) -> Any:
    """The tree with some of its leaves, by path, in the place of its own."""
    old, treedef = jax.tree_util.tree_flatten_with_path(tree)
    new = [
        leaves.get(".".join(_name(part) for part in path), leaf) for path, leaf in old
    ]
    return jax.tree_util.tree_unflatten(treedef, new)


def normalize(path: str) -> str:
    """A path in the form that `flatten` gives: `a[0]["b"]` is `a.0.b`."""
    return ".".join(str(part) for part in kontext.Path.from_str(path).parts)


def check_fits(
    wanted: Mapping[str, Any], stored: Mapping[str, Any], *, where: str
) -> None:
    """Raise if two flat trees differ in paths or shapes.

    Args:
      wanted: Path to array (or spec) of the state.
      stored: Path to metadata of the checkpoint.
      where: What is compared, for the message.
    """
    missing = [path for path in wanted if path not in stored]
    unexpected = [path for path in stored if path not in wanted]
    conflicts = [
        f"{path}: model {tuple(leaf.shape)} vs checkpoint {tuple(stored[path].shape)}"
        for path, leaf in wanted.items()
        if path in stored and hasattr(leaf, "shape") and hasattr(stored[path], "shape")
        if tuple(leaf.shape) != tuple(stored[path].shape)
    ]
    if not (missing or unexpected or conflicts):
        return
    raise StructureMismatch(
        f"{where} does not fit the state."
        + _list("Missing in the checkpoint", missing)
        + _list("Only in the checkpoint", unexpected)
        + _list("Other shapes", conflicts)
        + "\nTo load only parts, or under other names, use "
        "`kd.ckpts.PartialKauldronLoader`."
    )


def _list(title: str, entries: list[str]) -> str:
    if not entries:
        return ""
    shown = entries[:_MOST_SHOWN]
    more = len(entries) - len(shown)
    lines = [*shown, *([f"... and {more} more"] if more else [])]
    return f"\n{title}:" + "".join(f"\n  {line}" for line in lines)


def _name(part: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)
