"""Keys: fields of an object that say where its call arguments come from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from kauldron.kontext import nodes
from kauldron.kontext.annotations import get_annotated
from kauldron.kontext.errors import MissingKey, missing_keys_error
from kauldron.kontext.paths import concrete_parts, is_path
from kauldron.path_grammar import Part, PathSyntaxError, format_path

_T = TypeVar("_T")

REQUIRED = "__KEY_REQUIRED__"
"""Default of a key that must be set. A plain string, to go through JSON unchanged."""

Context: TypeAlias = Any
"""Anything a path can point into."""


class _KeyToken:
    """Marks an annotation as a key."""

    # Compared instead of the object, which is another one after a reload.
    __kontext_marker__ = "kauldron.kontext.Key"
    names = ("Key", "KeyTree")

    def __repr__(self) -> str:
        return "key"


_KEY_TOKEN = _KeyToken()

Key: TypeAlias = Annotated[Any, _KEY_TOKEN]
"""Annotation of a field that holds a path, or a tree of paths."""

KeyTree = Annotated[_T, _KEY_TOKEN]
"""`KeyTree[T]`: annotation of a field that holds a tree of paths shaped like `T`."""


def is_key_annotated(cls_or_obj: Any) -> bool:
    """Return whether a class, or the class of an object, has keys.

    >>> class Loss:
    ...     preds: Key = REQUIRED
    >>> is_key_annotated(Loss), is_key_annotated(int)
    (True, False)
    """
    cls = cls_or_obj if isinstance(cls_or_obj, type) else type(cls_or_obj)
    return hasattr(cls, "__kontext_keys__") or bool(get_annotated(cls, _KEY_TOKEN))


def get_keypaths(keyed_obj: Any) -> dict[str, Any]:
    """Return the keys of an object.

    They are its fields annotated as `Key` or `KeyTree`. A class can compute them
    itself instead, with a method `__kontext_keys__() -> dict`.

    >>> class Loss:
    ...     preds: Key = "preds.image"
    ...     mask: Key | None = None
    >>> get_keypaths(Loss())
    {'preds': 'preds.image', 'mask': None}

    Returns:
      For the name of each key its path, tree of paths, or None. A key field that has
      no value counts as `REQUIRED`.
    """
    cls = type(keyed_obj)
    if not hasattr(cls, "__kontext_keys__"):
        names = get_annotated(cls, _KEY_TOKEN)
        return {name: getattr(keyed_obj, name, REQUIRED) for name in names}
    keys = cls.__kontext_keys__(keyed_obj)
    if not isinstance(keys, Mapping):
        raise TypeError(
            f"{cls.__qualname__}.__kontext_keys__() must return a dict from names to "
            f"paths, not {type(keys).__name__}: {keys!r}"
        )
    return dict(keys)


#
# From the keys of an object to the values they name in a context
#


def resolve_from_keyed_obj(
    context: Any, keyed_obj: Any, *, func: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Return the call arguments of an object, taken from a context as its keys say.

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
    """Return the value of a path, or the tree of values of a tree of paths.

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


#
# Checks that need no context
#


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
            hints.append(
                f"The field {name!r} holds a text, but is not annotated as "
                "`kontext.Key`."
            )
    if extra:
        hints.append(f"The function has no arguments for the keys: {', '.join(extra)}.")
    return " ".join(hints) or "Positional-only arguments cannot be filled from keys."


#
# Looking up
#


def _resolve(context: Any, key_paths: Any, prefix: str) -> Any:
    unfilled = _unfilled_fields(context)
    missing: list[MissingKey] = []

    def look_up(name: tuple[Part, ...], leaf: Any) -> Any:
        if leaf is None:
            return None
        parts = _parsed(leaf, name, prefix)
        try:
            value, reached = nodes.walk(context, parts)
        except Exception as error:  # raised by the user's own property
            error.add_note(f"{prefix}while reading '{format_path(parts)}'.")
            raise
        first = parts[0] if parts else None
        if reached < len(parts) or (isinstance(first, str) and first in unfilled):
            missing.append(MissingKey(format_path(name), parts, reached, value))
        return value

    values = map_key_tree(look_up, key_paths)
    if missing:
        raise missing_keys_error(context, missing, unfilled, prefix)
    return values


def _unfilled_fields(context: Any) -> Mapping[Any, str]:
    """Return the fields of a context that hold nothing yet, and when they are filled.

    A context class declares them with a method `__kontext_unfilled__() -> dict`. Keys
    that start with such a field are missing, even if the field can be read.
    """
    method = getattr(type(context), "__kontext_unfilled__", None)
    return {} if method is None else method(context)


def _parsed(leaf: Any, name: tuple[Part, ...], prefix: str) -> tuple[Part, ...]:
    """Return the parts of the path that a key holds."""
    try:
        if is_path(leaf):
            return concrete_parts(leaf)
        problem = TypeError(f"{leaf!r} ({type(leaf).__name__}) is not a path.")
    except ValueError as error:
        problem = error
    where = f"{prefix}key {format_path(name)!r}: " if name else prefix
    if isinstance(problem, PathSyntaxError):
        problem.prefix = where
        raise problem
    raise type(problem)(f"{where}{problem}")


def map_key_tree(
    func: Callable[[tuple[Part, ...], Any], Any], tree: Any, at: tuple[Part, ...] = ()
) -> Any:
    """Apply `func(where, leaf)` to all leaves, None included; keeps the structure."""
    kind = type(tree)
    if kind is list or kind is tuple:
        return kind(map_key_tree(func, v, (*at, i)) for i, v in enumerate(tree))
    if nodes.is_named_tuple(tree):
        names = kind._fields
        return kind(*(map_key_tree(func, v, (*at, n)) for n, v in zip(names, tree)))
    if nodes.is_mapping(tree):
        mapped = {key: map_key_tree(func, tree[key], (*at, key)) for key in tree}
        return nodes.with_only(tree, mapped)
    registered = None if tree is None else nodes.registered_children(tree)
    if registered is None:
        return func(at, tree)
    children, structure = registered
    return structure.unflatten(map_key_tree(func, v, (*at, p)) for p, v in children)
