"""`to_python`: the config file that gives a config."""

import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig

with konfig.imports():
    import email.message
    import fractions
    import xml.dom.minidom as minidom


def run(source):
    """The config that a source gives."""
    namespace = {"__name__": "written_config"}
    exec(compile(source, "written_config.py", "exec"), namespace)
    return namespace["get_config"]()


def test_source_reads_like_a_config_file():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1, denominator=2), "n": 3})
    assert konfig.to_python(cfg).splitlines() == [
        "from kauldron import konfig",
        "",
        "with konfig.imports():",
        "    import fractions",
        "",
        "",
        "def get_config():",
        "    cfg = konfig.ConfigDict({",
        "        'a': fractions.Fraction(1, denominator=2),",
        "        'n': 3,",
        "    })",
        "    return cfg",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"a": [1, (2,), (), {"b": None}], 7: ..., "x.y": b"z", True: 1},
        {"a": {1, 2}, "b": frozenset({3}), "c": set(), "d": slice(1, None, 2)},
        {"a": float("inf"), "b": -float("inf"), "c": 1e300, "d": 2j},
        {"a": fractions.Fraction, "b": [fractions.Fraction | None]},
        {"a": email.message.Message(), "b": minidom.Document},
        {"a": {"__qualname__": "no_such_module.sub:f", "x": 1}},
        {"a": {"__qualname__": "builtins.tuple", "0": [1]}, "b": {"__const__": "math"}},
        {"a": {"__qualname__": "m.f", "odd-name": 1, "class": 2, "ok": 3}},
        {"a": {"__qualname__": "m:<locals>.f", "n": 1}},
        {"a": {"__qualname__": "x.dup:f"}, "b": {"__qualname__": "y.dup:f"}},
        {"a": {"__qualname__": "list:f"}, "cfg": {"__qualname__": "cfg.konfig:g"}},
        {"a": {"__qualname__": "kauldron.kd:train.Trainer", "seed": 3}},
        {"a": pathlib.PurePosixPath("x/y")},
        {"a": 'it\'s "quoted"\n', "b": "\\"},
    ],
)
def test_written_config_equals_the_config(fields):
    cfg = konfig.ConfigDict(fields)
    assert run(konfig.to_python(cfg)) == cfg


def test_call_at_the_top_is_the_config():
    cfg = fractions.Fraction(1, fractions.Fraction(2))
    assert run(konfig.to_python(cfg)) == cfg


def test_shared_nodes_become_variables():
    cfg = konfig.ConfigDict({"a": {"inner": fractions.Fraction(1)}, "p": {"n": 1}})
    cfg.b, cfg.l, cfg.q = cfg.a, [cfg.a.inner], cfg.p
    written = run(konfig.to_python(cfg))
    assert written == cfg
    assert written.a is written.b
    assert written.l[0] is written.a.inner
    assert written.q is written.p


def test_references_to_paths_stay_references():
    cfg = konfig.ConfigDict({"n": 1, "d": {"x y": fractions.Fraction(2)}, "l": [0]})
    cfg.m = cfg.ref.n
    cfg.d["x y"][0] = cfg.ref.n
    cfg.l[0] = cfg.ref.d["x y"]
    cfg.twice = cfg.ref.n * 2
    written = run(konfig.to_python(cfg))
    assert written == cfg
    written.n = 5
    assert (written.m, written.d["x y"][0], written.twice) == (5, 5, 2)


def test_placeholders_stay_placeholders():
    cfg = konfig.ConfigDict({"a": konfig.placeholder(int), "r": konfig.required(str)})
    linked = konfig.placeholder(float, default=0.5)
    cfg.x, cfg.y = linked, linked
    cfg.s = konfig.placeholder(required=True)
    written = run(konfig.to_python(cfg))
    assert repr(written) == repr(cfg)
    with pytest.raises(TypeError):
        written.a = "text"
    written.x = 0.7
    assert written.y == 0.7


def test_cycle_is_an_error_that_names_it():
    cfg = konfig.ConfigDict({"a": {}})
    cfg.a.b = cfg
    with pytest.raises(konfig.CycleError, match=r"cfg\.a\.b is cfg"):
        konfig.to_python(cfg)


def test_value_that_is_no_data_is_a_type_error():
    cfg = konfig.ConfigDict({"l": []})
    cfg.l.append(object())
    with pytest.raises(TypeError, match=r"cfg\.l\[0\]"):
        konfig.to_python(cfg)


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.binary(max_size=2)
)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b c", "if"]), inner, max_size=2).map(
            lambda fields: {"__qualname__": "some.module:f", **fields}
        ),
    ),
    max_leaves=8,
)


@hypothesis.given(st.dictionaries(st.text(max_size=3), _TREES, max_size=3))
def test_any_config_is_written_as_itself(fields):
    cfg = konfig.ConfigDict(fields)
    assert run(konfig.to_python(cfg)) == cfg


def test_deleted_default_stays_deleted():
    konfig.register_default_values(
        konfig.ConfigDict(
            {
                "__qualname__": "to_python_test:Run",
                "evals": {},
                "setup": {"__qualname__": "to_python_test:Setup", "log": 1, "eval": 2},
                "aux": {"step": -1},
            }
        )
    )
    run_node = {"__qualname__": "to_python_test:Run", "seed": 1}
    cfg = konfig.ConfigDict({"runs": [run_node], "other": dict(run_node)})
    del cfg.runs[0].evals
    del cfg.runs[0].setup.log
    del cfg.other.aux["step"]
    cfg.again = cfg.runs[0]
    written = run(konfig.to_python(cfg))
    assert written == cfg
    assert "evals" not in written.again and "log" not in written.runs[0].setup
    assert written.again is written.runs[0]
