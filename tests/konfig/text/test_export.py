"""`konfig.export`: real objects as data, and back."""

import collections
import dataclasses
import enum
import functools
import json
import math
import pathlib
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import konfig
from kauldron.immutabledict import ImmutableDict


class Color(enum.Enum):
    RED = 1


class Size(enum.IntEnum):
    BIG = 9


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Outer:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        x: int = 1


@dataclasses.dataclass(frozen=True)
class Data:
    a: object
    b: object = None
    c: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True)
class Hooked:
    value: object
    hidden: object = 1

    def __konfig_export__(self):
        return {
            "__qualname__": konfig.export_qualname(self),
            "value": self.value,
        }


class BadHook:
    def __konfig_export__(self):
        return {"x": 1}


class Point(typing.NamedTuple):
    x: object
    y: object


class Plain:
    pass


def function():
    pass


def round_trip(obj):
    text = json.dumps(konfig.export(obj))
    return konfig.resolve(json.loads(text), freeze=False)


OBJECTS = [
    None,
    True,
    3,
    2.5,
    "text",
    [1, [2, None]],
    (1, (2,), []),
    (),
    {"a": 1, 2: "b", (1, 2): [3], None: 0, 1.5: True},
    {},
    ImmutableDict(a=ImmutableDict(b=(1,))),
    collections.OrderedDict([("z", 1), ("a", 2)]),
    {1, 2, "a"},
    frozenset({(1, 2)}),
    b"\x00\xff",
    slice(1, None, 2),
    ...,
    1 - 2j,
    pathlib.Path("a/b"),
    pathlib.PurePosixPath("a"),
    Color.RED,
    Size.BIG,
    Mode.READ | Mode.WRITE,
    Outer.Inner(x=3),
    Data(a=[Data(a=1), Color.RED], b={"k": (1,)}),
    Hooked(value=(1, 2)),
    Point(1, Point(2, [3])),
    np.dtype("float32"),
    np.dtype("<U3"),
    np.dtype("datetime64[s]"),
    Data,
    Outer.Inner,
    Hooked,
    Color,
    int,
    function,
    math.sqrt,
    np.float32,
]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda o: type(o).__name__)
def test_an_object_is_rebuilt_from_json(obj):
    rebuilt = round_trip(obj)
    assert rebuilt == obj
    assert type(rebuilt) is type(obj)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.array([1.5, np.inf], np.float32),
        np.array(3),
        np.array([[True]]),
        np.array([1 + 2j]),
        np.array(["a", "bc"]),
        np.array([b"a", b"\xff"]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([5], "timedelta64[s]"),
        np.zeros((0, 3)),
        jnp.ones((2, 1), jnp.bfloat16),
        jnp.zeros((2, 0)),
        np.float32(1.5),
    ],
    ids=lambda a: f"{type(a).__name__}-{a.dtype}",
)
def test_arrays_are_rebuilt_with_shape_and_dtype(array):
    rebuilt = round_trip(array)
    assert rebuilt.shape == array.shape
    assert rebuilt.dtype == array.dtype
    assert isinstance(rebuilt, jax.Array) == isinstance(array, jax.Array)
    np.testing.assert_array_equal(np.asarray(rebuilt), np.asarray(array))


def test_the_form_of_the_export_is_fixed():
    assert konfig.export(np.array([1, 2], np.int32)) == {
        "__qualname__": "numpy:asarray",
        "0": [1, 2],
        "dtype": "int32",
    }
    assert konfig.export((1,)) == {"__qualname__": "builtins.tuple", "0": [1]}
    assert konfig.export({"a": 1}) == {"__qualname__": "builtins:dict", "0": [["a", 1]]}
    assert konfig.export(np.dtype("int8")) == {
        "__qualname__": "numpy:dtype",
        "0": "int8",
    }
    assert konfig.export(Outer.Inner()) == {
        "__qualname__": f"{__name__}:Outer.Inner",
        "x": 1,
    }
    assert konfig.export(Data) == {"__const__": f"{__name__}:Data"}
    assert konfig.export(pathlib.Path("a")) == {
        "__qualname__": "pathlib:Path",
        "0": "a",
    }
    assert "hidden" not in konfig.export(Hooked(value=1, hidden=2))


def test_both_forms_of_a_tuple_can_be_read():
    for name in ("builtins.tuple", "builtins:tuple"):
        assert konfig.resolve({"__qualname__": name, "0": [1, 2]}) == (1, 2)


def test_a_partial_and_a_config_are_exported():
    partial = round_trip(functools.partial(math.pow, 2.0))
    assert partial(3.0) == 8.0
    cfg = konfig.ConfigDict({"__qualname__": "fractions:Fraction", "0": 1})
    assert konfig.export(cfg) == {"__qualname__": "fractions:Fraction", "0": 1}
    assert json.dumps(konfig.export(Data(a=cfg)))


def test_nan_survives():
    assert math.isnan(round_trip(float("nan")))


# ------------------------------------------------------------------------------------
# Errors
# ------------------------------------------------------------------------------------


def test_an_unknown_type_names_its_path_and_the_hook():
    with pytest.raises(NotImplementedError) as error:
        konfig.export(Data(a=[1, {"k": Plain()}]))
    text = str(error.value)
    assert "obj.a[1].k" in text
    assert "Plain" in text
    assert "__konfig_export__" in text


@pytest.mark.parametrize(
    "obj",
    [object(), collections.Counter("a"), collections.defaultdict(int), iter([1])],
    ids=lambda o: type(o).__name__,
)
def test_what_cannot_be_rebuilt_is_refused(obj):
    with pytest.raises(NotImplementedError):
        konfig.export([obj])


def test_what_cannot_be_imported_is_refused():
    @dataclasses.dataclass
    class Local:
        x: int = 1

    for obj in (lambda: None, Local, Local(), Local):
        with pytest.raises(ValueError, match=r"obj\[0\].*(lambda|local)"):
            konfig.export([obj])


def test_a_hook_without_a_symbol_is_told_which_line_to_add():
    with pytest.raises(ValueError, match=r"konfig\.export_qualname\(self\)"):
        konfig.export(BadHook())


def test_an_object_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(konfig.CycleError, match=r"obj\[0\]"):
        konfig.export(loop)


def test_keys_and_object_arrays_are_refused():
    with pytest.raises(NotImplementedError, match="random key"):
        konfig.export(jax.random.key(0))
    with pytest.raises(NotImplementedError, match=r"obj\[0\]"):
        konfig.export([np.array([object()])])


def test_a_large_array_warns():
    with pytest.warns(UserWarning, match=r"obj\.a.*MB"):
        konfig.export(Data(a=np.zeros(200_000)))


def test_the_name_of_a_class_includes_the_classes_around_it():
    assert konfig.export_qualname(Outer.Inner()) == f"{__name__}:Outer.Inner"
