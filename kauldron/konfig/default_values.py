"""Fields that nodes of a given symbol start with."""

from __future__ import annotations

import copy
from typing import Any

from kauldron.konfig.node import QUALNAME_KEY, Node, raw_fields
from kauldron.konfig.qualnames import normalize_qualname

_defaults: dict[str, Node] = {}


def default_values_of(qualname: Any) -> Node | None:
    """The registered defaults of a symbol. Not to be modified."""
    if not _defaults or not isinstance(qualname, str):
        return None
    return _defaults.get(normalize_qualname(qualname))


def register_default_values(default_values: Any) -> None:
    """Pre-fills the nodes of a symbol.

    From now on every node that is created with that symbol starts as a copy of the
    defaults, into which the given arguments are merged. Nothing is imported.

    Args:
      default_values: A node with the symbol and the fields to start with, such as
        `kd.train.Trainer(evals={})` written inside `konfig.imports()`.

    Raises:
      ValueError: It is not the node of a call, or other defaults are registered.

    Example:
      >>> from kauldron import konfig
      >>> konfig.register_default_values(
      ...     konfig.ConfigDict({"__qualname__": "my_project:Model", "width": 8})
      ... )
      >>> konfig.ConfigDict({"__qualname__": "my_project:Model", "depth": 2})
      <ConfigDict[my_project.Model(width=8, depth=2)]>
    """
    if not isinstance(default_values, Node) or (
        QUALNAME_KEY not in raw_fields(default_values)
    ):
        raise ValueError(
            "Default values are registered with the node of a call, such as "
            f"`module.Class(field=value)` inside konfig.imports(). Got: "
            f"{default_values!r}"
        )
    name = normalize_qualname(default_values[QUALNAME_KEY])
    known = _defaults.get(name)
    if known is not None and known != default_values:
        raise ValueError(
            f"Other default values are registered for {name!r} already: {known!r}"
        )
    if known is None:
        _defaults[name] = copy.deepcopy(default_values)
