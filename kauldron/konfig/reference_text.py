"""References as the expressions that an author would write."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_collections

from kauldron.konfig.set_events import short_repr

_SIGNS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_UNARY_SIGNS = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}


def operation_text(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    method: str = "_konfig_text",
) -> str:
    """`cfg.ref.a + 1` for `operator.add` of those, `f(x, y=1)` for functions."""
    texts = [_operand_text(arg, method) for arg in args]
    if fn in _SIGNS:
        return f"({texts[0]} {_SIGNS[fn]} {texts[1]})"
    if fn in _UNARY_SIGNS:
        return f"{_UNARY_SIGNS[fn]}{texts[0]}"
    if fn is operator.call:
        name, *texts = texts
    else:
        name = getattr(fn, "__name__", None) or type(fn).__name__
    texts += [f"{key}={_operand_text(arg, method)}" for key, arg in kwargs.items()]
    return f"{name}({', '.join(texts)})"


def _operand_text(value: Any, method: str) -> str:
    if isinstance(value, ml_collections.FieldReference):
        text = getattr(type(value), method, None)
        return "<reference>" if text is None else text(value)
    return short_repr(value, 40)
