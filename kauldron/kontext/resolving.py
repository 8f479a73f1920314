"""From the keys of an object to the values they name in a context."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from kauldron.kontext import lookup, nodes
from kauldron.kontext.annotate import REQUIRED, get_keypaths
from kauldron.kontext.missing_keys import (
    MissingKey,
    missing_keys_error,
    unfilled_fields,
)
from kauldron.kontext.parts_sequence import part_from_jax
from kauldron.kontext.path_arguments import concrete_parts, is_path
from kauldron.path_grammar import Part, PathSyntaxError, format_path


def resolve_from_keyed_obj(
    context: Any, keyed_obj: Any, *, func: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """The call arguments of an object, taken from a context as its keys say.

    >>> from kauldron import kontext
    >>> class Loss:
    ...     preds: kontext.Key = "preds.image"
    ...     mask: kontext.Key | None = None
    >>> resolve_from_keyed_obj({"preds": {"image": 1}}, Loss())
    {'preds': 1}

    Args:
      context: What the paths point into.
      keyed_obj: An object with keys. Keys that are None are left out.
      func: If given, the names of the keys must fit its signature. It is not called.

    Returns:
      For the name of each key its value, or a tree of values for a tree of paths.

    Raises:
      ValueError: A required key is not set, or a path is malformed or has wildcards.
      TypeError: The names do not fit `func`.
      KeyError: Paths lead nowhere. One error for all of them.
    """
    prefix = f"Error for {type(keyed_obj).__name__}: "
    key_paths = {k: v for k, v in get_keypaths(keyed_obj).items() if v is not None}
    _check_required(key_paths, prefix)
    if func is not None:
        _check_signature(func, list(key_paths), keyed_obj)
    return _resolve(context, key_paths, prefix)


def resolve_from_keypaths(context: Any, key_paths: Any) -> Any:
    """The values for a path, or for a tree of paths, in a tree of the same structure.

    >>> resolve_from_keypaths({"a": [1, 2]}, {"x": "a[0]", "y": ("a[1]", None)})
    {'x': 1, 'y': (2, None)}

    Args:
      context: What the paths point into.
      key_paths: Strings, `Path`s or path builders; or dicts, lists, tuples, or other
        jax pytrees of them. None stays None.

    Raises:
      ValueError: A path is malformed or has wildcards.
      KeyError: Paths lead nowhere. One error for all of them.
    """
    return _resolve(context, key_paths, prefix="")


# ------------------------------------------------------------------------------------
# Checks that need no context
# ------------------------------------------------------------------------------------


def _check_required(key_paths: dict[str, Any], prefix: str) -> None:
    unset: list[str] = []

    def note(name: tuple[Part, ...], leaf: Any) -> None:
        if isinstance(leaf, str) and leaf == REQUIRED:
            unset.append(format_path(name))

    map_key_tree(note, key_paths)
    if unset:
        raise ValueError(
            f"{prefix}required keys are not set: {', '.join(unset)}. Set them when "
            "constructing the object, to paths such as 'batch.image'."
        )


def _check_signature(
    func: Callable[..., Any], names: list[str], keyed_obj: Any
) -> None:
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # some callables written in C have none
        return
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        function = getattr(func, "__qualname__", repr(func))
        raise TypeError(
            f"Error for {type(keyed_obj).__name__}: the signature does not match the "
            f"keys: {error}.\n"
            f"  Signature: {function}{signature}\n"
            f"  Provided keys: {', '.join(names) or 'none'}\n"
            f"  {_signature_hint(signature, names, keyed_obj)}"
        ) from None


def _signature_hint(
    signature: inspect.Signature, names: list[str], keyed_obj: Any
) -> str:
    parameters = signature.parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in parameters if p.kind not in variadic]
    missing = [p.name for p in named if p.name not in names and p.default is p.empty]
    extra = [name for name in names if name not in [p.name for p in named]]
    hints = []
    if missing:
        hints.append(f"No key is given for the arguments: {', '.join(missing)}.")
    for name in missing:
        if isinstance(getattr(keyed_obj, name, None), str):
            hints.append(f"The field {name!r} is a text; keys are `kontext.Key`.")
    if extra:
        hints.append(f"The function has no arguments for the keys: {', '.join(extra)}.")
    return " ".join(hints) or "Positional-only arguments cannot be filled from keys."


# ------------------------------------------------------------------------------------
# Looking up
# ------------------------------------------------------------------------------------


def _resolve(context: Any, key_paths: Any, prefix: str) -> Any:
    parsed = _parse_paths(key_paths, prefix)
    unfilled = unfilled_fields(context)
    missing: list[MissingKey] = []

    def look_up(name: tuple[Part, ...], parts: _Parsed | None) -> Any:
        if parts is None:
            return None
        try:
            value, reached = lookup.walk(context, parts)
        except Exception as error:  # raised by the user's own property
            error.add_note(f"{prefix}while reading '{format_path(parts)}'.")
            raise
        first = parts[0] if parts else None
        if reached < len(parts) or (isinstance(first, str) and first in unfilled):
            missing.append(MissingKey(format_path(name), tuple(parts), reached, value))
        return value

    values = map_key_tree(look_up, parsed)
    if missing:
        raise missing_keys_error(context, missing, unfilled, prefix)
    return values


class _Parsed(tuple[Part, ...]):
    """The parts of a path. Not a plain tuple, which would be a tree."""


def _parse_paths(key_paths: Any, prefix: str) -> Any:
    def parse(name: tuple[Part, ...], leaf: Any) -> _Parsed | None:
        if leaf is None:
            return None
        where = f"{prefix}key {format_path(name)!r}: " if name else prefix
        if not is_path(leaf):
            raise TypeError(f"{where}{leaf!r} ({type(leaf).__name__}) is not a path.")
        try:
            return _Parsed(concrete_parts(leaf))
        except PathSyntaxError as error:
            error.prefix = where
            raise
        except ValueError as error:
            raise ValueError(f"{where}{error}") from None

    return map_key_tree(parse, key_paths)


def map_key_tree(
    func: Callable[[tuple[Part, ...], Any], Any], tree: Any, at: tuple[Part, ...] = ()
) -> Any:
    """Applies `func(where, leaf)` to all leaves, None included; keeps the structure."""
    kind = type(tree)
    if kind is list or kind is tuple:
        return kind(map_key_tree(func, v, (*at, i)) for i, v in enumerate(tree))
    if nodes.is_named_tuple(tree):
        names = kind._fields
        return kind(*(map_key_tree(func, v, (*at, n)) for n, v in zip(names, tree)))
    if nodes.is_mapping(tree):
        mapped = {key: map_key_tree(func, tree[key], (*at, key)) for key in tree}
        return nodes.with_only(tree, mapped)
    tree_util = sys.modules.get("jax.tree_util")
    if tree is None or tree_util is None or tree_util.all_leaves((tree,)):
        return func(at, tree)
    return _map_registered(func, tree, at, tree_util)


def _map_registered(func: Callable, tree: Any, at: tuple[Part, ...], jtu: Any) -> Any:
    entries, structure = jtu.tree_flatten_with_path(
        tree, is_leaf=lambda child: child is not tree
    )
    mapped = [
        map_key_tree(func, child, (*at, part_from_jax(path[0])))
        for path, child in entries
    ]
    return jtu.tree_unflatten(structure, mapped)
