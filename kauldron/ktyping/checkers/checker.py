"""What every compiled annotation can do.

`check` is a pure function from a value and a state to the new state, or `None` if the
value does not fit. It says nothing about why: on failure `explain` walks the same way
again and finds the words. So a check that succeeds pays nothing for messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.formatting import class_name, format_annotation, is_mock
from kauldron.ktyping.shapes.matching import State

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope


@dataclasses.dataclass
class Failure:
    """Why a value does not fit.

    Attributes:
      reason: What is wrong with the innermost value.
      path: Where that value is, innermost step first: `["item 0", "key 'k'"]`.
      detail: A second line: which axis disagrees, and with what.
      state: The candidates at that point.
      scope: The scope in which it was checked.
      fields: Title and lines of the dataclass or TypedDict that the value belongs to.
      subject: For one of `*args`: what to append to its name, and its value.
    """

    reason: str
    path: list[str] = dataclasses.field(default_factory=list)
    detail: str = ""
    state: State | None = None
    scope: Any = None
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
        """The candidates under which `value` fits, `None` if there are none."""
        result = self.match(value, state, scope)
        if result is None and is_mock(value):
            return state
        return result

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        raise NotImplementedError

    def explain(self, value: Any, state: State, scope: ShapeScope) -> Failure:
        """Why `value` does not fit. Only called after `check` failed."""
        return Failure(self.reason(value), state=state, scope=scope)

    def reason(self, value: Any) -> str:
        return f"does not match {format_annotation(self.annotation)}"


class AnyChecker(Checker):
    """`Any`, `object`, nothing at all."""

    memo_kind = UNCHECKED

    def check(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return state


class ClassChecker(Checker):
    """An ordinary class."""

    def __init__(self, annotation: Any, classes: tuple[type, ...]):
        super().__init__(annotation)
        self.classes: Any = classes if len(classes) > 1 else next(iter(classes))
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
    the others have been checked.

    Returns:
      The new state and `None`, or the state at the first failure and its index.
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


def wrong_class(value: Any, accepted: str) -> str:
    """The reason for a value of the wrong class."""
    return f"was of type {class_name(type(value))} which is not {accepted}"
