"""Data: from records to batches (`kd.data`).

`kd.data.py` has the pipelines, `kd.data.tf` those on TensorFlow, and here is what both
share. Everything is imported when it is first used: neither jax nor grain nor
TensorFlow is needed to look at a pipeline.
"""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.data import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    # Pipelines.
    from kauldron.data import py as py
    from kauldron.data import tf as tf
    from kauldron.data.pipeline import Pipeline as Pipeline
    from kauldron.data.dataset import IterableDataset as IterableDataset
    from kauldron.data.in_memory import InMemoryPipeline as InMemoryPipeline
    from kauldron.data.in_memory import ElementSpecDataset as ElementSpecDataset
    from kauldron.data.specs import ArraySpec as ArraySpec
    from kauldron.data.engine.batches import BatchSize as BatchSize
    from kauldron.data.device_records import DeviceRecords as DeviceRecords
    from kauldron.data.device_records import DeviceTransforms as DeviceTransforms

    from kauldron.data import iters as iters
    from kauldron.data import model_inputs as utils  # noqa: F401

    # Transforms.
    from kauldron.data.transforms import MapTransform as MapTransform
    from kauldron.data.transforms import FilterTransform as FilterTransform
    from kauldron.data.transforms import RandomMapTransform as RandomMapTransform
    from kauldron.data.transforms import ElementWiseTransform as ElementWiseTransform
    from kauldron.data.transforms import Elements as Elements
    from kauldron.data.transforms import AddConstants as AddConstants
    from kauldron.data.transforms import TreeFlattenWithPath as TreeFlattenWithPath
    from kauldron.data.transforms import Cast as Cast
    from kauldron.data.transforms import ValueRange as ValueRange
    from kauldron.data.transforms import Rearrange as Rearrange
    from kauldron.data.transforms import Gather as Gather
    from kauldron.data.transforms import Resize as Resize
    from kauldron.data.transforms import CenterCrop as CenterCrop
