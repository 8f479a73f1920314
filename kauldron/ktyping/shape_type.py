"""`Shape` and `Shape["*b n"]`: annotations for a shape itself, a sequence of ints."""

from __future__ import annotations

import copyreg
import numbers
from collections.abc import Sequence
from typing import Any

from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.shapes.sizes import is_symbolic


class ShapeMeta(type):
    """The class of `Shape` types."""

    shape_spec: Any = MISSING

    def __getitem__(cls, spec: str) -> ShapeMeta:
        if not isinstance(spec, str):
            raise TypeError(f"Shape[...] expects a string, got {spec!r}")
        if cls.shape_spec is not MISSING:
            raise TypeError(f"Trying to redefine shape spec of {cls!r} as {spec!r}")
        try:
            return _interned[spec]
        except KeyError:
            made = _interned[spec] = _make(spec)
            return made

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        text = ", ".join(map(repr, args))
        raise RuntimeError(
            f"{cls!r} cannot be instantiated. "
            f"To get a shape from the dims in scope use kt.shape({text})."
        )

    def __instancecheck__(cls, instance: Any) -> bool:
        from kauldron.ktyping.checking import is_instance

        return is_instance(instance, cls)

    def __repr__(cls) -> str:
        return cls.__name__

    def __eq__(cls, other: object) -> bool:
        return cls is other or (
            isinstance(other, ShapeMeta)
            and cls.__name__ == other.__name__
            and type(cls) is type(other)
        )

    def __hash__(cls) -> int:
        return hash(cls.__name__)


class Shape(metaclass=ShapeMeta):
    """A sequence of ints; `Shape["*b n"]` also matches the spec and binds its dims."""


_interned: dict[str, ShapeMeta] = {}


def _make(spec: str) -> ShapeMeta:
    return ShapeMeta(f"Shape[{spec!r}]", (), {"shape_spec": spec})


def _reduce(cls: ShapeMeta) -> Any:
    if cls.shape_spec is MISSING:
        return cls.__qualname__
    return _make, (cls.shape_spec,)


copyreg.pickle(ShapeMeta, _reduce)  # pyright: ignore[reportArgumentType]


def is_shape_type(obj: Any) -> bool:
    """Whether `obj` is `Shape` or `Shape["spec"]`."""
    return isinstance(obj, ShapeMeta)


def is_shape_value(value: Any) -> bool:
    """Whether `value` is a sequence of ints or symbolic sizes."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return False
    return all(isinstance(x, numbers.Integral) or is_symbolic(x) for x in value)
