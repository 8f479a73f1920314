"""Array types: making them, classes, dtypes, unions, scalars, keys, shapes."""

import itertools
import pickle
import types

import cloudpickle
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Array, Float, Int, Shape
from kauldron.ktyping.array_type_meta import ArrayTypeMeta
from kauldron.ktyping.values import JaxArray, NpArray

NAMES = [
    "Array",
    "Num",
    "Bool",
    "Int",
    "SInt",
    "UInt",
    "IntOrBool",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float",
    "Float16",
    "Float32",
    "Float64",
    "BFloat16",
    "Complex",
    "Complex64",
    "Complex128",
]
EXPORTED = [prefix + name for prefix in ("", "Tf", "X") for name in NAMES]


def _values():
    """Arrays of many dtypes, of numpy and jax, with and without axes."""
    dtypes = [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "str",
        "object",
        "datetime64[s]",
        "timedelta64[s]",
        "longdouble",
    ]
    yield from (np.zeros((2, 3), dtype) for dtype in dtypes)
    low_precision = "bfloat16 float8_e4m3fn float8_e5m2 float4_e2m1fn int4 uint4 int2"
    for name in low_precision.split():
        yield np.zeros((2, 3), getattr(ml_dtypes, name))
    yield np.zeros((2, 3), [("x", "f4")])
    for dtype in ("bool", "int32", "uint8", "float32", "bfloat16", "complex64"):
        yield jnp.zeros((2, 3), dtype)
    yield jax.random.split(jax.random.key(0), (2, 3))
    yield from (1, 2.0, True, "text", None, [[1.0]], jax.ShapeDtypeStruct((2, 3), "f4"))


# --------------------------------------------------------------------------------------
# Making types
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_types_carry_their_name(name):
    assert getattr(kt, name).__name__ == name
    assert kt.is_array_type(getattr(kt, name))


def test_subscripting_twice_gives_the_same_object():
    assert Float["a b"] is Float["a b"]
    assert Float["a b"] is not Float["a  b"]
    assert Float[np.ndarray, "a"] is Float[np.ndarray, "a"]


def test_text_of_a_type():
    assert repr(Float["a b"]) == Float["a b"].__name__ == "Float['a b']"
    assert repr(Float[np.ndarray, "a"]) == "Float[ndarray, 'a']"
    assert repr(Float[(np.ndarray, jax.Array), "a"]) == "Float[(ndarray, Array), 'a']"


@pytest.mark.parametrize(
    "item", [3, ["a"], ("a",), ("a", "b"), (np.ndarray,), ((), "a"), None]
)
def test_wrong_subscript_lists_the_three_forms(item):
    with pytest.raises(TypeError, match=r"\['spec'\].*\[cls, 'spec'\].*dtype\]"):
        Float[item]


def test_wrong_subscript_is_reported_once():
    with pytest.raises(TypeError, match="Cannot subscript") as info:
        Float[3]
    assert info.value.__context__ is None


def test_redefining_is_refused():
    with pytest.raises(TypeError, match=r"^Trying to redefine the shape"):
        Float["a"]["b"]
    with pytest.raises(TypeError, match=r"^Trying to redefine the array classes"):
        kt.TfFloat[np.ndarray, "a"]
    with pytest.raises(TypeError, match=r"^Trying to redefine the dtype"):
        Float[np.ndarray, "a", np.int32]


def test_calling_a_type_points_to_the_brackets():
    with pytest.raises(RuntimeError, match=r"cannot be instantiated.*Float\['a b'\]"):
        Float("a b")


def test_issubclass_is_not_supported():
    with pytest.raises(TypeError, match="not supported"):
        issubclass(int, Float)


def test_class_restriction():
    only_numpy = Float[np.ndarray, "..."]
    assert isinstance(np.zeros(2), only_numpy)
    assert not isinstance(jnp.zeros(2), only_numpy)


@pytest.mark.parametrize("dtype", [np.float32, "float32", kt.dtypes.float32])
def test_dtype_may_be_anything_numpy_accepts(dtype):
    type_ = Array[np.ndarray, "n", dtype]
    assert isinstance(np.zeros(2, "f4"), type_)
    assert not isinstance(np.zeros(2, "f8"), type_)


def test_types_of_ones_own():
    image = ArrayTypeMeta("Image", dtype=kt.dtypes.uint8 | kt.dtypes.floating)
    assert isinstance(np.zeros((2, 2), "u1"), image["h w"])
    assert not isinstance(np.zeros((2, 2), "i4"), image["h w"])
    assert image.array_types == (NpArray, JaxArray)
    assert str(image.dtype) == "np.floating|np.uint8"


def test_parts_of_a_type_can_be_asked_one_by_one():
    assert Float["a"].array_types_match(np.zeros((2, 2)))
    assert not Float["a"].array_types_match([1.0])
    assert Float["a"].dtype_matches(np.zeros((2, 2)))
    assert not Float["a"].dtype_matches(np.zeros(2, int))
    (dims,) = Float["a b"].shape_matches(np.zeros((2, 3)))
    assert dict(dims) == {"a": (2,), "b": (3,)}
    assert Float["a {n}"].shape_matches(np.zeros((2, 3)), fstring_locals={"n": 3})
    assert not Float["a"].shape_matches(np.zeros((2, 3)))


# --------------------------------------------------------------------------------------
# Classes and dtypes
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2),
        np.float32(1),
        np.ma.masked_array([1.0]),
        np.zeros((1, 1)).view(np.matrix),
        jnp.zeros(2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arrays_of_numpy_and_jax_are_arrays(value):
    assert isinstance(value, Float)


@pytest.mark.parametrize(
    "value", [[1.0], (1.0,), 1.0, None, "x", jax.ShapeDtypeStruct((2,), "float32")]
)
def test_other_values_are_not_arrays(value):
    assert not isinstance(value, Array)


FAMILIES = {
    "Bool": "bool",
    "SInt": "int2 int4 int8 int16 int32 int64",
    "UInt": "uint2 uint4 uint8 uint16 uint32 uint64",
    "Int": "int2 int4 int8 int64 uint2 uint4 uint8 uint64",
    "IntOrBool": "int8 uint8 bool",
    "Float": "float16 float32 float64 longdouble bfloat16 float8_e4m3fn float8_e5m2 "
    "float8_e8m0fnu float6_e2m3fn float4_e2m1fn",
    "Complex": "complex64 complex128",
    "Num": "int4 uint8 float32 bfloat16 complex64",
    "Int8": "int8",
    "UInt32": "uint32",
    "Float32": "float32",
    "BFloat16": "bfloat16",
    "Complex64": "complex64",
}
ALL_DTYPES = sorted({dtype for text in FAMILIES.values() for dtype in text.split()})
OTHER_DTYPES = [
    "str",
    "bytes",
    "object",
    "datetime64[s]",
    "timedelta64[s]",
    "clongdouble",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_dtype_families(family):
    def array(name):
        return np.zeros(1, getattr(ml_dtypes, name, None) or name)

    def expected(name):
        if family == "Num":
            return name != "bool" and name in ALL_DTYPES
        if family == "Int":
            return "int" in name and name in ALL_DTYPES
        if family == "IntOrBool":
            return ("int" in name or name == "bool") and name in ALL_DTYPES
        return name in FAMILIES[family].split()

    accepted = {
        name
        for name in [*ALL_DTYPES, *OTHER_DTYPES]
        if isinstance(array(name), getattr(kt, family))
    }
    assert accepted == {name for name in [*ALL_DTYPES, *OTHER_DTYPES] if expected(name)}


def test_array_accepts_every_dtype():
    for name in OTHER_DTYPES:
        assert isinstance(np.zeros(1, name), Array)
    assert isinstance(np.zeros(1, [("x", "f4")]), Array)
    assert isinstance(jax.random.key(0), Array)


@pytest.mark.parametrize("name", NAMES[1:])
def test_keys_are_no_numbers(name):
    assert not isinstance(jax.random.key(0), getattr(kt, name))


def test_dtype_texts():
    assert str(kt.dtypes.floating) == "np.floating"
    assert str(kt.dtypes.int32) == "np.int32"
    assert str(kt.dtypes.bfloat16) == "jnp.bfloat16"
    assert str(kt.dtypes.pyfloat | kt.dtypes.floating) == "float|np.floating"


def test_dtype_objects_match_values_and_unite():
    assert kt.dtypes.int_like.matches(3)
    assert kt.dtypes.int_like.matches(np.int8(3))
    assert not kt.dtypes.int_like.matches(3.0)
    union = kt.dtypes.int8 | kt.dtypes.int16 | kt.dtypes.int8
    assert union.members() == {kt.dtypes.int8, kt.dtypes.int16}
    assert kt.dtypes.int8 | kt.dtypes.int8 == kt.dtypes.int8


# --------------------------------------------------------------------------------------
# Unions of types
# --------------------------------------------------------------------------------------


def test_united_type_accepts_exactly_what_its_members_accept():
    values = list(_values())
    types_ = [getattr(kt, name)["2 3"] for name in EXPORTED]
    verdicts = [[isinstance(value, type_) for value in values] for type_ in types_]
    known = list(zip(EXPORTED, verdicts))
    pairs = itertools.combinations_with_replacement(known, 2)
    for (left, of_left), (right, of_right) in pairs:
        united = (getattr(kt, left) | getattr(kt, right))["2 3"]
        found = [isinstance(value, united) for value in values]
        assert found == [a or b for a, b in zip(of_left, of_right)], (left, right)


def test_united_type_has_a_readable_name():
    assert repr((Float | kt.UInt8)["h w 3|4"]) == "(Float|UInt8)['h w 3|4']"
    assert repr(Float | Int | kt.Bool) == "(Float|Int|Bool)"


def test_numpy_only_type_without_dtype_narrows_the_other():
    numpy_only = ArrayTypeMeta("NumpyOnly", array_types=(NpArray,))
    united = numpy_only | kt.Float32
    assert isinstance(np.zeros(2, "f4"), united)
    assert not isinstance(np.zeros(2, "f8"), united)
    assert not isinstance(jnp.zeros(2, "f4"), united)


@pytest.mark.parametrize(
    "union",
    [
        lambda: Float["a"] | None,
        lambda: None | Float["a"],
        lambda: Float | int,
        lambda: Float["a"] | Int["a"],
    ],
)
def test_other_unions_are_ordinary(union):
    assert isinstance(union(), types.UnionType)


def test_isinstance_with_an_ordinary_union():
    assert isinstance(None, Float["a"] | None)
    assert isinstance(np.zeros(2), Float["a"] | None)
    assert not isinstance(np.zeros((2, 2)), Float["a"] | None)


# --------------------------------------------------------------------------------------
# Scalars, keys, specs
# --------------------------------------------------------------------------------------

SCALARS = {
    "ScalarBool": [True, np.bool_(True), np.array(True), jnp.array(True)],
    "ScalarInt": [1, True, np.int8(1), np.array(1), jnp.array(1), np.uint8(1)],
    "ScalarFloat": [1.0, np.float32(1), np.array(1.0), jnp.array(1.0, "bfloat16")],
    "ScalarComplex": [1j, np.complex64(1), np.array(1j)],
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_are_python_numbers_or_arrays_without_axes(name):
    for value in SCALARS[name]:
        assert isinstance(value, getattr(kt, name)), value
        assert isinstance(value, kt.Scalar), value
        with_axis = np.asarray(value)[None]
        assert not isinstance(with_axis, getattr(kt, name))


@pytest.mark.parametrize("name", ["Scalar", *SCALARS])
@pytest.mark.parametrize("value", ["1", None, [1], (1,), object()])
def test_wrong_class_for_a_scalar_is_a_type_check_error(name, value):
    @kt.typechecked
    def f(x: getattr(kt, name)):
        return x

    with pytest.raises(kt.KTypeCheckError, match=r"was of type .* ScalarLike"):
        f(value)


def test_wrong_kind_of_number_for_a_scalar():
    assert not isinstance(1, kt.ScalarFloat)
    assert not isinstance(1.0, kt.ScalarInt)
    assert not isinstance(np.array(True), kt.ScalarInt)


def test_float0_counts_as_a_float_scalar():
    assert isinstance(np.zeros((), jax.dtypes.float0), kt.ScalarFloat)


def test_prng_keys():
    new, old = jax.random.key(0), jax.random.PRNGKey(0)
    assert isinstance(new, kt.PRNGKey) and isinstance(old, kt.PRNGKey)
    assert not isinstance(jax.random.split(new), kt.PRNGKey)
    assert isinstance(jax.random.split(new), kt.PRNGKeyArray)
    assert isinstance(new, kt.PRNGKeyArray)
    assert isinstance(jax.random.split(old, 3), kt.PRNGKeyArray)
    for value in (new, old, 3, np.int32(3), [1, 2]):
        assert kt.check_type(value, kt.PRNGKeyLike, nested_ok=True) is value


def test_array_spec_is_what_describes_an_array():
    assert isinstance(jax.ShapeDtypeStruct((2,), "float32"), kt.ArraySpec)
    assert isinstance(types.SimpleNamespace(shape=(), dtype="f4"), kt.ArraySpec)
    assert not isinstance(np.zeros(2), kt.ArraySpec)
    assert not isinstance(object(), kt.ArraySpec)


def test_array_spec_runs_no_property():
    class Loud:
        @property
        def shape(self):
            raise AssertionError("must not be read")

        dtype = shape

    assert isinstance(Loud(), kt.ArraySpec)


def test_dtype_annotation_is_that_of_jax():
    assert kt.DType is jax.typing.DTypeLike


# --------------------------------------------------------------------------------------
# Shape
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [(), (1, 2), [1, 2], (np.int64(3),), (True,)])
def test_sequences_of_ints_are_shapes(value):
    assert isinstance(value, Shape)


@pytest.mark.parametrize("value", ["", "12", b"12", (1.0,), (None,), 3, {1: 2}])
def test_other_values_are_not_shapes(value):
    assert not isinstance(value, Shape)


def test_shape_with_a_spec_binds_dims():
    @kt.typechecked
    def f(shape: Shape["*b t"], x: Float["t {k}"], k: int):
        return kt.dim["*b"]

    assert f((4, 5, 6), np.ones((6, 2)), 2) == (4, 5)
    with pytest.raises(kt.KTypeCheckError, match="argument x"):
        f((4, 5), np.ones((6, 2)), 2)
    with pytest.raises(kt.KTypeCheckError, match="is not a valid shape"):
        f(("a",), np.ones((6, 2)), 2)


def test_misuse_of_shape():
    with pytest.raises(TypeError, match="expects a string"):
        Shape[3]
    with pytest.raises(TypeError, match="redefine shape spec"):
        Shape["a"]["b"]
    with pytest.raises(RuntimeError, match=r"cannot be instantiated.*kt\.shape\('a'\)"):
        Shape("a")
    assert repr(Shape["*b t"]) == "Shape['*b t']"


# --------------------------------------------------------------------------------------
# Pickling
# --------------------------------------------------------------------------------------

PICKLED = [
    Float,
    Float["a b"],
    Float[np.ndarray, "a"],
    kt.XFloat["..."],
    (Float | kt.UInt8)["a"],
    kt.ScalarInt,
    kt.PRNGKey,
    Shape,
    Shape["*b"],
    kt.PyTree,
    kt.PyTree[Float["a"], "$S"],
    Array[np.ndarray, "n", np.float32],
]


@pytest.mark.parametrize("library", [pickle, cloudpickle], ids=lambda m: m.__name__)
@pytest.mark.parametrize("type_", PICKLED, ids=str)
def test_types_survive_pickling(type_, library):
    loaded = pickle.loads(library.dumps(type_))
    assert loaded == type_ and hash(loaded) == hash(type_)
    assert repr(loaded) == repr(type_)


@pytest.mark.parametrize("library", [pickle, cloudpickle], ids=lambda m: m.__name__)
def test_pickled_type_still_checks(library):
    loaded = pickle.loads(library.dumps(Float["n n"]))
    assert isinstance(np.zeros((2, 2)), loaded)
    assert not isinstance(np.zeros((2, 3)), loaded)
