"""`materialize_defaults`: the defaults of everything that a config calls, spelt out."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from kauldron.konfig.signatures import POSITIONAL, accepted_names, signature_of
from kauldron.konfig.symbols import import_qualname
from kauldron.konfig.tree.configdict import ConfigDict, as_config
from kauldron.konfig.tree.node import (
    QUALNAME_KEY,
    Node,
    is_call,
    nodes_below,
    positional_count,
)

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def materialize_defaults(cfg: Any) -> ConfigDict:
    """Return a copy of a config that spells out the defaults of everything it calls.

    Shows what can be set: `kauldron config paths --defaults` lists such a copy. Only
    defaults that are plain data are filled in; what cannot be imported stays as it is.

    Args:
      cfg: A config.

    Returns:
      The copy.

    Example:
      >>> cfg = ConfigDict({"__qualname__": "fractions:Fraction", "numerator": 3})
      >>> list(materialize_defaults(cfg))
      ['__qualname__', 'numerator', 'denominator']
    """
    filled = copy.deepcopy(as_config(cfg))
    assert isinstance(filled, ConfigDict)
    with filled.unlocked():
        for node in list(nodes_below(filled)):
            for name, default in _defaults(node):
                if name not in node._fields:
                    node[name] = default
    return filled


def _defaults(node: Node) -> Iterator[tuple[str, Any]]:
    """Yield the named parameters of what a node calls, and their plain defaults."""
    if not is_call(node):
        return
    try:
        symbol = import_qualname(node._fields[QUALNAME_KEY])
    except Exception:  # whoever checks or resolves it will say so
        return
    signature = signature_of(symbol)
    if signature is None:
        return
    parameters = signature.parameters
    slots = [p.name for p in parameters.values() if p.kind in POSITIONAL]
    given = slots[: positional_count(node)]
    for name in accepted_names(signature):
        default = _default_value(symbol, parameters[name])
        if name not in given and _is_plain(default):
            yield name, default


def _default_value(symbol: Any, parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter; `...` if none is worth writing."""
    if parameter.default is parameter.empty:
        return ...
    fields = getattr(symbol, "__dataclass_fields__", {})
    field = fields.get(parameter.name)
    if field is not None and field.default_factory in (list, dict, tuple):
        return field.default_factory()
    is_factory = field is not None and field.default is dataclasses.MISSING
    return ... if is_factory else parameter.default


def _is_plain(value: Any) -> bool:
    if type(value) in _PLAIN:
        return True
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) is dict and not value
