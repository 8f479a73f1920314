"""`konfig.resolve`: what is built, how often, and which hooks are called."""

import dataclasses
import enum
import pathlib
import sys

import pytest

from kauldron import konfig
from kauldron.immutabledict import ImmutableDict

this = sys.modules[__name__]

with konfig.imports():
    import fractions

    import optax


@dataclasses.dataclass(frozen=True)
class Model:
    width: object = 1
    children: object = ()
    options: object = None


class Counted:
    made = 0

    def __init__(self, value=None):
        type(self).made += 1
        self.value = value


class Excluding:
    __konfig_resolve_exclude_fields__ = ("raw",)

    def __init__(self, raw=None, cooked=None):
        self.raw, self.cooked = raw, cooked

    @classmethod
    def build(cls, raw):
        return cls(raw)


class ExcludingChild(Excluding):
    pass


class Posted:
    cfg = None

    def __post_konfig_resolve__(self, cfg):
        self.cfg = cfg


def make_posted():
    return Posted()


class MetaPosted(type):
    cfg = None

    def __post_konfig_resolve__(cls, cfg):
        cls.cfg = cfg


class OfMetaPosted(metaclass=MetaPosted):
    pass


def make_class():
    return OfMetaPosted


class Level(enum.Enum):
    LOW = 1


class Outer:
    class Inner:
        @staticmethod
        def make(x):
            return ("made", x)


def echo(*args, **kwargs):
    return args, kwargs


def call(name, *args, **kwargs):
    fields = {str(i): a for i, a in enumerate(args)}
    return konfig.ConfigDict({"__qualname__": f"{__name__}:{name}", **fields, **kwargs})


# ------------------------------------------------------------------------------------
# What is built
# ------------------------------------------------------------------------------------


def test_an_optimizer_config_builds_a_working_optimizer_with_the_edited_value():
    import jax.numpy as jnp

    cfg = konfig.ConfigDict({"opt": optax.sgd(learning_rate=0.1)})
    assert cfg.opt == konfig.ConfigDict(
        {"__qualname__": "optax:sgd", "learning_rate": 0.1}
    )
    cfg.opt.learning_rate = 0.5
    optimizer = konfig.resolve(cfg.opt)
    updates, _ = optimizer.update(jnp.ones(2), optimizer.init(jnp.ones(2)))
    assert updates.tolist() == [-0.5, -0.5]


def test_arguments_are_passed_by_position_and_name():
    args, kwargs = konfig.resolve(call("echo", 1, 2, x=3))
    assert args == (1, 2)
    assert kwargs == {"x": 3}


@pytest.mark.parametrize(
    "leaf", [None, 3, 1.5, "text", b"b", True, ..., slice(1), pathlib.Path("a")]
)
def test_a_leaf_is_returned_as_it_is(leaf):
    assert konfig.resolve(leaf) is leaf


def test_lists_and_dicts_arrive_frozen_and_hashable():
    cfg = call("Model", width=[1, [2]], children={"a": {"b": [1]}}, options={1, 2})
    model = konfig.resolve(cfg)
    assert model.width == (1, (2,))
    assert type(model.children.a) is ImmutableDict
    assert model.children.a.b == (1,)
    assert type(model.options) is frozenset
    hash(model)


def test_without_freezing_they_arrive_as_they_are():
    cfg = call("Model", width=[1, (2,)], children={"a": {"b": [1]}}, options={1})
    model = konfig.resolve(cfg, freeze=False)
    assert model.width == [1, (2,)]
    assert type(model.width[1]) is tuple
    assert type(model.children) is dict
    assert type(model.children["a"]) is dict
    assert type(model.options) is set


def test_the_hidden_key_turns_freezing_off_and_stays_in_the_config():
    cfg = konfig.ConfigDict({"a": [1], "_konfig_experimental_nofreeze": True})
    assert konfig.resolve(cfg) == {"a": [1]}
    assert type(konfig.resolve(cfg)) is dict
    assert "_konfig_experimental_nofreeze" in cfg
    made = call("Model", width=[1], _konfig_experimental_nofreeze=False)
    assert konfig.resolve(made, freeze=False).width == (1,)


@pytest.mark.parametrize(
    "given",
    [
        {"__qualname__": "fractions:Fraction", 1: 2, 0: 1},
        {"0": 1, "1": 2, "__qualname__": "fractions:Fraction"},
        {0: 1, "__qualname__": "fractions.Fraction", "1": 2},
    ],
)
def test_a_plain_dict_can_be_resolved(given):
    before = dict(given)
    assert konfig.resolve(given).denominator == 2
    assert given == before


def test_plain_lists_tuples_and_real_objects_can_be_resolved():
    marker = object()
    assert konfig.resolve([{"a": marker}, (1,)]) == ({"a": marker}, (1,))
    assert konfig.resolve((call("echo"),))[0] == ((), {})
    cfg = konfig.ConfigDict({"n": 2})
    assert konfig.resolve(cfg.ref.n) == 2
    assert konfig.resolve([cfg.ref.n]) == (2,)
    assert konfig.resolve(fractions.Fraction).__name__ == "Fraction"


def test_a_raw_json_dict_keeps_its_sharing_when_resolved():
    node = {"__qualname__": f"{__name__}:Counted", "__id__": 0}
    resolved = konfig.resolve({"a": node, "b": [dict(node)]})
    assert resolved.a is resolved.b[0]


def test_constants_of_all_kinds():
    cfg = konfig.ConfigDict(
        {
            "function": {"__const__": f"{__name__}:echo"},
            "member": {"__const__": f"{__name__}:Level.LOW"},
            "module": {"__const__": "json"},
            "submodule": {"__const__": "json.decoder"},
            "nested": {"__const__": "os:path.join"},
        }
    )
    resolved = konfig.resolve(cfg)
    assert resolved.function is echo
    assert resolved.member is Level.LOW
    assert resolved.module.__name__ == "json"
    assert resolved.submodule.__name__ == "json.decoder"
    assert resolved.nested.__name__ == "join"


@pytest.mark.parametrize(
    "qualname",
    [
        "tests_konfig_names:Outer.Inner.make",
        "tests_konfig_names.Outer:Inner.make",
        "tests_konfig_names.Outer.Inner:make",
        "tests_konfig_names.Outer.Inner.make",
    ],
)
def test_the_colon_may_be_anywhere(qualname, monkeypatch):
    monkeypatch.setitem(sys.modules, "tests_konfig_names", this)
    assert konfig.resolve({"__qualname__": qualname, "0": 3}) == ("made", 3)


def test_a_submodule_that_is_not_loaded_yet_is_found_as_an_attribute():
    sys.modules.pop("xml.dom.pulldom", None)
    cfg = {"__const__": "xml:dom.pulldom.PullDOM"}
    assert konfig.resolve(cfg).__name__ == "PullDOM"


# ------------------------------------------------------------------------------------
# How often
# ------------------------------------------------------------------------------------


def test_a_shared_node_is_built_once_per_resolve():
    Counted.made = 0
    node = call("Counted", 1)
    cfg = konfig.ConfigDict({"a": node, "l": [node], "d": {"x": node}})
    cfg.r = cfg.ref.a
    first, second = konfig.resolve(cfg), konfig.resolve(cfg)
    assert Counted.made == 2
    assert first.a is first.l[0] is first.d.x is first.r
    assert first.a is not second.a


def test_equal_nodes_are_built_apart():
    cfg = konfig.ConfigDict({"a": call("Counted"), "b": call("Counted")})
    resolved = konfig.resolve(cfg)
    assert resolved.a is not resolved.b


@pytest.mark.parametrize("freeze", [True, False])
def test_a_shared_dict_is_built_once(freeze):
    shared = konfig.ConfigDict({"x": [1]})
    cfg = konfig.ConfigDict({"a": shared, "b": [shared], "list": [{"n": 1}]})
    cfg.c = cfg.ref.a
    cfg.same_list = cfg.ref.list
    built = konfig.resolve(cfg, freeze=freeze)
    assert built["a"] is built["b"][0] is built["c"]
    assert built["list"] is built["same_list"]
    again = konfig.resolve(cfg, freeze=False)
    assert again["a"] is not konfig.resolve(cfg, freeze=False)["a"]


def test_nodes_that_exist_only_while_resolving_are_not_confused():
    make = konfig.ref_fn(lambda n: call("Counted", n))
    resolved = konfig.resolve([make(i) for i in range(50)])
    assert [made.value for made in resolved] == list(range(50))


def test_the_config_is_not_modified():
    cfg = konfig.ConfigDict({"a": call("Model", [1], {"x": [2]}), "n": 1})
    cfg.r = cfg.ref.n
    before = cfg.to_json()
    konfig.resolve(cfg)
    assert cfg.to_json() == before
    assert type(cfg.a[0]) is list


# ------------------------------------------------------------------------------------
# Hooks
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Excluding", "ExcludingChild", "Excluding.build"])
def test_excluded_fields_arrive_unresolved(name):
    raw = konfig.ConfigDict({"__qualname__": "no_such_module:f"})
    cfg = konfig.ConfigDict({"x": call(name, raw=raw)})
    assert konfig.resolve(cfg).x.raw is raw


def test_a_reference_in_an_excluded_field_is_replaced_by_its_value():
    cfg = konfig.ConfigDict({"target": {"a": 1}})
    cfg.x = call("Excluding", raw=cfg.ref.target, cooked=cfg.ref.target)
    made = konfig.resolve(cfg).x
    assert made.raw is cfg.target
    assert type(made.cooked) is ImmutableDict


def test_the_post_hook_receives_the_node():
    cfg = konfig.ConfigDict({"a": call("Posted"), "b": call("make_posted")})
    resolved = konfig.resolve(cfg)
    assert resolved.a.cfg is cfg.a
    assert resolved.b.cfg is cfg.b
    plain = {"__qualname__": f"{__name__}:Posted"}
    posted = konfig.resolve(plain)
    assert isinstance(posted.cfg, konfig.ConfigDict)
    assert posted.cfg == plain


def test_the_post_hook_of_a_metaclass_is_for_classes_not_for_their_instances():
    assert not vars(konfig.resolve(call("OfMetaPosted")))
    cfg = konfig.ConfigDict({"made": call("make_class")})
    assert konfig.resolve(cfg).made.cfg is cfg.made


# ------------------------------------------------------------------------------------
# Cycles and required values
# ------------------------------------------------------------------------------------


def test_a_config_that_contains_itself_names_the_cycle():
    cfg = konfig.ConfigDict({"a": {"b": [1]}})
    cfg.a.b.append(cfg.a)
    with pytest.raises(konfig.CycleError, match=r"cfg\.a\.b\[1\] is cfg\.a\b"):
        konfig.resolve(cfg)
    loop = konfig.ConfigDict({"m": call("Model")})
    loop.m.children = loop.ref.m
    with pytest.raises(konfig.CycleError, match=r"cfg\.m\.children is cfg\.m"):
        konfig.resolve(loop)


def test_a_list_that_contains_itself_is_a_cycle():
    cfg = konfig.ConfigDict({"l": [1]})
    cfg.l.append(cfg.l)
    with pytest.raises(konfig.CycleError, match=r"cfg\.l\[1\] is cfg\.l"):
        konfig.resolve(cfg)
    assert "*id001" in repr(cfg)


def test_unset_required_fields_are_listed_all_at_once_before_anything_is_built():
    Counted.made = 0
    cfg = konfig.ConfigDict(
        {
            "first": call("Counted"),
            "model": call("Model", width=konfig.required(int)),
            "items": [konfig.required(str), {"x": konfig.required()}],
            "workdir": konfig.placeholder(str, required=True),
            "free": konfig.placeholder(int),
        }
    )
    cfg.derived = cfg.ref.model.width + 1
    with pytest.raises(konfig.RequiredValueError) as error:
        konfig.resolve(cfg)
    assert set(error.value.paths) == {
        "cfg.model.width",
        "cfg.items[0]",
        "cfg.items[1].x",
        "cfg.workdir",
    }
    assert "--cfg.model.width=" in str(error.value)
    assert Counted.made == 0
    import ml_collections

    assert isinstance(error.value, ml_collections.config_dict.RequiredValueError)


def test_a_required_value_behind_a_reference_to_another_config_is_found():
    other = konfig.ConfigDict({"n": konfig.required(int)})
    cfg = konfig.ConfigDict({"m": other.ref.n})
    with pytest.raises(konfig.RequiredValueError, match=r"cfg\.m"):
        konfig.resolve(cfg)
    other.n = 3
    assert konfig.resolve(cfg) == {"m": 3}


def test_unset_values_are_reported_even_if_a_symbol_is_missing():
    node = {"__qualname__": "no_such_module:f", "x": konfig.required(int)}
    with pytest.raises(konfig.RequiredValueError, match=r"cfg\.a\.x"):
        konfig.resolve(konfig.ConfigDict({"a": node}))


def test_what_is_below_an_excluded_field_need_not_be_set():
    cfg = call("Excluding", raw={"x": konfig.required(int)})
    assert konfig.resolve(cfg).raw == {"x": None}


# ------------------------------------------------------------------------------------
# Forms that mean nothing
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, word",
    [
        ({"__const__": "json:dumps", "x": 1}, "x"),
        ({"__const__": "json:dumps", "__qualname__": "json:dumps"}, "__qualname__"),
        ({"__qualname__": "a:b:c"}, "colon"),
        ({"__qualname__": "json:"}, "json:"),
        ({"__qualname__": 3}, "3"),
        ({"__const__": ["json:dumps"]}, "text"),
        ({"__qualname__": "json:dumps", "0": 1, "2": 1}, "gaps"),
        ({"__qualname__": "json:dumps", 1.5: 1}, "1.5"),
    ],
)
def test_malformed_nodes_are_named(fields, word):
    cfg = konfig.ConfigDict({"ok": {"x": fields}})
    with pytest.raises(ValueError, match=rf"(?s)cfg\.ok\.x.*{word}"):
        konfig.resolve(cfg)
