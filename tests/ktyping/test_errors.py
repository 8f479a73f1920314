"""The text of failed checks."""

import contextlib
import gc
import io
import os
import pickle
import subprocess
import sys
import textwrap
import types
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float, Int, UInt8
from kauldron.ktyping.values import format_annotation, format_value


def failure(function, *args, **kwargs) -> kt.KTypeCheckError:
    with pytest.raises(kt.KTypeCheckError) as caught:
        function(*args, **kwargs)
    return caught.value


@kt.typechecked
def loss(
    preds: Float["*b n"], targets: Float["*b n"], eps: float = 1e-3, *, k: int = 3
) -> Float[""]:
    return preds.sum()


LINE = loss.__wrapped__.__code__.co_firstlineno


# --------------------------------------------------------------------------------------
# The whole text
# --------------------------------------------------------------------------------------


def test_five_blocks_in_order():
    error = failure(loss, np.ones((16, 3)), np.ones((32, 3), "f4"), k=5)
    assert str(error) == textwrap.dedent(f"""\
        argument targets = np.f32[32 3] has shape (32, 3) which is not shape-compatible with '*b n' (required by Float['*b n']).
          axis 0: *b is (32,), but *b = (16,) was bound by argument 'preds'

        Origin: function 'loss' at {__file__}:{LINE}

        Arguments:
          preds: Float['*b n'] = np.f64[16 3]
        > targets: Float['*b n'] = np.f32[32 3]
          k: int = 5

          eps: float = 0.001

        Return: Float['']

        Dim Assignments:
         - {{b: 16, n: 3}}""")


def test_failing_result_is_shown_in_its_block():
    @kt.typechecked
    def f(x: Float["*b n"]) -> Float["*b"]:
        return x

    text = str(failure(f, np.ones((6, 4, 10))))
    assert text.startswith(
        "return value np.f64[6 4 10] has shape (6, 4, 10) which is not"
    )
    assert "rank 3, but '*b' with *b = (6, 4) needs rank 2" in text
    assert "\n\nReturn: Float['*b'] = np.f64[6 4 10]\n\n" in text
    assert text.endswith("Dim Assignments:\n - {*b: (6, 4), n: 10}")


def test_without_annotations_and_arguments_blocks_are_left_out():
    @kt.typechecked
    def f():
        kt.check_type(3, str)

    text = str(failure(f))
    assert "Arguments:" not in text and "Return:" not in text
    assert "\n\n\n" not in text
    assert text.startswith("value 3 is not an instance of str\n\nOrigin: function 'f'")


def test_absent_extra_arguments_count_as_defaults():
    @kt.typechecked
    def f(x: int, *args: int, **kw: int): ...

    assert "Arguments:\n> x: int = 'a'\n\n  args: int = ()\n  kw: int = {}" in str(
        failure(f, "a")
    )


def test_candidates_are_listed_in_a_stable_order_and_cut():
    @kt.typechecked
    def f(x: Float["*a *b *c"], y: int): ...

    text = str(failure(f, np.ones((1, 2)), "wrong"))
    assert (
        "Multiple Dim Assignment Candidates:\n - {*a: (), *b: (), *c: (1, 2)}\n" in text
    )
    assert text.count("\n - {") == 6
    text = str(failure(f, np.ones((1, 2, 3, 4)), "wrong"))
    assert text.count("\n - {") == 10
    assert text.endswith(" ... and 5 more")


def test_two_processes_print_the_same_text():
    script = textwrap.dedent("""
        import numpy as np
        import kauldron.ktyping as kt

        @kt.typechecked
        def f(x: kt.Float["*a *b"] | kt.Float["3|k c"], y: kt.PyTree[int, "$S"], z: int): ...

        try:
            f(np.ones((3, 3)), {"b": 1, "a": 2}, "x")
        except kt.KTypeCheckError as error:
            print(error)
    """)
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(script, {"__name__": "__main__"})
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"  # not that of here
    there = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert here.getvalue() == there
    assert "Multiple Dim Assignment Candidates" in there


def test_methods_show_their_qualified_name():
    class Encoder:
        @kt.typechecked
        def __call__(self, x: int):
            return kt.get_current_scope().source.description

    text = str(failure(Encoder(), "a"))
    assert "Origin: function '__call__' (Encoder.__call__) at " in text
    assert Encoder()(1) == "function '__call__'"


@pytest.mark.parametrize("decorator", [classmethod, staticmethod])
def test_kind_of_method_is_named(decorator):
    class Holder:
        @kt.typechecked
        @decorator
        def f(*args: int): ...

    assert f"Origin: {decorator.__name__} 'f'" in str(failure(Holder.f, "a"))


def test_block_is_named_with_the_line_of_the_with():
    with kt.typechecked():
        line = sys._getframe().f_lineno - 1
        error = failure(kt.check_type, 3, str, nested_ok=True)
    assert f"Origin: typechecked context at {__file__}:{line}" in str(error)


def test_no_internal_names_in_messages():
    @kt.typechecked
    def f(x: kt.XFloat["n"] | kt.PyTree[kt.ScalarInt] | kt.PRNGKey | None): ...

    text = str(failure(f, "a"))
    assert "kauldron.ktyping" not in text.replace(__file__, "")
    assert "MISSING" not in text and "<class" not in text


# --------------------------------------------------------------------------------------
# Reasons
# --------------------------------------------------------------------------------------


def reason(value, annotation) -> str:
    with kt.typechecked():
        kt.dim["n"] = 3
        error = failure(kt.check_type, value, annotation, nested_ok=True)
    return str(error).split("\n\n")[0].removeprefix(f"value {format_value(value)} ")


@pytest.mark.parametrize(
    "value, annotation, expected",
    [
        (
            [1.0],
            Float["n"],
            "was of type list which is not an instance of JaxArray|NpArray "
            "(required by Float['n']).",
        ),
        (
            np.ones(3, "i4"),
            Float["n"],
            "has dtype 'int32' which is not dtype-compatible with np.floating "
            "(required by Float['n'])",
        ),
        (
            np.ones((3, 4)),
            Float["n"],
            "has shape (3, 4) which is not shape-compatible with 'n' "
            "(required by Float['n']).\n  rank 2, but 'n' needs rank 1",
        ),
        (
            np.ones(4),
            Float["n"],
            "has shape (4,) which is not shape-compatible with 'n' "
            "(required by Float['n']).\n"
            "  axis 0: n is 4, but n = 3 was bound earlier in this scope",
        ),
        (
            "x",
            Float["n"] | Int["n"] | None,
            "was of type str which is not an instance of JaxArray|None|NpArray "
            "(required by Float['n'] | Int['n'] | None).",
        ),
        (
            np.ones(3, bool),
            Float["n"] | Int["n"],
            "has dtype 'bool' which is not dtype-compatible with np.floating|np.integer "
            "(required by Float['n'] | Int['n'])",
        ),
        (
            np.ones((2, 2)),
            Float["n"] | Float["n 5"],
            "has shape (2, 2) which is not shape-compatible with any of ['n', 'n 5'] "
            "(required by Float['n'] | Float['n 5']).",
        ),
        (
            np.ones(3, "i4"),
            Float["n"] | Int["n 5"],
            "did not match any of its annotations due to a combination of:\n"
            "  - has dtype 'int32' which is not dtype-compatible with np.floating "
            "(required by Float['n'])\n"
            "  - has shape (3,) which is not shape-compatible with 'n 5' "
            "(required by Int['n 5']).",
        ),
        (
            np.ones((6, 1), "u1"),
            (Float | UInt8)["h 3|4"],
            "has shape (6, 1) which is not shape-compatible with 'h 3|4' "
            "(required by (Float|UInt8)['h 3|4']).\n  axis 1: '3|4' cannot be 1",
        ),
        (
            np.ones(5),
            Float["n+1"],
            "has shape (5,) which is not shape-compatible with 'n+1' "
            "(required by Float['n+1']).\n  axis 0: 'n+1' is 4, got 5",
        ),
        (
            np.ones(5),
            Float["7"],
            "has shape (5,) which is not shape-compatible with '7' "
            "(required by Float['7']).\n  axis 0: expected 7, got 5",
        ),
    ],
)
def test_reason(value, annotation, expected):
    assert reason(value, annotation) == expected


def test_binding_argument_is_named_for_a_single_dim():
    @kt.typechecked
    def f(preds: Float["b"], targets: Float["b"]): ...

    text = str(failure(f, np.ones(16), np.ones(32)))
    assert "axis 0: b is 32, but b = 16 was bound by argument 'preds'" in text


def test_union_of_containers_lists_each_member():
    text = reason([np.ones(4)], list[Float["n"]] | Float["n"])
    assert text.startswith(
        "did not match any element in the union:\n  list[Float['n']]: item 0"
    )


def test_path_is_innermost_first():
    @kt.typechecked
    def f(x: dict[str, list[Float["a b"]]]): ...

    text = str(failure(f, {"k": [np.ones(3, "f4")]}))
    assert text.startswith(
        "item 0 of value of key 'k' of argument x = {'k': [np.f32[3]]} has shape (3,) which"
    )


# --------------------------------------------------------------------------------------
# The exception object
# --------------------------------------------------------------------------------------


def test_attributes():
    error = failure(loss, np.ones((16, 3)), np.ones((32, 3)))
    assert error.highlight == "targets"
    assert error.arg_info["preds"] == ("np.f64[16 3]", Float["*b n"], False)
    assert error.arg_info["eps"] == ("0.001", float, True)
    assert [dict(c) for c in error.candidates] == [{"b": (16,), "n": (3,)}]
    assert error.return_annotation == Float[""]
    assert repr(error.return_value) == "MISSING"
    assert error.definition_source.line == LINE
    assert error.entry_source == error.definition_source
    for block in (
        "origin_block",
        "arguments_block",
        "return_block",
        "candidates_block",
    ):
        assert getattr(error, block) in str(error)
    with pytest.raises(AttributeError):
        error.no_such_attribute


def test_text_is_made_only_when_asked_for():
    class Loud:
        def __repr__(self):
            raise AssertionError("not yet")

    error = failure(loss, Loud(), np.ones(3))
    assert "argument preds = <Loud>" in str(error)


def test_values_live_only_as_long_as_the_exception():
    array = np.ones((16, 3))
    reference = weakref.ref(array)
    error = failure(loss, array, "wrong")
    str(error)
    error.__traceback__ = None
    del array, error
    gc.collect()
    assert reference() is None


def test_error_can_be_sent_to_another_process():
    error = failure(loss, np.ones((16, 3)), np.ones((32, 3)))
    loaded = pickle.loads(pickle.dumps(error))
    assert type(loaded) is kt.KTypeCheckError
    assert str(loaded) == str(error)


class _TypeguardError(Exception):
    """What matters of typeguard's class, which is no dependency: it wants a text."""

    def __init__(self, message: str):
        super().__init__(message)


def test_error_is_caught_as_a_typeguard_error_if_typeguard_is_loaded(monkeypatch):
    typeguard = sys.modules.get("typeguard") or types.ModuleType("typeguard")
    if not hasattr(typeguard, "TypeCheckError"):
        typeguard.TypeCheckError = _TypeguardError
    monkeypatch.setitem(sys.modules, "typeguard", typeguard)
    with pytest.raises(typeguard.TypeCheckError) as caught:
        loss(3, 4)
    assert isinstance(caught.value, kt.KTypeCheckError)
    assert "argument preds" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_error_is_caught_as_an_error_of_the_real_typeguard():
    typeguard = pytest.importorskip("typeguard", reason="typeguard is not installed")
    with pytest.raises(typeguard.TypeCheckError, match="argument preds"):
        loss(3, 4)


def test_mutated_value_does_not_break_the_text():
    @kt.typechecked
    def f(x: list[int]): ...

    value = ["a"]
    error = failure(f, value)
    value.clear()
    assert "does not match list[int]" in str(error)


# --------------------------------------------------------------------------------------
# Values and annotations as text
# --------------------------------------------------------------------------------------


class _Broken:
    def __repr__(self):
        raise ValueError("broken")


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.ones((2, 3), "f4"), "np.f32[2 3]"),
        (jnp.ones((), "int32"), "jax.i32[]"),
        (np.ones(1, "?"), "np.bool_[1]"),
        (np.ones(1, "u1"), "np.ui8[1]"),
        (np.ones(1, ml_dtypes.bfloat16), "np.bf16[1]"),
        (np.ones(1, ml_dtypes.int4), "np.i4[1]"),
        (np.ones(1, ml_dtypes.float8_e4m3fn), "np.f8_e4m3fn[1]"),
        (np.ones(1, "c8"), "np.complex64[1]"),
        (np.array(["a"]), "np.str[1]"),
        (np.array([None]), "np.str[1]"),
        (np.zeros(1, "M8[s]"), "np.datetime[1]"),
        (np.zeros(1, "m8[s]"), "np.timedelta[1]"),
        (np.ones(1, "longdouble"), "np.f128[1]"),
        (jax.random.key(0), "jax.key<fry>[]"),
        (jax.ShapeDtypeStruct((2, 16), "float32"), "ShapeDtypeStruct.f32[2 16]"),
        (types.SimpleNamespace(shape=(None,), dtype="int32"), "SimpleNamespace.i32[_]"),
        ({"k": [np.ones(3)]}, "{'k': [np.f64[3]]}"),
        ((np.ones(3),), "(np.f64[3],)"),
        ("x" * 100, "'" + "x" * 35 + "...'"),
        ("a\nb", r"'a\nb'"),
        (_Broken(), "<_Broken>"),
        (object(), "<object object>"),
        ([_Broken()], "<list>"),
    ],
)
def test_values_as_text(value, expected):
    assert format_value(value) == expected


def test_symbolic_sizes_as_text():
    n, _ = jax.export.symbolic_shape("N, M")
    struct = jax.ShapeDtypeStruct((n, 16), "float32")
    assert format_value(struct) == "ShapeDtypeStruct.f32[N 16]"


def test_long_text_is_cut_to_forty_characters():
    assert len(format_value(list(range(100)))) == 40


def _annotations():
    import typing
    from collections.abc import Callable

    return {
        "int": int,
        "None": None,
        "int | None": typing.Optional[int],  # noqa: UP045
        "int | str": int | str,
        "list[int]": list[int],
        "dict[str, Float['a']]": dict[str, Float["a"]],
        "tuple[int, ...]": tuple[int, ...],
        "tuple[()]": tuple[()],
        "Callable[[int], str]": Callable[[int], str],
        "Callable[..., str]": Callable[..., str],
        "Literal['a', 1]": typing.Literal["a", 1],
        "PyTree[int | str, '$S']": kt.PyTree[int | str, "$S"],
        "(Float|UInt8)['a']": (Float | UInt8)["a"],
        "Later": typing.ForwardRef("Later"),
        "Any": typing.Any,
        "float | str": (float, str),
        "Array": jax.Array,
    }


@pytest.mark.parametrize("expected", _annotations())
def test_annotations_as_text(expected):
    annotation = _annotations()[expected]
    assert format_annotation(annotation) == expected


def test_traceback_shows_the_failed_check_alone():
    error = failure(loss, np.ones((2, 3)), np.ones((2, 4)))
    assert error.__context__ is None
