"""More transforms: arithmetic, masks, videos, fields chosen by a predicate."""

# ruff: noqa: I001  in the order a reader wants

# Values.
from kauldron.contrib.data.values import (
    AddBias as AddBias,
    ApplyW as ApplyW,
    Binarize as Binarize,
    Normalize as Normalize,
    OneMinus as OneMinus,
    Scale as Scale,
    Standardize as Standardize,
    VideoMAENormalization as VideoMAENormalization,
)
from kauldron.contrib.data.masks import (
    CreateMask as CreateMask,
    CreateRangeMask as CreateRangeMask,
    CreateNonEqualMask as CreateNonEqualMask,
    CreateMeshGridMask as CreateMeshGridMask,
)

# Fields.
from kauldron.data.transforms import AddConstants as AddConstants
from kauldron.contrib.data.fields import AddStringField as AddStringField
from kauldron.contrib.data.fields import TreeUnflattenForKey as TreeUnflattenForKey

# Axes.
from kauldron.contrib.data.axes import (
    Repeat as Repeat,
    SliceWithStride as SliceWithStride,
    FetchElementZero as FetchElementZero,
    FlattenVideo as FlattenVideo,
    TimeChunkedFlattenVideo as TimeChunkedFlattenVideo,
    SpacetimeToDepth as SpacetimeToDepth,
    ReshapeSpatialDim as ReshapeSpatialDim,
    RepeatFrames as RepeatFrames,
    ExtractInitialFixedLengthClip as ExtractInitialFixedLengthClip,
    HStack as HStack,
    VStack as VStack,
)
from kauldron.contrib.data.images import (
    PadImage as PadImage,
    PadImageEdgeVal as PadImageEdgeVal,
    PadAxisToFixedSize as PadAxisToFixedSize,
)

# Parts of videos and sequences.
from kauldron.contrib.data.clips import (
    FirstClip as FirstClip,
    MiddleClip as MiddleClip,
    MultiClip as MultiClip,
    SliceVideosIntoFrames as SliceVideosIntoFrames,
    RandomClip as RandomClip,
    TemporalRandomWindow as TemporalRandomWindow,
    TemporalRandomStridedWindow as TemporalRandomStridedWindow,
    TemporalRandomWalk as TemporalRandomWalk,
)
from kauldron.contrib.data.random_subsets import (
    RandomSubsetAlongAxis as RandomSubsetAlongAxis,
    RandomDropTokens as RandomDropTokens,
    SubsampleAndFlatten as SubsampleAndFlatten,
    MaskedVideoVisualization as MaskedVideoVisualization,
)

# Images.
from kauldron.contrib.data.images import (
    ThreeSpatialCrop as ThreeSpatialCrop,
    RandomFlipLeftRightVideo as RandomFlipLeftRightVideo,
    RandomResize as RandomResize,
    GaussianBlur as GaussianBlur,
)
from kauldron.contrib.data.rand_augment import RandAugment as RandAugment
from kauldron.contrib.data.images import JaxImageResize as JaxImageResize

# Poses of cameras.
from kauldron.contrib.data.poses import RelativePoses as RelativePoses
from kauldron.contrib.data.poses import TartanPoseToRT as TartanPoseToRT

# Fields chosen by a predicate.
from kauldron.contrib.data.predicates import (
    ElementWiseTransformWithPredicate as ElementWiseTransformWithPredicate,
    ElementWiseRandomTransformWithPredicate as ElementWiseRandomTransformWithPredicate,
    FlipUpsideDown as FlipUpsideDown,
    Resize as Resize,
    ValueRange as ValueRange,
    matching_keys as matching_keys,
)

# Iterators, as in `kd.data.iters`.
from kauldron.contrib.data import iters as iters  # pyright: ignore

# For one's own transforms.
from kauldron.data.transforms import RandomMapTransform as RandomMapTransform

# The predicate forms of transforms that also exist by key, and sources.
from kauldron.contrib.data import py as py
from kauldron.contrib.data.sources import (
    LazyArrayRecordDataSource as LazyArrayRecordDataSource,
)
