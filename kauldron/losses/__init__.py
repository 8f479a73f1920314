"""Losses: metrics whose value is differentiated."""

# ruff: noqa: I001 (in the order a reader wants)

# Regression.
from kauldron.losses.loss import L2 as L2
from kauldron.losses.loss import L1 as L1
from kauldron.losses.loss import Huber as Huber
from kauldron.losses.loss import Value as Value
from kauldron.losses.loss import AbsoluteValue as AbsoluteValue
from kauldron.losses.loss import NegativeCosineSimilarity as NegativeCosineSimilarity

# Classification.
from kauldron.losses.loss import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from kauldron.losses.loss import (
    SoftmaxCrossEntropyWithIntLabels as SoftmaxCrossEntropyWithIntLabels,
)
from kauldron.losses.loss import SigmoidBinaryCrossEntropy as SigmoidBinaryCrossEntropy

# Writing one's own, and using many.
from kauldron.losses.loss import Loss as Loss
from kauldron.metrics.averages import AllReduceMean as AllReduceMean
from kauldron.losses.loss import compute_losses as compute_losses

# Older module paths.
from kauldron.losses import compat as compat

from kauldron.lazy_namespace import suggest_names as _suggest_names

_suggest_names(__name__)
