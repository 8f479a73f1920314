import io
import json
import logging
import pickle
import threading
import wave

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kauldron import kd
from kauldron.train import AuxiliariesOutput
from kauldron.writers import KDMetricWriter, read_scalars, texts
from kauldron.writers.png import encode_animated_png, encode_png, to_uint8


@pytest.fixture
def writer(tmp_path):
    writer = KDMetricWriter(workdir=epath.Path(tmp_path), collection="train")
    yield writer
    writer.close()


def _load(folder):
    """What TensorBoard itself reads."""
    accumulator = EventAccumulator(str(folder), size_guidance={"images": 0})
    accumulator.Reload()
    return accumulator


def _write(writer, step, *, losses=None, metrics=None, summaries=None):
    output = AuxiliariesOutput(
        loss_values=losses or {},
        metric_values=metrics or {},
        summary_values=summaries or {},
    )
    writer.write_step_metrics(step=step, aux=output, schedules={}, log_summaries=True)


def test_tensorboard_reads_scalars_images_texts_and_histograms(writer, tmp_path):
    picture = np.linspace(0, 1, 2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)
    summaries = {
        "summaries/picture": picture,
        "summaries/text": "some **text**",
        "summaries/histogram": kd.summaries.Histogram(
            tensor=np.arange(10.0), num_buckets=5
        ),
    }
    _write(writer, 3, losses={"losses/total": np.float32(0.5)}, summaries=summaries)
    writer.close()
    loaded = _load(tmp_path / "train")
    assert [(e.step, e.value) for e in loaded.Scalars("losses/total")] == [(3, 0.5)]
    encoded = loaded.Images("summaries/picture/1")[0].encoded_image_string
    decoded = np.asarray(Image.open(io.BytesIO(encoded)))
    np.testing.assert_array_equal(decoded, to_uint8(picture[1]))
    histogram = loaded.Histograms("summaries/histogram")[0].histogram_value
    assert (histogram.num, histogram.min, histogram.max) == (10, 0, 9)
    assert len(histogram.bucket) == 5
    text = loaded.Tensors("summaries/text")[0].tensor_proto.string_val[0]
    assert text == b"some **text**"


def test_scalars_file_has_one_json_object_per_write(writer, tmp_path):
    _write(writer, 0, losses={"losses/a": 1.0}, metrics={"metrics/n": np.int32(3)})
    _write(writer, 5, losses={"losses/a": float("nan"), "losses/b": float("-inf")})
    lines = (tmp_path / "train" / "scalars.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert first["step"] == 0 and first["values"] == {"losses/a": 1.0, "metrics/n": 3.0}
    assert second["values"] == {"losses/a": "nan", "losses/b": "-inf"}


def test_vectors_are_split_and_large_arrays_skipped_with_a_warning(writer, tmp_path):
    metrics = {
        "metrics/one": np.ones((1, 1)),
        "metrics/vector": np.array([1.0, 2.0]),
        "metrics/large": np.zeros(100),
        "metrics/flag": np.bool_(True),
    }
    with pytest.warns(UserWarning, match=r"metrics/large.*\(100,\)"):
        _write(writer, 0, metrics=metrics)
    [line] = read_scalars(tmp_path / "train")
    assert line["values"] == {
        "metrics/one": 1.0,
        "metrics/vector/0": 1.0,
        "metrics/vector/1": 2.0,
        "metrics/flag": 1.0,
    }


def test_unknown_summary_is_named_in_one_warning(writer):
    for step in range(2):
        if step == 0:
            with pytest.warns(UserWarning, match=r"'summaries/odd'.*float64\[3, 3\]"):
                _write(writer, step, summaries={"summaries/odd": np.ones((3, 3))})
        else:
            _write(writer, step, summaries={"summaries/odd": np.ones((3, 3))})


def test_empty_image_summary_is_an_error_naming_it(writer):
    with pytest.raises(ValueError, match="summaries/none"):
        _write(writer, 0, summaries={"summaries/none": np.ones((0, 4, 4, 3))})


def test_log_line_has_short_names_and_few_digits(writer, caplog):
    with caplog.at_level(logging.INFO, logger="kauldron"):
        writer.write_scalars(7, {"losses/b": 1 / 3, "losses/a": 2})
    assert "[7] train  b 0.333  a 2.000" in caplog.text


def test_of_the_times_only_the_speed_is_in_the_log_line(writer, caplog, tmp_path):
    scalars = {
        "a": 1,
        "perf_stats/train/avg_time_sec": 2,
        "perf_stats/steps_per_sec": 3,
    }
    with caplog.at_level(logging.INFO, logger="kauldron"):
        writer.write_scalars(7, scalars)
    assert caplog.messages[-1] == "[7] train  a 1.000  3 steps/s"
    writer.close()
    [point] = read_scalars(tmp_path / "train")
    assert point["values"] == scalars


def test_histogram_leaves_out_and_reports_what_is_not_finite(writer, tmp_path):
    with pytest.warns(UserWarning, match="'h': 2 values are not finite"):
        writer.write_histograms(0, {"h": np.array([1.0, np.nan, np.inf, 2.0])})
    writer.close()
    assert _load(tmp_path / "train").Histograms("h")[0].histogram_value.num == 2


def test_resume_drops_superseded_points_in_both_files(tmp_path):
    first = KDMetricWriter(workdir=epath.Path(tmp_path), collection="train")
    for step in (0, 5, 10):
        first.write_scalars(step, {"losses/a": float(step)})
    first.close()
    second = first.replace()
    second.resume(step=5)
    second.write_scalars(5, {"losses/a": -5.0})
    second.close()
    points = [(e.step, e.value) for e in _load(tmp_path / "train").Scalars("losses/a")]
    assert points == [(0, 0.0), (5, -5.0)]
    lines = read_scalars(tmp_path / "train")
    assert [line["step"] for line in lines] == [0, 5]


def test_half_a_line_of_a_killed_process_is_cut_off(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "scalars.jsonl").write_text('{"step": 0, "values": {}}\n{"step": 1, "va')
    assert [line["step"] for line in read_scalars(folder)] == [0]
    writer = KDMetricWriter(workdir=epath.Path(tmp_path), collection="train")
    writer.write_scalars(1, {"a": 1.0})
    writer.close()
    assert [line["step"] for line in read_scalars(folder)] == [0, 1]


def test_failure_in_the_background_is_raised_by_the_next_call(tmp_path):
    (tmp_path / "train").write_text("a file where the folder should be")
    writer = KDMetricWriter(workdir=epath.Path(tmp_path), collection="train")
    writer.write_scalars(0, {"a": 1.0})
    with pytest.raises(OSError):
        writer.flush()
    writer.close()


def test_closing_ends_the_thread_and_writing_again_opens_anew(writer, tmp_path):
    before = set(threading.enumerate())
    writer.write_scalars(0, {"a": 1.0})
    writer.close()
    assert set(threading.enumerate()) <= before
    writer.write_scalars(1, {"a": 2.0})
    writer.close()
    assert [line["step"] for line in read_scalars(tmp_path / "train")] == [0, 1]


def test_writer_without_collection_says_how_to_get_one(tmp_path):
    writer = KDMetricWriter(workdir=epath.Path(tmp_path))
    with pytest.raises(ValueError, match="collection"):
        writer.write_scalars(0, {"a": 1.0})


def test_schedules_are_written_at_the_step(writer, tmp_path):
    writer.write_step_metrics(
        step=4,
        aux=AuxiliariesOutput(),
        schedules={"lr": lambda step: 0.5 * step, "nested": {"b": lambda step: step}},
        log_summaries=False,
    )
    [line] = read_scalars(tmp_path / "train")
    assert line["values"] == {"schedules/lr": 2.0, "schedules/nested/b": 4.0}


def test_videos_become_pictures_that_play(writer, tmp_path):
    video = np.random.default_rng(0).integers(0, 255, (1, 3, 4, 5, 3)).astype(np.uint8)
    _write(writer, 0, summaries={"summaries/video": video})
    writer.close()
    encoded = (
        _load(tmp_path / "train").Images("summaries/video")[0].encoded_image_string
    )
    picture = Image.open(io.BytesIO(encoded))
    assert picture.n_frames == 3
    for index in range(3):
        picture.seek(index)
        np.testing.assert_array_equal(
            np.asarray(picture.convert("RGB")), video[0, index]
        )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_is_read_back_by_pillow(channels):
    rng = np.random.default_rng(channels)
    picture = rng.integers(0, 255, (6, 7, channels)).astype(np.uint8)
    decoded = np.asarray(Image.open(io.BytesIO(encode_png(picture))))
    np.testing.assert_array_equal(decoded.reshape(picture.shape), picture)


def test_grey_frames_are_animated_too():
    frames = np.stack([np.full((2, 2, 1), value, np.uint8) for value in (0, 200)])
    assert Image.open(io.BytesIO(encode_animated_png(frames))).n_frames == 2


def test_floats_become_bytes_rounded_and_clipped():
    values = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan])
    np.testing.assert_array_equal(to_uint8(values), [0, 0, 128, 255, 255, 0])


def test_point_clouds_are_written_for_the_mesh_plugin(writer, tmp_path):
    cloud = kd.summaries.PointCloud(point_clouds=np.zeros((5, 3), np.float32))
    _write(writer, 0, summaries={"summaries/cloud": cloud})
    writer.close()
    assert any(
        tag.startswith("summaries/cloud")
        for tag in _load(tmp_path / "train").Tags()["tensors"]
    )


def test_multi_writer_hands_everything_to_each(tmp_path):
    writer = kd.train.MultiWriter(
        writers=[
            KDMetricWriter(workdir=epath.Path(tmp_path / name)) for name in ("a", "b")
        ],
        workdir=epath.Path(tmp_path),
        collection="eval",
    )
    _write(writer, 2, losses={"losses/x": 1.0})
    writer.close()
    for name in ("a", "b"):
        [line] = read_scalars(tmp_path / name / "eval")
        assert line["step"] == 2


def test_tensors_are_written_for_the_plugin_that_is_named(writer, tmp_path):
    values = {"t": np.arange(6, dtype=np.float32).reshape(2, 3)}
    metadata = {"plugin_name": "mine", "content": b"some bytes"}
    writer.write_summaries(4, values, metadata=metadata)
    writer.close()
    loaded = _load(tmp_path / "train")
    assert loaded.PluginTagToContent("mine") == {"t": b"some bytes"}
    [event] = loaded.Tensors("t")
    assert event.step == 4
    content = np.frombuffer(event.tensor_proto.tensor_content, np.float32)
    np.testing.assert_array_equal(content.reshape(2, 3), values["t"])


def test_tensor_of_texts_is_refused_by_name(writer):
    writer.write_summaries(0, {"names": np.array(["a"])})
    with pytest.raises(ValueError, match="'names'"):
        writer.flush()


def test_sounds_are_written_as_wave_files(writer, tmp_path):
    sound = np.sin(np.linspace(0, 99, 800)).reshape(1, 800, 1)
    writer.write_audios(0, {"tone": sound}, sample_rate=8000)
    writer.close()
    [event] = _load(tmp_path / "train").Audio("tone/audio/0")
    with wave.open(io.BytesIO(event.encoded_audio_string)) as file:
        assert file.getnframes() == 800 and file.getframerate() == 8000


def test_hyper_parameters_are_written_as_a_text(writer, tmp_path):
    writer.write_hparams({"lr": 0.1, "depth": 3})
    writer.close()
    text = _load(tmp_path / "train").Tensors("hparams")[0].tensor_proto.string_val[0]
    assert b"`lr`: 0.1" in text and b"`depth`: 3" in text


def test_parameters_are_described_with_their_statistics(writer, tmp_path):
    params = {"dense": {"kernel": jnp.full((4, 2), 3.0), "bias": jnp.zeros(2)}}
    writer.write_param_overview(0, params)
    writer.close()
    loaded = _load(tmp_path / "train")
    assert loaded.Scalars("num_params")[0].value == 10
    text = loaded.Tensors("parameters")[0].tensor_proto.string_val[0].decode()
    assert "| dense.kernel | (4, 2) | float32 | 8 | 3 | 0 |" in text
    assert "Total: 10" in text


def test_many_parameters_have_the_same_statistics(monkeypatch):
    params = {
        "w": jax.device_put(np.random.default_rng(0).normal(size=(30, 7))),
        "n": jax.device_put(np.arange(3)),
    }
    small = texts.describe_params(params)
    monkeypatch.setattr(texts, "_QUICK_TO_COPY_BYTES", 0)
    assert texts.describe_params(params) == small


def test_unreadable_lines_are_dropped_when_a_run_resumes(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    good = [json.dumps({"step": i, "time": 0.0, "values": {}}) for i in range(3)]
    damaged = "\0\0\0\n".join(["\n".join(good[:2]) + "\n", good[2] + "\n"])
    (folder / "scalars.jsonl").write_text(damaged)
    writer = KDMetricWriter(workdir=epath.Path(tmp_path), collection="train")
    writer.resume(step=2)
    writer.write_scalars(2, {"a": 1.0})
    writer.close()
    assert [line["step"] for line in read_scalars(folder)] == [0, 1, 2]


def test_full_disk_is_reported_with_the_folder(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "scalars.jsonl").symlink_to("/dev/full")
    writer = KDMetricWriter(workdir=epath.Path(tmp_path), collection="train")
    writer.write_scalars(0, {"a": 1.0})
    with pytest.raises(OSError, match="No space left") as error:
        writer.flush()
    assert str(folder) in str(error.value)


def test_files_are_created_at_the_first_write(writer, tmp_path):
    writer.flush()
    assert list(tmp_path.iterdir()) == []
    writer.write_texts(0, {"a": "text"})
    writer.close()
    assert [path.name[:6] for path in (tmp_path / "train").iterdir()] == ["events"]


def test_writer_can_be_pickled_while_it_is_open(writer):
    writer.write_scalars(0, {"a": 1.0})
    copy = pickle.loads(pickle.dumps(writer))
    assert copy == writer


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.zeros(3), r"'a' is of shape \(3,\)"), ("b", "'a' is 'b'"), (None, "is None")],
)
def test_a_scalar_that_is_no_number_is_named(tmp_path, value, words):
    writer = kd.train.KDMetricWriter(workdir=tmp_path, collection="train")
    with pytest.raises(TypeError, match=f"write_scalars takes numbers, but.*{words}"):
        writer.write_scalars(step=0, scalars={"a": value})
