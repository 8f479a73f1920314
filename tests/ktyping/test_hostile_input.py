"""Whatever comes in: a right answer or a documented exception, and nothing changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kauldron.ktyping as kt
from kauldron.ktyping import Float

DOCUMENTED = (kt.KTypeCheckError, kt.ShapeError, kt.ShapeSpecSyntaxError)

_TOKENS = [
    "a",
    "b",
    "*a",
    "+b",
    "#a",
    "*#b",
    "_",
    "...",
    "0",
    "1",
    "2",
    "3",
    "?",
    "|",
    "+",
]
_TOKENS += [
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "(",
    ")",
    "min(",
    "sum(",
    ",",
    " ",
    " ",
    " ",
]
_SPECS = st.lists(st.sampled_from(_TOKENS), max_size=10).map("".join)
_SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(_SPECS, _SHAPES, _SHAPES)
def test_checking_random_specs(spec, first, second):
    with kt.typechecked():
        for shape in (first, second):
            before = str(kt.dim)
            try:
                kt.check_type(np.zeros(shape), Float[spec])
                text = "fits"
            except DOCUMENTED as error:
                text = str(error)
            assert text
            assert text == "fits" or str(kt.dim) == before


@given(_SPECS, _SHAPES)
def test_evaluating_random_specs(spec, shape):
    with kt.ShapeScope(candidates=[{"a": shape, "b": (2,)}, {"a": (3,)}]):
        try:
            result = kt.shape(spec)
        except DOCUMENTED:
            result = ()
        assert all(type(size) is int for size in result)


@given(st.text(max_size=8))
def test_any_text_as_a_dim_name(name):
    with kt.ShapeScope(candidates=[{"a": (1,)}]):
        if name not in kt.dim:
            with pytest.raises((KeyError, ValueError)):
                kt.dim[name]
        else:
            assert kt.dim[name] in (1, (1,))


class _Raising:
    """Whatever is asked of it raises."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    @property
    def dtype(self):
        raise RuntimeError("dtype")


class _Lying:
    """Looks like an array, but is none."""

    shape = "not a shape"
    dtype = object()
    __array_interface__ = None


class _BadEquality:
    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


@pytest.mark.parametrize(
    "make",
    [
        _Raising,
        _Lying,
        _BadEquality,
        lambda: float("nan"),
        lambda: type,
        lambda: "text",
    ],
    ids=["raising", "lying", "bad equality", "nan", "type", "text"],
)
@pytest.mark.parametrize(
    "annotation",
    [
        Float["n"],
        Float["n"] | int,
        kt.ScalarInt,
        kt.Shape["n"],
        list[Float["n"]],
        dict[str, int],
        kt.PyTree[int],
        kt.PRNGKeyLike,
    ],
    ids=str,
)
def test_strange_values_are_refused_with_a_message(make, annotation):
    @kt.typechecked
    def f(x: annotation): ...

    with pytest.raises(kt.KTypeCheckError) as caught:
        f(make())
    assert "argument x" in str(caught.value)


def test_huge_exponents_and_numbers_end_quickly():
    with kt.typechecked():
        for spec in ("a**999999999", "999999999**a", "2**2**2**2**2", "9**9**9"):
            assert not kt.isinstance(np.zeros(5), Float[spec])


def test_zero_sized_arrays():
    @kt.typechecked
    def f(x: Float["*b h*w"], y: Float["h w"]) -> Float["*b"]:
        return x.sum(-1)

    assert f(np.zeros((0, 0)), np.zeros((0, 3))).shape == (0,)


def test_arrays_of_high_rank():
    @kt.typechecked
    def f(x: Float["*a b"], y: Float["*a"]):
        return len(kt.dim["*a"])

    assert f(np.zeros((1,) * 30), np.zeros((1,) * 29)) == 29
