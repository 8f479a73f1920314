"""Shapes and dtypes of a whole tree, as text."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from typing import Any

from kauldron.ktyping.values import short_dtype


class SpecDict(dict[str, Any]):
    """A dict that a notebook shows as a tree."""

    def _repr_html_(self) -> str:
        return tree_html(self)


class SpecList(list[Any]):
    """A list that a notebook shows as a tree."""

    def _repr_html_(self) -> str:
        return tree_html(self)


def json_spec_like(obj: Any) -> Any:
    """Arrays as texts such as `"f32[2 3]"`, in dicts and lists that are JSON.

    Args:
      obj: Anything: nested dicts, lists, tuples, dataclasses. Fields of dataclasses that
        do not count for their hash (`hash=False`) or are no part of the tree
        (`pytree_node=False`) are left out.

    Returns:
      Dicts and lists of texts. Numbers, texts, `True`, `False` and `None` stay; what is
      none of these becomes its `repr`.

    Example:
      >>> import numpy as np
      >>> json_spec_like({"image": np.zeros((8, 28, 28), np.uint8), "n": [3, None]})
      {'image': 'ui8[8 28 28]', 'n': [3, None]}
    """
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    if hasattr(obj, "shape") and hasattr(obj, "dtype"):
        return array_spec_text(obj)
    if isinstance(obj, Mapping):
        return SpecDict({str(key): json_spec_like(obj[key]) for key in obj})
    as_dict = getattr(obj, "_asdict", None)
    if isinstance(obj, tuple) and as_dict is not None:  # a named tuple
        return json_spec_like(as_dict())
    if isinstance(obj, list | tuple):
        return SpecList(map(json_spec_like, obj))
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        names = [field.name for field in dataclasses.fields(obj) if _is_shown(field)]
        return SpecDict({name: json_spec_like(getattr(obj, name)) for name in names})
    return repr(obj)


def _is_shown(field: dataclasses.Field[Any]) -> bool:
    return field.hash is not False and field.metadata.get("pytree_node", True)


def array_spec_text(array: Any) -> str:
    """`"f32[2 3]"` for anything with a shape and a dtype; `_` is an unknown size."""
    sizes = " ".join("_" if size is None else str(size) for size in array.shape)
    return f"{short_dtype(array.dtype)}[{sizes}]"


def tree_html(tree: Any, name: str = "") -> str:
    """A tree that folds. Its first level is open."""
    return _node_html(name, tree, depth=0)


def _node_html(name: str, node: Any, depth: int) -> str:
    label = f"<b>{html.escape(name)}</b>" if name else ""
    if not isinstance(node, Mapping | list):
        return f"<div>{label} <code>{html.escape(str(node))}</code></div>"
    items = node.items() if isinstance(node, Mapping) else enumerate(node)
    children = [_node_html(str(key), child, depth + 1) for key, child in items]
    inner = f"<div style='margin-left:1.5em'>{''.join(children)}</div>"
    summary = f"{label} <small>({len(children)})</small>"
    is_open = " open" if depth < 1 else ""
    return f"<details{is_open}><summary>{summary}</summary>{inner}</details>"


def tree_text(tree: Any, indent: str = "") -> str:
    """The tree as indented lines."""
    items = list(tree.items() if isinstance(tree, Mapping) else enumerate(tree))
    lines = []
    for key, child in items:
        if isinstance(child, Mapping | list) and child:
            lines += [f"{indent}{key}:", tree_text(child, f"{indent}  ")]
        else:
            lines.append(f"{indent}{key}: {child}")
    return "\n".join(lines)
