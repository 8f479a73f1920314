"""Changes of a config that can be told afterwards."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from kauldron import konfig, path_grammar
from kauldron.konfig.path_setting import find_targets
from kauldron.konfig.pathing import has_wildcard
from kauldron.konfig.set_events import recording


def tracked_update(
    cfg: konfig.ConfigDict,
    path: str,
    value: Any,
    *,
    keep: Iterable[str] = (),
    label: str = "tracked_update()",
) -> dict[str, Any]:
    """Set the places that a path names, and tell which ones were changed.

    Args:
      cfg: The config to change.
      path: A path, wildcards allowed: `"evals.**.num_batches"`. With wildcards, places
        that exist are set, and there may be none.
      value: What to set; each place gets a copy.
      keep: Paths, wildcards allowed, of places that stay as they are.
      label: What the history of the fields says.

    Returns:
      From path to the new value, for each place that had another value before.

    Example:
      >>> cfg = konfig.ConfigDict({"a": {"n": 1}, "b": {"n": 5}})
      >>> tracked_update(cfg, "**.n", 5)
      {'a.n': 5}
    """
    patterns = [path_grammar.parse(pattern) for pattern in keep]
    parts = path_grammar.parse(path)
    try:
        targets = find_targets(cfg, parts)
    except KeyError:
        if not has_wildcard(parts):
            raise
        return {}
    changes = {}
    for target in targets:
        name = path_grammar.format_path(target)
        is_kept = any(path_grammar.matches(target, pattern) for pattern in patterns)
        if not is_kept and not _has_value(cfg, target, value):
            with recording("cli", label):
                konfig.set_by_path(cfg, target, copy.deepcopy(value))
            changes[name] = value
    return changes


def _has_value(cfg: konfig.ConfigDict, target: tuple[Any, ...], value: Any) -> bool:
    try:
        return bool(konfig.get_by_path(cfg, target) == value)
    except (KeyError, ValueError):  # a new field, or one that is not set
        return False
