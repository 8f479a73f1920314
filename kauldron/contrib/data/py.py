"""Images chosen by a predicate instead of by key, and sources, all in NumPy."""

# ruff: noqa: I001  in the order a reader wants

from kauldron.contrib.data.predicates import matching_keys as matching_keys
from kauldron.contrib.data.predicates import (
    ElementWiseTransformWithPredicate as ElementWiseTransformWithPredicate,
)
from kauldron.contrib.data.predicates import (
    ElementWiseRandomTransformWithPredicate as ElementWiseRandomTransformWithPredicate,
)
from kauldron.contrib.data.predicates import FlipUpsideDown as FlipUpsideDown
from kauldron.contrib.data.predicates import PadImage as PadImage
from kauldron.contrib.data.predicates import ValueRange as ValueRange
from kauldron.contrib.data.predicates import Resize as Resize
from kauldron.contrib.data.sources import (
    LazyArrayRecordDataSource as LazyArrayRecordDataSource,
)
