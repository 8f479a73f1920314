"""Paths, and reading or overwriting what they point to."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from kauldron.kontext import lookup, nodes
from kauldron.kontext.errors import (
    PathNotFoundError,
    describe,
    missing_child,
    not_found,
    structure,
)
from kauldron.kontext.nodes import Match, Trie, as_trie, find
from kauldron.kontext.parts import PartsSequence, check_parts
from kauldron.kontext.path_builder import DynamicPathBuilder
from kauldron.path_grammar import Part, Wildcard, format_path, parse
from kauldron.path_grammar import PathSyntaxError as PathSyntaxError


class Path(PartsSequence):
    """A path that leads to one place.

    >>> path = Path.from_str("cams[1].pose")
    >>> path.parts
    ('cams', 1, 'pose')
    >>> Path("cams", 0, "odd key")
    cams[0]['odd key']
    """

    __slots__ = ()

    @classmethod
    def _check_wildcards(cls, parts: Sequence[Part]) -> None:
        check_no_wildcards(parts)

    def get_from(
        self, context: Any, *, default: Any = ..., err_spec: bool = False
    ) -> Any:
        """Return the value this path points to.

        Args:
          context: Any tree of containers and objects.
          default: What to return if there is no value. Without it, that is an error.
          err_spec: Whether the error shows the structure of the whole context.

        Raises:
          PathNotFoundError: There is no value, and no default.
        """
        try:
            return get_by_path(context, self, default)
        except PathNotFoundError as error:
            if err_spec:
                error.args = (f"{error}\nThe context is:\n{structure(context)}",)
            raise

    def set_in(self, context: Any, value: Any) -> list[str]:
        """Overwrite what this path points to. See `set_by_path`."""
        return set_by_path(context, self, value)


def get_by_path(obj: Any, path: PathLike | None, default: Any = ...) -> Any:
    """Return the value that a path points to.

    Every part is tried as an item first and, if it is a string, as an attribute then.

    >>> get_by_path({"cams": [{"pos": 1}, {"pos": 2}]}, "cams[1].pos")
    2
    >>> get_by_path({"cams": []}, "cams[0].pos", default=None)

    Args:
      obj: Any tree of mappings, sequences, objects and arrays. It is not changed.
      path: The path; the empty one points to `obj` itself. None points nowhere.
      default: What to return if there is no value. Without it, that is an error.

    Returns:
      The value itself, not a copy. For `path=None` the default, or None.

    Raises:
      PathNotFoundError: There is no value, and no default.
      PathSyntaxError: The path is malformed.
    """
    if path is None:
        return None if default is ... else default
    parts = concrete_parts(path)
    value, reached = lookup.walk(obj, parts)
    if reached == len(parts):
        return value
    if default is not ...:
        return default
    raise not_found(parts, reached, value)


class GlobPath(PartsSequence):
    """A path in which `*` stands for one part and `**` for any number of them.

    >>> GlobPath.from_str("enc.**.bias").parts
    ('enc', <Wildcard.DOUBLE_STAR: '**'>, 'bias')
    >>> GlobPath("enc", "*")  # the string is a key; Wildcard.STAR is the wildcard
    enc['*']
    """

    __slots__ = ()

    @property
    def first_non_glob_parent(self) -> Path:
        """All parts before the first wildcard.

        >>> GlobPath.from_str("enc.blocks[2].*.w").first_non_glob_parent
        enc.blocks[2]
        """
        concrete = itertools.takewhile(
            lambda part: not isinstance(part, Wildcard), self.parts
        )
        return Path(*concrete)

    def set_in(self, context: Any, value: Any) -> list[str]:
        """Overwrite everything that this path stands for. See `set_by_path`."""
        return set_by_path(context, self, value)


#
# Overwriting: in place, or in a copy
#


def set_by_path(
    obj: Any, path: PathLike, value: Any, *, create: bool = True
) -> list[str]:
    """Overwrite what a path points to, in place.

    Mappings and lists are written in place. Tuples, named tuples, dataclasses and
    frozen mappings below them are rebuilt and put back.

    >>> cfg = {"evals": {"a": {"n": 1}, "b": {"n": 1}}}
    >>> set_by_path(cfg, "evals.*.n", 5)
    ['evals.a.n', 'evals.b.n']

    Args:
      obj: The tree to change.
      path: Where to write; wildcards are allowed, except at the end. All but the last
        part must exist; after `**` only the places that have the next part are used.
      value: The new value.
      create: Whether the last part may be a new key of a mapping.

    Returns:
      The concrete paths that were written. Empty if `**` found nothing.

    Raises:
      KeyError: A part does not exist. Nothing was changed.
      ValueError: A leaf is in the way, the path is empty or ends with a wildcard, or
        nothing on the way can be changed in place. Nothing was changed.
    """
    parts = _checked_parts(path)
    targets = _outermost(_find_targets(obj, parts, create))
    for target in targets:
        _check_can_write(obj, target, parts)
    try:
        _write(obj, as_trie(targets), value, in_place=True)
    except Exception as error:  # a container checks what it is given
        error.add_note(f"{_prefix(parts)}the container refused the value.")
        raise
    return [format_path(target) for target in targets]


def replace_by_path(obj: Any, path: PathLike, value: Any) -> Any:
    """Return a copy of a tree with another value where a path points to.

    Only the nodes on the way are copied; everything else is shared with `obj`, which
    is left as it is.

    >>> replace_by_path({"layers": (1, 2)}, "layers[0]", 5)
    {'layers': (5, 2)}

    Args:
      obj: A tree of mappings, sequences, dataclasses, flax modules.
      path: As in `set_by_path`.
      value: The new value.

    Returns:
      The new tree.
    """
    targets = _outermost(_find_targets(obj, _checked_parts(path), create=True))
    return _write(obj, as_trie(targets), value, in_place=False)


def _checked_parts(path: PathLike) -> tuple[Part, ...]:
    parts = glob_parts(path)
    if not parts:
        raise ValueError("Cannot set '': an empty path points to the object itself.")
    if isinstance(parts[-1], Wildcard):
        raise ValueError(
            f"{_prefix(parts)}Wildcards cannot be located at the end of the path: name "
            "what is to be set."
        )
    return parts


def _prefix(parts: Sequence[Part]) -> str:
    return f"Cannot set '{format_path(parts)}': "


#
# Finding what is to be written
#


def _find_targets(
    obj: Any, parts: tuple[Part, ...], create: bool
) -> Iterator[tuple[Part, ...]]:
    def fail(at: tuple[Part, ...], node: Any, part: Part) -> None:
        if nodes.is_leaf(node):
            place = f"'{format_path(at)}'" if at else "at the root"
            raise ValueError(
                f"{_prefix(parts)}Cannot mutate leaf {place} ({describe(node)})."
            )
        prefix = _prefix(parts)
        raise missing_child(format_path(parts), at, node, part, prefix=prefix)

    for match in find(obj, parts[:-1], fail):
        for key in _last_keys(match, parts[-1], create, fail):
            yield (*match.parts, key)


def _last_keys(
    match: Match, part: Part, create: bool, fail: Callable[..., None]
) -> list[Part]:
    found = nodes.select(match.node, part)
    if found is not None:
        return [key for key, _ in found]
    if match.lenient:
        return []
    is_new_key = nodes.is_mapping(match.node) and nodes.can_be_key(part)
    if not (is_new_key and create):
        fail(match.parts, match.node, part)
    return [part]


def _outermost(targets: Iterator[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
    """Drop targets inside others, which come first."""
    kept: dict[tuple[Part, ...], None] = {}
    for target in targets:
        if not any(target[:n] in kept for n in range(1, len(target))):
            kept[target] = None
    return list(kept)


def _check_can_write(
    obj: Any, target: tuple[Part, ...], parts: tuple[Part, ...]
) -> None:
    node = obj
    for part in target:
        if nodes.is_mutable(node):
            return
        node = dict(nodes.select(node, part) or ()).get(part)
    raise ValueError(
        f"{_prefix(parts)}{type(obj).__name__} cannot be changed in place. Use "
        "replace_by_path, which returns a changed copy."
    )


#
# Writing
#


def _write(node: Any, trie: Trie, value: Any, *, in_place: bool) -> Any:
    """Write at all targets below a node; returns the node, or its new version."""
    changes = {}
    for part, below in trie.items():
        if below is None:
            changes[part] = value
            continue
        child = dict(nodes.select(node, part) or ())[part]
        new_child = _write(child, below, value, in_place=in_place)
        if new_child is not child:
            changes[part] = new_child
    if not changes:
        return node
    if not (in_place and nodes.is_mutable(node)):
        return nodes.with_children(node, changes)
    for part, new_child in changes.items():
        node[part] = new_child
    return node


#
# The forms in which a function takes a path
#


PathLike: TypeAlias = str | tuple[Part, ...] | PartsSequence | DynamicPathBuilder


def concrete_parts(path: PathLike) -> tuple[Part, ...]:
    """Return the parts of a path that leads to one place.

    Raises:
      TypeError: Not a path.
      ValueError: A part is not valid, or there are wildcards.
    """
    if isinstance(path, str):
        return _parse_concrete(path)
    parts = _parts(path)
    check_no_wildcards(parts)
    return parts


def glob_parts(path: PathLike) -> tuple[Part, ...]:
    """Return the parts of a path that may have wildcards.

    In a plain tuple `"*"` and `"**"` are wildcards.

    Raises:
      TypeError: Not a path.
      ValueError: A part is not valid.
    """
    if isinstance(path, str):
        return parse(path)
    if isinstance(path, tuple):
        path = tuple(map(_as_wildcard, path))
    return _parts(path)


def _as_wildcard(part: Part) -> Part:
    return Wildcard(part) if isinstance(part, str) and part in ("*", "**") else part


def is_path(value: Any) -> bool:
    """Return whether a key value is one path, and not a tree of paths."""
    return isinstance(value, (str, PartsSequence, DynamicPathBuilder))


def check_no_wildcards(parts: Sequence[Part]) -> None:
    """Raise `ValueError` that says where wildcards can be used."""
    for part in parts:
        if isinstance(part, Wildcard):
            raise ValueError(
                f"'{format_path(parts)}' has the wildcard '{part}'. Wildcards need a "
                "function that takes glob paths: set_by_path, filter_by_path, "
                "iter_by_path, tree metrics (TreeMap, TreeReduce)."
            )


@functools.lru_cache(maxsize=8192)
def _parse_concrete(text: str) -> tuple[Part, ...]:
    parts = parse(text)
    check_no_wildcards(parts)
    return parts


def _parts(path: Any) -> tuple[Part, ...]:
    if isinstance(path, PartsSequence):
        return path.parts
    if isinstance(path, DynamicPathBuilder):
        return parse(str(path))
    if isinstance(path, tuple):
        check_parts(path)
        return path
    raise TypeError(
        f"A path is a str, a tuple of parts, a Path or a path builder, not "
        f"{type(path).__name__}: {path!r}"
    )


def parse_parts(text: str) -> list[Part]:
    """Return the parts of a path, as a new list.

    >>> parse_parts("a.b[0].*")
    ['a', 'b', 0, <Wildcard.STAR: '*'>]

    Raises:
      PathSyntaxError: `text` is not a path.
    """
    return list(parse(text))
