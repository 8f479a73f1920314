"""What a run leaves in its workdir, and that it is whole at every moment."""

import dataclasses
import fcntl
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import threading

import flax
import jax
import numpy as np
import pytest
from etils import epath
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kauldron import kd, konfig
from kauldron.files import holder
from kauldron.train.run.workdir_files import LOCK_FILENAME, workdir_lock
from tests import processes


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Words(kd.metrics.Metric):
    """A summary that is a text."""

    tensor: kd.kontext.Key = kd.kontext.REQUIRED

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        def compute(self):
            return "some **words**"

    def get_state(self, tensor):
        return self.State()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Picture(kd.metrics.Metric):
    """A summary that is an array, and a picture."""

    tensor: kd.kontext.Key = kd.kontext.REQUIRED

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        picture: object = kd.metrics.truncate_field(num_field="parent.count")

        def compute(self):
            return np.asarray(self.picture)

    count: int = 2

    def get_state(self, tensor):
        return self.State(parent=self, picture=tensor[:, None, :, None])


def _config(workdir):
    with konfig.imports():
        import optax

        from kauldron import kd
        from tests.train import toy
        from tests.train.run import test_workdir_files

    cfg = kd.train.Trainer()
    cfg.workdir = str(workdir)
    cfg.train_ds = kd.data.py.Arrays(toy.make_arrays, shuffle=True, batch_size=16)
    cfg.model = toy.Linear(x="batch.x")
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.y", targets="batch.y")}
    cfg.train_metrics = {"deep": {"norm": kd.metrics.Norm(tensor="preds.y")}}
    cfg.train_summaries = {
        "picture": test_workdir_files.Picture(tensor="preds.y"),
        "words": test_workdir_files.Words(tensor="preds.y"),
        "spread": kd.summaries.HistogramSummary(tensor="preds.y"),
    }
    cfg.schedules = {"lr": optax.linear_schedule(0.1, 0.0, 10)}
    cfg.optimizer = optax.adam(cfg.ref.schedules["lr"])
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=2)
    cfg.evals = {
        "val": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(2), num_batches=1, ds=cfg.ref.train_ds
        )
    }
    cfg.num_train_steps = 4
    cfg.log_metrics_every = 2
    cfg.log_summaries_every = 2
    return cfg


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    trainer = konfig.resolve(_config(workdir))
    trainer.train()
    return workdir, trainer


def _without_addresses(text):
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def test_files_rebuild_the_same_trainer(run):
    workdir, trainer = run
    again = konfig.resolve(json.loads((workdir / "config.json").read_text()))
    assert again.raw_cfg.to_json() == trainer.raw_cfg.to_json()
    assert _without_addresses(repr(again)) == _without_addresses(repr(trainer))
    spec = konfig.resolve(json.loads((workdir / "element_spec.json").read_text()))
    assert spec == trainer.train_ds.element_spec


def test_nothing_but_the_documented_files_is_left(run):
    workdir, _ = run
    assert {path.name for path in workdir.iterdir()} == {
        "config.json",
        "element_spec.json",
        "run_info.json",
        "checkpoints",
        "train",
        "val",
        "train_complete.txt",
        "train.lock",
    }
    names = {path.name for path in (workdir / "checkpoints" / "ckpt_4").iterdir()}
    assert {"default", "timer", "ds_iter"} <= names


def test_tensorboard_finds_everything_under_its_name(run):
    workdir, _ = run
    train = EventAccumulator(str(workdir / "train"), size_guidance={"images": 0})
    train.Reload()
    tags = train.Tags()
    scalars = {name for name in tags["scalars"] if not name.startswith("perf_stats/")}
    assert scalars == {
        "losses/l2",
        "losses/total",
        "metrics/deep/norm",
        "schedules/lr",
        "num_params",
    }
    assert [event.step for event in train.Scalars("losses/l2")] == [0, 2, 3]
    assert train.Scalars("schedules/lr")[1].value == pytest.approx(0.08)
    assert train.Scalars("num_params")[0].value == 4 * 2 + 2
    assert set(tags["images"]) == {"summaries/picture/0", "summaries/picture/1"}
    assert tags["histograms"] == ["summaries/spread"]
    texts = {"config", "parameters", "element_spec", "context_spec", "summaries/words"}
    assert set(tags["tensors"]) == texts
    context = train.Tensors("context_spec")[0].tensor_proto.string_val[0].decode()
    assert "batch.x" in context and "`grads`: Same structure as" in context
    val = EventAccumulator(str(workdir / "val"), size_guidance={"images": 0})
    val.Reload()
    assert {"losses/l2", "losses/total", "metrics/deep/norm"} == set(
        val.Tags()["scalars"]
    )
    assert [event.step for event in val.Scalars("losses/l2")] == [0, 2, 4]
    assert "tensorflow" not in sys.modules


#
# Whole at every moment
#


def _load_array_file(path):
    with np.load(path) as file:
        return dict(file)


READERS = {
    "config.json": lambda path: json.loads(path.read_text())["num_train_steps"],
    "config.4.json": lambda path: json.loads(path.read_text())["num_train_steps"],
    "element_spec.json": lambda path: json.loads(path.read_text()),
    "run_info.json": lambda path: json.loads(path.read_text())["starts"],
    "train_complete.txt": lambda path: json.loads(path.read_text())["step"],
    "train_model.jax_exported": lambda path: jax.export.deserialize(
        bytearray(path.read_bytes())
    ),
    "array_dumps/train/*.npz": _load_array_file,
}


def test_whoever_looks_at_any_moment_finds_whole_files(tmp_path, monkeypatch):
    """Looks at all files whenever one was written and does not have its name yet."""
    moments = []

    def look(file_descriptor):
        for pattern, read in READERS.items():
            for path in tmp_path.glob(pattern):
                read(path)
                moments.append(pattern)
        sync(file_descriptor)

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", look)
    has_exporter = importlib.util.find_spec("flatbuffers") is not None
    changes = {
        "writer": kd.contrib.train.NpzWriter(),
        "exporter": kd.export.JaxModelExporter() if has_exporter else None,
    }
    cfg = _config(tmp_path)
    konfig.resolve(cfg).replace(**changes).train()
    cfg.num_train_steps = 5
    konfig.resolve(cfg).replace(**changes).train()
    expected = set(READERS)
    if not has_exporter:  # an extra that is not installed
        expected.remove("train_model.jax_exported")
    assert set(moments) == expected


#
# One training job per workdir
#


HOLDER = """
import signal, sys
from etils import epath
from kauldron.train.run.workdir_files import workdir_lock
with workdir_lock(epath.Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def other_process(tmp_path):
    """A process that holds the lock."""
    process = processes.python("-c", HOLDER, tmp_path)
    process.wait_for("held")
    yield process
    process.stop()


def test_second_job_is_refused_with_host_process_and_time(tmp_path, other_process):
    with pytest.raises(RuntimeError) as error, workdir_lock(epath.Path(tmp_path)):
        pass
    message = str(error.value)
    assert f"Another training job uses {tmp_path}: process {other_process.pid} on " in (
        message
    )
    assert socket.gethostname() in message and ", started 2" in message
    assert "set another `cfg.workdir`" in message


def test_lock_of_a_dead_process_is_taken_over(tmp_path, other_process):
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    path = epath.Path(tmp_path) / LOCK_FILENAME
    assert str(other_process.pid) in path.read_text()  # it could not clean up
    assert holder(path) is None
    with workdir_lock(epath.Path(tmp_path)):
        assert holder(path)["pid"] == os.getpid()
    assert holder(path) is None and path.read_text() == ""


def test_who_only_looks_keeps_nobody_out(tmp_path):
    path = tmp_path / LOCK_FILENAME
    path.touch()
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as `kauldron runs` does for an instant
        unlock = threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN))
        unlock.start()
        with workdir_lock(epath.Path(tmp_path)):
            assert holder(epath.Path(path)) is not None
        unlock.join()
