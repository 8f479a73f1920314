"""Overrides of config fields, as flags and as mappings."""

import copy
import math
import pathlib
import sys

import hypothesis
import pytest
from hypothesis import strategies as st
from ml_collections.config_flags import config_flags

from kauldron import konfig
from kauldron.konfig.overrides.overrides import apply_in_order, match_override
from kauldron.konfig.overrides.values import format_value, parse_literal, parse_value

with konfig.imports():
    import fractions


def override(cfg, *flags):
    """Applies command line flags to a config."""
    overrides = [match_override(flag, "cfg") for flag in flags]
    assert None not in overrides
    apply_in_order(cfg, overrides)
    return cfg


def make_config():
    return konfig.ConfigDict(
        {
            "seed": 1,
            "rate": 0.5,
            "name": "net",
            "debug": False,
            "nothing": None,
            "sizes": [1, 2, 3],
            "shape": (4, 5),
            "nested": {"deep": {"n": 1}},
            "layers": [{"n": 1}, {"n": 2}],
            "call": fractions.Fraction(1, 3),
            "odd": {"a b": {"x": 1}, "c.d": 2, 7: "seven"},
            "mixed": ({"n": 1}, [1, (2, 3)]),
        }
    )


# ------------------------------------------------------------------------------------
# Places
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flag, path, value",
    [
        ("--cfg.seed=2", "seed", 2),
        ("-cfg.seed=2", "seed", 2),
        ("--cfg.nested.deep.n=2", "nested.deep.n", 2),
        ("--cfg.nested.deep.new=2", "nested.deep.new", 2),
        ("--cfg.new=2", "new", 2),
        ("--cfg.sizes[0]=9", "sizes[0]", 9),
        ("--cfg.sizes[-1]=9", "sizes[2]", 9),
        ("--cfg.sizes[-3]=9", "sizes[0]", 9),
        ("--cfg.sizes.1=9", "sizes[1]", 9),
        ("--cfg.layers[1].n=9", "layers[1].n", 9),
        ("--cfg.layers.1.n=9", "layers[1].n", 9),
        ("--cfg.layers[0].m=9", "layers[0].m", 9),
        ("--cfg.shape[0]=9", "shape", (9, 5)),
        ("--cfg.shape[-2]=9", "shape", (9, 5)),
        ("--cfg.mixed[0].n=9", "mixed[0].n", 9),
        ("--cfg.mixed[1][1][0]=9", "mixed[1][1]", (9, 3)),
        ("--cfg.call[0]=9", "call[0]", 9),
        ("--cfg.call.0=9", "call[0]", 9),
        ("--cfg.call[-1]=9", "call[1]", 9),
        ("--cfg.call[2]=9", "call[2]", 9),
        ('--cfg.odd["a b"].x=9', "odd['a b'].x", 9),
        ("--cfg.odd['a b'].x=9", "odd['a b'].x", 9),
        ("--cfg.odd['c.d']=9", "odd['c.d']", 9),
        ("--cfg.odd[7]=nine", "odd[7]", "nine"),
        ("--cfg['x.y']=9", "['x.y']", 9),
        ("--cfg['seed']=9", "seed", 9),
        ("--cfg.odd['k=v']=9", "odd['k=v']", 9),
        ("--cfg.call.__qualname__=m:g", "call.__qualname__", "m:g"),
    ],
)
def test_flag_sets_exactly_one_place(flag, path, value):
    cfg = override(make_config(), flag)
    expected = make_config()
    konfig.set_by_path(expected, path, value)
    assert konfig.get_by_path(cfg, path) == value
    assert type(konfig.get_by_path(cfg, path)) is type(value)
    assert cfg == expected


def test_constant_can_be_exchanged():
    cfg = konfig.ConfigDict({"c": fractions.Fraction})
    override(cfg, "--cfg.c.__const__=decimal:Decimal")
    assert cfg == {"c": {"__const__": "decimal:Decimal"}}


def test_star_sets_the_field_wherever_it_is_one_level_down():
    cfg = konfig.ConfigDict({"a": {"n": 1}, "b": {"n": 2}, "c": {"m": 3}, "d": 4})
    override(cfg, "--cfg.*.n=7")
    assert cfg == {"a": {"n": 7}, "b": {"n": 7}, "c": {"m": 3}, "d": 4}


def test_double_star_sets_the_field_at_every_depth():
    cfg = override(make_config(), "--cfg.**.n=7")
    assert cfg.nested.deep.n == cfg.layers[0].n == cfg.layers[1].n == 7
    assert cfg.mixed[0].n == 7


def test_double_star_does_not_enter_what_it_sets():
    cfg = konfig.ConfigDict({"a": {"a": {"a": 1}}})
    override(cfg, "--cfg.**.a={}")
    assert cfg == {"a": {}}


def test_wildcard_reads_text_for_each_target():
    cfg = konfig.ConfigDict({"a": {"v": 1}, "b": {"v": "x"}})
    override(cfg, "--cfg.*.v=2")
    assert cfg == {"a": {"v": 2}, "b": {"v": "2"}}


@pytest.mark.parametrize("flag", ["--cfg.*.nope=1", "--cfg.**.nope=1", "--cfg.q.*.n=1"])
def test_wildcard_without_a_match_is_an_error(flag):
    cfg = make_config()
    with pytest.raises(KeyError, match="Nothing matches"):
        override(cfg, flag)
    assert cfg == make_config()


def test_override_of_a_referenced_field_reaches_those_who_refer_to_it():
    cfg = konfig.ConfigDict({"n": 1})
    cfg.twice = cfg.ref.n * 2
    assert override(cfg, "--cfg.n=5").twice == 10


def test_override_of_a_reference_cuts_only_that_field():
    cfg = konfig.ConfigDict({"n": 1})
    cfg.a = cfg.ref.n
    cfg.b = cfg.ref.n
    override(cfg, "--cfg.a=5")
    assert (cfg.n, cfg.a, cfg.b) == (1, 5, 1)


def test_field_inside_a_computed_node_cannot_be_set():
    cfg = konfig.ConfigDict({"n": 1})
    cfg.made = konfig.ref_fn(lambda n: {"x": n}, cfg.ref.n)
    with pytest.raises(ValueError, match=r"cfg\.made is computed"):
        override(cfg, "--cfg.made.x=3")


def test_unset_required_field_can_be_set():
    cfg = konfig.ConfigDict(
        {"a": konfig.required(int), "b": konfig.placeholder(str, required=True)}
    )
    override(cfg, "--cfg.a=3", "--cfg.b=4")
    assert cfg == {"a": 3, "b": "4"}


def test_dangling_reference_can_be_replaced():
    cfg = konfig.ConfigDict({})
    cfg.a = cfg.ref.nowhere
    assert override(cfg, "--cfg.a=3").a == 3


# ------------------------------------------------------------------------------------
# Values
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flag, path, value",
    [
        ("--cfg.debug", "debug", True),
        ("--cfg.debug=true", "debug", True),
        ("--cfg.debug=1", "debug", True),
        ("--cfg.debug=0", "debug", False),
        ("--nocfg.debug", "debug", False),
        ("--cfg.new", "new", True),
        ("--nocfg.new", "new", False),
        ("--cfg.nothing", "nothing", True),
        ("--cfg.seed=None", "seed", None),
        ("--cfg.seed=1e6", "seed", 1_000_000),
        ("--cfg.rate=1", "rate", 1.0),
        ("--cfg.rate=inf", "rate", math.inf),
        ("--cfg.name=123", "name", "123"),
        ("--cfg.name=2024_01", "name", "2024_01"),
        ("--cfg.name=true", "name", "true"),
        ("--cfg.name=[1]", "name", "[1]"),
        ("--cfg.name='123'", "name", "123"),
        ('--cfg.name="a b"', "name", "a b"),
        ("--cfg.name=None", "name", None),
        ("--cfg.name='None'", "name", "None"),
        ("--cfg.name=", "name", ""),
        ("--cfg.name=a=b", "name", "a=b"),
        ("--cfg.name=--x", "name", "--x"),
        ("--cfg.nothing=[a,b]", "nothing", "[a,b]"),
        ("--cfg.nothing=1,2", "nothing", (1, 2)),
        ("--cfg.nothing= 5", "nothing", 5),
        ('--cfg.nothing={"a": null, "b": true}', "nothing", {"a": None, "b": True}),
        ("--cfg.sizes=[7]", "sizes", [7]),
        ("--cfg.sizes=(7,8)", "sizes", [7, 8]),
        ("--cfg.shape=[7]", "shape", (7,)),
        ('--cfg.nested={"a": 1}', "nested", {"a": 1}),
        ("--cfg.nested={}", "nested", {}),
        ("--cfg.nothing=py::[1, None]", "nothing", [1, None]),
    ],
)
def test_text_is_read_for_its_target(flag, path, value):
    cfg = override(make_config(), flag)
    result = cfg[path]
    assert result == value
    assert isinstance(result, konfig.ConfigDict) or type(result) is type(value)


def test_path_field_takes_text():
    cfg = konfig.ConfigDict({"file": pathlib.PurePosixPath("a")})
    assert override(cfg, "--cfg.file=12").file == "12"


def test_typed_placeholder_decides_what_text_means():
    cfg = konfig.ConfigDict(
        {"a": konfig.placeholder(str), "b": konfig.placeholder(bool)}
    )
    override(cfg, "--cfg.a=007", "--cfg.b=1")
    assert cfg == {"a": "007", "b": True}


def test_expression_builds_a_node():
    cfg = override(make_config(), "--cfg.call=py::fractions.Fraction(2, 4)")
    assert konfig.resolve(cfg.call) == konfig.resolve(fractions.Fraction(1, 2))


@pytest.mark.parametrize("text", ["decimal.Decimal", "decimal.Decimal(3)"])
def test_text_in_place_of_a_call_is_told(text, caplog):
    cfg = override(make_config(), f"--cfg.call={text}")
    assert cfg.call == text
    assert "--cfg.call='py::decimal.Decimal(" in caplog.text


def test_plain_text_in_place_of_a_call_is_not_told(caplog):
    override(make_config(), "--cfg.call=adam", "--cfg.name=a.b", "--cfg.new=a.b")
    assert not caplog.text


@pytest.mark.parametrize(
    "flag", ["--cfg.seed", "--cfg.name", "--cfg.sizes", "--cfg.call"]
)
def test_bare_flag_on_a_field_that_is_not_boolean_is_rejected(flag):
    with pytest.raises(TypeError, match=rf"needs a value, write {flag}=\.\.\."):
        override(make_config(), flag)


def test_no_flag_on_a_field_that_is_not_boolean_is_rejected():
    with pytest.raises(TypeError, match=r"--nocfg\.seed is for fields that are True"):
        override(make_config(), "--nocfg.seed")


# ------------------------------------------------------------------------------------
# Order
# ------------------------------------------------------------------------------------


def test_last_of_equal_flags_wins():
    cfg = override(make_config(), "--cfg.seed=2", "--cfg['seed']=3")
    assert cfg.seed == 3


def test_parent_after_child_is_an_order_error():
    cfg = make_config()
    with pytest.raises(config_flags.FlagOrderError, match=r"--cfg\.nested=\{\}"):
        override(cfg, "--cfg.nested.deep.n=3", "--cfg.nested={}")
    assert cfg == make_config()


def test_child_after_parent_is_applied_in_order():
    cfg = override(make_config(), "--cfg.nested={'x': {}}", "--cfg.nested.x.y=3")
    assert cfg.nested == {"x": {"y": 3}}


def test_child_repeated_after_its_parent_is_fine():
    flags = ["--cfg.nested.n=3", "--cfg.nested={}", "--cfg.nested.n=4"]
    assert override(make_config(), *flags).nested == {"n": 4}


def test_similar_names_are_not_parent_and_child():
    cfg = konfig.ConfigDict({"a": {"b": 1}, "ab": 1})
    override(cfg, "--cfg.a.b=2", "--cfg.ab=3")
    assert cfg == {"a": {"b": 2}, "ab": 3}


# ------------------------------------------------------------------------------------
# Errors
# ------------------------------------------------------------------------------------


def test_below_a_parameter_at_its_default_there_is_nothing_to_set():
    cfg = konfig.ConfigDict({"call": fractions.Fraction(1)})
    with pytest.raises(
        KeyError, match=r"cfg\.call\.denominator is not set, and .*whole"
    ):
        override(cfg, "--cfg.call.denominator.n=2")


@pytest.mark.parametrize(
    "flag, kind, words",
    [
        ("--cfg.nsted.deep.n=1", KeyError, ["nsted", "'nested'", "cfg.nsted.deep.n"]),
        ("--cfg.nested.dep.n=1", KeyError, ["cfg.nested has no dep", "'deep'"]),
        ("--cfg.zzz.n=1", KeyError, ["Available: seed, rate"]),
        ("--cfg.seed.x=1", KeyError, ["cfg.seed is of type int"]),
        ("--cfg.sizes[3]=1", IndexError, ["list of length 3", "-3 to 2"]),
        ("--cfg.sizes[-4]=1", IndexError, ["list of length 3"]),
        ("--cfg.shape[2]=1", IndexError, ["tuple of length 2"]),
        ("--cfg.sizes.x=1", KeyError, ["cfg.sizes.x"]),
        ("--cfg.call[3]=1", IndexError, ["2 positional arguments", "-2 to 2"]),
        ("--cfg.call[-3]=1", IndexError, ["2 positional arguments"]),
        ("--cfg.seed=abc", TypeError, ["cfg.seed", "int", "str", "'abc'"]),
        ("--cfg.seed=1.5", TypeError, ["cfg.seed", "int", "float"]),
        ("--cfg.debug=2", TypeError, ["cfg.debug", "bool"]),
        ("--cfg.sizes=5", TypeError, ["cfg.sizes", "list"]),
        ("--cfg.sizes=a,b", TypeError, ["cfg.sizes", "list"]),
        ("--cfg.nested=5", TypeError, ["cfg.nested", "dict"]),
        ("--cfg.seed=py::oops", ValueError, ["'py::oops'", "position 1"]),
        ("--cfg.*=5", ValueError, ["last part"]),
        ("--cfg.sizes[0:1]=5", KeyError, ["cfg.sizes"]),
        ("--cfg.nested[0:1]=5", KeyError, ["cfg.nested"]),
    ],
)
def test_error_quotes_the_flag_and_leaves_the_config_alone(flag, kind, words):
    cfg = make_config()
    with pytest.raises(kind) as caught:
        override(cfg, flag)
    message = str(caught.value)
    assert message.startswith(f"{flag}: ")
    for word in words:
        assert word in message
    assert cfg == make_config()


@pytest.mark.parametrize(
    "flag", ["--cfg..a=1", "--cfg.=1", "--cfg.a[=1", "--cfg.a-b=1", "--nocfg.a=1"]
)
def test_flag_that_cannot_be_read_is_a_value_error(flag):
    with pytest.raises(ValueError) as caught:
        match_override(flag, "cfg")
    assert str(caught.value).startswith(f"{flag}: ")


@pytest.mark.parametrize(
    "flag", ["--cfg", "--cfg=a", "--cfgs.a=1", "cfg.a=1", "--x.cfg.a"]
)
def test_other_arguments_are_no_overrides(flag):
    assert match_override(flag, "cfg") is None


# ------------------------------------------------------------------------------------
# Mappings
# ------------------------------------------------------------------------------------


def test_mapping_takes_values_as_they_are():
    cfg = make_config()
    paths = konfig.apply_overrides(cfg, {"name": "123", "nothing": "[1]", "**.n": 5})
    assert paths[:2] == ["name", "nothing"]
    assert cfg.name == "123"
    assert cfg.nothing == "[1]"
    assert cfg.layers[1].n == 5


def test_mapping_may_hold_expressions():
    cfg = make_config()
    konfig.apply_overrides(cfg, {"nothing": "py::m.f(1)"})
    assert cfg.nothing == {"__qualname__": "m:f", "0": 1}


def test_mapping_is_applied_as_a_whole_or_not_at_all():
    cfg = make_config()
    with pytest.raises(TypeError, match="seed='x': "):
        konfig.apply_overrides(cfg, {"rate": 0.1, "seed": "x"})
    assert cfg == make_config()


def test_wildcard_assignment_is_applied_as_a_whole_or_not_at_all():
    cfg = konfig.ConfigDict({"a": {"v": "x"}, "b": {"v": 1}})
    with pytest.raises(TypeError):
        konfig.set_by_path(cfg, "*.v", "y")
    assert cfg == {"a": {"v": "x"}, "b": {"v": 1}}


def test_override_is_recorded_with_the_flag():
    cfg = override(make_config(), "--cfg.seed=2", "--cfg.sizes[1]=7")
    for path, text in (("seed", "--cfg.seed=2"), ("sizes[1]", "--cfg.sizes[1]=7")):
        event = konfig.history(cfg, path)[-1]
        assert (event.kind, event.text) == ("cli", text)
    konfig.apply_overrides(cfg, {"seed": 3})
    assert konfig.history(cfg, "seed")[-1].kind == "sweep"


# ------------------------------------------------------------------------------------
# Round trips
# ------------------------------------------------------------------------------------

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.sampled_from(["123", "None", "true", "py::x", "1,2", "'q'", "[1]", "{", " a "]),
    st.binary(max_size=4),
)
_KEYS = st.one_of(
    st.text(max_size=6).filter(lambda key: not key.startswith("__")),
    st.sampled_from(["a", "b", "c.d", "x y", "0", "*"]),
)
_DATA = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_KEYS, inner, max_size=3),
        st.dictionaries(st.sampled_from(["p", "q r", "if"]), inner, max_size=2).map(
            lambda fields: {"__qualname__": "m:f", "0": 1, **fields}
        ),
        st.sampled_from(["m:f", "np:float32", "m", "m.f", "m:<x>", "m:class"]).map(
            lambda name: {"__const__": name}
        ),
    ),
    max_leaves=8,
)


@hypothesis.given(_DATA)
def test_text_of_a_value_is_read_as_that_value(value):
    cfg = konfig.ConfigDict({"a": None})
    override(cfg, f"--cfg.a={format_value(value)}")
    assert cfg == {"a": value}


@hypothesis.given(st.dictionaries(_KEYS, _DATA, max_size=4))
def test_flattened_config_given_as_flags_gives_the_config(fields):
    cfg = konfig.ConfigDict(fields)
    flat = konfig.flatten(cfg)
    blank = copy.deepcopy(cfg)
    with blank.ignore_type():
        for path in flat:
            if not path.endswith("__qualname__"):
                konfig.set_by_path(blank, path, None)
    flags = [
        f"--cfg{'' if path.startswith('[') else '.'}{path}={format_value(value)}"
        for path, value in flat.items()
    ]
    assert override(blank, *flags) == cfg


_FLAG_TEXT = st.one_of(
    st.text(max_size=20),
    st.lists(
        st.sampled_from(
            [*"ab.[]0*='\"-:,{}( )", "seed", "sizes", "nested", "py::", "n"]
        ),
        max_size=10,
    ).map("".join),
)


@hypothesis.given(
    _FLAG_TEXT, st.sampled_from(["--cfg.", "--nocfg.", "--cfg", "--cfg."])
)
def test_any_flag_is_applied_or_refused_without_a_change(text, start):
    cfg = make_config()
    message = error_of(cfg, start + text)
    assert message is None or message.startswith(f"{start}{text}: ")
    assert message is None or cfg == make_config()


def error_of(cfg, argument):
    """The message with which a flag is refused; None if it is applied, or no flag."""
    try:
        found = match_override(argument, "cfg")
        apply_in_order(cfg, [] if found is None else [found])
    except (KeyError, TypeError, ValueError) as error:
        return str(error)


@hypothesis.given(st.text(max_size=20))
def test_any_text_is_a_literal_or_itself(text):
    value = parse_literal(text)
    assert value == text or not isinstance(value, str) or text.strip()[-1] in "'\""


def test_value_without_a_text_is_a_type_error():
    with pytest.raises(TypeError, match="No flag can carry"):
        format_value(object())


def test_union_of_types_takes_text_unless_another_member_fits():
    assert parse_value("12", str | int) == 12
    assert parse_value("1.5", str | int) == "1.5"
    assert parse_value("12", str | None) == "12"


@pytest.mark.parametrize("value", [set(), [set()], {"a": set()}, (set(), {1})])
def test_empty_set_is_written_as_a_flag_that_gives_it_back(value):
    assert parse_value(format_value(value), object) == value


def test_empty_set_beside_a_call_is_read_back():
    text = format_value([set(), {"__const__": "fractions:Fraction"}])
    assert text.startswith("py::")
    assert parse_value(text, object)[0] == set()


# ------------------------------------------------------------------------------------
# Positional arguments by name
# ------------------------------------------------------------------------------------


def positional():
    return konfig.ConfigDict(
        {
            "ratio": fractions.Fraction(1, 3),
            "other": fractions.Fraction(5),
            "outer": {"__qualname__": "builtins:dict", "0": [fractions.Fraction(2, 7)]},
        }
    )


def test_positional_argument_is_overridden_by_name():
    cfg = override(positional(), "--cfg.ratio.denominator=4")
    assert cfg.ratio.to_dict() == {
        "__qualname__": "fractions:Fraction",
        "0": 1,
        "1": 4,
    }
    assert konfig.resolve(cfg.ratio).denominator == 4
    assert konfig.history(cfg, "ratio[1]")[-1].text == "--cfg.ratio.denominator=4"


def test_name_and_index_of_an_argument_are_the_same_place():
    cfg = override(positional(), "--cfg.ratio[0]=8", "--cfg.ratio.numerator=9")
    assert cfg.ratio[0] == cfg.ratio.numerator == cfg["ratio"]["numerator"] == 9
    assert konfig.get_by_path(cfg, "ratio.numerator") == 9
    assert "numerator" in cfg.ratio and "nominator" not in cfg.ratio


def test_wildcards_match_positional_arguments_by_name():
    cfg = positional()
    assert konfig.apply_overrides(cfg, {"*.denominator": 11}) == ["ratio.denominator"]
    konfig.apply_overrides(cfg, {"**.numerator": 6})
    assert [cfg.ratio[0], cfg.other[0], cfg.outer[0][0][0]] == [6, 6, 6]


def test_type_of_a_positional_argument_decides_by_name_too():
    cfg = konfig.ConfigDict({"p": {"__qualname__": "textwrap:TextWrapper", "0": 70}})
    assert override(cfg, "--cfg.p.width=8e1").p[0] == 80
    with pytest.raises(TypeError, match=r"--cfg\.p\.width=wide: .*int expected"):
        override(cfg, "--cfg.p.width=wide")


def test_argument_that_is_not_given_by_position_is_given_by_name():
    cfg = override(positional(), "--cfg.other.denominator=3")
    assert cfg.other.to_dict() == {
        "__qualname__": "fractions:Fraction",
        "0": 5,
        "denominator": 3,
    }
    assert konfig.resolve(cfg.other) == konfig.resolve(fractions.Fraction(5, 3))


def test_positional_argument_is_written_and_merged_by_name_in_python():
    cfg = positional()
    cfg.ratio.denominator = 5
    cfg.update({"other": {"numerator": 7}})
    assert (cfg.ratio[1], cfg.other[0]) == (5, 7)
    konfig.select(cfg, fractions.Fraction).set(numerator=4)
    assert (cfg.ratio[0], cfg.other[0], cfg.outer[0][0][0]) == (4, 4, 4)
    assert (cfg | {"ratio": fractions.Fraction(numerator=2)}).ratio[0] == 2
    cfg.follower = cfg.ref.ratio.denominator
    assert cfg.follower == 5
    with pytest.raises(AttributeError, match="has no field 'numerator'"):
        del cfg.ratio.numerator  # would move the denominator to its place
    assert len(cfg.ratio) == 3


def test_name_that_is_no_parameter_lists_the_parameters():
    cfg = override(positional(), "--cfg.ratio.denom=4")
    (problem,) = konfig.check(cfg)
    assert problem.path == "ratio.denom"
    assert "numerator, denominator" in problem.suggestion
    with pytest.raises(KeyError, match=r"Available: .*numerator, denominator"):
        override(positional(), "--cfg.ratio.denom.x=4")


def test_arguments_of_what_is_not_loaded_keep_their_names(tmp_path, monkeypatch):
    (tmp_path / "unloaded_module.py").write_text("def f(width): return width")
    monkeypatch.syspath_prepend(tmp_path)
    node = {"__qualname__": "unloaded_module:f", "0": 1}
    cfg = konfig.ConfigDict({"f": node})
    cfg.f.width = 2  # writing a config imports nothing
    assert cfg.f["0"] == 1 and "unloaded_module" not in sys.modules
    cfg = override(konfig.ConfigDict({"f": node}), "--cfg.f.width=2")
    assert konfig.resolve(cfg).f == 2
    monkeypatch.delitem(sys.modules, "unloaded_module")
