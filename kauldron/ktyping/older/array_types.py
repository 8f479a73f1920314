"""The array types of `kauldron.typing`: the built-in `isinstance` binds their dims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kauldron.ktyping import array_classes as ac
from kauldron.ktyping import dtypes
from kauldron.ktyping.array_type_meta import ArrayTypeMeta
from kauldron.ktyping.missing import MISSING

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

    def _array_type(name: str, dtype: Any, classes: Any = MISSING) -> Any:
        return ArrayTypeMeta(
            name, dtype=dtype, array_types=classes, binds=True, module="kauldron.typing"
        )

    Array = _array_type("Array", MISSING)
    Num = _array_type("Num", dtypes.number)
    Bool = _array_type("Bool", dtypes.bool_)
    Int = _array_type("Int", dtypes.signedinteger)
    Integer = _array_type("Integer", dtypes.integer)
    UInt8 = _array_type("UInt8", dtypes.uint8)
    UInt32 = _array_type("UInt32", dtypes.uint32)
    Float = _array_type("Float", dtypes.floating)
    Float32 = _array_type("Float32", dtypes.float32)
    Complex = _array_type("Complex", dtypes.complex64 | dtypes.complex128)
    Complex64 = _array_type("Complex64", dtypes.complex64)

    Scalar = Array[""]
    ScalarFloat = Float[""]
    ScalarInt = Integer[""]

    TfArray = _array_type("TfArray", MISSING, (ac.TfArray,))
    TfFloat = _array_type("TfFloat", dtypes.floating, (ac.TfArray,))
    TfFloat32 = _array_type("TfFloat32", dtypes.float32, (ac.TfArray,))
    TfInt = _array_type("TfInt", dtypes.signedinteger, (ac.TfArray,))
    TfUInt8 = _array_type("TfUInt8", dtypes.uint8, (ac.TfArray,))
    XArray = _array_type("XArray", MISSING, ac.ALL_LIBRARIES)
