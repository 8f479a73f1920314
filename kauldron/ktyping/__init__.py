"""Array types that are checked at run time: class, dtype, and shapes with names.

```python
from kauldron import ktyping as kt
from kauldron.ktyping import Float

@kt.typechecked
def attend(q: Float["*b n d"], k: Float["*b m d"]) -> Float["*b n m"]:
  ...
```
"""

# ruff: noqa: I001, F401  (the order is that of a table of contents)

from typing import TYPE_CHECKING, Any

# What to decorate with, and what to ask in the body.
from kauldron.ktyping.decorator import typechecked as typechecked
from kauldron.ktyping.checking import check_type as check_type
from kauldron.ktyping.checking import isinstance_ as isinstance
from kauldron.ktyping.scopes.dim_view import dim as dim
from kauldron.ktyping.scopes.reading import shape as shape

# Arrays of numpy and jax.
from kauldron.ktyping.array_types import (
    Float as Float,
    Int as Int,
    Bool as Bool,
    Num as Num,
    Array as Array,
    SInt as SInt,
    UInt as UInt,
    IntOrBool as IntOrBool,
    Int8 as Int8,
    Int16 as Int16,
    Int32 as Int32,
    Int64 as Int64,
    UInt8 as UInt8,
    UInt16 as UInt16,
    UInt32 as UInt32,
    UInt64 as UInt64,
    Float16 as Float16,
    Float32 as Float32,
    Float64 as Float64,
    BFloat16 as BFloat16,
    Complex as Complex,
    Complex64 as Complex64,
    Complex128 as Complex128,
)

# Numbers and arrays without axes; keys; shapes; trees; what describes an array.
from kauldron.ktyping.array_types import (
    Scalar as Scalar,
    ScalarBool as ScalarBool,
    ScalarInt as ScalarInt,
    ScalarFloat as ScalarFloat,
    ScalarComplex as ScalarComplex,
    PRNGKey as PRNGKey,
    PRNGKeyArray as PRNGKeyArray,
    PRNGKeyLike as PRNGKeyLike,
    Shape as Shape,
    PyTree as PyTree,
    ArraySpec as ArraySpec,
    ElementSpec as ElementSpec,
    Axes as Axes,
)

# Arrays of TensorFlow.
from kauldron.ktyping.array_types import (
    TfFloat as TfFloat,
    TfInt as TfInt,
    TfBool as TfBool,
    TfNum as TfNum,
    TfArray as TfArray,
    TfSInt as TfSInt,
    TfUInt as TfUInt,
    TfIntOrBool as TfIntOrBool,
    TfInt8 as TfInt8,
    TfInt16 as TfInt16,
    TfInt32 as TfInt32,
    TfInt64 as TfInt64,
    TfUInt8 as TfUInt8,
    TfUInt16 as TfUInt16,
    TfUInt32 as TfUInt32,
    TfUInt64 as TfUInt64,
    TfFloat16 as TfFloat16,
    TfFloat32 as TfFloat32,
    TfFloat64 as TfFloat64,
    TfBFloat16 as TfBFloat16,
    TfComplex as TfComplex,
    TfComplex64 as TfComplex64,
    TfComplex128 as TfComplex128,
)

# Arrays of any library.
from kauldron.ktyping.array_types import (
    XFloat as XFloat,
    XInt as XInt,
    XBool as XBool,
    XNum as XNum,
    XArray as XArray,
    XSInt as XSInt,
    XUInt as XUInt,
    XIntOrBool as XIntOrBool,
    XInt8 as XInt8,
    XInt16 as XInt16,
    XInt32 as XInt32,
    XInt64 as XInt64,
    XUInt8 as XUInt8,
    XUInt16 as XUInt16,
    XUInt32 as XUInt32,
    XUInt64 as XUInt64,
    XFloat16 as XFloat16,
    XFloat32 as XFloat32,
    XFloat64 as XFloat64,
    XBFloat16 as XBFloat16,
    XComplex as XComplex,
    XComplex64 as XComplex64,
    XComplex128 as XComplex128,
)

# Scopes by hand, and types of one's own.
from kauldron.ktyping.scopes.scope import ShapeScope as ShapeScope
from kauldron.ktyping.scopes.reading import get_current_scope as get_current_scope
from kauldron.ktyping.array_type_meta import is_array_type as is_array_type
from kauldron.ktyping import dtypes as dtypes
from kauldron.ktyping.shapes.sizes import UNKNOWN_DIM as UNKNOWN_DIM

# Configuration.
from kauldron.ktyping import config as config
from kauldron.ktyping.config import CONFIG as CONFIG
from kauldron.ktyping.config import Config as Config
from kauldron.ktyping.config import add_config_override as add_config_override
from kauldron.ktyping.config import remove_config_override as remove_config_override

# Errors.
from kauldron.ktyping.errors import AmbiguousDimensionError as AmbiguousDimensionError
from kauldron.ktyping.errors import KTypeCheckError as KTypeCheckError
from kauldron.ktyping.errors import TypeCheckError as TypeCheckError
from kauldron.ktyping.shapes.spec_errors import ShapeError as ShapeError
from kauldron.ktyping.shapes.spec_errors import (
    ShapeSpecSyntaxError as ShapeSpecSyntaxError,
)
from kauldron.ktyping.scopes.visibility import NoActiveScopeError as NoActiveScopeError

if TYPE_CHECKING:
    from jax.typing import DTypeLike as DType


def __getattr__(name: str) -> Any:
    if name == "DType":  # jax is loaded only by those who ask for it
        from jax.typing import DTypeLike

        return DTypeLike
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
