"""ArrayRecord files that are opened late."""

import pickle

import pytest
from array_record.python import array_record_module

from kauldron import kd


def write_records(path, texts):
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for text in texts:
        writer.write(text.encode())
    writer.close()
    return path


def test_records_of_several_files_as_bytes(tmp_path):
    paths = [
        write_records(tmp_path / "a.array_record", "abc"),
        write_records(tmp_path / "b.array_record", "de"),
    ]
    source = kd.contrib.data.LazyArrayRecordDataSource(paths)
    for records in (source, pickle.loads(pickle.dumps(source))):
        assert len(records) == 5
        assert records[3] == b"d"
        assert records.__getitems__([4, 0]) == [b"e", b"a"]
    ds = kd.data.py.DataSource(
        source,
        shuffle=False,
        num_epochs=1,
        batch_size=5,
        transforms=[lambda record: {"text": record.decode()}],
    )
    assert next(iter(ds))["text"].tolist() == ["a", "b", "c", "d", "e"]


def test_missing_files_are_noticed_when_they_are_read(tmp_path):
    source = kd.contrib.data.LazyArrayRecordDataSource(tmp_path / "none.array_record")
    assert "none.array_record" in repr(source)
    with pytest.raises(ValueError, match=r"none\.array_record"):
        len(source)
