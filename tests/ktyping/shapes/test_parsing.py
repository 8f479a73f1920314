"""Specs: what the parser reads, the canonical text, and errors that help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kauldron.ktyping as kt
from kauldron.ktyping.shapes import parsing as e
from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.parsing import ShapeSpecSyntaxError, parse

# One spec per production of the grammar, with its canonical text.
PRODUCTIONS = {
    "": "",
    "  a   b ": "a b",
    "a\tb\nc": "a b c",
    "7": "7",
    "007": "7",
    "n": "n",
    "*b": "*b",
    "+b": "+b",
    "_": "_",
    "_foo": "_foo",
    "*_": "...",
    "*_foo": "*_foo",
    "+_": "+_",
    "+_foo": "+_foo",
    "...": "...",
    "#5": "#5",
    "#c": "#c",
    "*#b": "*#b",
    "+#b": "+#b",
    "#*b": "*#b",
    "#+b": "+#b",
    "name=4": "4",
    "x?": "x?",
    "a|b?": "a|b?",
    "*b?": "*b?",
    "3|a|b": "(3|a)|b",
    "a+1": "a+1",
    "a-b-c": "(a-b)-c",
    "a-(b-c)": "a-(b-c)",
    "h*w": "h*w",
    "h/2": "h/2",
    "h//2": "h//2",
    "h%2": "h%2",
    "2**k": "2**k",
    "a**b**c": "a**(b**c)",
    "a**-1": "a**-1",
    "-a**2": "-(a**2)",
    "(-a)**2": "(-a)**2",
    "--a": "-(-a)",
    "a*-b": "a*-b",
    "a--b": "a--b",
    "a++b": "a++b",
    "a+*b": "a+*b",
    "a*(*b)": "a*(*b)",
    "2***b": "2***b",
    "a+b*c": "a+b*c",
    "(a+b)*c": "(a+b)*c",
    "(a|b)+1": "(a|b)+1",
    "(a|b)": "a|b",
    "min(a)": "min(a)",
    "max(a,b+1)": "max(a,b+1)",
    "sum(*b,h)": "sum(*b,h)",
    "prod(*b)": "prod(*b)",
    "min((a|b),c)": "min((a|b),c)",
    "*b -1": "*b -1",
}


def _canonical(text: str) -> str:
    return repr(parse(text))


@pytest.mark.parametrize("text", PRODUCTIONS, ids=repr)
def test_canonical_text_of_every_production(text):
    assert _canonical(text) == PRODUCTIONS[text]


@pytest.mark.parametrize("text", PRODUCTIONS, ids=repr)
def test_canonical_text_parses_to_an_equal_spec(text):
    assert parse(_canonical(text)) == parse(text)


@pytest.mark.parametrize(
    "text, expected",
    {
        "a*b": [s.BinaryOpDim("*", s.NamedDims("a"), s.NamedDims("b"))],
        "a *b": [s.NamedDims("a"), s.NamedDims("b", s.ANY_NUMBER)],
        "a +b": [s.NamedDims("a"), s.NamedDims("b", s.ONE_OR_MORE)],
        "a -b": [s.NamedDims("a"), s.NegatedDim(s.NamedDims("b"))],
        "2***b": [
            s.BinaryOpDim("**", s.IntDim(2), s.NamedDims("b", s.ANY_NUMBER)),
        ],
        "a++b": [
            s.BinaryOpDim("+", s.NamedDims("a"), s.NamedDims("b", s.ONE_OR_MORE)),
        ],
    }.items(),
)
def test_star_and_plus_are_sigils_or_operators_by_position(text, expected):
    assert list(parse(text).dims) == expected


@pytest.mark.parametrize(
    "name", ["min", "max", "sum", "prod", "max_len", "summary", "min2", "prod_"]
)
def test_names_that_start_with_a_function_name_are_ordinary_dims(name):
    assert parse(name).dims == (s.NamedDims(name),)


def test_function_takes_one_variadic_argument():
    (dim,) = parse("sum(*b)").dims
    assert dim == s.FunctionDim("sum", (s.NamedDims("b", s.ANY_NUMBER),))


@pytest.mark.parametrize(
    "text, ranks",
    {
        "": (0, 0),
        "a 3": (2, 2),
        "*b c": (1, None),
        "+b c": (2, None),
        "a? b": (1, 2),
        "*a|b": (0, None),
        "h*w c": (2, 2),
    }.items(),
)
def test_lowest_and_highest_rank(text, ranks):
    assert parse(text).ranks == ranks


def test_negated_name_alone_is_refused():
    with pytest.raises(ShapeSpecSyntaxError, match="negative"):
        parse("-b")


# --------------------------------------------------------------------------------------
# Random specs
# --------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "max_len", "sum", "x_1"])
_LENGTHS = st.sampled_from([s.SINGLE, s.ANY_NUMBER, s.ONE_OR_MORE])
_ATOMS = st.one_of(
    st.builds(s.IntDim, st.integers(0, 99), st.booleans()),
    st.builds(s.NamedDims, _NAMES, _LENGTHS, st.booleans()),
    st.builds(s.AnonDims, st.sampled_from(["", "foo"]), _LENGTHS),
)


def _compound(children):
    return st.one_of(
        st.builds(s.BinaryOpDim, st.sampled_from([*s.OPERATORS]), children, children),
        st.builds(s.NegatedDim, children),
        st.builds(
            s.FunctionDim,
            st.sampled_from(s.FUNCTIONS),
            st.lists(children, min_size=1, max_size=3).map(tuple),
        ),
        st.builds(s.ChoiceDim, children, children),
    )


_DIMS = st.recursive(_ATOMS, _compound, max_leaves=6)
_SPECS = st.lists(_DIMS | st.builds(s.OptionalDim, _DIMS), max_size=4).map(
    lambda dims: s.ShapeSpec(tuple(dims))
)


def _is_negated_name_alone(spec: s.ShapeSpec) -> bool:
    (*_, last) = (None, *spec.dims)
    return (
        len(spec.dims) == 1
        and isinstance(last, s.NegatedDim)
        and isinstance(last.child, s.NamedDims)
    )


@given(_SPECS.filter(lambda spec: not _is_negated_name_alone(spec)))
def test_every_spec_is_read_back_from_its_text(spec):
    assert parse(repr(spec)) == spec


@given(st.text(alphabet="ab_13*+#-/%|?().,= \t{}minsu", max_size=12))
def test_any_text_parses_or_is_a_syntax_error(text):
    try:
        spec = parse(text)
    except ShapeSpecSyntaxError as error:
        position = error.position
    else:
        position = 0
        assert parse(repr(spec)) == spec
    assert 0 <= position <= len(text)


@pytest.mark.parametrize(
    "text", ["(" * 5000, "-" * 5000 + "a", "+".join("a" * 5000), "9" * 5000]
)
def test_absurdly_long_specs_are_syntax_errors(text):
    with pytest.raises(ShapeSpecSyntaxError):
        parse(text)


#
# Malformed specs
#


# For each class: a malformed dim, and the offset of the offending character in it.
MISTAKES = [
    (e.WhiteSpaceError, "(a b)", 2),
    (e.WhiteSpaceError, "min(a, b)", 6),
    (e.WhiteSpaceError, "( a)", 1),
    (e.WhiteSpaceError, "x- y", 2),
    (e.WhiteSpaceError, "x |y", 2),
    (e.WhiteSpaceError, "x ?", 2),
    (e.WhiteSpaceError, "x // y", 2),
    (e.WhiteSpaceError, "x %y", 2),
    (e.InvalidCommaError, "a,b", 1),
    (e.InvalidCommaError, "(a,b)", 2),
    (e.InvalidCommaError, "min((a,b),c)", 6),
    (e.PostModifierError, "b*", 1),
    (e.PostModifierError, "c#", 1),
    (e.PostModifierError, "b*#", 1),
    (e.PostModifierError, "(b*)", 2),
    (e.PostModifierError, "min(b*,c)", 5),
    (e.AnonymousFixedDimError, "_3", 1),
    (e.AnonymousBroadcastableDimError, "_#a", 1),
    (e.AnonymousBroadcastableDimError, "#_a", 1),
    (e.ShapeSpecSyntaxError, "a)", 1),
    (e.ShapeSpecSyntaxError, "3d", 1),
    (e.ShapeSpecSyntaxError, "a$b", 1),
    (e.ShapeSpecSyntaxError, "a?b", 2),
    (e.ShapeSpecSyntaxError, "min()", 4),
]


def _error(spec: str) -> e.ShapeSpecSyntaxError:
    with pytest.raises(e.ShapeSpecSyntaxError) as caught:
        parse(spec)
    return caught.value


@pytest.mark.parametrize("prefix, suffix", [("", " y"), ("x ", " y"), ("x ", "")])
@pytest.mark.parametrize("cls, dim, offset", MISTAKES)
def test_class_and_column_wherever_the_mistake_is(cls, dim, offset, prefix, suffix):
    error = _error(prefix + dim + suffix)
    assert type(error) is cls
    assert error.position == len(prefix) + offset


@pytest.mark.parametrize("spec", ["a+", "(a", "min(a", "a|", "2**", "#", "*", "("])
def test_missing_operand_or_parenthesis_is_the_base_class(spec):
    assert type(_error(spec)) is e.ShapeSpecSyntaxError


def test_comma_wins_over_modifier():
    assert type(_error("b*,c")) is e.InvalidCommaError


def test_modifier_wins_over_whitespace():
    assert type(_error("b* c")) is e.PostModifierError


@pytest.mark.parametrize("spec", ["a + b", "a +", "+ b"])
def test_operator_between_spaces_is_a_whitespace_mistake(spec):
    assert type(_error(spec)) is e.WhiteSpaceError


def test_text_shows_label_position_spec_and_caret():
    lines = str(_error("x b* y")).splitlines()
    assert "at position 4" in lines[0] and "modifiers go in front" in lines[0]
    assert lines[1] == "  x b* y"
    assert lines[2] == "     ^"


@pytest.mark.parametrize(
    "spec, words",
    {
        "(a b)": "whitespace only separates dims",
        "a,b": "separate dims with spaces",
        "_3": "fixed and anonymous",
        "#_a": "anonymous",
        "a)": "expected",
    }.items(),
)
def test_explanation_says_what_to_do(spec, words):
    assert words in str(_error(spec))


def test_expected_tokens_are_named_in_words():
    assert "a dimension name, a number" in str(_error("a+"))


def test_syntax_error_is_a_value_error():
    assert issubclass(kt.ShapeSpecSyntaxError, ValueError)


def test_caret_stays_right_when_the_spec_has_newlines():
    lines = str(_error("a\nb*")).splitlines()
    assert lines[1:] == ["  a b*", "     ^"]


# --------------------------------------------------------------------------------------
# When they are reported
# --------------------------------------------------------------------------------------


def test_subscripting_never_raises_and_undecorated_functions_are_left_alone():
    def f(x: kt.Float["a,b"]):
        return x

    assert f(1) == 1


def test_decoration_names_function_and_parameter():
    with pytest.raises(kt.ShapeSpecSyntaxError, match=r"argument 'x' of bad\(\)"):

        @kt.typechecked
        def bad(x: dict[str, kt.Float["a b*"] | None]):
            return x


def test_decoration_names_the_return_annotation():
    with pytest.raises(kt.ShapeSpecSyntaxError, match=r"return annotation of bad\(\)"):

        @kt.typechecked
        def bad() -> kt.Float["a,b"]: ...


def test_bad_field_of_a_dataclass_is_named_at_decoration():
    import dataclasses

    with pytest.raises(kt.ShapeSpecSyntaxError, match="field 'x' of Bad"):

        @kt.typechecked
        @dataclasses.dataclass
        class Bad:
            x: kt.Float["a,b"]


def test_string_annotations_are_not_evaluated_at_decoration():
    @kt.typechecked
    def later(x: "kt.Float['a,b']"):
        return x

    import numpy as np

    with pytest.raises(kt.ShapeSpecSyntaxError, match=r"argument 'x' of later\(\)"):
        later(np.ones(2))


def test_bad_python_in_braces_is_a_syntax_error():
    with pytest.raises(kt.ShapeSpecSyntaxError, match="braces"):

        @kt.typechecked
        def bad(x: kt.Float["a {1 +}"]):
            return x
