"""What else authors write: functions of references, copies that follow, annotations."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from kauldron.konfig.tree.configdict import ConfigDict
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Node,
    nodes_below,
    remember_parent,
)
from kauldron.konfig.tree.references import Operation, PathReference

T = TypeVar("T")


def ref_fn(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a function lazy: it runs when the field that holds its result is read.

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
    """Copy a config so that its leaves follow the source until they are overwritten.

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
    for key, value in node._fields.items():
        if key not in (QUALNAME_KEY, CONST_KEY):
            value = _followed_value(value, _Followed(node)[key], done)
        copied._fields[key] = value
        remember_parent(value, copied)
    return copied


def _followed_value(value: Any, reference: Any, done: dict[int, Node]) -> Any:
    """Return copies of nodes, and references to everything else."""
    if isinstance(value, Node):
        return _followed(value, done)
    if type(value) in (list, tuple) and any(True for _ in nodes_below(value)):
        items = enumerate(value)
        return type(value)(_followed_value(v, reference[i], done) for i, v in items)
    return reference


class _Followed(PathReference):
    """A value of the source: what is read is a copy, which may be changed in place."""

    _konfig_copies: tuple[Any, Any]  # what was given out, and what it was then

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.__dict__["_konfig_copies"] = (None, None)

    def __getitem__(self, key: Any) -> Any:
        return _Followed(self, ((False, key),))

    def _konfig_evaluate(self) -> Any:
        given, then = self._konfig_copies
        if given != then:
            return given  # changed in place, which counts as overwritten
        value = super()._konfig_evaluate()
        if type(value) in LEAF_TYPES:
            return value
        if value != then:
            given, then = copy.deepcopy(value), copy.deepcopy(value)
            self.__dict__["_konfig_copies"] = (given, then)
        return given

    def _konfig_pure_path(self, root: Node) -> None:
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> PathReference:
        copied = super().__deepcopy__(memo)
        copied.__dict__["_konfig_copies"] = copy.deepcopy(self._konfig_copies, memo)
        return copied


if TYPE_CHECKING:
    # A node that resolves to T is written, and checked, like a T.
    ConfigDictLike = Annotated[T, "resolves to"]
else:

    class ConfigDictLike:
        """`ConfigDictLike[T]` annotates a node that resolves to `T`."""

        def __class_getitem__(cls, item: Any) -> Any:
            return Annotated[item, cls]


class WithRef:
    """Gives `.ref` to static type checkers, for classes that configs are made of."""

    @property
    def ref(self) -> Self:
        """In a config: the entry to lazy references."""
        raise RuntimeError(
            f"{type(self).__qualname__}.ref exists only in configs, and this is a real "
            f"object. Was {type(self).__qualname__} imported outside of "
            "`with konfig.imports():`?"
        )
