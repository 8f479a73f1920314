"""What a proxy is, and what it refuses to be."""

import copy
import pickle
import typing

import pytest

from kauldron import konfig
from kauldron.konfig.authoring.proxies import ConfigDictProxyObject
from kauldron.konfig.tree.node import CONST_KEY, QUALNAME_KEY

with konfig.imports():
    import decimal
    import fractions

    import numpy as np


def test_a_call_stores_the_symbol_and_the_arguments():
    cfg = fractions.Fraction(7, denominator=2)
    assert isinstance(cfg, konfig.ConfigDict)
    assert cfg.items() == [
        (QUALNAME_KEY, "fractions:Fraction"),
        ("0", 7),
        ("denominator", 2),
    ]


def test_a_proxy_as_a_value_is_a_constant():
    cfg = konfig.ConfigDict({"x": fractions.Fraction, "m": fractions})
    assert cfg.x == {CONST_KEY: "fractions:Fraction"}
    resolved = konfig.resolve(cfg)
    assert resolved.x.__name__ == "Fraction"
    assert resolved.m.__name__ == "fractions"
    assert konfig.resolve(fractions.Fraction) is resolved.x


def test_proxies_compare_and_hash_by_symbol():
    other = ConfigDictProxyObject("fractions:Fraction")
    assert fractions.Fraction == other
    assert len({fractions.Fraction, other}) == 1
    assert fractions.Fraction != fractions.gcd
    assert fractions.Fraction != "fractions:Fraction"
    assert bool(fractions) is True


def test_repr_names_the_symbol():
    assert repr(fractions.Fraction) == "ConfigDictProxyObject(fractions:Fraction)"
    assert repr(fractions) == "ConfigDictProxyObject(fractions)"


@pytest.mark.parametrize(
    "name", ["copy", "get", "update", "items", "pop", "name", "parent", "keys"]
)
def test_any_public_name_is_an_attribute_of_the_symbol(name):
    assert getattr(np, name).qualname == f"numpy:{name}"
    assert getattr(np, name)(1) == {QUALNAME_KEY: f"numpy:{name}", "0": 1}


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))],
)
def test_copies_and_pickles_are_equal(duplicate):
    assert duplicate(np.random.normal) == np.random.normal
    assert duplicate(fractions) == fractions
    union = fractions.Fraction | None
    assert duplicate(union) == union


def test_unknown_dunders_do_not_exist():
    assert not hasattr(fractions, "__wrapped__")
    with pytest.raises(AttributeError, match="fractions"):
        fractions.__no_such_thing__


def test_subclassing_names_the_symbol_and_the_likely_reason():
    with pytest.raises(
        ValueError, match=r"subclassed.*fractions:Fraction.*imports\(\)"
    ):

        class Mine(fractions.Fraction):
            pass


@pytest.mark.parametrize(
    "misuse",
    [
        lambda p: setattr(p, "x", 1),
        lambda p: delattr(p, "x"),
        list,
        len,
        lambda p: p[int],
        lambda p: 1 in p,
        lambda p: p + 1,
        lambda p: 2 * p,
        lambda p: -p,
        lambda p: p < 1,
        lambda p: isinstance(1, p),
        lambda p: int(p),
    ],
)
def test_operations_are_refused_and_explained(misuse):
    with pytest.raises(TypeError, match=r"konfig proxy of 'fractions:Fraction'"):
        misuse(fractions.Fraction)


def test_operators_between_calls_are_errors():
    with pytest.raises(TypeError):
        fractions.Fraction(1) + fractions.Fraction(2)


def test_unions_resolve_to_real_unions():
    cfg = konfig.ConfigDict(
        {
            "a": fractions.Fraction | None,
            "b": None | fractions.Fraction,
            "c": fractions.Fraction | decimal.Decimal | int,
            "l": [fractions.Fraction | None],
        }
    )
    import decimal as d
    import fractions as f

    resolved = konfig.resolve(cfg)
    assert resolved.a == f.Fraction | None
    assert resolved.b == resolved.a
    assert resolved.c == f.Fraction | d.Decimal | int
    assert typing.get_args(resolved.l[0]) == (f.Fraction, type(None))
    assert konfig.resolve(konfig.ConfigDict.from_json(cfg.to_json())) == resolved
    expected = "ConfigDictProxyObject(fractions:Fraction) | None"
    assert repr(fractions.Fraction | None) == expected


def test_a_union_with_a_real_object_is_refused():
    with pytest.raises(TypeError):
        fractions.Fraction | 3
    with pytest.raises(TypeError):
        "text" | fractions.Fraction


def test_proxies_in_sets_stay_and_resolve():
    cfg = konfig.ConfigDict({"s": {fractions.Fraction, decimal.Decimal}})
    import decimal as d
    import fractions as f

    assert konfig.resolve(cfg).s == {f.Fraction, d.Decimal}
    again = konfig.ConfigDict.from_json(cfg.to_json())
    assert konfig.resolve(again).s == {f.Fraction, d.Decimal}


def test_what_is_appended_to_a_list_is_treated_as_if_assigned():
    cfg = konfig.ConfigDict({"l": []})
    cfg.l.append(fractions.Fraction)
    cfg.l.append({"x": [fractions.Fraction(1, 2)]})
    assert konfig.resolve(cfg).l[0].__name__ == "Fraction"
    assert konfig.resolve(cfg).l[1].x[0].denominator == 2
    assert "[\n        fractions.Fraction," in repr(cfg)
    again = konfig.ConfigDict.from_json(cfg.to_json())
    assert konfig.resolve(again) == konfig.resolve(cfg)
