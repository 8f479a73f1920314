"""What any writer can rely on, and what a user must write for one of his own."""

import dataclasses
import threading

import numpy as np
import pytest
from etils import epath

from kauldron import kd
from kauldron.optim.updates import schedule_values
from kauldron.train import AuxiliariesOutput, AuxiliariesState
from kauldron.writers import WriterBase, read_scalars
from kauldron.writers.kd_metric_writer import BackgroundQueue
from tests.train.toy import make_trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collecting(WriterBase):
    """Only what must be written: keeps the numbers."""

    kept: list = dataclasses.field(default_factory=list, compare=False)

    def write_scalars(self, step, scalars):
        self.kept.append((step, dict(scalars)))


def _write(writer, step=0, summaries=None, **losses):
    output = AuxiliariesOutput(loss_values=losses, summary_values=summaries or {})
    writer.write_step_metrics(step=step, aux=output, schedules={}, log_summaries=True)


#
# A writer of one's own
#


def test_only_scalars_must_be_written():
    writer = Collecting(collection="train")
    _write(writer, 3, loss=np.float32(0.5))
    assert writer.kept == [(3, {"loss": 0.5})]
    with pytest.raises(TypeError, match="abstract"):
        WriterBase()


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("images", lambda w: w.write_images(0, {"a": np.zeros((1, 2, 2, 3))})),
        ("videos", lambda w: w.write_videos(0, {"a": np.zeros((1, 2, 2, 2, 3))})),
        ("histograms", lambda w: w.write_histograms(0, {"a": np.zeros(3)})),
        ("point clouds", lambda w: w.write_pointcloud(0, {"a": np.zeros((2, 3))})),
        (
            "audio",
            lambda w: w.write_audios(0, {"a": np.zeros((1, 9, 1))}, sample_rate=8),
        ),
        ("texts", lambda w: w.write_texts(0, {"a": "text"})),
        ("tensors", lambda w: w.write_summaries(0, {"a": np.zeros(3)})),
        ("hyper-parameters", lambda w: w.write_hparams({"a": 1})),
    ],
)
def test_kind_that_a_writer_does_not_know_is_warned_about_once(kind, call, recwarn):
    writer = Collecting(collection="train")
    call(writer), call(writer)
    messages = [str(warning.message) for warning in recwarn]
    assert messages == [f"Collecting does not write {kind}: a."]


def test_writer_that_extends_write_step_metrics_is_called_with_everything(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Extended(kd.train.KDMetricWriter):
        seen: list = dataclasses.field(default_factory=list, compare=False)

        def write_step_metrics(self, **kwargs):
            self.seen.append(kwargs)
            super().write_step_metrics(**kwargs)

    writer = Extended(workdir=epath.Path(tmp_path), collection="train")
    _write(writer, 1, loss=2.0)
    writer.close()
    assert writer.seen[0]["step"] == 1
    assert [line["values"] for line in read_scalars(tmp_path / "train")] == [
        {"loss": 2.0}
    ]


def test_values_are_computed_once_for_all_writers():
    computed = []

    class Counting(AuxiliariesState):
        def compute(self, *, flatten=True):
            computed.append(flatten)
            return super().compute(flatten=flatten)

    class Timer:
        def flush_metrics(self):
            computed.append("time")
            return {"steps_per_sec": 3.0}

    writers = [Collecting(), Collecting()]
    writer = kd.train.MultiWriter(writers=writers, collection="train")
    writer.write_step_metrics(
        step=0, aux=Counting(), schedules={}, log_summaries=False, timer=Timer()
    )
    assert computed == [True, "time"]
    for member in writer.writers:
        assert member.kept == [(0, {"perf_stats/steps_per_sec": 3.0})]


def test_values_that_are_computed_already_can_be_taken_over():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Own(Collecting):
        def write_values(self, step, output, *, schedules, perf_stats, log_summaries):
            self.kept.append((step, output.loss_values, schedules, log_summaries))

    writer = Own(collection="train")
    writer.write_step_metrics(
        step=2,
        aux=AuxiliariesOutput(loss_values={"losses/a": 1.0}),
        schedules={"lr": lambda step: 0.5 * step},
        log_summaries=False,
    )
    assert writer.kept == [(2, {"losses/a": 1.0}, {"lr": 1.0}, False)]


#
# Collections
#


def test_collection_that_is_not_set_is_an_error(tmp_path):
    writer = kd.train.KDMetricWriter(workdir=epath.Path(tmp_path))
    with pytest.raises(ValueError, match=r"replace\(collection="):
        writer.write_scalars(0, {"a": 1.0})


def test_copies_open_files_of_their_own(tmp_path):
    first = kd.train.KDMetricWriter(workdir=epath.Path(tmp_path), collection="a")
    first.write_scalars(0, {"x": 1.0})
    second = first.replace(collection="b")
    second.write_scalars(1, {"x": 2.0})
    first.close(), second.close()
    assert [line["step"] for line in read_scalars(tmp_path / "a")] == [0]
    assert [line["step"] for line in read_scalars(tmp_path / "b")] == [1]


def test_noop_writer_is_silent(tmp_path, recwarn):
    writer = kd.train.NoopWriter(workdir=epath.Path(tmp_path), collection="train")
    _write(writer, 0, summaries={"summaries/a": np.zeros((3, 3))}, loss=1.0)
    writer.write_texts(0, {"a": "text"})
    writer.flush(), writer.close()
    assert list(tmp_path.iterdir()) == [] and not list(recwarn)


#
# Several writers
#


def test_several_writers_share_collection_and_workdir(tmp_path):
    trainer = kd.train.Trainer(
        workdir=str(tmp_path),
        writer=kd.train.MultiWriter(writers=(kd.train.KDMetricWriter(), Collecting())),
    )
    assert trainer.writer.collection == "train"
    for writer in trainer.writer.writers:
        assert writer.collection == "train" and writer.workdir == epath.Path(tmp_path)
    moved = trainer.replace(workdir=str(tmp_path / "b"))
    assert moved.writer.writers[0].workdir == epath.Path(tmp_path / "b")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OlderSignature(kd.train.KDMetricWriter):
    """Overrides `write_step_metrics` as it was: without `flush`, with states."""

    kept: list = dataclasses.field(default_factory=list, compare=False)

    def write_step_metrics(self, *, step, aux, schedules, log_summaries, timer=None):
        self.kept.append((step, sorted(aux.compute(flatten=True).loss_values)))
        super().write_step_metrics(
            step=step,
            aux=aux,
            schedules=schedules,
            log_summaries=log_summaries,
            timer=timer,
        )


@pytest.mark.parametrize("among_others", [False, True])
def test_writer_with_the_older_signature_keeps_working(tmp_path, among_others):
    writer = older = OlderSignature(workdir=tmp_path)
    if among_others:
        writer = kd.train.MultiWriter(writers=(older, Collecting()))
    make_trainer(
        tmp_path, num_train_steps=3, log_metrics_every=2, writer=writer
    ).train()
    names = ["losses/l2", "losses/total"]
    assert older.kept == [(0, names), (2, names)]
    assert [line["step"] for line in read_scalars(tmp_path / "train")][-1] == 2


def test_all_writers_are_closed_even_if_one_fails():
    closed = []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Closing(Collecting):
        name: str = ""

        def close(self):
            closed.append(self.name)
            if self.name == "bad":
                raise OSError("cannot be closed")

    names = ("good", "bad", "last")
    writer = kd.train.MultiWriter(writers=[Closing(name=name) for name in names])
    with pytest.raises(OSError, match="cannot be closed"):
        writer.close()
    assert sorted(closed) == ["bad", "good", "last"]


def test_texts_and_pictures_go_to_all_writers(tmp_path):
    writers = [
        kd.train.KDMetricWriter(workdir=epath.Path(tmp_path / name)) for name in "ab"
    ]
    writer = kd.train.MultiWriter(writers=writers, collection="train")
    writer.write_texts(0, {"note": "hello"})
    writer.write_images(0, {"picture": np.zeros((1, 2, 2, 3), np.uint8)})
    writer.flush(), writer.close()
    for name in "ab":
        assert list((tmp_path / name / "train").glob("events.out.tfevents.*"))


#
# Schedules
#


def test_schedules_of_every_kind_have_a_value():
    @dataclasses.dataclass  # not hashable
    class Unhashable:
        factor: float

        def __call__(self, step):
            return self.factor * step

    schedules = {
        "traced": lambda step: step * 0.5,
        "python": lambda step: 1.0 if int(step) > 2 else 0.0,
        "unhashable": Unhashable(2.0),
        "nested": {"deep": lambda step: step},
    }
    assert schedule_values(schedules, 4) == {
        "traced": 2.0,
        "python": 1.0,
        "unhashable": 8.0,
        "nested/deep": 4.0,
    }


#
# The background thread
#


def test_calls_run_in_order_and_their_error_arrives_with_its_traceback():
    seen, names = [], []

    def fail():
        raise OSError("disk full")

    background = BackgroundQueue("test-queue")
    background.submit(lambda: names.append(threading.current_thread().name))
    for index in range(3):
        background.submit(seen.append, index)
    background.wait()
    assert seen == [0, 1, 2] and names == ["test-queue"]
    background.submit(fail)
    with pytest.raises(OSError, match="disk full") as error:
        background.wait()
    assert any(entry.name == "fail" for entry in error.traceback)
    background.close()
    background.close()
    assert "test-queue" not in [t.name for t in threading.enumerate()]


def test_producer_waits_when_the_queue_is_full():
    release, done = threading.Event(), threading.Event()
    background = BackgroundQueue("test-queue", size=1)
    background.submit(release.wait)

    def produce():
        for _ in range(3):
            background.submit(lambda: None)
        done.set()

    producer = threading.Thread(target=produce)
    producer.start()
    assert not done.wait(0.05)
    release.set()
    producer.join()
    assert done.is_set()
    background.close()
