"""Configs as JSON, and back."""

import copy
import enum
import json
import math
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig

with konfig.imports():
    import fractions


class Color(enum.Enum):
    RED = 1


class Size(enum.IntEnum):
    BIG = 9


def round_trip(cfg, **kwargs):
    return konfig.ConfigDict.from_json(cfg.to_json(**kwargs))


def test_values_and_order_are_kept():
    fields = {"z": 1, "a": [1, 2.5, None, True, "x"], "m": {"n": {}}}
    cfg = konfig.ConfigDict(fields)
    assert json.loads(cfg.to_json()) == fields
    assert list(json.loads(cfg.to_json())) == ["z", "a", "m"]
    assert round_trip(cfg) == cfg
    assert konfig.ConfigDict(json.loads(cfg.to_json())) == cfg
    assert cfg.to_json(indent=2).startswith("{\n  ")


def test_tuples_become_lists_and_paths_become_texts():
    cfg = konfig.ConfigDict({"t": (1, (2,)), "p": pathlib.Path("a/b")})
    assert json.loads(cfg.to_json()) == {"t": [1, [2]], "p": "a/b"}


def test_nan_and_infinity_are_written_as_python_does():
    cfg = konfig.ConfigDict({"a": float("nan"), "b": float("inf")})
    loaded = round_trip(cfg)
    assert math.isnan(loaded.a)
    assert loaded.b == math.inf


def test_references_are_written_as_values_and_unset_placeholders_as_null():
    cfg = konfig.ConfigDict({"n": 1, "p": konfig.placeholder(int)})
    cfg.m = cfg.ref.n + 1
    cfg.q = konfig.required(str)
    assert json.loads(cfg.to_json()) == {"n": 1, "p": None, "m": 2, "q": None}


@pytest.mark.parametrize("key", [0, -3, 1.5, True, False, 10**30, math.inf, 1e-300])
def test_keys_that_are_no_texts_survive(key):
    cfg = konfig.ConfigDict({"d": {key: "v", str(key): "text"}})
    loaded = round_trip(cfg)
    assert loaded == cfg
    assert type(loaded.d.keys()[0]) is type(key)
    assert loaded.d[f"__raw__={key!r}"] == "v"
    assert f'"__raw__={key!r}"' in cfg.to_json()


def test_a_text_that_only_looks_like_an_encoded_key_stays_a_text():
    cfg = konfig.ConfigDict({"__raw__=f(x": 1})
    assert cfg["__raw__=f(x"] == 1
    assert round_trip(cfg) == cfg


def test_other_keys_are_refused_by_name():
    with pytest.raises(TypeError, match=r"cfg\.d.*None"):
        konfig.ConfigDict({"d": {None: 1}}).to_json()


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({"a", "b"}),
        b"\x00\xff",
        slice(1, None, 2),
        ...,
        1 + 2j,
        Color.RED,
        Size.BIG,
        {Color.RED},
    ],
)
def test_values_without_a_json_form_are_written_as_calls(value):
    cfg = konfig.ConfigDict({"x": value})
    resolved = konfig.resolve(round_trip(cfg), freeze=False)["x"]
    assert resolved == value
    assert type(resolved) is type(value)


def test_the_text_of_a_set_does_not_depend_on_its_order():
    first, second = set(), set(range(1000))  # tables of different size
    second.clear()
    for i in range(20):
        first.add(f"name{i}")
        second.add(f"name{19 - i}")
    assert (
        konfig.ConfigDict({"s": first}).to_json()
        == konfig.ConfigDict({"s": second}).to_json()
    )


def test_a_proxy_is_written_as_a_constant():
    cfg = konfig.ConfigDict({"f": fractions.Fraction})
    assert json.loads(cfg.to_json()) == {"f": {"__const__": "fractions:Fraction"}}


# ------------------------------------------------------------------------------------
# Sharing
# ------------------------------------------------------------------------------------


def test_shared_nodes_carry_ids_and_are_shared_again():
    shared = konfig.ConfigDict({"x": 1})
    once = konfig.ConfigDict({"y": 1})
    cfg = konfig.ConfigDict({"a": {"s": shared}, "l": [shared, once]})
    cfg.r = cfg.ref.a.s
    plain = json.loads(cfg.to_json())
    assert plain["a"]["s"] == plain["l"][0] == plain["r"] == {"x": 1, "__id__": 0}
    assert plain["l"][1] == {"y": 1}
    for loaded in (round_trip(cfg), konfig.ConfigDict(plain)):
        assert loaded.a.s is loaded.l[0] is loaded.r
        assert "__id__" not in loaded.r
    assert plain["r"] == {"x": 1, "__id__": 0}


def test_ids_are_numbered_in_the_order_of_discovery():
    a, b = konfig.ConfigDict({"n": "a"}), konfig.ConfigDict({"n": "b"})
    plain = json.loads(konfig.ConfigDict({"l": [b, a], "m": [a, b]}).to_json())
    assert [node["__id__"] for node in plain["l"]] == [0, 1]
    assert [node["__id__"] for node in plain["m"]] == [1, 0]


def test_nodes_below_a_shared_node_are_reached_by_several_paths_too():
    inner = konfig.ConfigDict({"x": 1})
    outer = konfig.ConfigDict({"inner": inner})
    cfg = konfig.ConfigDict({"a": outer, "b": outer})
    assert json.loads(cfg.to_json())["b"]["inner"]["__id__"] == 1
    loaded = round_trip(cfg)
    assert loaded.a is loaded.b


def test_loading_does_not_modify_the_given_dict():
    plain = {"a": {"x": 1, "__id__": 0}, "b": [{"x": 1, "__id__": 0}]}
    before = copy.deepcopy(plain)
    konfig.ConfigDict(plain)
    konfig.resolve(plain)
    assert plain == before


def test_ids_are_scoped_to_one_constructor_call():
    plain = {"a": {"x": 1, "__id__": 0}}
    assert konfig.ConfigDict(plain).a is not konfig.ConfigDict(plain).a


# ------------------------------------------------------------------------------------
# Errors and files
# ------------------------------------------------------------------------------------


def test_a_cyclic_config_names_the_cycle():
    cfg = konfig.ConfigDict({"a": {"b": {}}})
    cfg.a.b.c = [cfg.a]
    with pytest.raises(konfig.CycleError, match=r"cfg\.a\.b\.c\[0\] is cfg\.a\b"):
        cfg.to_json()


def test_a_file_or_a_text_can_be_read(tmp_path):
    cfg = konfig.ConfigDict({"a": {"x": [1]}})
    path = tmp_path / "config.json"
    path.write_text(cfg.to_json(indent=2))
    assert konfig.ConfigDict.from_json(path) == cfg
    assert konfig.ConfigDict.from_json(str(path)) == cfg
    assert konfig.ConfigDict.from_json("\n  " + cfg.to_json()) == cfg
    with pytest.raises(ValueError, match="list"):
        konfig.ConfigDict.from_json("[1]")
    with pytest.raises(FileNotFoundError):
        konfig.ConfigDict.from_json(tmp_path / "nothing.json")


def test_a_saved_config_does_not_get_new_defaults():
    name = "json_test:Thing"
    cfg = konfig.ConfigDict({"t": {"__qualname__": name, "x": 1}})
    text = cfg.to_json()
    konfig.register_default_values(konfig.ConfigDict({"__qualname__": name, "y": 2}))
    assert "y" not in konfig.ConfigDict.from_json(text).t
    assert konfig.ConfigDict(json.loads(text)).t.y == 2


def test_references_can_be_kept():
    cfg = konfig.ConfigDict({"a": {"x": 1}, "l": [1, 2]})
    cfg.r = cfg.ref.a.x
    cfg.i = cfg.ref.l[1]
    cfg.sum = cfg.ref.a.x + 1
    text = cfg.to_json(keep_refs=True)
    assert json.loads(text)["r"] == {"__ref__": "a.x"}
    loaded = konfig.ConfigDict.from_json(text)
    loaded.a.x = 5
    loaded.l[1] = 7
    assert (loaded.r, loaded.i, loaded.sum) == (5, 7, 2)


# ------------------------------------------------------------------------------------
# Properties
# ------------------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from([fractions.Fraction, fractions.gcd])
)
KEYS = st.text(min_size=1, max_size=4).filter(
    lambda k: not k.startswith("__")
) | st.integers(-5, 5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


@hypothesis.given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_config_survives_json_copy_and_repr(fields):
    cfg = konfig.ConfigDict(fields)
    assert round_trip(cfg) == cfg
    assert copy.deepcopy(cfg) == cfg
    assert cfg == fields
    assert cfg.to_json() == konfig.ConfigDict(fields).to_json()
    assert repr(cfg).startswith("<ConfigDict[")
