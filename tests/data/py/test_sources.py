"""Where records come from: memory, files, other libraries."""

import dataclasses
import functools
import gzip
import importlib.util
import io
import json
import pickle
import struct
import threading
import tracemalloc

import numpy as np
import pytest
from array_record.python import array_record_module
from PIL import Image

from kauldron import kd


def all_of(ds):
    return list(ds)


def once(make, *args, **kwargs):
    return make(*args, **{"shuffle": False, "num_epochs": 1} | kwargs)


# ----------------------------------------------------------------------------
# Any object
# ----------------------------------------------------------------------------


class Grid:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return {"xy": np.array(divmod(index, 10))}


class FastGrid(Grid):
    def get_batch(self, indices):
        return {"xy": np.stack(np.divmod(indices, 10), axis=-1)}


class ManyGrid(Grid):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class MockedGrid(Grid):
    """As in `tfds.testing.mock_data()`: a function that wants `self`, on the object."""

    def __init__(self):
        self.__getitems__ = lambda self, indices: [self[i] for i in indices]


class AroundMockedGrid(Grid):
    """As a source of TensorFlow Datasets that reads from such an object."""

    def __init__(self):
        self.data_source = MockedGrid()

    def __getitems__(self, indices):
        return self.data_source.__getitems__(indices)


@pytest.mark.parametrize("make_source", [MockedGrid, AroundMockedGrid])
def test_many_records_at_once_are_not_asked_of_a_mock(make_source):
    ds = once(kd.data.py.DataSource, make_source(), batch_size=7)
    np.testing.assert_equal(
        next(iter(ds)), next(iter(once(kd.data.py.DataSource, Grid(), batch_size=7)))
    )


def test_all_ways_of_reading_a_source_give_the_same():
    batches = [
        next(iter(kd.data.py.DataSource(source, shuffle=True, batch_size=7)))
        for source in (Grid(), FastGrid(), ManyGrid(), [Grid()[i] for i in range(100)])
    ]
    for batch in batches[1:]:
        np.testing.assert_equal(batch, batches[0])


@pytest.mark.parametrize("source", [5, {"x": 1}, iter([])])
def test_what_has_no_random_access_is_no_source(source):
    with pytest.raises(TypeError, match=r"DataSource.*data source is a"):
        kd.data.py.DataSource(source, shuffle=False)


def test_shuffle_must_be_given():
    with pytest.raises(TypeError, match="shuffle"):
        kd.data.py.DataSource([1, 2])


def test_a_subclass_gives_its_source_as_a_property():
    import dataclasses

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Numbers(kd.data.py.DataSourceBase):
        count: int

        @functools.cached_property
        def data_source(self):
            return list(range(self.count))

    assert all_of(once(Numbers, count=3)) == [0, 1, 2]


def test_a_subclass_without_source_is_told_what_to_define():
    class Nothing(kd.data.py.DataSourceBase):
        def __len__(self):
            return 3

    with pytest.raises(NotImplementedError, match="Nothing has no `data_source`"):
        next(iter(once(Nothing)))


# ----------------------------------------------------------------------------
# Arrays
# ----------------------------------------------------------------------------


def test_arrays_of_scikit_learn_digits():
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    ds = kd.data.py.Arrays(
        datasets.load_digits,
        fields={"image": "images", "label": "target"},
        shuffle=True,
        batch_size=16,
    )
    assert ds.element_spec == {
        "image": kd.data.ArraySpec((16, 8, 8), "float64"),
        "label": kd.data.ArraySpec((16,), "int64"),
    }
    assert len(ds.data_source) == 1797
    batch = next(iter(ds))
    assert batch["image"].max() <= 16


def test_arrays_are_not_copied_and_a_loader_is_called_once():
    array, calls = np.zeros((10, 2)), []

    def load():
        calls.append(1)
        return {"a": {"b": array}, "unused": 5}

    ds = once(kd.data.py.Arrays, load, fields={"x": "a.b"}, batch_size=2)
    list(ds), list(ds)
    assert ds.data_source.columns["x"] is array
    assert calls == [1]


@pytest.mark.parametrize("make", ["arrays", "in_memory"])
@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1)])
def test_reading_a_batch_of_any_layout_does_not_copy_the_rest(make, axes):
    array = np.arange(2000 * 8 * 9).reshape(2000, 8, 9).transpose(axes)
    if make == "arrays":
        ds = once(kd.data.py.Arrays, {"x": array}, batch_size=4, prefetch_batches=0)
    else:
        ds = kd.data.InMemoryPipeline(loader=lambda: {"x": array}, batch_size=4)
    with iter(ds) as iterator:
        next(iterator)
        tracemalloc.start()
        try:
            batch = next(iterator)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    np.testing.assert_array_equal(batch["x"], array[4:8])
    assert peak < array.nbytes / 10


def test_a_field_that_is_not_there_lists_what_is():
    ds = once(kd.data.py.Arrays, {"a": [1], "b": [2]}, fields={"x": "c"})
    with pytest.raises(KeyError, match=r"'c'.*\['a', 'b'\]"):
        list(ds)


def test_a_misspelt_field_names_the_nearest():
    ds = once(kd.data.py.Arrays, {"images": [1]}, fields={"x": "imges"})
    with pytest.raises(KeyError, match=r"Did you mean 'images'\?"):
        list(ds)


def test_arrays_of_objects_are_transformed_record_by_record():
    images = np.empty(2, object)
    images[:] = [np.ones((2, 3), np.uint8), np.ones((4, 5), np.uint8)]
    transforms = [
        kd.data.Cast(key="x", dtype="float32"),
        kd.data.Rearrange(key="x", pattern="h w -> h w 1"),
        kd.data.Resize(key="x", size=(2, 2)),
    ]
    options = {"batch_size": 2, "transforms": transforms}
    (batch,) = once(kd.data.py.Arrays, {"x": images}, **options)
    assert batch["x"].shape == (2, 2, 2, 1) and batch["x"].dtype == np.float32


def test_a_class_as_the_source_is_refused():
    class Source:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return {"x": index}

    with pytest.raises(TypeError, match="the class Source itself: call it"):
        kd.data.py.DataSource(Source, shuffle=False).element_spec


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"a: 3, b: 4"):
        list(once(kd.data.py.Arrays, {"a": np.zeros(3), "b": np.zeros(4)}))


def test_a_single_array_is_data_too():
    (batch,) = once(kd.data.py.Arrays, np.arange(4), batch_size=4)
    assert batch.tolist() == [0, 1, 2, 3]


def test_nested_arrays_keep_their_structure():
    data = {"a": (np.arange(4), {"b": np.ones((4, 2))})}
    (batch,) = once(kd.data.py.Arrays, data, batch_size=4)
    assert batch["a"][1]["b"].shape == (4, 2)


# ----------------------------------------------------------------------------
# numpy files
# ----------------------------------------------------------------------------


@pytest.fixture
def columns():
    return {"x": np.arange(6), "y": np.ones((6, 2), np.float32)}


def test_npz_archives(tmp_path, columns):
    np.savez(tmp_path / "data.npz", **columns)
    (batch,) = once(kd.data.py.Npz, tmp_path / "data.npz", batch_size=6)
    np.testing.assert_equal(batch, columns)
    (batch,) = once(kd.data.py.Npz, tmp_path / "data.npz", keys=["y"], batch_size=6)
    assert list(batch) == ["y"]


@pytest.mark.parametrize("mmap", [True, False])
def test_npz_folders(tmp_path, columns, mmap):
    for name, column in columns.items():
        np.save(tmp_path / f"{name}.npy", column)
    ds = once(kd.data.py.Npz, tmp_path, mmap=mmap, batch_size=6)
    (batch,) = ds
    np.testing.assert_equal(batch, columns)
    assert type(batch["x"]) is np.ndarray
    batch["x"][0] = 5
    assert np.load(tmp_path / "x.npy")[0] == 0


def test_npz_keys_that_are_missing_are_listed(tmp_path, columns):
    np.savez(tmp_path / "data.npz", **columns)
    with pytest.raises(KeyError, match=r"\['z'\].*\['x', 'y'\]"):
        list(once(kd.data.py.Npz, tmp_path / "data.npz", keys=["x", "z"]))


def test_npz_files_that_are_none_are_named(tmp_path):
    (tmp_path / "data.npz").write_text("no archive")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.npy").write_text("no array")
    for name, error, words in (
        ("data.npz", ValueError, r"data\.npz.*not an \.npz archive"),
        ("folder", ValueError, "without .npy files"),
        ("missing.npz", FileNotFoundError, r"missing\.npz"),
        ("bad", ValueError, r"x\.npy"),
    ):
        with pytest.raises(error, match=words):
            list(once(kd.data.py.Npz, tmp_path / name))


def test_npz_archives_cannot_be_memory_mapped(tmp_path, columns):
    np.savez(tmp_path / "data.npz", **columns)
    with pytest.raises(ValueError, match="memory-mapped"):
        list(once(kd.data.py.Npz, tmp_path / "data.npz", mmap=True))


def test_npz_files_run_no_code(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.array([{"a": 1}], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        list(once(kd.data.py.Npz, tmp_path / "data.npz"))


# ----------------------------------------------------------------------------
# IDX files
# ----------------------------------------------------------------------------


def idx_bytes(array, code=0x08):
    header = struct.pack(">BBBB", 0, 0, code, array.ndim)
    header += struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def idx_files(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (10, 28, 28), np.uint8)
    labels = np.arange(10, dtype=np.uint8)
    # The names lie about compression: the content decides.
    (tmp_path / "images.gz").write_bytes(idx_bytes(images))
    (tmp_path / "labels").write_bytes(gzip.compress(idx_bytes(labels)))
    files = {"image": tmp_path / "images.gz", "label": tmp_path / "labels"}
    return files, images, labels


def test_idx_files_plain_and_compressed(idx_files):
    files, images, labels = idx_files
    (batch,) = once(kd.data.py.Idx, files=files, batch_size=10)
    np.testing.assert_equal(batch, {"image": images, "label": labels})
    assert batch["image"].dtype == np.uint8


def test_idx_files_become_model_inputs(idx_files):
    files, images, _ = idx_files
    ds = once(
        kd.data.py.Idx,
        files=files,
        batch_size=4,
        batch_drop_remainder="pad",
        batch_mask_key="mask",
        transforms=[
            kd.data.ValueRange(key="image", vrange=(0, 1)),
            kd.data.Rearrange(key="image", pattern="h w -> h w 1"),
            kd.data.Rearrange(key="label", pattern="... -> ... 1"),
        ],
    )
    assert ds.element_spec["image"] == kd.data.ArraySpec((4, 28, 28, 1), "float32")
    assert ds.element_spec["label"] == kd.data.ArraySpec((4, 1), "uint8")
    last = list(ds)[-1]
    assert last["mask"].tolist() == [True, True, False, False]
    np.testing.assert_allclose(last["image"][0, ..., 0], images[8] / 255, atol=1e-6)


@pytest.mark.parametrize(
    "code, dtype",
    [(9, "i1"), (0xB, "i2"), (0xC, "i4"), (0xD, "f4"), (0xE, "f8")],
)
def test_idx_files_of_all_types(tmp_path, code, dtype):
    array = np.array([[1, -2], [3, 4]], dtype)
    (tmp_path / "a").write_bytes(idx_bytes(array, code))
    (batch,) = once(kd.data.py.Idx, files={"a": tmp_path / "a"}, batch_size=2)
    np.testing.assert_array_equal(batch["a"], array)
    assert batch["a"].dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda content: content[:-5], "only 65"),
        (lambda content: content + b"x", "more"),
        (lambda content: b"PNG" + content, "not an IDX file"),
        (lambda content: content[:6], "header"),
        (lambda content: b"", "not an IDX file"),
        (lambda content: gzip.compress(content)[:-12], "damaged|only"),
        (lambda content: content[:4] + b"\xff" * 4 + content[8:], "only"),
    ],
)
def test_idx_files_that_are_damaged_are_named(tmp_path, damage, words):
    content = idx_bytes(np.zeros((10, 7), np.uint8))
    (tmp_path / "file").write_bytes(damage(content))
    with pytest.raises(ValueError, match=words) as info:
        list(once(kd.data.py.Idx, files={"a": tmp_path / "file"}))
    assert str(tmp_path / "file") in str(info.value)


def test_idx_files_of_different_lengths_are_named(tmp_path, idx_files):
    files, _, _ = idx_files
    (tmp_path / "short").write_bytes(idx_bytes(np.zeros(9, np.uint8)))
    with pytest.raises(ValueError, match=r"images\.gz: 10.*short: 9"):
        list(once(kd.data.py.Idx, files={**files, "label": tmp_path / "short"}))


def test_idx_needs_a_dict_of_files():
    with pytest.raises(TypeError, match="dict from names"):
        kd.data.py.Idx(["a"], shuffle=False)


# ----------------------------------------------------------------------------
# JSON
# ----------------------------------------------------------------------------


RECORDS = [{"a": 1, "t": ["x"]}, {"a": 2, "t": ["y"]}]


@pytest.mark.parametrize(
    "name, content",
    [
        ("data.json", json.dumps(RECORDS).encode()),
        ("data.json.gz", gzip.compress(json.dumps(RECORDS).encode())),
        ("data.jsonl", b"\n".join(json.dumps(r).encode() for r in RECORDS) + b"\n\n"),
        ("data.jsonl.gz", gzip.compress(b'{"a": 1, "t": ["x"]}\n{"a": 2, "t": ["y"]}')),
    ],
    ids=[
        "json",
        "json.gz",
        "jsonl",
        "jsonl.gz",
    ],  # gzip writes the time into its output
)
def test_json_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert all_of(once(kd.data.py.Json, tmp_path / name)) == RECORDS


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("d.json", '{"a": 1}', "dict; expected a list"),
        ("d.json", "[1,", "not JSON"),
        ("d.jsonl", '{"a": 1}\n{"a"', "line 2"),
        ("d.json", '{"a": 1}\n{"a": 2}', r"\.jsonl"),
    ],
)
def test_json_files_that_hold_something_else_are_named(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words) as info:
        list(once(kd.data.py.Json, tmp_path / name))
    assert name in str(info.value)


def test_json_records_survive_being_written_to(tmp_path):
    (tmp_path / "d.json").write_text(json.dumps(RECORDS))

    def spoil(record):
        record["t"].append("z")
        return record

    ds = once(kd.data.py.Json, tmp_path / "d.json", num_epochs=2, transforms=[spoil])
    assert all(len(record["t"]) == 2 for record in ds)


# ----------------------------------------------------------------------------
# Images
# ----------------------------------------------------------------------------


@pytest.fixture
def image_root(tmp_path):
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for i in range(2):
            pixels = np.full((4, 5, 3), 100 * label + i, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.PNG")
    (tmp_path / "cat" / "notes.txt").write_text("")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def test_image_folders(image_root):
    records = all_of(once(kd.data.py.ImageFolder, image_root))
    assert [record["label"] for record in records] == [0, 0, 1, 1]
    assert [int(record["image"].max()) for record in records] == [0, 1, 100, 101]
    assert records[0]["image"].shape == (4, 5, 3)
    assert records[0]["image"].dtype == np.uint8
    assert records[0]["path"] == str(image_root / "cat" / "0.PNG")


def test_image_folders_batch_and_choose_classes(image_root):
    ds = once(
        kd.data.py.ImageFolder, image_root, classes=["dog"], mode="L", batch_size=2
    )
    (batch,) = ds
    assert batch["image"].shape == (2, 4, 5, 1)
    assert batch["label"].tolist() == [0, 0]
    assert batch["path"].dtype.kind == "U"
    assert ds.class_names == ("dog",)


@dataclasses.dataclass(frozen=True)
class MeetsAnother(kd.data.MapTransform):
    """Waits until a second thread builds a batch, too."""

    barrier: threading.Barrier

    def map(self, record):
        self.barrier.wait(timeout=60)
        return record


def test_batches_of_images_that_are_read_ahead_are_decoded_at_once(
    image_root, monkeypatch
):
    cores = "kauldron.data.py.file_sources.num_usable_cores"
    monkeypatch.setattr(cores, lambda: 4)
    transforms = [MeetsAnother(threading.Barrier(2)), kd.data.Elements(keep=["label"])]
    ds = once(kd.data.py.ImageFolder, image_root, batch_size=1, transforms=transforms)
    assert [batch["label"].tolist() for batch in ds] == [[0], [0], [1], [1]]


def test_image_folders_in_a_mode_of_pillow(image_root):
    (first, *_) = once(kd.data.py.ImageFolder, image_root, mode="RGBA")
    assert first["image"].shape == (4, 5, 4)
    assert first["image"][0, 0].tolist() == [0, 0, 0, 255]


def test_images_are_the_same_whatever_is_installed(
    image_root, tmp_path_factory, monkeypatch
):
    picture = image_root / "cat" / "0.PNG"
    noise = np.random.default_rng(0).integers(256, size=(4, 5, 3), dtype=np.uint8)
    Image.fromarray(noise).save(picture)
    other_decoder = tmp_path_factory.mktemp("modules")
    (other_decoder / "cv2.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.syspath_prepend(other_decoder)
    (first, *_) = once(kd.data.py.ImageFolder, image_root, mode="L")
    with Image.open(picture) as image:
        expected = np.asarray(image.convert("L"))
    np.testing.assert_array_equal(first["image"], expected[..., None])


def test_a_file_that_is_no_image_is_named_with_its_record(image_root):
    (image_root / "cat" / "1.PNG").write_text("not a picture")
    with pytest.raises(ValueError, match=r"cat.1\.PNG cannot be decoded") as info:
        list(once(kd.data.py.ImageFolder, image_root))
    assert "record 1 of ImageFolder" in "".join(info.value.__notes__)


def test_a_folder_without_images_lists_what_is_there(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("")
    with pytest.raises(ValueError, match=r"no image.*\.png.*\['cat'\].*notes\.txt"):
        list(once(kd.data.py.ImageFolder, tmp_path))


def test_folders_that_do_not_exist_are_named(image_root):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(once(kd.data.py.ImageFolder, image_root / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"'cow'.*'cat'"):
        list(once(kd.data.py.ImageFolder, image_root, classes=["cow"]))


# ----------------------------------------------------------------------------
# ArrayRecord
# ----------------------------------------------------------------------------


def write_array_record(path, count, start=0):
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for i in range(start, start + count):
        writer.write(json.dumps({"x": i}).encode())
    writer.close()
    return path


def test_array_record_files(tmp_path):
    paths = [
        write_array_record(tmp_path / "a.array_record", 5),
        write_array_record(tmp_path / "b.array_record", 4, start=5),
    ]
    ds = once(kd.data.py.ArrayRecord, paths, decoder=json.loads, batch_size=9)
    (batch,) = ds
    assert batch["x"].tolist() == list(range(9))
    single = once(kd.data.py.ArrayRecord, paths[1], decoder=json.loads)
    assert [record["x"] for record in single] == [5, 6, 7, 8]


def test_array_record_files_are_opened_late(tmp_path):
    ds = once(kd.data.py.ArrayRecord, tmp_path / "missing", decoder=json.loads)
    with pytest.raises(ValueError, match=r"missing.*cannot be opened"):
        list(ds)


# ----------------------------------------------------------------------------
# Other libraries
# ----------------------------------------------------------------------------


def test_hugging_face_folders_open_without_network(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs Hugging Face datasets")
    pixels = np.full((4, 5, 3), 7, np.uint8)
    pyarrow = pytest.importorskip("pyarrow", reason="comes with datasets")
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "png")
    features = datasets.Features(
        {
            "x": datasets.Value("int64"),
            "image": datasets.Image(),
            "kind": datasets.ClassLabel(names=["cat", "dog"]),
        }
    )
    images = pyarrow.array(
        [{"bytes": png.getvalue(), "path": None}] * 3,
        type=features.arrow_schema.field("image").type,
    )
    columns = pyarrow.table({"x": [1, 2, 3], "image": images, "kind": [0, 1, 1]})
    table = datasets.Dataset(
        datasets.table.InMemoryTable(columns.cast(features.arrow_schema)),
        info=datasets.DatasetInfo(features=features),
        fingerprint="test",
    )
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": table}).save_to_disk(tmp_path / "all")
    for name in ("one", "all"):
        ds = once(kd.data.py.HuggingFace, tmp_path / name, split="train", batch_size=3)
        (batch,) = ds
        assert batch["x"].tolist() == [1, 2, 3]
        assert ds.class_names == ("cat", "dog")
        np.testing.assert_array_equal(batch["image"][1], pixels)
    with pytest.raises(ValueError, match=r"'test'.*\['train'\]"):
        list(once(kd.data.py.HuggingFace, tmp_path / "all", split="test"))


def test_tfds_reads_array_records_and_refuses_tf_records(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets", reason="needs TFDS")

    class Counting(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "label": tfds.features.ClassLabel(names=list("abcdefghij")),
                    "other": tfds.features.ClassLabel(names=["x"]),
                }
            )
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(10):
                image = np.full((4, 4, 3), i, np.uint8)
                yield i, {"image": image, "label": i, "other": 0}

    for file_format in ("array_record", "tfrecord"):
        builder = Counting(data_dir=tmp_path / file_format, file_format=file_format)
        builder.download_and_prepare()
    kwargs = {"split": "train", "batch_size": 10}
    ds = once(kd.data.py.Tfds, "counting", data_dir=tmp_path / "array_record", **kwargs)
    (batch,) = ds
    assert sorted(batch["label"].tolist()) == list(range(10))
    assert ds.class_names == tuple("abcdefghij")
    np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["label"])
    ds = once(kd.data.py.Tfds, "counting", data_dir=tmp_path / "tfrecord", **kwargs)
    with pytest.raises(ValueError, match=r"TFRecord.*array_record.*TfdsLegacy"):
        list(ds)


@pytest.mark.skipif(
    importlib.util.find_spec("datasets") is not None, reason="it is installed"
)
def test_hugging_face_says_what_to_install():
    with pytest.raises(ImportError, match="pip install datasets"):
        list(once(kd.data.py.HuggingFace, "mnist", split="train"))


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_datasets") is not None,
    reason="it is installed",
)
def test_tfds_says_what_to_install():
    with pytest.raises(ImportError, match=r"kauldron\[tfds\]"):
        list(once(kd.data.py.Tfds, "mnist", split="train"))


# ----------------------------------------------------------------------------
# All of them
# ----------------------------------------------------------------------------


def test_pickles_carry_paths_and_not_data(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros(100_000))
    ds = once(kd.data.py.Npz, tmp_path / "data.npz", batch_size=10)
    next(iter(ds))
    assert len(pickle.dumps(ds)) < 3000
    again = pickle.loads(pickle.dumps(ds))
    assert again == ds
    assert next(iter(again))["x"].shape == (10,)
