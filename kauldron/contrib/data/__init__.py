"""More transforms: arithmetic, masks, videos, fields chosen by a predicate."""

# ruff: noqa: I001  in the order a reader wants

# Values.
from kauldron.contrib.data.values import AddBias as AddBias
from kauldron.contrib.data.values import ApplyW as ApplyW
from kauldron.contrib.data.values import Binarize as Binarize
from kauldron.contrib.data.values import Normalize as Normalize
from kauldron.contrib.data.values import OneMinus as OneMinus
from kauldron.contrib.data.values import Scale as Scale
from kauldron.contrib.data.values import Standardize as Standardize
from kauldron.contrib.data.values import (
    VideoMAENormalization as VideoMAENormalization,
)
from kauldron.contrib.data.masks import CreateMask as CreateMask
from kauldron.contrib.data.masks import CreateRangeMask as CreateRangeMask
from kauldron.contrib.data.masks import CreateNonEqualMask as CreateNonEqualMask
from kauldron.contrib.data.masks import CreateMeshGridMask as CreateMeshGridMask

# Fields.
from kauldron.data.transforms import AddConstants as AddConstants
from kauldron.contrib.data.fields import AddStringField as AddStringField
from kauldron.contrib.data.fields import TreeUnflattenForKey as TreeUnflattenForKey

# Axes.
from kauldron.contrib.data.axes import Repeat as Repeat
from kauldron.contrib.data.axes import SliceWithStride as SliceWithStride
from kauldron.contrib.data.axes import FetchElementZero as FetchElementZero
from kauldron.contrib.data.axes import FlattenVideo as FlattenVideo
from kauldron.contrib.data.axes import (
    TimeChunkedFlattenVideo as TimeChunkedFlattenVideo,
)
from kauldron.contrib.data.axes import SpacetimeToDepth as SpacetimeToDepth
from kauldron.contrib.data.axes import ReshapeSpatialDim as ReshapeSpatialDim
from kauldron.contrib.data.axes import RepeatFrames as RepeatFrames
from kauldron.contrib.data.axes import (
    ExtractInitialFixedLengthClip as ExtractInitialFixedLengthClip,
)
from kauldron.contrib.data.axes import HStack as HStack
from kauldron.contrib.data.axes import VStack as VStack
from kauldron.contrib.data.images import PadImage as PadImage
from kauldron.contrib.data.images import PadImageEdgeVal as PadImageEdgeVal
from kauldron.contrib.data.images import PadAxisToFixedSize as PadAxisToFixedSize

# Parts of videos and sequences.
from kauldron.contrib.data.clips import FirstClip as FirstClip
from kauldron.contrib.data.clips import MiddleClip as MiddleClip
from kauldron.contrib.data.clips import MultiClip as MultiClip
from kauldron.contrib.data.clips import SliceVideosIntoFrames as SliceVideosIntoFrames
from kauldron.contrib.data.clips import RandomClip as RandomClip
from kauldron.contrib.data.clips import (
    TemporalRandomWindow as TemporalRandomWindow,
)
from kauldron.contrib.data.clips import (
    TemporalRandomStridedWindow as TemporalRandomStridedWindow,
)
from kauldron.contrib.data.clips import (
    TemporalRandomWalk as TemporalRandomWalk,
)
from kauldron.contrib.data.random_subsets import (
    RandomSubsetAlongAxis as RandomSubsetAlongAxis,
)
from kauldron.contrib.data.random_subsets import RandomDropTokens as RandomDropTokens
from kauldron.contrib.data.random_subsets import (
    SubsampleAndFlatten as SubsampleAndFlatten,
)
from kauldron.contrib.data.random_subsets import (
    MaskedVideoVisualization as MaskedVideoVisualization,
)

# Images.
from kauldron.contrib.data.images import ThreeSpatialCrop as ThreeSpatialCrop
from kauldron.contrib.data.images import (
    RandomFlipLeftRightVideo as RandomFlipLeftRightVideo,
)
from kauldron.contrib.data.images import RandomResize as RandomResize
from kauldron.contrib.data.images import GaussianBlur as GaussianBlur
from kauldron.contrib.data.rand_augment import RandAugment as RandAugment
from kauldron.contrib.data.images import JaxImageResize as JaxImageResize

# Poses of cameras.
from kauldron.contrib.data.poses import RelativePoses as RelativePoses
from kauldron.contrib.data.poses import TartanPoseToRT as TartanPoseToRT

# Fields chosen by a predicate.
from kauldron.contrib.data.predicates import (
    ElementWiseTransformWithPredicate as ElementWiseTransformWithPredicate,
)
from kauldron.contrib.data.predicates import (
    ElementWiseRandomTransformWithPredicate as ElementWiseRandomTransformWithPredicate,
)
from kauldron.contrib.data.predicates import FlipUpsideDown as FlipUpsideDown
from kauldron.contrib.data.predicates import Resize as Resize
from kauldron.contrib.data.predicates import ValueRange as ValueRange
from kauldron.contrib.data.predicates import matching_keys as matching_keys

# Iterators, as in `kd.data.iters`.
from kauldron.contrib.data import iters as iters  # pyright: ignore

# For one's own transforms.
from kauldron.data.transforms import RandomMapTransform as RandomMapTransform

# The predicate forms of transforms that also exist by key, and sources.
from kauldron.contrib.data import py as py
from kauldron.contrib.data.sources import (
    LazyArrayRecordDataSource as LazyArrayRecordDataSource,
)
