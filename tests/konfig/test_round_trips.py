"""Configs with references and shared parts, through every text and back."""

import copy

import hypothesis
from hypothesis import strategies as st

from kauldron import konfig

NAMES = ["a", "b", "c"]


@st.composite
def configs(draw):
    """A config whose fields are values, calls, parts of each other, and references."""
    cfg = konfig.ConfigDict({"base": {"n": draw(st.integers(-3, 3)), "l": [1, 2]}})
    shared = konfig.ConfigDict({"__qualname__": "fractions:Fraction", "numerator": 1})
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        kind = draw(st.sampled_from(["value", "call", "shared", "ref", "sum", "item"]))
        if kind == "value":
            cfg[name] = draw(
                st.none() | st.floats(allow_nan=False) | st.text(max_size=3)
            )
        elif kind == "call":
            cfg[name] = konfig.ConfigDict(
                {"__qualname__": "builtins:dict", "x": draw(st.integers())}
            )
        elif kind == "shared":
            cfg[name] = shared
        elif kind == "ref":
            cfg[name] = cfg.ref.base.n
        elif kind == "sum":
            cfg[name] = cfg.ref.base.n * 2 + 1
        else:
            cfg[name] = cfg.ref.base.l[1]
    return cfg


def through_json(cfg):
    return konfig.ConfigDict.from_json(cfg.to_json())


def through_json_with_references(cfg):
    return konfig.ConfigDict.from_json(cfg.to_json(keep_refs=True))


def through_python(cfg):
    namespace = {"__name__": "written"}
    exec(konfig.to_python(cfg), namespace)
    return namespace["get_config"]()


WAYS = [through_json, through_json_with_references, through_python, copy.deepcopy]


@hypothesis.given(configs(), st.lists(st.sampled_from(WAYS), max_size=4))
def test_any_way_through_texts_gives_the_same_objects(cfg, ways):
    expected, before = konfig.resolve(cfg), cfg.to_json()
    for way in ways:
        cfg = way(cfg)
    assert cfg.to_json() == before
    assert konfig.resolve(cfg) == expected


@hypothesis.given(configs(), st.integers(4, 9))
def test_shared_parts_stay_shared(cfg, value):
    for way in (through_json, through_python, copy.deepcopy):
        found = way(cfg)
        parts = [
            name
            for name in NAMES
            if name in found and "numerator" in _fields(found[name])
        ]
        for name in parts[:1]:
            found[name].numerator = value
        assert {found[name].numerator for name in parts} <= {value}


@hypothesis.given(configs(), st.integers(4, 9))
def test_references_that_are_kept_follow_a_change(cfg, value):
    loaded = through_json_with_references(cfg)
    plain = [n for n in NAMES if n in cfg and _follows(cfg, n, value)]
    loaded.base.n = value
    for name in plain:
        assert loaded[name] == value


def _fields(value):
    return value if isinstance(value, konfig.ConfigDict) else {}


def _follows(cfg, name, value):
    """Whether a field is what `base.n` is."""
    changed = copy.deepcopy(cfg)
    changed.base.n = value
    return changed[name] == value and cfg[name] == cfg.base.n
