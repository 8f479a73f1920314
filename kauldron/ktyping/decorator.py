"""`typechecked`: the decorator and the context manager."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from typing import Any, TypeVar, overload

from kauldron.ktyping.calls.checked_dataclass import check_dataclass
from kauldron.ktyping.calls.function_checkers import validate_specs
from kauldron.ktyping.calls.function_plan import FunctionPlan
from kauldron.ktyping.calls.function_wrapper import wrap_function
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.rules import STRICT, Rules
from kauldron.ktyping.scopes.scope import ShapeScope, TransparentScope
from kauldron.ktyping.scopes.stack import STACK
from kauldron.ktyping.scopes.visibility import NoActiveScopeError

_T = TypeVar("_T")


@overload
def typechecked(fn: _T, *, new_scope: bool = True) -> _T: ...
@overload
def typechecked(*, new_scope: bool = True) -> TypecheckedBlock: ...
def typechecked(fn: Any = MISSING, *, new_scope: bool = True) -> Any:
    """Check the annotations of a function, method, property or dataclass at run time.

    Each call opens a scope: dims that are bound by one argument hold for the others,
    for the result, and for `kt.dim`, `kt.shape` and `kt.check_type` in the body.

    >>> import numpy as np
    >>> from kauldron.ktyping import Float
    >>> @typechecked
    ... def outer(x: Float["n"], y: Float["m"]) -> Float["n m"]:
    ...     return x[:, None] * y
    >>> outer(np.ones(2), np.ones(3)).shape
    (2, 3)

    Without a function it is a context manager that opens a scope for a block:

    >>> from kauldron import ktyping as kt
    >>> with typechecked():
    ...     _ = kt.check_type(np.ones((2, 3)), Float["a b"])
    ...     kt.dim["b"]
    3

    Args:
      fn: A function (also generator or `async`), method, classmethod, staticmethod,
        property or dataclass.
      new_scope: If false, the dims are those of the caller's scope.

    Raises:
      ShapeSpecSyntaxError: At decoration, if a shape spec is malformed.
      TypeError: If `fn` is something else.
    """
    if fn is MISSING:
        return TypecheckedBlock(new_scope, STRICT)
    return decorate(fn, new_scope, STRICT)


class TypecheckedBlock:
    """`typechecked()` without a function: a context manager, or a decorator."""

    __slots__ = ("_new_scope", "_rules", "_scopes")

    def __init__(self, new_scope: bool, rules: Rules):
        self._new_scope = new_scope
        self._rules = rules
        self._scopes: list[ShapeScope] = []

    def __call__(self, fn: _T) -> _T:
        return decorate(fn, self._new_scope, self._rules)

    def __enter__(self) -> None:
        if self._new_scope:
            scope = ShapeScope()
        else:
            enclosing = STACK.get()
            if enclosing is None:
                raise NoActiveScopeError(
                    "typechecked(new_scope=False) uses the scope around it, "
                    "but no scope is active."
                )
            scope = TransparentScope(enclosing)
        scope.open_in(sys._getframe(1))
        self._scopes.append(scope)

    def __exit__(self, *exc_info: Any) -> None:
        self._scopes.pop().__exit__(*exc_info)


def decorate(fn: Any, new_scope: bool, rules: Rules) -> Any:
    """`typechecked` with all its options.

    Args:
      fn: What to decorate.
      new_scope: Whether each call has dims of its own.
      rules: How annotations are compiled.
    """
    wrap = functools.partial(_decorate_function, new_scope=new_scope, rules=rules)
    if isinstance(fn, (classmethod, staticmethod)):
        return type(fn)(wrap(fn.__func__, kind=type(fn).__name__))
    if isinstance(fn, property):
        accessors = [
            accessor if accessor is None else wrap(accessor, kind="property")
            for accessor in (fn.fget, fn.fset, fn.fdel)
        ]
        return property(*accessors, doc=fn.__doc__)
    if isinstance(fn, types.MethodType):
        return types.MethodType(wrap(fn.__func__, kind="function"), fn.__self__)
    if isinstance(fn, type):
        if not dataclasses.is_dataclass(fn):
            raise TypeError(f"{_refusal(fn)} A plain class: decorate its methods.")
        return check_dataclass(fn, new_scope, rules)
    return wrap(fn, kind="function")


def _decorate_function(fn: Any, *, kind: str, new_scope: bool, rules: Rules) -> Any:
    if _is_jitted(fn):
        raise TypeError(
            f"{_refusal(fn)} Put @typechecked under @jax.jit, next to the function."
        )
    innermost = inspect.unwrap(fn)
    if not isinstance(innermost, types.FunctionType) or not callable(fn):
        raise TypeError(_refusal(fn))
    validate_specs(innermost, innermost.__name__)
    plan = FunctionPlan(fn, kind, new_scope, rules)
    return wrap_function(plan, switchable=rules.switchable)


def _is_jitted(fn: Any) -> bool:
    return type(fn).__module__.partition(".")[0] in ("jax", "jaxlib")


def _refusal(fn: Any) -> str:
    return (
        f"typechecked cannot decorate {fn!r} of type {type(fn).__name__}: it takes "
        "functions, methods, classmethods, staticmethods, properties and dataclasses."
    )
