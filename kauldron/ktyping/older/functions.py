"""The functions of `kauldron.typing`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, TypeVar, overload

from kauldron.ktyping.array_type_meta import is_array_type
from kauldron.ktyping.checkers.checker import check_one
from kauldron.ktyping.checking import check_in_scope, compiled
from kauldron.ktyping.contents import walk_annotation
from kauldron.ktyping.decorator import TypecheckedBlock, decorate
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.rules import OLDER
from kauldron.ktyping.scopes.reading import evaluate_in
from kauldron.ktyping.scopes.scope import ShapeScope
from kauldron.ktyping.scopes.stack import STACK
from kauldron.ktyping.scopes.visibility import NoActiveScopeError, require_scope
from kauldron.ktyping.shape_type import Shape as ShapeType
from kauldron.ktyping.shape_type import ShapeMeta
from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.parsing import parse
from kauldron.ktyping.shapes.spec_errors import ShapeError

_T = TypeVar("_T")


class MissingDecoratorError(NoActiveScopeError, AssertionError):
    """Dims were asked for in a function that is not `@typechecked`."""


@overload
def typechecked(fn: _T, *, new_scope: bool = True) -> _T: ...
@overload
def typechecked(*, new_scope: bool = True) -> TypecheckedBlock: ...
def typechecked(fn: Any = MISSING, *, new_scope: bool = True) -> Any:
    """`ktyping.typechecked` with the rules of this module.

    The wrapper takes one keyword of its own: `_typecheck=False` skips the checks of
    that call.

    Args:
      fn: A function, method, property or dataclass.
      new_scope: If false, the dims are those of the caller's scope.
    """
    if fn is MISSING:
        return TypecheckedBlock(new_scope, OLDER)
    return decorate(fn, new_scope, OLDER)


def check_type(value: _T, expected_type: Any) -> _T:
    """Check a value, in the active scope if there is one.

    Returns:
      The value itself.

    Raises:
      TypeCheckError: If it does not match.
    """
    __tracebackhide__ = True
    return check_in_scope(value, expected_type, STACK.get() or ShapeScope(), OLDER)


class _CallableShapeMeta(ShapeMeta):
    def __getitem__(cls, spec: str) -> Any:
        return ShapeType[spec]

    def __call__(cls, spec: str) -> Any:
        return evaluate_in(spec, _scope_of(sys._getframe(1)), take_first=True)


class Shape(metaclass=_CallableShapeMeta):
    """`Shape("*b h w")` is the tuple of sizes; as an annotation a sequence of ints.

    >>> import numpy as np
    >>> from kauldron.typing import Float
    >>> @typechecked
    ... def flat(x: Float["*b h w"]):
    ...     return Shape("*b h*w")
    >>> flat(np.ones((2, 3, 4)))
    (2, 12)
    """

    def __new__(cls, spec: str) -> Any:  # only for signatures: the metaclass is called
        raise NotImplementedError


def Dim(spec: str) -> Any:
    """The size of one axis, or of an expression such as `h+1`.

    Raises:
      ShapeError: If the spec does not describe exactly one axis.
    """
    sizes = evaluate_in(spec, _scope_of(sys._getframe(1)), take_first=True)
    if len(sizes) != 1:
        raise ShapeError(f"Dim() needs a single-axis spec, but {spec!r} is {sizes}")
    return sizes[0]


def set_shape(pattern: str, shape: int | Sequence[int]) -> None:
    """Match a concrete shape in the active scope; this binds new dims.

    Args:
      pattern: A shape spec.
      shape: The sizes; an int means one axis.

    Raises:
      TypeCheckError: If the shape contradicts the pattern or known dims.
    """
    __tracebackhide__ = True
    scope = _scope_of(sys._getframe(1))
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    checker = compiled(ShapeType[pattern], OLDER)
    after = check_one(checker, sizes, scope.state, scope)
    if after is None:
        check_in_scope(sizes, ShapeType[pattern], scope, OLDER)
    else:
        scope.state = after


def enable_kd_type_checking() -> None:
    """Does nothing: dataclass fields are always checked."""


@dataclasses.dataclass(frozen=True, repr=False)
class Memo:
    """A snapshot of the dims.

    Attributes:
      single: From name to size.
      variadic: From name to sizes, for dims that were last written with a `*`.
    """

    single: dict[str, int]
    variadic: dict[str, tuple[int, ...]]

    @classmethod
    def from_current_context(cls) -> Memo:
        """The dims of the active scope of the caller."""
        scope = _scope_of(sys._getframe(1))
        starred = _starred_names(scope)
        single, variadic = {}, {}
        for name, sizes in scope.state[0].items():
            if name.startswith("$"):
                continue
            if len(sizes) == 1 and not starred.get(name, False):
                single[name] = sizes[0]
            else:
                variadic[name] = sizes
        return cls(single, variadic)

    def __repr__(self) -> str:
        starred = {f"*{name}": sizes for name, sizes in self.variadic.items()}
        return repr({**self.single, **starred})


def _starred_names(scope: ShapeScope) -> dict[str, bool]:
    """Whether each name was written with a `*` where it occurs last."""
    starred: dict[str, bool] = {}
    for annotation in scope.annotations.values():
        for part in walk_annotation(annotation):
            if is_array_type(part) and isinstance(part.shape_spec, str):
                if "{" in part.shape_spec:
                    continue
                for dim in parse(part.shape_spec).dims:
                    if isinstance(dim, s.NamedDims):
                        starred[dim.name] = dim.lengths != s.SINGLE
    return starred


def _scope_of(frame: FrameType) -> ShapeScope:
    """The scope of the calling function."""
    try:
        return require_scope(frame)
    except NoActiveScopeError as error:
        raise MissingDecoratorError(str(error)) from None
