"""What is measured: metrics, and the states they accumulate.

Losses (`kauldron.losses`) and summaries (`kauldron.summaries`) are metrics too.
"""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.metrics import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    # Classification.
    from kauldron.metrics.classification import Accuracy as Accuracy
    from kauldron.metrics.classification import BinaryAccuracy as BinaryAccuracy
    from kauldron.metrics.classification import Precision1 as Precision1
    from kauldron.metrics.classification import RocAuc as RocAuc

    # Statistics of tensors.
    from kauldron.metrics.stats import Norm as Norm
    from kauldron.metrics.stats import Std as Std
    from kauldron.metrics.stats import SingleDimension as SingleDimension

    # Images and segmentations.
    from kauldron.metrics.image import Psnr as Psnr
    from kauldron.metrics.image import Ssim as Ssim
    from kauldron.metrics.lpips import LpipsVgg as LpipsVgg
    from kauldron.metrics.clustering import Ari as Ari

    # Metrics around metrics.
    from kauldron.metrics.wrappers import TreeMap as TreeMap
    from kauldron.metrics.wrappers import TreeReduce as TreeReduce
    from kauldron.metrics.wrappers import SkipIfMissing as SkipIfMissing
    from kauldron.metrics.metric import NoopMetric as NoopMetric

    # Writing one's own.
    from kauldron.metrics.metric import Metric as Metric
    from kauldron.metrics.state import State as State
    from kauldron.metrics.averages import AverageState as AverageState
    from kauldron.metrics.auto_state import AutoState as AutoState
    from kauldron.metrics.auto_state import sum_field as sum_field
    from kauldron.metrics.auto_state import min_field as min_field
    from kauldron.metrics.auto_state import max_field as max_field
    from kauldron.metrics.auto_state import concat_field as concat_field
    from kauldron.metrics.auto_state import truncate_field as truncate_field
    from kauldron.metrics.auto_state import state_field as state_field
    from kauldron.metrics.auto_state import static_field as static_field
    from kauldron.metrics.state import EmptyState as EmptyState
    from kauldron.metrics.state import EMPTY as EMPTY
    from kauldron.metrics.wrappers import TreeState as TreeState

    # Accumulating over batches.
    from kauldron.metrics.state import merge_states as merge_states

    # Older names and module paths.
    from kauldron.metrics.collecting_state import CollectingState as CollectingState
    from kauldron.metrics.collecting_state import CollectFirstState as CollectFirstState
