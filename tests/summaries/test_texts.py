"""Texts."""

import jax
import numpy as np
import pytest

from kauldron import summaries


@pytest.mark.parametrize(
    "texts, expected",
    [
        ("one", ["one"]),
        (b"one", ["one"]),
        (["one", "two"], ["one", "two"]),
        (("one", b"zw\xc3\xb6lf"), ["one", "zwölf"]),
        (np.array([["a", "b"], ["c", "d"]]), ["a", "b", "c", "d"]),
        (np.array([b"a", b"bc"]), ["a", "bc"]),
        (np.array(["a", "bc"], object), ["a", "bc"]),
        ([], []),
    ],
)
def test_texts_in_any_form(texts, expected):
    assert summaries.ShowTexts()(texts=texts).tolist() == expected


def test_first_texts_are_kept_over_merged_batches():
    metric = summaries.ShowTexts(num_texts=3)
    state = metric.empty()
    for batch in (["a", "b"], ["c", "d"], ["e"]):
        state = state.merge(metric.get_state(texts=batch))
    assert state.compute().tolist() == ["a", "b", "c"]


def test_all_texts_are_kept_without_a_number():
    metric = summaries.ShowTexts(num_texts=None)
    assert len(metric(texts=["x"] * 50)) == 50


def test_use_inside_jit_is_refused_with_the_restriction():
    metric = summaries.ShowTexts()

    def step(x):
        return metric.get_state(texts=["one"]), x

    with pytest.raises(RuntimeError, match=r"ShowTexts.*jitted step.*evaluator"):
        jax.jit(step)(1.0)
    with pytest.raises(RuntimeError, match=r"ShowTexts.*jitted step.*evaluator"):
        jax.eval_shape(step, 1.0)


def test_numbers_are_refused():
    with pytest.raises(TypeError, match="int"):
        summaries.ShowTexts()(texts=[1, 2])


def test_no_texts_yet_is_refused():
    with pytest.raises(ValueError, match=r"ShowTexts.*at least one batch"):
        summaries.ShowTexts().empty().compute()
