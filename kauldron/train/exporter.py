"""When a trainer writes its model for use without kauldron (how: `kauldron.export`)."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import config_base

if TYPE_CHECKING:
    from kauldron.train.rng_streams import RngStreams
    from kauldron.train.state import TrainState


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
