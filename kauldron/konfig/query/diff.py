"""Differences between two configs, and the overrides that turn one into the other."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
from collections.abc import Iterator
from typing import Any, Literal

from ml_collections import FieldReference

from kauldron import path_grammar
from kauldron.konfig.overrides.config_files import load_saved_config
from kauldron.konfig.symbols import same_qualname
from kauldron.konfig.tree.configdict import ConfigDict, as_config
from kauldron.konfig.tree.field_types import check_overwrite
from kauldron.konfig.tree.history import short_repr
from kauldron.konfig.tree.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Child,
    Node,
    Parts,
    Walk,
    is_call,
    is_const,
)
from kauldron.konfig.tree.references import Operation
from kauldron.path_grammar import Part


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One place where two configs differ.

    Attributes:
      sign: `~` changed, `+` only in the new config, `-` only in the old one.
      path: Where.
      old: The value in the old config. For a node that calls something else now, the
        name of what it called.
      new: The same for the new config.
    """

    sign: Literal["~", "+", "-"]
    path: str
    old: Any = None
    new: Any = None

    def __str__(self) -> str:
        old, new = (short_repr(value, 120) for value in (self.old, self.new))
        values = {"~": f"{old} -> {new}", "+": new, "-": old}
        return f"{self.sign} {self.path}: {values[self.sign]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigDiff:
    """What differs between two configs. False when nothing does.

    Attributes:
      old: The old config.
      new: The new config.
      differences: In the order of the configs.
      shared: Groups of paths that hold one and the same node only in the new config.
      unshared: Groups of paths that did so only in the old config.
    """

    old: Node = dataclasses.field(repr=False)
    new: Node = dataclasses.field(repr=False)
    differences: tuple[Difference, ...] = ()
    shared: tuple[tuple[str, ...], ...] = ()
    unshared: tuple[tuple[str, ...], ...] = ()

    @property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """From path to old and new value."""
        return {d.path: (d.old, d.new) for d in self.differences if d.sign == "~"}

    @property
    def added(self) -> dict[str, Any]:
        """From path to the value that only the new config has."""
        return {d.path: d.new for d in self.differences if d.sign == "+"}

    @property
    def removed(self) -> dict[str, Any]:
        """From path to the value that only the old config has."""
        return {d.path: d.old for d in self.differences if d.sign == "-"}

    def __bool__(self) -> bool:
        return bool(self.differences or self.shared or self.unshared)

    def __str__(self) -> str:
        lines = [str(difference) for difference in self.differences]
        lines += [f"shared: {', '.join(group)}" for group in self.shared]
        lines += [f"no longer shared: {', '.join(group)}" for group in self.unshared]
        return "\n".join(lines)

    def as_overrides(self) -> dict[str, Any]:
        """Return the overrides that turn the old config into the new one.

        Returns:
          From path to value, for `apply_overrides` or, with `format_value`, for the
          command line. Where overrides cannot do it piece by piece (a field is gone,
          a list has another length, a type changed) the node around it is replaced.

        Raises:
          ValueError: The top level itself would have to be replaced.
        """
        try:
            overrides = _overrides(self.old, self.new, (), Walk())
        except _MustBeReplaced as reason:
            raise ValueError(
                f"No overrides turn the old config into the new one: {reason}"
            ) from None
        return {
            path_grammar.format_path(parts): copy.deepcopy(value)
            for parts, value in overrides.items()
        }


def diff(old: Any, new: Any) -> ConfigDiff:
    """Compare two configs.

    References are compared by value, lists item by item. A node that calls something
    else is one change, followed by those of its arguments.

    Args:
      old: A config, a plain mapping, or a saved config: the path of its `config.json`
        (or of the folder with it), or the JSON text.
      new: The same.

    Returns:
      The differences; false if there are none.

    Example:
      >>> difference = diff({"lr": 0.1, "steps": 5}, {"lr": 0.2, "seed": 1})
      >>> print(difference)
      ~ lr: 0.1 -> 0.2
      + seed: 1
      - steps: 5
    """
    old_cfg, new_cfg = _loaded(old), _loaded(new)
    if _is_saved(old) != _is_saved(new):
        # Saving turns tuples into lists: what is compared has gone the same way.
        old_cfg, new_cfg = (_as_saved(cfg) for cfg in (old_cfg, new_cfg))
    groups_old, groups_new = _shared_groups(old_cfg), _shared_groups(new_cfg)
    return ConfigDiff(
        old=old_cfg,
        new=new_cfg,
        differences=tuple(_compare(old_cfg, new_cfg, (), frozenset(), Walk())),
        shared=tuple(group for group in groups_new if group not in groups_old),
        unshared=tuple(group for group in groups_old if group not in groups_new),
    )


# ------------------------------------------------------------------------------------
# Inputs
# ------------------------------------------------------------------------------------


def _is_saved(cfg: Any) -> bool:
    return isinstance(cfg, (str, os.PathLike))


def _loaded(cfg: Any) -> Node:
    if not _is_saved(cfg):
        return as_config(cfg)
    if isinstance(cfg, str) and cfg.lstrip().startswith("{"):
        return ConfigDict.from_json(cfg)
    return load_saved_config(os.fspath(cfg))


def _as_saved(cfg: Node) -> Node:
    return ConfigDict.from_json(ConfigDict(cfg).to_json())


# ------------------------------------------------------------------------------------
# Comparing
# ------------------------------------------------------------------------------------


_Pairs = frozenset[tuple[int, int]]  # the pairs around the current one, by id


def _values(container: Any, walk: Walk) -> dict[Part, Any]:
    return {child.part: child.value for child in walk.children(container)}


def _compare(
    old: Any, new: Any, at: Parts, above: _Pairs, walk: Walk
) -> Iterator[Difference]:
    pair = (id(old), id(new))
    if pair in above or (old is new and not isinstance(old, float)):
        return
    if (
        isinstance(old, Node)
        and isinstance(new, Node)
        and is_const(old) == is_const(new)
    ):
        symbols = _symbol(old), _symbol(new)
        if not same_qualname(*symbols):
            yield _difference("~", at, *symbols)
    elif type(old) is not type(new) or not isinstance(old, (list, tuple)):
        if not _same_leaf(old, new):
            yield _difference("~", at, old, new)
        return
    olds, news = _values(old, walk), _values(new, walk)
    for symbol in (QUALNAME_KEY, CONST_KEY):
        olds.pop(symbol, None)
        news.pop(symbol, None)
    for part, value in news.items():
        if part in olds:
            yield from _compare(olds[part], value, (*at, part), above | {pair}, walk)
        else:
            yield _difference("+", (*at, part), None, value)
    for part, value in olds.items():
        if part not in news:
            yield _difference("-", (*at, part), value, None)


def _symbol(node: Node) -> str | None:
    """Return what the node calls or names; None for a dict."""
    return node.get(QUALNAME_KEY, node.get(CONST_KEY))


def _difference(
    sign: Literal["~", "+", "-"], at: Parts, old: Any, new: Any
) -> Difference:
    return Difference(sign=sign, path=path_grammar.format_path(at), old=old, new=new)


def _shared_groups(cfg: Node) -> list[tuple[str, ...]]:
    """Return the paths of each node that has several, without the nodes below it."""
    walk = Walk()
    places: dict[int, tuple[Any, list[str]]] = {}

    def visit(value: Any) -> None:
        if not isinstance(value, (Node, list, tuple)):
            return
        _, paths = places.setdefault(id(value), (value, []))
        paths.append(path_grammar.format_path(walk.parts()))
        if len(paths) == 1:
            for key, item in walk.values(value).items():
                walk.around.append((value, key))
                visit(item)
                walk.around.pop()

    visit(cfg)
    return [
        tuple(paths)
        for value, paths in places.values()
        if len(paths) > 1 and isinstance(value, Node) and not is_const(value)
    ]


# ------------------------------------------------------------------------------------
# Overrides
# ------------------------------------------------------------------------------------


class _MustBeReplaced(Exception):
    """No overrides below a place turn its old value into the new one; says why."""


def _same_leaf(old: Any, new: Any) -> bool:
    """Return whether two leaves are equal; a nan equals a nan."""
    if isinstance(old, FieldReference) or isinstance(new, FieldReference):
        return repr(old) == repr(new)  # they cannot be read: what they follow counts
    if old != old and new != new:
        return True
    return bool(old == new)


def _overrides(old: Any, new: Any, at: Parts, walk: Walk) -> dict[Parts, Any]:
    # Lists may hold references, which cannot be compared: their items are read.
    are_sequences = type(old) is type(new) and isinstance(old, (list, tuple))
    if not are_sequences and _same_leaf(old, new):
        return {}
    if isinstance(old, Node) and isinstance(new, Node):
        if (is_call(old), is_const(old)) != (is_call(new), is_const(new)):
            path = path_grammar.format_path(at)
            raise _MustBeReplaced(f"{path} is another kind of node.")
    elif not are_sequences:
        raise _MustBeReplaced(f"{path_grammar.format_path(at)} is another value.")
    olds = {child.part: child for child in walk.children(old)}
    news = _values(new, walk)
    gone = [part for part in olds if part not in news]
    if gone or (len(news) > len(olds) and not isinstance(new, Node)):
        path = path_grammar.format_path((*at, *gone[:1]))
        raise _MustBeReplaced(f"{path} is not in both.")
    result: dict[Parts, Any] = {}
    for part, value in news.items():
        place = (*at, part)
        if part not in olds:
            result[place] = value
        else:
            result.update(_child_overrides(olds[part], value, place, walk))
    return result


def _child_overrides(child: Child, new: Any, at: Parts, walk: Walk) -> dict[Parts, Any]:
    old = child.value
    with contextlib.suppress(_MustBeReplaced):
        inside = _overrides(old, new, at, walk)
        # What is computed at each read can only be set as a whole.
        if not inside or not isinstance(child.raw, Operation):
            return inside
    if at[-1] not in (QUALNAME_KEY, CONST_KEY):
        try:
            stored = check_overwrite(old, new)
        except TypeError as error:
            raise _MustBeReplaced(f"{path_grammar.format_path(at)}: {error}.") from None
        if stored is not new and stored != new:  # a tuple over a list becomes a list
            path = path_grammar.format_path(at)
            raise _MustBeReplaced(f"{path} changes its type.")
    return {at: new}
