"""`kauldron.typing`: the older names and their rules."""

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Hashable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kauldron.ktyping as kt
import kauldron.typing as kd
from kauldron.typing import Float


@pytest.fixture
def _checking_restored():
    yield
    kt.CONFIG.typechecking_enabled = True


# --------------------------------------------------------------------------------------
# Types
# --------------------------------------------------------------------------------------


def test_int_is_signed_and_integer_is_either():
    assert isinstance(np.ones(2, "i4"), kd.Int["n"])
    assert not isinstance(np.ones(2, "u1"), kd.Int["n"])
    assert isinstance(np.ones(2, "u1"), kd.Integer["n"])
    assert isinstance(np.ones(2, "i8"), kd.Integer["n"])
    assert not isinstance(np.ones(2, "?"), kd.Integer["n"])


@pytest.mark.parametrize(
    "name, dtype",
    {
        "Float": "f2",
        "Float32": "f4",
        "Bool": "?",
        "Num": "c8",
        "Complex": "c16",
        "Complex64": "c8",
        "UInt8": "u1",
        "UInt32": "u4",
        "Array": "U1",
        "XArray": "f4",
    }.items(),
)
def test_types_accept_their_dtype(name, dtype):
    type_ = getattr(kd, name)
    assert isinstance(np.zeros((2, 3), dtype), type_["a b"])
    assert not isinstance(np.zeros((2, 3), dtype), type_["a"])
    assert repr(type_["a b"]) == f"{name}['a b']"


def test_scalars_are_arrays_only():
    assert isinstance(np.array(1.0), kd.ScalarFloat)
    assert isinstance(jnp.array(1), kd.ScalarInt)
    assert isinstance(np.array("x"), kd.Scalar)
    assert isinstance(np.float32(1), kd.ScalarFloat)
    for value in (1.0, 1, True):
        assert not isinstance(value, kd.Scalar)


@pytest.mark.parametrize(
    "name", ["TfArray", "TfFloat", "TfFloat32", "TfInt", "TfUInt8"]
)
def test_types_of_libraries_that_are_not_there_say_no(name):
    assert not isinstance(np.zeros(2, "f4"), getattr(kd, name))


def test_aliases():
    assert kd.DType is jax.typing.DTypeLike
    assert kd.AxisName is Hashable
    assert kd.Axes == int | tuple[int, ...]
    assert kd.PyTree is kt.PyTree
    assert kd.TypeCheckError is kt.KTypeCheckError
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert isinstance(key, kd.PRNGKey)
    for value in (3, [1, 2], np.ones(2, "u4"), jax.random.key(0)):
        assert kd.check_type(value, kd.PRNGKeyLike) is value
    kd.check_type(lambda key, shape, dtype: 0, kd.Initializer)
    kd.check_type(lambda step: 0.1, kd.Schedule)
    with pytest.raises(kd.TypeCheckError):
        kd.check_type(lambda: 0.1, kd.Schedule)


def test_array_spec_is_a_class_and_an_annotation():
    spec = kd.ArraySpec("float32", (2, 3))
    assert repr(spec) == "ArraySpec(dtype=float32, shape=(2, 3))"
    assert str(spec) == "float32[2, 3]"
    assert spec == kd.ArraySpec(dtype=np.float32, shape=[2, 3])
    assert spec == jax.ShapeDtypeStruct((2, 3), jnp.float32)
    assert spec != kd.ArraySpec("float32", (2, 4))
    assert spec != kd.ArraySpec("int32", (2, 3))
    assert hash(spec) == hash(kd.ArraySpec(np.dtype("f4"), (2, 3)))
    assert isinstance(jax.ShapeDtypeStruct((2,), "f4"), kd.ArraySpec)
    assert not isinstance(np.zeros(2), kd.ArraySpec)
    kd.check_type({"a": spec, "b": [jax.ShapeDtypeStruct((), "f4")]}, kd.ElementSpec)
    with pytest.raises(kd.TypeCheckError):
        kd.check_type({"a": 3}, kd.ElementSpec)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.shape = ()


def test_array_spec_of_strings_and_keys():
    assert str(kd.ArraySpec(str, ())) == "str[]"
    assert str(kd.ArraySpec(jax.random.key(0).dtype, ())) == "key<fry>[]"


# --------------------------------------------------------------------------------------
# typechecked
# --------------------------------------------------------------------------------------


@kd.typechecked
def flatten(x: Float["*b h w c"], scale: int = 1) -> Float["*b h*w c"]:
    return x.reshape(kd.Shape("*b h*w c")) * scale


def test_function():
    assert flatten(np.ones((2, 3, 4, 5))).shape == (2, 12, 5)
    with pytest.raises(kd.TypeCheckError, match="argument scale"):
        flatten(np.ones((2, 3, 4, 5)), "a")


def test_one_call_can_skip_the_checks():
    image = np.ones((3, 4, 5))
    assert flatten(image, 0.5, _typecheck=False).sum() == 30
    with pytest.raises(kd.TypeCheckError):
        flatten(image, 0.5, _typecheck=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda *args, **kw: (args, kw),
        lambda a, *, k=1: (a, k),
        lambda a, **kw: (a, kw),
        lambda: None,
    ],
    ids=["*args, **kw", "a, *, k", "a, **kw", "nothing"],
)
def test_switch_is_not_forwarded_and_not_in_the_signature(function):
    checked = kd.typechecked(function)
    assert inspect.signature(checked) == inspect.signature(function)
    args = (1,) if inspect.signature(function).parameters else ()
    assert checked(*args, _typecheck=False) == function(*args)
    assert checked(*args) == function(*args)


@pytest.mark.usefixtures("_checking_restored")
def test_older_global_switch():
    kd.type_check.TYPECHECKING_ENABLED = False
    assert flatten(np.ones((3, 4, 5)), 0.5).sum() == 30
    kd.type_check.TYPECHECKING_ENABLED = True
    with pytest.raises(kd.TypeCheckError):
        flatten(np.ones((3, 4, 5)), 0.5)


def test_other_decorators_may_be_inside():
    import functools

    def passing(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs)

        return wrapper

    @kd.typechecked
    @passing
    def f(x: Float["n"], y: int = 0):
        return kd.Dim("n") if y == 0 else y

    assert f(np.ones(3)) == 3
    assert f("unchecked", "y", _typecheck=False) == "y"


def test_both_modules_mix_freely():
    @kd.typechecked
    def f(x: kt.Float["n"], y: Float["n"]):
        return kt.dim["n"], kd.Dim("n")

    assert f(np.ones(2), np.ones(2)) == (2, 2)
    with pytest.raises(kd.TypeCheckError):
        f(np.ones(2), np.ones(3))


def test_block():
    with kd.typechecked():
        assert isinstance(np.ones((2, 3)), Float["h w"])
        assert kd.Shape("w h") == (3, 2)


# --------------------------------------------------------------------------------------
# Shape, Dim, set_shape, Memo
# --------------------------------------------------------------------------------------


@kd.typechecked
def ask(x: Float["*b h w"], question):
    return question()


def test_shape_and_dim():
    @kd.typechecked
    def f(x: Float["*b h w"]):
        return kd.Shape("*b h+1"), kd.Dim("h"), kd.Dim("h*w"), kd.Dim("*b")

    assert f(np.ones((2, 3, 4))) == ((2, 4), 3, 12, 2)


def test_dim_needs_exactly_one_axis():
    @kd.typechecked
    def f(x: Float["*b h"]):
        return kd.Dim("*b")

    assert f(np.ones((2, 3))) == 2
    with pytest.raises(kd.ShapeError, match="single-axis"):
        f(np.ones((2, 3, 4)))


def test_unknown_dim_is_a_shape_error():
    @kd.typechecked
    def f(x: Float["n"]):
        return kd.Shape("m")

    with pytest.raises(kd.ShapeError, match="No value known for 'm'"):
        f(np.ones(2))


def test_on_ambiguity_the_first_candidate_is_taken():
    @kd.typechecked
    def f(x: Float["*a *b"]):
        return kd.Shape("*a"), kd.Shape("*b")

    assert f(np.ones((2, 3))) == ((), (2, 3))


@pytest.mark.parametrize(
    "use",
    [
        lambda: kd.Shape("h"),
        lambda: kd.Dim("h"),
        lambda: kd.set_shape("h", 3),
        lambda: kd.Memo.from_current_context(),
    ],
)
def test_undecorated_function_is_named_in_an_assertion_error(use):
    def undecorated():
        return use()

    with pytest.raises(AssertionError, match="<lambda>") as caught:
        undecorated()
    assert isinstance(caught.value, kt.NoActiveScopeError)
    with pytest.raises(AssertionError):
        ask(np.ones((2, 3, 4)), use)


def test_shape_as_an_annotation():
    assert isinstance((1, 2), kd.Shape)
    assert not isinstance("12", kd.Shape)
    assert kd.Shape["*b n"] is kt.Shape["*b n"]

    @kd.typechecked
    def f(shape: kd.Shape, other: kd.Shape["n m"]):
        return kd.Dim("m")

    assert f((1, 2), (3, 4)) == 4
    with pytest.raises(kd.TypeCheckError, match="is not a valid shape"):
        f("ab", (3, 4))


def test_set_shape_binds_and_checks_without_allocating():
    @kd.typechecked
    def f(x: Float["n"], n):
        kd.set_shape("k", 7)
        kd.set_shape("n *rest", (n, 10**9, 10**9))
        return kd.Shape("k *rest")

    assert f(np.ones(2), 2) == (7, 10**9, 10**9)
    with pytest.raises(kd.TypeCheckError, match="n = 2 was bound by argument 'x'"):
        f(np.ones(2), 3)


def test_memo_is_a_snapshot():
    @kd.typechecked
    def f(x: Float["*b h"], y: Float["*c"]):
        return kd.Memo.from_current_context()

    memo = f(np.ones((2, 3)), np.ones((4, 5)))
    assert memo.single == {"h": 3}
    assert memo.variadic == {"b": (2,), "c": (4, 5)}
    assert repr(memo) == "{'h': 3, '*b': (2,), '*c': (4, 5)}"


def test_enabling_is_a_no_op():
    assert kd.enable_kd_type_checking() is None


# --------------------------------------------------------------------------------------
# check_type and isinstance
# --------------------------------------------------------------------------------------


def test_check_type_needs_no_scope_and_then_remembers_nothing():
    value = np.ones(2)
    assert kd.check_type(value, Float["n"]) is value
    kd.check_type(np.ones(3), Float["n"])
    with pytest.raises(kd.TypeCheckError):
        kd.check_type(np.ones(3), Float["n n"])


def test_check_type_binds_in_a_scope():
    @kd.typechecked
    def f(x):
        kd.check_type(x, Float["n m"])
        return kd.Shape("m n")

    assert f(np.ones((2, 3))) == (3, 2)


def test_builtin_isinstance_binds_on_success_only():
    @kd.typechecked
    def f(x):
        if isinstance(x, Float["a b c"]):
            return kd.Shape("c")
        if isinstance(x, Float["h w"]):
            return kd.Shape("w h")
        return None

    assert f(np.ones((2, 3))) == (3, 2)
    assert f(np.ones((2, 3, 4))) == (4,)
    assert f(np.ones(2)) is None


def test_error_has_the_older_attributes():
    with pytest.raises(kd.TypeCheckError) as caught:
        flatten(np.ones((2, 3, 4)), "a")
    error = caught.value
    assert error.fn_name == "flatten" and error.file == __file__
    assert error.arguments["scale"] == "a"
    assert error.annotations["scale"] is int
    assert error.return_annotation == Float["*b h*w c"]
    assert dict(error.memo)["c"] == (4,)


# --------------------------------------------------------------------------------------
# Dataclasses and TypedDicts
# --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Inner:
    y: Float["n"]


@dataclasses.dataclass
class Outer:
    x: Float["n"]
    inner: Inner | None = None
    note: typing.Any = None


@kd.typechecked
def use(outer: Outer, z: Float["n"]) -> int:
    return kd.Dim("n")


def test_fields_of_undecorated_dataclasses_share_the_dims_of_the_function():
    assert use(Outer(np.ones(3), Inner(np.ones(3))), np.ones(3)) == 3
    with pytest.raises(kd.TypeCheckError, match="argument z"):
        use(Outer(np.ones(3)), np.ones(4))
    with pytest.raises(
        kd.TypeCheckError, match="value of field 'inner' of argument outer"
    ):
        use(Outer(np.ones(3), Inner(np.ones(4))), np.ones(3))
    with pytest.raises(kd.TypeCheckError, match="value of field 'x' of argument outer"):
        use(Outer("wrong"), np.ones(3))


def test_decorated_dataclasses_share_them_too():
    @kd.typechecked
    @dataclasses.dataclass
    class Pair:
        a: Float["n"]
        b: Float["n"]

    @kd.typechecked
    def f(pair: Pair, z: Float["n"]):
        return kd.Dim("n")

    assert f(Pair(np.ones(2), np.ones(2)), np.ones(2)) == 2
    with pytest.raises(kd.TypeCheckError, match="argument z"):
        f(Pair(np.ones(2), np.ones(2)), np.ones(3))
    with pytest.raises(kd.TypeCheckError, match="field 'b'"):
        Pair(np.ones(2), np.ones(3))


def test_typed_dicts_share_them_too():
    class Example(typing.TypedDict):
        image: Float["n"]

    @kd.typechecked
    def f(example: Example, z: Float["n"]):
        return kd.Dim("n")

    assert f({"image": np.ones(2)}, np.ones(2)) == 2
    with pytest.raises(kd.TypeCheckError, match="argument z"):
        f({"image": np.ones(2)}, np.ones(3))


def test_dataclass_without_arrays_is_only_an_instance_check():
    @dataclasses.dataclass
    class Plain:
        x: int

    @kd.typechecked
    def f(plain: Plain):
        return plain.x

    assert f(Plain("unchecked")) == "unchecked"


def test_field_that_cannot_be_resolved_is_skipped():
    T = typing.TypeVar("T")

    @dataclasses.dataclass
    class Loose(typing.Generic[T]):
        x: T
        y: "NoSuchName"
        z: Float["n"]

    @kd.typechecked
    def f(loose: Loose):
        return kd.Dim("n")

    assert f(Loose(1, 2, np.ones(3))) == 3
    with pytest.raises(kd.TypeCheckError):
        f(Loose(1, 2, "wrong"))


def test_under_jit():
    @jax.jit
    @kd.typechecked
    def f(x: Float["*b h w"]) -> Float["*b h*w"]:
        return x.reshape(kd.Shape("*b h*w"))

    assert f(jnp.ones((2, 3, 4))).shape == (2, 12)


@pytest.mark.parametrize(
    "path, name",
    [
        ("array_types", "Float"),
        ("shape_spec", "Dim"),
        ("type_check", "typechecked"),
    ],
)
def test_older_module_paths_are_importable(path, name):
    module = importlib.import_module(f"kauldron.typing.{path}")
    assert getattr(module, name) is getattr(kd, name)
