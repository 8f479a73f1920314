"""One batch of zeros, made from a spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from kauldron.data.engine import record_tree
from kauldron.data.pipeline import Pipeline


@dataclasses.dataclass(frozen=True, eq=False)
class ElementSpecDataset(Pipeline):
    """Yields exactly one batch, all zeros and empty strings, of a given spec.

    For where a model must be initialised but its training data is not at hand, as in
    evaluating a finished run.

    Attributes:
      spec: Tree of `ArraySpec` (or anything with a shape and a dtype), batch dimension
        included.

    Example:
      >>> from kauldron import kd
      >>> spec = {"x": kd.data.ArraySpec((2, 3), "float32")}
      >>> [batch["x"].shape for batch in kd.data.ElementSpecDataset(spec)]
      [(2, 3)]
    """

    spec: Any = dataclasses.field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is not None:
            raise ValueError(
                f"ElementSpecDataset(batch_size={self.batch_size}): put the batch"
                " dimension into the spec."
            )
        plain = record_tree.map_leaves(lambda leaf: leaf, self.spec)
        object.__setattr__(self, "spec", plain)

    @property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.spec

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        yield record_tree.map_leaves(_zeros, self.spec)


def _zeros(spec: Any) -> Any:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        return spec
    shape = tuple(1 if size is None else size for size in spec.shape)
    if np.dtype(spec.dtype) == object:
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, spec.dtype)
