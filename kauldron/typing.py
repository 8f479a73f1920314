"""Array types and checks under their older names, over the engine of `kauldron.ktyping`.

    from kauldron.typing import Float, Shape, typechecked

    @typechecked
    def flatten(x: Float["*b h w c"]) -> Float["*b h*w c"]:
      return x.reshape(Shape("*b h*w c"))

What differs from `ktyping`: `Int` is signed, scalars are arrays, the built-in
`isinstance` binds dims, fields of dataclasses share the dims of the function.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Hashable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kauldron import ktyping as kt
from kauldron.ktyping.array_type_meta import ArrayTypeMeta, ShapeMeta, is_array_type
from kauldron.ktyping.array_type_meta import Shape as ShapeType
from kauldron.ktyping.array_types import PyTree as PyTree
from kauldron.ktyping.checkers.annotations import walk_annotation
from kauldron.ktyping.checkers.checker import check_one
from kauldron.ktyping.checks import (
    TypecheckedBlock,
    check_in_scope,
    compiled,
    decorate,
)
from kauldron.ktyping.config import CONFIG, MISSING, OLDER
from kauldron.ktyping.dims import evaluate_in, require_scope
from kauldron.ktyping.errors import KTypeCheckError, NoActiveScopeError
from kauldron.ktyping.scopes import STACK, ShapeScope
from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.parsing import parse
from kauldron.ktyping.shapes.sizes import ShapeError as ShapeError
from kauldron.ktyping.values import ArraySpecLike, dtype_name
from kauldron.lazy_namespace import missing_name

#
# Array types: the built-in `isinstance` binds their dims
#

if TYPE_CHECKING:
    from kauldron.ktyping.array_types import (
        Array,
        Bool,
        Complex,
        Complex64,
        Float,
        Float32,
        Num,
        Scalar,
        ScalarFloat,
        ScalarInt,
        TfArray,
        TfFloat,
        TfFloat32,
        TfUInt8,
        UInt8,
        UInt32,
        XArray,
    )
    from kauldron.ktyping.array_types import Int as Integer
    from kauldron.ktyping.array_types import SInt as Int
    from kauldron.ktyping.array_types import TfSInt as TfInt
else:

    def _binding(name: str, original: Any) -> Any:
        return ArrayTypeMeta(
            name,
            alternatives=original._alternatives,
            binds=True,
            module="kauldron.typing",
        )

    Array = _binding("Array", kt.Array)
    Num = _binding("Num", kt.Num)
    Bool = _binding("Bool", kt.Bool)
    Int = _binding("Int", kt.SInt)
    Integer = _binding("Integer", kt.Int)
    UInt8 = _binding("UInt8", kt.UInt8)
    UInt32 = _binding("UInt32", kt.UInt32)
    Float = _binding("Float", kt.Float)
    Float32 = _binding("Float32", kt.Float32)
    Complex = _binding("Complex", kt.Complex)
    Complex64 = _binding("Complex64", kt.Complex64)

    Scalar = Array[""]
    ScalarFloat = Float[""]
    ScalarInt = Integer[""]

    TfArray = _binding("TfArray", kt.TfArray)
    TfFloat = _binding("TfFloat", kt.TfFloat)
    TfFloat32 = _binding("TfFloat32", kt.TfFloat32)
    TfInt = _binding("TfInt", kt.TfSInt)
    TfUInt8 = _binding("TfUInt8", kt.TfUInt8)
    XArray = _binding("XArray", kt.XArray)


class _AcceptsEverySpec(type):
    """As an annotation, `ArraySpec` means whatever has a shape and a dtype."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ArraySpecLike)


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySpec(metaclass=_AcceptsEverySpec):
    """The dtype and shape of an array; equal to whatever has the same ones.

    >>> print(ArraySpec("float32", (2, 3)))
    float32[2, 3]
    """

    dtype: Any
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", _as_numpy(self.dtype))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArraySpecLike):
            return NotImplemented
        shape, dtype = other.shape, other.dtype  # pyright: ignore[reportAttributeAccessIssue]
        same_dtype = dtype_name(_as_numpy(dtype)) == dtype_name(self.dtype)
        return same_dtype and tuple(shape) == self.shape

    def __hash__(self) -> int:
        return hash((dtype_name(self.dtype), self.shape))

    def __repr__(self) -> str:
        return f"ArraySpec(dtype={dtype_name(self.dtype)}, shape={self.shape})"

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)}[{', '.join(map(str, self.shape))}]"


def _as_numpy(dtype: Any) -> Any:
    """Return the numpy dtype, or `dtype` itself if it has none (keys of JAX)."""
    import numpy as np

    try:
        return np.dtype(dtype)
    except TypeError:
        return dtype


#
# Checks
#


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
    """Return the size of one axis, or of an expression such as `h+1`.

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
    """Do nothing: dataclass fields are always checked."""


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
        """Return the dims of the active scope of the caller."""
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
    """Return whether each name was written with a `*` where it occurs last."""
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
    """Return the scope of the calling function."""
    try:
        return require_scope(frame)
    except NoActiveScopeError as error:
        raise MissingDecoratorError(str(error)) from None


class _TypeCheckModule(types.ModuleType):
    """`type_check`: an older module path, with the switch of all checks."""

    @property
    def TYPECHECKING_ENABLED(self) -> bool:
        return CONFIG.typechecking_enabled

    @TYPECHECKING_ENABLED.setter
    def TYPECHECKING_ENABLED(self, enabled: bool) -> None:
        CONFIG.typechecking_enabled = enabled

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["kauldron.typing"], name)


type_check = _TypeCheckModule(f"{__name__}.type_check")
sys.modules[type_check.__name__] = type_check
for _older in ("array_types", "shape", "shape_spec"):
    sys.modules[f"{__name__}.{_older}"] = sys.modules[__name__]

#
# Aliases
#

TypeCheckError = KTypeCheckError
parse_shape_spec = parse
ElementSpec = PyTree[ArraySpec]
Axes = int | tuple[int, ...]
AxisName = Hashable
Schedule = Callable[[int], float | Float[""]]

if TYPE_CHECKING:
    from jax.typing import DTypeLike as DType

    PRNGKey = Array
    PRNGKeyLike = Array
    Initializer = Callable[[PRNGKey, Shape, DType], Array]


def __getattr__(name: str) -> Any:
    """Return a name that needs jax, which is loaded only then."""
    make = _WITH_JAX.get(name)
    if make is None:
        raise missing_name(__name__, name, globals())
    import jax.typing
    import numpy

    value = globals()[name] = make(jax, numpy)
    return value


_WITH_JAX = {
    "PRNGKey": lambda jax, np: UInt32["2"] | jax.Array,
    "PRNGKeyLike": lambda jax, np: (
        int | Sequence[int] | np.ndarray | UInt32["2"] | jax.Array
    ),
    "DType": lambda jax, np: jax.typing.DTypeLike,
    "Initializer": lambda jax, np: Callable[
        [UInt32["2"] | jax.Array, Shape, jax.typing.DTypeLike], Array
    ],
}
