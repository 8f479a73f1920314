"""How static checkers see the array types: as something that accepts any array.

What is between the brackets is text for the run-time checker, which static checkers
would otherwise read as a forward reference.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

@runtime_checkable
class ArrayType(Any, Protocol):  # pyright: ignore[reportGeneralTypeIssues]
    def __class_getitem__(cls, spec: Any, /) -> Any: ...

Float = ArrayType
Int = ArrayType
Bool = ArrayType
Num = ArrayType
Array = ArrayType
SInt = ArrayType
UInt = ArrayType
IntOrBool = ArrayType
Int8 = ArrayType
Int16 = ArrayType
Int32 = ArrayType
Int64 = ArrayType
UInt8 = ArrayType
UInt16 = ArrayType
UInt32 = ArrayType
UInt64 = ArrayType
Float16 = ArrayType
Float32 = ArrayType
Float64 = ArrayType
BFloat16 = ArrayType
Complex = ArrayType
Complex64 = ArrayType
Complex128 = ArrayType
TfFloat = ArrayType
TfInt = ArrayType
TfBool = ArrayType
TfNum = ArrayType
TfArray = ArrayType
TfSInt = ArrayType
TfUInt = ArrayType
TfIntOrBool = ArrayType
TfInt8 = ArrayType
TfInt16 = ArrayType
TfInt32 = ArrayType
TfInt64 = ArrayType
TfUInt8 = ArrayType
TfUInt16 = ArrayType
TfUInt32 = ArrayType
TfUInt64 = ArrayType
TfFloat16 = ArrayType
TfFloat32 = ArrayType
TfFloat64 = ArrayType
TfBFloat16 = ArrayType
TfComplex = ArrayType
TfComplex64 = ArrayType
TfComplex128 = ArrayType
XFloat = ArrayType
XInt = ArrayType
XBool = ArrayType
XNum = ArrayType
XArray = ArrayType
XSInt = ArrayType
XUInt = ArrayType
XIntOrBool = ArrayType
XInt8 = ArrayType
XInt16 = ArrayType
XInt32 = ArrayType
XInt64 = ArrayType
XUInt8 = ArrayType
XUInt16 = ArrayType
XUInt32 = ArrayType
XUInt64 = ArrayType
XFloat16 = ArrayType
XFloat32 = ArrayType
XFloat64 = ArrayType
XBFloat16 = ArrayType
XComplex = ArrayType
XComplex64 = ArrayType
XComplex128 = ArrayType
Scalar = ArrayType
ScalarBool = ArrayType
ScalarInt = ArrayType
ScalarFloat = ArrayType
ScalarComplex = ArrayType
Fry = ArrayType
PRNGKey = ArrayType
PRNGKeyArray = ArrayType
PRNGKeyLike = ArrayType
Shape = ArrayType
PyTree = ArrayType
ArraySpec = ArrayType
ElementSpec = ArrayType
Axes = int | Sequence[int]
