"""Malformed specs: the right class, the right column, words that help."""

import pytest

import kauldron.ktyping as kt
from kauldron.ktyping.shapes import parsing as e
from kauldron.ktyping.shapes.parsing import parse

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
