"""Checkpoints that changed on disk: noticed, told, and gone around."""

import errno
import json
import logging
import shutil

import crc32c
import jax
import numpy as np
import pytest
from etils import epath

from kauldron import kd
from kauldron.ckpts import step_folders
from kauldron.train.run import chrono
from kauldron.train.state import CheckpointState
from tests.ckpts.states import assert_equal, full, make_checkpointer, ones, random_array

# Readers that failed leave tasks behind, which say so when they are collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


def _item(step):
    """Large and small arrays, as they end up in files of different kinds."""
    params = {
        "large": random_array((200, 150), seed=step),
        "zeros": np.zeros((64, 64), np.float32),
        "small": np.full((3,), step, np.float32),
    }
    params = jax.device_put(params)
    state = kd.train.TrainState(step=full((), step), params=params)
    timer = chrono.Chrono(name="train", _global_total_time=float(step))
    ds = kd.data.InMemoryPipeline(loader=_records, batch_size=2, num_epochs=None)
    iterator = iter(ds)
    for _ in range(step):
        next(iterator)
    return CheckpointState(state, timer, iterator)


def _records():
    return {"x": np.arange(100)}


def _flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(
        path.read_bytes()[: path.stat().st_size // 2]
    ),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A workdir with two checkpoints, to be copied."""
    workdir = tmp_path_factory.mktemp("written")
    with make_checkpointer(workdir) as checkpointer:
        for step in (1, 2):
            checkpointer.save(_item(step), step=step)
    return workdir


def _files(workdir):
    newest = workdir / "checkpoints" / "ckpt_2"
    return sorted(p for p in newest.rglob("*") if p.is_file())


def _copies(workdir, tmp_path):
    """One copy of the workdir per file of the newest checkpoint, and that file."""
    for index, path in enumerate(_files(workdir)):
        copied = tmp_path / str(index)
        shutil.copytree(workdir, copied)
        yield copied, copied / path.relative_to(workdir)


def _same(restored, step):
    expected = _item(step)
    assert_equal(restored.train_state, expected.train_state)
    assert restored.ds_iter.get_state() == expected.ds_iter.get_state()
    assert restored.timer._global_total_time == step


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_file_is_loaded_as_if_it_were_whole(written, tmp_path, damage):
    """The newest is read right, or the one before is; never something else."""
    for workdir, path in _copies(written, tmp_path):
        DAMAGES[damage](path)
        restored, step = make_checkpointer(workdir).restore_newest(_item(0))
        _same(restored, step)
        is_unnoticed = damage == "missing" and path.name == "checksums.json"
        assert step == (2 if is_unnoticed else 1), path
        shutil.rmtree(workdir)


def test_any_changed_byte_is_noticed(written, tmp_path):
    for workdir, path in _copies(written, tmp_path):
        _flip_a_byte(path)
        restored, step = make_checkpointer(workdir).restore_newest(_item(0))
        _same(restored, step)
        assert step == 1, path
        shutil.rmtree(workdir)


def test_undamaged_checkpoint_is_restored(written):
    _same(make_checkpointer(written).restore(_item(0)), 2)


def test_fallback_is_logged_with_path_and_cause_and_asking_for_it_raises(
    written, tmp_path, caplog
):
    workdir = tmp_path / "run"
    shutil.copytree(written, workdir)
    largest = max(_files(workdir), key=lambda path: path.stat().st_size)
    _flip_a_byte(largest)
    checkpointer = make_checkpointer(workdir)
    with pytest.raises(OSError, match=f"ckpt_2 is damaged.*{largest.name}"):
        checkpointer.restore(_item(0), step=2)
    with caplog.at_level(logging.ERROR, "kauldron"):
        _same(checkpointer.restore(_item(0)), 1)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "ckpt_2 cannot be read" in record.message and "damaged" in record.message


def test_loader_refuses_a_damaged_checkpoint(written, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(written, workdir)
    _flip_a_byte(max(_files(workdir), key=lambda path: path.stat().st_size))
    loader = kd.ckpts.PartialKauldronLoader(
        workdir=workdir, new_to_old={"params": "params"}
    )
    with pytest.raises(OSError, match="ckpt_2 is damaged"):
        loader.transform(_item(0).train_state)


def test_damaged_step_is_saved_again_and_the_rest_of_it_put_aside(written, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(written, workdir)
    (workdir / "checkpoints/ckpt_2/default/_METADATA").unlink()
    checkpointer = make_checkpointer(workdir)
    _same(checkpointer.restore(_item(0)), 1)
    assert checkpointer.latest_step == 1
    assert checkpointer.should_save(2)
    assert checkpointer.save(_item(2), step=2) is True
    _same(checkpointer.restore(_item(0)), 2)
    assert (workdir / "checkpoints/ckpt_2.unreadable").exists()
    _same(make_checkpointer(workdir).restore(_item(0)), 2)


def test_all_damaged_raises_the_error_of_the_newest(written, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(written, workdir)
    for step in (1, 2):
        (workdir / f"checkpoints/ckpt_{step}/default/_METADATA").unlink()
    checkpointer = make_checkpointer(workdir)
    with pytest.raises(OSError, match=r"ckpt_2 is damaged.*_METADATA"):
        checkpointer.restore(_item(0), noop_if_missing=True)
    assert checkpointer.all_steps == [1, 2]


def test_other_structure_is_an_error_and_not_a_damage(written):
    item = _item(0)
    params = {**item.train_state.params, "more": ones(1)}
    item = item._replace(train_state=item.train_state.replace(params=params))
    with pytest.raises(kd.ckpts.StructureMismatch, match=r"params\.more"):
        make_checkpointer(written).restore(item)


@pytest.mark.parametrize("name", ["ds_iter", "timer"])
def test_missing_item_is_a_damage(written, tmp_path, name):
    """Without its position the data would begin again, unnoticed but for a warning."""
    workdir = tmp_path / "run"
    shutil.copytree(written, workdir)
    shutil.rmtree(workdir / "checkpoints/ckpt_2" / name)
    restored, step = make_checkpointer(workdir).restore_newest(_item(0))
    _same(restored, step)
    assert step == 1


def test_item_that_was_deleted_with_the_checksums_is_gone_on_without(written, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(written, workdir)
    newest = workdir / "checkpoints/ckpt_2"
    shutil.rmtree(newest / "ds_iter")
    (newest / "checksums.json").unlink()
    restored, step = make_checkpointer(workdir).restore_newest(_item(0))
    assert step == 2 and int(restored.train_state.step) == 2


#
# Files beyond a mebibyte, which have checksums of another kind
#


def _large_state(step):
    params = {"w": random_array(1_000_000, seed=step)}
    return kd.train.TrainState(step=full((), step), params=params)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A workdir with two checkpoints of a large array, to be copied."""
    workdir = tmp_path_factory.mktemp("large")
    with make_checkpointer(workdir) as checkpointer:
        for step in (1, 2):
            checkpointer.save(_large_state(step), step=step)
    return workdir


def _flip_a_bit(content, index):
    content[index] ^= 0b100


def _swap_blocks(content, first):
    block = content[first : first + 4096]
    content[first : first + 4096] = content[first + 4096 : first + 8192]
    content[first + 4096 : first + 8192] = block


LARGE_DAMAGES = {
    "a bit at the begin": lambda content: _flip_a_bit(content, 0),
    "a bit in the middle": lambda content: _flip_a_bit(content, len(content) // 2),
    "a bit at the end": lambda content: _flip_a_bit(content, len(content) - 1),
    "a sector of zeros": lambda content: content.__setitem__(
        slice(1 << 20, (1 << 20) + 512), bytes(512)
    ),
    "two blocks swapped": lambda content: _swap_blocks(content, 1 << 20),
}


@pytest.mark.parametrize("damage", LARGE_DAMAGES)
def test_changed_bytes_in_a_large_file_are_noticed_and_the_one_before_is_used(
    large, tmp_path, damage
):
    workdir = tmp_path / "run"
    shutil.copytree(large, workdir)
    largest = max(_files(workdir), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    assert len(content) > 3_000_000
    LARGE_DAMAGES[damage](content)
    largest.write_bytes(content)
    restored, step = make_checkpointer(workdir).restore_newest(_large_state(0))
    assert step == 1
    assert_equal(restored, _large_state(1))


def test_undamaged_large_file_is_restored(large):
    restored = make_checkpointer(large).restore(_large_state(0))
    assert_equal(restored, _large_state(2))


@pytest.mark.parametrize("name", ["checksums_0.json", "checksums.json"])
def test_damaged_file_of_checksums_counts_as_damage(large, tmp_path, name):
    workdir = tmp_path / "run"
    shutil.copytree(large, workdir)
    path = workdir / "checkpoints/ckpt_2" / name
    path.write_bytes(path.read_bytes()[:-5])
    _, step = make_checkpointer(workdir).restore_newest(_large_state(0))
    assert step == 1


def test_large_files_are_checked_by_size_alone_if_that_is_asked_for(tmp_path):
    with make_checkpointer(tmp_path, checksum=False) as checkpointer:
        checkpointer.save(_large_state(2), step=2)
    assert not list(tmp_path.rglob("checksums_*"))
    largest = max(_files(tmp_path), key=lambda path: path.stat().st_size)
    with largest.open("ab") as file:
        file.write(b"more")
    with pytest.raises(OSError, match="ckpt_2 is damaged"):
        make_checkpointer(tmp_path).restore(_large_state(0))


def test_checksum_of_earlier_kind_is_still_checked(large, tmp_path):
    """Large files used to have a plain checksum beside those of the small ones."""
    workdir = tmp_path / "run"
    shutil.copytree(large, workdir)
    folder = workdir / "checkpoints/ckpt_2"
    (folder / "checksums_0.json").unlink()
    largest = max(_files(workdir), key=lambda path: path.stat().st_size)
    noted = json.loads((folder / "checksums.json").read_text())
    name = str(largest.relative_to(folder))
    noted["crc32c"][name] = crc32c.crc32c(largest.read_bytes())
    (folder / "checksums.json").write_text(json.dumps(noted))
    _, step = make_checkpointer(workdir).restore_newest(_large_state(0))
    assert step == 2
    _flip_a_byte(largest)
    _, step = make_checkpointer(workdir).restore_newest(_large_state(0))
    assert step == 1


@pytest.mark.parametrize("extra", [0, 1, 8, 4095, 4096, 4097])
@pytest.mark.parametrize("mebibytes", [1, 2, 3, 4, 5])
def test_mapped_and_read_files_have_the_same_checksum(
    tmp_path, monkeypatch, mebibytes, extra
):
    """Whether pieces, segments and blocks end with the file or before it."""
    monkeypatch.setattr(step_folders, "_SEGMENT_BYTES", 2 << 20)
    content = np.random.default_rng(0).bytes((mebibytes << 20) + extra)
    path = epath.Path(tmp_path / "file")
    path.write_bytes(content)
    whole = len(content) // 4096 * 4096
    numbers = np.frombuffer(content[:whole], "<u8").reshape(-1, 512)
    sums = numbers.sum(axis=1, dtype="<u8").tobytes()
    expected = crc32c.crc32c(sums + content[whole:])
    assert step_folders.sum_of_mapped(path) == expected
    assert step_folders.sum_of_read(path) == expected


def test_file_system_that_maps_nothing(tmp_path, monkeypatch):
    path = epath.Path(tmp_path / "file")
    path.write_bytes(np.random.default_rng(0).bytes(3_000_000))
    mapped = step_folders.sum_of_mapped(path)

    def refuse(*args, **kwargs):
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(step_folders.mmap, "mmap", refuse)
    assert step_folders.sum_of_mapped(path) == mapped
