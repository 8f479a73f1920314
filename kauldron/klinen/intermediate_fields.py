"""Fields annotated with `Intermediate[...]`: what a module stores during a call.

A field is a descriptor that keeps its value in flax's `intermediates` collection if the
call captures it, and else in a table that lives as long as the call.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Annotated, Any, TypeVar, get_origin

import flax.core
import flax.linen as nn

_T = TypeVar("_T")


class _Marker:
    def __repr__(self) -> str:
        return "knn.Intermediate"


_MARKER = _Marker()

Intermediate = Annotated[_T, _MARKER]

COLLECTION = "intermediates"
UNSET: Any = object()

# Values of calls whose `intermediates` are not mutable. They live as long as the call.
_kept: weakref.WeakKeyDictionary[flax.core.Scope, dict[Any, Any]] = (
    weakref.WeakKeyDictionary()
)


class IntermediateField:
    """The descriptor behind a field annotated with `Intermediate[...]`.

    Args:
      owner: Name of the class, for messages.
      field: What the class body said.
    """

    def __init__(self, owner: str, name: str, field: dataclasses.Field[Any]):
        self._owner = owner
        self._name = name
        self._default = field.default
        self._factory = field.default_factory

    def __get__(self, module: nn.Module | None, owner: type | None = None) -> Any:
        if module is None:
            return self
        if module.scope is None:
            raise self.read_error(module)
        value = self._load(module)
        if value is UNSET:
            value = self.default()
            if value is UNSET:
                raise self.read_error(module)
            if self._factory is not dataclasses.MISSING:
                self.__set__(module, value)
        return value

    def __set__(self, module: nn.Module, value: Any) -> None:
        scope = module.scope
        if scope is None:
            raise AttributeError(self._outside_message("set"))
        if not scope.is_mutable_collection(COLLECTION):
            _kept.setdefault(scope.root, {})[scope.path, self._name] = value
            return
        if isinstance(value, Mapping):  # flax merges mappings; assigning replaces
            scope.put_variable(COLLECTION, self._name, None)
        scope.put_variable(COLLECTION, self._name, value)

    def default(self) -> Any:
        """Return the value of a field that was not set, or `UNSET`."""
        if self._factory is not dataclasses.MISSING:
            return self._factory()
        return UNSET if self._default is dataclasses.MISSING else self._default

    def read_error(self, module: nn.Module) -> AttributeError:
        """Return the error that says why the value cannot be read."""
        if module.scope is None:
            return AttributeError(self._outside_message("accessed"))
        return self.unset_error()

    def unset_error(self) -> AttributeError:
        """Return the error about a value that the call did not set."""
        return AttributeError(
            f"`{self._owner}.{self._name}` was not set during the call, and the field "
            "has no default."
        )

    def _load(self, module: nn.Module) -> Any:
        scope: Any = module.scope
        if scope.is_mutable_collection(COLLECTION):
            return scope.get_variable(COLLECTION, self._name, UNSET)
        return _kept.get(scope.root, {}).get((scope.path, self._name), UNSET)

    def _outside_message(self, done: str) -> str:
        return (
            f"`{self._owner}.{self._name}` is an intermediate value: it can only be "
            f"{done} inside module functions. To get it out of a call, use `with "
            "model.capture_intermediates() as intermediates:` or `y, intermediates = "
            "model.call_with_intermediate(x)`."
        )


def intermediate_field(cls: type, name: str) -> IntermediateField | None:
    """Return the descriptor of that name, if there is one."""
    found = getattr(cls, name, None)
    return found if isinstance(found, IntermediateField) else None


def intermediate_fields(cls: type) -> dict[str, IntermediateField]:
    """Return all descriptors of a class."""
    names = [name for base in cls.__mro__ for name in vars(base)]
    found = {name: intermediate_field(cls, name) for name in dict.fromkeys(names)}
    return {name: field for name, field in found.items() if field is not None}


def take_fields(cls: type, frame: FrameType | None) -> dict[str, IntermediateField]:
    """Replace a class's intermediate fields by ones that its `__init__` ignores.

    The class is not a dataclass yet; the descriptors are put in place once it is.
    `frame` is where it is being defined: the names that its annotations may use.
    """
    taken = {}
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        if not _is_intermediate(annotation, cls, frame):
            continue
        field = vars(cls).get(name)
        if not isinstance(field, dataclasses.Field) or field.init:
            raise ValueError(
                f"`{cls.__qualname__}.{name}` is an intermediate value, which the "
                f"constructor does not take: write `{name}: knn.Intermediate[...] = "
                "dataclasses.field(init=False)`, with `default=` or "
                "`default_factory=` if it has one."
            )
        taken[name] = IntermediateField(cls.__qualname__, name, field)
        setattr(cls, name, dataclasses.field(init=False))
    return taken


def _is_intermediate(annotation: Any, cls: type, frame: FrameType | None) -> bool:
    if isinstance(annotation, str):
        annotation = _evaluate(annotation, cls, frame)
    if annotation is Intermediate:
        return True
    return get_origin(annotation) is Annotated and _MARKER in annotation.__metadata__


def _evaluate(annotation: str, cls: type, frame: FrameType | None) -> Any:
    """Evaluate a postponed annotation; of `a.b[c]` only `a.b`.

    The part in brackets may name types that are imported for type checkers only. Where
    even the rest is such a name, the name itself decides.
    """
    try:
        tree = ast.parse(annotation.strip(), mode="eval").body
    except SyntaxError:
        return None
    if isinstance(tree, ast.Subscript):
        tree = tree.value
    source = ast.unparse(tree)
    module = sys.modules.get(cls.__module__)
    names = {**vars(module)} if module is not None else {}
    if frame is not None:
        names |= frame.f_globals | frame.f_locals
    try:
        return eval(source, names, dict(vars(cls)))
    except Exception:
        return Intermediate if source.split(".")[-1] == "Intermediate" else None
