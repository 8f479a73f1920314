"""Trees to flat dicts of paths, and back."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kauldron.kontext import nodes
from kauldron.path_grammar import Part, Wildcard, format_part, format_path, parse

_BUILTINS = frozenset({dict, list, tuple, type(None), bool, int, float, str})
"""Types that are neither configs nor registered with jax: no need to ask."""


def flatten_with_path(
    pytree: Any,
    *,
    prefix: str = "",
    separator: str | None = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> dict[str, Any]:
    """Return the leaves of a tree by their path.

    >>> flatten_with_path({"enc": {"w": 1, "layers": [2, 3]}})
    {'enc.layers[0]': 2, 'enc.layers[1]': 3, 'enc.w': 1}
    >>> flatten_with_path({"enc": {"layers": [2]}}, prefix="model", separator="/")
    {'model/enc/layers/0': 2}

    Args:
      pytree: A jax pytree, or a config. Configs are taken as dicts, at any depth, with
        references resolved. Objects that jax does not know are leaves.
      prefix: Put in front of all paths; may be a path itself.
      separator: If given, the plain parts are joined by it, without quotes.
      is_leaf: As in `jax.tree.flatten`.

    Returns:
      The leaves in jax's order. None and empty containers have no entry.

    Raises:
      ValueError: Two leaves would get the same name.
    """
    flat: dict[str, Any] = {}

    def add(name: str, node: Any, depth: int) -> None:
        if type(node) not in _BUILTINS:
            node = _without_config(node)
        children = _children(node, is_leaf)
        if children is None:
            if name in flat:
                raise ValueError(f"Two leaves of the tree would be called {name!r}.")
            flat[name] = node
            return
        for part, child in children:
            add(_extend(name, part, separator, first=not depth), child, depth + 1)

    add(str(prefix), pytree, 1 if str(prefix) else 0)
    return flat


def _extend(name: str, part: Part, separator: str | None, *, first: bool) -> str:
    if separator is None:
        text = format_part(part)
        return text.removeprefix(".") if first else name + text
    return str(part) if first else f"{name}{separator}{part}"


def _without_config(node: Any) -> Any:
    if nodes.is_config_dict(node):
        return {key: node[key] for key in node}
    reference_class = getattr(sys.modules.get("ml_collections"), "FieldReference", None)
    if reference_class is not None and isinstance(node, reference_class):
        return _without_config(node.get())
    return node


def _children(
    node: Any, is_leaf: Callable[[Any], bool] | None
) -> Iterable[tuple[Part, Any]] | None:
    """Return parts and children as jax orders them; None for a leaf."""
    if is_leaf is not None and is_leaf(node):
        return None
    kind = type(node)
    if kind is dict or kind is defaultdict:
        return _sorted_if_possible(node)
    if kind is list or kind is tuple:
        return enumerate(node)
    if kind in _BUILTINS:
        return () if node is None else None
    if kind is OrderedDict:
        return node.items()
    if nodes.is_named_tuple(node):
        return zip(type(node)._fields, node)
    registered = nodes.registered_children(node)
    return None if registered is None else registered[0]


def _sorted_if_possible(node: dict[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return [(key, node[key]) for key in sorted(node)]
    except TypeError:  # keys of different types
        return list(node.items())


#
# Back
#


def unflatten_with_path(
    flat: Mapping[str, Any], *, separator: str | None = None
) -> Any:
    """Return the tree of dicts and lists whose leaves have these paths.

    >>> unflatten_with_path({"enc.layers[0]": 2, "enc.layers[1]": 3, "enc.w": 1})
    {'enc': {'layers': [2, 3], 'w': 1}}

    Args:
      flat: Leaves by path. Integers in paths make lists, everything else dicts.
      separator: What separates the parts, if `flat` was made with one. Parts of only
        digits are integers then.

    Raises:
      ValueError: Indices of a list are missing or mixed with keys, or a path leads
        through a leaf.
    """
    if not flat:
        return {}
    leaves = [(_split(name, separator), leaf) for name, leaf in flat.items()]
    return _build((), leaves)


def _split(name: str, separator: str | None) -> tuple[Part, ...]:
    if separator is not None:
        return tuple(map(_as_integer, name.split(separator))) if name else ()
    parts = parse(name)
    for part in parts:
        if isinstance(part, Wildcard) or not nodes.can_be_key(part):
            raise ValueError(f"{name!r}: {format_part(part)} is not the key of a dict.")
    return parts


def _as_integer(text: str) -> str | int:
    is_printed_integer = text.isdecimal() and text.isascii() and text[0] != "0"
    return int(text) if is_printed_integer or text == "0" else text


def _build(at: tuple[Part, ...], leaves: list[tuple[tuple[Part, ...], Any]]) -> Any:
    depth = len(at)
    if any(len(parts) == depth for parts, _ in leaves):
        if len(leaves) > 1:
            raise ValueError(f"'{format_path(at)}' is both a leaf and a node.")
        return leaves[0][1]
    groups: dict[Part, list[tuple[tuple[Part, ...], Any]]] = {}
    for parts, leaf in leaves:
        groups.setdefault(parts[depth], []).append((parts, leaf))
    children = {part: _build((*at, part), group) for part, group in groups.items()}
    if not any(map(nodes.is_index, children)):
        return children
    if set(children) != set(range(len(children))):
        raise ValueError(
            f"The indices at '{format_path(at)}' do not make a list: "
            f"{list(children)}. Expected 0 to {len(children) - 1}."
        )
    return [children[index] for index in range(len(children))]
