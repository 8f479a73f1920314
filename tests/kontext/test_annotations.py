"""Which keys an object has."""

import dataclasses
import gc
import importlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Optional, TypeVar

import flax
import flax.linen as nn
import pytest

from kauldron import kontext
from kauldron.kontext import Key, KeyTree, get_keypaths, is_key_annotated, keys

T = TypeVar("T")


class Plain:
    first: Key
    second: Key | None = None
    not_a_key: int = 3
    third: Optional[Key] = "c"  # noqa: UP045


class Containers:
    views: dict[str, Key]
    levels: list[Key]
    deep: dict[str, list[Key | None]] | None
    tree: KeyTree[tuple[int, int]]
    bare: KeyTree
    pair: tuple[int, Key]
    maker: Callable[[int], Key]
    taker: Callable[[Key], int]
    plain: dict[str, int]
    constant: ClassVar[Key] = "x"
    quoted: "list[Key]"
    inner_quote: list["Key"]
    marked: Annotated[list[Key], "other"]


def test_fields_are_keys_wherever_the_token_is():
    assert kontext.type_utils.get_annotated(Containers, Key) == [
        *("views", "levels", "deep", "tree", "bare", "pair", "maker"),
        *("quoted", "inner_quote", "marked"),
    ]


def test_keys_come_in_order_of_declaration():
    keys = get_keypaths(Plain())
    assert list(keys.items()) == [
        ("first", kontext.REQUIRED),
        ("second", None),
        ("third", "c"),
    ]


class Base:
    b: Key = "b"
    a: Key = "a"
    dropped: Key = "d"


class Derived(Base):
    c: Key = "c"
    a: Key = "new a"
    dropped: int = 1


def test_inherited_keys_come_first_and_can_be_redeclared():
    keys = get_keypaths(Derived())
    assert list(keys.items()) == [("b", "b"), ("a", "new a"), ("c", "c")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsDataclass:
    x: Key = "v"


@flax.struct.dataclass
class AsStruct:
    x: Key = "v"


class AsModule(nn.Module):
    x: Key = "v"


class AsGeneric(Generic[T]):
    x: Key = "v"
    other: T


@pytest.mark.parametrize("cls", [AsDataclass, AsStruct, AsModule, AsGeneric])
def test_any_class_can_have_keys(cls):
    assert get_keypaths(cls()) == {"x": "v"}
    assert is_key_annotated(cls)
    assert is_key_annotated(cls())


def test_object_without_keys():
    assert not is_key_annotated(int)
    assert not is_key_annotated(object())
    assert get_keypaths(object()) == {}
    assert kontext.resolve_from_keyed_obj({}, object()) == {}


def test_required_is_a_plain_string():
    assert kontext.REQUIRED == "__KEY_REQUIRED__"
    assert json.loads(json.dumps(kontext.REQUIRED)) == kontext.REQUIRED


_SCRIPT = """
from kauldron import kontext
class Model:
    {fields}
print(list(kontext.get_keypaths(Model())))
"""


def test_order_of_keys_does_not_depend_on_the_hash_seed():
    names = [f"key_{i}" for i in range(20)]
    fields = "\n    ".join(f"{name}: kontext.Key" for name in names)
    for seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-c", _SCRIPT.format(fields=fields)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert output.strip() == str(names)


def test_keys_are_still_keys_after_a_reload():
    old_key = keys.Key
    reloaded = importlib.reload(keys)
    try:
        assert reloaded.Key.__metadata__[0] is not old_key.__metadata__[0]

        class Old:
            x: old_key = "v"

        class New:
            x: reloaded.Key = "v"

        for function in (get_keypaths, reloaded.get_keypaths):
            assert function(Old()) == {"x": "v"}
            assert function(New()) == {"x": "v"}
    finally:
        importlib.reload(keys)


def test_classes_are_not_kept_alive():
    class Local:
        x: Key = "v"

    assert get_keypaths(Local()) == {"x": "v"}
    reference = weakref.ref(Local)
    del Local
    gc.collect()
    assert reference() is None


# ------------------------------------------------------------------------------------
# Other tokens
# ------------------------------------------------------------------------------------


class Tagged:
    a: Annotated[int, "tag"]
    b: list[Annotated[int, "other", "tag"]]
    c: Annotated[int, "other"]


@pytest.mark.parametrize("token", ["tag", Annotated[Any, "tag"]])
def test_get_annotated_finds_any_token(token):
    assert kontext.type_utils.get_annotated(Tagged, token) == ["a", "b"]
    assert kontext.type_utils.get_annotated(Tagged(), token) == ["a", "b"]


def test_result_of_get_annotated_is_a_list_of_ones_own():
    kontext.type_utils.get_annotated(Tagged, "tag").clear()
    assert kontext.type_utils.get_annotated(Tagged, "tag") == ["a", "b"]


# ------------------------------------------------------------------------------------
# The protocol
# ------------------------------------------------------------------------------------


class Wrapper:
    ignored: Key = "ignored"

    def __init__(self, inner):
        self.inner = inner

    def __kontext_keys__(self):
        return kontext.get_keypaths(self.inner)


def test_wrapper_forwards_the_keys_of_what_it_wraps():
    inner = AsDataclass(x="batch.image")
    assert is_key_annotated(Wrapper)
    assert get_keypaths(Wrapper(inner)) == {"x": "batch.image"}
    context = {"batch": {"image": 5}}
    resolved = kontext.resolve_from_keyed_obj(context, Wrapper(inner))
    assert resolved == kontext.resolve_from_keyed_obj(context, inner) == {"x": 5}


def test_protocol_counts_only_on_the_class():
    class Empty:
        pass

    obj = Empty()
    obj.__kontext_keys__ = lambda: {"x": "a"}
    assert not is_key_annotated(obj)
    assert get_keypaths(obj) == {}


def test_protocol_must_return_a_dict():
    class Wrong:
        def __kontext_keys__(self):
            return ["a"]

    with pytest.raises(
        TypeError, match=r"Wrong.__kontext_keys__\(\) must return a dict"
    ):
        get_keypaths(Wrong())
