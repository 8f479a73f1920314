"""What users call: the decorator `typechecked`, and `check_type` for single values."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar, overload

from kauldron.ktyping.array_type_meta import ArrayTypeMeta, is_array_type
from kauldron.ktyping.calls.plan import FunctionPlan
from kauldron.ktyping.calls.signatures import (
    report_jaxtyping,
    validate_annotation,
    validate_specs,
)
from kauldron.ktyping.calls.wrapper import wrap_function
from kauldron.ktyping.checkers.annotations import (
    Names,
    contains_array_type,
    evaluated_annotations,
    names_of_class,
    read_annotations,
)
from kauldron.ktyping.checkers.arrays import array_checker_for
from kauldron.ktyping.checkers.checker import Checker, check_all, check_one
from kauldron.ktyping.checkers.compiler import Compiler
from kauldron.ktyping.checkers.records import DataclassChecker, RecordScope
from kauldron.ktyping.config import BUILTIN, MISSING, STRICT, VERSION, Rules, get_config
from kauldron.ktyping.dims import enclosing_scope, require_scope
from kauldron.ktyping.errors import FailedCheck, make_error
from kauldron.ktyping.scopes import (
    STACK,
    DimValues,
    ShapeScope,
    TransparentScope,
)

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
            scope = TransparentScope(enclosing_scope("typechecked(new_scope=False)"))
        scope.open_in(sys._getframe(1))
        self._scopes.append(scope)

    def __exit__(self, *exc_info: Any) -> None:
        self._scopes.pop().__exit__(*exc_info)


def decorate(fn: Any, new_scope: bool, rules: Rules) -> Any:
    """Apply `typechecked` with all its options."""
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
    return wrap_function(FunctionPlan(fn, kind, new_scope, rules))


def _is_jitted(fn: Any) -> bool:
    return type(fn).__module__.partition(".")[0] in ("jax", "jaxlib")


def _refusal(fn: Any) -> str:
    return (
        f"typechecked cannot decorate {fn!r} of type {type(fn).__name__}: it takes "
        "functions, methods, classmethods, staticmethods, properties and dataclasses."
    )


#
# Dataclasses
#


_TREE_LIBRARIES = {"jax", "jaxlib", "optree"}


def check_dataclass(cls: Any, new_scope: bool, rules: Rules) -> Any:
    """Wrap `cls.__init__` so that the fields are checked after it; returns `cls`."""
    for name, annotation in evaluated_annotations(cls).items():
        validate_annotation(annotation, f"field {name!r} of {cls.__name__}")
    construct = cls.__init__
    plans: dict[type, _DataclassPlan] = {}

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        construct(self, *args, **kwargs)
        made = type(self)
        # A subclass with its own __init__ checks itself, or does not want checks.
        if made.__init__ is not __init__ or _is_rebuilt(sys._getframe(1)):
            return
        plan = plans.get(made)
        if plan is None:
            plan = plans[made] = _DataclassPlan(made, new_scope, rules)
        plan.check(self)

    vars(__init__)["__ktyping_checks_fields__"] = True
    cls.__init__ = __init__
    cls.__ktyping_wrapped__ = True
    return cls


def _is_rebuilt(caller: FrameType) -> bool:
    """Return whether a tree library makes the object, of leaves of any kind."""
    module = caller.f_globals.get("__name__") or ""
    return (
        module.partition(".")[0] in _TREE_LIBRARIES
        or module == "flax.struct"
        or "unflatten" in caller.f_code.co_name
    )


class _DataclassPlan:
    """How instances of one class are checked."""

    def __init__(self, cls: Any, new_scope: bool, rules: Rules):
        self.cls = cls
        self.new_scope = new_scope
        self.rules = rules
        self.version = 0
        self.checker: DataclassChecker | None = None  # none while checking is off

    def __reduce__(self) -> Any:
        """Leave the checkers out: they are compiled again where the class is loaded."""
        return _DataclassPlan, (self.cls, self.new_scope, self.rules)

    def check(self, instance: Any) -> None:
        __tracebackhide__ = True
        if self.version != VERSION.number:
            self._refresh()
        checker = self.checker
        if checker is None:
            return
        enclosing = None
        if not self.new_scope:
            enclosing = enclosing_scope(
                f"dataclass {self.cls.__name__!r}, @typechecked(new_scope=False),"
            )
        scope = RecordScope(checker, instance, enclosing)
        parts = list(checker.parts(instance))
        state, failed = check_all([part[:2] for part in parts], scope.state, scope)
        if failed is not None:
            field, value, _, name = parts[failed]
            raise make_error(FailedCheck("field", name, value, field, state, scope))
        scope.active_scope.state = state

    def _refresh(self) -> None:
        version = VERSION.number
        checker = None
        if get_config(self.cls.__module__).typechecking_enabled:
            names = names_of_class(self.cls, f"class {self.cls.__name__!r}")
            checker = Compiler(self.rules, names).compile_dataclass(self.cls)
            if "jaxtyping" in sys.modules:
                report_jaxtyping(read_annotations(self.cls), checker.location)
        self.checker = checker  # at once, as other threads check in the meantime
        self.version = version


#
# Single values
#


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
      nested_ok: Whether the scope may belong to a function further up. If there is no
        scope at all, the value is checked by itself and its dims are forgotten.

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
    checker = compiled(class_or_tuple, STRICT)
    return check_one(checker, obj, scope.state, scope) is not None


def is_instance(obj: Any, annotation: Any) -> bool:
    """Answer the built-in `isinstance` for annotations.

    It matches in the top scope, no matter which function opened it, and binds nothing,
    unless the type says otherwise.
    """
    scope = STACK.get() or ShapeScope()
    after = check_one(compiled(annotation, BUILTIN), obj, scope.state, scope)
    if after is not None and is_array_type(annotation) and annotation._binds:
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


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the results of a function, except for arguments that cannot be hashed."""
    cached = functools.lru_cache(maxsize=1024)(function)

    def call(*args: Any) -> Any:
        try:
            return cached(*args)
        except TypeError:  # not hashable
            return function(*args)

    return call


@_remembering
def compiled(annotation: Any, rules: Rules) -> Checker:
    """Return the checker of an annotation; made once."""
    return Compiler(rules, Names({}, owner="a check")).compile(annotation)


_has_arrays = _remembering(contains_array_type)
