"""The array types. Each is subscripted with a shape spec: `Float["*b n"]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

Axes = int | Sequence[int]

if TYPE_CHECKING:
    # For static checkers each accepts any array: what is between the brackets is text
    # for the run-time checker, which they would otherwise read as a forward reference.

    @runtime_checkable
    class ArrayType(Any, Protocol):  # pyright: ignore[reportGeneralTypeIssues]
        def __class_getitem__(cls, spec: Any, /) -> Any: ...

    Array = Num = Bool = Int = SInt = UInt = IntOrBool = ArrayType
    Int8 = Int16 = Int32 = Int64 = UInt8 = UInt16 = UInt32 = UInt64 = ArrayType
    Float = Float16 = Float32 = Float64 = BFloat16 = ArrayType
    Complex = Complex64 = Complex128 = ArrayType
    TfArray = TfNum = TfBool = TfInt = TfSInt = TfUInt = TfIntOrBool = ArrayType
    TfInt8 = TfInt16 = TfInt32 = TfInt64 = ArrayType
    TfUInt8 = TfUInt16 = TfUInt32 = TfUInt64 = ArrayType
    TfFloat = TfFloat16 = TfFloat32 = TfFloat64 = TfBFloat16 = ArrayType
    TfComplex = TfComplex64 = TfComplex128 = ArrayType
    XArray = XNum = XBool = XInt = XSInt = XUInt = XIntOrBool = ArrayType
    XInt8 = XInt16 = XInt32 = XInt64 = XUInt8 = XUInt16 = XUInt32 = XUInt64 = ArrayType
    XFloat = XFloat16 = XFloat32 = XFloat64 = XBFloat16 = ArrayType
    XComplex = XComplex64 = XComplex128 = ArrayType
    Scalar = ScalarBool = ScalarInt = ScalarFloat = ScalarComplex = ArrayType
    Fry = PRNGKey = PRNGKeyArray = PRNGKeyLike = ArrayType
    Shape = PyTree = ArraySpec = ElementSpec = ArrayType
else:
    from kauldron.ktyping import dtypes, values
    from kauldron.ktyping.array_type_meta import ArrayTypeMeta, PyTree
    from kauldron.ktyping.array_type_meta import Shape as Shape
    from kauldron.ktyping.config import MISSING

    _DTYPES: dict[str, Any] = {
        "Array": MISSING,
        "Num": dtypes.number,
        "Bool": dtypes.bool_,
        "Int": dtypes.integer,
        "SInt": dtypes.signedinteger,
        "UInt": dtypes.unsignedinteger,
        "IntOrBool": dtypes.integer | dtypes.bool_,
        "Int8": dtypes.int8,
        "Int16": dtypes.int16,
        "Int32": dtypes.int32,
        "Int64": dtypes.int64,
        "UInt8": dtypes.uint8,
        "UInt16": dtypes.uint16,
        "UInt32": dtypes.uint32,
        "UInt64": dtypes.uint64,
        "Float": dtypes.floating,
        "Float16": dtypes.float16,
        "Float32": dtypes.float32,
        "Float64": dtypes.float64,
        "BFloat16": dtypes.bfloat16,
        "Complex": dtypes.complex64 | dtypes.complex128,
        "Complex64": dtypes.complex64,
        "Complex128": dtypes.complex128,
    }

    # The array classes of each prefix: numpy and jax, TensorFlow, any library.
    _CLASSES: dict[str, Any] = {
        "": MISSING,
        "Tf": (values.TfArray,),
        "X": values.ALL_LIBRARIES,
    }

    for _prefix, _classes in _CLASSES.items():
        for _name, _dtype in _DTYPES.items():
            globals()[_prefix + _name] = ArrayTypeMeta(
                _prefix + _name, array_types=_classes, dtype=_dtype, module=__name__
            )

    def _scalar(name: str, dtype: dtypes.DType) -> Any:
        """Make the type of a Python number or an array without axes."""
        return ArrayTypeMeta(
            name,
            text=name,
            array_types=(values.ScalarLike,),
            dtype=dtype,
            shape_spec="",
        )

    Scalar = _scalar("Scalar", dtypes.scalar_like)
    ScalarBool = _scalar("ScalarBool", dtypes.bool_like)
    ScalarInt = _scalar("ScalarInt", dtypes.int_like)
    ScalarFloat = _scalar("ScalarFloat", dtypes.float_like)
    ScalarComplex = _scalar("ScalarComplex", dtypes.complex_like)

    Fry = ArrayTypeMeta("Fry", array_types=(values.JaxArray,), dtype=dtypes.prng_key)
    PRNGKey = Fry[""] | UInt32["2"]
    PRNGKeyArray = Fry["..."] | UInt32["... 2"]
    PRNGKeyLike = PRNGKey | ScalarInt | Sequence[int]

    ArraySpec = ArrayTypeMeta("ArraySpec", array_types=(values.ArraySpecLike,))
    ElementSpec = PyTree[ArraySpec]

    __all__ = [
        *(prefix + name for prefix in _CLASSES for name in _DTYPES),
        *("Scalar", "ScalarBool", "ScalarInt", "ScalarFloat", "ScalarComplex"),
        *("PRNGKey", "PRNGKeyArray", "PRNGKeyLike"),
        *("Shape", "PyTree", "ArraySpec", "ElementSpec", "Axes"),
    ]
