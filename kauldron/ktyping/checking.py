"""Check single values: `check_type`, `isinstance`, and the built-in `isinstance`."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any, TypeVar

from kauldron.ktyping.annotation_names import Names
from kauldron.ktyping.array_type_meta import ArrayTypeMeta
from kauldron.ktyping.checkers.array_checker import array_checker_for
from kauldron.ktyping.checkers.checker import Checker, check_one
from kauldron.ktyping.checkers.compiler import Compiler
from kauldron.ktyping.config import VERSION
from kauldron.ktyping.contents import contains_array_type
from kauldron.ktyping.error_report import FailedCheck
from kauldron.ktyping.errors import make_error
from kauldron.ktyping.rules import BUILTIN, STRICT, Rules
from kauldron.ktyping.scopes.dim_values import DimValues
from kauldron.ktyping.scopes.scope import ShapeScope
from kauldron.ktyping.scopes.stack import STACK
from kauldron.ktyping.scopes.visibility import require_scope

_T = TypeVar("_T")


def check_type(value: _T, expected_type: Any, *, nested_ok: bool = False) -> _T:
    """Check a value against an annotation in the active scope.

    >>> import numpy as np
    >>> from kauldron import ktyping as kt
    >>> with kt.typechecked():
    ...     _ = kt.check_type([np.ones((2, 3))], list[kt.Float["a b"]])
    ...     kt.shape("b a")
    (3, 2)

    Args:
      value: Anything.
      expected_type: An annotation, or a tuple of them (one must match).
      nested_ok: Whether the scope may belong to a function further up. Then no scope at
        all is fine too, and what is bound is forgotten.

    Returns:
      The value itself.

    Raises:
      KTypeCheckError: If it does not match; the dims in scope are then unchanged.
      NoActiveScopeError: If the caller has no scope.
    """
    __tracebackhide__ = True
    if nested_ok:
        scope = STACK.get() or ShapeScope()
    else:
        scope = require_scope(sys._getframe(1))
    return check_in_scope(value, expected_type, scope, STRICT)


def check_in_scope(
    value: Any, expected_type: Any, scope: ShapeScope, rules: Rules
) -> Any:
    """Check a value in a given scope and bind its dims there."""
    __tracebackhide__ = True
    config = scope.config
    if not (config.typechecking_enabled and scope.is_checked):
        return value
    if config.collection_check == "all":
        rules = dataclasses.replace(rules, all_items=True)
    checker = compiled(expected_type, rules)
    state = scope.state
    after = check_one(checker, value, state, scope)
    if after is None:
        raise make_error(FailedCheck("value", "", value, checker, state, scope))
    if after is not state:
        scope.state = after
    return value


def isinstance_(obj: Any, class_or_tuple: Any, /) -> bool:
    """Like the built-in, for every annotation; never changes the scope.

    >>> from kauldron import ktyping as kt
    >>> kt.isinstance([1, 2], list[int])
    True

    Args:
      obj: Anything.
      class_or_tuple: An annotation or a tuple of them.

    Raises:
      NoActiveScopeError: If the annotation contains array types and the caller has no
        scope.
    """
    if _has_arrays(class_or_tuple):
        scope = require_scope(sys._getframe(1))
    else:
        scope = STACK.get() or ShapeScope()
    return _matches(obj, class_or_tuple, scope, STRICT)


def is_instance(obj: Any, annotation: Any) -> bool:
    """The built-in `isinstance` for annotations.

    It matches in the top scope, whoever opened it, and binds nothing.
    """
    return _matches(obj, annotation, STACK.get() or ShapeScope(), BUILTIN)


def is_instance_of_array_type(obj: Any, cls: ArrayTypeMeta) -> bool:
    """The built-in `isinstance` for array types."""
    scope = STACK.get() or ShapeScope()
    after = check_one(array_checker_for(cls), obj, scope.state, scope)
    if after is not None and cls._binds:
        scope.state = after
    return after is not None


def shape_candidates(
    obj: Any, cls: ArrayTypeMeta, candidates: Any, fstring_locals: Any
) -> frozenset[DimValues]:
    """Match only the shape of `obj`, in a scope of its own."""
    scope = ShapeScope(candidates=candidates, fstring_locals=fstring_locals)
    scope.settle = True
    after = array_checker_for(cls).match_shape(obj, scope.state, scope)
    return frozenset(map(DimValues, after or ()))


def _matches(obj: Any, annotation: Any, scope: ShapeScope, rules: Rules) -> bool:
    checker = compiled(annotation, rules)
    return check_one(checker, obj, scope.state, scope) is not None


def compiled(annotation: Any, rules: Rules) -> Checker:
    """The checker of an annotation; made once."""
    try:
        return _compiled_once(annotation, rules, VERSION.number)
    except TypeError:  # not hashable
        return _compile(annotation, rules)


@functools.lru_cache(maxsize=1024)
def _compiled_once(annotation: Any, rules: Rules, version: int) -> Checker:
    return _compile(annotation, rules)


def _compile(annotation: Any, rules: Rules) -> Checker:
    return Compiler(rules, Names({}, owner="a check")).compile(annotation)


@functools.lru_cache(maxsize=1024)
def _has_arrays_once(annotation: Any) -> bool:
    return contains_array_type(annotation)


def _has_arrays(annotation: Any) -> bool:
    try:
        return _has_arrays_once(annotation)
    except TypeError:
        return contains_array_type(annotation)
