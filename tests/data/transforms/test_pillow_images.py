"""8-bit images: resized by Pillow, cropped straight from their files."""

import dataclasses
import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kauldron import kd
from kauldron.data import transforms as T
from kauldron.data.transforms import pillow_images
from kauldron.data.transforms.resize import resize

ALL = slice(None)


def rng(seed=0):
    return np.random.default_rng(seed)


def smooth(height, width, seed=0):
    """Something like a photograph: large forms, and a little noise."""
    small = rng(seed).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(small).resize((width, height)), np.int16)
    noise = rng(seed).integers(-5, 6, image.shape, dtype=np.int16)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def encoded(pixels, format="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for i in range(12):
        place = root / f"class{i % 3}"
        place.mkdir(exist_ok=True)
        pixels = smooth(90 + i, 120 - i, seed=i)
        kind = "JPEG" if i % 2 else "PNG"
        (place / f"{i:02}.{kind.lower()}").write_bytes(encoded(pixels, kind))
    grey = Image.fromarray(smooth(64, 64)[..., 0])
    grey.save(root / "class0" / "99.png")
    return root


def make_ds(folder, *transforms, **kwargs):
    kwargs = {
        "shuffle": True,
        "seed": 3,
        "num_epochs": 1,
        "batch_size": 4,
        "transforms": transforms,
    } | kwargs
    return kd.data.py.ImageFolder(folder, **kwargs)


# ----------------------------------------------------------------------------
# Pillow resizes as the matrices do
# ----------------------------------------------------------------------------


@given(
    old=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    new=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    channels=st.integers(1, 6),
    lead=st.sampled_from([(), (2,), (2, 3)]),
)
@settings(max_examples=60, deadline=None)
def test_bilinear_resizing_of_bytes_is_within_one_level(old, new, channels, lead):
    image = rng().integers(0, 256, (*lead, *old, channels), dtype=np.uint8)
    actual = pillow_images.resized(image, ALL, ALL, new, user="test")
    assert actual.dtype == np.uint8
    expected = np.round(resize(image, new, "bilinear"))
    np.testing.assert_allclose(actual.astype(int), expected, atol=1)


@pytest.mark.parametrize("method", ["nearest", "bicubic", "lanczos3", "area"])
def test_other_methods_keep_their_values(method):
    image = rng().integers(0, 256, (40, 50, 3), dtype=np.uint8)
    crop = T.InceptionCrop(key="x", resize_size=(16, 24), resize_method=method)
    whole = T.InceptionCrop(key="x")
    box = whole.random_map({"x": image}, rng(4))["x"]
    expected = np.clip(np.round(resize(box, (16, 24), method)), 0, 255)
    actual = crop.random_map({"x": image}, rng(4))["x"]
    np.testing.assert_array_equal(actual, expected.astype(np.uint8))


def test_a_crop_of_floats_keeps_the_values_of_resize():
    image = rng().uniform(size=(40, 50, 3)).astype(np.float32)
    box = T.InceptionCrop(key="x").random_map({"x": image}, rng(4))["x"]
    crop = T.InceptionCrop(key="x", resize_size=(16, 24))
    actual = crop.random_map({"x": image}, rng(4))["x"]
    np.testing.assert_array_equal(actual, resize(box, (16, 24), "bilinear"))


def test_float_resizing_agrees_with_the_whole_matrix():
    from kauldron.data.transforms.resize import weight_matrix

    image = rng().uniform(size=(3, 301, 200, 3)).astype(np.float32)
    for method in ("bilinear", "lanczos3", "area"):
        weights = weight_matrix(301, 75, method, True, np.dtype(np.float64))
        expected = np.einsum("nh,bhwc->bnwc", weights, image)
        actual = resize(image, (75, 200), method)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


# ----------------------------------------------------------------------------
# Straight from the file
# ----------------------------------------------------------------------------


CROPS = {
    "inception": [T.InceptionCrop(key="image", resize_size=(32, 40))],
    "box_only": [
        T.InceptionCrop(key="image", area_range=(0.2, 0.3)),
        T.Resize(key="image", size=(8, 8)),
    ],
    "bicubic": [
        T.InceptionCrop(key="image", resize_size=(8, 8), resize_method="cubic")
    ],
    "random": [T.RandomCrop(key="image", shape=(40, 50, None))],
    "random_channel": [T.RandomCrop(key="image", shape=(40, 50, 1))],
    "center": [T.CenterCrop(key="image", shape=(50, 40, None))],
    "after_elements": [
        T.Elements(drop="path", copy={"image": "whole"}),
        T.CenterCrop(key="image", shape=(50, 40, None)),
        T.Resize(key="whole", size=(8, 8)),
    ],
    "new_name": [
        T.InceptionCrop(key={"image": "small"}, resize_size=(32, 32)),
        T.CenterCrop(key="image", shape=(20, 20, None)),
    ],
    "flipped": [
        T.InceptionCrop(key="image", resize_size=(32, 32)),
        T.RandomFlipLeftRight(key="image"),
        T.ValueRange(key="image", vrange=(0, 1)),
    ],
}


def decode_first(record):
    """A function of the user: it sees arrays, and so does all that follows."""
    assert type(record["image"]) is np.ndarray
    assert record["image"].flags.writeable
    return record


class Pixels:
    """The same records as arrays, in the same place of the pipeline."""

    def __init__(self, ds):
        self.records = list(dataclasses.replace(ds, transforms=(), batch_size=None))

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("name", CROPS)
def test_crops_get_the_same_from_a_file_as_from_its_pixels(folder, name, mode):
    if mode != "RGB" and "channel" in name:
        pytest.skip("needs channels to choose from")
    ds = make_ds(folder, *CROPS[name], mode=mode, prefetch_batches=0)
    pixels = Pixels(dataclasses.replace(ds, shuffle=False))
    fields = {f.name: getattr(ds, f.name) for f in dataclasses.fields(ds)}
    for field in ("root", "classes", "extensions", "mode"):
        del fields[field]
    expected = kd.data.py.DataSource(pixels, **fields)
    np.testing.assert_equal(list(ds), list(expected))
    single = dataclasses.replace(ds, batch_size=None)
    first = list(single)[0]
    np.testing.assert_equal(first["image"], list(ds)[0]["image"][0])
    assert type(first["image"]) is np.ndarray


def test_only_pixels_leave_a_pipeline(folder):
    ds = make_ds(folder, T.Elements(drop="path"), batch_size=None)
    assert all(type(record["image"]) is np.ndarray for record in ds)
    ds = make_ds(folder, T.Elements(drop="path"), decode_first, batch_size=None)
    assert len(list(ds)) == 13

    class MyCrop(T.CenterCrop):
        def map_element(self, element):
            assert type(element) is np.ndarray
            return super().map_element(element)

    (batch, *_) = make_ds(folder, MyCrop(key="image", shape=(9, 9, None)))
    assert batch["image"].shape == (4, 9, 9, 3)


def blacken(record):
    record["image"][:2] = 0
    return record


@pytest.mark.parametrize("batch_size", [None, 4])
def test_pixels_can_be_written_to_by_whoever_gets_them(folder, batch_size):
    crop = T.InceptionCrop(key="image", resize_size=(8, 8))
    chains = [(), (crop,), (T.CenterCrop(key="image", shape=(16, 16, None)),)]
    for chain in chains[0 if batch_size is None else 1 :]:
        for transforms in (chain, (*chain, blacken)):
            ds = make_ds(folder, *transforms, batch_size=batch_size)
            for batch in ds:
                assert batch["image"].flags.writeable
                batch["image"][:] = 0
    ds = make_ds(folder, crop, blacken, batch_size=batch_size)
    image = next(iter(ds))["image"]
    assert not image[..., :2, :, :].any() and image.any()


@pytest.mark.parametrize("mode", ["F", "I", "LA", "RGBA", "YCbCr"])
def test_crops_from_files_of_any_mode_are_those_of_pixels(folder, mode):
    crop = T.CenterCrop(key="image", shape=(20, 30, None))
    from_files = make_ds(folder, crop, mode=mode)
    from_pixels = make_ds(folder, lambda record: record, crop, mode=mode)
    for one, other in zip(from_files, from_pixels, strict=True):
        assert one["image"].dtype == np.uint8
        np.testing.assert_array_equal(one["image"], other["image"])


def test_large_crops_go_straight_to_their_place_in_the_batch(folder):
    """And are those of records that a function gets before they are stacked."""
    crops = [
        T.InceptionCrop(key="image", resize_size=(120, 120)),
        T.RandomFlipLeftRight(key="image"),
    ]
    placed = list(make_ds(folder, *crops))
    np.testing.assert_equal(
        placed, list(make_ds(folder, *crops, lambda record: record))
    )
    kept = [batch["image"].copy() for batch in placed]
    list(make_ds(folder, *crops, seed=4))  # nobody writes to what was given out
    np.testing.assert_equal([batch["image"] for batch in placed], kept)


def test_large_and_small_records_are_flipped_alike():
    for size in (4, 128):
        images = rng().integers(0, 256, (16, size, size, 3), dtype=np.uint8)
        records = [{"image": image} for image in images]
        options = {"shuffle": True, "seed": 1, "batch_size": 8, "num_epochs": 1}
        options["transforms"] = [T.RandomFlipLeftRight(key="image")]
        by_record = kd.data.py.DataSource(records, **options)
        by_column = kd.data.py.Arrays({"image": images}, **options)
        for one, other in zip(by_record, by_column, strict=True):
            np.testing.assert_array_equal(one["image"], other["image"])


def test_the_stream_is_the_same_for_workers_and_threads_and_after_a_restart(folder):
    ds = make_ds(folder, *CROPS["flipped"], prefetch_batches=0, num_epochs=2)
    expected = list(ds)
    threads = kd_read_options(3)
    for other in (
        dataclasses.replace(ds, num_workers=1),
        dataclasses.replace(ds, prefetch_batches=3, read_options=threads),
    ):
        with iter(other) as iterator:
            first = [next(iterator) for _ in range(2)]
            state = iterator.get_state()
        with iter(other) as iterator:
            iterator.set_state(state)
            np.testing.assert_equal(first + list(iterator), expected)


def kd_read_options(num_threads):
    @dataclasses.dataclass
    class ReadOptions:
        num_threads: int

    return ReadOptions(num_threads)


def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size():
    pixels = smooth(900, 1203)
    content = encoded(pixels, "JPEG", quality=95)
    image = pillow_images.EncodedImage(content, mode="RGB", name="large")
    rows, columns = slice(17, 880), slice(90, 1203)
    small = image.resized(rows, columns, (100, 100))
    decoded = image.decode()
    assert decoded.shape == image.shape == pixels.shape  # the image stays as it was
    exact = pillow_images.resized(decoded, rows, columns, (100, 100), user="test")
    difference = small.astype(int) - exact
    assert np.abs(difference).mean() < 1.5
    assert np.any(difference)  # a shortcut was taken
    # Not for a result that is not much smaller, and not for other formats.
    for content in (content, encoded(pixels)):
        image = pillow_images.EncodedImage(content, mode="RGB", name="large")
        size = (300, 300) if image._frame else (100, 100)
        expected = pillow_images.resized(
            image.decode(), rows, columns, size, user="test"
        )
        np.testing.assert_array_equal(image.resized(rows, columns, size), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": "4:2:0"},
        {"subsampling": "4:2:2"},
        {"subsampling": "4:4:4"},
        {"progressive": True},
        {"restart_marker_rows": 1},
        {"restart_marker_blocks": 7},
        {"comment": "a comment before the picture", "exif": b"Exif\0\0" + bytes(3000)},
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_rows_below_a_crop_of_a_jpeg_are_not_decoded(options, mode):
    file = io.BytesIO()
    Image.fromarray(smooth(200, 96)).convert(mode).save(file, "JPEG", **options)
    whole = np.asarray(Image.open(file).convert("RGB"))
    image = pillow_images.EncodedImage(file.getvalue(), mode="RGB", name="image")
    for bottom in (1, 8, 15, 16, 17, 31, 33, 100, 160, 183, 184, 185, 199, 200):
        rows, columns = slice(bottom // 2, bottom), slice(3, 90)
        np.testing.assert_array_equal(image[rows, columns, :], whole[rows, columns])
    assert image._open(num_rows=100).height < 150
    assert image.shape == (200, 96, 3)
    np.testing.assert_array_equal(image.decode(), whole)


def test_a_damaged_file_is_named_with_its_record_and_can_be_left_out(folder, tmp_path):
    (tmp_path / "a").mkdir()
    content = encoded(smooth(80, 80), "JPEG")
    (tmp_path / "a" / "0.jpg").write_bytes(content)
    (tmp_path / "a" / "1.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "a" / "2.jpg").write_text("not an image")
    crop = T.CenterCrop(key="image", shape=(8, 8, None))
    kwargs = {"shuffle": False, "batch_size": 1}
    iterator = iter(make_ds(tmp_path, crop, **kwargs))
    next(iterator)
    with pytest.raises(ValueError, match=r"1\.jpg cannot be decoded") as info:
        next(iterator)
    notes = "".join(info.value.__notes__)
    assert "CenterCrop" in notes and "record 1 of ImageFolder" in notes

    later = make_ds(tmp_path, T.Elements(keep="image"), decode_first, **kwargs)
    iterator = iter(later)
    next(iterator)
    with pytest.raises(ValueError, match=r"1\.jpg cannot be decoded") as info:
        next(iterator)
    assert "record 1 of ImageFolder" in "".join(info.value.__notes__)

    large = T.InceptionCrop(key="image", resize_size=(120, 120))
    for first in (crop, large):
        ds = make_ds(tmp_path, first, max_bad_records=2, **kwargs)
        (batch,) = ds
        assert batch["path"][0].endswith("0.jpg")


def test_without_pillow_the_error_names_the_extra(monkeypatch):
    pillow_images.pillow.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.delattr("PIL.Image", raising=False)
    crop = T.InceptionCrop(key="x", resize_size=(8, 8))
    with pytest.raises(ImportError, match=r"InceptionCrop.*kauldron\[images\]"):
        crop.random_map({"x": np.zeros((20, 20, 3), np.uint8)}, rng())
    floats = {"x": np.zeros((20, 20, 3), np.float32)}
    assert crop.random_map(floats, rng())["x"].shape == (8, 8, 3)
    with pytest.raises(ImportError, match=r"ImageFolder.*kauldron\[images\]"):
        kd.data.py.file_sources.ImageFiles([("x.png", 0)], "RGB")


@pytest.mark.parametrize("channels", [1, 3, 4, 5])
def test_flips_of_any_number_of_channels(channels):
    images = rng().integers(0, 256, (8, 4, 6, channels), dtype=np.uint8)
    flip = T.RandomFlipLeftRight(key="x")
    keep = rng(5).integers(2, size=(8, 1, 1, 1), dtype=bool)
    result = flip.random_map({"x": images}, rng(5))["x"]
    expected = np.where(keep, images, images[:, :, ::-1])
    np.testing.assert_array_equal(result, expected)
    assert 0 < keep.sum() < 8
