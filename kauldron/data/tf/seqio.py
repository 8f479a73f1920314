"""Tasks and mixtures of SeqIO."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kauldron.data.engine.batches import current_share
from kauldron.data.in_memory import check_epochs
from kauldron.data.tf.pipeline import TFDataPipeline


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _SeqIOPipeline(TFDataPipeline):
    """The base of tasks and mixtures.

    Attributes:
      name: Under which it is registered.
      split: Such as "train".
      shuffle: Whether to shuffle.
      num_epochs: `None` for endless data.
      register: Function without arguments that registers it, called before it is looked
        up.
    """

    name: str
    split: str
    shuffle: bool = True
    num_epochs: int | None = None
    register: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epochs(self)

    @abc.abstractmethod
    def _registry(self, seqio: Any) -> Any:
        """Return where the name is looked up."""

    def _dataset_arguments(self) -> dict[str, Any]:
        return {}

    def ds_for_current_process(self, rng: Any) -> Any:
        provider = self._provider()
        if self.split not in provider.splits:
            raise ValueError(
                f"{self._label} has no split {self.split!r}; it has"
                f" {sorted(map(str, provider.splits))}."
            )
        share = current_share()
        return provider.get_dataset(
            split=self.split,
            shuffle=self.shuffle,
            num_epochs=self.num_epochs,
            seed=rng.fold_in("shuffle").as_seed() % 2**31,
            shard_info=_seqio().ShardInfo(index=share.index, num_shards=share.count),
            **self._dataset_arguments(),
        )

    def _provider(self) -> Any:
        if self.register is not None:
            self.register()
        registry = self._registry(_seqio())
        if self.name not in registry.names():
            known = sorted(registry.names())
            raise ValueError(
                f"{self._label} is not registered. Import the module that registers it,"
                f" or give a function as register=. Registered are: {known or 'none'}."
            )
        return registry.get(self.name)

    @property
    def _label(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SeqIOTask(_SeqIOPipeline):
    """A task of SeqIO.

    Attributes:
      shuffle_buffer_size: Out of how many records the next one is drawn; `None` leaves
        it to SeqIO.
    """

    shuffle_buffer_size: int | None = None

    def _registry(self, seqio: Any) -> Any:
        return seqio.TaskRegistry

    def _dataset_arguments(self) -> dict[str, Any]:
        return {"shuffle_buffer_size": self.shuffle_buffer_size}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SeqIOMixture(_SeqIOPipeline):
    """A mixture of SeqIO.

    Attributes:
      sequence_length: From feature to the number of tokens that are kept.
    """

    sequence_length: Mapping[str, int] | None = None

    def _registry(self, seqio: Any) -> Any:
        return seqio.MixtureRegistry

    def _dataset_arguments(self) -> dict[str, Any]:
        lengths = self.sequence_length
        return {"sequence_length": None if lengths is None else dict(lengths)}


def _seqio() -> Any:
    try:
        import seqio
    except ImportError as error:
        raise ImportError(
            "kd.data.tf.SeqIOTask needs SeqIO: pip install seqio"
        ) from error
    return seqio
