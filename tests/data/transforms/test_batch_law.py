"""Running a transform on a batch gives exactly what stacking its results gives."""

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kauldron.data import transforms as T
from kauldron.data.engine import trees
from kauldron.data.engine.keys import RecordRngs

DTYPES = ["uint8", "int8", "int32", "int64", "bool", "float16", "float32", "float64"]


@st.composite
def image_columns(draw, *, lead=st.just(()), dtypes=st.sampled_from(DTYPES)):
    """A batch of images `(n, *lead, h, w, c)` with a label, of random size and dtype."""
    size = draw(st.integers(1, 5))
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 3)))
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).uniform(-20, 300, (size, *draw(lead), *shape))
    dtype = np.dtype(draw(dtypes))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(values, limits.min, limits.max)
    elif dtype.kind == "b":
        values = values > 100
    return {"image": values.astype(dtype), "label": np.arange(size) % 3}


def assert_same(actual, expected):
    assert list(actual) == list(expected)
    actual_leaves, actual_tree = jax.tree.flatten(actual)
    expected_leaves, expected_tree = jax.tree.flatten(expected)
    assert actual_tree == expected_tree
    for a, b in zip(actual_leaves, expected_leaves):
        assert isinstance(a, np.ndarray)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


def check_law(transform, columns):
    size = trees.num_rows(columns)
    records = trees.unstack(columns, size)
    form = T.batch_form(transform)
    assert form is not None
    if isinstance(transform, T.RandomMapTransform):
        rngs = RecordRngs(7, np.arange(size) + 11)
        batch = form(columns, rngs)
        rows = [transform.random_map(row, rngs[i]) for i, row in enumerate(records)]
    else:
        batch = form(columns)
        rows = [transform.map(row) for row in records]
    assert_same(batch, trees.stack(rows))


TRANSFORMS = {
    "keep": T.Elements(keep=["image"]),
    "rename_copy": T.Elements(rename={"label": "y"}, copy={"label": "z"}),
    "swap": T.Elements(rename={"label": "image", "image": "label"}),
    "constants": T.AddConstants(
        {"n": 3, "f": 0.5, "b": True, "s": "text", "a": np.arange(6).reshape(2, 3)}
    ),
    "constant_tree": T.AddConstants({"tree": {"x": [1, 2.0], "none": None}}),
    "cast_down": T.Cast(key="image", dtype="float16"),
    "cast_bfloat16": T.Cast(key="image", dtype="bfloat16"),
    "cast_both": T.Cast(key={"image": "i", "label": "l"}, dtype=np.int32),
    "range": T.ValueRange(key="image", vrange=(0, 1)),
    "range_label": T.ValueRange(key="label", vrange=(-1, 1), in_vrange=(0, 2)),
    "range_inverted": T.ValueRange(key="image", vrange=(1, -1)),
    "range_int": T.ValueRange(key="image", vrange=(0, 99), dtype="int8"),
    "range_half": T.ValueRange(key="image", vrange=(0, 1), dtype="float16"),
    "range_double": T.ValueRange(key="image", vrange=(0, 1), dtype=np.float64),
    "range_far": T.ValueRange(key="image", vrange=(0, 1), in_vrange=(1000, 1001)),
    "range_open": T.ValueRange(key="image", vrange=(0, 1), clip_values=False),
    "rearrange": T.Rearrange(key="image", pattern="h w c -> (w h) c 1"),
    "rearrange_any": T.Rearrange(key=["image", "label"], pattern="... -> ... 1"),
    "rearrange_split": T.Rearrange(
        key="image", pattern="h w (b c) -> h w b c", axes_lengths={"b": 1}
    ),
    "rearrange_batch": T.Rearrange(key="image", pattern="batch w c -> w (batch c)"),
    "gather": T.Gather(key="image", axis=2, indices=(0, -1, 0)),
    "gather_last": T.Gather(key="image", axis=-3, indices=(0,)),
    "gather_none": T.Gather(key="image", axis=0, indices=()),
    "crop": T.CenterCrop(key="image", shape=(1, None, 1)),
    "crop_empty": T.CenterCrop(key="image", shape=(0, None, None)),
    "one_hot": T.OneHot(key="label", num_classes=4),
    "random_flip": T.RandomFlipLeftRight(key="image"),
    "random_crop": T.RandomCrop(key="image", shape=(1, 1, None)),
}
for method in (None, "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area"):
    TRANSFORMS[f"resize_{method}"] = T.Resize(key="image", size=(5, 7), method=method)
TRANSFORMS |= {
    "resize_min": T.Resize(key="image", min_size=4, method="bilinear"),
    "resize_max": T.Resize(key="image", max_size=4, antialias=False),
    "resize_small": T.ResizeSmall(key="image", smaller_size=3),
}


def check_laws(names, columns):
    for name in names:
        note(name)
        check_law(TRANSFORMS[name], columns)


@given(columns=image_columns())
@settings(deadline=None)
def test_batch_equals_stacked_records(columns):
    check_laws(TRANSFORMS, columns)


@given(columns=image_columns(lead=st.sampled_from([(3,), (2, 2)])))
@settings(max_examples=15, deadline=None)
def test_batch_equals_stacked_records_for_videos(columns):
    names = ["random_flip", "resize_bilinear", "resize_nearest", "resize_min", "range"]
    check_laws(names, columns)


def test_batch_equals_stacked_records_for_images_of_real_size():
    # Large enough for a linear algebra library to split the work.
    images = np.random.default_rng(0).uniform(size=(4, 96, 128, 3)).astype(np.float32)
    for method in ("bilinear", "bicubic", "area"):
        transform = T.Resize(key="image", size=(120, 60), method=method)
        check_law(transform, {"image": images})


def test_batch_equals_stacked_records_for_bfloat16():
    values = np.linspace(-3, 300, 2 * 4 * 5 * 1).reshape(2, 4, 5, 1)
    columns = {"image": values.astype(ml_dtypes.bfloat16), "label": np.arange(2)}
    for name in ("range", "cast_down", "resize_bilinear", "resize_area", "random_flip"):
        check_law(TRANSFORMS[name], columns)


def test_batch_equals_stacked_records_for_tree_flatten():
    columns = {
        "a": {"b": np.arange(3), "c": [np.arange(3.0), np.array(["x", "yy", "z"])]},
        "d": np.arange(3),
    }
    check_law(T.TreeFlattenWithPath(key="a"), columns)
    check_law(T.TreeFlattenWithPath(key={"a": "z"}, separator="/"), columns)


def test_batch_equals_stacked_records_for_lists_of_labels():
    columns = {"labels": np.array([[0, 2, -1], [1, 1, 2]])}
    check_law(T.OneHot(key="labels", num_classes=3), columns)
    check_law(T.OneHot(key="labels", num_classes=3, multi=False), columns)


def test_batch_equals_stacked_records_for_nested_fields():
    columns = {"obs": {"image": np.ones((3, 2, 2), np.uint8), "t": np.arange(3)}}
    check_law(T.Cast(key="obs.image", dtype="float32"), columns)
    check_law(T.Cast(key={"obs.image": "image"}, dtype="float32"), columns)


def test_batch_equals_stacked_records_for_fields_that_are_lists():
    # In a batch such a field is a list of columns, not an array.
    columns = {"pair": [np.arange(4), np.arange(4) * 2.5]}
    check_law(T.Cast(key="pair", dtype="float32"), columns)
    check_law(T.Rearrange(key="pair", pattern="a -> a 1"), columns)


@given(
    columns=image_columns(),
    height=st.integers(0, 4),
    width=st.integers(0, 4),
    video=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_random_crops_of_any_shape_obey_the_law(columns, height, width, video):
    full = columns["image"].shape[1:3]
    shape = (min(height, full[0]), min(width, full[1]), None)
    columns["mask"] = columns["image"][..., :1]
    if video:
        columns = {k: v[:, None] for k, v in columns.items() if k != "label"}
        shape = (None, *shape)
    check_law(T.RandomCrop(key=["image", "mask"], shape=shape), columns)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_jax_forms_agree_with_the_numpy_forms(dtype):
    images = np.random.default_rng(0).uniform(0, 255, (3, 6, 8, 2)).astype(dtype)
    columns = {"image": images, "label": np.arange(3, dtype=np.int32)}
    forms = {name: form for name, x in TRANSFORMS.items() if (form := T.jax_form(x))}
    results = jax.jit(lambda c: {name: form(c) for name, form in forms.items()})(
        columns
    )
    for name, actual in results.items():
        expected = T.batch_form(TRANSFORMS[name])(columns)
        assert jax.tree.structure(actual) == jax.tree.structure(expected), name
        for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
            assert isinstance(a, jax.Array)
            assert a.dtype == jax.dtypes.canonicalize_dtype(b.dtype), name
            np.testing.assert_allclose(
                np.asarray(a, np.float64),
                np.asarray(b, np.float64),
                rtol=1e-5,
                atol=1e-4,
                err_msg=name,
            )


def test_every_deterministic_built_in_has_a_jax_form():
    without = {n for n, t in TRANSFORMS.items() if T.jax_form(t) is None}
    # Random ones draw on the host; strings cannot be on a device.
    assert without == {"random_flip", "random_crop", "constants"}
