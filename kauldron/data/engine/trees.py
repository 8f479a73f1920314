"""Records are trees: walk, describe and stack them, without jax.

A tree is made of dicts (any mapping), lists, tuples, named tuples and `None`;
everything else is a leaf, except the containers that were registered with jax.
Columns are a tree like one record whose leaves are arrays with one more, leading axis:
the structure is walked once for all records, not once per record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.errors import a_type


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Return the same tree with `fn` applied to each leaf; mappings become plain dicts.

    >>> map_leaves(lambda x: x + 1, {"a": [1, (2, None)]})
    {'a': [2, (3, None)]}
    """
    if type(tree) is np.ndarray:  # first, because it is asked for every batch
        return fn(tree)
    if isinstance(tree, (dict, Mapping)):  # dict first: it is much faster
        return {key: map_leaves(fn, value) for key, value in tree.items()}
    if tree is None:
        return None
    if isinstance(tree, list | tuple):
        return rebuild_sequence(tree, [map_leaves(fn, value) for value in tree])
    node = registered_node(tree)
    if node is not None:
        children, rebuild = node
        return rebuild([map_leaves(fn, child) for child in children])
    return fn(tree)


def leaves_with_paths(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its dotted path, in order; `None` holds nothing.

    >>> list(leaves_with_paths({"a": [1, 2], "b": {"c": 3}}))
    [('a[0]', 1), ('a[1]', 2), ('b.c', 3)]
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves_with_paths(value, join(path, key))
    elif tree is None:
        return
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from leaves_with_paths(value, f"{path}[{i}]")
    else:
        node = registered_node(tree)
        if node is None:
            yield path, tree
            return
        for i, value in enumerate(node[0]):
            yield from leaves_with_paths(value, f"{path}[{i}]")


def join(path: str, key: Any) -> str:
    """Return the path of a field below `path`."""
    return f"{path}.{key}" if path else str(key)


def rebuild_sequence(like: list | tuple, values: list) -> Any:
    """Return a list, tuple or named tuple of the type of `like`."""
    if type(like) is list:
        return values
    if hasattr(like, "_fields"):
        return type(like)(*values)
    return type(like)(values)


def registered_node(tree: Any) -> tuple[list, Callable[[list], Any]] | None:
    """Return children and constructor of a container of jax, `None` for a leaf."""
    if isinstance(tree, _PLAIN_LEAVES) or "jax" not in sys.modules:
        return None
    tree_util = sys.modules["jax"].tree_util
    children, structure = tree_util.tree_flatten(tree, is_leaf=lambda x: x is not tree)
    if tree_util.treedef_is_leaf(structure):
        return None
    return children, structure.unflatten


_PLAIN_LEAVES = (np.ndarray, np.generic, int, float, complex, str, bytes)


def is_jax(leaf: Any) -> bool:
    """Return whether a leaf is a `jax.Array`, traced ones included."""
    return isinstance(leaf, getattr(sys.modules.get("jax"), "Array", ()))


def copy_record(record: Any) -> Any:
    """Return a record whose containers and arrays belong to nobody else."""
    if type(record) is dict:  # the usual case, without the detour
        return {
            key: value.copy()
            if type(value) is np.ndarray
            else value
            if type(value) in _SCALARS
            else copy_record(value)
            for key, value in record.items()
        }
    return map_leaves(_copy_leaf, record)


_SCALARS = frozenset((int, float, bool, str, bytes))


def _copy_leaf(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def has_shape_and_dtype(leaf: Any) -> bool:
    """Return whether a leaf is an array, or stands for one."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def describe(tree: Any) -> str:
    """Keys, dtypes and shapes of a record, for messages.

    >>> describe({"image": np.zeros((2, 3), np.uint8), "label": 3})
    '{image: uint8[2,3], label: int}'
    """
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list | tuple):
        inside = ", ".join(describe(value) for value in tree[:8])
        inside += ", ..." if len(tree) > 8 else ""
        return f"[{inside}]" if isinstance(tree, list) else f"({inside})"
    return describe_leaf(tree)


def describe_leaf(leaf: Any) -> str:
    """Dtype and shape of an array, else the type, for messages.

    >>> describe_leaf(np.zeros((2, 3), np.uint8)), describe_leaf([1, 2])
    ('uint8[2,3]', 'list')
    """
    if not has_shape_and_dtype(leaf):
        return type(leaf).__name__
    dtype = leaf.dtype
    if not isinstance(dtype, np.dtype):  # TensorFlow's
        dtype = getattr(dtype, "name", dtype)
    sizes = ",".join("?" if size is None else str(size) for size in leaf.shape)
    return f"{dtype}[{sizes}]"


# ----------------------------------------------------------------------------
# Columns
# ----------------------------------------------------------------------------


_NUMBERS = "biufc"


class RecordMismatchError(Exception):
    """Two records that cannot stand in one batch.

    Attributes:
      rows: Which two of the records that were to be stacked.
      message: What differs, with `{0}` and `{1}` where the records are to be named.
    """

    def __init__(self, rows: tuple[int, int], message: str):
        super().__init__(rows, message)
        self.rows = rows
        self.message = message

    def described(self, first: str, second: str) -> str:
        """Return the message with the records' names in it."""
        text = self.message.replace("{0}", first).replace("{1}", second)
        return f"Records cannot be put in one batch: {text}."


def stack(records: Sequence[Any]) -> Any:
    """Return columns of one or more records of equal structure.

    >>> stack([{"x": 1, "y": "a"}, {"x": 2, "y": "bc"}])
    {'x': array([1, 2]), 'y': array(['a', 'bc'], dtype='<U2')}

    Raises:
      RecordMismatchError: Two records differ in keys, shapes or kind of data.
    """
    return _zip_parts(records, "", _stack_leaf)


def unstack(columns: Any, size: int) -> list[Any]:
    """Return the `size` records of columns; arrays are views."""
    values = columns.values() if type(columns) is dict else ()
    if values and all(type(column) is np.ndarray for column in values):
        names = list(columns)
        return [dict(zip(names, row)) for row in zip(*values)]
    return [
        map_leaves(lambda column: column[row], columns)  # noqa: B023
        for row in range(size)
    ]


def take_rows(columns: Any, rows: Any) -> Any:
    """Return the columns of some rows (a slice, a mask, or an array of numbers)."""
    return map_leaves(lambda column: column[rows], columns)


def concatenate(parts: Sequence[Any]) -> Any:
    """Return columns of the rows of several parts, one after another.

    Raises:
      RecordMismatchError: The parts differ; `rows` then numbers the parts.
    """
    if len(parts) == 1:
        return parts[0]
    return _zip_parts(parts, "", _concatenate_leaf)


def pad_rows(columns: Any, size: int) -> Any:
    """Fill up to `size` rows with zeros, `False` and empty strings."""

    def pad(column: np.ndarray) -> np.ndarray:
        missing = size - len(column)
        shape = (missing, *column.shape[1:])
        if column.dtype == object:
            filler = np.full(shape, _empty_like_objects(column), object)
        else:
            filler = np.zeros(shape, column.dtype)
        return np.concatenate([column, filler])

    return map_leaves(pad, columns)


def form(columns: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    """Return path, shape and dtype of each array, equal for stackable trees."""
    return [
        (path, np.shape(leaf), getattr(leaf, "dtype", type(leaf)))
        for path, leaf in leaves_with_paths(columns)
    ]


def num_rows(columns: Any) -> int | None:
    """Return the length of the leading axis, `None` if there is no array."""
    for _, column in leaves_with_paths(columns):
        return len(column)
    return None


# ----------------------------------------------------------------------------
# One node of the tree, for all records at once
# ----------------------------------------------------------------------------


def _zip_parts(values: Sequence[Any], path: str, join_leaf: Any) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        _check_keys(values, path)
        return {
            key: _zip_parts([v[key] for v in values], join(path, key), join_leaf)
            for key in first
        }
    if first is None:
        _check_same_type(values, path)
        return None
    if isinstance(first, list | tuple):
        _check_sequences(values, path)
        columns = [
            _zip_parts(items, f"{path}[{i}]", join_leaf)
            for i, items in enumerate(zip(*values))
        ]
        return rebuild_sequence(first, columns)
    node = registered_node(first)
    if node is not None:
        _check_same_type(values, path)
        rows = [registered_node(v) or ([], None) for v in values]
        _check_sequences([row[0] for row in rows], path)
        children = zip(*(row[0] for row in rows))
        return node[1](
            [_zip_parts(c, f"{path}[{i}]", join_leaf) for i, c in enumerate(children)]
        )
    return join_leaf(values, path)


def _stack_leaf(values: Sequence[Any], path: str) -> np.ndarray:
    """Return one column of the values of one field."""
    first = values[0]
    kind = type(first)
    if kind is np.ndarray:
        shape, dtype = first.shape, first.dtype
        for value in values:
            if type(value) is not np.ndarray or value.shape != shape:
                break
            if value.dtype != dtype:
                break
        else:
            return _stack_equal_arrays(values, shape)
    elif kind in _STACKED_SCALARS and all(type(value) is kind for value in values):
        return _stack_scalars(values, kind)
    return _stack_mixed(values, path)


_STACKED_SCALARS = frozenset((int, float, bool, complex, str, bytes))
_ZEROS: dict[type, Any] = {str: "\0", bytes: b"\0"}


def _stack_equal_arrays(values: Sequence[np.ndarray], shape: tuple) -> np.ndarray:
    if not shape:
        return np.array(values)
    return np.concatenate(values).reshape(len(values), *shape)


def _stack_scalars(values: Sequence[Any], kind: type) -> np.ndarray:
    # numpy cuts trailing zeros off texts of fixed width: keep such values whole.
    zero = _ZEROS.get(kind)
    if zero is not None and any(value.endswith(zero) for value in values):
        return _object_column(values)
    return np.array(values)


def _stack_mixed(values: Sequence[Any], path: str) -> np.ndarray:
    arrays = []
    for row, value in enumerate(values):
        if value is None or isinstance(value, Mapping | list | tuple):
            raise RecordMismatchError((0, row), _kind_message(path, values[0], value))
        arrays.append(np.asarray(value))
    first = arrays[0]
    for row, array in enumerate(arrays):
        if not _stackable(first.dtype, array.dtype):
            raise RecordMismatchError((0, row), _kind_message(path, first, array))
        if array.shape != first.shape:
            message = (
                f"field {_shown(path)} has shape {first.shape} in {{0}} and"
                f" {array.shape} in {{1}}; a batch needs equal shapes (resize, crop or"
                " pad the field with a transform)"
            )
            raise RecordMismatchError((0, row), message)
    if first.dtype == object and not first.shape:
        return _object_column(values)
    return np.stack(arrays)


def _concatenate_leaf(parts: Sequence[Any], path: str) -> np.ndarray:
    first = parts[0]
    for row, part in enumerate(parts):
        if part.shape[1:] != first.shape[1:]:
            message = (
                f"field {_shown(path)} has shape {first.shape[1:]} in {{0}} and"
                f" {part.shape[1:]} in {{1}}"
            )
            raise RecordMismatchError((0, row), message)
        if not _stackable(first.dtype, part.dtype):
            raise RecordMismatchError((0, row), _kind_message(path, first, part))
    return np.concatenate(parts)


def _object_column(values: Sequence[Any]) -> np.ndarray:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _empty_like_objects(column: np.ndarray) -> Any:
    for value in column.flat:
        return b"" if isinstance(value, bytes) else "" if isinstance(value, str) else 0
    return 0


def _stackable(a: np.dtype, b: np.dtype) -> bool:
    return a.kind == b.kind or (a.kind in _NUMBERS and b.kind in _NUMBERS)


# ----------------------------------------------------------------------------
# What can differ
# ----------------------------------------------------------------------------


def _check_keys(values: Sequence[Any], path: str) -> None:
    first = values[0]
    for row, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise RecordMismatchError((0, row), _kind_message(path, first, value))
        if value.keys() != first.keys():
            missing = [k for k in first if k not in value]
            extra = [k for k in value if k not in first]
            where = f" of field {path!r}" if path else ""
            message = (
                f"the keys{where} differ: {{0}} has {_names(first)}, {{1}} has"
                f" {_names(value)} (missing: {_names(missing)}, extra:"
                f" {_names(extra)}); make them equal with kd.data.AddConstants or"
                " kd.data.Elements"
            )
            raise RecordMismatchError((0, row), message)


def _check_sequences(values: Sequence[Any], path: str) -> None:
    _check_same_type(values, path)
    first = values[0]
    for row, value in enumerate(values):
        if len(value) != len(first):
            message = (
                f"field {_shown(path)} is {a_type(first)} of {len(first)}"
                f" items in {{0}} and of {len(value)} in {{1}}; lists and tuples are"
                " structure, so their lengths must agree (use an array, padded to one"
                " length, for data)"
            )
            raise RecordMismatchError((0, row), message)


def _check_same_type(values: Sequence[Any], path: str) -> None:
    for row, value in enumerate(values):
        if type(value) is not type(values[0]):
            raise RecordMismatchError((0, row), _kind_message(path, values[0], value))


def _kind_message(path: str, first: Any, other: Any) -> str:
    return (
        f"field {_shown(path)} is {describe(first)} in {{0}} and"
        f" {describe(other)} in {{1}}"
    )


def _shown(path: str) -> str:
    return repr(path) if path else "(the record itself)"


def _names(keys: Any) -> str:
    return "[" + ", ".join(repr(str(key)) for key in keys) + "]"
