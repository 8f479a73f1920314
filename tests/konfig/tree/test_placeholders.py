"""Placeholders, required fields and annotations."""

import copy
import pathlib
import typing

import ml_collections
import pytest

from kauldron import konfig

with konfig.imports():
    import fractions


def test_an_unset_placeholder_reads_as_none_and_keeps_its_type():
    cfg = konfig.ConfigDict({"n": konfig.placeholder(int)})
    assert cfg.n is None
    cfg.n = 3
    cfg.n = None
    with pytest.raises(TypeError, match=r"cfg\.n.*int expected, got str"):
        cfg.n = "text"
    assert cfg.n is None


def test_the_type_rule_applies_to_placeholders():
    cfg = konfig.ConfigDict(
        {
            "workdir": konfig.placeholder(str),
            "steps": konfig.placeholder(int),
            "rate": konfig.placeholder(float),
            "path": konfig.placeholder(pathlib.Path),
            "sizes": konfig.placeholder(tuple),
            "options": konfig.placeholder(dict),
            "either": konfig.placeholder(int | str),
            "several": konfig.placeholder((int, str)),
            "any": konfig.placeholder(),
        }
    )
    cfg.workdir = pathlib.Path("a/b")
    cfg.steps = 1e3
    cfg.rate = 1
    cfg.path = "a"
    cfg.sizes = [1, 2]
    cfg.options = {"x": 1}
    cfg.either = "a"
    cfg.several = 3
    cfg.any = [1]
    assert cfg.to_dict() == {
        "workdir": "a/b",
        "steps": 1000,
        "rate": 1.0,
        "path": "a",
        "sizes": (1, 2),
        "options": {"x": 1},
        "either": "a",
        "several": 3,
        "any": [1],
    }
    cfg.steps = fractions.Fraction(3)  # what it resolves to is not known yet
    for name in ("either", "several", "options"):
        with pytest.raises(TypeError):
            cfg[name] = 1.5


def test_a_default_holds_until_it_is_set():
    cfg = konfig.ConfigDict({"n": konfig.placeholder(int, default=3)})
    assert cfg.n == 3
    cfg.n = 4
    assert cfg.n == 4
    with pytest.raises(TypeError):
        konfig.placeholder(int, default="text")


def test_one_placeholder_in_two_fields_links_them():
    shared = konfig.placeholder(int)
    cfg = konfig.ConfigDict({"a": shared, "b": {"c": [shared]}, "d": shared})
    cfg.a = 5
    assert cfg.d == 5
    assert konfig.resolve(cfg).b.c == (5,)


def test_a_placeholder_can_be_set_to_a_reference():
    cfg = konfig.ConfigDict({"n": 1, "m": konfig.placeholder(int)})
    cfg.m = cfg.ref.n
    cfg.n = 2
    assert cfg.m == 2
    cfg.m = 7
    assert (cfg.m, cfg.n) == (7, 2)


def test_a_new_placeholder_replaces_the_old_one():
    cfg = konfig.ConfigDict({"n": konfig.placeholder(int)})
    cfg.n = konfig.placeholder(str)
    cfg.n = "text"
    assert cfg.n == "text"


def test_reading_an_unset_required_placeholder_names_its_path():
    cfg = konfig.ConfigDict({"a": {"n": konfig.placeholder(int, required=True)}})
    with pytest.raises(konfig.RequiredValueError, match=r"cfg\.a\.n") as error:
        cfg.a.n
    assert isinstance(error.value, ml_collections.config_dict.RequiredValueError)
    assert error.value.paths == ("cfg.a.n",)
    cfg.b = cfg.ref.a.n
    with pytest.raises(konfig.RequiredValueError, match=r"(?s)cfg\.b.*cfg\.a\.n"):
        cfg.b
    assert "n" in cfg.a
    assert repr(cfg)


def test_required_reads_as_none_while_editing_but_cannot_be_resolved():
    cfg = konfig.ConfigDict({"n": konfig.required(int)})
    assert cfg.n is None
    assert copy.deepcopy(cfg).n is None
    with pytest.raises(konfig.RequiredValueError, match=r"--cfg\.n="):
        konfig.resolve(cfg)
    cfg.n = 3
    assert konfig.resolve(cfg) == {"n": 3}


def test_placeholders_of_ml_collections_work():
    cfg = konfig.ConfigDict({"n": ml_collections.config_dict.required_placeholder(int)})
    with pytest.raises(konfig.RequiredValueError, match=r"cfg\.n"):
        konfig.resolve(cfg)
    assert "<required: int>" in repr(cfg)
    cfg.n = 4
    assert konfig.resolve(cfg) == {"n": 4}


def test_config_dict_like_is_an_annotation_without_effect():
    class Model:
        pass

    def get_config() -> konfig.ConfigDictLike[Model]:
        raise NotImplementedError

    hints = typing.get_type_hints(get_config)
    assert hints["return"] is Model
    assert typing.get_type_hints(get_config, include_extras=True)["return"] != Model


def test_computing_with_an_unset_required_value_says_that_it_is_required():
    cfg = konfig.ConfigDict({"a": konfig.required(int)})
    cfg.b = cfg.ref.a + 1
    cfg.c = konfig.ref_fn(lambda *, n: n[0] + 1, n=[cfg.ref.a])
    for name in ("b", "c"):
        with pytest.raises(konfig.RequiredValueError, match=r"cfg\.a is required") as e:
            cfg[name]
        assert e.value.paths == ("cfg.a",)
        assert str(e.value) == f"Cannot read cfg.{name}: cfg.a is required but not set."
    cfg.a = 1
    assert (cfg.b, cfg.c) == (2, 2)


def test_required_value_that_no_field_holds_is_named_by_what_needs_it():
    cfg = konfig.ConfigDict({"b": konfig.required(int) + 1})
    with pytest.raises(konfig.RequiredValueError, match=r"Cannot read cfg\.b: A pl"):
        cfg.b
    with pytest.raises(konfig.RequiredValueError) as raised:
        konfig.resolve(cfg)
    assert "- cfg.b: set it with --cfg.b=..." in str(raised.value)
    cfg.b = 3
    assert konfig.resolve(cfg).b == 3


def test_unset_operand_given_by_name_is_told():
    cfg = konfig.ConfigDict({"a": konfig.placeholder(int)})
    cfg.b = konfig.ref_fn(lambda *, n: n + 1, n=cfg.ref.a)
    with pytest.raises(TypeError, match=r"cfg\.ref\.a is not set \(None\)"):
        cfg.b


def test_placeholder_is_named_by_a_field_that_still_holds_it():
    shared = konfig.placeholder(int, required=True)
    cfg = konfig.ConfigDict({"a": shared, "b": {"c": [shared]}})
    del cfg.a
    with pytest.raises(konfig.RequiredValueError, match=r"^cfg\.b\.c\[0\] is required"):
        konfig.get_by_path(cfg, "b.c[0]")
