"""Trees as flat names, and whether a checkpoint fits a state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from kauldron import kontext, path_grammar
from kauldron.errors import nearest

LeafPath: TypeAlias = tuple[str, ...]
"""Names from the root to a leaf. Fields, dict keys and indices are all strings, so that
containers of different types with the same names agree."""

_MOST_SHOWN = 20
_KINDS = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)


class StructureMismatch(ValueError):
    """The checkpoint holds another structure than the state."""


def flatten(tree: Any) -> dict[LeafPath, Any]:
    """Return the leaves by path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_names(path): leaf for path, leaf in leaves}


def with_leaves(tree: Any, leaves: Mapping[LeafPath, Any]) -> Any:
    """Return the tree with some of its leaves, by path, in place of its own."""
    old, treedef = jax.tree_util.tree_flatten_with_path(tree)
    new = [leaves.get(_names(path), leaf) for path, leaf in old]
    return jax.tree_util.tree_unflatten(treedef, new)


def parse(path: str) -> LeafPath:
    """Return a path from any spelling: `a[0]["b"]`, `a.0.b`; `""` is the root."""
    return tuple(str(part) for part in kontext.Path.from_str(path).parts)


def show(path: LeafPath) -> str:
    """Return the path as a user writes it."""
    return str(_as_kontext(path))


def parse_glob(glob: str) -> kontext.GlobPath:
    """Return a pattern in any spelling."""
    parts = kontext.GlobPath.from_str(glob).parts
    return kontext.GlobPath(*(_as_index(part) for part in parts))


def literal_parts(glob: str) -> list[str]:
    """Return the names in a pattern, without its wildcards."""
    parts = kontext.GlobPath.from_str(glob).parts
    return [str(part) for part in parts if not isinstance(part, path_grammar.Wildcard)]


def matches(path: LeafPath, glob: str) -> bool:
    """Return whether a path is one that a pattern stands for."""
    return kontext.path_matches(_as_kontext(path), parse_glob(glob))


def closest(path: LeafPath, known: Iterable[LeafPath]) -> list[str]:
    """Return the names most like `path`, among known ones and their parents."""
    parents = {name[:length] for name in known for length in range(1, len(name) + 1)}
    return nearest(show(path), map(show, parents), count=3)


def by_subtree(
    kinds: Mapping[LeafPath, str], *, most: int
) -> dict[LeafPath, Counter[str]]:
    """Count leaves by kind, grouped under as few paths as possible.

    Example:
      >>> kinds = {"a.x": "new", "a.y": "new", "b.x": "new", "b.z": "old"}
      >>> found = by_subtree({parse(p): kinds[p] for p in kinds}, most=10)
      >>> {show(path): dict(counts) for path, counts in found.items()}
      {'a': {'new': 2}, 'b.x': {'new': 1}, 'b.z': {'old': 1}}

    There are at `most` that many, unless the tree has more at its top: what would need
    more is not split.
    """
    found: dict[LeafPath, list[LeafPath]] = {(): list(kinds)}
    while True:
        parts: dict[LeafPath, list[LeafPath]] = {}
        for root, paths in found.items():
            is_split = not root or len({kinds[path] for path in paths}) > 1
            for path in paths:
                part = path[: len(root) + 1] if is_split else root
                parts.setdefault(part, []).append(path)
        if parts.keys() == found.keys() or (len(parts) > most and () not in found):
            break
        found = parts
    return {root: Counter(map(kinds.__getitem__, p)) for root, p in found.items()}


def stored_shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape in which a leaf is stored; for keys, that of their data."""
    if is_random_key(leaf):
        return jax.eval_shape(jax.random.key_data, leaf).shape
    return tuple(getattr(leaf, "shape", ()))


def is_random_key(leaf: Any) -> bool:
    """Return whether a leaf is an array of `jax.random.key`s."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def conflicts(pairs: Iterable[tuple[LeafPath, Any, LeafPath, Any]]) -> str:
    """Return a message about leaves (of state and checkpoint) that do not match.

    Other dtypes of the same kind, or of a simpler one, do not conflict: they are cast.
    """
    shapes: list[str] = []
    dtypes: list[str] = []
    for path, leaf, old_path, old in pairs:
        both = _both(path, old_path)
        if stored_shape(leaf) != stored_shape(old):
            shapes.append(
                f"{both}: model {stored_shape(leaf)} vs checkpoint {stored_shape(old)}"
            )
        elif _loses_by_cast(old, leaf):
            dtypes.append(f"{both}: model {leaf.dtype} vs checkpoint {old.dtype}")
    return listing("Other shapes", shapes) + listing("Other kinds of numbers", dtypes)


def _loses_by_cast(old: Any, leaf: Any) -> bool:
    """Return whether a cast would lose values, such as weights cast to integers."""
    old_kind, kind = _kind(old), _kind(leaf)
    return old_kind is not None and kind is not None and old_kind > kind


def _kind(leaf: Any) -> int | None:
    """Return the number of the dtype's kind, the most general last."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or is_random_key(leaf):
        return None
    found = (i for i, kind in enumerate(_KINDS) if jnp.issubdtype(dtype, kind))
    return next(found, None)


def check_fits(
    wanted: Mapping[LeafPath, Any], stored: Mapping[LeafPath, Any], *, where: str
) -> None:
    """Raise if a state and a checkpoint differ in paths or shapes."""
    missing = [show(path) for path in wanted if path not in stored]
    unexpected = [show(path) for path in stored if path not in wanted]
    problems = (
        listing("Missing in the checkpoint", missing)
        + listing("Only in the checkpoint", unexpected)
        + conflicts(
            (path, leaf, path, stored[path])
            for path, leaf in wanted.items()
            if path in stored
        )
    )
    if not problems:
        return
    raise StructureMismatch(
        f"{where} does not fit the state. Was it saved with another model or optimizer?"
        + problems
        + "\nTo load only parts, or under other names, use "
        "`kd.ckpts.PartialKauldronLoader`."
    )


def differences(before: Any, after: Any) -> list[str]:
    """Describe each leaf that is in one tree only, or has another shape or dtype."""
    old, new = flatten(before), flatten(after)
    return [
        f"{show(path)}: {_describe(old, path)} to {_describe(new, path)}"
        for path in {**old, **new}
        if _describe(old, path) != _describe(new, path)
    ]


def _describe(leaves: Mapping[LeafPath, Any], path: LeafPath) -> str:
    if path not in leaves:
        return "nothing"
    leaf = leaves[path]
    return f"{getattr(leaf, 'dtype', type(leaf).__name__)}{stored_shape(leaf)}"


def listing(title: str, entries: list[str]) -> str:
    """Return a title and the first entries below it; empty if there are none."""
    if not entries:
        return ""
    shown = entries[:_MOST_SHOWN]
    more = len(entries) - len(shown)
    lines = [*shown, *([f"... and {more} more"] if more else [])]
    return f"\n{title}:" + "".join(f"\n  {line}" for line in lines)


def _both(path: LeafPath, old_path: LeafPath) -> str:
    if path == old_path:
        return show(path)
    return f"{show(path)} (from {show(old_path)})"


def _names(path: Iterable[Any]) -> LeafPath:
    return tuple(jax.tree_util.keystr((part,), simple=True) for part in path)


def _as_kontext(path: LeafPath) -> kontext.Path:
    return kontext.Path(*(_as_index(part) for part in path))


def _as_index(part: Any) -> Any:
    """Digits are an index, whichever way they were written."""
    is_digits = type(part) is str and part.isascii() and part.isdigit()
    return int(part) if is_digits else part
