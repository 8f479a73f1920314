"""Lists, dicts, tuples, and the extra arguments of a call."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kauldron.ktyping.array_classes import library_marker
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.formatting import format_value
from kauldron.ktyping.shapes.matching import State

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope

# A value inside a container: what must hold for it, what it is, and where it is (words
# and a key, made into text only for a message).
_Part = tuple[c.Checker, Any, tuple[str, Any]]


class ContainerChecker(c.Checker):
    """A container class whose items have types of their own.

    Args:
      annotation: For messages.
      container: The class.
      all_items: Whether every item is checked, or only the first.
    """

    def __init__(self, annotation: Any, container: type, all_items: bool):
        super().__init__(annotation)
        self.container = container
        self.limit = None if all_items else 1

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        if not isinstance(value, self.container) or self.wrong_length(value):
            return None
        parts = [(checker, item) for checker, item, _ in self.parts(value)]
        state, failed = c.thread(parts, state, scope)
        return state if failed is None else None

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        if not isinstance(value, self.container):
            name = self.container.__name__
            reason = f"is not an instance of {name}"
            return c.Failure(reason, state=state, scope=scope)
        if reason := self.wrong_length(value):
            return c.Failure(reason, state=state, scope=scope)
        parts = list(self.parts(value))
        pairs = [(checker, item) for checker, item, _ in parts]
        state, failed = c.thread(pairs, state, scope)
        if failed is None:
            return super().explain(value, state, scope)
        checker, item, step = parts[failed]
        return self.located(checker.explain(item, state, scope), item, *step)

    def located(self, failure: c.Failure, item: Any, words: str, key: Any) -> c.Failure:
        return failure.inside(f"{words} {format_value(key)}")

    def parts(self, value: Any) -> Iterable[_Part]:
        raise NotImplementedError

    def wrong_length(self, value: Any) -> str:
        return ""


class ItemsChecker(ContainerChecker):
    """`list[T]`, `set[T]`, `Sequence[T]`, `tuple[T, ...]`"""

    def __init__(
        self, annotation: Any, container: type, item: c.Checker, all_items: bool
    ):
        super().__init__(annotation, container, all_items)
        self.item = item

    def parts(self, value: Any) -> Iterable[_Part]:
        if library_marker(value) is not None:  # never look at values of an array
            return
        for index, item in enumerate(itertools.islice(value, self.limit)):
            yield self.item, item, ("item", index)


class MappingChecker(ContainerChecker):
    """`dict[K, V]`, `Mapping[K, V]`"""

    def __init__(
        self,
        annotation: Any,
        container: type,
        key: c.Checker,
        value: c.Checker,
        all_items: bool,
    ):
        super().__init__(annotation, container, all_items)
        self.key = key
        self.value = value

    def parts(self, value: Any) -> Iterable[_Part]:
        for key, item in itertools.islice(value.items(), self.limit):
            yield self.key, key, ("key", key)
            yield self.value, item, ("value of key", key)


class TupleChecker(ContainerChecker):
    """`tuple[A, B]`: the length and every item."""

    def __init__(self, annotation: Any, items: list[c.Checker]):
        super().__init__(annotation, tuple, all_items=True)
        self.items = items

    def wrong_length(self, value: Any) -> str:
        if len(value) == len(self.items):
            return ""
        return (
            "tuple has wrong number of elements "
            f"(expected {len(self.items)}, got {len(value)} instead)"
        )

    def parts(self, value: Any) -> Iterable[_Part]:
        for index, (checker, item) in enumerate(zip(self.items, value)):
            yield checker, item, ("item", index)


class ExtraArgumentsChecker(ContainerChecker):
    """`*args: T` and `**kwargs: T`: every value."""

    def __init__(self, annotation: Any, container: type, item: c.Checker):
        super().__init__(annotation, container, all_items=True)
        self.item = item

    def parts(self, value: Any) -> Iterable[_Part]:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield self.item, item, ("", key)

    def located(self, failure: c.Failure, item: Any, words: str, key: Any) -> c.Failure:
        failure.subject = f"[{key!r}]", item
        return failure
