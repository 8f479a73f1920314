"""`konfig.select`."""

import fractions as real_fractions
import textwrap as real_textwrap

import pytest

from kauldron import konfig

with konfig.imports():
    import decimal
    import fractions
    import textwrap


class Half(real_fractions.Fraction):
    """A subclass that configs can name."""


HALF = f"{Half.__module__}:Half"


def make_config():
    return konfig.ConfigDict(
        {
            "a": fractions.Fraction(1, 2),
            "b": {"c": [fractions.Fraction(3), decimal.Decimal("1")]},
            "d": textwrap.dedent(text=fractions.Fraction(5)),
            "kind": fractions.Fraction,
        }
    )


FRACTIONS = ["a", "b.c[0]", "d.text"]


@pytest.mark.parametrize(
    "target",
    [
        fractions.Fraction,
        real_fractions.Fraction,
        "fractions:Fraction",
        "fractions.Fraction",
        lambda node: "Fraction" in str(node.get("__qualname__")),
    ],
    ids=["proxy", "class", "qualname", "dotted", "predicate"],
)
def test_nodes_are_selected_by_what_they_call(target):
    selection = konfig.select(make_config(), target)
    assert selection.paths() == FRACTIONS
    assert len(selection) == 3
    assert [node["0"] for node in selection] == [1, 3, 5]


@pytest.mark.parametrize(
    "pattern, paths",
    [
        ("a", ["a"]),
        ("b.c.*", ["b.c[0]", "b.c[1]"]),
        ("**.text", ["d.text"]),
        ("b.c[1]", ["b.c[1]"]),
        ("*", ["a", "b", "d", "kind"]),
        ("**.nothing", []),
    ],
)
def test_nodes_are_selected_by_path(pattern, paths):
    assert konfig.select(make_config(), pattern).paths() == paths


def test_function_is_a_symbol():
    assert konfig.select(make_config(), real_textwrap.dedent).paths() == ["d"]
    assert konfig.select(make_config(), real_textwrap.indent).paths() == []


def _has_numerator(node) -> bool:
    return node.get(0) == 3


def test_function_annotated_to_return_bool_is_a_predicate():
    assert konfig.select(make_config(), _has_numerator).paths() == ["b.c[0]"]


def test_other_names_of_the_same_symbol_are_found():
    cfg = konfig.ConfigDict({"a": {"__qualname__": "numbers:Integral"}})
    cfg.b = {"__qualname__": "fractions:numbers.Integral"}
    assert konfig.select(cfg, "numbers:Integral").paths() == ["a", "b"]


def test_symbols_that_cannot_be_imported_are_matched_by_name():
    cfg = konfig.ConfigDict({"a": {"__qualname__": "not_there.at.all:f"}, "b": {}})
    assert konfig.select(cfg, "not_there.at:all.f").paths() == ["a"]


def test_subclasses_count_when_asked_for():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1), "h": {"__qualname__": HALF}})
    assert konfig.select(cfg, fractions.Fraction).paths() == ["a"]
    selection = konfig.select(cfg, fractions.Fraction, subclasses=True)
    assert selection.paths() == ["a", "h"]


def test_set_changes_all_selected_nodes():
    cfg = make_config()
    konfig.select(cfg, fractions.Fraction).set(denominator=7)
    assert cfg.a.denominator == cfg.b.c[0].denominator == cfg.d.text.denominator == 7
    assert "denominator" not in cfg.b.c[1]


def test_set_changes_all_or_nothing():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1), "b": fractions.Fraction("x")})
    with pytest.raises(TypeError):
        konfig.select(cfg, fractions.Fraction).set(**{"0": 2})
    assert cfg.a[0] == 1


def test_replace_puts_a_copy_in_every_place():
    cfg = make_config()
    konfig.select(cfg, fractions.Fraction).replace(decimal.Decimal("2"))
    assert cfg.a == cfg.b.c[0] == cfg.d.text == decimal.Decimal("2")
    assert cfg.a is not cfg.b.c[0]
    assert cfg.kind == fractions.Fraction.__as_konfig__()


def test_replace_of_a_shared_node_keeps_it_shared():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1)})
    cfg.b = cfg.a
    selection = konfig.select(cfg, fractions.Fraction)
    assert len(selection) == 1
    assert selection.paths() == ["a", "b"]
    selection.replace(decimal.Decimal("2"))
    assert cfg.a is cfg.b


def test_replace_takes_the_outermost_of_nested_nodes():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(fractions.Fraction(1))})
    konfig.select(cfg, fractions.Fraction).replace(3)
    assert cfg == {"a": 3}


def test_replace_of_the_whole_config_is_refused():
    cfg = fractions.Fraction(1)
    with pytest.raises(ValueError, match="whole config"):
        konfig.select(cfg, fractions.Fraction).replace(decimal.Decimal())


def test_reference_is_not_a_place_of_its_own():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1)})
    cfg.b = cfg.ref.a
    konfig.select(cfg, fractions.Fraction).replace(decimal.Decimal("2"))
    assert cfg.b is cfg.a


def test_cyclic_config_is_searched_once():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1)})
    cfg.a.me = cfg
    assert konfig.select(cfg, fractions.Fraction).paths() == ["a"]


def test_other_targets_are_a_type_error():
    with pytest.raises(TypeError, match="Cannot select by an int"):
        konfig.select(make_config(), 3)


def test_malformed_path_is_a_value_error():
    with pytest.raises(ValueError, match="Invalid path"):
        konfig.select(make_config(), "a..b")
