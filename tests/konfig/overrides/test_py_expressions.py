"""`py::` expressions: data, calls and constants, nothing evaluated."""

import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig
from kauldron.konfig.overrides.py_expressions import parse_py


def call(qualname, *args, **kwargs):
    positional = {str(i): arg for i, arg in enumerate(args)}
    return konfig.ConfigDict({"__qualname__": qualname, **positional, **kwargs})


def const(qualname):
    return konfig.ConfigDict({"__const__": qualname})


@pytest.mark.parametrize(
    "text, value",
    [
        ("1", 1),
        ("-1", -1),
        ("+1", 1),
        ("0x1F", 31),
        ("0o17", 15),
        ("0b11", 3),
        ("1_000", 1000),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("2j", 2j),
        ("1-2j", 1 - 2j),
        ("'a'", "a"),
        ('"a\\n"', "a\n"),
        ("'a' 'b'", "ab"),
        ("b'x'", b"x"),
        ("True", True),
        ("None", None),
        ("...", ...),
        ("[1, None, 2]", [1, None, 2]),
        ("[]", []),
        ("()", ()),
        ("(1,)", (1,)),
        ("(1)", 1),
        ("( 1 , 2 )", (1, 2)),
        ("{1, 2}", {1, 2}),
        ("{'a': [1], 2: {}}", {"a": [1], 2: {}}),
        ("[1,\n 2,\n]", [1, 2]),
    ],
)
def test_data_reads_as_in_python(text, value):
    result = parse_py(f"py::{text}")
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    "text, node",
    [
        ("optax.adam(1e-3)", call("optax:adam", 1e-3)),
        ("optax:adam(1e-3, b1=.9,)", call("optax:adam", 1e-3, b1=0.9)),
        ("a.b:c.d()", call("a.b:c.d")),
        ("a.b.c", const("a.b:c")),
        ("a.b:c.d", const("a.b:c.d")),
        ("np.float32", const("numpy:float32")),
        ("np.random:normal", const("numpy:random.normal")),
        ("np.random.normal", const("numpy:random.normal")),
        (
            'kd.data.Elements(keep=["a"])',
            call("kauldron.kd:data.Elements", keep=["a"]),
        ),
        ("m.f(n=m:g(x=m.h))", call("m:f", n=call("m:g", x=const("m:h")))),
        ("(m.f)(1)", call("m:f", 1)),
        ("m . f ( 1 )", call("m:f", 1)),
        ("größe.maß", const("größe:maß")),
    ],
)
def test_names_and_calls_become_nodes(text, node):
    assert parse_py(text) == node


def test_nodes_may_stand_anywhere_in_data():
    value = parse_py("{'a': (m.f(1), [m:g]), 'b': m.c:d}")
    assert value["a"][0] == call("m:f", 1)
    assert value["a"][1][0] == const("m:g")
    assert value["b"] == const("m.c:d")


def test_registered_aliases_are_expanded():
    konfig.register_aliases({"my_far_away_project.parts": "parts_of_test"})
    node = parse_py("parts_of_test.Encoder(3)")
    assert node.__qualname__ == "my_far_away_project.parts:Encoder"


def test_nothing_is_imported():
    parse_py("a_module_that_is_not_there.f(xml.dom.minidom.parse)")
    assert "a_module_that_is_not_there" not in sys.modules


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "empty"),
        ("  ", "empty"),
        ("adam", "names no module"),
        ("adam(1)", "names no module"),
        ("[1, 2", "'[' was never closed"),
        ("m.f(1", "'(' was never closed"),
        ("1]", "']' was never opened"),
        ("1),(2", "')' was never opened"),
        ("1, 2", "parentheses"),
        ("1 2", ""),
        ("m.f(a=1, 2)", "positional argument follows keyword argument"),
        ("m.f(a=1, a=2)", "given twice"),
        ("m.f(*m.x)", "'*'"),
        ("m.f(**m.x)", "'**'"),
        ("[*m.x]", "'*'"),
        ("{**m.x}", "'**'"),
        ("m.x + 1", "arithmetic"),
        ("1 + 1", "arithmetic"),
        ("-m.x", "sign"),
        ("not m.x", "operator"),
        ("m.x[0]", "index"),
        ("m.f()()", "dotted name"),
        ("'a'.join(m.x)", "dotted name"),
        ("lambda: 1", ""),
        ("[x for x in m.y]", "ListComp"),
        ("f'{m.x}'", "f-string"),
        ("m.x if m.y else m.z", "IfExp"),
        ("m:a:b", "colon"),
        ("m.x # no", "comment"),
        ("'abc", ""),
        ("{[1]: 2}", "key"),
        ("{m.x: 2}", "key"),
        ("{1: 2, 1: 3}", "given twice"),
        ("{[1]}", "hashable"),
        ("a.class", ""),
        ("import os", ""),
        ("\x00", ""),
    ],
)
def test_malformed_text_is_a_value_error_that_names_the_expression(text, reason):
    with pytest.raises(ValueError) as caught:
        parse_py(f"py::{text}")
    message = str(caught.value)
    assert repr(f"py::{text}") in message
    assert "position" in message
    assert reason in message


def test_error_points_at_the_place():
    with pytest.raises(ValueError) as caught:
        parse_py("py::m.f(a=1, b=oops)")
    lines = str(caught.value).splitlines()
    assert "position 12" in lines[0]
    assert lines[-1].index("^") == lines[-2].index("oops")


def test_deep_nesting_is_an_error_not_a_crash():
    with pytest.raises(ValueError):
        parse_py("[" * 5000 + "]" * 5000)


def error_of(text):
    """The message of the error that a text gives; empty if it can be read."""
    try:
        parse_py(text)
    except ValueError as error:
        return str(error)
    return ""


@hypothesis.given(st.text(max_size=40))
def test_any_text_gives_a_value_or_a_value_error(text):
    assert "position" in (error_of(text) or "position")


_PIECES = [
    "m.f",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "=",
    "1",
    "'a'",
    "a",
    " ",
    "-",
]


@hypothesis.given(st.lists(st.sampled_from(_PIECES), max_size=14))
def test_any_tokens_give_a_value_or_a_value_error(pieces):
    assert "position" in (error_of("".join(pieces)) or "position")
