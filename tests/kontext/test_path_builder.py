"""Paths written as Python expressions."""

import copy
import dataclasses
import functools
import json
import operator
import pickle
from typing import Annotated, Any, Generic, NamedTuple, Optional, TypedDict, TypeVar

import flax
import flax.linen as nn
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kontext
from kauldron.kontext import path_builder_from
from kauldron.kontext.path_builder import AnnotatedPathBuilder, DynamicPathBuilder

T = TypeVar("T")


class Pose(NamedTuple):
    rotation: Any
    shift: tuple[int, "Meta"]


class Meta(TypedDict):
    name: str
    size: "Size | None"


class Size:
    height: int
    width: int
    unit = "px"


@flax.struct.dataclass
class View:
    rgb: jax.Array
    pose: Pose
    meta: Meta
    depth: np.ndarray | None = None

    @property
    def area(self):
        return 0

    @functools.cached_property
    def cached(self):
        return 0

    def method(self):
        return 0


@dataclasses.dataclass
class Batch(Generic[T]):
    views: list[View]
    named: dict[str, View]
    main: Optional[View]  # noqa: UP045
    anything: Any
    array: jax.Array
    table: dict
    quoted: list["View"]
    marked: Annotated[View, "note"]
    pair: tuple[View, Size]
    many: tuple[View, ...]
    either: View | Size
    free: View | jax.Array
    generic: T


@pytest.fixture
def batch() -> Any:
    return path_builder_from("batch", Batch)


# ------------------------------------------------------------------------------------
# The text
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda b: b, "batch"),
        (lambda b: b.views[0].rgb, "batch.views[0].rgb"),
        (lambda b: b.array[1:2], "batch.array[1:2]"),
        (lambda b: b.array[..., ::2, -1, None], "batch.array[...,::2,-1,None]"),
        (lambda b: b.anything["k"], "batch.anything['k']"),
        (lambda b: b.anything["odd key"].x, "batch.anything['odd key'].x"),
        (lambda b: b.anything[np.int64(3)], "batch.anything[3]"),
        (lambda b: b.anything["*"], "batch.anything['*']"),
        (lambda b: b.anything.module.__call__[0], "batch.anything.module.__call__[0]"),
        (lambda b: b.main.__call__[0], "batch.main.__call__[0]"),
        (lambda b: getattr(b.anything, "odd name"), "batch.anything['odd name']"),
    ],
)
def test_access_extends_the_path(batch, build, text):
    built = build(batch)
    assert str(built) == text
    assert built.__as_konfig__() == text
    assert repr(built) == f"DynamicPathBuilder({text})"


_keys = (
    st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False)
)


@given(st.lists(_keys | st.lists(_keys, max_size=2).map(tuple), max_size=4))
def test_everything_that_is_printed_parses_back(keys):
    builder = DynamicPathBuilder("root")
    for key in keys:
        builder = builder[key]
    assert kontext.Path.from_str(str(builder)) == kontext.Path("root", *keys)


def test_prefix_may_be_any_path():
    assert str(path_builder_from("a.b[0]", Any).c) == "a.b[0].c"
    assert str(path_builder_from("", Any).c.d) == "c.d"
    with pytest.raises(kontext.PathSyntaxError):
        path_builder_from("a..b", Any)


@pytest.mark.parametrize("key", [b"x", [1], object(), slice(1.5)])
def test_key_that_cannot_be_in_a_path_is_an_error(batch, key):
    with pytest.raises(ValueError, match="cannot be"):
        batch.anything[key]


# ------------------------------------------------------------------------------------
# Used as a path
# ------------------------------------------------------------------------------------


class Model(nn.Module):
    image: kontext.Key = kontext.REQUIRED

    def __call__(self, image):
        return image


def test_builder_is_accepted_wherever_a_path_is(batch):
    tree = {"batch": {"views": [{"rgb": 5}]}}
    path = batch.views[0].rgb
    assert kontext.get_by_path(tree, path) == 5
    assert kontext.set_by_path(tree, path, 6) == ["batch.views[0].rgb"]
    model = Model(image=path)
    assert kontext.resolve_from_keyed_obj(tree, model) == {"image": 6}
    assert hash(model) == hash(Model(image="batch.views[0].rgb"))


def test_builder_equals_its_text(batch):
    path = batch.views[0].rgb
    assert path == path_builder_from("batch", Batch).views[0].rgb
    assert path == "batch.views[0].rgb"
    assert operator.eq("batch.views[0].rgb", path)
    assert path != batch.views[1].rgb
    assert path != 5
    assert {path: 1}["batch.views[0].rgb"] == 1


def test_config_stores_a_plain_string(batch):
    from kauldron import konfig

    cfg = konfig.ConfigDict({"image": batch.views[0].rgb})
    assert type(cfg.image) is str
    assert json.loads(cfg.to_json())["image"] == "batch.views[0].rgb"


# ------------------------------------------------------------------------------------
# Checked names
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b.view,
        lambda b: b["view"],
        lambda b: b.views[0].rbg,
        lambda b: b.views[0:2][1].rbg,
        lambda b: b.named["left"].rbg,
        lambda b: b.named.left.rbg,
        lambda b: b.main.rbg,
        lambda b: b.quoted[0].rbg,
        lambda b: b.marked.rbg,
        lambda b: b.pair[0].rbg,
        lambda b: b.pair[-1].hight,
        lambda b: b.many[7].rbg,
        lambda b: b.main.pose.rotate,
        lambda b: b.main.pose.shift[1].nam,
        lambda b: b.main.meta["nam"],
        lambda b: b.main.meta.size.hight,
        lambda b: b.either.wdth,
        lambda b: b.main.method,
    ],
)
def test_unknown_field_is_an_error(batch, build):
    with pytest.raises(AttributeError, match="has no field"):
        build(batch)


def test_unknown_field_names_the_class_and_the_nearest_field(batch):
    with pytest.raises(AttributeError, match=r"View has no field 'rbg'\. .* 'rgb'\?"):
        batch.main.rbg
    with pytest.raises(
        AttributeError, match=r"Size has no field 'zzz'\. It has: height"
    ):
        batch.pair[1].zzz


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b.main.area,
        lambda b: b.main.cached.anything,
        lambda b: b.pair[1].unit,
        lambda b: b.main.rgb.shape,
        lambda b: b.main.depth.T,
        lambda b: b.anything.goes[0].here,
        lambda b: b.table.x.y,
        lambda b: b.generic.x,
        lambda b: b.free.whatever,
        lambda b: b.either.rgb,
        lambda b: b.either.height,
        lambda b: b.pair[5].x,
        lambda b: b.views.anything,
        lambda b: b.main.pose.rotation.x,
        lambda b: b.main.pose[1],
    ],
)
def test_what_no_annotation_denies_is_accepted(batch, build):
    kontext.Path.from_str(str(build(batch)))


def test_dir_lists_the_fields(batch):
    assert {"views", "named", "main"} <= set(dir(batch))
    assert "rgb" in dir(batch.views[0])
    assert dir(batch.anything) == []


# ------------------------------------------------------------------------------------
# A builder is not something else
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("builder", [path_builder_from("b", Any), DynamicPathBuilder()])
def test_builder_has_no_protocols(builder):
    for name in ("__array__", "__len__", "__deepcopy__", "__index__", "__jax_array__"):
        assert not hasattr(builder, name)
    assert not callable(builder)
    with pytest.raises(TypeError, match="not iterable"):
        iter(builder)
    with pytest.raises(TypeError):
        "x" in builder


def test_builder_cannot_be_changed(batch):
    with pytest.raises(AttributeError, match="cannot set 'views'"):
        batch.views = 1


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy])
def test_builder_can_be_copied(batch, clone):
    path = clone(batch.views)
    assert path == "batch.views"
    with pytest.raises(AttributeError):
        path[0].rbg


def test_builder_can_be_pickled():
    builder = path_builder_from("view", dataclasses.Field).name
    assert pickle.loads(pickle.dumps(builder)) == builder


# ------------------------------------------------------------------------------------
# Other builders
# ------------------------------------------------------------------------------------


def test_dynamic_builder_starts_with_its_class_name():
    assert str(DynamicPathBuilder().a) == "DynamicPathBuilder.a"

    class Root(DynamicPathBuilder):
        pass

    assert str(Root().a[0]) == "Root.a[0]"


class Image(AnnotatedPathBuilder):
    lens: "Lens"
    free: Any
    view: View


class Lens(AnnotatedPathBuilder):
    focus: float


def test_annotated_builder_knows_its_attributes():
    assert str(Image()) == "Image"
    assert str(Image().lens.focus) == "Image.lens.focus"
    assert isinstance(Image().lens, Lens)
    assert {"lens", "free", "view"} == set(dir(Image()))
    assert kontext.get_by_path({"Image": {"lens": 5}}, Image().lens) == 5


@pytest.mark.parametrize("build", [lambda i: i.len, lambda i: i.lens.focu])
def test_annotated_builder_refuses_what_is_not_declared(build):
    with pytest.raises(AttributeError, match="has no field"):
        build(Image())


def test_annotation_that_is_no_builder_ends_the_check():
    assert str(Image().free.x[0]) == "Image.free.x[0]"
    assert str(Image().view.nothing) == "Image.view.nothing"
    assert str(Image().lens.focus.x) == "Image.lens.focus.x"
