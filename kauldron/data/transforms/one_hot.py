"""Labels as vectors."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from kauldron.data.transforms import tensorflow_forms
from kauldron.data.transforms.array_family import (
    array_module,
    as_array,
    describe,
    is_integer,
    is_jax,
    is_tf,
)
from kauldron.data.transforms.element_wise import ElementWiseTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneHot(ElementWiseTransform):
    """Turns integer labels into float32 vectors.

    A negative label stands for "none", as in padded lists of labels.

    Attributes:
      key: The field or fields with labels.
      num_classes: Length of the vectors.
      multi: Whether a list of labels gives one vector with several ones, rather than
        one row per label.
      on: Value where the label is.
      off: Value elsewhere.

    Example:
      >>> OneHot(key="label", num_classes=3).map({"label": 1})["label"]
      array([0., 1., 0.], dtype=float32)
      >>> OneHot(key="label", num_classes=3).map({"label": [0, 2]})["label"]
      array([1., 0., 1.], dtype=float32)
    """

    num_classes: int
    multi: bool = True
    on: float = 1.0
    off: float = 0.0

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if operator.index(self.num_classes) < 1:
            raise ValueError(f"OneHot(num_classes={self.num_classes}): expected >= 1.")

    def map_element(self, element: Any) -> Any:
        labels = as_array(element)
        return self._encode(labels, merge=self.multi and len(labels.shape) == 1)

    def map_element_batch(self, elements: Any) -> Any:
        labels = as_array(elements)
        return self._encode(labels, merge=self.multi and len(labels.shape) == 2)

    def _encode(self, labels: Any, merge: bool) -> Any:
        if not is_integer(labels):
            raise TypeError(f"OneHot: labels must be integers, got {describe(labels)}.")
        if is_tf(labels):
            return tensorflow_forms.one_hot(
                labels, self.num_classes, self.on, self.off, merge=merge
            )
        if not is_jax(labels) and labels.size and labels.max() >= self.num_classes:
            raise ValueError(
                f"OneHot(num_classes={self.num_classes}): there is a label"
                f" {labels.max()}."
            )
        xnp = array_module(labels)
        hits = labels[..., None] == xnp.arange(self.num_classes)
        if merge:
            hits = hits.any(axis=-2)
        return xnp.where(hits, xnp.float32(self.on), xnp.float32(self.off))
