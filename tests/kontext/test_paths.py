"""`Path` and `GlobPath` as values."""

import copy
import pickle
import types

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kauldron.kontext.path_parser import Wildcard, parse_parts

from kauldron import kontext
from kauldron.kontext import GlobPath, Path

STAR, DOUBLE_STAR = Wildcard.STAR, Wildcard.DOUBLE_STAR

_parts = (
    st.text(max_size=3)
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.booleans()
    | st.none()
    | st.just(...)
    | st.builds(slice, st.none() | st.integers(), st.none() | st.integers())
)
_all_parts = _parts | st.lists(_parts, max_size=3).map(tuple)


@given(st.lists(_all_parts, max_size=4))
def test_path_equals_the_path_parsed_from_its_text(parts):
    path = Path(*parts)
    parsed = Path.from_str(str(path))
    assert parsed == path
    assert hash(parsed) == hash(path)
    assert repr(path) == str(path)


def test_dotted_and_bracketed_indices_are_the_same_path():
    assert Path.from_str("x.3") == Path.from_str("x[3]") == Path("x", 3)


@pytest.mark.parametrize("cls", [Path, GlobPath])
def test_path_behaves_like_a_tuple_of_parts(cls):
    path = cls("a", 0, "b", 0)
    assert path.parts == ("a", 0, "b", 0)
    assert len(path) == 4
    assert list(path) == ["a", 0, "b", 0]
    assert "b" in path and "c" not in path
    assert path.index("b") == 2
    assert path.count(0) == 2
    assert list(reversed(path)) == [0, "b", 0, "a"]
    assert path[-2] == "b"
    assert path[1:3] == cls(0, "b")
    assert type(path[1:3]) is cls


@pytest.mark.parametrize("error", [KeyError, TypeError])
def test_indexing_a_path_with_a_string_is_a_key_and_a_type_error(error):
    with pytest.raises(error, match="integer or a slice"):
        Path("a")["a"]


def test_index_past_the_end_of_a_path_is_an_index_error():
    with pytest.raises(IndexError):
        Path("a")[1]


def test_path_refuses_wildcards_and_says_where_they_are_allowed():
    with pytest.raises(ValueError, match=r"set_by_path.*filter_by_path.*tree metrics"):
        Path("a", STAR)
    with pytest.raises(ValueError, match=r"'a\.\*\*' has the wildcard"):
        Path.from_str("a.**")
    assert GlobPath.from_str("a.**").parts == ("a", DOUBLE_STAR)


def test_paths_of_different_classes_are_never_equal():
    assert Path("a") != GlobPath("a")
    assert Path("a") != "a"
    assert Path("a") != ("a",)


def test_equal_paths_hash_equal_also_with_slices():
    one = Path.from_str("a[1:2][...,::3]")
    other = Path("a", slice(1, 2), (..., slice(None, None, 3)))
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 1}[other] == 1
    assert one != Path("a", slice(1, 3), (..., slice(None, None, 3)))


def test_literal_star_and_wildcard_are_different_paths():
    assert GlobPath("a", "*") != GlobPath("a", STAR)
    assert str(GlobPath("a", "*")) == "a['*']"
    assert str(GlobPath("a", STAR)) == "a.*"


@pytest.mark.parametrize(
    "part",
    [b"x", [1], {}, object(), float("nan"), slice(1.5), slice(True), (1, [2]),
     ((slice(1),),), complex(0, float("nan"))],
    ids=lambda part: type(part).__name__,
)  # fmt: skip
def test_invalid_part_is_a_value_error_naming_it(part):
    with pytest.raises(ValueError, match="cannot be"):
        Path("a", part)


def test_path_cannot_be_changed():
    path = Path("a")
    with pytest.raises(AttributeError, match="immutable"):
        path.parts = ("b",)
    with pytest.raises(AttributeError, match="immutable"):
        path.note = 1
    with pytest.raises(AttributeError, match="immutable"):
        del path._parts
    with pytest.raises(TypeError):
        path[0] = "b"


@pytest.mark.parametrize("path", [Path("a", slice(1, 2)), GlobPath("a", STAR, "*")])
def test_path_survives_pickling_and_copying(path):
    assert pickle.loads(pickle.dumps(path)) == path
    assert copy.deepcopy(path) == path


# ------------------------------------------------------------------------------------
# Relations
# ------------------------------------------------------------------------------------


def test_relative_to_removes_a_prefix():
    assert Path.from_str("a.b[0].c").relative_to(Path("a", "b")) == Path(0, "c")
    assert Path("a").relative_to(Path("a")) == Path()
    assert Path("a").relative_to(Path()) == Path("a")


def test_relative_to_works_across_classes_and_with_wildcards():
    glob = GlobPath.from_str("params.enc.**.bias")
    rest = glob.relative_to(glob.first_non_glob_parent)
    assert rest == GlobPath(DOUBLE_STAR, "bias")
    assert glob.relative_to(GlobPath.from_str("params.enc.**")) == GlobPath("bias")
    assert Path("a", "b").relative_to(GlobPath("a")) == Path("b")


@pytest.mark.parametrize("other", [Path("b"), Path("a", "c"), Path("a", "b", "c")])
def test_relative_to_something_else_is_an_error(other):
    with pytest.raises(ValueError, match="is not a subpath"):
        Path("a", "b").relative_to(other)


def test_relative_to_tells_a_wildcard_from_the_key_star():
    with pytest.raises(ValueError, match="is not a subpath"):
        GlobPath("a", "*", "b").relative_to(GlobPath("a", STAR))


@pytest.mark.parametrize(
    ("glob", "parent"),
    [
        ("enc.blocks[2].*.w", "enc.blocks[2]"),
        ("**.w", ""),
        ("enc.w", "enc.w"),
        ("a['*'].b.**", "a['*'].b"),
    ],
)
def test_first_non_glob_parent_is_all_before_the_first_wildcard(glob, parent):
    found = GlobPath.from_str(glob).first_non_glob_parent
    assert found == Path.from_str(parent)
    assert type(found) is Path


# ------------------------------------------------------------------------------------
# From jax
# ------------------------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class _Keyless:
    def __init__(self, *children):
        self.children = children

    def tree_flatten(self):
        return self.children, None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


def test_jax_paths_print_like_the_keys_of_flatten_with_path():
    tree = {
        "a": [1, (2, {"odd key": 3})],
        "b": {
            "partial": jax.tree_util.Partial(min, 1),
            "keyless": _Keyless(1, {"x": 2}),
        },
        "c": {7: None, 5: 6},
    }
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    printed = [str(Path.from_jax_path(path)) for path, _ in entries]
    assert printed == list(kontext.flatten_with_path(tree))
    assert "a[1][1]['odd key']" in printed
    assert "b.keyless[1].x" in printed


def test_each_kind_of_jax_key_becomes_a_part():
    jtu = jax.tree_util
    keys = (jtu.DictKey("a"), jtu.GetAttrKey("b"), jtu.SequenceKey(0))
    path = Path.from_jax_path((*keys, jtu.FlattenedIndexKey(1)))
    assert path == Path("a", "b", 0, 1)


@pytest.mark.parametrize("entry", ["a", jax.tree_util.DictKey(b"x"), object()])
def test_unknown_jax_key_is_a_type_error(entry):
    with pytest.raises(TypeError):
        Path.from_jax_path((entry,))


# ------------------------------------------------------------------------------------
# Reading and writing through a path, old module names
# ------------------------------------------------------------------------------------


def test_get_from_reads_and_takes_a_default():
    path = Path.from_str("a[0]")
    assert path.get_from({"a": [5]}) == 5
    assert path.get_from({}, default=None) is None


def test_get_from_can_show_the_structure_of_the_context():
    context = {"a": {1: jax.numpy.zeros((2, 3)), "x": [1, {}]}, "b": None}
    with pytest.raises(KeyError) as caught:
        Path("c").get_from(context, err_spec=True)
    text = str(caught.value)
    assert "a[1]: float32[2,3]" in text
    assert "a.x[0]: int" in text
    assert "b: NoneType" in text
    assert "float32[2,3]" not in _error_text(lambda: Path("c").get_from(context))


def _error_text(function):
    with pytest.raises(KeyError) as caught:
        function()
    return str(caught.value)


@pytest.mark.parametrize("cls", [Path, GlobPath])
def test_set_in_writes_and_reports_the_path(cls):
    tree = {"a": [1, 2]}
    assert cls.from_str("a[1]").set_in(tree, 5) == ["a[1]"]
    assert tree == {"a": [1, 5]}


def test_glob_path_sets_everything_it_stands_for():
    tree = {"a": {"x": 1}, "b": {"x": 2}}
    assert GlobPath.from_str("*.x").set_in(tree, 0) == ["a.x", "b.x"]
    assert tree == {"a": {"x": 0}, "b": {"x": 0}}


def test_modules_that_code_names_are_there():
    assert parse_parts("a[0].*") == ["a", 0, STAR]
    for name in [
        "paths",
        "glob_paths",
        "annotate",
        "path_parser",
        "path_builder",
        "type_utils",
        "filter_utils",
    ]:
        assert isinstance(getattr(kontext, name), types.ModuleType)
    assert kontext.glob_paths.set_by_path is kontext.set_by_path
    assert kontext.filter_utils.filter_by_path is kontext.filter_by_path
    assert kontext.type_utils.get_annotated(kontext.Path, kontext.Key) == []
