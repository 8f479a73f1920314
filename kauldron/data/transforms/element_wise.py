"""Transforms that apply one function to some fields of a record."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kauldron.data.transforms.columns import apply_to_column
from kauldron.data.transforms.keyed_fields import KeyedFields
from kauldron.data.transforms.transform_types import MapTransform, RandomMapTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseTransform(KeyedFields, MapTransform):
    """Applies `map_element` to the selected fields; the others pass through.

    A field written under a new name leaves the one it was made from in place. Keys that
    a record lacks are skipped, and logged once, as long as it has one of them.

    A sub-class may define `map_element_batch(elements)`, which takes a column (an array
    with one more leading axis) and must give exactly what stacking the results of
    `map_element` gives. It is used only if it is defined in the same class as
    `map_element` or in a more derived one.

    Attributes:
      key: The field or fields to transform, or a mapping from fields to read to fields
        to write.

    Example:
      >>> @dataclasses.dataclass(frozen=True, kw_only=True)
      ... class Gamma(ElementWiseTransform):
      ...     gamma: float
      ...
      ...     def map_element(self, element):
      ...         return element**self.gamma
      ...
      ...     map_element_batch = map_element
      >>> Gamma(key="image", gamma=2.0).map({"image": 3.0, "label": 1})
      {'image': 9.0, 'label': 1}
      >>> Gamma(key={"image": "bright"}, gamma=2.0).map({"image": 3.0})
      {'image': 3.0, 'bright': 9.0}
    """

    @abc.abstractmethod
    def map_element(self, element: Any) -> Any:
        """The new value of one field of one record."""

    def map(self, features: Mapping[str, Any]) -> dict[str, Any]:
        return self.map_fields(features, self.map_element)

    def map_batch(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """`map` on columns, for sub-classes with a `map_element_batch`."""
        map_column = _batch_method(self, "map_element_batch")
        return self.map_fields(
            features,
            lambda column: apply_to_column(column, map_column, self.map_element),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseRandomTransform(KeyedFields, RandomMapTransform):
    """Applies `random_map_element` to the selected fields.

    Every field gets a generator in the same state, so that an image and its mask are
    cropped alike.

    A sub-class may define `random_map_element_batch(elements, rngs)`: `elements` is a
    column, `rngs[i]` the generator of record i, in its initial state every time it is
    asked for. Finish with one before asking for the next: they may share an object.

    Attributes:
      key: The field or fields to transform, or a mapping from fields to read to fields
        to write.

    Example:
      >>> class Jitter(ElementWiseRandomTransform):
      ...     def random_map_element(self, element, rng):
      ...         return element + rng.integers(100)
      >>> jittered = Jitter(key=["a", "b"])({"a": 0, "b": 0}, np.random.default_rng(0))
      >>> int(jittered["a"]), int(jittered["b"])
      (85, 85)
    """

    __kd_data_backend__ = "py"

    @abc.abstractmethod
    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        """The new value of one field of one record."""

    def check_fields(self, features: Mapping[str, Any], *, num_batch_axes: int) -> None:
        """Raise if the selected fields do not go together; sub-classes may override."""

    def random_map(
        self, features: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        self.check_fields(features, num_batch_axes=0)
        if len(self._key_items) < 2:
            return self.map_fields(
                features, lambda element: self.random_map_element(element, rng)
            )
        state = rng.bit_generator.state

        def map_from_same_state(element: Any) -> Any:
            rng.bit_generator.state = state
            return self.random_map_element(element, rng)

        return self.map_fields(features, map_from_same_state)

    def random_map_batch(
        self, features: Mapping[str, Any], rngs: Any
    ) -> dict[str, Any]:
        """`random_map` on columns, for sub-classes with a batch method."""
        self.check_fields(features, num_batch_axes=1)
        map_column = _batch_method(self, "random_map_element_batch")
        return self.map_fields(
            features,
            lambda column: apply_to_column(
                column, map_column, self.random_map_element, rngs
            ),
        )


def _batch_method(transform: Any, name: str) -> Callable[..., Any]:
    method = getattr(transform, name, None)
    if method is None:
        raise TypeError(f"{type(transform).__name__} has no `{name}`.")
    return method
