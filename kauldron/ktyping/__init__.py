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
from kauldron.ktyping.checks import typechecked as typechecked
from kauldron.ktyping.checks import check_type as check_type
from kauldron.ktyping.checks import isinstance_ as isinstance
from kauldron.ktyping.dims import dim as dim
from kauldron.ktyping.dims import shape as shape

# Arrays of numpy and jax.
from kauldron.ktyping.array_types import Float as Float
from kauldron.ktyping.array_types import Int as Int
from kauldron.ktyping.array_types import Bool as Bool
from kauldron.ktyping.array_types import Num as Num
from kauldron.ktyping.array_types import Array as Array
from kauldron.ktyping.array_types import SInt as SInt
from kauldron.ktyping.array_types import UInt as UInt
from kauldron.ktyping.array_types import IntOrBool as IntOrBool
from kauldron.ktyping.array_types import Int8 as Int8
from kauldron.ktyping.array_types import Int16 as Int16
from kauldron.ktyping.array_types import Int32 as Int32
from kauldron.ktyping.array_types import Int64 as Int64
from kauldron.ktyping.array_types import UInt8 as UInt8
from kauldron.ktyping.array_types import UInt16 as UInt16
from kauldron.ktyping.array_types import UInt32 as UInt32
from kauldron.ktyping.array_types import UInt64 as UInt64
from kauldron.ktyping.array_types import Float16 as Float16
from kauldron.ktyping.array_types import Float32 as Float32
from kauldron.ktyping.array_types import Float64 as Float64
from kauldron.ktyping.array_types import BFloat16 as BFloat16
from kauldron.ktyping.array_types import Complex as Complex
from kauldron.ktyping.array_types import Complex64 as Complex64
from kauldron.ktyping.array_types import Complex128 as Complex128

# Numbers and arrays without axes; keys; shapes; trees; what describes an array.
from kauldron.ktyping.array_types import Scalar as Scalar
from kauldron.ktyping.array_types import ScalarBool as ScalarBool
from kauldron.ktyping.array_types import ScalarInt as ScalarInt
from kauldron.ktyping.array_types import ScalarFloat as ScalarFloat
from kauldron.ktyping.array_types import ScalarComplex as ScalarComplex
from kauldron.ktyping.array_types import PRNGKey as PRNGKey
from kauldron.ktyping.array_types import PRNGKeyArray as PRNGKeyArray
from kauldron.ktyping.array_types import PRNGKeyLike as PRNGKeyLike
from kauldron.ktyping.array_types import Shape as Shape
from kauldron.ktyping.array_types import PyTree as PyTree
from kauldron.ktyping.array_types import ArraySpec as ArraySpec
from kauldron.ktyping.array_types import ElementSpec as ElementSpec
from kauldron.ktyping.array_types import Axes as Axes

# Arrays of TensorFlow.
from kauldron.ktyping.array_types import TfFloat as TfFloat
from kauldron.ktyping.array_types import TfInt as TfInt
from kauldron.ktyping.array_types import TfBool as TfBool
from kauldron.ktyping.array_types import TfNum as TfNum
from kauldron.ktyping.array_types import TfArray as TfArray
from kauldron.ktyping.array_types import TfSInt as TfSInt
from kauldron.ktyping.array_types import TfUInt as TfUInt
from kauldron.ktyping.array_types import TfIntOrBool as TfIntOrBool
from kauldron.ktyping.array_types import TfInt8 as TfInt8
from kauldron.ktyping.array_types import TfInt16 as TfInt16
from kauldron.ktyping.array_types import TfInt32 as TfInt32
from kauldron.ktyping.array_types import TfInt64 as TfInt64
from kauldron.ktyping.array_types import TfUInt8 as TfUInt8
from kauldron.ktyping.array_types import TfUInt16 as TfUInt16
from kauldron.ktyping.array_types import TfUInt32 as TfUInt32
from kauldron.ktyping.array_types import TfUInt64 as TfUInt64
from kauldron.ktyping.array_types import TfFloat16 as TfFloat16
from kauldron.ktyping.array_types import TfFloat32 as TfFloat32
from kauldron.ktyping.array_types import TfFloat64 as TfFloat64
from kauldron.ktyping.array_types import TfBFloat16 as TfBFloat16
from kauldron.ktyping.array_types import TfComplex as TfComplex
from kauldron.ktyping.array_types import TfComplex64 as TfComplex64
from kauldron.ktyping.array_types import TfComplex128 as TfComplex128

# Arrays of any library.
from kauldron.ktyping.array_types import XFloat as XFloat
from kauldron.ktyping.array_types import XInt as XInt
from kauldron.ktyping.array_types import XBool as XBool
from kauldron.ktyping.array_types import XNum as XNum
from kauldron.ktyping.array_types import XArray as XArray
from kauldron.ktyping.array_types import XSInt as XSInt
from kauldron.ktyping.array_types import XUInt as XUInt
from kauldron.ktyping.array_types import XIntOrBool as XIntOrBool
from kauldron.ktyping.array_types import XInt8 as XInt8
from kauldron.ktyping.array_types import XInt16 as XInt16
from kauldron.ktyping.array_types import XInt32 as XInt32
from kauldron.ktyping.array_types import XInt64 as XInt64
from kauldron.ktyping.array_types import XUInt8 as XUInt8
from kauldron.ktyping.array_types import XUInt16 as XUInt16
from kauldron.ktyping.array_types import XUInt32 as XUInt32
from kauldron.ktyping.array_types import XUInt64 as XUInt64
from kauldron.ktyping.array_types import XFloat16 as XFloat16
from kauldron.ktyping.array_types import XFloat32 as XFloat32
from kauldron.ktyping.array_types import XFloat64 as XFloat64
from kauldron.ktyping.array_types import XBFloat16 as XBFloat16
from kauldron.ktyping.array_types import XComplex as XComplex
from kauldron.ktyping.array_types import XComplex64 as XComplex64
from kauldron.ktyping.array_types import XComplex128 as XComplex128

# Scopes by hand, and types of one's own.
from kauldron.ktyping.scopes import ShapeScope as ShapeScope
from kauldron.ktyping.dims import get_current_scope as get_current_scope
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
from kauldron.ktyping.shapes.sizes import ShapeError as ShapeError
from kauldron.ktyping.shapes.parsing import ShapeSpecSyntaxError as ShapeSpecSyntaxError
from kauldron.ktyping.errors import NoActiveScopeError as NoActiveScopeError

# Older module paths.
from kauldron.ktyping import compat as _compat

if TYPE_CHECKING:
    from jax.typing import DTypeLike as DType


def __getattr__(name: str) -> Any:
    if name == "DType":  # jax is loaded only by those who ask for it
        from jax.typing import DTypeLike

        return DTypeLike
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
