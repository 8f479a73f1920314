"""Families of dtypes, by name: they fit arrays of every library.

    kt.Array[np.ndarray, "h w", kt.dtypes.uint8 | kt.dtypes.floating]

A dtype is asked only for its name (`float32`, `bfloat16`, `key<fry>`), so neither numpy
nor jax has to be loaded. Verdicts are remembered per dtype object.
"""

from __future__ import annotations

import re
from typing import Any

from kauldron.ktyping.values import PYTHON_SCALARS, dtype_name


class DType:
    """A set of dtypes. `a | b` is their union."""

    __slots__ = ("_verdicts", "name")

    def __init__(self, name: str):
        self.name = name
        self._verdicts: dict[Any, bool] = {}

    def matches(self, obj: Any) -> bool:
        """Return whether an array or a Python scalar has one of these dtypes."""
        dtype = getattr(obj, "dtype", None)
        return self.contains(type(obj) if dtype is None else dtype)

    def contains(self, dtype: Any) -> bool:
        """Return whether a dtype, or the class of a Python scalar, belongs here."""
        try:
            return self._verdicts[dtype]
        except KeyError:
            verdict = self._verdicts[dtype] = self._contains(dtype)
            return verdict
        except TypeError:  # not hashable
            return self._contains(dtype)

    def _contains(self, dtype: Any) -> bool:
        raise NotImplementedError

    def members(self) -> frozenset[DType]:
        return frozenset((self,))

    def __or__(self, other: DType) -> DType:
        if not isinstance(other, DType):
            return NotImplemented
        members = self.members() | other.members()
        return CompoundDType(*members) if len(members) > 1 else self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dtypes.{self}"

    def __reduce__(self) -> Any:
        return type(self), (self.name,)


class NpDType(DType):
    """Dtypes known by their numpy name: one (`"int32"`) or a family (`"floating"`).

    Args:
      name: A name, or anything with a `__name__`, such as `np.float32`.
    """

    __slots__ = ()
    prefix = "np"

    def __init__(self, name: Any):
        super().__init__(name if isinstance(name, str) else name.__name__)

    def _contains(self, dtype: Any) -> bool:
        name = dtype_name(dtype)
        family = _FAMILIES.get(self.name)
        return name == self.name if family is None else bool(family.fullmatch(name))

    def __str__(self) -> str:
        return f"{self.prefix}.{self.name}"


class JaxDType(NpDType):
    """The same for what is written `jnp.` (`bfloat16`) or belongs to JAX alone."""

    __slots__ = ()
    prefix = "jnp"


class BuiltinDType(DType):
    """Python's own scalars."""

    __slots__ = ("scalar",)

    def __init__(self, scalar: type):
        super().__init__(scalar.__name__)
        self.scalar = scalar

    def _contains(self, dtype: Any) -> bool:
        is_scalar = isinstance(dtype, type) and dtype in PYTHON_SCALARS
        return is_scalar and issubclass(dtype, self.scalar)

    def __reduce__(self) -> Any:
        return BuiltinDType, (self.scalar,)


class CompoundDType(DType):
    """A union."""

    __slots__ = ("_members",)

    def __init__(self, *members: DType):
        self._members = frozenset(members)
        super().__init__("|".join(sorted(map(str, self._members))))

    def _contains(self, dtype: Any) -> bool:
        return any(member.contains(dtype) for member in self._members)

    def members(self) -> frozenset[DType]:
        return self._members

    def __reduce__(self) -> Any:
        return CompoundDType, tuple(sorted(self._members, key=str))


def as_dtype(dtype: Any) -> DType:
    """Return a `DType` from anything that numpy accepts as a dtype."""
    if isinstance(dtype, DType):
        return dtype
    import numpy as np

    return NpDType(np.dtype(dtype).name)


_SIGNED, _UNSIGNED = r"int\d+", r"uint\d+"
_FLOATING = r"bfloat16|longdouble|float(?!0)\d+(_e\d+m\d+\w*)?"
_COMPLEX = r"complex(64|128)"
_FAMILIES = {
    name: re.compile(pattern)
    for name, pattern in {
        "generic": r".+",
        "bool_": r"bool_?",
        "signedinteger": _SIGNED,
        "unsignedinteger": _UNSIGNED,
        "integer": f"{_SIGNED}|{_UNSIGNED}",
        "floating": _FLOATING,
        "number": f"{_SIGNED}|{_UNSIGNED}|{_FLOATING}|{_COMPLEX}",
        "float128": r"float128|longdouble",
        "prng_key": r"key<.*>",
    }.items()
}

generic = NpDType("generic")
number = NpDType("number")
bool_ = NpDType("bool_")
floating = NpDType("floating")
float16 = NpDType("float16")
float32 = NpDType("float32")
float64 = NpDType("float64")
float128 = NpDType("float128")
bfloat16 = JaxDType("bfloat16")
float0 = JaxDType("float0")
integer = NpDType("integer")
signedinteger = NpDType("signedinteger")
int8 = NpDType("int8")
int16 = NpDType("int16")
int32 = NpDType("int32")
int64 = NpDType("int64")
unsignedinteger = NpDType("unsignedinteger")
uint8 = NpDType("uint8")
uint16 = NpDType("uint16")
uint32 = NpDType("uint32")
uint64 = NpDType("uint64")
complex64 = NpDType("complex64")
complex128 = NpDType("complex128")
prng_key = JaxDType("prng_key")

pybool = BuiltinDType(bool)
pyint = BuiltinDType(int)
pyfloat = BuiltinDType(float)
pycomplex = BuiltinDType(complex)

bool_like = pybool | bool_
int_like = pyint | integer
float_like = pyfloat | floating | float0
complex_like = pycomplex | complex64 | complex128
scalar_like = bool_like | int_like | float_like | complex_like
