"""What a killed job leaves is gone after the next start, also of a complete run."""

import os
import shutil
import signal

import pytest

from kauldron import konfig
from tests.ckpts.states import make_checkpointer, make_state, run_python, save_steps
from tests.train.toy import CONFIG, make_trainer

KILLED = """
import os, signal, sys
from kauldron import kd
from kauldron.ckpts import step_folders
from tests.train.toy import make_trainer

def kill_at_last(function, when):
    def wrapped(root, step, *args):
        is_last = (root / "ckpt_10").exists()
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(root, step, *args)
        if is_last and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

workdir, name, when = sys.argv[1:]
setattr(step_folders, name, kill_at_last(getattr(step_folders, name), when))
make_trainer(workdir).train()
"""


def _names(workdir):
    return sorted(os.listdir(workdir / "checkpoints"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "when", "left"),
    [
        ("delete", "before", "ckpt_0"),
        ("_rename", "after", "ckpt_0.deleting"),
    ],
)
def test_kill_while_the_last_save_cleans_up(tmp_path, name, when, left):
    run_python(KILLED, tmp_path, name, when, exit_code=-signal.SIGKILL)
    assert _names(tmp_path) == sorted([left, "ckpt_10", "ckpt_4", "ckpt_8"])
    for _ in range(2):  # the second finds a complete run
        make_trainer(tmp_path).train()
        assert _names(tmp_path) == ["ckpt_10", "ckpt_4", "ckpt_8"]


def test_start_of_a_complete_run_with_another_config_deletes_no_checkpoint(tmp_path):
    namespace = {}
    exec(CONFIG, namespace)
    cfg = namespace["get_config"]()
    cfg.workdir = str(tmp_path)
    konfig.resolve(cfg).train()
    assert _names(tmp_path) == ["ckpt_0", "ckpt_4"]
    (tmp_path / "checkpoints/ckpt_3.orbax-checkpoint-tmp").mkdir()
    cfg.checkpointer.max_to_keep = 1
    konfig.resolve(cfg).train()
    assert _names(tmp_path) == ["ckpt_0", "ckpt_4"]


def _as_link(workdir, step):
    """Move a checkpoint to another disk, so to say, and leave a link."""
    folder = workdir / f"checkpoints/ckpt_{step}"
    target = workdir / f"archive_{step}"
    shutil.move(folder, target)
    folder.symlink_to(target)
    return target


def test_linked_checkpoint_is_read_and_only_its_link_is_removed(tmp_path):
    checkpointer = make_checkpointer(tmp_path, max_to_keep=1)
    save_steps(checkpointer, [1])
    target = _as_link(tmp_path, 1)
    assert int(make_checkpointer(tmp_path).restore(make_state()).step) == 1
    for step in (2, 3):
        save_steps(checkpointer, [step])
        assert _names(tmp_path) == [f"ckpt_{step}"]
    assert (target / "default").exists()


@pytest.mark.parametrize("name", ["ckpt_1.deleting", "ckpt_1.orbax-checkpoint-tmp"])
def test_link_that_was_left_is_removed(tmp_path, name):
    save_steps(make_checkpointer(tmp_path), [1])
    (tmp_path / "checkpoints" / name).symlink_to(tmp_path / "gone")
    save_steps(make_checkpointer(tmp_path), [2])
    assert _names(tmp_path) == ["ckpt_1", "ckpt_2"]


def test_link_to_nowhere_makes_room_for_the_step(tmp_path):
    save_steps(make_checkpointer(tmp_path), [1])
    target = _as_link(tmp_path, 1)
    shutil.rmtree(target)
    checkpointer = make_checkpointer(tmp_path)
    assert checkpointer.all_steps == []
    save_steps(checkpointer, [1])
    assert int(checkpointer.restore(make_state()).step) == 1
    assert not (tmp_path / "checkpoints/ckpt_1").is_symlink()
