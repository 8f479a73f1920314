"""What a trainer and its state print as: short enough to be read."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from kauldron import kontext

if TYPE_CHECKING:
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer

_LINE = 96
_MOST_ROWS = 12
_MOST_ROWS_OF_PAGE = 300
_LONGEST_PART = 2000


#
# The trainer: what differs from the defaults, a line for each field
#


def trainer_text(trainer: Trainer) -> str:
    """Return the fields that are set, one line each, cut at the terminal's width."""
    lines = [f"    {name}={brief(value)}," for name, value in _set_fields(trainer)]
    return "\n".join([f"{type(trainer).__name__}(", *lines, ")"])


def trainer_html(trainer: Trainer) -> str:
    """Return the same for notebooks; a field unfolds to more of it."""
    rows = []
    for name, value in _set_fields(trainer):
        short, full = brief(value), repr(value)
        if len(full) > _LONGEST_PART:
            full = f"{full[:_LONGEST_PART]}\n... (see `trainer.{name}`)"
        text = f"{name} = <code>{html.escape(short)}</code>"
        if full != short:
            pre = f"<pre>{html.escape(full)}</pre>"
            text = f"<details><summary>{text}</summary>{pre}</details>"
        rows.append(f"<li>{text}</li>")
    title = html.escape(type(trainer).__name__)
    return f"<b>{title}</b><ul>{''.join(rows)}</ul>"


def brief(value: Any) -> str:
    """Return an object in at most a line: nested parts only while there is room."""
    for depth in (3, 2, 1):
        text = " ".join(_brief(value, depth).split())
        if len(text) <= _LINE:
            return text
    return f"{text[: _LINE - 4]} ..."


def _brief(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        if depth == 0 and value:
            return "{...}"
        items = (f"{key!r}: {_brief(item, depth - 1)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, tuple) and type(value) is not tuple:  # optax's, among others
        return f"{type(value).__name__}(...)"
    if isinstance(value, list | tuple) and value:
        if depth == 0:
            return "[...]"
        return f"[{', '.join(_brief(item, depth - 1) for item in value)}]"
    if _is_array(value):
        return _spec(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        if depth == 0:
            return f"{name}(...)"
        fields = _set_fields(value)
        items = (f"{key}={_brief(item, depth - 1)}" for key, item in fields)
        return f"{name}({', '.join(items)})"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    text = repr(value)
    return f"{type(value).__name__}(...)" if " at 0x" in text else text


# Those of flax modules that are not the user's.
_NOT_SHOWN = {"parent", "name", "base_cfg", "raw_cfg", "trainstep"}


def _set_fields(obj: Any) -> list[tuple[str, Any]]:
    """Return the fields that were set, neither by default nor by the trainer."""
    is_inherited = getattr(obj, "_is_inherited", lambda name: False)
    return [
        (field.name, value)
        for field in dataclasses.fields(obj)
        if field.repr and field.name not in _NOT_SHOWN
        for value in [getattr(obj, field.name, None)]
        if not _is_default(field, value) and not is_inherited(field.name)
    ]


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if value is default:
        return True
    if default is dataclasses.MISSING or _is_array(value):
        return False
    try:
        is_equal = bool(value == default)
    except Exception:  # arrays in it
        return False
    same_kind = type(value) is type(default)
    # Parts that are equal only if they are the same object.
    return is_equal or (same_kind and value is not None and _looks_like(value, default))


def _looks_like(value: Any, default: Any) -> bool:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return False
    is_inherited = getattr(value, "_is_inherited", lambda name: False)
    return all(
        is_inherited(field.name)
        or repr(getattr(value, field.name)) == repr(getattr(default, field.name))
        for field in dataclasses.fields(value)
        if field.repr
    )


#
# The state: counts, and the shapes of its largest parts
#


def state_text(state: TrainState) -> str:
    """Return the number of parameters and the shapes, at most a dozen of each part."""
    lines = []
    for name, tree in _parts(state):
        lines.append(f"    {name}={_count(tree)}")
        rows = list(_rows(tree)) if name == "params" else []
        width = max((len(path) for path, _ in rows[:_MOST_ROWS]), default=0)
        for path, spec in rows[:_MOST_ROWS]:
            lines.append(f"        {path:{width}}  {spec}")
        if len(rows) > _MOST_ROWS:
            lines.append(f"        ... and {len(rows) - _MOST_ROWS} more")
    return "\n".join([f"{type(state).__name__}(", *lines, ")"])


def state_html(state: TrainState) -> str:
    """Return the same for notebooks; parts unfold to their shapes."""
    items = []
    for name, tree in _parts(state):
        title = f"{name}: {html.escape(_count(tree))}"
        rows = list(_rows(tree))
        if len(rows) < 2:
            items.append(f"<li>{title}</li>")
            continue
        cells = "".join(
            f"<tr><td>{html.escape(path)}</td><td>{html.escape(spec)}</td></tr>"
            for path, spec in rows[:_MOST_ROWS_OF_PAGE]
        )
        if len(rows) > _MOST_ROWS_OF_PAGE:
            cells += f"<tr><td>... and {len(rows) - _MOST_ROWS_OF_PAGE} more</td></tr>"
        table = f"<table>{cells}</table>"
        items.append(f"<li><details><summary>{title}</summary>{table}</details></li>")
    title = html.escape(type(state).__name__)
    return f"<b>{title}</b><ul>{''.join(items)}</ul>"


def _parts(state: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(state):
        yield field.name, getattr(state, field.name)


def _count(tree: Any) -> str:
    leaves = jax.tree.leaves(tree)
    if len(leaves) == 1 and leaves[0] is tree:
        return _scalar(tree)
    if not leaves:
        return repr(tree)
    arrays = [leaf for leaf in leaves if _is_array(leaf)]
    number = sum(math.prod(leaf.shape) for leaf in arrays)
    size = sum(
        math.prod(leaf.shape) * getattr(leaf.dtype, "itemsize", 0) for leaf in arrays
    )
    noun = "array" if len(leaves) == 1 else "arrays"
    return f"{number:_} numbers in {len(leaves)} {noun}, {_bytes(size)}"


def _scalar(value: Any) -> str:
    """Return a number, or its spec if there is no value yet, or no longer."""
    is_abstract = isinstance(value, jax.ShapeDtypeStruct | jax.core.Tracer)
    if not is_abstract and isinstance(value, jax.Array) and value.is_deleted():
        return f"{_spec(value)} (deleted)"
    if not _is_array(value) or (value.shape == () and not is_abstract):
        return str(value)
    return _spec(value)


def _rows(tree: Any) -> Iterator[tuple[str, str]]:
    for path, leaf in kontext.flatten_with_path(tree).items():
        yield str(path), _spec(leaf) if _is_array(leaf) else repr(leaf)[:60]


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _spec(value: Any) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
