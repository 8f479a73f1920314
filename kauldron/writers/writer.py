"""What every writer offers, several writers as one, and one that writes nothing."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from etils import epath

from kauldron import config_base, status
from kauldron import summaries as kd_summaries
from kauldron.optim.updates import schedule_values
from kauldron.writers.texts import (
    describe_config,
    describe_context,
    describe_params,
    describe_specs,
)

COLLECTION_NOT_SET = "$not_set$"

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriterBase(config_base.UpdateFromRootCfg, abc.ABC):
    """Takes the values of a run. Only `write_scalars` must be written by a subclass.

    Attributes:
      workdir: The trainer's, unless set.
      collection: Which values these are: `"train"`, or the name of an evaluator. Set
        by the trainer.
    """

    workdir: epath.Path = config_base.ROOT_CFG_REF.workdir
    collection: str = COLLECTION_NOT_SET

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        config_base.accept_newer_keywords(cls, "write_step_metrics", "flush")

    def replace(self, **changes: Any) -> Self:
        """Return a changed copy, which opens files of its own."""
        return dataclasses.replace(self, **changes)

    #
    # What the training loop and the evaluators call
    #

    def write_step_metrics(
        self,
        *,
        step: int,
        aux: Any,
        schedules: Mapping[str, Any],
        log_summaries: bool,
        timer: Any = None,
        flush: bool = True,
    ) -> None:
        """Compute and write the values of a step.

        Args:
          step: The step.
          aux: `AuxiliariesState`, or `AuxiliariesOutput` with flat names.
          schedules: Schedules to write the value of.
          log_summaries: Whether to write the summaries.
          timer: A `Chrono`, whose statistics are written (and reset).
          flush: Whether everything must be on disk before this returns.
        """
        output = aux.compute(flatten=True)
        perf_stats = timer.flush_metrics() if timer is not None else {}
        if status.is_lead_host:
            self.write_values(
                step,
                output,
                schedules=schedule_values(schedules, step),
                perf_stats=perf_stats,
                log_summaries=log_summaries,
            )
            if flush:
                self.flush()

    def write_values(
        self,
        step: int,
        output: Any,
        *,
        schedules: Mapping[str, float],
        perf_stats: Mapping[str, float],
        log_summaries: bool,
    ) -> None:
        """Write values that are computed already; called on the lead host only.

        Args:
          step: The step.
          output: `AuxiliariesOutput` with flat names.
          schedules: Values of the schedules.
          perf_stats: Time statistics.
          log_summaries: Whether to write the summaries.
        """
        scalars = {
            **output.loss_values,
            **output.metric_values,
            **{f"schedules/{name}": value for name, value in schedules.items()},
            **{f"perf_stats/{name}": value for name, value in perf_stats.items()},
        }
        summaries = output.summary_values if log_summaries else {}
        self.write_routed(step, route(scalars, summaries, warn=self._warn_once))

    def write_routed(self, step: int, routed: Routed) -> None:
        """Call the `write_...` method of each kind that has values."""
        if routed.scalars:
            self.write_scalars(step, routed.scalars)
        if routed.images:
            self.write_images(step, routed.images)
        if routed.videos:
            self.write_videos(step, routed.videos)
        if routed.texts:
            self.write_texts(step, routed.texts)
        for name, histogram in routed.histograms.items():
            self.write_histograms(
                step, {name: histogram.tensor}, num_buckets=histogram.num_buckets
            )
        for name, cloud in routed.point_clouds.items():
            self.write_pointcloud(
                step,
                {name: cloud.point_clouds},
                point_colors={name: cloud.point_colors},
                configs={name: cloud.configs},
            )

    def check(self) -> None:
        """Raise if nothing can be written; called before a run begins."""

    def write_start(self, *, trainer: Any, state: Any, step: int) -> None:
        """Describe a run that begins: its config, parameters, data and context."""
        self.write_config(trainer.raw_cfg)
        self.write_param_overview(step, state.params)
        self.write_element_spec(step, trainer.train_ds.element_spec)
        self.write_context_structure(step, trainer)

    def resume(self, *, step: int) -> None:
        """Drop the values of `step` and later: they will be written again."""
        del step

    #
    # Kinds of values
    #

    @abc.abstractmethod
    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write numbers."""

    def write_summaries(
        self, step: int, values: Arrays, *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Write raw tensors."""
        self._unsupported("tensors", values)

    def write_images(self, step: int, images: Arrays) -> None:
        """Write pictures `n h w c`: floats in [0, 1] or bytes."""
        self._unsupported("images", images)

    def write_histograms(
        self, step: int, arrays: Arrays, *, num_buckets: int | None = None
    ) -> None:
        """Write histograms of all values of each array."""
        self._unsupported("histograms", arrays)

    def write_pointcloud(
        self,
        step: int,
        point_clouds: Arrays,
        *,
        point_colors: Mapping[str, Any] | None = None,
        configs: Mapping[str, Any] | None = None,
    ) -> None:
        """Write point clouds `n p 3`."""
        self._unsupported("point clouds", point_clouds)

    def write_videos(self, step: int, videos: Arrays) -> None:
        """Write videos `n t h w c`."""
        self._unsupported("videos", videos)

    def write_audios(self, step: int, audios: Arrays, *, sample_rate: int) -> None:
        """Write sounds `n t c`."""
        self._unsupported("audio", audios)

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Write texts (Markdown)."""
        self._unsupported("texts", texts)

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write hyper-parameters."""
        self._unsupported("hyper-parameters", hparams)

    #
    # Descriptions of the run
    #

    def write_config(self, config: Any) -> None:
        """Write the config as a text; nothing for `None`."""
        if config is not None:
            self.write_texts(0, {"config": describe_config(config)})

    def write_param_overview(self, step: int, params: Any) -> None:
        """Write a table of the parameters, and how many there are."""
        table, count = describe_params(params)
        self.write_texts(step, {"parameters": table})
        self.write_scalars(step, {"num_params": count})

    def write_element_spec(self, step: int, element_spec: Any) -> None:
        """Write what a batch looks like."""
        text = describe_specs(element_spec)
        self.write_texts(step, {"element_spec": text})

    def write_context_structure(self, step: int, trainer: Any) -> None:
        """Write what keys can name in a step."""
        text = describe_context(trainer.context_specs)
        self.write_texts(step, {"context_spec": text})

    def flush(self) -> None:
        """Bring everything to disk; raises what went wrong in the background."""

    def close(self) -> None:
        """Flush and release what is open; a later write opens it again."""

    #
    # Details
    #

    def _folder(self) -> epath.Path:
        if self.collection == COLLECTION_NOT_SET:
            raise ValueError(
                f"{type(self).__name__}.collection is not set: use the writer inside a "
                "trainer or an evaluator, or call `writer.replace(collection=...)`."
            )
        self._assert_root_cfg_resolved()
        return epath.Path(self.workdir) / self.collection

    def _unsupported(self, kind: str, values: Mapping[str, Any]) -> None:
        self._warn_once(
            f"{type(self).__name__} does not write {kind}: {', '.join(values)}."
        )

    def _warn_once(self, message: str) -> None:
        seen: frozenset[str] = vars(self).get("_warned", frozenset())
        if message not in seen:
            object.__setattr__(self, "_warned", seen | {message})
            status.warn(message, stacklevel=3)


def with_collection(writer: WriterBase, collection: str) -> WriterBase:
    """Return the writer for a collection; the same object if it is set already."""
    if writer.collection == collection:
        return writer
    return writer.replace(collection=collection)


@dataclasses.dataclass(frozen=True)
class FlushedTimer:
    """Time statistics as they were at the step that they belong to."""

    stats: dict[str, float]

    def flush_metrics(self) -> dict[str, float]:
        return self.stats


#
# Several writers, or none
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiWriter(WriterBase):
    """Hands everything to each of its writers.

    Attributes:
      writers: The writers; collection and workdir are set on all of them.
    """

    __root_cfg_fields_to_recurse__: ClassVar[tuple[str, ...]] = ("writers",)

    writers: Sequence[WriterBase] = ()

    def __post_init__(self) -> None:
        writers = tuple(self.writers)
        for index, writer in enumerate(writers):
            if not isinstance(writer, WriterBase):
                raise TypeError(
                    f"MultiWriter.writers[{index}] must be a writer, got "
                    f"{type(writer).__name__}: {writer!r}"
                )
        if self.collection != COLLECTION_NOT_SET:
            writers = tuple(with_collection(w, self.collection) for w in writers)
        object.__setattr__(self, "writers", writers)

    def write_step_metrics(self, *, aux: Any, timer: Any = None, **kwargs: Any) -> None:
        # Computed and timed once, not once for each writer.
        output = aux.compute(flatten=True)
        flushed = FlushedTimer(timer.flush_metrics()) if timer is not None else None
        for writer in self.writers:
            writer.write_step_metrics(aux=output, timer=flushed, **kwargs)

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        for writer in self.writers:
            writer.write_scalars(step, scalars)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # all of them, even if one fails
            for writer in self.writers:
                stack.callback(writer.close)


def _forward(name: str) -> Any:
    def write(self: MultiWriter, *args: Any, **kwargs: Any) -> None:
        for writer in self.writers:
            getattr(writer, name)(*args, **kwargs)

    write.__name__ = name
    write.__doc__ = getattr(WriterBase, name).__doc__
    return write


_OWN = {"replace", *vars(MultiWriter)}
for _name, _member in vars(WriterBase).items():
    if callable(_member) and not _name.startswith("_") and _name not in _OWN:
        setattr(MultiWriter, _name, _forward(_name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopWriter(WriterBase):
    """Writes nothing; what `cfg.writer = None` means."""

    def write_step_metrics(self, **kwargs: Any) -> None:
        del kwargs

    def write_start(self, **kwargs: Any) -> None:
        del kwargs

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        del step, scalars

    def _unsupported(self, kind: str, values: Mapping[str, Any]) -> None:
        del kind, values


#
# Which kind a value is, and so how it is written
#


LARGEST_VECTOR = 32


@dataclasses.dataclass
class Routed:
    """Values by kind, each by name.

    Attributes:
      scalars: Numbers.
      images: `n h w c`.
      videos: `n t h w c`.
      histograms: `kd.summaries.Histogram`.
      point_clouds: `kd.summaries.PointCloud`.
      texts: Texts.
    """

    scalars: dict[str, float] = dataclasses.field(default_factory=dict)
    images: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    videos: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    histograms: dict[str, Any] = dataclasses.field(default_factory=dict)
    point_clouds: dict[str, Any] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)


def route(
    scalars: Mapping[str, Any],
    summaries: Mapping[str, Any],
    *,
    warn: Callable[[str], None] = status.warn,
) -> Routed:
    """Sort values into kinds; vectors are split into `name/0`, `name/1`, ...

    `warn` is called with a message for each value that cannot be written.
    """
    routed = Routed()
    for name, value in scalars.items():
        _route_scalar(routed, name, value, warn)
    for name, value in summaries.items():
        _route_summary(routed, name, value, warn)
    return routed


def _route_scalar(routed: Routed, name: str, value: Any, warn: Any) -> None:
    if isinstance(value, str):
        routed.texts[name] = value
        return
    array = np.asarray(value)
    if not _is_number(array):
        warn(f"{name} is not written: a {array.dtype} array is not a number.")
    elif array.size == 1:
        routed.scalars[name] = array.reshape(()).astype(np.float64).item()
    elif array.size <= LARGEST_VECTOR:
        for index, entry in enumerate(array.ravel().astype(np.float64)):
            routed.scalars[f"{name}/{index}"] = entry.item()
    else:
        warn(
            f"{name} is not written: its shape is {array.shape}, and only up to "
            f"{LARGEST_VECTOR} numbers are written one by one. Reduce it, or use a "
            "summary."
        )


def _route_summary(routed: Routed, name: str, value: Any, warn: Any) -> None:
    if isinstance(value, kd_summaries.Histogram):
        routed.histograms[name] = value
    elif isinstance(value, kd_summaries.PointCloud):
        routed.point_clouds[name] = value
    elif isinstance(value, str):
        routed.texts[name] = value
    elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        routed.texts |= {f"{name}/{index}": text for index, text in enumerate(value)}
    else:
        _route_array(routed, name, np.asarray(value), warn)


def _route_array(routed: Routed, name: str, array: np.ndarray, warn: Any) -> None:
    if array.dtype.kind in "OUS" and all(
        isinstance(text, str | bytes) for text in array.ravel()
    ):
        for index, text in enumerate(array.ravel()):
            text = text.decode() if isinstance(text, bytes) else str(text)
            routed.texts[f"{name}/{index}" if array.size > 1 else name] = text
        return
    if array.ndim == 4 and array.size == 0:
        raise ValueError(
            f"The summary {name!r} has no image: its shape is {array.shape}."
        )
    is_picture = array.shape[-1:] in {(1,), (3,), (4,)} and (
        _is_float(array) or array.dtype == np.uint8
    )
    if array.ndim == 4 and is_picture:
        routed.images[name] = array
    elif array.ndim == 5 and is_picture:
        routed.videos[name] = array
    elif array.size == 1 and _is_number(array):
        routed.scalars[name] = array.reshape(()).astype(np.float64).item()
    else:
        warn(
            f"The summary {name!r} is not written: {array.dtype}{list(array.shape)} is "
            "neither an image (n h w c), a video (n t h w c), a histogram, a point cloud, "
            "a text nor a number."
        )


def _is_number(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or _is_float(array)


def _is_float(array: np.ndarray) -> bool:
    """Also bfloat16 and the small floats, which numpy calls void."""
    return array.dtype.kind == "f" or "float" in array.dtype.name
