"""Equality, copies, merging and pickling of configs."""

import copy
import pickle

import ml_collections
import pytest

from kauldron import konfig

with konfig.imports():
    import optax


def double(x):
    return 2 * x


def make_dict(n):
    return {"n": n}


def make_list(n):
    return [n, [n]]


# ------------------------------------------------------------------------------------
# Equality
# ------------------------------------------------------------------------------------


def test_key_order_does_not_matter():
    assert konfig.ConfigDict({"a": 1, "b": 2}) == konfig.ConfigDict({"b": 2, "a": 1})


@pytest.mark.parametrize(
    "a, b",
    [
        ({"x": [1]}, {"x": (1,)}),
        ({"x": 1}, {"x": 2}),
        ({"x": 1}, {"x": 1, "y": 2}),
        ({"x": {"y": 1}}, {"x": 1}),
        ({"x": None}, {}),
    ],
)
def test_different_configs_differ(a, b):
    assert konfig.ConfigDict(a) != konfig.ConfigDict(b)
    assert konfig.ConfigDict(a) != b


def test_numbers_compare_as_in_python():
    assert konfig.ConfigDict({"x": 1}) == konfig.ConfigDict({"x": 1.0})


def test_computed_dicts_compare_as_the_same_config_with_plain_values():
    computed = konfig.ConfigDict({"n": 1})
    computed.made = konfig.ref_fn(make_dict, computed.ref.n)
    computed.listed = [konfig.ref_fn(make_dict, computed.ref.n)]
    plain = {"n": 1, "made": {"n": 1}, "listed": [{"n": 1}]}
    assert computed == plain
    assert konfig.ConfigDict(plain) == computed
    computed.n = 2
    assert computed != konfig.ConfigDict(plain)


def test_one_computed_list_among_many_makes_a_difference():
    for count in range(2, 20):  # lists that are made when read may get the same ids
        a, b = konfig.ConfigDict(), konfig.ConfigDict()
        for index in range(count):
            is_last = index == count - 1
            a[f"x{index}"] = konfig.ref_fn(make_list, index)
            b[f"x{index}"] = konfig.ref_fn(make_list, 99 if is_last else index)
        assert a != b


def test_a_locked_config_differs_from_an_unlocked_one():
    assert konfig.ConfigDict({"x": 1}).lock() != konfig.ConfigDict({"x": 1})


def test_the_position_of_the_colon_does_not_matter():
    a = konfig.ConfigDict({"__qualname__": "a.b:c.d", "x": {"__const__": "m:y.z"}})
    b = konfig.ConfigDict({"__qualname__": "a:b.c.d", "x": {"__const__": "m.y:z"}})
    assert a == b


def test_references_compare_by_their_current_value():
    plain = konfig.ConfigDict({"n": 3, "m": 6, "f": 6})
    cfg = konfig.ConfigDict({"n": 3, "m": None, "f": None})
    cfg.m = cfg.ref.n * 2
    cfg.f = konfig.ref_fn(double, cfg.ref.n)
    assert cfg == plain
    assert plain == cfg
    cfg.n = 4
    assert cfg != plain


def test_a_plain_mapping_compares_as_the_config_it_would_make():
    cfg = konfig.ConfigDict({"a": {"x": optax.adam}})
    assert cfg == {"a": {"x": {"__const__": "optax:adam"}}}
    assert cfg == ml_collections.ConfigDict(cfg)
    assert cfg.a.x == optax.adam
    assert cfg.a.x != optax.sgd
    assert cfg != {"a": {"x": object()}}
    assert cfg != 3
    assert cfg is not None
    assert cfg != [("a", 1)]


def test_comparing_never_raises():
    class Rude:
        def __eq__(self, other):
            raise RuntimeError

    a, b = konfig.ConfigDict({"l": []}), konfig.ConfigDict({"l": []})
    a.l.append(Rude())
    b.l.append(Rude())
    assert a != b
    dangling = konfig.ConfigDict()
    dangling.x = dangling.ref.nothing
    assert dangling != konfig.ConfigDict({"x": 1})
    assert dangling == copy.deepcopy(dangling)


def test_cyclic_configs_compare():
    a, b = konfig.ConfigDict({"n": 1}), konfig.ConfigDict({"n": 1})
    a.me = a
    b.me = b
    assert a == b
    b.n = 2
    assert a != b


def test_nan_equals_itself_after_a_copy():
    cfg = konfig.ConfigDict({"x": float("nan")})
    assert cfg == copy.deepcopy(cfg)


def test_a_config_is_not_hashable():
    with pytest.raises(TypeError):
        hash(konfig.ConfigDict())


# ------------------------------------------------------------------------------------
# Copies
# ------------------------------------------------------------------------------------


def test_a_shallow_copy_shares_children_but_not_lists():
    cfg = konfig.ConfigDict({"a": {"x": 1}, "l": [1], "n": 1})
    cfg.r = cfg.ref.n
    copied = copy.copy(cfg)
    copied.l.append(2)
    copied.n = 5
    assert copied.a is cfg.a
    assert cfg.l == [1]
    assert cfg.n == 1
    assert copied.r == 1  # still that of the original


def test_a_deep_copy_is_independent_and_keeps_sharing_and_cycles():
    shared = konfig.ConfigDict({"x": 1})
    cfg = konfig.ConfigDict({"a": shared, "l": [shared]})
    cfg.me = cfg
    copied = copy.deepcopy(cfg)
    assert copied.a is copied.l[0]
    assert copied.me is copied
    cfg.a.x = 2
    assert copied.a.x == 1


def test_references_of_a_deep_copy_follow_the_copy():
    cfg = konfig.ConfigDict({"n": 1, "k": 10})
    cfg.path = cfg.ref.n
    cfg.sum = 1 + cfg.ref.n + cfg.ref.k
    cfg.fn = konfig.ref_fn(double, cfg.ref.n)
    cfg.nested = konfig.ref_fn(sum, [cfg.ref.n, cfg.ref.k])
    cfg.item = {"deep": [cfg.ref.n]}
    copied = copy.deepcopy(cfg)
    cfg.n = 100
    assert (copied.path, copied.sum, copied.fn, copied.nested) == (1, 12, 2, 11)
    copied.n = 5
    assert (copied.path, copied.sum, copied.fn, copied.nested) == (5, 16, 10, 15)
    assert konfig.resolve(copied.item) == {"deep": (5,)}
    assert cfg.path == 100


def test_a_reference_to_the_outside_stays_attached_to_it():
    cfg = konfig.ConfigDict({"n": 1, "sub": {}})
    cfg.sub.x = cfg.ref.n
    copied = copy.deepcopy(cfg.sub)
    cfg.n = 7
    assert copied.x == 7


def test_references_between_configs_copied_together_stay_between_them():
    a, b = konfig.ConfigDict(), konfig.ConfigDict({"n": 1})
    a.x = b.ref.n
    a2, b2 = copy.deepcopy([a, b])
    b2.n = 9
    assert a2.x == 9
    assert a.x == 1


def test_linked_placeholders_stay_linked_in_a_deep_copy():
    shared = konfig.placeholder(int)
    cfg = konfig.ConfigDict({"a": shared, "b": {"c": shared}})
    copied = copy.deepcopy(cfg)
    copied.a = 3
    assert copied.b.c == 3
    assert cfg.a is None
    with pytest.raises(TypeError):
        copied.a = "text"


@pytest.mark.parametrize("protocol", [2, 5])
def test_pickle_keeps_sharing_references_and_cycles(protocol):
    shared = konfig.ConfigDict({"x": 1})
    cfg = konfig.ConfigDict({"a": shared, "l": [shared], "n": 2})
    cfg.r = cfg.ref.n + 1
    cfg.f = konfig.ref_fn(double, cfg.ref.n)
    cfg.p = konfig.placeholder(int)
    cfg.u = optax.Adam | None
    cfg.lock()
    loaded = pickle.loads(pickle.dumps(cfg, protocol))
    assert loaded == cfg
    assert loaded.a is loaded.l[0]
    loaded.n = 5
    assert (loaded.r, loaded.f) == (6, 10)
    assert loaded.is_locked
    with pytest.raises(TypeError, match=r"cfg\.p"):
        loaded.p = "text"
    with pytest.raises(AttributeError, match=r"cfg\.a "):
        loaded.a.nothing
    cyclic = konfig.ConfigDict()
    cyclic.me = [cyclic]
    again = pickle.loads(pickle.dumps(cyclic, protocol))
    assert again.me[0] is again


# ------------------------------------------------------------------------------------
# Merging
# ------------------------------------------------------------------------------------


def test_a_union_leaves_both_sides_alone_and_merges_dicts():
    a = konfig.ConfigDict({"m": {"x": 1, "deep": {"k": 1}}, "n": 1})
    merged = a | {"m": {"y": 2, "deep": {"l": 2}}}
    assert a == {"m": {"x": 1, "deep": {"k": 1}}, "n": 1}
    assert merged == {"m": {"x": 1, "deep": {"k": 1, "l": 2}, "y": 2}, "n": 1}


def test_a_node_of_another_symbol_replaces_the_node():
    a = konfig.ConfigDict({"opt": optax.adam(0.1, b1=0.9)})
    assert (a | {"opt": optax.sgd(0.2)}).opt == optax.sgd(0.2)
    assert (a | {"opt": optax.adam(b2=0.5)}).opt == optax.adam(0.1, b1=0.9, b2=0.5)
    assert (a | {"opt": {"b1": 0.1}}).opt == optax.adam(0.1, b1=0.1)
    assert (a | {"opt": None}).opt is None
    assert (a | {"opt": optax.adam}).opt == {"__const__": "optax:adam"}


def test_update_takes_mappings_pairs_and_keywords():
    cfg = konfig.ConfigDict({"a": {"x": 1}, "n": 1})
    cfg.update({"a": {"y": 2}}, n=2)
    cfg.update([("k", 3)])
    cfg.update(konfig.ConfigDict({"a": {"x": 5}}))
    assert cfg == {"a": {"x": 5, "y": 2}, "n": 2, "k": 3}
    with pytest.raises(TypeError):
        cfg.update({}, {})


def test_none_scalars_and_references_replace_what_they_update():
    cfg = konfig.ConfigDict({"a": {"x": 1}, "n": 1, "m": 2})
    cfg.r = cfg.ref.n
    cfg.update(a=None, m=cfg.ref.n, r=cfg.ref.m)
    cfg.n = 3
    assert cfg == {"a": None, "n": 3, "m": 3, "r": 3}


def test_updating_with_itself_changes_nothing():
    cfg = konfig.ConfigDict({"a": {"x": 1}})
    cfg.update(cfg)
    assert cfg == {"a": {"x": 1}}


def test_the_in_place_union_rebinds():
    cfg = original = konfig.ConfigDict({"x": 1})
    cfg |= {"x": 2}
    assert original.x == 1
    assert cfg.x == 2


def test_a_dict_on_the_left_works():
    cfg = konfig.ConfigDict({"a": {"y": 2}})
    merged = {"a": {"x": 1}} | cfg
    assert isinstance(merged, konfig.ConfigDict)
    assert merged == {"a": {"x": 1, "y": 2}}
    assert cfg == {"a": {"y": 2}}
    with pytest.raises(TypeError):
        cfg | 3


def test_arguments_are_updated_by_index_in_any_order():
    cfg = optax.adam(0.1)
    cfg.update({1: "b", 0: 2.0})
    assert cfg == optax.adam(2.0, "b")
