"""Several `tf.data` pipelines as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kauldron.data.dataset import shared_class_names
from kauldron.data.py.mixtures import check_weights
from kauldron.data.tf.pipeline import TFDataPipeline
from kauldron.data.transforms.values import tf
from kauldron.errors import a_type
from kauldron.immutabledict import ImmutableDict


@dataclasses.dataclass(frozen=True, eq=False)
class SampleFromDatasets(TFDataPipeline):
    """Draws the next record from one of several pipelines at random.

    Attributes:
      datasets: The pipelines. One with a batch size gives batches.
      weights: How often each is drawn; equally by default.
      stop_on_empty_dataset: Whether to end with the first pipeline that ends, rather
        than with the last.
      rerandomize_each_iteration: Whether iterating again draws differently.
    """

    datasets: Sequence[TFDataPipeline] = dataclasses.field(kw_only=False)
    weights: Sequence[float] | None = dataclasses.field(default=None, kw_only=True)
    stop_on_empty_dataset: bool = dataclasses.field(default=False, kw_only=True)
    rerandomize_each_iteration: bool = dataclasses.field(default=True, kw_only=True)

    __root_cfg_fields_to_recurse__ = ("datasets",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "datasets", tuple(self.datasets))
        check_children(self, dict(enumerate(self.datasets)))
        if self.weights is not None:
            weights = tuple(float(weight) for weight in self.weights)
            check_weights(self, weights, self.datasets)
            object.__setattr__(self, "weights", weights)

    @property
    def _children(self) -> Sequence[TFDataPipeline]:
        return self.datasets

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` unless all parts agree on them."""
        return shared_class_names(self.datasets)

    def ds_for_current_process(self, rng: Any) -> Any:
        weights = self.weights and [w / sum(self.weights) for w in self.weights]
        return tf.data.Dataset.sample_from_datasets(
            [
                ds.ds_with_transforms(rng.fold_in(number))
                for number, ds in enumerate(self.datasets)
            ],
            weights=weights,
            seed=rng.fold_in("sample").as_seed(),
            stop_on_empty_dataset=self.stop_on_empty_dataset,
            rerandomize_each_iteration=self.rerandomize_each_iteration,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ZipDatasets(TFDataPipeline):
    """Records that hold one record of each pipeline, by name.

    Attributes:
      datasets: From name to pipeline. The shortest decides the length.
    """

    datasets: Mapping[str, TFDataPipeline] = dataclasses.field(kw_only=False)

    __root_cfg_fields_to_recurse__ = ("datasets",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.datasets, Mapping):
            raise ValueError(
                "ZipDatasets takes a dict from names to pipelines, not "
                f"{a_type(self.datasets)}."
            )
        object.__setattr__(self, "datasets", ImmutableDict(self.datasets))
        check_children(self, self.datasets)

    @property
    def _children(self) -> Sequence[TFDataPipeline]:
        return tuple(self.datasets.values())

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` unless the parts that have some agree."""
        parts = self.datasets.values()
        return shared_class_names(
            ds for ds in parts if getattr(ds, "class_names", None)
        )

    def ds_for_current_process(self, rng: Any) -> Any:
        parts = {
            name: ds.ds_with_transforms(rng.fold_in(number))
            for number, (name, ds) in enumerate(self.datasets.items())
        }
        return tf.data.Dataset.zip(parts)


def check_children(mixture: TFDataPipeline, datasets: Mapping[Any, Any]) -> None:
    """Raise `ValueError` unless all parts, at least one, are `kd.data.tf` pipelines."""
    name = type(mixture).__name__
    if not datasets:
        raise ValueError(f"{name} needs at least one pipeline.")
    for key, ds in datasets.items():
        if not isinstance(ds, TFDataPipeline):
            raise ValueError(
                f"{name}: datasets[{key!r}] is {a_type(ds)}; expected a pipeline"
                " of kd.data.tf."
            )
