"""Starting again: with the same config, with another, with data of unknown length."""

import dataclasses
import functools
import json
import logging
import shutil

import numpy as np
import pytest

from kauldron import kd, konfig, writers
from tests.train.toy import make_arrays, make_ds, make_trainer, step_fields


def _lines(workdir, collection="train"):
    return writers.read_scalars(workdir / collection)


def _steps(workdir, collection="train", key="losses/l2"):
    return [
        line["step"] for line in _lines(workdir, collection) if key in line["values"]
    ]


def _config(workdir, **changes):
    with konfig.imports():
        import optax

        from kauldron import kd
        from tests.train import toy

    cfg = kd.train.Trainer()
    cfg.workdir = str(workdir)
    cfg.train_ds = kd.data.py.Arrays(toy.make_arrays, shuffle=True, batch_size=16)
    cfg.model = toy.Linear(x="batch.x")
    cfg.train_loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    cfg.optimizer = optax.adam(1e-2)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=2)
    cfg.eval_ds = kd.data.py.Arrays(
        toy.make_arrays, shuffle=False, num_epochs=1, batch_size=16
    )
    cfg.evals = {"val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(2))}
    cfg.num_train_steps = 4
    cfg.log_metrics_every = 2
    cfg.profiler = None
    for path, value in changes.items():
        setattr(cfg, path, value)
    return cfg


@functools.cache
def _shared_step():
    return step_fields(konfig.resolve(_config("unused")))


def _train(cfg):
    """Train a config whose step is the usual one; its programs are shared."""
    trainer = konfig.resolve(cfg)
    shared = _shared_step() | {"raw_cfg": trainer.raw_cfg}
    return trainer.replace(**shared).train()


def _with_final_evals(workdir):
    ds = make_ds(num_epochs=1)
    evals = {"final": kd.evals.Evaluator(run=kd.evals.Final(free_memory=False), ds=ds)}
    return make_trainer(workdir, num_train_steps=2, evals=evals)


@pytest.fixture(scope="module")
def earlier_runs(tmp_path_factory):
    """Workdirs of two short runs, and copies of them."""
    root = tmp_path_factory.mktemp("earlier")
    _train(_config(root / "config", num_train_steps=2))
    _with_final_evals(root / "final").train()
    for name in ("config", "final"):
        shutil.copytree(root / name, root / f"{name}_copy")
    return root


def _as_it_was(root, name):
    """The workdir of an earlier run, whatever another test has done to it."""
    shutil.rmtree(root / name, ignore_errors=True)
    return shutil.copytree(root / f"{name}_copy", root / name)


@pytest.fixture
def after_two_steps(earlier_runs):
    """The workdir of a run of the config that has made two steps."""
    return _as_it_was(earlier_runs, "config")


@pytest.fixture
def after_final_evals(earlier_runs):
    """The workdir of a run that is complete, with its final evaluation."""
    return _as_it_was(earlier_runs, "final")


def test_config_trains_evaluates_saves_and_logs(tmp_path):
    trainer = konfig.resolve(_config(tmp_path))
    state, aux = trainer.train()
    assert int(state.step) == 4
    assert _steps(tmp_path, key="losses/loss") == [0, 2, 3]
    assert _steps(tmp_path, "val", key="losses/loss") == [0, 2, 4]
    assert trainer.checkpointer.all_steps == [0, 2, 4]
    assert set(aux.compute().loss_values) == {"losses/loss", "losses/total"}
    names = {name for line in _lines(tmp_path) for name in line["values"]}
    assert {name for name in names if name.startswith("perf_stats/")} == {
        "perf_stats/steps_per_sec",
        "perf_stats/data_wait_fraction",
        "perf_stats/total_training_time_hours",
        "perf_stats/data_points_per_sec_global",
        "perf_stats/data_points_per_sec_per_device",
        "perf_stats/first_step_sec",
        "perf_stats/train/avg_time_sec",
        "perf_stats/checkpoint/avg_time_sec",
        "perf_stats/evals_along_train/avg_time_sec",
        "perf_stats/metrics_writing/avg_time_sec",
    }


def test_changed_config_is_shown_and_each_earlier_one_is_kept(after_two_steps, caplog):
    workdir = after_two_steps
    first = (workdir / "config.json").read_text()
    changed = _config(workdir, num_train_steps=2, log_metrics_every=7)
    with caplog.at_level(logging.INFO, logger="kauldron"):
        _train(changed)
    assert "The config differs from that of the earlier start" in caplog.text
    assert "log_metrics_every" in caplog.text
    _train(_config(workdir, num_train_steps=2, log_metrics_every=8))
    assert (workdir / "config.2.json").read_text() == first
    assert json.loads((workdir / "config.json").read_text())["log_metrics_every"] == 8


def test_config_that_is_only_formatted_otherwise_has_not_changed(
    after_two_steps, caplog
):
    workdir = after_two_steps
    file = workdir / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text())))
    with caplog.at_level(logging.INFO, logger="kauldron"):
        _train(_config(workdir, num_train_steps=2))
    assert "The config differs" not in caplog.text


def test_config_that_does_not_fit_the_checkpoint_changes_no_file(
    after_two_steps, caplog
):
    workdir = after_two_steps
    before = (workdir / "config.json").read_text()
    with konfig.imports():
        import optax
    other = _config(workdir, optimizer=optax.sgd(1e-2))
    with (
        caplog.at_level(logging.INFO, logger="kauldron"),
        pytest.raises(ValueError, match=r"ckpt_2") as error,
    ):
        konfig.resolve(other).train()
    assert "opt_state" in str(error.value)
    assert "optax:sgd" in caplog.text or "optax.sgd" in caplog.text
    assert (workdir / "config.json").read_text() == before


def test_data_that_became_shorter_is_told_and_no_checkpoint_is_given_up(
    tmp_path, caplog
):
    _train(_config(tmp_path, num_train_steps=6))
    saved = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    shorter = _config(tmp_path, num_train_steps=8)
    shorter.train_ds.num_epochs = 1
    shorter.train_ds.batch_size = 32
    with pytest.raises(IndexError, match=r"shorter than when the run was saved"):
        _train(shorter)
    assert "cannot be read" not in caplog.text
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == saved


def test_start_without_a_checkpoint_replaces_what_an_earlier_one_logged(tmp_path):
    changes = {"checkpointer": None, "num_train_steps": 6, "log_metrics_every": 2}
    evals = {
        "val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(3), ds=make_ds(num_epochs=1))
    }
    for _ in range(2):
        make_trainer(tmp_path, evals=evals, **changes).train()
    assert _steps(tmp_path) == [0, 2, 4, 5]
    assert _steps(tmp_path, "val") == [0, 3, 6]
    assert _steps(tmp_path, key="num_params") == [0]
    info = json.loads((tmp_path / "run_info.json").read_text())
    assert [start["step"] for start in info["starts"]] == [0, 0]


@pytest.mark.parametrize("content", ["", '{"step', "[1]"])
def test_damaged_files_do_not_keep_a_run_from_going_on(after_final_evals, content):
    workdir = after_final_evals
    for name in ("train_complete.txt", "run_info.json"):
        (workdir / name).write_text(content)
    _with_final_evals(workdir).train()
    assert json.loads((workdir / "train_complete.txt").read_text())["step"] == 2
    info = json.loads((workdir / "run_info.json").read_text())
    assert [start["step"] for start in info["starts"]] == [2]
    assert _steps(workdir, "final") == [2]


def test_renamed_checkpoint_is_refused_with_both_steps(tmp_path):
    trainer = make_trainer(tmp_path, num_train_steps=1, writer=None)
    trainer.train()
    folder = tmp_path / "checkpoints"
    (folder / "ckpt_1").rename(folder / "ckpt_7")
    with pytest.raises(ValueError, match=r"Checkpoint 7 .* the state of step 1"):
        trainer.replace(num_train_steps=9).train()


def test_time_of_earlier_starts_counts(tmp_path):
    half = make_trainer(tmp_path, stop_after_steps=5)
    half.train()
    half.replace(stop_after_steps=None).train()
    key = "perf_stats/total_training_time_hours"
    hours = [line["values"][key] for line in _lines(tmp_path) if key in line["values"]]
    assert len(hours) > 2 and hours == sorted(hours)


#
# Data of unknown length
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Stream(kd.data.Pipeline):
    """Some batches, nobody knows how many; continues where it was."""

    count: int = 5

    def __iter__(self):
        return StreamIterator(self.count)


class StreamIterator:
    def __init__(self, count):
        self.next, self.count = 0, count

    def __iter__(self):
        return self

    def __next__(self):
        if self.next >= self.count:
            raise StopIteration
        self.next += 1
        arrays = make_arrays()
        return {name: np.asarray(array[:16]) for name, array in arrays.items()}

    def get_state(self):
        return {"next": self.next}

    def set_state(self, state):
        self.next = state["next"]


def _stream_trainer(workdir, **changes):
    evals = {
        "final": kd.evals.Evaluator(
            run=kd.evals.Final(free_memory=False), ds=make_ds(num_epochs=1)
        )
    }
    kwargs = {
        "num_train_steps": None,
        "train_ds": Stream(batch_size=16),
        "evals": evals,
    }
    return make_trainer(workdir, **(kwargs | changes))


def test_data_of_unknown_length_decides_when_training_ends(tmp_path):
    trainer = _stream_trainer(tmp_path)
    state, _ = trainer.train()
    assert int(state.step) == 5 and trainer.checkpointer.latest_step == 5
    marker = json.loads((tmp_path / "train_complete.txt").read_text())
    assert marker == {"step": 5, "num_train_steps": None, "final_evals": ["final"]}
    again, aux = _stream_trainer(tmp_path).train()
    assert int(again.step) == 5 and aux is None
    assert _steps(tmp_path, "final") == [5]


def test_step_at_which_data_of_unknown_length_ends_is_evaluated_once(tmp_path):
    ds = make_ds(num_epochs=1)
    evals = {
        name: kd.evals.Evaluator(run=kd.evals.EveryNSteps(n), ds=ds)
        for name, n in {"two": 2, "five": 5}.items()
    }
    for _ in range(2):  # the second finds a complete run
        _stream_trainer(tmp_path, evals=evals).train()
    assert _steps(tmp_path, "two") == [0, 2, 4, 5]
    assert _steps(tmp_path, "five") == [0, 5]


def test_data_that_ends_before_stop_after_steps_is_no_error(tmp_path):
    state, _ = _stream_trainer(tmp_path, stop_after_steps=99, checkpointer=None).train()
    assert int(state.step) == 5


def test_pipeline_that_cannot_resume_is_named(tmp_path, caplog):
    class Restless(kd.data.Pipeline):
        def __iter__(self):
            yield from make_ds(num_epochs=None, seed=0)

    half = make_trainer(
        tmp_path, train_ds=Restless(batch_size=16), num_train_steps=2, writer=None
    )
    half.train()
    with caplog.at_level(logging.WARNING):
        half.replace(num_train_steps=3).train()
    assert "Restless cannot be restored" in caplog.text


#
# Files beside the checkpoints that were damaged
#


ODD_CONTENTS = {
    "binary": b"\xff\xfe\x00\x9c{",
    "empty": b"",
    "list": b"[1]",
    "null": b"null",
    "text": b'"words"',
    "odd fields": b'{"starts": [{"step": null}], "final_evals": null, "step": "x"}',
}


@pytest.mark.parametrize("content", ODD_CONTENTS.values(), ids=ODD_CONTENTS)
def test_side_files_that_cannot_be_read_are_set_aside_by_name(
    after_two_steps, caplog, content
):
    workdir = after_two_steps
    names = ["config.json", "run_info.json", "train_complete.txt", "element_spec.json"]
    for name in names:
        (workdir / name).write_bytes(content)
    state, _ = _train(_config(workdir))
    assert int(state.step) == 4
    for name in names:
        assert json.loads((workdir / name).read_text())
    aside = {path.name for path in workdir.glob("*.unreadable")}
    is_mapping = content.startswith(b"{")
    expected = {"run_info.json.unreadable", "config.json.unreadable"}
    assert aside == (expected - {"config.json.unreadable"} if is_mapping else expected)
    for name in aside:
        assert (workdir / name).read_bytes() == content
        assert f"{workdir / name.removesuffix('.unreadable')} cannot" in caplog.text


def test_lines_of_the_log_that_cannot_be_read_are_set_aside(after_two_steps, caplog):
    workdir = after_two_steps
    odd = [b"\xff\xfe\x9c", b'{"step": null, "values": {}}', b"null", b'{"step": 1}']
    for name in ("train", "val"):
        path = workdir / name / "scalars.jsonl"
        path.write_bytes(b"\n".join([*odd, path.read_bytes()]))
    _train(_config(workdir))
    for name, steps in {"train": [0, 1, 2, 3], "val": [0, 2, 4]}.items():
        assert _steps(workdir, name, key="losses/loss") == steps
        path = workdir / name / "scalars.jsonl"
        aside = workdir / name / "scalars.jsonl.unreadable"
        assert aside.read_bytes().splitlines() == odd
        assert f"4 lines of {path} cannot be read and are now in {aside}" in caplog.text


def test_reading_a_log_leaves_out_what_cannot_be_read_and_names_the_file(
    tmp_path, caplog
):
    path = tmp_path / "scalars.jsonl"
    line = b'{"step": 3, "time": 1.0, "values": {"a": 1}}\n'
    path.write_bytes(b"\xff\n" + line + b'{"step": 4')
    assert [entry["step"] for entry in writers.read_scalars(tmp_path)] == [3]
    assert f"1 lines of {path} cannot be read" in caplog.text
