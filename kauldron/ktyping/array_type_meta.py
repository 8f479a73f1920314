"""The classes of the types for annotations: `Float["b n"]`, `Shape["b n"]`, `PyTree[T]`.

Array types are classes, so `isinstance` and `|` work on them. A type is a list of
alternatives (array classes with dtypes) that share a shape spec: `Float` has one
alternative, `Float | TfInt` has two.
"""

from __future__ import annotations

import copyreg
import functools
import numbers
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from kauldron.ktyping.config import MISSING
from kauldron.ktyping.dtypes import as_dtype
from kauldron.ktyping.shapes.sizes import is_symbolic
from kauldron.ktyping.values import DEFAULT_CLASSES, format_annotation, is_of_class
from kauldron.ktyping.values import ArraySpecLike as ArraySpecLike
from kauldron.ktyping.values import JaxArray as JaxArray
from kauldron.ktyping.values import NpArray as NpArray
from kauldron.ktyping.values import ScalarLike as ScalarLike
from kauldron.ktyping.values import TfArray as TfArray
from kauldron.ktyping.values import TorchArray as TorchArray


class AnnotationMeta(type):
    """The class of types that are written in annotations: subscripted, never called.

    They are compared by what they are made of, because cloudpickle makes them again.
    """

    _hint = "Did you mean to write {name}[{args}]?"

    def _parts(cls) -> tuple[Any, ...]:
        """Return what the type is made of."""
        raise NotImplementedError

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        shown = (repr(x) if isinstance(x, str) else format_annotation(x) for x in args)
        hint = cls._hint.format(name=cls.__name__, args=", ".join(shown))
        raise RuntimeError(f"{cls.__name__} cannot be instantiated. {hint}")

    def __instancecheck__(cls, instance: Any) -> bool:
        from kauldron.ktyping.checks import is_instance

        return is_instance(instance, cls)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (
            isinstance(other, AnnotationMeta)
            and type(cls) is type(other)
            and cls._parts() == other._parts()
        )

    def __hash__(cls) -> int:
        return hash(cls.__name__)

    def __repr__(cls) -> str:
        return cls.__name__


def _pickle_with(meta: type[AnnotationMeta], make: Any) -> None:
    """Let pickles of a type hold its parts, from which `make` makes it again."""

    def reduce(cls: AnnotationMeta) -> Any:
        if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls:
            return cls.__name__  # `Float` itself, found by name
        return make, cls._parts()

    copyreg.pickle(meta, reduce)  # pyright: ignore[reportArgumentType]


class Alternative(NamedTuple):
    """Arrays of these classes with this dtype; `MISSING` is the default, or any."""

    array_types: Any
    dtype: Any

    @property
    def classes(self) -> tuple[type, ...]:
        return DEFAULT_CLASSES if self.array_types is MISSING else self.array_types


class ArrayTypeMeta(AnnotationMeta):
    """The class of array types.

    Args:
      name: Of the type without its subscript.
      array_types: Classes or markers (`NpArray`, ...); numpy and jax when missing.
      dtype: A `DType`; any dtype when missing.
      shape_spec: Text of the spec; any shape when missing.
      alternatives: Instead of `array_types` and `dtype`, several of them.
      binds: Whether the built-in `isinstance` binds dims in the active scope.
      text: How the type is printed, with its subscript.
      module: Where the type can be imported from; the caller's module by default.
    """

    _alternatives: tuple[Alternative, ...]
    shape_spec: Any
    _base_name: str
    _binds: bool

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...] = (),
        namespace: dict[str, Any] | None = None,
        *,
        array_types: Any = MISSING,
        dtype: Any = MISSING,
        shape_spec: Any = MISSING,
        alternatives: tuple[Alternative, ...] | None = None,
        binds: bool = False,
        text: str | None = None,
        module: str | None = None,
    ):
        alternatives = alternatives or (Alternative(array_types, dtype),)
        if text is None:
            text = name if shape_spec is MISSING else f"{name}[{shape_spec!r}]"
        # A type that cloudpickle rebuilds brings its attributes in `namespace`, or has
        # them set afterwards.
        attributes = {
            "_alternatives": alternatives,
            "shape_spec": shape_spec,
            "_base_name": name,
            "_binds": binds,
            "__qualname__": text,
            "__module__": module or sys._getframe(1).f_globals.get("__name__"),
            "__doc__": None,
            **(namespace or {}),
        }
        return super().__new__(mcs, text, bases, attributes)

    def __init__(cls, name: str, bases: Any = (), namespace: Any = None, **_: Any):
        super().__init__(name, bases, namespace or {})

    @property
    def array_types(cls) -> tuple[type, ...]:
        """The array classes of all alternatives."""
        classes = (c for alternative in cls._alternatives for c in alternative.classes)
        return tuple(dict.fromkeys(classes))

    @property
    def dtype(cls) -> Any:
        """The dtypes of all alternatives, `MISSING` if any will do."""
        dtypes = [alternative.dtype for alternative in cls._alternatives]
        if MISSING in dtypes:
            return MISSING
        union = dtypes[0]
        for dtype in dtypes[1:]:
            union = union | dtype
        return union

    # One question at a time about a value.

    def array_types_match(cls, obj: Any) -> bool:
        """Return whether `obj` is an array of one of the classes."""
        return any(is_of_class(obj, array_class) for array_class in cls.array_types)

    def dtype_matches(cls, obj: Any) -> bool:
        """Return whether the dtype of `obj` is accepted."""
        return cls.dtype is MISSING or cls.dtype.matches(obj)

    def shape_matches(
        cls, obj: Any, candidates: Any = ({},), fstring_locals: Any = None
    ) -> frozenset[Any]:
        """Return the candidates under which the shape of `obj` fits; may be empty."""
        from kauldron.ktyping.checks import shape_candidates

        return shape_candidates(obj, cls, candidates, fstring_locals)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        if cls is subclass:
            return True
        raise TypeError(f"issubclass() is not supported for {cls.__name__}")

    # Making types from types.

    def __getitem__(cls, item: Any) -> Any:
        try:
            hash(item)
        except TypeError:
            return _subscripted.__wrapped__(cls, item)
        return _subscripted(cls, item)

    def __or__(cls, other: Any) -> Any:
        if is_array_type(other) and cls.shape_spec is MISSING is other.shape_spec:
            return _united(cls, other)
        return type.__or__(cls, other)

    def _parts(cls) -> tuple[Any, ...]:
        return (
            cls._base_name,
            cls.__name__,
            cls.__module__,
            cls._alternatives,
            cls.shape_spec,
            cls._binds,
        )


def is_array_type(obj: Any) -> bool:
    """Return whether `obj` is an array type, such as `Float["a"]`."""
    return isinstance(obj, ArrayTypeMeta)


@functools.cache
def _subscripted(cls: ArrayTypeMeta, item: Any) -> ArrayTypeMeta:
    classes, spec, dtype = _subscript_parts(cls, item)
    if cls.shape_spec is not MISSING:
        raise TypeError(f"Trying to redefine the shape of {cls.__name__} as {spec!r}.")
    alternatives = tuple(
        _narrowed(cls, alternative, classes, dtype) for alternative in cls._alternatives
    )
    return _rebuild(
        cls._base_name,
        f"{cls._base_name}[{_class_text(classes)}{spec!r}]",
        cls.__module__,
        alternatives,
        spec,
        cls._binds,
    )


def _class_text(classes: Any) -> str:
    """`ndarray, ` or `(ndarray, Array), `, as written in front of the spec."""
    if classes is MISSING:
        return ""
    names = ", ".join(map(_short_name, classes))
    return f"{names}, " if len(classes) == 1 else f"({names}), "


def _short_name(cls: type) -> str:
    return cls.__name__.rpartition(".")[2]  # that of jax.Array is dotted


def _narrowed(
    cls: ArrayTypeMeta, alternative: Alternative, classes: Any, dtype: Any
) -> Alternative:
    if classes is not MISSING:
        if alternative.array_types is not MISSING:
            raise TypeError(f"Trying to redefine the array classes of {cls.__name__}.")
        alternative = alternative._replace(array_types=classes)
    if dtype is not MISSING:
        if alternative.dtype is not MISSING:
            raise TypeError(f"Trying to redefine the dtype of {cls.__name__}.")
        alternative = alternative._replace(dtype=as_dtype(dtype))
    return alternative


def _subscript_parts(cls: ArrayTypeMeta, item: Any) -> tuple[Any, str, Any]:
    """Split `"spec"`, `cls, "spec"` or `cls, "spec", dtype`."""
    if isinstance(item, str):
        return MISSING, item, MISSING
    if isinstance(item, tuple) and len(item) in (2, 3) and isinstance(item[1], str):
        classes = item[0] if isinstance(item[0], tuple) else (item[0],)
        if classes and all(isinstance(c, type) for c in classes):
            return classes, item[1], item[2] if len(item) == 3 else MISSING
    name = cls.__name__
    raise TypeError(
        f"Cannot subscript {name} with {item!r}. Expected one of "
        f"{name}['spec'], {name}[cls, 'spec'] (or a tuple of classes), "
        f"{name}[cls, 'spec', dtype]."
    )


def _united(left: ArrayTypeMeta, right: ArrayTypeMeta) -> ArrayTypeMeta:
    """`left | right` for two types without a shape."""
    if left == right:
        return left
    merged: dict[frozenset[type], Alternative] = {}
    for alternative in left._alternatives + right._alternatives:
        classes = frozenset(alternative.classes)
        earlier = merged.setdefault(classes, alternative)
        dtype = _united_dtype(earlier.dtype, alternative.dtype)
        merged[classes] = earlier._replace(dtype=dtype)
    alternatives = tuple(merged.values())
    name = f"({left._base_name.strip('()')}|{right._base_name.strip('()')})"
    return _rebuild(
        name,
        name,
        left.__module__,
        _legacy_refinement(alternatives) or alternatives,
        MISSING,
        left._binds or right._binds,
    )


def _united_dtype(left: Any, right: Any) -> Any:
    return MISSING if left is MISSING or right is MISSING else left | right


def _legacy_refinement(
    alternatives: tuple[Alternative, ...],
) -> tuple[Alternative, ...] | None:
    """Let a type of numpy (or jax) alone, without dtype, narrow the other's classes."""
    if len(alternatives) != 2:
        return None
    for narrow, other in (alternatives, alternatives[::-1]):
        narrows = narrow.dtype is MISSING and set(narrow.classes) < set(DEFAULT_CLASSES)
        if narrows and set(other.classes) == set(DEFAULT_CLASSES):
            return (Alternative(narrow.array_types, other.dtype),)
    return None


def _rebuild(
    name: str,
    text: str,
    module: str,
    alternatives: tuple[Alternative, ...],
    shape_spec: Any,
    binds: bool,
) -> ArrayTypeMeta:
    return ArrayTypeMeta(
        name,
        text=text,
        module=module,
        alternatives=alternatives,
        shape_spec=shape_spec,
        binds=binds,
    )


_pickle_with(ArrayTypeMeta, _rebuild)


#
# Shapes as values
#


class ShapeMeta(AnnotationMeta):
    """The class of `Shape` types."""

    shape_spec: Any = MISSING
    _hint = "To get a shape from the dims in scope use kt.shape({args})."

    def __getitem__(cls, spec: str) -> ShapeMeta:
        if not isinstance(spec, str):
            raise TypeError(f"Shape[...] expects a string, got {spec!r}")
        if cls.shape_spec is not MISSING:
            raise TypeError(f"Trying to redefine shape spec of {cls!r} as {spec!r}")
        return make_shape_type(spec)

    def _parts(cls) -> tuple[Any, ...]:
        return (cls.shape_spec,)


class Shape(metaclass=ShapeMeta):
    """A sequence of ints; `Shape["*b n"]` also matches the spec and binds its dims."""


@functools.cache
def make_shape_type(spec: str) -> ShapeMeta:
    return ShapeMeta(f"Shape[{spec!r}]", (), {"shape_spec": spec})


_pickle_with(ShapeMeta, make_shape_type)


def is_shape_type(obj: Any) -> bool:
    """Return whether `obj` is `Shape` or `Shape["spec"]`."""
    return isinstance(obj, ShapeMeta)


def is_shape_value(value: Any) -> bool:
    """Return whether `value` is a sequence of ints or symbolic sizes."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return False
    return all(isinstance(x, numbers.Integral) or is_symbolic(x) for x in value)


#
# Trees of JAX
#


class PyTreeMeta(AnnotationMeta):
    """The class of `PyTree` types."""

    leaf_type: Any = MISSING
    structure_spec: Any = MISSING

    def __getitem__(cls, item: Any) -> PyTreeMeta:
        if cls.leaf_type is not MISSING:
            raise TypeError(f"{cls!r} is already subscripted")
        parts = item if isinstance(item, tuple) else (item,)
        if not 1 <= len(parts) <= 2:
            raise TypeError(
                f"PyTree takes a leaf type and a structure name, got {len(parts)} arguments"
            )
        structure = MISSING if len(parts) == 1 else _structure_name(parts[1])
        return make_pytree_type(parts[0], structure)

    def __instancecheck__(cls, instance: Any) -> bool:
        from kauldron.ktyping.checkers.containers import every_leaf_matches

        return every_leaf_matches(instance, cls)

    def _parts(cls) -> tuple[Any, ...]:
        return cls.leaf_type, cls.structure_spec


class PyTree(metaclass=PyTreeMeta):
    """Any tree. `PyTree[T]` has leaves of type `T`; `"$S"` names its structure."""


def make_pytree_type(leaf_type: Any, structure: Any) -> PyTreeMeta:
    name = f"PyTree[{format_annotation(leaf_type)}"
    name += "]" if structure is MISSING else f", {structure!r}]"
    attributes = {"leaf_type": leaf_type, "structure_spec": structure}
    return PyTreeMeta(name, (), {**attributes, "__module__": __name__})


def is_pytree_type(obj: Any) -> bool:
    """Return whether `obj` is `PyTree` or `PyTree[...]`."""
    return isinstance(obj, PyTreeMeta)


def _structure_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"structure name of a PyTree must be a string, got {name!r}")
    name = name.strip()
    if not name.startswith("$"):
        raise TypeError(f"structure name of a PyTree must start with '$', got {name!r}")
    if len(name) < 2:
        raise TypeError(
            "structure name of a PyTree needs at least one character after '$'"
        )
    return name


_pickle_with(PyTreeMeta, make_pytree_type)
