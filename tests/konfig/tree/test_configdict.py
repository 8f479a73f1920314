"""Nodes: access, positional arguments, accepted values, the type rule."""

import collections.abc
import copy
import dataclasses
import enum
import functools
import pathlib
import warnings

import ml_collections
import numpy as np
import pytest

from kauldron import konfig
from kauldron.immutabledict import ImmutableDict

with konfig.imports():
    import fractions

    import optax


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class ConfigArgs:
    depth: int = 3
    sizes: tuple[int, ...] = (1, 2)


def call(**fields):
    return konfig.ConfigDict({"__qualname__": "m:f", **fields})


# ------------------------------------------------------------------------------------
# Construction
# ------------------------------------------------------------------------------------


def test_plain_dicts_become_nodes_at_any_depth():
    cfg = konfig.ConfigDict({"a": {"b": [{"c": 1}]}})
    assert isinstance(cfg.a.b[0], konfig.ConfigDict)
    assert cfg.a.b[0].c == 1


def test_a_node_is_stored_by_identity():
    child = konfig.ConfigDict({"x": 1})
    cfg = konfig.ConfigDict({"a": child, "b": [child]})
    child.x = 2
    assert cfg.a is child
    assert cfg.b[0] is child
    assert cfg.a.x == 2


def test_a_plain_dict_used_twice_gives_two_independent_copies():
    plain = {"x": 1, "items": [1]}
    cfg = konfig.ConfigDict({"a": plain, "b": plain})
    cfg.a.x = 2
    cfg.a["items"].append(2)
    assert cfg.b.x == 1
    assert cfg.b["items"] == [1]
    assert plain == {"x": 1, "items": [1]}


def test_a_config_made_from_a_config_shares_its_children():
    first = konfig.ConfigDict({"a": {"x": 1}, "n": 1})
    second = konfig.ConfigDict(first)
    second.n = 2
    second.a.x = 5
    assert first.n == 1
    assert first.a.x == 5


@pytest.mark.parametrize(
    "mapping",
    [
        {"a": {"b": 1}},
        ml_collections.ConfigDict({"a": {"b": 1}}),
        ml_collections.FrozenConfigDict({"a": {"b": 1}}),
        ImmutableDict({"a": ImmutableDict(b=1)}),
        konfig.ConfigDict({"a": {"b": 1}}),
    ],
)
def test_any_mapping_can_be_given(mapping):
    cfg = konfig.ConfigDict(mapping)
    assert type(cfg.a) is konfig.ConfigDict
    assert cfg.to_dict() == {"a": {"b": 1}}


def test_only_a_mapping_can_be_given():
    with pytest.raises(TypeError, match="mapping"):
        konfig.ConfigDict([1, 2])
    with pytest.raises(TypeError):
        konfig.ConfigDict(a=1)


def test_a_config_is_what_it_claims_to_be():
    cfg = konfig.ConfigDict({"a": 1})
    assert isinstance(cfg, ml_collections.ConfigDict)
    assert isinstance(cfg, collections.abc.MutableMapping)
    match cfg:
        case {"a": value}:
            assert value == 1
        case _:
            pytest.fail("a mapping pattern does not match")


def test_registering_as_a_mapping_does_not_touch_ml_collections():
    plain = ml_collections.ConfigDict()
    assert not isinstance(plain, collections.abc.MutableMapping)
    assert not hasattr(plain, "ref")


def test_jax_treats_a_node_as_a_leaf():
    import jax

    cfg = konfig.ConfigDict({"a": 1})
    assert jax.tree.leaves([cfg, {"x": cfg}]) == [cfg, cfg]


# ------------------------------------------------------------------------------------
# Access
# ------------------------------------------------------------------------------------


def test_fields_are_attributes_and_items():
    cfg = konfig.ConfigDict({"a": 1})
    cfg.b = 2
    cfg["c"] = 3
    assert (cfg.a, cfg["b"], cfg.c) == (1, 2, 3)
    del cfg.a
    del cfg["b"]
    assert "a" not in cfg
    assert list(cfg) == ["c"]
    assert dict(**cfg) == {"c": 3}


def test_order_is_that_of_insertion():
    cfg = konfig.ConfigDict({"z": 1, "a": 2})
    cfg.m = 3
    assert cfg.keys() == ["z", "a", "m"]
    assert cfg.values() == [1, 2, 3]
    assert cfg.items() == [("z", 1), ("a", 2), ("m", 3)]


def test_truth_and_length_count_the_fields():
    assert not konfig.ConfigDict()
    assert len(konfig.ConfigDict({"a": 1, "b": 2})) == 2


def test_a_dotted_key_is_a_key_and_not_a_path():
    cfg = konfig.ConfigDict({"a": {"b": 1}, "a.b": 2})
    assert cfg["a.b"] == 2
    cfg["x.y"] = 3
    assert "x" not in cfg
    assert cfg["x", "y"] == 3
    del cfg["x.y"]
    assert "x.y" not in cfg


def test_number_and_text_keys_differ_in_a_dict():
    cfg = konfig.ConfigDict({0: "zero", "0": "text", 1.5: "float", True: "bool"})
    assert cfg[0] == "zero"
    assert cfg["0"] == "text"
    assert cfg[1.5] == "float"
    assert cfg[True] == "bool"


def test_a_missing_item_is_a_key_error_with_a_suggestion():
    cfg = konfig.ConfigDict({"opt": optax.adam(learning_rate=0.1)})
    with pytest.raises(KeyError) as error:
        cfg.opt["learning_rat"]
    text = str(error.value)
    assert "cfg.opt" in text
    assert "optax.adam" in text
    assert "Did you mean 'learning_rate'?" in text
    assert not text.startswith('"')


def test_a_misspelt_attribute_is_an_attribute_error_with_a_suggestion():
    cfg = konfig.ConfigDict({"model": {"layers": [{"features": 3}]}})
    with pytest.raises(AttributeError, match=r"cfg\.model\.layers\[0\].*'features'"):
        cfg.model.layers[0].featurs
    assert not hasattr(cfg, "modle")
    assert getattr(cfg, "modle", 5) == 5


def test_without_a_near_name_the_fields_are_listed():
    cfg = konfig.ConfigDict({"alpha": 1, "beta": 2})
    with pytest.raises(AttributeError, match="It has: alpha, beta"):
        cfg.qqqq


def test_methods_win_when_read_and_fields_are_stored_with_one_warning():
    cfg = konfig.ConfigDict()
    with pytest.warns(UserWarning, match=r"cfg\['values'\]"):
        cfg.values = [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cfg.values = [2]
    assert cfg["values"] == [2]
    assert callable(cfg.values)


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__init__", "__doc__"])
def test_what_every_object_has_cannot_be_a_field(name):
    cfg = konfig.ConfigDict()
    with pytest.raises(AttributeError):
        setattr(cfg, name, 1)
    assert type(cfg) is konfig.ConfigDict


def test_the_rest_of_a_mutable_mapping():
    cfg = konfig.ConfigDict({"a": 1, "b": {"c": 2}})
    assert cfg.pop("a") == 1
    assert cfg.pop("a", None) is None
    with pytest.raises(KeyError):
        cfg.pop("a")
    assert cfg.setdefault("b", 5) is cfg.b
    stored = cfg.setdefault("d", {"x": 1})
    assert stored is cfg.d
    assert cfg.popitem() == ("d", stored)
    assert cfg.get("q") is None
    assert cfg.get("q", 3) == 3
    copied = cfg.copy()
    cfg.clear()
    assert not cfg
    assert copied.b.c == 2
    with pytest.raises(KeyError):
        cfg.popitem()


def test_dir_lists_fields_and_survives_odd_keys():
    cfg = konfig.ConfigDict({"width": 1, 3: 2, "odd key": 1})
    assert "width" in dir(cfg)
    assert "odd key" not in dir(cfg)


# ------------------------------------------------------------------------------------
# Positional arguments
# ------------------------------------------------------------------------------------


def test_positional_arguments_are_read_and_written_by_index():
    cfg = fractions.Fraction(7, 2)
    assert (cfg[0], cfg[1], cfg[-1], cfg["0"]) == (7, 2, 2, 7)
    cfg[-2] = 9
    cfg[2] = "appended"
    assert cfg["0"] == 9
    assert cfg["2"] == "appended"
    assert 2 in cfg
    assert -3 in cfg
    assert 3 not in cfg
    assert cfg.get(5, "none") == "none"


@pytest.mark.parametrize("index", [-3, 2, 5])
def test_an_index_out_of_range_names_the_limits(index):
    cfg = fractions.Fraction(7, 2)
    with pytest.raises(IndexError, match=rf"{index}.*has 2, -2 to 1"):
        cfg[index]
    if index != 2:
        with pytest.raises(IndexError):
            cfg[index] = 1
    with pytest.raises(IndexError):
        del cfg[index]


def test_deleting_an_argument_renumbers_the_others():
    cfg = konfig.ConfigDict({"__qualname__": "m:f", "0": "a", "1": "b", "2": "c"})
    del cfg[0]
    assert cfg == {"__qualname__": "m:f", "0": "b", "1": "c"}
    del cfg["0"]
    assert cfg[0] == "c"


@pytest.mark.parametrize(
    "fields",
    [
        {0: 7, 1: 8, "__qualname__": "m:f", "b": 2},
        {"__qualname__": "m:f", "1": 8, "0": 7, "b": 2},
        {1: 8, "b": 2, "0": 7, "__qualname__": "m:f"},
    ],
)
def test_integer_and_text_keys_are_the_same_arguments_in_any_order(fields):
    cfg = konfig.ConfigDict(fields)
    assert cfg == {"__qualname__": "m:f", "0": 7, "1": 8, "b": 2}
    assert cfg.keys() == ["__qualname__", "0", "1", "b"]


def test_an_argument_given_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        konfig.ConfigDict({"__qualname__": "m:f", 0: 1, "0": 2})


def test_what_is_called_can_be_changed():
    cfg = konfig.ConfigDict({"opt": optax.adam(0.1), "dtype": fractions.Fraction})
    cfg.opt.__qualname__ = "optax:sgd"
    cfg.dtype.__const__ = "decimal:Decimal"
    assert cfg.opt == optax.sgd(0.1)
    cfg.opt.__qualname__ = optax.rmsprop
    assert cfg.opt.__qualname__ == "optax:rmsprop"
    assert konfig.resolve(cfg.dtype).__name__ == "Decimal"


def test_naming_a_call_later_turns_number_keys_into_arguments():
    cfg = konfig.ConfigDict({0: 7, "b": 1})
    cfg.__qualname__ = "fractions:Fraction"
    assert cfg[0] == 7
    assert cfg.keys()[0] == "__qualname__"


# ------------------------------------------------------------------------------------
# Accepted values
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [1, 1.5, True, "a", b"a", None, ..., 2j, slice(1, 2), pathlib.Path("a"), {1}, (1,)],
)
def test_plain_values_are_stored_as_they_are(value):
    cfg = konfig.ConfigDict({"x": value})
    assert cfg.x == value
    assert type(cfg.x) is type(value)


def test_a_proxy_is_a_constant_also_inside_of_lists():
    cfg = konfig.ConfigDict({"x": optax.adam, "y": [optax.sgd]})
    assert cfg.x == {"__const__": "optax:adam"}
    assert cfg.y[0] == {"__const__": "optax:sgd"}


def test_an_object_may_say_what_it_is_in_a_config():
    class Path:
        def __as_konfig__(self):
            return {"keys": ["a", "b"]}

    assert konfig.ConfigDict({"x": Path()}).x["keys"] == ["a", "b"]


def test_a_partial_of_a_proxy_is_a_call_of_partial():
    cfg = konfig.ConfigDict({"x": functools.partial(optax.adam, 1, b=2)})
    assert cfg.x == {
        "__qualname__": "functools:partial",
        "0": {"__const__": "optax:adam"},
        "1": 1,
        "b": 2,
    }


def test_config_args_become_a_dict():
    cfg = konfig.ConfigDict({"aux": ConfigArgs()})
    assert cfg.aux == {"depth": 3, "sizes": (1, 2)}


def test_numpy_scalars_become_python_scalars():
    cfg = konfig.ConfigDict({"i": np.int64(3), "f": np.float64(0.5), "b": np.bool_(1)})
    assert [type(v) for v in cfg.values()] == [int, float, bool]


def test_an_enum_member_is_a_constant():
    cfg = konfig.ConfigDict({"x": Color.RED, "s": {Color.RED}})
    assert cfg.x.__const__ == f"{__name__}:Color.RED"
    assert konfig.resolve(cfg) == {"x": Color.RED, "s": frozenset({Color.RED})}


REAL_OBJECTS = [
    len,
    np.zeros(3),
    object(),
    Color,
    __import__("optax").adam(0.1),
    __import__("optax").GradientTransformation(1, 2),
    lambda: None,
    range(3),
]


@pytest.mark.parametrize("value", REAL_OBJECTS, ids=lambda v: type(v).__name__)
def test_a_real_object_is_refused_with_its_path_and_the_import_hint(value):
    cfg = konfig.ConfigDict({"a": {"b": 1}})
    with pytest.raises(ValueError, match=r"cfg\.a\.c\[0\]\.d") as error:
        cfg.a.c = [{"d": value}]
    text = str(error.value)
    assert "konfig.imports()" in text
    assert "konfig.mock_modules()" in text
    assert type(value).__qualname__ in text
    assert "c" not in cfg.a
    with pytest.raises(ValueError, match=r"cfg\.x\.y"):
        konfig.ConfigDict({"x": {"y": value}})


def test_the_author_is_told_to_import_the_module_of_a_class():
    with pytest.raises(ValueError, match="import its module instead"):
        konfig.ConfigDict({"x": pathlib.PurePath})


def test_a_real_object_among_the_arguments_of_a_call_is_refused():
    with pytest.raises(ValueError, match=r"cfg\.schedule"):
        optax.adam(schedule=lambda step: step)


# ------------------------------------------------------------------------------------
# The type rule
# ------------------------------------------------------------------------------------

SYMBOL = {"__const__": "m:x"}
CALL = {"__qualname__": "m:f"}
PATH = pathlib.Path("p")


@pytest.mark.parametrize(
    "old, new, stored",
    [
        (1, None, None),
        (None, "a", "a"),
        (1, 2, 2),
        (1, True, True),
        (1.0, 3, 3.0),
        ([1], (2,), [2]),
        ((1,), [2], (2,)),
        ({"a": 1}, {"b": 2}, {"b": 2}),
        (1, 1e6, 1000000),
        ("a", PATH, "p"),
        (PATH, "b", "b"),
        (1, CALL, CALL),
        (CALL, 1, 1),
        ("a", SYMBOL, SYMBOL),
        (SYMBOL, "a", "a"),
        ([1], CALL, CALL),
        ({"a": 1}, CALL, CALL),
        (CALL, {"a": 1}, {"a": 1}),
    ],
)
def test_an_overwrite_that_fits_is_accepted(old, new, stored):
    cfg = konfig.ConfigDict({"x": old})
    cfg.x = new
    assert cfg.x == stored
    if not isinstance(stored, dict):
        assert type(cfg.x) is type(stored)


@pytest.mark.parametrize(
    "old, new",
    [
        (1, "a"),
        (1, 1.5),
        (True, 1),
        ({"a": 1}, 1),
        ("a", 1),
        ([1], 1),
        (1, [1]),
        (1, {"a": 1}),
        (1.0, "1.0"),
        (1, float("inf")),
    ],
)
def test_an_overwrite_of_another_type_is_refused(old, new):
    cfg = konfig.ConfigDict({"a": {"x": old}})
    with pytest.raises(TypeError, match=r"cfg\.a\.x.*ignore_type") as error:
        cfg.a.x = new
    assert "reference" not in str(error.value)
    assert cfg.a == {"x": old}


def test_the_type_is_forgotten_once_a_field_is_none():
    cfg = konfig.ConfigDict({"x": 1})
    cfg.x = None
    cfg.x = "text"
    assert cfg.x == "text"


def test_a_plain_field_can_become_a_reference_of_any_type():
    cfg = konfig.ConfigDict({"x": 1, "name": "a"})
    cfg.x = cfg.ref.name
    assert cfg.x == "a"


def test_ignore_type_switches_the_rule_off_also_below():
    cfg = konfig.ConfigDict({"a": {"x": 1}, "l": [{"y": 1}]})
    cfg.loop = cfg
    with cfg.ignore_type():
        cfg.a.x = "text"
        cfg.l[0].y = "text"
    assert cfg.a.x == "text"
    with pytest.raises(TypeError):
        cfg.a.x = 1


# ------------------------------------------------------------------------------------
# Locks and other helpers of ml_collections
# ------------------------------------------------------------------------------------


def test_a_locked_config_takes_new_values_but_no_new_fields():
    cfg = konfig.ConfigDict({"width": 1, "a": {"x": 1}, "l": [{"y": 1}]}).lock()
    cfg.width = 2
    with pytest.raises(AttributeError, match="Did you mean 'width'"):
        cfg.widht = 1
    with pytest.raises(KeyError):
        cfg["new"] = 1
    with pytest.raises(AttributeError, match="locked"):
        del cfg.width
    with pytest.raises(KeyError):
        del cfg["width"]
    with pytest.raises(AttributeError):
        cfg.l[0].z = 1
    assert cfg.is_locked
    assert cfg.a.is_locked
    with cfg.unlocked():
        cfg.new = 1
    assert cfg.is_locked
    assert not cfg.unlock().a.is_locked


def test_to_dict_gives_plain_dicts_with_values():
    shared = konfig.ConfigDict({"x": 1})
    cfg = konfig.ConfigDict({"a": shared, "l": [shared]})
    cfg.r = cfg.ref.a.x
    plain = cfg.to_dict()
    assert plain == {"a": {"x": 1}, "l": [{"x": 1}], "r": 1}
    assert type(plain["l"][0]) is dict
    assert plain["a"] is plain["l"][0]


def test_get_type_and_update_from_flattened_dict():
    cfg = konfig.ConfigDict({"a": {"b": 1}, "l": [1, 2], "p": konfig.placeholder(str)})
    assert cfg.get_type("a") is konfig.ConfigDict
    assert cfg.get_type("p") is str
    cfg.update_from_flattened_dict({"a.b": 5, "a.new": 6, "l[1]": 7})
    assert cfg.a == {"b": 5, "new": 6}
    assert cfg.l == [1, 7]


def test_computed_dicts_stay_apart_in_plain_dicts_and_copies():
    cfg = konfig.ConfigDict({"listed": []})
    for index in range(20):  # dicts that are made when read may get the same ids
        cfg[f"x{index}"] = konfig.ref_fn(lambda n: {"n": n}, index)
        cfg.listed.append(konfig.ref_fn(lambda n: {"n": n}, index))
    for plain in (cfg.to_dict(), cfg.copy_and_resolve_references().to_dict()):
        assert [plain[f"x{index}"]["n"] for index in range(20)] == list(range(20))
        assert [item["n"] for item in plain["listed"]] == list(range(20))


def test_copy_and_resolve_references_has_values_only():
    cfg = konfig.ConfigDict({"n": 1, "a": {"x": 1}})
    cfg.m = cfg.ref.n + 1
    cfg.l = [cfg.ref.n]
    copied = cfg.copy_and_resolve_references()
    cfg.n = 10
    assert (copied.m, copied.l) == (2, [1])
    assert copied.a is not cfg.a


def test_eq_as_configdict_ignores_the_kind_of_config():
    cfg = konfig.ConfigDict({"a": {"x": 1}})
    assert cfg.eq_as_configdict(ml_collections.ConfigDict({"a": {"x": 1}}))
    assert not cfg.eq_as_configdict(ml_collections.ConfigDict({"a": {"x": 2}}))
    assert not cfg.eq_as_configdict({"a": {"x": 1}})


def test_yaml_text_restores_the_config():
    import yaml

    cfg = konfig.ConfigDict({"a": {"x": 1}, "l": [1]})
    assert yaml.unsafe_load(cfg.to_yaml()) == cfg


def test_ml_collections_reads_a_config():
    cfg = konfig.ConfigDict({"a": {"x": 1}})
    cfg.b = cfg.ref.a.x
    frozen = ml_collections.FrozenConfigDict(cfg)
    assert frozen.b == 1
    assert ml_collections.ConfigDict(cfg).a.x == 1


# ------------------------------------------------------------------------------------
# Where a node hangs
# ------------------------------------------------------------------------------------


def place(node):
    """The place of a node, as its messages tell it."""
    with pytest.raises(AttributeError) as raised:
        node.no_such_field
    return str(raised.value).split(" ")[0]


def layers(*sizes):
    return konfig.ConfigDict({"layers": [{"n": n} for n in sizes], "f": {"x": 0}})


def test_node_that_was_set_by_path_knows_its_place():
    cfg = layers(1, 2)
    konfig.set_by_path(cfg, "layers[1]", {"n": 3, "deep": {"x": 1}})
    assert place(cfg.layers[1]) == "cfg.layers[1]"
    assert place(cfg.layers[1].deep) == "cfg.layers[1].deep"
    with pytest.raises(ValueError, match=r"Cannot set cfg\.layers\[1\]\.x\[0\] to"):
        konfig.set_by_path(cfg, "layers[1]", {"x": [object()]})


def test_node_that_moved_knows_its_new_place():
    cfg = layers(1, 2, 3)
    cfg.head = cfg.layers.pop()
    assert place(cfg.head) == "cfg.head"
    cfg.f.first = cfg.layers[0]
    del cfg.layers[0]
    assert place(cfg.f.first) == "cfg.f.first"
    cfg.head, cfg.f.first = cfg.f.first, cfg.head
    assert [place(cfg.head), place(cfg.f.first)] == ["cfg.head", "cfg.f.first"]
    alone = cfg.pop("head")
    assert place(alone) == "cfg"


EDITS = {
    "append": lambda cfg, new: cfg.layers.append(new),
    "insert": lambda cfg, new: cfg.layers.insert(0, new),
    "extend": lambda cfg, new: cfg.layers.extend([new]),
    "+=": lambda cfg, new: cfg.layers.__iadd__([new]),
    "item": lambda cfg, new: cfg.layers.__setitem__(0, new),
    "slice": lambda cfg, new: cfg.layers.__setitem__(slice(0, 1), [new, new]),
    "del": lambda cfg, new: cfg.layers.__delitem__(0),
    "reverse": lambda cfg, new: cfg.layers.reverse(),
    "sort": lambda cfg, new: cfg.layers.sort(key=lambda node: -node.n),
    "nested": lambda cfg, new: cfg.layers.append([new]),
    "update": lambda cfg, new: cfg.update(layers=[new, *cfg.layers]),
    "assign": lambda cfg, new: setattr(cfg, "layers", [new]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_nodes_of_a_list_that_was_edited_know_their_places(edit):
    cfg = layers(1, 2, 3)
    EDITS[edit](cfg, konfig.ConfigDict({"n": 9}))
    assert len(cfg.layers) > 0
    for index, item in enumerate(cfg.layers):
        if isinstance(item, list):
            assert place(item[0]) == f"cfg.layers[{index}][0]"
        else:
            first = cfg.layers.index(item)
            assert place(item) == f"cfg.layers[{first}]"


def test_positional_arguments_know_their_places_after_a_deletion():
    cfg = konfig.ConfigDict({"f": {"__qualname__": "m:f", "0": 1, "1": {"x": 1}}})
    del cfg.f[0]
    assert place(cfg.f[0]) == "cfg.f[0]"


def test_value_of_a_placeholder_and_children_of_a_copy_know_their_places():
    cfg = konfig.ConfigDict({"model": konfig.placeholder(), "l": [{"n": 1}]})
    cfg.model = {"a": 1}
    assert place(cfg.model) == "cfg.model"
    copied = copy.copy(konfig.ConfigDict({"outer": cfg}).outer)
    assert place(copied.l[0]) == "cfg.l[0]"


def test_error_of_an_empty_config_reads_as_a_sentence():
    with pytest.raises(KeyError) as raised:
        konfig.ConfigDict().popitem()
    assert str(raised.value) == "The config is empty."
