"""Functions of references, and copies that follow their source."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from kauldron.konfig.configdict import ConfigDict
from kauldron.konfig.node import Node, raw_fields
from kauldron.konfig.references import Operation, PathReference

T = TypeVar("T")


def ref_fn(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function that is evaluated when the field holding its result is read.

    Args:
      fn: Takes and returns values that configs accept.
      *args: Arguments to apply it to at once; references among them, also inside of
        lists and dicts, are evaluated.
      **kwargs: Likewise.

    Returns:
      With arguments: the lazy result. Without: the lazy function (so that `ref_fn` is
      a decorator).

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"size": 8})
      >>> cfg.name = konfig.ref_fn(lambda size: f"model_{size}", cfg.ref.size)
      >>> cfg.size = 16
      >>> cfg.name
      'model_16'
    """
    if args or kwargs:
        return Operation(fn, args, kwargs)

    @functools.wraps(fn)
    def lazy(*args: Any, **kwargs: Any) -> Any:
        return Operation(fn, args, kwargs)

    return lazy


def ref_copy(cfg: T) -> T:
    """A copy of a config whose leaves follow the source until they are overwritten.

    Writing to the copy never changes the source. Fields that are added to the source
    later, or dicts that are replaced there as a whole, do not show in the copy.

    Args:
      cfg: The config to follow.

    Returns:
      The copy.

    Raises:
      ValueError: It is not a config.

    Example:
      >>> from kauldron import konfig
      >>> train = konfig.ConfigDict({"batch_size": 8, "shuffle": True})
      >>> test = konfig.ref_copy(train)
      >>> test.shuffle = False
      >>> train.batch_size = 16
      >>> test.to_dict()
      {'batch_size': 16, 'shuffle': False}
    """
    if not isinstance(cfg, Node):
        raise ValueError(f"ref_copy copies a config, not {type(cfg).__name__}: {cfg!r}")
    return _followed(cfg, {})  # pyright: ignore[reportReturnType]


def _followed(node: Node, done: dict[int, Node]) -> Node:
    if id(node) in done:
        return done[id(node)]
    copied = done[id(node)] = ConfigDict()
    for key, value in raw_fields(node).items():
        if isinstance(value, Node):
            value = _followed(value, done)
        elif key not in ("__qualname__", "__const__"):
            value = PathReference(node)[key]
        copied._fields[key] = value
    return copied
