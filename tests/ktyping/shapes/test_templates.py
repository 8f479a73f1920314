"""Specs with f-string parts."""

import numpy as np
import pytest

import kauldron.ktyping as kt
from kauldron.ktyping import Float, Shape

MODULE_SIZE = 4


def test_arguments_defaults_and_self():
    class Model:
        width = 3

        @kt.typechecked
        def f(self, x: Float["{k} {self.width}"], k: int = 2) -> Float["{k+1}"]:
            return np.ones(k + 1)

    assert Model().f(np.ones((2, 3))).shape == (3,)
    assert Model().f(np.ones((5, 3)), k=5).shape == (6,)
    with pytest.raises(kt.KTypeCheckError):
        Model().f(np.ones((5, 3)))


def test_closure_globals_and_builtins():
    local_size = 2

    @kt.typechecked
    def f(x: Float["{local_size} {MODULE_SIZE} {max(local_size, 7)}"]):
        return local_size

    assert f(np.ones((2, 4, 7))) == 2
    with pytest.raises(kt.KTypeCheckError):
        f(np.ones((2, 4, 8)))


def test_arguments_go_before_globals():
    @kt.typechecked
    def f(x: Float["{MODULE_SIZE}"], MODULE_SIZE: int):
        return x

    assert f(np.ones(9), 9).shape == (9,)


def test_text_may_be_several_dims_or_an_expression():
    @kt.typechecked
    def f(x: Float["*b {dims}"], dims: str):
        return dict(kt.dim.items())

    assert f(np.ones((1, 2, 3)), "h w") == {"b": 1, "h": 2, "w": 3}
    assert f(np.ones((1, 6)), "2*n") == {"b": 1, "n": 3}


def test_each_call_is_evaluated_anew():
    @kt.typechecked
    def f(x: Float["{n}"], n: int):
        return n

    for n in (1, 2, 1):
        assert f(np.ones(n), n) == n
        with pytest.raises(kt.KTypeCheckError):
            f(np.ones(n + 1), n)


def test_comprehensions_and_formats():
    @kt.typechecked
    def f(x: Float["{' '.join(str(s) for s in sizes)} {k:d}"], sizes, k: int):
        return True

    assert f(np.ones((2, 3, 4)), (2, 3), 4)


def test_works_in_the_body_too():
    @kt.typechecked
    def f(x: Float["*b n"], k: int):
        kt.check_type(np.ones(k), Float["{k}"])
        assert kt.isinstance(np.ones(k), Float["{k}"])
        assert isinstance(np.ones(k), Float["{k}"])
        assert not kt.isinstance(np.ones(k), Float["{k + 1}"])
        kt.check_type((1, k), Shape["1 {k}"])
        return kt.shape("*b {k}")

    assert f(np.ones((2, 3)), 7) == (2, 7)


def test_block_sees_the_variables_around_it():
    k = 3
    with kt.typechecked():
        kt.check_type(np.ones((3, 4)), Float["{k} {MODULE_SIZE}"])
        k = 5  # noqa: F841
        assert kt.shape("{k}") == (5,)


def test_template_and_evaluated_text_are_both_shown():
    @kt.typechecked
    def f(x: Float["b {n}"], n: int): ...

    with pytest.raises(kt.KTypeCheckError, match=r"'b \{n\}' \(= 'b 4'\)"):
        f(np.ones((2, 3)), 4)


def test_missing_name_is_a_shape_error_that_names_everything():
    @kt.typechecked
    def f(x: Float["b {nope + 1}"], known: int): ...

    with pytest.raises(kt.ShapeError) as caught:
        f(np.ones((2, 3)), 4)
    text = str(caught.value)
    for words in ("argument 'x' of f()", "'{nope + 1}'", "'b {nope + 1}'", "known, x"):
        assert words in text
    assert isinstance(caught.value.__cause__, NameError)


def test_missing_name_in_the_return_annotation():
    @kt.typechecked
    def f() -> Float["{nope}"]:
        return np.ones(2)

    with pytest.raises(kt.ShapeError, match=r"return value of f\(\).*nope"):
        f()


def test_failing_expression_is_chained():
    @kt.typechecked
    def f(x: Float["{1 // zero}"], zero: int): ...

    with pytest.raises(kt.ShapeError, match="ZeroDivisionError") as caught:
        f(np.ones(2), 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_evaluated_text_with_bad_syntax_is_a_syntax_error():
    @kt.typechecked
    def f(x: Float["{dims}"], dims: str): ...

    with pytest.raises(kt.ShapeSpecSyntaxError):
        f(np.ones(2), "a,b")
