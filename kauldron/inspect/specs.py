"""Shapes: of any tree, of what keys can name, of what each device holds."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax

from kauldron import kontext
from kauldron.inspect.views import View, make_table, show
from kauldron.ktyping.values import short_dtype

if TYPE_CHECKING:
    from kauldron.train import Trainer

#
# Any tree, as text
#


class SpecDict(dict[str, Any]):
    """A dict that a notebook shows as a tree."""

    def _repr_html_(self) -> str:
        return tree_html(self)


class SpecList(list[Any]):
    """A list that a notebook shows as a tree."""

    def _repr_html_(self) -> str:
        return tree_html(self)


def json_spec_like(obj: Any) -> Any:
    """Describe arrays by texts such as `"f32[2 3]"`, in dicts and lists (JSON).

    Args:
      obj: Anything: nested dicts, lists, tuples, dataclasses. Fields of dataclasses that
        do not count for their hash (`hash=False`) or are not part of the tree
        (`pytree_node=False`) are left out.

    Returns:
      Dicts and lists of texts. Numbers, texts, `True`, `False` and `None` stay; anything
      else becomes its `repr`.

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
    """Return `"f32[2 3]"` for what has a shape and a dtype; `_` is an unknown size."""
    sizes = " ".join("_" if size is None else str(size) for size in array.shape)
    return f"{short_dtype(array.dtype)}[{sizes}]"


def tree_html(tree: Any, name: str = "", *, is_open: bool = True) -> str:
    """Return a tree that folds. Its first level is open."""
    label = f"<b>{html.escape(name)}</b>" if name else ""
    if not isinstance(tree, Mapping | list):
        return f"<div>{label} <code>{html.escape(str(tree))}</code></div>"
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    children = [tree_html(child, str(key), is_open=False) for key, child in items]
    inner = f"<div style='margin-left:1.5em'>{''.join(children)}</div>"
    summary = f"{label} <small>({len(children)})</small>"
    opening = "<details open>" if is_open else "<details>"
    return f"{opening}<summary>{summary}</summary>{inner}</details>"


def tree_text(tree: Any, indent: str = "") -> str:
    """Return the tree as indented lines."""
    items = list(tree.items() if isinstance(tree, Mapping) else enumerate(tree))
    lines = []
    for key, child in items:
        if isinstance(child, Mapping | list) and child:
            lines += [f"{indent}{key}:", tree_text(child, f"{indent}  ")]
        else:
            lines.append(f"{indent}{key}: {child}")
    return "\n".join(lines)


#
# What keys can name
#


def plot_context(trainer: Trainer) -> Any:
    """Show everything that keys can name after a train step, with its shape.

    Nothing is computed: shapes are enough.

    Args:
      trainer: The experiment.

    Returns:
      In a notebook nothing, it is displayed as a tree that folds. Elsewhere a view that
      prints as text; `view.save("context.html")` writes a page.
    """
    return show(view_context(trainer))


def view_context(trainer: Trainer) -> View:
    """Return what `plot_context` shows."""
    context = trainer.context_specs
    fields = {name: value for name, value in vars(context).items() if value is not None}
    tree = json_spec_like(fields)
    for name in ("grads", "updates"):
        if name in tree:
            tree[name] = "same structure as params"
    return View(html=tree_html(tree, "context"), text=tree_text(tree), title="Context")


#
# Where the state lives
#


_COLUMNS = ("Path", "Spec", "Sharding", "Per Device")


def plot_sharding(trainer: Trainer) -> Any:
    """Show how each array of the state is spread over the devices.

    Nothing is computed: shapes and the sharding strategy are enough.

    Args:
      trainer: The experiment.

    Returns:
      In a notebook nothing, it is displayed. Elsewhere a table with a row per array:
      `Path`, `Spec` (dtype and shape), `Sharding` (the axes of the mesh that its
      dimensions are split over) and `Per Device` (the part that one device holds).
    """
    return show(sharding_table(trainer))


def sharding_table(trainer: Trainer) -> Any:
    """Return the table that `plot_sharding` shows."""
    flat = kontext.flatten_with_path(trainer.state_specs)
    return make_table(
        _COLUMNS, [describe_leaf(path, leaf) for path, leaf in flat.items()]
    )


def describe_leaf(path: str, spec: Any) -> dict[str, str]:
    """Return the row of one array."""
    sharding = spec.sharding
    part = spec.shape if sharding is None else sharding.shard_shape(spec.shape)
    return {
        "Path": path,
        "Spec": array_spec_text(spec),
        "Sharding": _describe(sharding),
        "Per Device": array_spec_text(jax.ShapeDtypeStruct(part, spec.dtype)),
    }


def _describe(sharding: Any) -> str:
    if sharding is None:
        return "left to jax"
    if sharding.is_fully_replicated:
        return f"replicated on {sharding.num_devices}"
    spec = getattr(sharding, "spec", None)
    return str(sharding) if spec is None else f"{spec} on {sharding.num_devices}"
