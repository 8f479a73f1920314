"""The overrides that turn one config into another."""

from __future__ import annotations

import copy
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.field_types import check_overwrite
from kauldron.konfig.node import CONST_KEY, QUALNAME_KEY, Node, is_call, is_const
from kauldron.konfig.pathing import Parts, children
from kauldron.konfig.references import is_reference


class _MustBeReplaced(Exception):
    """No overrides below a place turn its old value into the new one; says why."""


def build_overrides(old: Node, new: Node) -> dict[str, Any]:
    """From path to value: what to set in `old` so that it equals `new`.

    Raises:
      ValueError: Fields of the top level are gone or changed their type, which no
        override can do.
    """
    try:
        overrides = _overrides(old, new, ())
    except _MustBeReplaced as reason:
        raise ValueError(
            f"No overrides turn the old config into the new one: {reason}"
        ) from None
    return {
        path_grammar.format_path(parts): copy.deepcopy(value)
        for parts, value in overrides.items()
    }


def same_leaf(old: Any, new: Any) -> bool:
    """Whether two leaves are equal; a nan equals a nan."""
    if is_reference(old) or is_reference(new):  # one that cannot be read
        return old is new
    if old != old and new != new:
        return True
    return bool(old == new)


def _overrides(old: Any, new: Any, at: Parts) -> dict[Parts, Any]:
    if same_leaf(old, new):
        return {}
    if isinstance(old, Node) and isinstance(new, Node):
        _check_same_form(old, new, at)
    elif type(old) is not type(new) or not isinstance(old, (list, tuple)):
        raise _MustBeReplaced(f"{path_grammar.format_path(at)} is another value.")
    olds, news = dict(children(old)), dict(children(new))
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
            result.update(_child_overrides(olds[part], value, place))
    return result


def _check_same_form(old: Node, new: Node, at: Parts) -> None:
    if (is_call(old), is_const(old)) != (is_call(new), is_const(new)):
        raise _MustBeReplaced(
            f"{path_grammar.format_path(at)} is another kind of node."
        )


def _child_overrides(old: Any, new: Any, at: Parts) -> dict[Parts, Any]:
    try:
        return _overrides(old, new, at)
    except _MustBeReplaced:
        pass
    if at[-1] not in (QUALNAME_KEY, CONST_KEY):
        try:
            stored = check_overwrite(old, new)
        except TypeError as error:
            raise _MustBeReplaced(f"{path_grammar.format_path(at)}: {error}.") from None
        if stored is not new and stored != new:  # a tuple over a list becomes a list
            path = path_grammar.format_path(at)
            raise _MustBeReplaced(f"{path} changes its type.")
    return {at: new}
