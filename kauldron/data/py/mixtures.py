"""Pipelines made of several others."""

from __future__ import annotations

import abc
import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kauldron.data.dataset import shared_class_names
from kauldron.data.engine import keys, mixtures
from kauldron.data.engine.entries import Entry
from kauldron.data.engine.nodes import ShuffleNode, StreamNode
from kauldron.data.py.pipeline import PyGrainPipeline, StreamOptions
from kauldron.errors import a_type
from kauldron.immutabledict import ImmutableDict

# Fields of the parts that only matter where a pipeline is iterated itself.
_IGNORED = (
    "batch_size",
    "num_epochs",
    "num_workers",
    "seed",
    "batch_drop_remainder",
    "read_options",
)


@dataclasses.dataclass(frozen=True, eq=False)
class MixtureBase(PyGrainPipeline):
    """Base of pipelines that draw from others.

    The parts keep their own `shuffle` and `transforms`. What belongs to iterating
    (`batch_size`, `num_epochs`, `num_workers`, `seed`, ...) is taken from the mixture;
    the parts' values are ignored, with a warning.

    Attributes:
      datasets: The parts.
      shuffle: Whether positions are shuffled within each epoch of the mixture.
    """

    datasets: Sequence[PyGrainPipeline] = dataclasses.field(kw_only=False)
    shuffle: bool = dataclasses.field(default=True, kw_only=True)

    __root_cfg_fields_to_recurse__ = ("datasets",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.datasets, Mapping):
            object.__setattr__(self, "datasets", tuple(self.datasets))
        if not self.datasets:
            raise ValueError(f"{type(self).__name__} needs at least one data set.")
        for label, child in self._children().items():
            self._check_child(label, child)

    def _children(self) -> dict[str, PyGrainPipeline]:
        """Return the parts, by what messages call them."""
        return {f"datasets[{i}]": child for i, child in enumerate(self.datasets)}

    def _check_child(self, label: str, child: Any) -> None:
        name = type(self).__name__
        if not isinstance(child, PyGrainPipeline):
            raise TypeError(
                f"{name}: {label} is {a_type(child)}; expected a pipeline of"
                " kd.data.py."
            )
        defaults = {f.name: f.default for f in dataclasses.fields(child)}
        ignored = [
            field
            for field in _IGNORED
            if getattr(child, field) != defaults[field]
            and field not in child._inherited
        ]
        if ignored:
            warnings.warn(
                f"{name}: {label} ({type(child).__name__}) sets {', '.join(ignored)};"
                " a mixture ignores that in its parts: set it on the mixture itself.",
                stacklevel=4,
            )

    @abc.abstractmethod
    def _mixed(self, streams: list[StreamNode]) -> StreamNode:
        """Return one stream of the streams of the parts."""

    def _stream(self, key: keys.Key, options: StreamOptions) -> StreamNode:
        streams = []
        for number, (label, child) in enumerate(self._children().items()):
            child_key = keys.fold_in(key, number)
            stream = child._stream_with_transforms(child_key, options)
            self._check_stream(label, child, stream)
            streams.append(stream)
        node = self._mixed(streams)
        if self.shuffle and node.length:
            shuffle_key = keys.fold_in_str(key, "shuffle")
            node = ShuffleNode(node, keys.bits(shuffle_key))
        return node

    def _check_stream(
        self, label: str, child: PyGrainPipeline, stream: StreamNode
    ) -> None:
        if not stream.length:
            raise ValueError(
                f"{type(self).__name__}: {label} ({child._name}) has no records."
            )

    def _all_entries(self) -> Iterator[Entry]:
        for child in self._children().values():
            yield from child._all_entries()
        yield from self._entries

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` unless all parts agree on them."""
        return shared_class_names(self._children().values())

    @property
    def _is_foreign(self) -> bool:
        children = self._children().values()
        return super()._is_foreign or any(child._is_foreign for child in children)

    @property
    def _is_in_memory(self) -> bool:
        return all(child._is_in_memory for child in self._children().values())

    @property
    def _name(self) -> str:
        names = ", ".join(child._name for child in self._children().values())
        return f"{type(self).__name__}({names})"

    def ds_for_current_process(self, rng: Any) -> Any:
        from kauldron.data.py import grain_adapter

        return grain_adapter.mixture(self, rng)


@dataclasses.dataclass(frozen=True, eq=False)
class Mix(MixtureBase):
    """Interleaves pipelines, each as often as its weight says.

    An epoch ends before a part would come to its end, so nothing is repeated in it; in
    the next epoch each part goes on where it was.

    Attributes:
      datasets: The parts.
      weights: How often each is drawn, to about one percent of the smallest weight. By
        default all equally.
      shuffle: Whether positions are shuffled within each epoch of the mixture.

    Example:
      >>> from kauldron import kd
      >>> a = kd.data.py.DataSource(["a0", "a1", "a2", "a3"], shuffle=False)
      >>> b = kd.data.py.DataSource(["b0", "b1"], shuffle=False)
      >>> list(kd.data.py.Mix([a, b], weights=[2, 1], shuffle=False, num_epochs=1))
      ['a0', 'a1', 'b0', 'a2', 'a3', 'b1']
    """

    weights: Sequence[float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is None:
            return
        object.__setattr__(self, "weights", tuple(self.weights))
        check_weights(self, self.weights, self.datasets)

    def _mixed(self, streams: list[StreamNode]) -> StreamNode:
        return mixtures.WeightedNode(streams, self.weights)


def check_weights(
    mixture: Any, weights: Sequence[float], datasets: Sequence[Any]
) -> None:
    """Raise `ValueError` unless there is a weight above 0 for each data set."""
    name = type(mixture).__name__
    if len(weights) != len(datasets):
        raise ValueError(
            f"{name}: {len(weights)} weights for {len(datasets)} data sets."
        )
    for number, (weight, ds) in enumerate(zip(weights, datasets)):
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(
                f"{name}: weights[{number}] of {type(ds).__name__} is {weight}; expected"
                " a number above 0."
            )


@dataclasses.dataclass(frozen=True, eq=False)
class SelectFromDatasets(MixtureBase):
    """Interleaves pipelines as a table says.

    Attributes:
      datasets: The parts.
      selection_map: `selection_map[k]` is the pair (number of the part, position in it)
        for position `k`; `len(selection_map)` is the length of an epoch. It is asked
        for `k` beyond its length in later epochs, so it must have an answer for all.
      shuffle: Whether positions are shuffled within each epoch of the mixture.
    """

    selection_map: Any = dataclasses.field(kw_only=True)

    def _mixed(self, streams: list[StreamNode]) -> StreamNode:
        return mixtures.ChosenNode(streams, self.selection_map)


@dataclasses.dataclass(frozen=True, eq=False)
class Concatenate(MixtureBase):
    """Pipelines one after another; an epoch has all records of all of them.

    Attributes:
      datasets: The parts.
      shuffle: Whether positions are shuffled within each epoch, over all parts.
    """

    def _mixed(self, streams: list[StreamNode]) -> StreamNode:
        return mixtures.ConcatenateNode(streams)


@dataclasses.dataclass(frozen=True, eq=False)
class ZipDatasets(MixtureBase):
    """Pipelines side by side: a record is `{name: record of that part}`.

    Attributes:
      datasets: The parts by name. The shortest one gives the length.
      shuffle: Whether positions are shuffled within each epoch, for all parts alike.
    """

    datasets: Mapping[str, PyGrainPipeline] = dataclasses.field(kw_only=False)  # pyright: ignore

    def __post_init__(self) -> None:
        if not isinstance(self.datasets, Mapping):
            raise TypeError(
                "ZipDatasets takes a dict from names to data sets, not"
                f" {a_type(self.datasets)}."
            )
        object.__setattr__(self, "datasets", ImmutableDict(self.datasets))
        super().__post_init__()

    def _children(self) -> dict[str, PyGrainPipeline]:
        return {f"datasets[{name!r}]": ds for name, ds in self.datasets.items()}

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` unless the parts that have some agree."""
        parts = self.datasets.values()
        return shared_class_names(
            ds for ds in parts if getattr(ds, "class_names", None)
        )

    def _mixed(self, streams: list[StreamNode]) -> StreamNode:
        return mixtures.ZipNode(dict(zip(self.datasets, streams)))
