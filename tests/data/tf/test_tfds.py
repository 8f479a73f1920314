"""TensorFlow Datasets through `tf.data`."""

import flax.linen as nn
import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="needs the extra kauldron[tf]")
pytest.importorskip("tensorflow_datasets", reason="needs the extra kauldron[tfds]")

import tensorflow_datasets as tfds

from kauldron import kd, kontext
from kauldron.data.engine import batches
from kauldron.data.engine.batches import Share

NUM_RECORDS = 11


class Squares(tfds.core.GeneratorBasedBuilder):
    """Eleven tiny images."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 1)),
            "label": tfds.features.ClassLabel(num_classes=20),
            "name": tfds.features.Text(),
            "box": {"size": tfds.features.Tensor(shape=(2,), dtype=np.float32)},
            "parts": tfds.features.Sequence(tfds.features.Scalar(np.int32)),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(NUM_RECORDS):
            yield (
                i,
                {
                    "image": np.full((4 + i % 2, 5, 1), i, np.uint8),
                    "label": i,
                    "name": f"square {i}",
                    "box": {"size": np.array([i, 1], np.float32)},
                    "parts": list(range(i % 3)),
                },
            )


def prepare(path, file_format):
    Squares(data_dir=path, file_format=file_format).download_and_prepare()
    return path


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data, prepared as ArrayRecord."""
    return prepare(tmp_path_factory.mktemp("array_record"), "array_record")


@pytest.fixture(scope="module")
def legacy_dir(tmp_path_factory):
    """The data, prepared as TFRecord."""
    return prepare(tmp_path_factory.mktemp("tfrecord"), "tfrecord")


LABEL = kd.data.Elements(keep=["label"])


def labels(ds):
    return [int(x) for batch in ds for x in np.atleast_1d(batch["label"])]


def test_whole_records(data_dir):
    ds = kd.data.tf.Tfds("squares", split="train", data_dir=data_dir, num_epochs=1)
    records = {int(record["label"]): record for record in ds}
    assert sorted(records) == list(range(NUM_RECORDS))
    record = records[7]
    assert record["name"] == b"square 7"
    assert record["image"].shape == (5, 5, 1) and (record["image"] == 7).all()
    assert record["box"]["size"].tolist() == [7, 1]
    assert record["parts"].tolist() == [0]
    assert len(ds) == NUM_RECORDS


def test_spec_without_reading(data_dir):
    ds = kd.data.tf.Tfds("squares", split="train", data_dir=data_dir, num_epochs=1)
    spec = kd.data.ArraySpec
    assert ds.element_spec == {
        "image": spec((None, None, 1), "uint8"),
        "label": spec((), "int64"),
        "name": spec((), object),
        "box": {"size": spec((2,), "float32")},
        "parts": spec((None,), "int32"),
    }


def test_order_is_that_of_kd_data_py(data_dir):
    arguments = {
        "split": "train",
        "data_dir": data_dir,
        "num_epochs": 3,
        "seed": 5,
        "shuffle": True,
        "transforms": [LABEL],
        "batch_size": 4,
    }
    ours = labels(kd.data.tf.Tfds("squares", **arguments))
    assert ours == labels(kd.data.py.Tfds("squares", **arguments))
    assert ours[:11] != ours[11:22]


def test_cache_and_endless_data(data_dir):
    ds = kd.data.tf.Tfds("squares", split="train", data_dir=data_dir, cache=True)
    stream = [int(record["label"]) for record in ds.take(33)]
    for epoch in range(3):
        part = stream[epoch * 11 : (epoch + 1) * 11]
        assert sorted(part) == list(range(NUM_RECORDS))
    with pytest.raises(TypeError, match="no end"):
        len(ds)


@pytest.mark.parametrize(("drop", "sizes"), [(True, [5, 5]), (False, [6, 5])])
def test_processes_share_the_records(data_dir, drop, sizes):
    parts = []
    try:
        for index in range(2):
            batches.inherit_share(Share(index=index, count=2))
            parts.append(
                labels(
                    kd.data.tf.Tfds(
                        "squares",
                        split="train",
                        data_dir=data_dir,
                        num_epochs=1,
                        shard_drop_remainder=drop,
                        transforms=[LABEL],
                    )
                )
            )
    finally:
        batches.inherit_share(None)
    assert [len(part) for part in parts] == sizes
    assert not set(parts[0]) & set(parts[1])


def test_decoders(data_dir):
    ds = kd.data.tf.Tfds(
        "squares",
        split="train",
        data_dir=data_dir,
        num_epochs=1,
        decoders={"image": tfds.decode.SkipDecoding()},
    )
    assert ds.element_spec["image"] == kd.data.ArraySpec((), object)
    assert next(iter(ds))["image"].startswith(b"\x89PNG")


def test_position_is_saved_and_restored(data_dir):
    ds = kd.data.tf.Tfds(
        "squares", split="train", data_dir=data_dir, transforms=[LABEL], batch_size=3
    )
    iterator = iter(ds)
    for _ in range(5):
        next(iterator)
    state = iterator.get_state()
    assert len(str(state)) < 10_000
    other = iter(ds)
    other.set_state(state)
    for _ in range(4):
        assert next(iterator)["label"].tolist() == next(other)["label"].tolist()


def test_a_trainer_knows_the_shapes_of_its_state(data_dir):
    ds = kd.data.tf.Tfds(
        "squares",
        split="train",
        data_dir=data_dir,
        shuffle=True,
        transforms=[kd.data.Elements(keep=["box"])],
        batch_size=8,
    )
    trainer = kd.train.Trainer(seed=0, train_ds=ds, model=Scale())
    assert trainer.state_specs.params["scale"].shape == (2,)
    assert ds.element_spec == trainer.train_ds.element_spec


class Scale(nn.Module):
    """Needs the shape of the batch."""

    size: kontext.Key = "batch.box.size"

    @nn.compact
    def __call__(self, size):
        return size * self.param("scale", nn.initializers.ones, size.shape[-1:])


@pytest.mark.parametrize("make", [kd.data.py.Tfds, kd.data.tf.Tfds])
def test_mocked_data(make):
    with tfds.testing.mock_data(num_examples=5):
        ds = make("mnist", split="train", shuffle=True, batch_size=2, num_epochs=1)
        shapes = [batch["image"].shape for batch in ds]
    assert shapes == [(2, 28, 28, 1)] * 2


def test_legacy_reads_tfrecord(legacy_dir):
    ds = kd.data.tf.TfdsLegacy(
        "squares",
        split="train",
        data_dir=legacy_dir,
        num_epochs=2,
        shuffle_buffer_size=20,
        transforms=[LABEL],
    )
    stream = labels(ds)
    assert sorted(stream[:11]) == sorted(stream[11:]) == list(range(NUM_RECORDS))


class OrderedSquares(Squares):
    """The same images, in an order that is to be kept."""

    def _info(self):
        features = {"label": tfds.features.ClassLabel(num_classes=20)}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,
        )

    def _generate_examples(self):
        for i in range(NUM_RECORDS):
            yield i, {"label": i}


@pytest.fixture(scope="module")
def ordered_dir(tmp_path_factory):
    """Ordered data, in several files."""
    path = tmp_path_factory.mktemp("ordered")
    builder = OrderedSquares(data_dir=path, file_format="tfrecord")
    config = tfds.download.DownloadConfig(num_shards=5)
    builder.download_and_prepare(download_config=config)
    return path


def ordered_labels(data_dir, **kwargs):
    """One epoch; where it is shuffled, the order is that of the files."""
    kwargs = {"shuffle_buffer_size": 1, "num_epochs": 1} | kwargs
    return labels(
        kd.data.tf.TfdsLegacy(
            "ordered_squares", split="train", data_dir=data_dir, **kwargs
        )
    )


@pytest.mark.parametrize("read_config", [None, tfds.ReadConfig(try_autocache=False)])
def test_legacy_shuffles_ordered_data(ordered_dir, read_config):
    def read_all():
        return [
            ordered_labels(ordered_dir, seed=seed, read_config=read_config)
            for seed in range(4)
        ]

    streams = read_all()
    for stream in streams:
        assert sorted(stream) == list(range(NUM_RECORDS))
    assert streams == read_all()
    assert len({tuple(stream) for stream in streams}) > 1
    if read_config is not None:
        assert read_config.shuffle_seed is None and read_config.enable_ordering_guard


def test_legacy_keeps_the_seed_of_a_read_config(ordered_dir):
    config = tfds.ReadConfig(shuffle_seed=3)
    first, *others = [
        ordered_labels(ordered_dir, seed=seed, read_config=config) for seed in range(4)
    ]
    assert others == [first] * 3


def test_legacy_without_shuffling_keeps_the_order(ordered_dir):
    assert ordered_labels(ordered_dir, shuffle=False) == list(range(NUM_RECORDS))


def test_legacy_processes_share_the_records(legacy_dir):
    parts = []
    try:
        for index in range(2):
            batches.inherit_share(Share(index=index, count=2))
            ds = kd.data.tf.TfdsLegacy(
                "squares",
                split="train",
                data_dir=legacy_dir,
                num_epochs=1,
                shuffle=False,
                transforms=[LABEL],
            )
            parts.append(labels(ds))
    finally:
        batches.inherit_share(None)
    assert [len(part) for part in parts] == [5, 5]
    assert not set(parts[0]) & set(parts[1])


def test_each_format_has_its_class(data_dir, legacy_dir):
    with pytest.raises(ValueError, match="TfdsLegacy"):
        iter(kd.data.tf.Tfds("squares", split="train", data_dir=legacy_dir))
    with pytest.raises(ValueError, match=r"kd\.data\.tf\.Tfds"):
        iter(
            kd.data.tf.TfdsLegacy(
                "squares", split="train", data_dir=data_dir, shuffle=False
            )
        )


def test_data_that_is_not_there(tmp_path):
    for make in (
        lambda: kd.data.tf.Tfds("no_such_data", split="train", data_dir=tmp_path),
        lambda: kd.data.tf.TfdsLegacy(
            "no_such_data", split="train", data_dir=tmp_path, shuffle=False
        ),
    ):
        with pytest.raises(Exception, match="no_such_data") as error:
            iter(make())
        assert any("download_and_prepare" in note for note in error.value.__notes__)
