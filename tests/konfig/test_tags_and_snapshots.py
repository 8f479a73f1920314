"""`set_tagged`, `frozen` and `to_dot`."""

import copy
import pickle
import re

import pytest

from kauldron import konfig

with konfig.imports():
    import fractions

# ------------------------------------------------------------------------------------
# Tags
# ------------------------------------------------------------------------------------


def make_tagged():
    def dtype():
        return konfig.placeholder(str, default="float32", tags=("dtype",))

    linked = dtype()
    return konfig.ConfigDict(
        {
            "a": {"dtype": dtype()},
            "b": fractions.Fraction(linked, [linked, dtype()]),
            "n": konfig.placeholder(int, tags=("size", "n")),
        }
    )


def test_all_placeholders_with_the_tag_are_set():
    cfg = make_tagged()
    paths = konfig.set_tagged(cfg, "dtype", "bfloat16")
    assert paths == ["a.dtype", "b[0]", "b[1][0]", "b[1][1]"]
    assert konfig.resolve(cfg.a) == {"dtype": "bfloat16"}
    assert cfg.b[0] == "bfloat16"
    assert cfg.n is None


def test_tags_survive_copies_and_not_json():
    for cfg in (
        copy.deepcopy(make_tagged()),
        pickle.loads(pickle.dumps(make_tagged())),
    ):
        assert konfig.set_tagged(cfg, "n", 3) == ["n"]
    assert "tags" not in make_tagged().to_json()


def test_unknown_tag_is_a_key_error_that_lists_tags():
    with pytest.raises(KeyError, match=r"'dtypes'.*'dtype'.*dtype, n, size"):
        konfig.set_tagged(make_tagged(), "dtypes", "x")


def test_wrong_type_is_an_error_and_changes_nothing():
    cfg = make_tagged()
    cfg.other = konfig.placeholder(int, tags=("dtype",))
    before = repr(cfg)
    with pytest.raises(TypeError, match=r"cfg\.other: int expected"):
        konfig.set_tagged(cfg, "dtype", "bfloat16")
    assert repr(cfg) == before


def test_tags_given_as_a_text_are_refused():
    with pytest.raises(TypeError, match="list of names"):
        konfig.placeholder(str, tags="dtype")


# ------------------------------------------------------------------------------------
# Snapshots
# ------------------------------------------------------------------------------------


def test_snapshot_is_hashable_and_read_only():
    cfg = konfig.ConfigDict({"a": {"l": [1, {2}]}, "c": fractions.Fraction(1)})
    cfg.r = cfg.ref.a.l[0]
    snapshot = konfig.frozen(cfg)
    assert hash(snapshot) == hash(konfig.frozen(copy.deepcopy(cfg)))
    assert snapshot.a.l == (1, frozenset({2}))
    assert snapshot.r == 1
    with pytest.raises(AttributeError):
        snapshot.a = 3
    cfg.a.l[0] = 5
    assert snapshot.r == 1


def test_snapshot_can_be_resolved():
    snapshot = konfig.frozen({"x": {"__qualname__": "fractions:Fraction", "0": 3}})
    assert konfig.resolve(snapshot).x == 3
    assert konfig.ConfigDict(snapshot).x[0] == 3


def test_snapshot_of_a_cycle_is_an_error():
    cfg = konfig.ConfigDict({})
    cfg.me = [cfg]
    with pytest.raises(konfig.CycleError, match=r"cfg\.me\[0\] is cfg"):
        konfig.frozen(cfg)


# ------------------------------------------------------------------------------------
# Graphs
# ------------------------------------------------------------------------------------


def test_graph_draws_shared_nodes_once():
    cfg = konfig.ConfigDict({"a": fractions.Fraction(1), "n": 3})
    cfg.b = [cfg.a, {"x": 1}]
    text = konfig.to_dot(cfg)
    assert text.startswith("digraph config {")
    assert text.count("fractions.Fraction") == 1
    assert sorted(re.findall(r"n0 -> (n\d) \[label=\"(.*?)\"\]", text)) == [
        ("n1", "a"),
        ("n1", "b[0]"),
        ("n2", "b[1]"),
    ]
    assert r"n = 3\l" in text


def test_graph_of_a_cycle_ends():
    cfg = konfig.ConfigDict({})
    cfg.me = cfg
    assert "n0 -> n0" in konfig.to_dot(cfg)


def test_list_that_holds_itself_is_shown_once():
    cfg = konfig.ConfigDict({"l": [{"a": 1}]})
    cfg.l.append(cfg.l)
    other = konfig.ConfigDict({"l": [{"a": 2}]})
    other.l.append(other.l)
    assert "n0 -> n1" in konfig.to_dot(cfg)
    assert "<same as cfg.l>" in konfig.to_text(cfg)
    assert "same as cfg.l" in konfig.to_html(cfg)
    assert konfig.diff(cfg, other).changed == {"l[0].a": (1, 2)}


def test_texts_in_a_graph_are_escaped():
    text = konfig.to_dot({'k"': 'say "hi"\n\\'})
    label = re.search(r'label="((?:[^"\\]|\\.)*)"\];', text).group(1)
    assert r"\"hi\"" in label
    assert text.count("\n") == 3
