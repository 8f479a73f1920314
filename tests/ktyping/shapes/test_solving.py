"""Dims that are computed: compared when known, solved when one name is missing."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kauldron.ktyping.shapes.matching import matcher_for
from kauldron.ktyping.shapes.parsing import parse
from kauldron.ktyping.shapes.sizes import EMPTY_STATE, UNSIZED_DIM, Pending
from kauldron.ktyping.shapes.solving import evaluate


def solve(spec: str, size, **known):
    """What one axis of `size` says: a list of assignments of the new names."""
    state = ({name: (value,) for name, value in known.items()},)
    found = matcher_for(spec).match((size,), state, Pending(settle=True)) or ()
    return [
        {name: sizes[0] for name, sizes in dims.items() if name not in known}
        for dims in found
    ]


@pytest.mark.parametrize(
    "spec, size, known, expected",
    [
        ("a+1", 5, {"a": 4}, [{}]),
        ("a+1", 6, {"a": 4}, []),
        ("h*w", 6, {"h": 2, "w": 3}, [{}]),
        ("(c+1)//2", 3, {"c": 5}, [{}]),
        ("2**k", 8, {"k": 3}, [{}]),
        ("2*a+b**-c", 3, {"a": 1, "b": 1, "c": 1}, [{}]),
        ("2*a+b**-c", 3, {"a": 1, "b": 2, "c": 1}, []),
        ("h/2", 3, {"h": 6}, [{}]),
        ("h/2", 3, {"h": 7}, []),
        ("h//2", 3, {"h": 7}, [{}]),
        ("h%4", 3, {"h": 7}, [{}]),
        ("min(a,b)", 2, {"a": 2, "b": 3}, [{}]),
        ("max(a,b)", 2, {"a": 2, "b": 3}, []),
        ("(a|b)+1", 4, {"a": 9, "b": 3}, [{}]),
        ("#a+1", 2, {"a": 9}, [{}]),
        ("#a+1", 10, {"a": 9}, [{}]),
        ("#a+1", 5, {"a": 9}, []),
    ],
)
def test_known_values_are_compared(spec, size, known, expected):
    assert solve(spec, size, **known) == expected


@pytest.mark.parametrize(
    "spec, size, known, name, value",
    [
        ("a+r", 7, {"r": 2}, "a", 5),
        ("l+a", 7, {"l": 2}, "a", 5),
        ("a-r", 7, {"r": 2}, "a", 9),
        ("l-a", 7, {"l": 9}, "a", 2),
        ("a*r", 12, {"r": 3}, "a", 4),
        ("l*a", 12, {"l": 3}, "a", 4),
        ("a/r", 4, {"r": 3}, "a", 12),
        ("l/a", 4, {"l": 12}, "a", 3),
        ("a//r", 4, {"r": 3}, "a", 12),
        ("l//a", 4, {"l": 13}, "a", 3),
        ("(a+1)*2", 8, {}, "a", 3),
        ("2*a+1", 7, {}, "a", 3),
        ("9-a", 4, {}, "a", 5),
        ("-a+9", 4, {}, "a", 5),
        ("((a-1)*3)//2", 6, {}, "a", 5),
    ],
)
def test_missing_operand_is_found_on_either_side(spec, size, known, name, value):
    assert solve(spec, size, **known) == [{name: value}]


@pytest.mark.parametrize(
    "spec, size, known",
    [
        ("a+7", 5, {}),
        ("a*2", 5, {}),
        ("2**a", 5, {}),
        ("a**2", 5, {}),
        ("l-a", 7, {"l": 3}),
        ("a*z", 5, {"z": 0}),
        ("a//z", 5, {"z": 0}),
        ("a/z", 5, {"z": 0}),
        ("l/a", 0, {"l": 3}),
        ("l%z", 0, {"l": 3, "z": 0}),
        ("l//z", 1, {"l": 3, "z": 0}),
        ("a**z", 5, {"z": 0}),
        ("a**-1", 5, {}),
        ("a**-1", 0, {}),
        ("a**99999999", 5, {}),
        ("9**9**9**9", 5, {}),
    ],
)
def test_no_solution_is_a_mismatch_and_never_another_error(spec, size, known):
    assert solve(spec, size, **known) == []


def test_zero_times_anything_matches_zero_without_binding():
    assert solve("a*z", 0, z=0) == [{}]


def test_unsized_axis_matches_without_binding():
    assert solve("a+1", UNSIZED_DIM) == [{}]
    assert solve("h*w", UNSIZED_DIM) == [{}]


@pytest.mark.parametrize(
    "spec", ["h*w", "a%2", "2**a", "a**2", "min(a,3)", "sum(*b)", "(a+b)*2", "h//2"]
)
def test_what_cannot_be_determined_is_reported_not_refused(spec):
    pending = Pending()
    assert matcher_for(spec).match((6,), EMPTY_STATE, pending) is None
    assert pending


def test_variadic_arguments_of_functions_are_flattened():
    state = ({"b": (2, 3), "h": (4,)},)
    assert matcher_for("sum(*b,h)").match((9,), state, Pending(settle=True)) == state
    assert matcher_for("prod(*b)").match((6,), state, Pending(settle=True)) == state
    assert matcher_for("prod(*b)").match((7,), state, Pending(settle=True)) is None


def test_several_axes_are_not_a_number():
    assert (
        matcher_for("b+1").match((3,), ({"b": (2, 2)},), Pending(settle=True)) is None
    )


def test_expression_dim_with_too_few_axes_is_a_mismatch():
    assert (
        matcher_for("a b+1").match((3,), ({"b": (2,)},), Pending(settle=True)) is None
    )


# --------------------------------------------------------------------------------------
# Random expressions
# --------------------------------------------------------------------------------------


def _expression(names, operators):
    atoms = st.sampled_from([*names, "1", "2", "3"])
    return st.recursive(
        atoms,
        lambda children: st.builds(
            "({}{}{})".format, children, st.sampled_from(operators), children
        ),
        max_leaves=4,
    )


def _python_value(expression, values):
    """What Python computes; true division must be exact."""
    try:
        value = eval(expression, {}, values)
    except ZeroDivisionError:
        return None
    is_size = isinstance(value, (int, float)) and value == int(value) and value >= 0
    return int(value) if is_size and value < 10**6 else None


@given(
    _expression("ab", ["+", "-", "*", "//", "%"]), st.integers(0, 6), st.integers(0, 6)
)
def test_evaluation_agrees_with_python(expression, a, b):
    value = _python_value(expression, {"a": a, "b": b})
    assume(value is not None)
    state = ({"a": (a,), "b": (b,)},)
    assert evaluate(parse(expression), state) == (value,)
    assert matcher_for(expression).match((value,), state, Pending(settle=True)) == state
    assert (
        matcher_for(expression).match((value + 1,), state, Pending(settle=True)) is None
    )


@given(
    _expression("ab", ["+", "-", "*", "/", "//", "**"]),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_every_solution_is_right(expression, a, b):
    value = _python_value(expression, {"a": a, "b": b})
    assume(value is not None)
    for dims in (
        matcher_for(expression).match((value,), ({"b": (b,)},), Pending(settle=True))
        or ()
    ):
        if "a" in dims:
            found = _python_value(expression, {"a": dims["a"][0], "b": b})
            assert found == value


@given(
    _expression("b", ["+", "*"]),
    _expression("b", ["+", "*"]),
    st.integers(0, 6),
    st.integers(1, 6),
)
def test_the_true_value_is_found_where_the_operators_can_be_undone(left, right, a, b):
    expression = f"({left}+a)*{right}-1"
    value = _python_value(expression, {"a": a, "b": b})
    assume(value is not None)
    found = matcher_for(expression).match(
        (value,), ({"b": (b,)},), Pending(settle=True)
    )
    assert found == ({"b": (b,), "a": (a,)},)
