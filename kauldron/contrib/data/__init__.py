"""Transforms for some: arithmetic, videos, padding, fields chosen by a predicate."""

# ruff: noqa: I001  in the order a reader wants

# Values.
from kauldron.contrib.data.arithmetic import AddBias as AddBias
from kauldron.contrib.data.arithmetic import Binarize as Binarize
from kauldron.contrib.data.arithmetic import Normalize as Normalize
from kauldron.contrib.data.arithmetic import OneMinus as OneMinus
from kauldron.contrib.data.arithmetic import Scale as Scale
from kauldron.contrib.data.arithmetic import Standardize as Standardize

# Fields.
from kauldron.contrib.data.fields import AddStringField as AddStringField
from kauldron.contrib.data.fields import TreeUnflattenForKey as TreeUnflattenForKey

# Axes.
from kauldron.contrib.data.video_axes import Repeat as Repeat
from kauldron.contrib.data.video_axes import SliceWithStride as SliceWithStride
from kauldron.contrib.data.video_axes import FetchElementZero as FetchElementZero
from kauldron.contrib.data.video_axes import FlattenVideo as FlattenVideo
from kauldron.contrib.data.video_axes import (
    TimeChunkedFlattenVideo as TimeChunkedFlattenVideo,
)
from kauldron.contrib.data.video_axes import SpacetimeToDepth as SpacetimeToDepth
from kauldron.contrib.data.video_axes import (
    ExtractInitialFixedLengthClip as ExtractInitialFixedLengthClip,
)
from kauldron.contrib.data.padding import PadImage as PadImage
from kauldron.contrib.data.padding import PadImageEdgeVal as PadImageEdgeVal
from kauldron.contrib.data.padding import PadAxisToFixedSize as PadAxisToFixedSize

# Clips of videos.
from kauldron.contrib.data.clips import FirstClip as FirstClip
from kauldron.contrib.data.clips import MiddleClip as MiddleClip
from kauldron.contrib.data.clips import MultiClip as MultiClip
from kauldron.contrib.data.clips import RandomClip as RandomClip
from kauldron.contrib.data.clips import (
    RandomFlipLeftRightVideo as RandomFlipLeftRightVideo,
)

# Fields chosen by a predicate.
from kauldron.contrib.data.predicates import (
    ElementWiseTransformWithPredicate as ElementWiseTransformWithPredicate,
)
from kauldron.contrib.data.predicates import (
    ElementWiseRandomTransformWithPredicate as ElementWiseRandomTransformWithPredicate,
)
from kauldron.contrib.data.predicates import FlipUpsideDown as FlipUpsideDown
from kauldron.contrib.data.predicates import matching_keys as matching_keys
