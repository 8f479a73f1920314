"""What every compiled annotation can do, and the checkers of plain classes.

`check` is a pure function from a value and a state to the new state, or `None` if the
value does not fit. It says nothing about why: on failure `explain` walks the same way
again and finds the words. So a check that succeeds pays nothing for messages.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.shapes.sizes import State
from kauldron.ktyping.values import format_annotation, is_mock

if TYPE_CHECKING:
    from kauldron.ktyping.scopes import ShapeScope


@dataclasses.dataclass
class Failure:
    """Why a value does not fit.

    Attributes:
      reason: What is wrong with the innermost value.
      state: The candidates at that point.
      path: Where that value is, innermost step first: `["item 0", "key 'k'"]`.
      detail: A second line: which axis disagrees, and with what.
      fields: Title and lines of the dataclass or TypedDict that the value belongs to.
      subject: For one of `*args`: what to append to its name, and its value.
    """

    reason: str
    state: State
    path: list[str] = dataclasses.field(default_factory=list)
    detail: str = ""
    fields: list[str] = dataclasses.field(default_factory=list)
    subject: tuple[str, Any] | None = None

    def inside(self, step: str) -> Failure:
        self.path.append(step)
        return self


# How much of a value decides about it, for remembering verdicts. Nothing, its class, or
# its class with dtype and shape; the last for values that may lack the latter.
UNCHECKED, BY_CLASS, BY_ARRAY, BY_ANY = "-", "c", "a", "o"
NOT_MEMOIZABLE = ""


class Checker:
    """A compiled annotation."""

    annotation: Any
    memo_kind: str = NOT_MEMOIZABLE
    is_atomic = False  # accepts no container of jax's tree registry

    def __init__(self, annotation: Any):
        self.annotation = annotation

    def check(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        """Return the candidates under which `value` fits, `None` if there are none."""
        result = self.match(value, state, scope)
        if result is None and is_mock(value):
            return state
        return result

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        raise NotImplementedError

    def explain(self, value: Any, state: State, scope: ShapeScope) -> Failure:
        """Return why `value` does not fit. Only called after `check` failed."""
        return Failure(self.reason(value), state)

    def reason(self, value: Any) -> str:
        return f"does not match {format_annotation(self.annotation)}"


class AnyChecker(Checker):
    """`Any`, `object`, nothing at all."""

    memo_kind = UNCHECKED

    def check(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return state


class RecursiveChecker(Checker):
    """An alias inside itself: `Tree = Float["n"] | dict[str, "Tree"]`."""

    checker: Checker

    def check(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return self.checker.check(value, state, scope)

    def explain(self, value: Any, state: State, scope: ShapeScope) -> Failure:
        return self.checker.explain(value, state, scope)


class ClassChecker(Checker):
    """An ordinary class."""

    def __init__(self, annotation: Any, classes: tuple[type, ...]):
        super().__init__(annotation)
        self.classes = classes
        if all(cls.__module__ == "builtins" for cls in classes):
            self.memo_kind = BY_CLASS
            self.is_atomic = not any(cls in (list, tuple, dict) for cls in classes)

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return state if isinstance(value, self.classes) else None

    def reason(self, value: Any) -> str:
        return f"is not an instance of {format_annotation(self.annotation)}"


def thread(
    parts: Sequence[tuple[Checker, Any]], state: State, scope: ShapeScope
) -> tuple[State, int | None]:
    """Check several values in order, each in the state that the earlier ones left.

    A value that fails only because an expression cannot be determined yet waits until
    the others have been checked. Returns the new state and `None`, or the state at the
    first failure and its index.
    """
    waiting = list(range(len(parts)))
    while waiting:
        undetermined: list[int] = []
        for index in waiting:
            checker, value = parts[index]
            scope.undetermined = False
            after = checker.check(value, state, scope)
            if after is not None:
                state = after
            elif scope.undetermined:
                undetermined.append(index)
            else:
                return state, index
        if len(undetermined) == len(waiting):
            scope.undetermined = True
            return state, undetermined[0]
        waiting = undetermined
    scope.undetermined = False
    return state, None


def check_all(
    parts: Sequence[tuple[Checker, Any]], state: State, scope: ShapeScope
) -> tuple[State, int | None]:
    """`thread` for the values that are checked last: nothing more will be known."""
    after, failed = thread(parts, state, scope)
    if failed is None or not scope.undetermined:
        return after, failed
    scope.settle = True
    try:
        return thread(parts, after, scope)
    finally:
        scope.settle = False


def check_one(
    checker: Checker, value: Any, state: State, scope: ShapeScope
) -> State | None:
    """`check_all` for one value; `None` if it does not fit."""
    scope.undetermined = False
    after = checker.check(value, state, scope)
    if after is not None or not scope.undetermined:
        return after
    after, failed = check_all([(checker, value)], state, scope)
    return after if failed is None else None


#
# `Literal`, `type[T]`, `Callable`, protocols, `Self`, `Never`
#


class ConditionChecker(Checker):
    """A condition that depends on nothing but the value.

    Args:
      annotation: For messages.
      problem: From a value to what is wrong with it, '' if nothing is.
      is_atomic: Whether no container fulfils it.
    """

    def __init__(
        self, annotation: Any, problem: Callable[[Any], str], is_atomic: bool = False
    ):
        super().__init__(annotation)
        self.problem = problem
        self.is_atomic = is_atomic

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return None if self.problem(value) else state

    def reason(self, value: Any) -> str:
        return self.problem(value)


def literal_problem(wanted: tuple[Any, ...], value: Any) -> str:
    """`Literal["a", 1]`: an equal member of the same type."""
    if any(type(x) is type(value) and x == value for x in wanted):
        return ""
    return f"is not any of ({', '.join(map(repr, wanted))})"


def subclass_problem(classes: tuple[type, ...], value: Any) -> str:
    """`type[T]`"""
    if not isinstance(value, type):
        return "is not a class"
    try:
        if issubclass(value, classes):
            return ""
    except TypeError:  # a class that does not support the question
        return ""
    return f"is not a subclass of {' | '.join(cls.__name__ for cls in classes)}"


def callable_problem(count: int | None, value: Any) -> str:
    """`Callable[[A, B], R]`: can be called with that many positional arguments."""
    if not callable(value):
        return "is not callable"
    if count is None:
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return ""
    kinds = [p.kind for p in parameters]
    mandatory = [p for p in parameters if p.default is p.empty]
    keywords = [p.name for p in mandatory if p.kind is p.KEYWORD_ONLY]
    required = sum(p.kind in _POSITIONAL for p in mandatory)
    accepted = sum(kind in _POSITIONAL for kind in kinds)
    if keywords:
        return f"has mandatory keyword-only arguments: {', '.join(keywords)}"
    if required > count:
        return (
            "has too many mandatory positional arguments "
            f"(expected at most {count}, has {required})"
        )
    if accepted < count and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return (
            "accepts too few positional arguments "
            f"(expected {count}, accepts {accepted})"
        )
    return ""


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def protocol_problem(protocol: type, members: list[str], value: Any) -> str:
    """A protocol: the value has its methods and attributes."""
    missing = ", ".join(name for name in members if not hasattr(value, name))
    if not missing:
        return ""
    name = format_annotation(protocol)
    return f"is not compatible with protocol {name}: it lacks {missing}"


class SelfChecker(Checker):
    """`Self`: an instance of the class of the first argument."""

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        cls = scope.self_class()
        return state if cls is None or isinstance(value, cls) else None

    def explain(self, value: Any, state: State, scope: ShapeScope) -> Failure:
        cls = scope.self_class()
        name = "Self" if cls is None else cls.__name__
        reason = f"is not an instance of {name} (required by Self)"
        return Failure(reason, state)


class NeverChecker(Checker):
    """`Never`, `NoReturn`: no value fits."""

    def check(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return None

    def reason(self, value: Any) -> str:
        return "was given, but the annotation accepts no value"
