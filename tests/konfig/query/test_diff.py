"""`konfig.diff`."""

import copy
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig


def call(qualname, **fields):
    return {"__qualname__": qualname, **fields}


def make_config():
    return konfig.ConfigDict(
        {
            "seed": 0,
            "model": call("m:Net", encoder=call("m:Enc", width=8, sizes=[1, 2])),
            "shape": (1, 2),
        }
    )


def test_equal_configs_have_no_difference():
    difference = konfig.diff(make_config(), make_config())
    assert not difference
    assert str(difference) == ""
    assert difference.as_overrides() == {}


def test_changes_at_three_levels_are_listed_by_path():
    new = make_config()
    new.seed = 1
    new.model.encoder.width = 16
    new.model.encoder.sizes[1] = 5
    new.model.encoder.depth = 3
    del new["shape"]
    difference = konfig.diff(make_config(), new)
    assert difference
    assert difference.changed == {
        "seed": (0, 1),
        "model.encoder.width": (8, 16),
        "model.encoder.sizes[1]": (2, 5),
    }
    assert difference.added == {"model.encoder.depth": 3}
    assert difference.removed == {"shape": (1, 2)}
    assert str(difference).splitlines() == [
        "~ seed: 0 -> 1",
        "~ model.encoder.width: 8 -> 16",
        "~ model.encoder.sizes[1]: 2 -> 5",
        "+ model.encoder.depth: 3",
        "- shape: (1, 2)",
    ]


def test_changed_symbol_is_one_entry_followed_by_its_arguments():
    new = make_config()
    new.model.encoder = call("m:Other", width=9, rate=0.1)
    lines = str(konfig.diff(make_config(), new)).splitlines()
    assert lines == [
        "~ model.encoder: 'm:Enc' -> 'm:Other'",
        "~ model.encoder.width: 8 -> 9",
        "+ model.encoder.rate: 0.1",
        "- model.encoder.sizes: [1, 2]",
    ]


def test_changed_constant_is_one_entry():
    old, new = ({"c": {"__const__": name}} for name in ("m:a", "m:b"))
    assert konfig.diff(old, new).changed == {"c": ("m:a", "m:b")}


def test_call_that_becomes_a_dict_is_a_change_of_symbol():
    difference = konfig.diff({"a": call("m:f", n=1)}, {"a": {"n": 1}})
    assert difference.changed == {"a": ("m:f", None)}


def test_added_node_is_one_entry():
    difference = konfig.diff({}, {"a": call("m:f", n=1)})
    assert difference.added == {"a": call("m:f", n=1)}
    assert str(difference) == "+ a: m.f(...)"


def test_position_of_the_colon_is_no_difference():
    assert not konfig.diff({"a": call("a.b:c")}, {"a": call("a:b.c")})


def test_references_are_compared_by_value():
    old = konfig.ConfigDict({"a": 1})
    old.b = old.ref.a + 1
    assert not konfig.diff(old, {"a": 1, "b": 2})
    assert konfig.diff(old, {"a": 1, "b": 3}).changed == {"b": (2, 3)}


def test_list_and_tuple_differ():
    assert konfig.diff({"a": [1]}, {"a": (1,)}).changed == {"a": ([1], (1,))}


def test_nan_equals_nan():
    assert not konfig.diff({"a": float("nan")}, {"a": float("nan")})


def test_sharing_is_reported_separately():
    old = konfig.ConfigDict({"a": {"n": 1}, "b": {"n": 1}})
    new = konfig.ConfigDict({"a": {"n": 1}})
    new.b = new.a
    difference = konfig.diff(old, new)
    assert difference
    assert not difference.changed
    assert difference.shared == (("a", "b"),)
    assert str(difference) == "shared: a, b"
    assert str(konfig.diff(new, old)) == "no longer shared: a, b"


def test_cyclic_configs_are_compared():
    old, new = konfig.ConfigDict({"n": 1}), konfig.ConfigDict({"n": 2})
    old.me, new.me = old, new
    assert konfig.diff(old, new).changed == {"n": (1, 2)}


# ------------------------------------------------------------------------------------
# Saved configs
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["path", "text path", "folder", "text"])
def test_saved_config_is_compared_in_its_saved_form(form, tmp_path):
    cfg = make_config()
    cfg.tags = {"x"}
    file = tmp_path / "config.json"
    file.write_text(cfg.to_json())
    saved = {
        "path": file,
        "text path": str(file),
        "folder": str(tmp_path),
        "text": cfg.to_json(),
    }[form]
    assert not konfig.diff(saved, cfg)
    cfg.seed = 5
    assert konfig.diff(saved, cfg).changed == {"seed": (0, 5)}
    assert konfig.diff(cfg, saved).changed == {"seed": (5, 0)}


def test_missing_saved_config_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match=r"nope\.json"):
        konfig.diff(tmp_path / "nope.json", {})


def test_saved_file_that_is_no_config_is_a_value_error(tmp_path):
    file = tmp_path / "config.json"
    file.write_text("[1]")
    with pytest.raises(ValueError, match=r"config\.json"):
        konfig.diff(file, {})
    file.write_text("{")
    with pytest.raises(json.JSONDecodeError, match=r"config\.json"):
        konfig.diff(file, {})


# ------------------------------------------------------------------------------------
# Overrides
# ------------------------------------------------------------------------------------


def test_overrides_are_as_small_as_they_can_be():
    new = make_config()
    new.model.encoder.width = 16
    new.model.encoder["__qualname__"] = "m:Other"
    new.shape = (1, 5)
    overrides = konfig.diff(make_config(), new).as_overrides()
    assert overrides == {
        "model.encoder.__qualname__": "m:Other",
        "model.encoder.width": 16,
        "shape[1]": 5,
    }


def test_removed_field_replaces_the_node_around_it():
    new = make_config()
    del new.model.encoder["width"]
    overrides = konfig.diff(make_config(), new).as_overrides()
    assert overrides == {"model.encoder": new.model.encoder}
    assert overrides["model.encoder"] is not new.model.encoder


def test_removed_field_of_the_top_level_has_no_override():
    with pytest.raises(ValueError, match="a is not in both"):
        konfig.diff({"a": 1, "b": 2}, {"b": 2}).as_overrides()


def test_lists_that_hold_themselves_are_compared_once():
    cfg = konfig.ConfigDict({"l": [{"a": 1}]})
    cfg.l.append(cfg.l)
    other = konfig.ConfigDict({"l": [{"a": 2}]})
    other.l.append(other.l)
    assert konfig.diff(cfg, other).changed == {"l[0].a": (1, 2)}


_LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab'1", max_size=3)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).flatmap(
            lambda fields: st.sampled_from(["m:f", "m:g"]).map(
                lambda name: {"__qualname__": name, **fields}
            )
        ),
    ),
    max_leaves=10,
)


@hypothesis.given(_TREES, _TREES)
def test_overrides_turn_the_old_config_into_the_new_one(old, new):
    # Below a key of its own, every node can be replaced; only this key must stay.
    old_cfg, new_cfg = (konfig.ConfigDict({"a": {"b": tree}}) for tree in (old, new))
    difference = konfig.diff(old_cfg, new_cfg)
    assert bool(difference) == (old_cfg != new_cfg)
    konfig.apply_overrides(old_cfg, difference.as_overrides())
    assert old_cfg == new_cfg


def test_what_is_computed_is_overridden_as_a_whole():
    old = konfig.ConfigDict({"n": 1})
    old.made = konfig.ref_fn(lambda n: {"n": n, "list": [n]}, old.ref.n)
    new = copy.deepcopy(old)
    new.n = 2
    overrides = konfig.diff(old, new).as_overrides()
    assert list(overrides) == ["n", "made"]
    konfig.apply_overrides(old, overrides)
    assert old == new


def test_lists_of_references_are_overridden_item_by_item():
    old = konfig.ConfigDict({"n": 1})
    old.listed = [old.ref.n, {"pair": (old.ref.n, 5)}]
    old.made = konfig.ref_fn(lambda n: [old.ref.n, n], old.ref.n)
    assert konfig.diff(old, copy.deepcopy(old)).as_overrides() == {}
    new = copy.deepcopy(old)
    new.listed[1] = {"pair": (new.ref.n, 6)}
    overrides = konfig.diff(old, new).as_overrides()
    assert overrides == {"listed[1].pair[1]": 6}
    konfig.apply_overrides(old, overrides)
    assert old == new


def test_references_that_cannot_be_read_differ_if_they_follow_something_else():
    old = konfig.ConfigDict({"unset": konfig.placeholder(int, required=True)})
    old.dangling = old.ref.missing
    new = copy.deepcopy(old)
    assert not konfig.diff(old, new)
    new.dangling = new.ref.gone
    assert list(konfig.diff(old, new).changed) == ["dangling"]
