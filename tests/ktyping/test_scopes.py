"""Who sees which dims: visibility, blocks, transparent scopes, manual scopes."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float


def undecorated_helper():
    return kt.dim["n"]


def helper_that_may_look_up():
    return kt.shape("n", nested_ok=True)


# --------------------------------------------------------------------------------------
# Visibility
# --------------------------------------------------------------------------------------


@kt.typechecked
def uses(x: Float["n"], how):
    if how == "lambda":
        return (lambda: (lambda: kt.dim["n"])())()
    if how == "list":
        return [kt.dim["n"] for _ in range(1)][0]
    if how == "set":
        return {kt.dim["n"] for _ in range(1)}.pop()
    if how == "dict":
        return {0: kt.dim["n"] for _ in range(1)}[0]
    if how == "generator expression":
        return next(kt.dim["n"] for _ in range(1))
    if how == "through a library":
        return list(map(lambda _: kt.shape("n")[0], [0]))[0]  # noqa: C417
    if how == "helper":
        return undecorated_helper()
    if how == "nested_ok":
        return helper_that_may_look_up()[0]
    if how == "nested def":

        def nested():
            return kt.dim["n"]

        return nested()
    raise AssertionError(how)


@pytest.mark.parametrize(
    "how",
    [
        "lambda",
        "list",
        "set",
        "dict",
        "generator expression",
        "through a library",
        "nested_ok",
    ],
)
def test_dims_are_visible_in(how):
    assert uses(np.ones(3), how) == 3


@pytest.mark.parametrize(
    "how, name", [("helper", "undecorated_helper"), ("nested def", "nested")]
)
def test_dims_are_not_visible_in(how, name):
    with pytest.raises(kt.NoActiveScopeError) as caught:
        uses(np.ones(3), how)
    text = str(caught.value)
    assert f">> {name}: ---" in text
    assert "uses: ACTIVE SCOPE" in text
    assert text.endswith(f"add @kt.typechecked to {name}(), or pass nested_ok=True")
    assert "kauldron" not in text


@pytest.mark.parametrize(
    "ask",
    [
        lambda: kt.dim["n"],
        lambda: kt.shape("n"),
        lambda: kt.check_type(np.ones(2), Float["n"]),
        lambda: kt.isinstance(np.ones(2), Float["n"]),
        lambda: kt.get_current_scope(),
        lambda: str(kt.dim),
        lambda: kt.shape("n", nested_ok=True),
    ],
)
def test_without_any_scope_there_is_an_error(ask):
    with pytest.raises(kt.NoActiveScopeError):
        ask()


def test_check_type_nested_ok_without_a_scope_forgets():
    assert kt.check_type(3, int, nested_ok=True) == 3
    kt.check_type(np.ones(2), Float["n"], nested_ok=True)
    kt.check_type(np.ones(3), Float["n"], nested_ok=True)


def test_builtin_isinstance_uses_the_top_scope_whoever_opened_it():
    def helper(x):
        return isinstance(x, Float["n"])

    @kt.typechecked
    def f(x: Float["n"]):
        return helper(np.ones(2)), helper(np.ones(3))

    assert f(np.ones(3)) == (False, True)
    assert helper(np.ones(7))


def test_marked_frames_count_as_owners_or_are_passed_over():
    def owner():
        __ktyping_scope_counter__ = 1  # noqa: F841
        return kt.dim["n"]

    def ignored():
        __ktyping_ignore_frame__ = True  # noqa: F841
        return kt.dim["n"]

    with kt.typechecked():
        kt.dim["n"] = 3
        assert owner() == 3
        assert ignored() == 3


def test_under_a_debugger_any_frame_may_look():
    def helper():
        sys.settrace(lambda *args: None)
        try:
            return kt.dim["n"]
        finally:
            sys.settrace(None)

    with kt.typechecked():
        kt.dim["n"] = 3
        assert helper() == 3


# --------------------------------------------------------------------------------------
# Blocks
# --------------------------------------------------------------------------------------


def test_block_opens_a_scope():
    with kt.typechecked() as nothing:
        assert nothing is None
        kt.check_type(np.ones((2, 3)), Float["a b"])
        assert kt.shape("b a") == (3, 2)
    with pytest.raises(kt.NoActiveScopeError):
        kt.dim["a"]


def test_blocks_nest():
    with kt.typechecked():
        kt.dim["n"] = 1
        with kt.typechecked():
            assert "n" not in kt.dim
            kt.dim["n"] = 2
        assert kt.dim["n"] == 1


def test_block_inside_a_checked_function():
    @kt.typechecked
    def f(x: Float["n"]):
        with kt.typechecked():
            kt.check_type(np.ones(9), Float["n"])
            inner = kt.dim["n"]
        return inner, kt.dim["n"]

    assert f(np.ones(2)) == (9, 2)


def test_block_is_closed_by_exceptions():
    with pytest.raises(ZeroDivisionError), kt.typechecked():
        1 / 0
    with pytest.raises(kt.NoActiveScopeError):
        kt.dim["n"]


def test_block_works_at_module_level_of_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        import kauldron.ktyping as kt

        with kt.typechecked():
            kt.check_type(np.ones((2, 3)), kt.Float["a b"])
            print(kt.dim["a"], [kt.dim["b"] for _ in range(1)])
        """)
    )
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert result.stdout.split() == ["2", "[3]"], result.stderr


def test_one_block_object_may_be_entered_again():
    block = kt.typechecked()
    for n in (1, 2):
        with block:
            kt.dim["n"] = n
            with block:
                assert "n" not in kt.dim


def test_decorator_with_parentheses():
    @kt.typechecked()
    def f(x: Float["n"]):
        return kt.dim["n"]

    assert f(np.ones(3)) == 3


# --------------------------------------------------------------------------------------
# Transparent scopes
# --------------------------------------------------------------------------------------


@kt.typechecked(new_scope=False)
def shared(y: Float["n m"]):
    return kt.dim["n"], kt.dim["m"]


def test_transparent_function_reads_and_writes_the_dims_of_its_caller():
    @kt.typechecked
    def f(x: Float["n"]):
        assert "m" not in kt.dim
        inner = shared(np.ones((3, 4)))
        return inner, kt.dim["m"]

    assert f(np.ones(3)) == ((3, 4), 4)


def test_failing_transparent_function_mentions_both_places_and_changes_nothing():
    @kt.typechecked
    def f(x: Float["n"]):
        with pytest.raises(kt.KTypeCheckError) as caught:
            shared(np.ones((4, 5)))
        assert "m" not in kt.dim
        return str(caught.value)

    text = f(np.ones(3))
    assert "Origin: function 'shared' at " in text
    assert "        uses scope from function 'f' at " in text


def test_transparent_block():
    with kt.typechecked():
        kt.dim["n"] = 3
        with kt.typechecked(new_scope=False):
            assert kt.dim["n"] == 3
            kt.dim["m"] = 4
        assert kt.dim["m"] == 4


@pytest.mark.parametrize(
    "use", [lambda: shared(np.ones((1, 1))), lambda: _transparent_block()]
)
def test_transparent_scope_needs_an_enclosing_one(use):
    with pytest.raises(kt.NoActiveScopeError, match="no scope is active"):
        use()


def _transparent_block():
    with kt.typechecked(new_scope=False):
        pass


# --------------------------------------------------------------------------------------
# Scopes by hand
# --------------------------------------------------------------------------------------


def test_manual_scope():
    with kt.ShapeScope(candidates=[{"n": (3,)}]) as scope:
        kt.check_type(np.ones((3, 4)), Float["n m"])
        assert kt.get_current_scope() is scope
    assert scope.dim["m"] == 4
    assert {dict(c)["m"] for c in scope.candidates} == {(4,)}


def test_candidates_can_be_assigned():
    with kt.ShapeScope() as scope:
        scope.candidates = [{"n": (1,)}, {"n": (2,)}]
        with pytest.raises(kt.AmbiguousDimensionError):
            kt.dim["n"]
        kt.check_type(np.ones(2), Float["n"])
        assert kt.dim["n"] == 2


def test_scope_of_a_call_knows_its_arguments():
    @kt.typechecked
    def f(x: Float["n"], k: int = 3):
        return kt.get_current_scope()

    x = np.ones(2)
    scope = f(x)
    assert scope.arguments == {"x": x, "k": 3}
    assert scope.annotations == {"x": Float["n"], "k": int}
    assert scope.default_args == {"k"}
    assert scope.source.description == "function 'f'"
    assert scope.source.file == __file__
    assert scope.source.module_name == __name__
    assert scope.active_scope is scope
    assert scope.dim["n"] == 2


def test_result_is_kept_by_the_scope():
    scopes = []

    @kt.typechecked
    def f() -> int:
        scopes.append(kt.get_current_scope())
        return 3

    f()
    assert scopes[0].return_value == 3


def test_stacklevel_of_get_current_scope():
    def helper():
        return kt.get_current_scope(stacklevel=1)

    @kt.typechecked
    def f(x: Float["n"]):
        return helper().dim["n"]

    assert f(np.ones(5)) == 5


# --------------------------------------------------------------------------------------
# Purity
# --------------------------------------------------------------------------------------


def _second(cases):
    return [str(annotation) for _, annotation in cases]


FAILING = [
    (lambda: np.ones((3, 4)), Float["n m"]),
    (lambda: [np.ones((3, 4)), 5], tuple[Float["a m"], int]),
    (lambda: (np.ones((3, 4)), "x"), tuple[Float["a m"], int]),
    (lambda: {"a": np.ones(4), "b": 5}, kt.PyTree[Float["m"]]),
    (lambda: {"a": np.ones((9, 9))}, dict[str, Float["n m"] | Float["m"]]),
]


@pytest.mark.parametrize("value, annotation", FAILING, ids=_second(FAILING))
def test_failed_check_leaves_the_dims_unchanged(value, annotation):
    with kt.typechecked():
        kt.dim["n"] = 2
        before = str(kt.dim)
        with pytest.raises(kt.KTypeCheckError):
            kt.check_type(value(), annotation)
        assert not kt.isinstance(value(), annotation)
        assert str(kt.dim) == before


PASSING = [
    (lambda: np.ones((2, 4)), Float["n m"]),
    (lambda: [np.ones(4)], list[Float["m"]]),
    (lambda: {"a": (np.ones(4), 1)}, dict[str, tuple[Float["m"], int]]),
    (lambda: {"a": np.ones(4)}, kt.PyTree[Float["m"], "$S"]),
]


@pytest.mark.parametrize("value, annotation", PASSING, ids=_second(PASSING))
def test_isinstance_never_binds(value, annotation):
    with kt.typechecked():
        kt.dim["n"] = 2
        assert kt.isinstance(value(), annotation)
        assert builtins_isinstance(value(), annotation) in (True, None)
        assert "m" not in kt.dim
        kt.check_type(value(), annotation)
        assert kt.dim["m"] == 4


def builtins_isinstance(value, annotation):
    """The built-in, where Python allows it: not for `list[int]`."""
    is_class = type(annotation) in (type(Float), type(kt.PyTree))
    return isinstance(value, annotation) if is_class else None
