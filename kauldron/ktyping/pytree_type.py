"""`PyTree[T]` and `PyTree[T, "$S"]`: annotations for trees of JAX."""

from __future__ import annotations

import copyreg
from typing import Any

from kauldron.ktyping.formatting import format_annotation
from kauldron.ktyping.missing import MISSING


class PyTreeMeta(type):
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

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{cls!r} cannot be instantiated. Did you mean to write PyTree[...]?"
        )

    def __instancecheck__(cls, instance: Any) -> bool:
        from kauldron.ktyping.checkers.pytree_checker import every_leaf_matches

        return every_leaf_matches(instance, cls)

    def __repr__(cls) -> str:
        return cls.__name__

    def __eq__(cls, other: object) -> bool:
        return cls is other or (
            isinstance(other, PyTreeMeta)
            and cls.leaf_type == other.leaf_type
            and cls.structure_spec == other.structure_spec
        )

    def __hash__(cls) -> int:
        return hash((cls.__name__, cls.structure_spec))


class PyTree(metaclass=PyTreeMeta):
    """Any tree. `PyTree[T]` has leaves of type `T`; `"$S"` names its structure."""


def make_pytree_type(leaf_type: Any, structure: Any) -> PyTreeMeta:
    name = f"PyTree[{format_annotation(leaf_type)}"
    name += "]" if structure is MISSING else f", {structure!r}]"
    attributes = {"leaf_type": leaf_type, "structure_spec": structure}
    return PyTreeMeta(name, (), {**attributes, "__module__": __name__})


def is_pytree_type(obj: Any) -> bool:
    """Whether `obj` is `PyTree` or `PyTree[...]`."""
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


def _reduce(cls: PyTreeMeta) -> Any:
    if cls.leaf_type is MISSING:
        return cls.__qualname__
    return make_pytree_type, (cls.leaf_type, cls.structure_spec)


copyreg.pickle(PyTreeMeta, _reduce)  # pyright: ignore[reportArgumentType]
