"""TensorBoard event files, without TensorFlow."""

from __future__ import annotations

import io
import os
import socket
import time
import wave
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from etils import epath
from tensorboardX import summary as tb_summary
from tensorboardX.proto import (
    event_pb2,
    summary_pb2,
    tensor_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorboardX.record_writer import RecordWriter

from kauldron.writers.png import encode_animated_png, encode_png, to_uint8

_TENSOR_KINDS = {
    "float32": types_pb2.DT_FLOAT,
    "float64": types_pb2.DT_DOUBLE,
    "float16": types_pb2.DT_HALF,
    "bfloat16": types_pb2.DT_BFLOAT16,
    "int8": types_pb2.DT_INT8,
    "int16": types_pb2.DT_INT16,
    "int32": types_pb2.DT_INT32,
    "int64": types_pb2.DT_INT64,
    "uint8": types_pb2.DT_UINT8,
    "uint16": types_pb2.DT_UINT16,
    "bool": types_pb2.DT_BOOL,
}


class EventFile:
    """One event file, opened at the first write."""

    def __init__(self, folder: epath.Path):
        self._folder = folder
        self._writer: RecordWriter | None = None

    def restart_at(self, step: int) -> None:
        """Tell readers to drop points of earlier files from `step` on."""
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(event_pb2.Event(wall_time=time.time(), step=step, session_log=log))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._add(
            step,
            [
                summary_pb2.Summary.Value(tag=tag, simple_value=float(value))
                for tag, value in values.items()
            ],
        )

    def tensors(
        self, step: int, arrays: Mapping[str, np.ndarray], metadata: Any
    ) -> None:
        """Arrays as they are, for the plugin that the metadata names."""
        self._add(
            step,
            [
                summary_pb2.Summary.Value(
                    tag=tag,
                    tensor=_tensor(tag, np.asarray(array)),
                    metadata=_summary_metadata(metadata),
                )
                for tag, array in arrays.items()
            ],
        )

    def texts(self, step: int, texts: Mapping[str, str]) -> None:
        for tag, text in texts.items():
            message = tb_summary.text(tag, text)
            for value in message.value:
                value.tag = tag
            self._add(step, message.value)

    def images(self, step: int, images: Mapping[str, np.ndarray]) -> None:
        """Pictures `n h w c` by name."""
        for tag, batch in images.items():
            pictures = to_uint8(batch)
            encoded = [encode_png(picture) for picture in pictures]
            self._add_pictures(step, tag, encoded, *pictures.shape[1:])

    def videos(
        self,
        step: int,
        videos: Mapping[str, np.ndarray],
        encode: Callable[[np.ndarray], bytes] = encode_animated_png,
    ) -> None:
        """Videos `n t h w c` by name, as animated pictures."""
        for tag, batch in videos.items():
            frames = to_uint8(batch)
            encoded = [encode(video) for video in frames]
            self._add_pictures(step, tag, encoded, *frames.shape[2:])

    def histograms(
        self, step: int, arrays: Mapping[str, np.ndarray], num_buckets: int
    ) -> None:
        for tag, array in arrays.items():
            values = np.asarray(array, np.float64).ravel()
            counts, limits = np.histogram(values, bins=num_buckets)
            message = tb_summary.histogram_raw(
                tag,
                min=float(values.min(initial=np.inf)),
                max=float(values.max(initial=-np.inf)),
                num=values.size,
                sum=float(values.sum()),
                sum_squares=float(np.square(values).sum()),
                bucket_limits=limits[1:].tolist(),
                bucket_counts=counts.tolist(),
            )
            self._add(step, message.value)

    def point_cloud(
        self, step: int, tag: str, points: Any, colors: Any, config: Any
    ) -> None:
        """Points `p 3` (or `n p 3`) with colours of the same shape or none."""
        points, colors = _with_batch_axis(points), _with_batch_axis(colors)
        message = tb_summary.mesh(tag, points, colors, None, dict(config or {}))
        self._add(step, message.value)

    def audios(
        self, step: int, audios: Mapping[str, np.ndarray], sample_rate: int
    ) -> None:
        """Sounds `n t c` in [-1, 1] by name."""
        for tag, batch in audios.items():
            values = []
            for index, sound in enumerate(np.asarray(batch)):
                audio = summary_pb2.Summary.Audio(
                    sample_rate=sample_rate,
                    num_channels=sound.shape[1],
                    length_frames=sound.shape[0],
                    encoded_audio_string=_encode_wav(sound, sample_rate),
                    content_type="audio/wav",
                )
                values.append(
                    summary_pb2.Summary.Value(tag=f"{tag}/audio/{index}", audio=audio)
                )
            self._add(step, values)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.flush()
            self._writer.close()
            self._writer = None

    def _add_pictures(
        self, step: int, tag: str, encoded: list[bytes], height: int, width: int, c: int
    ) -> None:
        self._add(
            step,
            [
                summary_pb2.Summary.Value(
                    tag=f"{tag}/{index}" if len(encoded) > 1 else tag,
                    image=summary_pb2.Summary.Image(
                        height=height,
                        width=width,
                        colorspace=c,
                        encoded_image_string=png,
                    ),
                )
                for index, png in enumerate(encoded)
            ],
        )

    def _add(self, step: int, values: Any) -> None:
        message = summary_pb2.Summary(value=values)
        self._write(event_pb2.Event(wall_time=time.time(), step=step, summary=message))

    def _write(self, event: event_pb2.Event) -> None:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = (
                f"events.out.tfevents.{time.time_ns() / 1e9:020.9f}."
                f"{socket.gethostname()}.{os.getpid()}"
            )
            writer = self._writer = RecordWriter(str(self._folder / name))
            version = event_pb2.Event(
                wall_time=time.time(), file_version="brain.Event:2"
            )
            writer.write(version.SerializeToString())
        self._writer.write(event.SerializeToString())  # type: ignore[union-attr]


def _tensor(tag: str, array: np.ndarray) -> tensor_pb2.TensorProto:
    kind = _TENSOR_KINDS.get(array.dtype.name)
    if kind is None:
        raise ValueError(
            f"The tensor {tag!r} cannot be written: its dtype is {array.dtype}, and "
            f"event files take only {', '.join(_TENSOR_KINDS)}."
        )
    sizes = [tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in array.shape]
    return tensor_pb2.TensorProto(
        dtype=kind,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=sizes),
        tensor_content=np.ascontiguousarray(array).tobytes(),
    )


def _summary_metadata(metadata: Any) -> summary_pb2.SummaryMetadata:
    """From `{"plugin_name": ..., "content": ...}`, or TensorBoard's own message."""
    if hasattr(metadata, "SerializeToString"):
        return summary_pb2.SummaryMetadata.FromString(metadata.SerializeToString())
    plugin = summary_pb2.SummaryMetadata.PluginData(**dict(metadata or {}))
    return summary_pb2.SummaryMetadata(plugin_data=plugin)


def _with_batch_axis(array: Any) -> np.ndarray | None:
    if array is None:
        return None
    return np.asarray(array).reshape(-1, *np.shape(array)[-2:])


def _encode_wav(sound: np.ndarray, sample_rate: int) -> bytes:
    samples = (np.clip(sound, -1, 1) * 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(sound.shape[1])
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()
