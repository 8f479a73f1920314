"""More metrics: depth, poses, point tracking, average precision."""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.contrib.metrics.classification import JointAccuracy as JointAccuracy
from kauldron.contrib.metrics.classification import (
    MultilabelAveragePrecision as MultilabelAveragePrecision,
)

# Regression.
from kauldron.contrib.metrics.regression import (
    RootMeanSquaredError as RootMeanSquaredError,
    CosineSimilarity as CosineSimilarity,
    MeanAbsoluteRelativeError as MeanAbsoluteRelativeError,
    RGBMeanAbsoluteRelativeError as RGBMeanAbsoluteRelativeError,
    Delta1 as Delta1,
    PsnrWithResize as PsnrWithResize,
)

# Geometry.
from kauldron.contrib.metrics.pose import (
    PoseEndPointError as PoseEndPointError,
    RelativeRotationError as RelativeRotationError,
    RelativeTranslationError as RelativeTranslationError,
    PoseMeanAverageAccuracy as PoseMeanAverageAccuracy,
)
from kauldron.contrib.metrics.point_tracking import (
    TapOcclusionAccuracy as TapOcclusionAccuracy,
    TapPositionAccuracy as TapPositionAccuracy,
    TapAverageJaccard as TapAverageJaccard,
    Tap3DPositionAccuracy as Tap3DPositionAccuracy,
    Tap3DAverageJaccard as Tap3DAverageJaccard,
)

# Segmentation.
from kauldron.contrib.metrics.segmentation import (
    SegmentationJaccard as SegmentationJaccard,
)

# Generated images.
from kauldron.contrib.metrics.fid import FidWithStats as FidWithStats

# A state for one's own metrics.
from kauldron.contrib.metrics.mean_cov import MeanCov as MeanCov
