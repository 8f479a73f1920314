"""Change of axes in einops notation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import einops
from einops.parsing import ParsedExpression

from kauldron.data.transforms.array_family import as_array
from kauldron.data.transforms.element_wise import ElementWiseTransform
from kauldron.utils.immutabledict import ImmutableDict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rearrange(ElementWiseTransform):
    """`einops.rearrange` of a field.

    Attributes:
      key: The field or fields to rearrange.
      pattern: Such as `"h w -> h w 1"`, about the axes of one record.
      axes_lengths: Sizes of axes that the pattern alone does not fix.

    Example:
      >>> Rearrange(key="label", pattern="... -> ... 1").map({"label": 3})
      {'label': array([3])}
    """

    pattern: str
    axes_lengths: Mapping[str, int] = ImmutableDict()

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "axes_lengths", ImmutableDict(self.axes_lengths))
        batch_pattern(self.pattern)  # raises for what is no pattern

    def map_element(self, element: Any) -> Any:
        return einops.rearrange(as_array(element), self.pattern, **self.axes_lengths)

    def map_element_batch(self, elements: Any) -> Any:
        pattern = batch_pattern(self.pattern)
        return einops.rearrange(as_array(elements), pattern, **self.axes_lengths)


@functools.lru_cache(maxsize=1024)
def batch_pattern(pattern: str) -> str:
    """The pattern with one more axis in front.

    >>> batch_pattern("h w -> (h w)")
    'batch h w -> batch (h w)'

    Raises:
      ValueError: It is not a pattern.
    """
    try:
        left, right = pattern.split("->")
        names = ParsedExpression(left).identifiers | ParsedExpression(right).identifiers
    except (ValueError, AttributeError, einops.EinopsError) as error:
        raise ValueError(
            f"pattern={pattern!r} is not of the form 'h w c -> h (w c)': {error}"
        ) from error
    axis = "batch"
    while axis in names:
        axis += "0"
    return f"{axis} {left.strip()} -> {axis} {right.strip()}"
