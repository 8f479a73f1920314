"""What a run does besides training: prepare its environment, export its model."""

from __future__ import annotations

import abc
import dataclasses
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
from etils import epath

from kauldron import config_base, status
from kauldron.train.run.workdir_files import make_writable

if TYPE_CHECKING:
    from kauldron.train.rng_streams import RngStreams
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TqdmInfo:
    """Options of the progress display.

    Attributes:
      desc: Its label.
      display: `"auto"`: a panel in a terminal, lines elsewhere; `"lines"`: always lines.
      log_xm: Accepted for older configs; has no effect.
    """

    desc: str = "train"
    display: Literal["auto", "lines"] = "auto"
    log_xm: bool = True

    def __post_init__(self) -> None:
        if self.display not in ("auto", "lines"):
            raise ValueError(
                "`cfg.setup.tqdm_info.display` must be 'auto' or 'lines', got "
                f"{self.display!r}."
            )


def _default_cache_dir() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return str(pathlib.Path(root) / "kauldron" / "jax")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """Options of a run that are not about the model.

    Attributes:
      tags: Words to find the run by; a text is split at commas. Kept in
        `run_info.json`.
      note_template: A note, formatted with `cfg`: `"lr={cfg.aux.lr}"`.
      tqdm_info: Options of the progress display.
      eval_only: Whether the trainer evaluates an earlier run.
      preemptable_eval: Whether a standalone evaluation keeps its checkpoint safe from
        the trainer's clean-up.
      start_over: Whether a run whose checkpoints are gone may begin again; its log is
        then moved aside. A run that has a checkpoint goes on from it all the same.
      compilation_cache_dir: Where compiled programs are kept for the next start;
        `None` turns this off.
      add_flatboard: Accepted for older configs; has no effect.
      flatboard_build_context: Accepted for older configs; has no effect.
    """

    tags: Sequence[str] = dataclasses.field(default_factory=list)
    note_template: str = ""
    tqdm_info: TqdmInfo = TqdmInfo()
    eval_only: bool = False
    preemptable_eval: bool = False
    start_over: bool = False
    compilation_cache_dir: str | None = dataclasses.field(
        default_factory=_default_cache_dir
    )
    add_flatboard: bool = False
    flatboard_build_context: Any = None

    def __post_init__(self) -> None:
        tags = self.tags
        if isinstance(tags, str):
            tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
        object.__setattr__(self, "tags", list(tags))

    def run(self, trainer: Trainer) -> None:
        """Check and create the workdir; called at the start of every job."""
        if not is_workdir_set(trainer):
            raise ValueError(
                "The workdir is not set: set `cfg.workdir = ...` or pass "
                "`--cfg.workdir=...`."
            )
        if status.is_lead_host:
            make_writable(trainer.workdir)
        _use_compilation_cache(self.compilation_cache_dir)
        _hide_gpus_from_tensorflow()

    def log_status(self, msg: str) -> None:
        """Log what the run is doing now."""
        status.log_status(msg)


def is_workdir_set(trainer: Trainer) -> bool:
    """Return whether the trainer has a workdir."""
    return str(trainer.workdir or ".") != "."


def _use_compilation_cache(folder: str | None) -> None:
    """Turn on jax's persistent cache, unless the user chose one already."""
    if folder is not None and jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", folder)


def _hide_gpus_from_tensorflow() -> None:
    """TensorFlow would otherwise take all GPU memory for itself."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        tensorflow.config.set_visible_devices([], "GPU")


#
# When the model is written for use without kauldron (how: `kauldron.export`)
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelExporter(config_base.UpdateFromRootCfg, abc.ABC):
    """Writes the model at the start of a fresh run.

    Attributes:
      name: Name of what is written.
      workdir: The trainer's, unless set.
      rng_streams: The trainer's, unless set.
    """

    name: str = "train_model"
    workdir: epath.Path = config_base.ROOT_CFG_REF.workdir
    rng_streams: RngStreams = config_base.ROOT_CFG_REF.rng_streams

    def get_rngs(self, is_training: bool, step: int = 0) -> dict[str, Any]:
        """Return keys by stream name for a training or an evaluation step."""
        if is_training:
            return self.rng_streams.train_rngs(step)
        return self.rng_streams.eval_rngs(step)

    @abc.abstractmethod
    def export(
        self, *, model: Any, state: TrainState, element_spec: Any, is_training: bool
    ) -> None:
        """Write the model.

        Args:
          model: The flax module.
          state: Its initial state.
          element_spec: Specs of a (global) batch.
          is_training: Whether to write the training or the evaluation forward pass.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopExporter(ModelExporter):
    """Writes nothing; the default of a trainer."""

    def export(self, **kwargs: Any) -> None:
        del kwargs
