"""Tasks and mixtures of SeqIO."""

import pytest

pytest.importorskip("tensorflow", reason="needs the extra kauldron[tf]")
pytest.importorskip("seqio", reason="needs SeqIO")

import seqio
import tensorflow as tf

from kauldron import kd
from kauldron.data.engine import batches
from kauldron.data.engine.batches import Share


def tokens(split, shuffle_files, seed=None):
    """Ten records of one token and its length."""
    return tf.data.Dataset.range(10).map(lambda i: {"x": [tf.cast(i, tf.int32)] * 4})


def register():
    if "ten_records" in seqio.TaskRegistry.names():
        return
    feature = seqio.Feature(seqio.PassThroughVocabulary(20), add_eos=False)
    seqio.TaskRegistry.add(
        "ten_records",
        source=seqio.FunctionDataSource(tokens, splits=["train"]),
        preprocessors=[],
        output_features={"x": feature},
    )
    seqio.MixtureRegistry.add("only_ten", [("ten_records", 1.0)])


ARGUMENTS = {"split": "train", "num_epochs": 1, "register": register}


def firsts(ds):
    return [int(record["x"].ravel()[0]) for record in ds]


def test_task():
    ds = kd.data.tf.SeqIOTask(name="ten_records", shuffle=False, **ARGUMENTS)
    assert firsts(ds) == list(range(10))
    shuffled = kd.data.tf.SeqIOTask(
        name="ten_records", seed=1, shuffle_buffer_size=20, **ARGUMENTS
    )
    order = firsts(shuffled)
    assert sorted(order) == list(range(10)) and order != sorted(order)


def test_mixture_cuts_sequences():
    ds = kd.data.tf.SeqIOMixture(
        name="only_ten", sequence_length={"x": 3}, batch_size=5, **ARGUMENTS
    )
    assert [batch["x"].shape for batch in ds] == [(5, 3)] * 2


def test_processes_share_the_records():
    parts = []
    try:
        for index in range(2):
            batches.inherit_share(Share(index=index, count=2))
            ds = kd.data.tf.SeqIOTask(name="ten_records", shuffle=False, **ARGUMENTS)
            parts.append(firsts(ds))
    finally:
        batches.inherit_share(None)
    assert parts == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_unknown_name_lists_what_is_registered():
    ds = kd.data.tf.SeqIOTask(name="eleven_records", **ARGUMENTS)
    with pytest.raises(ValueError, match=r"eleven_records.*ten_records"):
        iter(ds)


def test_unknown_split_lists_the_splits():
    ds = kd.data.tf.SeqIOTask(name="ten_records", split="test", register=register)
    with pytest.raises(ValueError, match=r"'test'.*'train'"):
        iter(ds)
