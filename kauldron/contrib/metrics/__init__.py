"""More metrics: depth, poses, point tracking, average precision."""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.contrib.metrics.classification import JointAccuracy as JointAccuracy
from kauldron.contrib.metrics.classification import (
    MultilabelAveragePrecision as MultilabelAveragePrecision,
)

# Regression.
from kauldron.contrib.metrics.regression import (
    RootMeanSquaredError as RootMeanSquaredError,
)
from kauldron.contrib.metrics.regression import CosineSimilarity as CosineSimilarity
from kauldron.contrib.metrics.regression import (
    MeanAbsoluteRelativeError as MeanAbsoluteRelativeError,
)
from kauldron.contrib.metrics.regression import (
    RGBMeanAbsoluteRelativeError as RGBMeanAbsoluteRelativeError,
)
from kauldron.contrib.metrics.regression import Delta1 as Delta1
from kauldron.contrib.metrics.regression import PsnrWithResize as PsnrWithResize

# Geometry.
from kauldron.contrib.metrics.pose import PoseEndPointError as PoseEndPointError
from kauldron.contrib.metrics.pose import RelativeRotationError as RelativeRotationError
from kauldron.contrib.metrics.pose import (
    RelativeTranslationError as RelativeTranslationError,
)
from kauldron.contrib.metrics.pose import (
    PoseMeanAverageAccuracy as PoseMeanAverageAccuracy,
)
from kauldron.contrib.metrics.point_tracking import (
    TapOcclusionAccuracy as TapOcclusionAccuracy,
)
from kauldron.contrib.metrics.point_tracking import (
    TapPositionAccuracy as TapPositionAccuracy,
)
from kauldron.contrib.metrics.point_tracking import (
    TapAverageJaccard as TapAverageJaccard,
)
from kauldron.contrib.metrics.point_tracking import (
    Tap3DPositionAccuracy as Tap3DPositionAccuracy,
)
from kauldron.contrib.metrics.point_tracking import (
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
