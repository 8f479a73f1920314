"""`Literal`, `type[T]`, `Callable`, protocols, `Self`, `Never`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.annotation_names import read_annotations
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.formatting import format_annotation
from kauldron.ktyping.shapes.matching import State

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope


class LiteralChecker(c.Checker):
    """`Literal["a", 1]`: an equal member of the same type."""

    is_atomic = True

    def __init__(self, annotation: Any, values: tuple[Any, ...]):
        super().__init__(annotation)
        self.values = values

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        for wanted in self.values:
            if type(wanted) is type(value) and wanted == value:
                return state
        return None

    def reason(self, value: Any) -> str:
        return f"is not any of ({', '.join(map(repr, self.values))})"


class SubclassChecker(c.Checker):
    """`type[T]`"""

    def __init__(self, annotation: Any, classes: tuple[type, ...]):
        super().__init__(annotation)
        self.classes = classes

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        if not isinstance(value, type):
            return None
        try:
            return state if issubclass(value, self.classes) else None
        except TypeError:  # a class that answers no such question
            return state

    def reason(self, value: Any) -> str:
        if not isinstance(value, type):
            return "is not a class"
        return f"is not a subclass of {' | '.join(x.__name__ for x in self.classes)}"


class CallableChecker(c.Checker):
    """`Callable[[A, B], R]`: can be called with that many positional arguments."""

    def __init__(self, annotation: Any, count: int | None):
        super().__init__(annotation)
        self.count = count

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return None if self._problem(value) else state

    def reason(self, value: Any) -> str:
        return self._problem(value)

    def _problem(self, value: Any) -> str:
        if not callable(value):
            return "is not callable"
        if self.count is None:
            return ""
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):  # a builtin that does not tell
            return ""
        positional = [p for p in parameters if p.kind in _POSITIONAL]
        mandatory = [p.name for p in positional if p.default is p.empty]
        keywords = [
            p.name
            for p in parameters
            if p.kind is p.KEYWORD_ONLY and p.default is p.empty
        ]
        takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        if keywords:
            return f"has mandatory keyword-only arguments: {', '.join(keywords)}"
        if len(mandatory) > self.count:
            return (
                "has too many mandatory positional arguments "
                f"(expected at most {self.count}, has {len(mandatory)})"
            )
        if not takes_more and len(positional) < self.count:
            return (
                "accepts too few positional arguments "
                f"(expected {self.count}, accepts {len(positional)})"
            )
        return ""


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class ProtocolChecker(c.Checker):
    """A protocol: the value has its methods and attributes."""

    def __init__(self, annotation: type):
        super().__init__(annotation)
        self.members = _protocol_members(annotation)

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return None if self._missing(value) else state

    def _missing(self, value: Any) -> list[str]:
        return [name for name in self.members if not hasattr(value, name)]

    def reason(self, value: Any) -> str:
        missing = ", ".join(self._missing(value))
        name = format_annotation(self.annotation)
        return f"is not compatible with protocol {name}: it lacks {missing}"


def _protocol_members(protocol: type) -> list[str]:
    names: dict[str, None] = {}
    for cls in protocol.__mro__:
        if cls.__module__ in ("typing", "typing_extensions", "builtins"):
            continue
        own = [*read_annotations(cls), *vars(cls)]
        names.update(dict.fromkeys(own))
    return [name for name in names if not _is_bookkeeping(name)]


def _is_bookkeeping(name: str) -> bool:
    return name.startswith("_abc_") or (
        name in vars(_Nothing) or name in _PROTOCOL_BOOKKEEPING
    )


class _Nothing:
    """An empty class: whatever is in its namespace is no member of a protocol."""


_PROTOCOL_BOOKKEEPING = {
    *("__parameters__", "__orig_bases__", "__abstractmethods__", "__annotations__"),
    *("__init__", "__new__", "__slots__", "__subclasshook__", "__class_getitem__"),
    *("_is_protocol", "_is_runtime_protocol", "__protocol_attrs__", "__match_args__"),
    *("__non_callable_proto_members__", "__static_attributes__", "__firstlineno__"),
    *("__annotate__", "__annotate_func__", "__annotations_cache__", "__type_params__"),
}


class SelfChecker(c.Checker):
    """`Self`: an instance of the class of the first argument."""

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        cls = scope.self_class()
        return state if cls is None or isinstance(value, cls) else None

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        cls = scope.self_class()
        name = "Self" if cls is None else cls.__name__
        reason = f"is not an instance of {name} (required by Self)"
        return c.Failure(reason, state=state, scope=scope)


class NeverChecker(c.Checker):
    """`Never`, `NoReturn`: no value fits."""

    def check(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return None

    def reason(self, value: Any) -> str:
        return "was given where the annotation says that there is never a value"
