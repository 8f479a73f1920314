"""Transforms for some: arithmetic, masks, videos, fields chosen by a predicate."""

# ruff: noqa: I001  in the order a reader wants

# Values.
from kauldron.contrib.data.arithmetic import AddBias as AddBias
from kauldron.contrib.data.arithmetic import Binarize as Binarize
from kauldron.contrib.data.arithmetic import Normalize as Normalize
from kauldron.contrib.data.arithmetic import OneMinus as OneMinus
from kauldron.contrib.data.arithmetic import Scale as Scale
from kauldron.contrib.data.arithmetic import Standardize as Standardize
from kauldron.contrib.data.patch_normalization import (
    VideoMAENormalization as VideoMAENormalization,
)
from kauldron.contrib.data.masks import CreateMask as CreateMask
from kauldron.contrib.data.masks import CreateRangeMask as CreateRangeMask
from kauldron.contrib.data.masks import CreateNonEqualMask as CreateNonEqualMask
from kauldron.contrib.data.masks import CreateMeshGridMask as CreateMeshGridMask

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
from kauldron.contrib.data.video_axes import ReshapeSpatialDim as ReshapeSpatialDim
from kauldron.contrib.data.video_axes import RepeatFrames as RepeatFrames
from kauldron.contrib.data.video_axes import (
    ExtractInitialFixedLengthClip as ExtractInitialFixedLengthClip,
)
from kauldron.contrib.data.stacks import HStack as HStack
from kauldron.contrib.data.stacks import VStack as VStack
from kauldron.contrib.data.padding import PadImage as PadImage
from kauldron.contrib.data.padding import PadImageEdgeVal as PadImageEdgeVal
from kauldron.contrib.data.padding import PadAxisToFixedSize as PadAxisToFixedSize

# Parts of videos and sequences.
from kauldron.contrib.data.clips import FirstClip as FirstClip
from kauldron.contrib.data.clips import MiddleClip as MiddleClip
from kauldron.contrib.data.clips import MultiClip as MultiClip
from kauldron.contrib.data.clips import RandomClip as RandomClip
from kauldron.contrib.data.temporal_windows import (
    TemporalRandomWindow as TemporalRandomWindow,
)
from kauldron.contrib.data.temporal_windows import (
    TemporalRandomStridedWindow as TemporalRandomStridedWindow,
)
from kauldron.contrib.data.temporal_windows import (
    TemporalRandomWalk as TemporalRandomWalk,
)
from kauldron.contrib.data.random_subsets import (
    RandomSubsetAlongAxis as RandomSubsetAlongAxis,
)
from kauldron.contrib.data.random_subsets import RandomDropTokens as RandomDropTokens
from kauldron.contrib.data.random_subsets import (
    SubsampleAndFlatten as SubsampleAndFlatten,
)

# Images.
from kauldron.contrib.data.spatial_crops import ThreeSpatialCrop as ThreeSpatialCrop
from kauldron.contrib.data.random_images import (
    RandomFlipLeftRightVideo as RandomFlipLeftRightVideo,
)
from kauldron.contrib.data.random_images import RandomResize as RandomResize
from kauldron.contrib.data.random_images import GaussianBlur as GaussianBlur
from kauldron.data.transforms import Resize as JaxImageResize  # noqa: F401

# Fields chosen by a predicate.
from kauldron.contrib.data.predicates import (
    ElementWiseTransformWithPredicate as ElementWiseTransformWithPredicate,
)
from kauldron.contrib.data.predicates import (
    ElementWiseRandomTransformWithPredicate as ElementWiseRandomTransformWithPredicate,
)
from kauldron.contrib.data.image_predicates import FlipUpsideDown as FlipUpsideDown
from kauldron.contrib.data.predicates import matching_keys as matching_keys

# The predicate forms of transforms that also exist by key, and sources.
from kauldron.contrib.data import py as py
from kauldron.contrib.data.lazy_array_record import (
    LazyArrayRecordDataSource as LazyArrayRecordDataSource,
)
