"""Sets placeholders by the tags that they carry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.error_prefix import error_prefix
from kauldron.konfig.errors import key_error
from kauldron.konfig.field_types import convert
from kauldron.konfig.flattening import iter_nodes
from kauldron.konfig.node import Node, expression
from kauldron.konfig.path_setting import set_by_path
from kauldron.konfig.pathing import Parts, get_by_path, raw_children
from kauldron.konfig.placeholders import Variable
from kauldron.konfig.qualnames import did_you_mean


def set_tagged(cfg: Node, tag: str, value: Any) -> list[str]:
    """Sets every placeholder that carries a tag.

    Args:
      cfg: The config to change.
      tag: As given in `konfig.placeholder(..., tags=(tag,))`.
      value: What these fields get.

    Returns:
      The paths of all fields that were set.

    Raises:
      KeyError: No placeholder carries the tag.
      TypeError: A placeholder is of another type.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"a": konfig.placeholder(str, tags=("dtype",))})
      >>> set_tagged(cfg, "dtype", "bfloat16")
      ['a']
      >>> cfg.a
      'bfloat16'
    """
    found = [(at, v) for at, v in _placeholders(cfg) if tag in v._konfig_tags]
    if not found:
        known = sorted({t for _, v in _placeholders(cfg) for t in v._konfig_tags})
        listed = f"There are: {', '.join(known)}." if known else "There are none."
        hint = did_you_mean(tag, known)
        raise key_error(f"No placeholder has the tag {tag!r}.{hint} {listed}")
    for at, variable in found:  # all or nothing
        with error_prefix(f"{expression(at)}: "):
            convert(value, variable.get_type())
    for at, variable in found:
        if isinstance(get_by_path(cfg, at[:-1]), Node):
            set_by_path(cfg, at, value)
        else:  # an item of a list, which would be replaced
            variable.set(value)
    return [path_grammar.format_path(at) for at, _ in found]


def _placeholders(cfg: Node) -> Iterator[tuple[Parts, Variable]]:
    for at, node in iter_nodes(cfg):
        yield from _placeholders_in(node, at)


def _placeholders_in(holder: Any, at: Parts) -> Iterator[tuple[Parts, Variable]]:
    for part, raw in raw_children(holder):
        if isinstance(raw, Variable):
            yield (*at, part), raw
        elif isinstance(raw, (list, tuple)):
            yield from _placeholders_in(raw, (*at, part))
