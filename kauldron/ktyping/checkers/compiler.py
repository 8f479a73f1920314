"""The compiler: from an annotation to its checker, once."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import functools
import inspect
import io
import types
import typing
from collections.abc import Iterable
from typing import Any

from kauldron.ktyping.array_type_meta import (
    is_array_type,
    is_pytree_type,
    is_shape_type,
)
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.checkers import containers, records
from kauldron.ktyping.checkers.annotations import (
    Names,
    contains_array_type,
    is_checked_dataclass,
    names_of_class,
    read_annotations,
)
from kauldron.ktyping.checkers.arrays import (
    ShapeChecker,
    UnionChecker,
    array_checker_for,
)
from kauldron.ktyping.config import MISSING, Rules

_ALWAYS = (Any, object, inspect.Parameter.empty, MISSING, ...)
_NEVER = (typing.Never, typing.NoReturn)
_WRAPPERS = (
    *(typing.Annotated, typing.Required, typing.NotRequired, typing.Final),
    *(typing.ClassVar, getattr(typing, "ReadOnly", typing.Final)),  # from 3.13 on
)
# Numbers convert up, and some classes stand for several.
_WIDER = {
    float: (float, int),
    complex: (complex, float, int),
    bytes: (bytes, bytearray, memoryview),
    typing.IO: (typing.IO, io.IOBase),
    typing.TextIO: (typing.TextIO, io.TextIOBase),
    typing.BinaryIO: (typing.BinaryIO, io.RawIOBase, io.BufferedIOBase),
}


class Compiler:
    """Makes the checkers of annotations, given the meaning of names in strings."""

    def __init__(self, rules: Rules, names: Names):
        self.rules = rules
        self.names = names
        self._unfinished: dict[int, c.RecursiveChecker] = {}

    def compile(self, annotation: Any) -> c.Checker:
        """Return the checker of an annotation."""
        annotation = self.names.evaluated(annotation)
        unfinished = self._unfinished.get(id(annotation))
        if unfinished is not None:  # contains itself, as a type of JSON does
            return unfinished
        recursive = self._unfinished[id(annotation)] = c.RecursiveChecker(annotation)
        try:
            recursive.checker = self._compile(annotation)
        finally:
            del self._unfinished[id(annotation)]
        return recursive.checker

    def _compile(self, annotation: Any) -> c.Checker:
        if _is_one_of(annotation, _ALWAYS):
            return c.AnyChecker(annotation)
        if annotation is None:
            return c.ClassChecker(None, (type(None),))
        if isinstance(annotation, type) and not isinstance(
            annotation, types.GenericAlias
        ):
            return self._compile_class(annotation)
        if isinstance(annotation, tuple):  # as in isinstance(x, (A, B))
            return UnionChecker(annotation, [self.compile(x) for x in annotation])
        if typing.get_origin(annotation) is not None:
            return self._compile_generic(annotation)
        return self._compile_special(annotation)

    # ----------------------------------------------------------------------------------
    # Classes
    # ----------------------------------------------------------------------------------

    def _compile_class(self, cls: Any) -> c.Checker:
        if is_array_type(cls):
            return array_checker_for(cls)
        if is_shape_type(cls):
            return ShapeChecker(cls)
        if is_pytree_type(cls):
            leaf = c.AnyChecker(Any)
            if cls.leaf_type is not MISSING:
                leaf = self.compile(cls.leaf_type)
            return containers.PyTreeChecker(cls, leaf)
        if typing.is_typeddict(cls):
            isolated = not self.rules.share_nested_scopes and contains_array_type(cls)
            fields = self._fields_of(cls, read_annotations(cls))
            return records.TypedDictChecker(cls, fields, isolated)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            fields = self._fields_of(cls, getattr(cls, "_fields", ()))
            return records.NamedTupleChecker(cls, fields, isolated=False)
        if dataclasses.is_dataclass(cls) and self._checks_fields_of(cls):
            return self.compile_dataclass(cls)
        if getattr(cls, "_is_protocol", False) and cls.__module__ != "typing":
            return _compile_protocol(cls)
        wider = {} if self.rules.exact_classes else _WIDER
        return c.ClassChecker(cls, wider.get(cls, (cls,)))

    def _checks_fields_of(self, cls: type) -> bool:
        if is_checked_dataclass(cls):
            return True
        return self.rules.check_plain_dataclasses and contains_array_type(cls)

    def compile_dataclass(self, cls: Any) -> records.DataclassChecker:
        """Return the checker of a dataclass, whether it was decorated or not."""
        fields = self._fields_of(cls, [field.name for field in dataclasses.fields(cls)])
        isolated = not self.rules.share_nested_scopes
        return records.DataclassChecker(cls, fields, isolated)

    def _fields_of(self, cls: Any, field_names: Iterable[str]) -> Any:
        """Return a function that compiles the fields of a class and its bases."""

        def compile_fields() -> records.Fields:
            checkers: records.Fields = {}
            for owner in reversed(cls.__mro__):
                names = names_of_class(owner, f"class {owner.__name__!r}")
                compiler = Compiler(self.rules, names)
                for name, annotation in read_annotations(owner).items():
                    checkers[name] = compiler.compile(annotation)
            return {name: checkers[name] for name in field_names if name in checkers}

        return compile_fields

    # ----------------------------------------------------------------------------------
    # Subscripted annotations
    # ----------------------------------------------------------------------------------

    def _compile_generic(self, annotation: Any) -> c.Checker:
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if isinstance(origin, type) and not hasattr(annotation, "__args__"):
            return self._compile_class(origin)  # typing.List without a subscript
        if origin in (typing.Union, types.UnionType):
            return UnionChecker(annotation, [self.compile(arg) for arg in args])
        if _is_one_of(origin, _WRAPPERS):
            return self.compile(args[0])
        if origin is typing.Literal:
            problem = functools.partial(c.literal_problem, args)
            return c.ConditionChecker(annotation, problem, is_atomic=True)
        if origin is type:
            return self._compile_type_of(annotation, args[0])
        if origin is collections.abc.Callable:
            listed = bool(args) and isinstance(args[0], list)
            count = len(args[0]) if listed else None
            problem = functools.partial(c.callable_problem, count)
            return c.ConditionChecker(annotation, problem)
        if origin is tuple:
            return self._compile_tuple(annotation, args)
        if isinstance(origin, type):
            return self._compile_container(annotation, origin, args)
        return self.compile(getattr(origin, "__value__", Any))  # `type X[T] = ...`

    def _compile_type_of(self, annotation: Any, target: Any) -> c.Checker:
        members = _union_members(self.names.evaluated(target))
        if all(map(_is_plain_class, members)):
            problem = functools.partial(c.subclass_problem, members)
            return c.ConditionChecker(annotation, problem)
        return c.ClassChecker(annotation, (type,))

    def _compile_tuple(self, annotation: Any, args: tuple[Any, ...]) -> c.Checker:
        if len(args) == 2 and args[1] is ...:
            return self._compile_items(annotation, tuple, args[0])
        if any(_is_unpacked(arg) for arg in args):
            return c.ClassChecker(annotation, (tuple,))
        items = [self.compile(arg) for arg in args if arg != ()]
        parts = functools.partial(containers.tuple_parts, items)
        return containers.ContainerChecker(annotation, tuple, parts, len(items))

    def _compile_container(
        self, annotation: Any, origin: type, args: tuple[Any, ...]
    ) -> c.Checker:
        if issubclass(origin, collections.abc.Mapping) and len(args) == 2:
            key, value = self.compile(args[0]), self.compile(args[1])
            parts = functools.partial(
                containers.mapping_parts, key, value, self._limit()
            )
            return containers.ContainerChecker(annotation, origin, parts)
        if (
            issubclass(origin, collections.abc.Collection)
            and origin.__module__ in ("builtins", "collections", "collections.abc")
            and len(args) == 1
        ):
            return self._compile_items(annotation, origin, args[0])
        return self._compile_class(origin)

    def _compile_items(self, annotation: Any, container: type, item: Any) -> c.Checker:
        parts = functools.partial(
            containers.item_parts, self.compile(item), self._limit()
        )
        return containers.ContainerChecker(annotation, container, parts)

    def _limit(self) -> int | None:
        """Return how many items of a container are checked."""
        return None if self.rules.all_items else 1

    # ----------------------------------------------------------------------------------
    # The rest of `typing`
    # ----------------------------------------------------------------------------------

    def _compile_special(self, annotation: Any) -> c.Checker:
        if _is_one_of(annotation, _NEVER):
            return c.NeverChecker(annotation)
        if annotation is typing.Self:
            return c.SelfChecker(annotation)
        if isinstance(annotation, typing.TypeVar):
            return self._compile_type_variable(annotation)
        supertype = getattr(annotation, "__supertype__", None)
        if supertype is not None:  # NewType
            return self.compile(supertype)
        if hasattr(annotation, "__value__"):  # `type X = ...`
            return self.compile(annotation.__value__)
        if annotation is typing.LiteralString:
            return c.ClassChecker(str, (str,))
        return c.AnyChecker(annotation)

    def _compile_type_variable(self, variable: typing.TypeVar) -> c.Checker:
        if variable.__constraints__:
            members = [self.compile(x) for x in variable.__constraints__]
            return UnionChecker(variable, members)
        bound = variable.__bound__
        return c.AnyChecker(variable) if bound is None else self.compile(bound)


def _compile_protocol(protocol: type) -> c.Checker:
    from typing_extensions import get_protocol_members  # in `typing` from 3.13 on

    members = sorted(get_protocol_members(protocol))
    problem = functools.partial(c.protocol_problem, protocol, members)
    return c.ConditionChecker(protocol, problem)


def _is_one_of(annotation: Any, options: tuple[Any, ...]) -> bool:
    """Identity, because `==` of an annotation may be anything."""
    return any(annotation is option for option in options)


def _union_members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _is_plain_class(annotation: Any) -> bool:
    is_class = isinstance(annotation, type) and not typing.get_args(annotation)
    return is_class and annotation is not Any


def _is_unpacked(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Unpack or isinstance(
        annotation, typing.TypeVarTuple
    )
