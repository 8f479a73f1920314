"""Writers of arrays, animated images, MLflow and W&B."""

import dataclasses
import functools
import io
import json
import pickle
import sys
import threading
import types
from typing import Any

import flax.struct
import ml_dtypes
import numpy as np
import pytest
from etils import epath
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kauldron import kd, kontext, writers
from kauldron.contrib.train.file_writers import VideoOptions
from kauldron.train import AuxiliariesOutput
from tests.train.toy import make_ds, make_trainer

contrib = kd.contrib.train


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Raw(kd.metrics.Metric):
    """The array itself."""

    tensor: kontext.Key = kontext.REQUIRED

    @flax.struct.dataclass(kw_only=True)
    class State(kd.metrics.AutoState["Raw"]):
        tensor: Any = kd.metrics.concat_field()

        def compute(self):
            return self.tensor

    def get_state(self, tensor):
        return self.State(tensor=tensor)


def write(writer, step, *, losses=None, metrics=None, summaries=None, **kwargs):
    output = AuxiliariesOutput(
        loss_values=losses or {},
        metric_values=metrics or {},
        summary_values=summaries or {},
    )
    kwargs = {"schedules": {}, "log_summaries": True} | kwargs
    writer.write_step_metrics(step=step, aux=output, **kwargs)


#
# NpzWriter
#

SUMMARIES = {
    "summaries/image": np.arange(6.0).reshape(1, 1, 2, 3),
    "summaries/small": np.ones((1, 1, 1, 1), ml_dtypes.bfloat16),
    "summaries/text": "not an array",
    "summaries/texts": np.array(["not", "numbers"]),
}


@pytest.fixture
def npz(tmp_path):
    """Makes writers that are closed in the end."""
    made = []

    def make(**fields):
        fields = {"workdir": epath.Path(tmp_path), "collection": "train"} | fields
        made.append(contrib.NpzWriter(**fields))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


def load(folder, step=3):
    with np.load(folder / f"{step:09d}.npz") as file:
        return dict(file)


def test_npz_holds_the_arrays_of_the_summaries(npz, tmp_path):
    write(npz(), 3, summaries=SUMMARIES)
    arrays = load(tmp_path / "array_dumps" / "train")
    assert set(arrays) == {"summaries/image", "summaries/small"}
    np.testing.assert_array_equal(
        arrays["summaries/image"], SUMMARIES["summaries/image"]
    )
    assert arrays["summaries/small"].dtype == np.float32


def test_npz_is_written_beside_the_usual_files(npz, tmp_path):
    write(npz(), 3, losses={"losses/total": 1.0}, summaries=SUMMARIES)
    (line,) = writers.read_scalars(tmp_path / "train")
    assert line["values"] == {"losses/total": 1.0}


def test_npz_selects_by_patterns(npz, tmp_path):
    write(npz(key_patterns=["^summaries/sm", "nothing"]), 3, summaries=SUMMARIES)
    assert set(load(tmp_path / "array_dumps" / "train")) == {"summaries/small"}
    write(npz(key_patterns="image"), 4, summaries=SUMMARIES)
    assert set(load(tmp_path / "array_dumps" / "train", 4)) == {"summaries/image"}


def test_npz_with_scalars_and_static_info(npz, tmp_path):
    writer = npz(
        key_patterns=["image"],
        save_scalars=True,
        static_info={"labels": ["a", "b"], "file": 3},
        output_dir=tmp_path / "here",
    )
    write(
        writer,
        3,
        losses={"losses/x": 1.5},
        metrics={"metrics/y": 2},
        summaries=SUMMARIES,
    )
    arrays = load(tmp_path / "here")
    assert arrays["losses/x"] == 1.5
    assert arrays["metrics/y"] == 2
    assert arrays["labels"].tolist() == ["a", "b"]
    assert arrays["file"] == 3
    assert "summaries/image" in arrays


@pytest.mark.parametrize(
    "fields, kwargs",
    [
        ({"key_patterns": ["nothing"], "static_info": {"n": 1}}, {}),
        ({}, {"log_summaries": False}),
    ],
)
def test_npz_of_nothing_is_no_file(npz, tmp_path, fields, kwargs):
    write(npz(**fields), 3, summaries=SUMMARIES, **kwargs)
    assert not (tmp_path / "array_dumps").exists()


def test_npz_pattern_that_is_none(npz):
    with pytest.raises(ValueError, match=r"key_patterns: '\(' is not a regular"):
        npz(key_patterns=["("])


def test_npz_that_cannot_be_written_is_an_error(npz, tmp_path):
    (tmp_path / "blocked").write_text("a file where a folder is needed")
    writer = npz(output_dir=tmp_path / "blocked")
    with pytest.raises(OSError, match="blocked"):
        write(writer, 3, summaries=SUMMARIES)


def test_npz_in_a_run(tmp_path, recwarn):
    trainer = make_trainer(
        tmp_path,
        writer=contrib.NpzWriter(save_scalars=True),
        train_summaries={"y": Raw(tensor="preds.y")},
        log_summaries_every=4,
        num_train_steps=6,
    )
    trainer.train()
    names = sorted(path.name for path in (tmp_path / "array_dumps/train").iterdir())
    assert names == ["000000000.npz", "000000004.npz"]
    arrays = load(tmp_path / "array_dumps/train", 4)
    assert arrays["summaries/y"].shape == (16, 2)
    assert "losses/l2" in arrays
    assert not [w for w in recwarn if "is not written" in str(w.message)]


def test_writers_can_be_pickled_while_open(npz):
    writer = npz()
    write(writer, 3, summaries=SUMMARIES)
    assert pickle.loads(pickle.dumps(writer)) == writer


#
# GifVideoWriter
#


def read_pictures(folder, tag):
    image = pytest.importorskip("PIL.Image", reason='pip install "kauldron[images]"')
    loaded = EventAccumulator(str(folder), size_guidance={"images": 0})
    loaded.Reload()
    (event,) = loaded.Images(tag)
    picture = image.open(io.BytesIO(event.encoded_image_string))
    return picture, (event.height, event.width)


@pytest.mark.parametrize("save_format", ["GIF", "WEBP", "PNG", "gif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_video_is_written_in_the_format_of_its_summary(tmp_path, save_format, channels):
    options = {"train": {"summaries/v": VideoOptions(save_format.upper(), 70)}}
    writer = contrib.GifVideoWriter(
        workdir=epath.Path(tmp_path), collection="train", video_options=options
    )
    video = np.random.default_rng(0).integers(
        0, 256, (1, 5, 16, 24, channels), np.uint8
    )
    write(writer, 2, summaries={"summaries/v": video})
    writer.close()
    picture, size = read_pictures(tmp_path / "train", "summaries/v")
    assert picture.format == save_format.upper()
    assert picture.n_frames == 5
    assert (picture.height, picture.width) == size == (16, 24)
    picture.seek(1)
    picture.load()
    assert picture.info["duration"] == 70


def test_animations_are_written_with_the_durations_asked_for(tmp_path):
    writer = contrib.GifVideoWriter(workdir=epath.Path(tmp_path), collection="train")
    videos = {
        name: np.full((1, 2, 4, 4, 3), np.arange(2).reshape(2, 1, 1, 1), np.uint8)
        for name in ("a", "b")
    }
    writer.write_animation(3, videos, "png", durations={"b": 50})
    writer.close()
    for name, duration in (("a", 100), ("b", 50)):
        picture, _ = read_pictures(tmp_path / "train", name)
        assert picture.format == "PNG" and picture.n_frames == 2
        assert picture.info["duration"] == duration


def test_options_come_from_the_summaries_of_trainer_and_evaluators(tmp_path):
    show = functools.partial(kd.contrib.summaries.ShowVideosAsGif, videos="batch.v")
    trainer = make_trainer(
        tmp_path,
        writer=contrib.GifVideoWriter(),
        train_summaries={"a": {"b": show(save_format="webp", frame_duration_ms=20)}},
        eval_ds=make_ds(),
        evals={
            "own": kd.evals.Evaluator(
                run=kd.evals.Once(0), summaries={"v": show(save_format="PNG")}
            ),
            "inherits": kd.evals.Evaluator(run=kd.evals.Once(0)),
        },
    )
    assert trainer.writer._options("summaries/a/b") == ("WEBP", 20)
    own, inherits = trainer.evals["own"].writer, trainer.evals["inherits"].writer
    assert own._options("summaries/v") == ("PNG", 100)
    assert inherits._options("summaries/a/b") == ("WEBP", 20)
    assert inherits._options("summaries/other") == ("GIF", 100)
    changed = trainer.replace(train_summaries={"c": show(save_format="PNG")})
    assert changed.writer._options("summaries/c") == ("PNG", 100)


def test_other_videos_are_written_as_ever_or_not_at_all(tmp_path):
    floats = np.zeros((1, 2, 8, 8, 3), np.float32)
    make = functools.partial(contrib.GifVideoWriter, workdir=epath.Path(tmp_path))
    writer = make(collection="train")
    write(writer, 0, summaries={"summaries/v": floats})
    writer.close()
    assert read_pictures(tmp_path / "train", "summaries/v")[0].format == "PNG"
    writer = make(collection="off", write_video_summaries=False)
    write(writer, 0, summaries={"summaries/v": floats.astype(np.uint8)})
    writer.close()
    assert not (tmp_path / "off").exists()


def test_unknown_format_lists_the_known_ones(tmp_path):
    options = {"train": {"summaries/v": VideoOptions("MP4", 100)}}
    writer = contrib.GifVideoWriter(
        workdir=epath.Path(tmp_path), collection="train", video_options=options
    )
    with pytest.raises(ValueError, match="'MP4': expected one of GIF"):
        write(writer, 0, summaries={"summaries/v": np.zeros((1, 1, 8, 8, 3), np.uint8)})


#
# MLflow and W&B
#


@pytest.mark.parametrize(
    "name, cls, library",
    [
        ("mlflow", contrib.MLFlowMetricWriter, "mlflow"),
        ("wandb", contrib.WandbWriter, "W&B"),
    ],
)
def test_missing_library_names_the_extra(tmp_path, monkeypatch, name, cls, library):
    monkeypatch.setitem(sys.modules, name, None)
    writer = cls(workdir=epath.Path(tmp_path), collection="train")
    with pytest.raises(ImportError, match=rf"{library}: .*kauldron\[{name}\]"):
        write(writer, 0, losses={"losses/total": 1.0})
    writer.close()


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason='pip install "kauldron[mlflow]"')
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        yield mlflow.MlflowClient(), run.info.run_id


def test_mlflow_gets_numbers_and_texts(mlflow, tmp_path):
    client, run_id = mlflow
    trainer = make_trainer(
        tmp_path / "run", writer=contrib.MLFlowMetricWriter(), num_train_steps=6
    )
    trainer.train()
    history = client.get_metric_history(run_id, "train/losses/l2")
    assert [metric.step for metric in history] == [0, 5]
    lines = writers.read_scalars(tmp_path / "run" / "train")
    logged = [
        line["values"]["losses/l2"] for line in lines if "losses/l2" in line["values"]
    ]
    assert [metric.value for metric in history] == pytest.approx(logged)
    (artifact,) = client.list_artifacts(run_id, "train/parameters")
    assert artifact.path == "train/parameters/000000000.md"
    (table,) = tmp_path.glob("mlruns/**/train/parameters/*.md")
    assert "dense.kernel" in table.read_text()


def test_mlflow_alone_writes_no_files(mlflow, tmp_path):
    client, run_id = mlflow
    writer = contrib.MLFlowMetricWriter(
        workdir=epath.Path(tmp_path), collection="eval", pass_to_default_writer=False
    )
    write(writer, 1, losses={"losses/a[0]": 1.0})
    writer.close()
    assert [m.value for m in client.get_metric_history(run_id, "eval/losses/a_0_")] == [
        1
    ]
    assert not (tmp_path / "eval").exists()


@pytest.fixture
def slow_server(monkeypatch):
    """A stand-in for mlflow whose server answers nothing and then is gone."""
    is_gone = threading.Event()

    def log_batch(run_id, metrics):
        assert is_gone.wait(30)
        raise ConnectionError("no answer")

    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="1"))
    mlflow = types.SimpleNamespace(
        active_run=lambda: run,
        MlflowClient=lambda: types.SimpleNamespace(log_batch=log_batch),
    )
    entities = types.SimpleNamespace(Metric=lambda *args: args)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return is_gone


def test_files_do_not_depend_on_the_mlflow_server(slow_server, tmp_path):
    writer = contrib.MLFlowMetricWriter(
        workdir=epath.Path(tmp_path), collection="train"
    )
    for step in range(3):
        writer.write_scalars(step, {"a": 1.0})
    slow_server.set()
    with pytest.raises(ConnectionError, match="no answer"):
        writer.flush()
    writer.close()
    assert [line["step"] for line in writers.read_scalars(tmp_path / "train")] == [
        0,
        1,
        2,
    ]


def test_mlflow_alone_needs_no_workdir(slow_server):
    slow_server.set()
    writer = contrib.MLFlowMetricWriter(pass_to_default_writer=False)
    writer.write_scalars(0, {"a": 1.0})
    with pytest.raises(ConnectionError, match="no answer"):
        writer.close()


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason='pip install "kauldron[wandb]"')
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield wandb
    wandb.finish()


def test_wandb_gets_values_over_a_step_of_their_own(wandb, tmp_path, monkeypatch):
    writer = contrib.WandbWriter(
        workdir=epath.Path(tmp_path), collection="train", project="p", mode="offline"
    )
    write(writer, 10, losses={"losses/total": 1.0})
    logged = []
    monkeypatch.setattr(wandb.run, "log", logged.append)
    write(
        writer.replace(collection="eval"),
        4,
        losses={"losses/total": 2.0},
        summaries={
            "summaries/image": np.zeros((2, 4, 4, 1), np.float32),
            "summaries/text": "<b>",
            "summaries/h": kd.summaries.Histogram(tensor=np.arange(9.0), num_buckets=3),
        },
    )
    writer.close()
    assert wandb.run.summary["train/losses/total"] == 1.0
    assert wandb.run.summary["train/step"] == 10
    values: dict[str, Any] = {}
    for entry in logged:
        assert entry["eval/step"] == 4
        values |= entry
    assert values["eval/losses/total"] == 2.0
    assert len(values["eval/summaries/image"]) == 2
    assert len(values["eval/summaries/h"].bins) == 4
    assert json.loads((tmp_path / "wandb_run.json").read_text()) == {"id": wandb.run.id}


def test_wandb_run_is_continued_by_the_next_start(wandb, tmp_path):
    def start():
        writer = contrib.WandbWriter(
            workdir=epath.Path(tmp_path),
            collection="train",
            mode="offline",
            pass_to_default_writer=False,
        )
        write(writer, 1, losses={"losses/total": 1.0})
        writer.close()
        run_id = wandb.run.id
        wandb.finish()
        return run_id

    assert start() == start()
    assert not (tmp_path / "train").exists()
