"""What a path with wildcards matches in a tree: to find it, to keep it alone, to set it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from kauldron.kontext import nodes
from kauldron.kontext.errors import PathNotFoundError, describe, missing_child, position
from kauldron.kontext.nodes import children, select
from kauldron.kontext.paths import Path, PathLike, concrete_parts, glob_parts
from kauldron.path_grammar import Part, Wildcard, comparable, format_path, matches


def iter_by_path(obj: Any, path: PathLike) -> Iterator[tuple[Path, Any]]:
    """Yield the values that a glob path matches, each with its concrete path.

    Branches that do not have what the path asks for are passed over.

    >>> params = {"enc": {"w": 1, "b": 2}, "dec": {"w": 3}}
    >>> list(iter_by_path(params, "*.w"))
    [(enc.w, 1), (dec.w, 3)]

    Args:
      obj: Any tree.
      path: A path, with or without wildcards.

    Yields:
      Path and value, a node before what is below it.
    """
    for match in find(obj, glob_parts(path), lambda *_: None, _select_any):
        yield Path._from_valid(match.parts), match.node


def _select_any(node: Any, part: Part) -> list[tuple[Part, Any]] | None:
    found = nodes.select(node, part)
    if found is None:
        value = nodes.child(node, part)
        found = None if value is nodes.MISSING else [(part, value)]
    return found


def path_matches(path: PathLike, glob: PathLike) -> bool:
    """Return whether a path is one that a glob path stands for. Needs no tree.

    >>> path_matches("enc.layers[0].bias", "enc.**.bias")
    True

    Args:
      path: A path without wildcards.
      glob: A path in which `*` stands for one part and `**` for any number of them.
    """
    return matches(concrete_parts(path), glob_parts(glob))


def filter_by_path(obj: Any, path: PathLike) -> Any:
    """Return a tree with only what a path matches, and the nodes that lead there.

    >>> params = {"enc": {"w": 1, "bias": 2}, "dec": {"bias": 3}}
    >>> filter_by_path(params, "**.bias")
    {'enc': {'bias': 2}, 'dec': {'bias': 3}}

    Args:
      obj: A tree of mappings and sequences. It is not changed.
      path: What to keep, with everything below it; wildcards are allowed. Each part
        must exist, except the one after `**`, which may be absent.

    Returns:
      A tree of the same types, with shared leaves: mappings lack the other keys,
      sequences close up, named tuples and dataclasses become dicts unless they are
      kept whole. Empty if `**` found nothing.

    Raises:
      KeyError: A part does not exist.
    """
    parts = glob_parts(path)
    text = format_path(parts)

    def fail(at: tuple[Part, ...], node: Any, part: Part) -> None:
        prefix = f"Cannot filter by '{text}': "
        if not nodes.is_leaf(node):
            raise missing_child(text, at, node, part, prefix=prefix)
        raise PathNotFoundError(
            f"{prefix}the leaf in {position(at)} ({describe(node)}) has no children.",
            path=text,
            failed_part=part,
            resolved_parts=at,
        )

    places: list[tuple[Part, ...]] = []
    for match in find(obj, parts, fail):
        if not match.parts:
            return obj
        places.append(match.parts)
    if nodes.is_leaf(obj):  # only `**` gets here
        raise PathNotFoundError(
            f"'{text}' matches nothing in {describe(obj)}.", path=text
        )
    return _prune(obj, as_trie(places))


def _prune(node: Any, trie: Trie | None) -> Any:
    if trie is None:
        return node
    order = {part: i for i, part in enumerate(nodes.children(node) or ())}
    parts = sorted(trie, key=lambda part: order.get(part, len(order)))
    found = [pair for part in parts for pair in nodes.select(node, part) or ()]
    kept = {part: _prune(child, trie[part]) for part, child in found}
    return nodes.with_only(node, kept)


#
# Setting what a path matches
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
    """Return a copy of a tree with another value where a path points.

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
# Walking a tree along a pattern; what to do where it fails is the caller's choice
#


class Match(NamedTuple):
    """A node that a pattern stands for.

    Attributes:
      parts: The concrete path to it.
      node: The node.
      lenient: Whether the pattern so far ends with `**`, or with `**` and `*`. What
        follows then need not exist below every such node.
    """

    parts: tuple[Part, ...]
    node: Any
    lenient: bool


# Called with path, node and part where a part must exist and does not.
OnMissing: TypeAlias = Callable[[tuple[Part, ...], Any, Part], None]
Select: TypeAlias = Callable[[Any, Part], list[tuple[Part, Any]] | None]


def find(
    tree: Any,
    pattern: tuple[Part, ...],
    on_missing: OnMissing,
    select: Select = select,
) -> Iterator[Match]:
    """Yield the nodes that the pattern stands for: a node first, then what is below it.

    A part must exist wherever the parts before it lead. Only the first one after `**`
    may be absent: `**` looks for the places that have it. `on_missing` is called where
    a part must exist and does not; if it returns, that branch has no match. `select`
    gives the children that a part without wildcards leads to.
    """
    expanded: set[tuple[Any, int]] = set()
    several = sum(part is Wildcard.DOUBLE_STAR for part in pattern) > 1

    def search(
        parts: tuple[Part, ...], node: Any, at: int, lenient: bool
    ) -> Iterator[Match]:
        if at == len(pattern):
            yield Match(parts, node, lenient)
            return
        part = pattern[at]
        if part is Wildcard.DOUBLE_STAR:
            if several:  # they can meet at the same place
                place = (comparable(parts), at)
                if place in expanded:
                    return
                expanded.add(place)
            yield from search(parts, node, at + 1, True)
            found, following, lenient = _items(children(node)), at, True
        elif part is Wildcard.STAR:
            found, following = _items(children(node)), at + 1
        else:
            found, following = select(node, part), at + 1
        if found is None:
            if not lenient:
                on_missing(parts, node, part)
            return
        lenient = lenient and isinstance(part, Wildcard)
        for key, child in found:
            yield from search((*parts, key), child, following, lenient)

    return search((), tree, 0, False)


def _items(children: dict[Any, Any] | None) -> list[tuple[Part, Any]] | None:
    return None if children is None else list(children.items())


# Places in a tree, as a tree: None where one ends.
Trie: TypeAlias = dict[Part, "Trie | None"]


def as_trie(places: Iterable[tuple[Part, ...]]) -> Trie:
    """Return the tree of some places; those inside another are part of it."""
    root: Trie = {}
    for place in places:
        branch: Trie | None = root
        for part in place[:-1]:
            branch = branch.setdefault(part, {})
            if branch is None:
                break
        else:
            branch[place[-1]] = None
    return root
