"""More losses: masks, focus on the hard cases, weighted errors."""

from kauldron.contrib.losses.segmentation import DiceLoss as DiceLoss
from kauldron.contrib.losses.segmentation import IoULoss as IoULoss
from kauldron.contrib.losses.segmentation import SigmoidFocalLoss as SigmoidFocalLoss
from kauldron.contrib.losses.segmentation import WeightedL1 as WeightedL1
