"""The collectors from before `AutoState`."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import metrics

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@flax.struct.dataclass
class Pairs(metrics.CollectingState):
    x: Any
    y: Any


@flax.struct.dataclass
class FirstPairs(metrics.CollectFirstState):
    x: Any


def test_arrays_are_stored_in_tuples_and_concatenated():
    state = Pairs(x=jnp.arange(2), y=np.float32(1))
    assert isinstance(state.x, tuple)
    merged = state.merge(Pairs(x=jnp.arange(2, 5), y=np.float32(2)))
    value = merged.compute()
    np.testing.assert_array_equal(value.x, np.arange(5))
    np.testing.assert_array_equal(value.y, [1, 2])


def test_making_one_warns_and_names_the_replacement():
    with pytest.warns(DeprecationWarning, match=r"AutoState.*concat_field"):
        Pairs(x=np.ones(1), y=np.ones(1))


def test_other_than_arrays_are_refused_naming_the_field():
    with pytest.raises(TypeError, match=r"'y'.*list"):
        Pairs(x=np.ones(1), y=[1, 2])


def test_merge_inside_jit_is_refused():
    state = Pairs(x=jnp.ones(1), y=jnp.ones(1))
    with pytest.raises(RuntimeError, match=r"Pairs.*cannot be jit-compiled"):
        jax.jit(lambda a, b: a.merge(b))(state, state)


def test_states_pass_through_jit():
    state = jax.jit(lambda: Pairs(x=jnp.ones(2), y=jnp.ones(1)))()
    assert state.merge(state).compute().x.shape == (4,)


def test_empty_is_neutral():
    state = Pairs(x=np.ones(2), y=np.ones(1))
    assert Pairs.empty().merge(state).compute().x.shape == (2,)
    assert state.merge(Pairs.empty()).finalize().compute().x.shape == (2,)
    assert Pairs.empty().compute().x is None


def test_first_entries_are_kept():
    state = FirstPairs(x=np.arange(2), keep_first=3)
    merged = state.merge(FirstPairs(x=np.arange(2, 5), keep_first=3)).merge(state)
    np.testing.assert_array_equal(merged.compute().x, [0, 1, 2])
    np.testing.assert_array_equal(merged.finalize().compute().x, [0, 1, 2])


def test_empty_collector_of_first_entries_is_neutral():
    state = FirstPairs(x=np.arange(5), keep_first=3)
    for merged in (FirstPairs.empty().merge(state), state.merge(FirstPairs.empty())):
        assert merged.keep_first == 3
        assert merged.compute().x.shape == (3,)


def test_different_numbers_of_entries_are_refused():
    with pytest.raises(ValueError, match=r"keep_first is 2 .* 3"):
        FirstPairs(x=np.ones(1), keep_first=2).merge(
            FirstPairs(x=np.ones(1), keep_first=3)
        )
