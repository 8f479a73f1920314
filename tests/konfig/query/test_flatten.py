"""`flatten`, `get_by_path`, `set_by_path`, `fingerprint`."""

import copy
import os
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from kauldron import konfig

with konfig.imports():
    import fractions


def make_config():
    cfg = konfig.ConfigDict(
        {
            "model": {
                "__qualname__": "m:Net",
                "0": 3,
                "layers": [{"features": 64}, {"features": 32}],
            },
            "dtype": fractions.Fraction,
            "odd": {"a b": 1, 7: 2},
            "empty": {"d": {}, "l": [], "t": ()},
        }
    )
    cfg.width = cfg.ref.model.layers[0].features
    return cfg


def test_flatten_gives_leaves_by_path_in_order():
    assert list(konfig.flatten(make_config()).items()) == [
        ("model.__qualname__", "m:Net"),
        ("model[0]", 3),
        ("model.layers[0].features", 64),
        ("model.layers[1].features", 32),
        ("dtype.__const__", "fractions:Fraction"),
        ("odd['a b']", 1),
        ("odd[7]", 2),
        ("empty.d", {}),
        ("empty.l", []),
        ("empty.t", ()),
        ("width", 64),
    ]


def test_paths_of_flatten_are_accepted_by_get_and_set():
    cfg = make_config()
    for path, value in konfig.flatten(cfg).items():
        assert konfig.get_by_path(cfg, path) == value
        konfig.set_by_path(cfg, path, value)
    assert cfg == make_config()


def test_flatten_takes_a_plain_mapping():
    assert konfig.flatten({"a": [1, {"b": 2}]}) == {"a[0]": 1, "a[1].b": 2}


def test_flatten_of_nothing_is_empty():
    assert konfig.flatten({}) == {}


def test_flatten_lists_a_shared_node_at_every_place():
    cfg = konfig.ConfigDict({"a": {"n": 1}})
    cfg.b = cfg.a
    assert konfig.flatten(cfg) == {"a.n": 1, "b.n": 1}


def test_flatten_of_a_cycle_names_it():
    cfg = konfig.ConfigDict({"a": {}})
    cfg.a.b = [cfg]
    with pytest.raises(konfig.CycleError, match=r"cfg\.a\.b\[0\] is cfg"):
        konfig.flatten(cfg)


def test_flatten_sees_what_was_appended_to_a_list():
    cfg = konfig.ConfigDict({"l": []})
    cfg.l.append({"a": 1})
    cfg.l.append(fractions.Fraction)
    assert konfig.flatten(cfg) == {"l[0].a": 1, "l[1].__const__": "fractions:Fraction"}


# ------------------------------------------------------------------------------------
# get_by_path
# ------------------------------------------------------------------------------------


def test_get_reads_through_references():
    assert konfig.get_by_path(make_config(), "width") == 64


def test_get_of_the_empty_path_is_the_config():
    cfg = make_config()
    assert konfig.get_by_path(cfg, "") is cfg


def test_get_takes_parts():
    assert konfig.get_by_path(make_config(), ("model", 0)) == 3


def test_get_of_a_missing_path_gives_the_default():
    assert konfig.get_by_path(make_config(), "model.layrs[0]", None) is None


def test_get_of_a_missing_path_suggests():
    with pytest.raises(KeyError, match=r"cfg\.model has no layrs.*'layers'"):
        konfig.get_by_path(make_config(), "model.layrs[0]")


def test_get_with_wildcards_is_refused():
    with pytest.raises(ValueError, match="wildcards"):
        konfig.get_by_path(make_config(), "model.*")


# ------------------------------------------------------------------------------------
# fingerprint
# ------------------------------------------------------------------------------------


def test_fingerprint_does_not_depend_on_order_sharing_or_colons():
    shared = konfig.ConfigDict({"__qualname__": "a.b:c.d", "n": 1})
    one = konfig.ConfigDict({"x": shared, "y": shared})
    two = {
        "y": {"__qualname__": "a.b.c:d", "n": 1},
        "x": {"n": 1, "__qualname__": "a:b.c.d"},
    }
    assert konfig.fingerprint(one) == konfig.fingerprint(two)


def test_fingerprint_of_a_reference_is_that_of_its_value():
    cfg = konfig.ConfigDict({"a": 1})
    cfg.b = cfg.ref.a
    assert konfig.fingerprint(cfg) == konfig.fingerprint({"a": 1, "b": 1})


@pytest.mark.parametrize("change", [{"a": 2}, {"b": 1}, {"a": "1"}, {"a": None}])
def test_fingerprint_depends_on_the_content(change):
    assert konfig.fingerprint({"a": 1}) != konfig.fingerprint({"a": 1} | change)


def test_fingerprint_leaves_out_what_is_excluded():
    def make(workdir, steps):
        return {"workdir": workdir, "evals": [{"steps": steps}], "f": {7: steps}}

    exclude = ["workdir", "**.steps", "f[7]"]
    one = konfig.fingerprint(make("a", 1), exclude=exclude)
    assert one == konfig.fingerprint(make("b", 2), exclude=exclude)
    assert one != konfig.fingerprint(make("b", 2), exclude=["workdir"])


def test_fingerprint_has_the_length_asked_for():
    text = konfig.fingerprint({"a": 1}, length=40)
    assert len(text) == 40
    assert text.startswith(konfig.fingerprint({"a": 1}))
    assert set(text) <= set("0123456789abcdef")


def test_fingerprint_exclude_must_be_a_list():
    with pytest.raises(TypeError, match="list of paths"):
        konfig.fingerprint({"a": 1}, exclude="workdir")


def test_fingerprint_is_stable_across_processes():
    config = {"b": {1, "x", 2.5}, "a": [1, (2,)]}
    source = f"from kauldron import konfig; print(konfig.fingerprint({config!r}))"
    process = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == konfig.fingerprint(config)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@hypothesis.given(st.dictionaries(st.text(max_size=3), TREES, max_size=4))
def test_equal_configs_have_equal_fingerprints(fields):
    cfg = konfig.ConfigDict(fields)
    again = konfig.ConfigDict(dict(reversed(list(copy.deepcopy(fields).items()))))
    assert cfg == again
    assert konfig.fingerprint(cfg) == konfig.fingerprint(again)
