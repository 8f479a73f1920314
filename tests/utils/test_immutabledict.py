"""Frozen dicts under jax and flax."""

import copy
import dataclasses
import pickle
import subprocess
import sys
import textwrap

import flax.serialization
import flax.struct
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from kauldron.immutabledict import (
    ImmutableDict,
    freeze,
    freeze_dict_attrs,
    unfreeze,
)

_KEYS = st.text(max_size=4)


def test_mapping_keeps_key_order():
    d = ImmutableDict(z=1, a=2)
    doubled = jax.tree.map(lambda x: 2 * x, d)
    assert isinstance(doubled, ImmutableDict)
    assert list(doubled.items()) == [("z", 2), ("a", 4)]


def test_equal_dicts_of_different_key_order_map_together():
    a, b = ImmutableDict(x=1, y=2), ImmutableDict(y=20, x=10)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert hash(jax.tree.structure(a)) == hash(jax.tree.structure(b))
    assert jax.tree.map(lambda p, q: p + q, a, b) == {"x": 11, "y": 22}


def test_key_order_does_not_retrace():
    traces = []

    @jax.jit
    def total(d):
        traces.append(None)
        return d["x"] - d["y"]

    assert total(ImmutableDict(x=3.0, y=1.0)) == 2.0
    assert total(ImmutableDict(y=1.0, x=3.0)) == 2.0
    assert len(traces) == 1


@hypothesis.given(st.dictionaries(_KEYS, st.integers()))
def test_leaves_and_paths_agree_with_those_of_a_dict(items):
    ours = jax.tree_util.tree_leaves_with_path(ImmutableDict(items))
    assert ours == jax.tree_util.tree_leaves_with_path(items)


@hypothesis.given(st.dictionaries(_KEYS, st.integers()))
def test_round_trip_through_a_tree(items):
    d = ImmutableDict(items)
    leaves, structure = jax.tree.flatten(d)
    rebuilt = jax.tree.unflatten(structure, leaves)
    assert list(rebuilt.items()) == list(items.items())


def test_keys_of_mixed_types_are_flattened():
    d = ImmutableDict({1: "a", "b": 2, None: 3})
    assert jax.tree.leaves(d) == ["a", 2, 3]
    assert jax.tree.map(lambda x: x, d) == d


def test_different_keys_have_different_structures():
    a, b = ImmutableDict(x=1), ImmutableDict(y=1)
    assert jax.tree.structure(a) != jax.tree.structure(b)
    assert jax.tree.structure(a) != jax.tree.structure({"x": 1})


def test_nested_in_jit_grad_and_vmap():
    params = ImmutableDict(w=jnp.ones(3), inner=ImmutableDict(b=jnp.zeros(())))

    def loss(p):
        return jnp.sum(p.w**2) + p.inner.b

    grads = jax.jit(jax.grad(loss))(params)
    assert isinstance(grads.inner, ImmutableDict)
    np.testing.assert_array_equal(grads.w, [2.0, 2.0, 2.0])
    assert jax.vmap(lambda p: p.w + p.b)(
        ImmutableDict(w=jnp.ones(3), b=jnp.ones(3))
    ).tolist() == [2.0, 2.0, 2.0]


def test_static_argument():
    run = jax.jit(lambda x, options: x * options.scale, static_argnums=1)
    assert run(2.0, ImmutableDict(scale=3, offset=1)) == 6.0
    assert run(2.0, ImmutableDict(offset=1, scale=3)) == 6.0
    assert run._cache_size() == 1


def test_unhashable_value_is_named():
    with pytest.raises(TypeError, match="'w'"):
        hash(ImmutableDict(a=1, w=np.ones(2)))


def test_refuses_assignment():
    d = ImmutableDict(a=1)
    with pytest.raises(TypeError):
        d["a"] = 2
    with pytest.raises(TypeError):
        del d["a"]
    with pytest.raises(AttributeError):
        d.a = 2
    with pytest.raises(AttributeError):
        d.new = 2


def test_absent_names():
    d = ImmutableDict(learning_rate=1)
    assert not hasattr(d, "absent")
    assert getattr(d, "absent", 5) == 5
    with pytest.raises(AttributeError, match="learning_rate"):
        d.learning_rat


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))]
)
def test_copies_keep_order_and_type(duplicate):
    d = ImmutableDict(z=(1, 2), a=ImmutableDict(b=3))
    copied = duplicate(d)
    assert copied == d
    assert list(copied) == ["z", "a"]
    assert isinstance(copied.a, ImmutableDict)


def test_flax_saves_and_restores_it_like_a_dict():
    d = ImmutableDict(b=jnp.ones(2), a=ImmutableDict(c=jnp.zeros(())))
    state = flax.serialization.to_state_dict(d)
    assert type(state) is dict
    assert type(state["a"]) is dict
    restored = flax.serialization.from_state_dict(d, state | {"b": jnp.full(2, 5.0)})
    assert isinstance(restored, ImmutableDict)
    assert isinstance(restored.a, ImmutableDict)
    assert restored.b.tolist() == [5.0, 5.0]
    data = flax.serialization.to_bytes(d)
    assert flax.serialization.from_bytes(d, data).b.tolist() == [1.0, 1.0]


@flax.struct.dataclass
class Node:
    content: object


def test_unfreeze_reaches_all_depths():
    frozen = freeze({"a": [{"b": 1}], "c": {"d": {"e": 2}}})
    assert isinstance(frozen.a[0], ImmutableDict)
    plain = unfreeze(
        {"x": [frozen], "y": (frozen,), "z": Node(content=frozen), "n": None}
    )
    for found in (plain["x"][0], plain["y"][0], plain["z"].content):
        assert type(found) is dict
        assert found == {"a": ({"b": 1},), "c": {"d": {"e": 2}}}
        assert type(found["a"][0]) is type(found["c"]["d"]) is dict
    assert type(plain["z"]) is Node


def test_freeze_dict_attrs_of_a_frozen_dataclass():
    @dataclasses.dataclass(frozen=True)
    class Config:
        losses: dict
        name: str = "a"

    config = Config(losses={"x": 1})
    freeze_dict_attrs(config, ["losses", "name"])
    assert isinstance(config.losses, ImmutableDict)
    assert config.name == "a"


@pytest.mark.parametrize("first", ["before", "after"])
def test_known_to_jax_whenever_jax_is_imported(first):
    make = "from kauldron.immutabledict import ImmutableDict\nd = ImmutableDict(b=1, a=2)\n"
    script = make + "import jax\n" if first == "before" else "import jax\n" + make
    script += "assert jax.tree.leaves(d) == [2, 1]\n"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_made_in_several_threads_while_jax_gets_imported():
    script = """
        import threading
        from kauldron.immutabledict import ImmutableDict

        results, start = [], threading.Barrier(5)

        def work():
            start.wait()
            import jax
            results.append(jax.tree.leaves(ImmutableDict(b=1, a=2)))

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [[2, 1]] * 5, results
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
