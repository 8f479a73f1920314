"""The kinds of transform a pipeline knows: map, filter, random map.

Plain abstract classes: write an `__init__`, make the sub-class a dataclass, or neither.
Each may add a batch form (`map_batch`, `filter_batch`, `random_map_batch`) that works
on columns, arrays with one more leading axis. It must give exactly what stacking the
results of the per-record method gives; pipelines use it where it saves time.
"""

from __future__ import annotations

import abc
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from kauldron.errors import ExplainedArguments


class MapTransform(ExplainedArguments, abc.ABC):
    """Turns one record into one record.

    Returning `None` drops the record.

    Attributes:
      traceable: Set it to `True` beside a `map_batch` that `jax.jit` can trace. Data that
        lives on the device then stays there.
      takes_encoded_images: Whether a transform of this library takes images that are not
        decoded yet.

    Example:
      >>> class Double(MapTransform):
      ...     def map(self, element):
      ...         return {**element, "x": 2 * element["x"]}
      >>> Double()({"x": 3, "y": 1})
      {'x': 6, 'y': 1}
    """

    traceable: ClassVar[bool] = False
    takes_encoded_images: ClassVar[bool] = False

    @abc.abstractmethod
    def map(self, element: Any) -> Any:
        """Return the new record. `element` must not be changed."""

    def __call__(self, element: Any) -> Any:
        return self.map(element)


class FilterTransform(ExplainedArguments, abc.ABC):
    """Keeps the records for which `filter` is true.

    Example:
      >>> class Positive(FilterTransform):
      ...     def filter(self, element):
      ...         return element["x"] > 0
      >>> Positive()({"x": -3})
      False
    """

    @abc.abstractmethod
    def filter(self, element: Any) -> bool:
        """Return whether to keep the record."""

    def __call__(self, element: Any) -> bool:
        return self.filter(element)


class RandomMapTransform(ExplainedArguments, abc.ABC):
    """Turns one record into one record, with randomness of its own.

    The generator depends on the seed of the pipeline and on the position of the record
    in the stream, and on nothing else: use it instead of global random state, and the
    pipeline stays repeatable.

    Example:
      >>> class AddNoise(RandomMapTransform):
      ...     def random_map(self, element, rng):
      ...         return {**element, "x": element["x"] + rng.normal()}
      >>> noisy = AddNoise()({"x": 0.0}, np.random.default_rng(0))
      >>> round(float(noisy["x"]), 3)
      0.126

    Whoever calls `random_map` may also give a seed, an int or several, as `rng` or
    `seed`: `transform.random_map(record, seed=0)`.
    """

    takes_encoded_images: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        method = vars(cls).get("random_map")
        if method is not None and "rng" in inspect.signature(method).parameters:
            cls.random_map = _with_seeds(method)

    @abc.abstractmethod
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Return the new record. `element` must not be changed."""

    def __call__(self, element: Any, rng: np.random.Generator) -> Any:
        return self.random_map(element, rng)


def _with_seeds(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `random_map` take a seed in the place of a generator."""

    @functools.wraps(method)
    def random_map(
        self: Any, element: Any, rng: Any = None, *, seed: Any = None, **kwargs: Any
    ) -> Any:
        rng = seed if rng is None else rng
        if isinstance(rng, int | np.integer | Sequence):
            rng = np.random.default_rng(rng)
        return method(self, element, rng, **kwargs)

    return random_map
