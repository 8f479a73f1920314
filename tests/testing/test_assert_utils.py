"""Assertions about trees."""

import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from tests import processes

same_type = kd.testing.assert_utils.assert_trees_all_same_type


def test_same_types_pass_whatever_the_values():
    tree = {"a": [np.ones(2), 1], "b": None}
    assert same_type(tree, {"a": [np.zeros(5), 2], "b": None}) is None


@pytest.mark.parametrize("other", [jnp.ones(2), 1.0, [1.0], np.float32(1)])
def test_other_leaf_type_is_named(other):
    with pytest.raises(AssertionError, match=r"\['a'\]|Different trees"):
        same_type({"a": np.ones(2)}, {"a": other})


def test_exact_types_are_compared():
    with pytest.raises(AssertionError, match="bool"):
        same_type({"a": True}, {"a": 1})


def test_other_structure():
    with pytest.raises(AssertionError, match="Different trees"):
        same_type({"a": 1}, {"b": 1})


def test_asserts_are_rewritten_under_pytest(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text(
        textwrap.dedent(
            """
            from kauldron import kd

            def test_fails():
                kd.testing.assert_utils.assert_trees_all_same_type([1], [1.0])

            def test_rewritten():
                module = kd.testing.assert_utils
                assert "@pytest_ar" in vars(module)
            """
        )
    )
    program = """
        import sys
        import pytest
        assert not any(name.startswith("kauldron") for name in sys.modules)
        pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1]])
    """
    output = processes.run_script_with_jax(program, test)
    assert "1 failed, 1 passed" in output, output
