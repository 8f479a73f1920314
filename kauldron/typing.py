"""Array types and checks under their older names, over the engine of `kauldron.ktyping`.

    from kauldron.typing import Float, Shape, typechecked

    @typechecked
    def flatten(x: Float["*b h w c"]) -> Float["*b h*w c"]:
      return x.reshape(Shape("*b h*w c"))

What differs from `ktyping`: `Int` is signed, scalars are arrays, the built-in
`isinstance` binds dims, fields of dataclasses share the dims of the function.
"""

# ruff: noqa: I001, F401  (the order is that of a table of contents)

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.older.array_types import (
    Array as Array,
    Bool as Bool,
    Complex as Complex,
    Complex64 as Complex64,
    Float as Float,
    Float32 as Float32,
    Int as Int,
    Integer as Integer,
    Num as Num,
    Scalar as Scalar,
    ScalarFloat as ScalarFloat,
    ScalarInt as ScalarInt,
    TfArray as TfArray,
    TfFloat as TfFloat,
    TfFloat32 as TfFloat32,
    TfInt as TfInt,
    TfUInt8 as TfUInt8,
    UInt8 as UInt8,
    UInt32 as UInt32,
    XArray as XArray,
)
from kauldron.ktyping.array_types import PyTree as PyTree
from kauldron.ktyping.older.array_spec import ArraySpec as ArraySpec
from kauldron.ktyping.older.functions import Dim as Dim
from kauldron.ktyping.older.functions import Memo as Memo
from kauldron.ktyping.older.functions import Shape as Shape
from kauldron.ktyping.older.functions import check_type as check_type
from kauldron.ktyping.older.functions import (
    enable_kd_type_checking as enable_kd_type_checking,
)
from kauldron.ktyping.older.functions import set_shape as set_shape
from kauldron.ktyping.older.functions import typechecked as typechecked
from kauldron.ktyping.older.switch import type_check as type_check
from kauldron.ktyping.errors import KTypeCheckError as TypeCheckError
from kauldron.ktyping.shapes.spec_errors import ShapeError as ShapeError

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
    """Names that need jax: it is loaded only by those who ask for them."""
    make = _WITH_JAX.get(name)
    if make is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
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
