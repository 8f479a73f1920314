"""`ImmutableDict`: frozen, hashable, a pytree."""

import copy
import dataclasses
import importlib
import json
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping, MutableMapping

import flax
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


def test_it_is_constructed_like_a_dict_and_keeps_the_order():
    assert list(ImmutableDict(b=1, a=2)) == ["b", "a"]
    assert ImmutableDict([("x", 1)], y=2) == {"x": 1, "y": 2}
    assert ImmutableDict() == {}
    given = {"a": 1}
    frozen = ImmutableDict(given)
    given["a"] = 2
    assert frozen["a"] == 1


def test_it_is_a_mapping_but_not_a_dict():
    d = ImmutableDict(a=1)
    assert isinstance(d, Mapping)
    assert not isinstance(d, (dict, MutableMapping))
    assert dict(d) == {"a": 1}
    assert json.dumps(dict(d)) == '{"a": 1}'


def test_items_are_attributes_and_methods_win():
    d = ImmutableDict(width=1, keys=2)
    assert d.width == 1
    assert list(d.keys()) == ["width", "keys"]
    assert d["keys"] == 2
    assert not hasattr(d, "nothing")
    assert getattr(d, "nothing", 3) == 3
    with pytest.raises(AttributeError, match="Did you mean 'width'"):
        d.widht
    with pytest.raises(KeyError):
        d["widht"]
    assert "width" in dir(d)


def test_nothing_can_be_assigned_or_deleted():
    d = ImmutableDict(a=1)
    with pytest.raises(AttributeError, match="immutable"):
        d.a = 2
    with pytest.raises(AttributeError):
        d.new = 2
    with pytest.raises(AttributeError):
        del d.a
    with pytest.raises(TypeError):
        d["a"] = 2
    with pytest.raises(TypeError):
        del d["a"]
    assert d == {"a": 1}


def test_changed_copies():
    d = ImmutableDict(a=1, b=2)
    assert d.set("c", 3) == {"a": 1, "b": 2, "c": 3}
    assert d.delete("a") == {"b": 2}
    assert d.discard("zzz") == d
    assert d.update({"a": 5}, z=1) == {"a": 5, "b": 2, "z": 1}
    assert type(d | {"c": 3}) is ImmutableDict
    assert type({"c": 3} | d) is dict
    assert {"c": 3} | d == {"a": 1, "b": 2, "c": 3}
    assert d.copy() == d == {"a": 1, "b": 2}
    with pytest.raises(KeyError):
        d.delete("zzz")
    with pytest.raises(TypeError):
        d | 3


def test_equality_and_hash_ignore_the_order():
    a, b = ImmutableDict(x=1, y=2), ImmutableDict(y=2, x=1)
    assert a == b == {"x": 1, "y": 2}
    assert hash(a) == hash(b)
    assert a != {"x": 1}
    assert a != 3
    assert len({a, b, ImmutableDict(x=ImmutableDict())}) == 2


def test_an_unhashable_value_is_named():
    with pytest.raises(TypeError, match=r"\['bad'\]"):
        hash(ImmutableDict(ok=1, bad=[1]))


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda d, p=p: pickle.loads(pickle.dumps(d, p)) for p in range(6)),
    ],
)
def test_copies_and_pickles_are_equal(duplicate):
    d = ImmutableDict(z=[1], a=ImmutableDict(b=1))
    assert duplicate(d) == d
    assert list(duplicate(d)) == ["z", "a"]
    deep = copy.deepcopy(d)
    deep["z"].append(2)
    assert d["z"] == [1]


def test_repr_is_on_one_line_if_short():
    assert repr(ImmutableDict(z=1, a=2)) == "ImmutableDict({'z': 1, 'a': 2})"
    assert repr(ImmutableDict()) == "ImmutableDict({})"
    long = ImmutableDict(first="a" * 10, second="b" * 10)
    assert repr(long) == (
        "ImmutableDict({\n    'first': 'aaaaaaaaaa',\n    'second': 'bbbbbbbbbb',\n})"
    )
    one = ImmutableDict(only="x" * 40)
    assert "\n" not in repr(one)


# ------------------------------------------------------------------------------------
# jax and flax
# ------------------------------------------------------------------------------------


def test_a_tree_map_keeps_the_order_and_agrees_with_dicts():
    d = ImmutableDict(z=1, a=ImmutableDict(c=2, b=3))
    doubled = jax.tree.map(lambda x: 2 * x, d)
    assert doubled == {"z": 2, "a": {"c": 4, "b": 6}}
    assert list(doubled) == ["z", "a"]
    assert jax.tree.leaves(d) == jax.tree.leaves(unfreeze(d)) == [3, 2, 1]
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(d)]
    assert paths == ["['a']['b']", "['a']['c']", "['z']"]


def test_equal_dicts_of_different_order_map_together():
    a, b = ImmutableDict(x=1, y=2), ImmutableDict(y=20, x=10)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert hash(jax.tree.structure(a)) == hash(jax.tree.structure(b))
    assert jax.tree.map(lambda p, q: p + q, a, b) == {"x": 11, "y": 22}
    assert jax.tree.structure(a) != jax.tree.structure(ImmutableDict(x=1))
    assert jax.tree.structure(a) != jax.tree.structure({"x": 1, "y": 2})


def test_a_compiled_function_is_not_traced_again_for_another_order():
    traces = []

    @jax.jit
    def total(d):
        traces.append(1)
        return d["x"] + d["y"]

    assert total(ImmutableDict(x=1, y=2)) == 3
    assert total(ImmutableDict(y=2, x=1)) == 3
    assert len(traces) == 1


def test_keys_of_mixed_types_can_be_flattened():
    d = ImmutableDict({1: "a", "b": "c", (1, 2): "d"})
    assert jax.tree.map(str.upper, d) == {1: "A", "b": "C", (1, 2): "D"}
    assert jax.tree.leaves(d) == ["a", "c", "d"]
    reordered = ImmutableDict({"b": 1, (1, 2): 2, 1: 3})
    with pytest.raises(ValueError, match=r"structure|key|differ|mismatch"):
        jax.tree.map(lambda x, y: (x, y), d, reordered)  # never paired wrongly


def test_flax_saves_it_as_a_dict():
    d = ImmutableDict(z=1, a=ImmutableDict(b=2))
    state = flax.serialization.to_state_dict(d)
    assert state == {"z": 1, "a": {"b": 2}}
    assert type(state) is dict
    restored = flax.serialization.from_state_dict(d, {"z": 5, "a": {"b": 6}})
    assert restored == {"z": 5, "a": {"b": 6}}
    assert type(restored) is type(restored.a) is ImmutableDict
    data = flax.serialization.to_bytes(d)
    assert flax.serialization.from_bytes(d, data) == d


def test_threads_may_flatten_it_at_once():
    d = ImmutableDict({f"k{i}": i for i in range(50)})
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(jax.tree.leaves(d)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(result == results[0] for result in results)


@hypothesis.given(
    st.dictionaries(st.text(max_size=3) | st.integers(), st.integers(), max_size=6)
)
def test_flattening_and_unflattening_changes_nothing(items):
    d = ImmutableDict(items)
    leaves, structure = jax.tree.flatten(d)
    again = jax.tree.unflatten(structure, leaves)
    assert again == d
    assert list(again) == list(items)


@hypothesis.given(st.dictionaries(st.text(max_size=4), st.integers()))
def test_leaves_and_paths_agree_with_those_of_a_dict(items):
    ours = jax.tree_util.tree_leaves_with_path(ImmutableDict(items))
    assert ours == jax.tree_util.tree_leaves_with_path(items)


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


def test_it_is_registered_whether_made_before_while_or_after_jax_gets_imported():
    script = """
        import sys, threading
        from kauldron.immutabledict import ImmutableDict

        before = ImmutableDict(b=1, a=2)
        assert "jax" not in sys.modules
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

        import jax
        assert jax.tree.leaves([before, ImmutableDict(c=3)]) == [2, 1, 3]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


# ------------------------------------------------------------------------------------
# Freezing
# ------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Tree:
    child: object


def test_unfreeze_reaches_every_depth():
    frozen = ImmutableDict(a=[(ImmutableDict(b=1),)], t=Tree(ImmutableDict(c=2)))
    plain = unfreeze({"x": frozen})
    assert type(plain["x"]) is dict
    assert type(plain["x"]["a"][0][0]) is dict
    assert plain["x"]["t"].child == {"c": 2}
    assert type(plain["x"]["t"].child) is dict
    marker = object()
    assert unfreeze(marker) is marker


def test_freeze_is_what_resolve_does_to_containers():
    frozen = freeze({"a": [1, {"b": (2, [3])}]})
    assert frozen == ImmutableDict(a=(1, ImmutableDict(b=(2, (3,)))))
    assert hash(frozen)


def test_dict_attributes_of_frozen_objects_can_be_frozen():
    @dataclasses.dataclass(frozen=True)
    class Config:
        losses: object
        other: object

    cfg = Config(losses={"a": {"b": 1}}, other=[1])
    freeze_dict_attrs(cfg, ["losses", "other"])
    assert type(cfg.losses) is ImmutableDict
    assert type(cfg.losses["a"]) is dict
    assert cfg.other == [1]


def test_the_old_name_warns():
    module = importlib.import_module("kauldron.konfig.immutabledict_lib")
    with pytest.warns(DeprecationWarning, match="immutabledict"):
        assert module.ImmutableDict is ImmutableDict
    with pytest.warns(DeprecationWarning, match="immutabledict"):
        from kauldron.konfig.immutabledict_lib import ImmutableDict as older
    assert older is ImmutableDict
    with pytest.raises(AttributeError, match="has no attribute 'Immutable'"):
        module.Immutable
