"""Images chosen by a predicate instead of by key, and sources, all in NumPy."""

# ruff: noqa: I001  in the order a reader wants

import dataclasses

from kauldron.contrib.data import predicates as _predicates
from kauldron.contrib.data.predicates import (
    matching_keys as matching_keys,
    ElementWiseTransformWithPredicate as ElementWiseTransformWithPredicate,
    ElementWiseRandomTransformWithPredicate as ElementWiseRandomTransformWithPredicate,
    PadImage as PadImage,
    ValueRange as ValueRange,
    Resize as Resize,
)
from kauldron.contrib.data.sources import (
    LazyArrayRecordDataSource as LazyArrayRecordDataSource,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlipUpsideDown(_predicates.FlipUpsideDown):
    """Turns images upside down, and with `matching_keys` also fields named for cameras.

    Attributes:
      should_transform_pred: Which leaves.
    """

    _names = _predicates.PadImage._names
