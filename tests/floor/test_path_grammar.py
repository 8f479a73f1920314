"""The text form of paths."""

import pickle
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kauldron import path_grammar
from kauldron.path_grammar import PathSyntaxError, Wildcard, format_path, parse

# ------------------------------------------------------------------------------------
# Random parts and texts
# ------------------------------------------------------------------------------------

_bounds = st.none() | st.integers()
slices = st.builds(slice, _bounds, _bounds, _bounds)
constants = (
    st.text()
    | st.from_regex(r"[^\W\d]\w*", fullmatch=True)
    | st.integers()
    | st.integers(min_value=10**5000, max_value=10**5010)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.booleans()
    | st.none()
    | st.just(...)
)
nested = st.recursive(constants, lambda c: st.lists(c, max_size=3).map(tuple))
parts = nested | slices | st.lists(nested | slices, max_size=4).map(tuple)
wildcards = st.sampled_from(Wildcard)

path_like_text = st.text(alphabet=" \tab01.*[]:,'\"()+-_e\\j\n", max_size=12)


def _types(part):
    """The types in a part: `1`, `1.0` and `True` are equal, and yet different."""
    return [_types(p) for p in part] if isinstance(part, tuple) else type(part)


@given(st.lists(parts | wildcards, max_size=5).map(tuple))
@example(("", "a'b", 'a"b', "a\\", "\n", "\0", "\ud800", "ﬁ", "·", "None"))
@example(((), (0,), ((),), ((1, 2),), (...,), ..., (slice(None),)))
@example((float("inf"), -float("inf"), complex(float("inf"), -1), -0.0, 1e300))
@example((Wildcard.STAR, "*", Wildcard.DOUBLE_STAR, "**"))
def test_printed_paths_parse_back_to_the_same_parts(path):
    parsed = parse(format_path(path))
    assert parsed == path
    assert _types(parsed) == _types(path)


def _parsed_or_syntax_error(text):
    try:
        return parse(text)
    except PathSyntaxError as error:
        return error


@given(st.text(max_size=20) | path_like_text)
@example("1" * 5000)
@example("[" + "1" * 5000 + "]")
@example("[" + "(" * 5000 + ")" * 5000 + "]")
@example("[" + "-" * 5000 + "1]")
@example("[" + "1j+" * 5000 + "1j]")
@example("[1+" + "9" * 400 + ".j]")
@example("a['\ud800']")
@example("a['\0']")
@example("a[\f1]")
@example("a[1 #]")
@example("a['''x'''].b")
def test_any_text_is_a_path_or_a_syntax_error(text):
    outcome = _parsed_or_syntax_error(text)
    if isinstance(outcome, PathSyntaxError):
        assert outcome.text == text
        assert 0 <= outcome.column <= len(text)
        assert "^" in str(outcome)
    else:
        assert parse(format_path(outcome)) == outcome


@given(st.lists(st.sampled_from(["a", "b_1", "[0]", "['x y']", "*"]), max_size=5))
def test_blanks_between_tokens_change_nothing(tokens):
    segments = [t if t.startswith("[") else f" \t. {t}" for t in tokens]
    spaced = " \t".join(segments).lstrip(" \t").removeprefix(".")
    tight = "".join(t if t.startswith("[") else f".{t}" for t in tokens)
    assert parse(f"  {spaced} ") == parse(tight.removeprefix("."))


# ------------------------------------------------------------------------------------
# What texts mean
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("  \t", ()),
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ('a["b"]', ("a", "b")),
        ("a[u'b']", ("a", "b")),
        (r"a['\x41\'']", ("a", "A'")),
        ("größe.π", ("größe", "π")),
        ("a.class.None.True", ("a", "class", "None", "True")),
        ("a[None][True][...]", ("a", None, True, ...)),
        ("a.0", ("a", 0)),
        ("a.+0", ("a", 0)),
        ("a.-1", ("a", -1)),
        ("a.01", ("a", 1)),
        ("0.5", (0, 5)),
        ("[0].a", (0, "a")),
        ("a[0x10][0b11][0o17][1_000]", ("a", 16, 3, 15, 1000)),
        ("a[1.5][1e3][2j][1-2j][-1+2.5j]", ("a", 1.5, 1e3, 2j, 1 - 2j, -1 + 2.5j)),
        ("a[ 1 : 2 ]", ("a", slice(1, 2))),
        ("a[:][::2][-2:]", ("a", slice(None), slice(None, None, 2), slice(-2, None))),
        ("a[..., 0:10, :, -1]", ("a", (..., slice(0, 10), slice(None), -1))),
        ("a[None, ..., 1:]", ("a", (None, ..., slice(1, None)))),
        ("a[0,]", ("a", (0,))),
        ("a[(1,2)]", ("a", (1, 2))),
        ("a[1,2]", ("a", (1, 2))),
        ("a[(1,2),]", ("a", ((1, 2),))),
        ("a[()]", ("a", ())),
        ("*.a.**[0]", (Wildcard.STAR, "a", Wildcard.DOUBLE_STAR, 0)),
        ("a['*']", ("a", "*")),
    ],
)
def test_text_parses_to_parts(text, expected):
    parsed = parse(text)
    assert parsed == expected
    assert _types(parsed) == _types(expected)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a.0", "a[0]"),
        ('a["b"]', "a.b"),
        ("a[ 1 : 2 ]", "a[1:2]"),
        ("a[1:2:]", "a[1:2]"),
        ("a[..., 0 : 10, :, -1]", "a[...,0:10,:,-1]"),
        ("a[(0,)]", "a[0,]"),
        ("a[()]", "a[()]"),
        ("a[...]", "a[...]"),
        ("[0].b", "[0].b"),
        ("x . ** . *", "x.**.*"),
        ("a[1+2j]", "a[1+2j]"),
        ("a[0x10]", "a[16]"),
        ("a['b c']", "a['b c']"),
    ],
)
def test_paths_print_in_canonical_form(text, canonical):
    assert format_path(parse(text)) == canonical


def test_parsing_the_same_text_again_gives_the_same_object():
    assert parse("cached.path[0]") is parse("cached.path[0]")


def test_wildcards_are_not_confused_with_the_keys_star_and_double_star():
    literal, wildcard = parse("['*']"), parse("*")
    assert type(literal[0]) is str
    assert wildcard[0] is Wildcard.STAR


# ------------------------------------------------------------------------------------
# What is not a path
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a..b", 2),
        (".a", 0),
        ("a.", 2),
        (".", 0),
        ("a.[0]", 1),
        ("a[", 1),
        ("a[0", 1),
        ("a]", 1),
        ("a[]", 2),
        ("a[ ]", 2),
        ("a[b]", 2),
        ("é[1,b]", 4),
        ("a[[1]]", 2),
        ("a['x", 2),
        ("a-b", 1),
        ("a/b", 1),
        ("1a", 0),
        ("a b", 2),
        ("a*", 1),
        ("a.b*", 3),
        ("*a", 1),
        ("* *", 2),
        ("***", 2),
        ("a[*]", 2),
        ("a[ **]", 3),
        ("a[b'x']", 2),
        ("a[1.5:2]", 2),
        ("a[None:2]", 2),
        ("a[True:]", 2),
        ("a['x':]", 2),
        ("a[01]", 2),
        ("a[1+2]", 2),
        ("a[-True]", 3),
        ("a[f'x']", 2),
        ("a[1", 1),
        ("a[0]b", 4),
        ("a\nb", 1),
        ("a\n", 1),
        ("a[1,\n2]", 4),
        ("a['x\ny']", 2),
    ],
)
def test_malformed_path_is_an_error_at_the_column(text, column):
    with pytest.raises(PathSyntaxError) as caught:
        parse(text)
    assert caught.value.column == column
    assert isinstance(caught.value, ValueError)
    first, shown, caret = str(caught.value).splitlines()[:3]
    assert f"column {column + 1}" in first
    assert shown.strip() == text.replace("\n", r"\n").strip()
    before = text[:column].replace("\n", r"\n")
    assert caret.index("^") - 4 == len(before)


def test_error_for_dash_proposes_quotes():
    with pytest.raises(PathSyntaxError, match=r'\["a-b"\]'):
        parse("x.a-b")


def test_error_for_slash_proposes_the_dotted_form_and_quotes():
    with pytest.raises(PathSyntaxError, match=r'Write a\.b\.0, or \["a/b/0"\]'):
        parse("a/b/0")


def test_error_for_bare_name_in_brackets_proposes_quotes():
    with pytest.raises(PathSyntaxError, match=r'\["name"\]'):
        parse("a[name]")


def test_error_for_wildcard_in_brackets_shows_both_spellings():
    with pytest.raises(PathSyntaxError, match=r'\.\* for the wildcard, \["\*"\]'):
        parse("a[*]")


def test_syntax_error_survives_pickling_and_takes_a_prefix():
    with pytest.raises(PathSyntaxError) as caught:
        parse("a..b")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    copy.prefix = "--cfg.a..b: "
    assert str(copy).startswith("--cfg.a..b: Invalid path")


# ------------------------------------------------------------------------------------
# Matching and splitting
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a", False),
        ("a", "a.b", False),
        ("a.b", "a.*", True),
        ("a", "a.*", False),
        ("a.b.c", "a.*", False),
        ("a", "a.**", True),
        ("a.b.c", "a.**", True),
        ("c", "**.c", True),
        ("a.b.c", "**.c", True),
        ("a.c.b", "**.c", False),
        ("a[0].b", "**.b", True),
        ("a[0].b", "a.*.b", True),
        ("b", "**.*.b", False),
        ("a.b", "**.*.b", True),
        ("", "**", True),
        ("", "*", False),
        ("a.x.b.y.c", "a.**.b.**.c", True),
        ("a['*']", "a['*']", True),
        ("a.b", "a['*']", False),
    ],
)
def test_matches_follows_glob_rules(path, pattern, expected):
    assert path_grammar.matches(parse(path), parse(pattern)) is expected


def test_matches_is_not_exponential():
    path = ("a",) * 200
    pattern = (Wildcard.DOUBLE_STAR, "a") * 60 + ("b",)
    assert not path_grammar.matches(path, pattern)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1", ("a.b", "1")),
        ("a.b", ("a.b", None)),
        ("a.b=", ("a.b", "")),
        ("a['x=y']=z", ("a['x=y']", "z")),
        ('a["]="].b=c=d', ('a["]="].b', "c=d")),
        ("a=['x']", ("a", "['x']")),
        ("a[=1", ("a[", "1")),
        ("", ("", None)),
    ],
)
def test_split_assignment_splits_at_the_first_equals_outside_of_brackets(
    text, expected
):
    assert path_grammar.split_assignment(text) == expected


@given(st.text(alphabet=string.printable))
def test_split_assignment_loses_nothing(text):
    path, value = path_grammar.split_assignment(text)
    assert (path if value is None else f"{path}={value}") == text
