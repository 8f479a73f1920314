"""`kt.dim` and `kt.shape`."""

import jax
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float


@pytest.fixture
def dims():
    """A view of a scope with b = (2, 3), empty e, n = 4."""
    scope = kt.ShapeScope(candidates=[{"b": (2, 3), "e": (), "n": (4,)}])
    return scope.dim


def _ambiguous():
    return kt.ShapeScope(
        candidates=[{"n": (1,), "m": (5,)}, {"n": (2,), "k": (6,), "m": (5,)}]
    )


# --------------------------------------------------------------------------------------
# Reading
# --------------------------------------------------------------------------------------


def test_reading_sizes(dims):
    assert dims["n"] == 4 and type(dims["n"]) is int
    assert dims["*n"] == dims["+n"] == (4,)
    assert dims["*b"] == (2, 3)
    assert dims["*e"] == ()


@pytest.mark.parametrize("name", ["b", "e", "+e"])
def test_wrong_number_of_axes_is_a_value_error(dims, name):
    with pytest.raises(ValueError):
        dims[name]


def test_unknown_name_lists_the_known_ones(dims):
    with pytest.raises(KeyError, match=r"Unknown dimension: h.*b, e, n"):
        dims["h"]


@pytest.mark.parametrize("name", ["a+1", "#a", "", "_", "3", None])
def test_invalid_names_are_value_errors(dims, name):
    with pytest.raises(ValueError):
        dims[name]
    with pytest.raises(ValueError):
        dims[name] = 3
    assert name not in dims


def test_ambiguous_dims():
    view = _ambiguous().dim
    with pytest.raises(kt.AmbiguousDimensionError) as caught:
        view["n"]
    assert str(caught.value) == "Dimension 'n' is ambiguous: 1 | 2"
    assert isinstance(caught.value, KeyError)
    with pytest.raises(
        kt.AmbiguousDimensionError, match=r"'k' is ambiguous: unset \| 6"
    ):
        view["k"]
    assert view["m"] == 5


def test_membership_ignores_the_sigil_and_needs_all_candidates(dims):
    assert "b" in dims and "*b" in dims and "+n" in dims
    assert "h" not in dims
    view = _ambiguous().dim
    assert "n" in view and "k" not in view


def test_mapping_protocol(dims):
    assert list(dims) == list(dims.keys()) == ["b", "e", "n"]
    assert dict(dims.items()) == {"b": (2, 3), "e": (), "n": 4}
    assert len(dims) == 3
    assert dims.get("n") == 4 and dims.get("h") is None and dims.get("h", 7) == 7
    assert list(_ambiguous().dim) == ["m"]


# --------------------------------------------------------------------------------------
# Writing
# --------------------------------------------------------------------------------------


def test_writing_sizes(dims):
    dims["h"] = 7
    dims["*c"] = [8, np.int64(4)]
    dims["+d"] = (1,)
    assert (dims["h"], dims["*c"], dims["*d"]) == (7, (8, 4), (1,))
    (b,) = jax.export.symbolic_shape("B")
    dims["s"] = b
    assert dims["s"] is b


def test_same_value_again_is_fine_another_is_not(dims):
    dims["n"] = 4
    with pytest.raises(ValueError, match="Dimension 'n' already exists"):
        dims["n"] = 5


@pytest.mark.parametrize(
    "name, value",
    [("h", (1,)), ("h", "a"), ("h", -1), ("*h", 3), ("+h", ()), ("*h", "ab")],
)
def test_wrong_kind_of_value_is_a_value_error(dims, name, value):
    with pytest.raises(ValueError):
        dims[name] = value


def test_deleting_is_not_supported(dims):
    with pytest.raises(TypeError, match="Deleting dimensions is not supported"):
        del dims["n"]


def test_writing_in_one_call_does_not_leak_into_the_next():
    @kt.typechecked
    def f(x: Float["n"], write):
        if write:
            kt.dim["m"] = 3
        return "m" in kt.dim

    assert [f(np.ones(2), flag) for flag in (False, True, False)] == [
        False,
        True,
        False,
    ]


# --------------------------------------------------------------------------------------
# Printing
# --------------------------------------------------------------------------------------


def test_text_of_dims(dims):
    expected = "dims = {\n  *b: (2, 3)\n  *e: ()\n   n: 4\n}"
    assert str(dims) == repr(dims) == expected


def test_text_of_ambiguous_dims():
    lines = str(_ambiguous().dim).splitlines()
    assert lines == [
        "dims = {",
        "  m: 5",
        "}",
        "ambiguous_dims = {",
        "  n: 1 | 2",
        "  k: unset | 6",
        "}",
    ]


def test_empty_scope_prints_braces():
    assert str(kt.ShapeScope().dim) == "dims = {}"


def test_text_of_unknown_and_symbolic_sizes():
    @kt.typechecked
    def f(x: Float["#a b"]):
        return str(kt.dim)

    (b,) = jax.export.symbolic_shape("B")
    text = []
    spec = jax.ShapeDtypeStruct((1, b), "float32")
    jax.eval_shape(lambda x: text.append(f(x)) or x, spec)
    assert text == ["dims = {\n  a: #\n  b: &B\n}"]


def test_structures_are_not_listed():
    with kt.typechecked():
        kt.check_type({"a": 1}, kt.PyTree[int, "$S"])
        assert str(kt.dim) == "dims = {}"


# --------------------------------------------------------------------------------------
# kt.shape
# --------------------------------------------------------------------------------------


@kt.typechecked
def evaluate(x: Float["*b h w"], spec: str):
    return kt.shape(spec)


@pytest.mark.parametrize(
    "spec, expected",
    {
        "": (),
        "*b h": (2, 3, 4),
        "+b": (2, 3),
        "h*w 7": (24, 7),
        "h/2": (2,),
        "h//3 h%3": (1, 1),
        "2**h": (16,),
        "*b -1": (2, 3, -1),
        "-h+9": (5,),
        "min(h,w) max(h,w)": (4, 6),
        "sum(*b) prod(*b,h)": (5, 24),
        "n=3": (3,),
    }.items(),
)
def test_evaluation(spec, expected):
    result = evaluate(np.ones((2, 3, 4, 6)), spec)
    assert result == expected
    assert type(result) is tuple and all(type(size) is int for size in result)


def test_negative_powers_of_one():
    @kt.typechecked
    def f(a: Float["a b c"]) -> Float["2*a+b**-c"]:
        assert kt.shape("2*a+b**-c") == (3,)
        assert kt.shape("(0-b)**-1 (0-b)**-2") == (-1, 1)
        return np.ones(3)

    f(np.ones((1, 1, 1)))


@pytest.mark.parametrize(
    "spec, words",
    {
        "z": r"No possible shape found for 'z'.*No value known for 'z'.*\['b', 'h', 'w'\]",
        "b": "length 2",
        "b+1": "length 2",
        "*b+1": "exactly one",
        "h/3": "not an integer",
        "h//0": "not an integer",
        "h%0": "not an integer",
        "h**-1": "not an integer",
        "(h-h)**-1": "not an integer",
        "#h": "broadcastable",
        "#3": "broadcastable",
        "_": "anonymous",
        "...": "anonymous",
        "h?": "optional",
        "h|w": "OR operator",
        "9**9**9": "not an integer size",
    }.items(),
)
def test_what_cannot_be_evaluated_says_why(spec, words):
    with pytest.raises(kt.ShapeError, match=words):
        evaluate(np.ones((2, 3, 4, 6)), spec)


def test_candidates_must_agree():
    scope = kt.ShapeScope(
        candidates=[{"n": (1,), "m": (2,)}, {"n": (2,), "m": (2,)}, {}]
    )
    with scope:
        assert kt.shape("m") == (2,)
        with pytest.raises(kt.ShapeError, match=r"is ambiguous: \(1,\) \| \(2,\)"):
            kt.shape("n")


def test_broadcast_dim_seen_as_one_evaluates_to_one():
    @kt.typechecked
    def f(x: Float["#c"]):
        return kt.shape("c")

    assert f(np.ones(1)) == (1,)


def test_unsized_axis_cannot_be_evaluated():
    with kt.typechecked():
        kt.check_type(_UnsizedSpec(), kt.ArraySpec["b c"])
        assert kt.shape("c") == (3,)
        assert kt.dim["b"] is kt.UNKNOWN_DIM
        with pytest.raises(kt.ShapeError, match="size of 'b' is not statically known"):
            kt.shape("b")


class _UnsizedSpec:
    shape = (None, 3)
    dtype = "float32"


def test_symbolic_sizes_evaluate_to_symbolic_sizes():
    shapes = []

    @kt.typechecked
    def f(x: Float["b t"]):
        shapes.append(kt.shape("b*t min(b,t) b+1"))
        return x

    b, t = jax.export.symbolic_shape("B, T")
    jax.eval_shape(f, jax.ShapeDtypeStruct((b, t), "float32"))
    assert [str(size) for size in shapes[0]] == ["B*T", "min(B, T)", "B + 1"]
