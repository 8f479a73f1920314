"""The small tools of `kd.utils.utils`."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

from kauldron import kd

enum_iter = kd.utils.utils.enum_iter


def test_stops_at_the_limit_and_leaves_the_next_element():
    elements = iter("abcd")
    assert list(enum_iter(elements, total_steps=2)) == [(0, "a"), (1, "b")]
    assert next(elements) == "c"


def test_steps_count_from_the_first_and_skip_nothing():
    pairs = list(enum_iter("ab", init_step=5, total_steps=100))
    assert pairs == [(5, "a"), (6, "b")]


@pytest.mark.parametrize("total", [None, -1])
def test_without_limit_until_exhaustion(total):
    assert len(list(enum_iter(range(3), total_steps=total, log_xm=True))) == 3


def test_limit_before_the_first_step():
    assert list(enum_iter("ab", init_step=3, total_steps=3)) == []


def test_bar_shows_progress_and_total(capsys):
    list(enum_iter([1, 2, 3], init_step=2, desc="my loop"))
    shown = capsys.readouterr().err
    assert "my loop" in shown
    assert "5/5" in shown


def test_no_bar_when_disabled(capsys):
    list(enum_iter([1, 2, 3], desc="my loop", disable=True))
    assert capsys.readouterr() == ("", "")


def test_lists_become_tuples_at_all_depths():
    value = {"a": [1, [2, {"b": [3]}]], "c": "text", "d": None}
    assert kd.utils.utils.json_list_to_tuple(value) == {
        "a": (1, (2, {"b": (3,)})),
        "c": "text",
        "d": None,
    }


def test_checks_are_dropped_under_jit():
    def root(x, *, power=0.5):
        """Doc."""
        checkify.check(x >= 0, "negative")
        return x**power

    ignoring = kd.utils.utils.checkify_ignore(root)
    assert jax.jit(ignoring)(4.0) == 2.0
    assert jnp.isnan(jax.jit(ignoring)(-1.0))
    assert ignoring(4.0, power=2) == 16.0
    assert ignoring.__name__ == "root"
    assert inspect.signature(ignoring) == inspect.signature(root)
    with pytest.raises(ValueError, match="Cannot abstractly evaluate"):
        jax.jit(root)(4.0)


def test_file_names_of_a_workdir():
    assert kd.utils.constants.CONFIG_FILENAME == "config.json"
    assert kd.utils.constants.ELEMENT_SPEC_FILENAME == "element_spec.json"


def test_unknown_member_names_the_nearest():
    with pytest.raises(AttributeError, match="Did you mean 'chrono'"):
        kd.utils.chronos
