"""Every kind of annotation: what passes, and the words when it does not."""

import collections
import collections.abc
import dataclasses
import io
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import (
    Any,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
)
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float

UserId = NewType("UserId", int)
Number = TypeVar("Number", int, float)
Small = TypeVar("Small", bound=int)
Free = TypeVar("Free")


class HasArea(Protocol):
    name: str

    def area(self) -> float: ...


class Square:
    name = "square"

    def area(self) -> float:
        return 1.0


class Point(NamedTuple):
    x: int
    y: Float["n"]


class Options(TypedDict):
    size: int
    label: typing.NotRequired[str]


class Base: ...


class Derived(Base): ...


def _function_of_two(a, b): ...


def _function_of_one_or_more(a, *rest): ...


def _function_with_keyword(a, *, must): ...


ACCEPTED = [
    (Any, object()),
    (object, 3),
    (int, True),
    (float, 1),
    (complex, 1.5),
    (bytes, bytearray(b"x")),
    (bytes, memoryview(b"x")),
    (None, None),
    (Optional[int], None),  # noqa: UP045
    (Union[int, str], "a"),  # noqa: UP007
    (int | str, 3),
    (Literal["a", 1], 1),
    (list[int], [1, "unchecked"]),
    (list[int], []),
    (set[int], {1}),
    (frozenset[int], frozenset({1})),
    (collections.deque[int], collections.deque([1])),
    (Sequence[int], (1, 2)),
    (Collection[int], {1}),
    (typing.List[int], [1]),  # noqa: UP006
    (dict[str, int], {"a": 1}),
    (Mapping[str, int], collections.OrderedDict(a=1)),
    (collections.defaultdict[str, int], collections.defaultdict(int, a=1)),
    (tuple[int, str], (1, "a")),
    (tuple[()], ()),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, ...], ()),
    (Iterable[int], iter(["not", "consumed"])),
    (type[Base], Derived),
    (type[Base | int], int),
    (type, int),
    (type[Any], int),
    (typing.Type, int),  # noqa: UP006
    (typing.Tuple, (1, 2)),  # noqa: UP006
    (typing.Dict, {1: 2}),  # noqa: UP006
    (typing.SupportsFloat, 1.5),
    (npt.NDArray[np.float32], np.ones(2)),
    (Callable, print),
    (Callable[..., int], _function_of_two),
    (Callable[[int, int], int], _function_of_two),
    (Callable[[int, int, int], int], _function_of_one_or_more),
    (Callable[[int], int], int),
    (HasArea, Square()),
    (Options, {"size": 1}),
    (Options, {"size": 1, "label": "x"}),
    (Point, Point(1, np.ones(2))),
    (UserId, 3),
    (typing.Annotated[int, "any metadata"], 3),
    (typing.Final[int], 3),
    (Number, 2.5),
    (Small, 3),
    (Free, object()),
    (list["int"], [1]),
    (int, mock.Mock()),
    (Float["a b"], mock.Mock()),
    (list[int], [mock.Mock()]),
    (typing.LiteralString, "x"),
    (typing.IO[str], io.StringIO()),
    (typing.TextIO, io.StringIO()),
    (typing.BinaryIO, io.BytesIO()),
]

REFUSED = [
    (int, "a", "is not an instance of int"),
    (float, "a", "is not an instance of float"),
    (float, np.float32(1), "is not an instance of float"),
    (bytes, "a", "is not an instance of bytes"),
    (None, 3, "is not an instance of None"),
    (int | str, 1.5, "did not match any element in the union:"),
    (int | str, 1.5, "int: is not an instance of int"),
    (Literal[1, 2], 3, "is not any of (1, 2)"),
    (Literal[1, 2], True, "is not any of (1, 2)"),
    (list[int], (1,), "is not an instance of list"),
    (list[int], ["a"], "item 0 of value ['a'] is not an instance of int"),
    (Sequence[int], ["a"], "item 0 of"),
    (set[int], {"a"}, "item 0 of"),
    (dict[str, int], {1: 1}, "key 1 of value {1: 1} is not an instance of str"),
    (dict[str, int], {"k": "v"}, "value of key 'k' of"),
    (dict[str, int], [], "is not an instance of dict"),
    (
        tuple[int, int],
        (1, 2, 3),
        "tuple has wrong number of elements (expected 2, got 3 instead)",
    ),
    (tuple[int, str], (1, 2), "item 1 of value (1, 2) is not an instance of str"),
    (tuple[()], (1,), "expected 0, got 1"),
    (tuple[int, ...], ("a",), "item 0 of"),
    (Iterable[int], 3, "is not an instance of Iterable"),
    (type[Base], int, "is not a subclass of Base"),
    (type[Base], 3, "is not a class"),
    (Callable[[int], int], 3, "is not callable"),
    (Callable[[int], int], _function_of_two, "too many mandatory positional"),
    (Callable[[int, int, int], int], _function_of_two, "too few positional"),
    (Callable[[int], int], _function_with_keyword, "keyword-only arguments: must"),
    (typing.SupportsFloat, "a", "is not an instance of SupportsFloat"),
    (type[Any], 3, "is not an instance of type"),
    (typing.Tuple, 3, "is not an instance of tuple"),  # noqa: UP006
    (HasArea, 3, "it lacks area, name"),
    (Options, {}, "is missing required key(s): 'size'"),
    (Options, {"size": 1, "z": 2}, "has unexpected extra key(s): 'z'"),
    (Options, {"size": "a"}, "value of key 'size' of"),
    (Options, 3, "is not a dict"),
    (Point, (1, 2), "is not an instance of Point"),
    (Point, Point("a", np.ones(2)), "attribute 'x' of"),
    (UserId, "a", "is not an instance of int"),
    (typing.Annotated[int, "metadata"], "a", "is not an instance of int"),
    (Number, "a", "did not match any element in the union"),
    (Small, "a", "is not an instance of int"),
    (list["int"], ["a"], "item 0 of"),
    (typing.TextIO, io.BytesIO(), "is not an instance of TextIO"),
]


def _first(cases):
    return [str(annotation) for annotation, *_ in cases]


@pytest.mark.parametrize("annotation, value", ACCEPTED, ids=_first(ACCEPTED))
def test_value_that_fits_is_returned(annotation, value):
    assert kt.check_type(value, annotation, nested_ok=True) is value
    if not any(annotation is with_arrays for with_arrays in _WITH_ARRAYS):
        assert kt.isinstance(value, annotation)


_WITH_ARRAYS = (Float["a b"], Point)


@pytest.mark.parametrize("annotation, value, words", REFUSED, ids=_first(REFUSED))
def test_value_that_does_not_fit_is_refused_with_words(annotation, value, words):
    with pytest.raises(kt.KTypeCheckError) as caught:
        kt.check_type(value, annotation, nested_ok=True)
    assert words in str(caught.value)


def test_tuple_of_types_means_union():
    assert kt.isinstance(3, (str, int))
    assert not kt.isinstance(3.5, (str, int))


def test_isinstance_needs_no_scope_without_arrays():
    assert kt.isinstance({"a": [1]}, dict[str, list[int]])
    assert not kt.isinstance({"a": ["b"]}, dict[str, list[int]])


def test_iterators_are_not_consumed():
    iterator = iter([1, 2])
    kt.check_type(iterator, collections.abc.Iterator[str], nested_ok=True)
    assert list(iterator) == [1, 2]


def test_items_of_an_array_are_not_looked_at():
    kt.check_type(np.ones(3), Collection[str], nested_ok=True)


def test_all_items_are_checked_when_the_configuration_says_so():
    with kt.Config(collection_check="all"):
        with pytest.raises(kt.KTypeCheckError, match="item 1 of"):
            kt.check_type([1, "a"], list[int], nested_ok=True)
        with pytest.raises(kt.KTypeCheckError, match="value of key 'b'"):
            kt.check_type({"a": 1, "b": "x"}, dict[str, int], nested_ok=True)
    kt.check_type([1, "a"], list[int], nested_ok=True)


def test_all_items_also_in_functions_that_were_compiled_before():
    @kt.typechecked
    def f(x: list[int]):
        return len(x)

    assert f([1, "a"]) == 2
    with kt.Config(collection_check="all"), pytest.raises(kt.KTypeCheckError):
        f([1, "a"])
    assert f([1, "a"]) == 2


def test_named_tuple_fields_belong_to_the_current_scope():
    @kt.typechecked
    def f(point: Point, other: Float["n"]):
        return kt.dim["n"]

    assert f(Point(1, np.ones(3)), np.ones(3)) == 3
    with pytest.raises(kt.KTypeCheckError, match="argument other"):
        f(Point(1, np.ones(3)), np.ones(4))


def test_self_is_the_class_of_the_first_argument():
    class Builder:
        @kt.typechecked
        def fluent(self, result) -> typing.Self:
            return result

        @classmethod
        @kt.typechecked
        def make(cls) -> typing.Self:
            return cls()

    class Special(Builder): ...

    builder, special = Builder(), Special()
    assert builder.fluent(builder) is builder
    assert isinstance(Special.make(), Special)
    with pytest.raises(kt.KTypeCheckError, match="is not an instance of Special"):
        special.fluent(builder)


def test_never_on_argument_and_return():
    @kt.typechecked
    def never_called(x: typing.Never): ...

    @kt.typechecked
    def never_returns() -> typing.NoReturn: ...

    with pytest.raises(
        kt.TypeCheckError, match="declared never to be called but it was"
    ):
        never_called(3)
    with pytest.raises(kt.TypeCheckError, match="declared never to return but it did"):
        never_returns()


def test_string_annotations_see_closure_and_class():
    class Local: ...

    class Holder:
        class Inner: ...

        @kt.typechecked
        def method(self, x: "Local", y: "int" = 3) -> "Local":
            return Local() if x is not None else x

    assert isinstance(Holder().method(Local()), Local)
    with pytest.raises(kt.KTypeCheckError, match="is not an instance of Local"):
        Holder().method(3)


def test_unresolvable_string_annotation_is_any_and_logged_once(caplog):
    @kt.typechecked
    def f(x: "NoSuchName", y: int):
        return x

    assert f("anything", 1) == "anything"
    assert f(object(), 1) is not None
    with pytest.raises(kt.KTypeCheckError):
        f("anything", "not an int")
    logged = [record for record in caplog.records if "NoSuchName" in record.message]
    assert len(logged) == 1
    assert "f()" in logged[0].getMessage()


def test_recursive_types():
    @kt.typechecked
    @dataclasses.dataclass
    class Node:
        value: Float["n"]
        children: "list[Node]" = dataclasses.field(default_factory=list)

    leaf = Node(np.ones(3))
    Node(np.ones(2), [leaf])
    with pytest.raises(kt.KTypeCheckError, match="item 0 of value of field 'children'"):
        Node(np.ones(2), [3])


Tree = Float["n"] | dict[str, "Tree"]


def test_alias_that_contains_itself():
    @kt.typechecked
    def f(tree: Tree):
        return kt.dim["n"]

    assert f({"a": {"b": np.ones(3)}}) == 3
    with pytest.raises(kt.KTypeCheckError, match="value of key 'b'"):
        f({"a": {"b": "text"}})


def test_unhashable_annotation_values():
    assert kt.isinstance(3, Literal[3])
    assert not kt.isinstance([3], typing.Annotated[int, []])
