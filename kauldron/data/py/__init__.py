"""Random-access pipelines (`kd.data.py`): sources, mixtures, and their transforms.

Everything is imported when it is first used.
"""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    # Sources.
    from kauldron.data.py.pipeline import PyGrainPipeline as PyGrainPipeline
    from kauldron.data.py.sources import DataSourceBase as DataSourceBase
    from kauldron.data.py.sources import DataSource as DataSource
    from kauldron.data.py.sources import Arrays as Arrays
    from kauldron.data.py.file_sources import Npz as Npz
    from kauldron.data.py.file_sources import Idx as Idx
    from kauldron.data.py.file_sources import ImageFolder as ImageFolder
    from kauldron.data.py.file_sources import Json as Json
    from kauldron.data.py.file_sources import ArrayRecord as ArrayRecord
    from kauldron.data.py.catalogs import Tfds as Tfds
    from kauldron.data.py.catalogs import HuggingFace as HuggingFace

    # Mixtures.
    from kauldron.data.py.mixtures import Mix as Mix
    from kauldron.data.py.mixtures import SelectFromDatasets as SelectFromDatasets
    from kauldron.data.py.mixtures import Concatenate as Concatenate
    from kauldron.data.py.mixtures import ZipDatasets as ZipDatasets
    from kauldron.data.engine.entries import SliceDataset as SliceDataset
    from kauldron.data.engine.batches import DropRemainder as DropRemainder

    # Transforms.
    from kauldron.data.transforms import Elements as Elements
    from kauldron.data.transforms import AddConstants as AddConstants
    from kauldron.data.transforms import TreeFlattenWithPath as TreeFlattenWithPath
    from kauldron.data.transforms import ElementWiseTransform as ElementWiseTransform
    from kauldron.data.transforms import Cast as Cast
    from kauldron.data.transforms import ValueRange as ValueRange
    from kauldron.data.transforms import Rearrange as Rearrange
    from kauldron.data.transforms import Gather as Gather
    from kauldron.data.transforms import Resize as Resize
    from kauldron.data.transforms import CenterCrop as CenterCrop
    from kauldron.data.transforms import (
        ElementWiseRandomTransform as ElementWiseRandomTransform,
    )
    from kauldron.data.transforms import RandomCrop as RandomCrop
    from kauldron.data.transforms import RandomFlipLeftRight as RandomFlipLeftRight
    from kauldron.data.transforms import OneHot as OneHot
    from kauldron.data.transforms import ResizeSmall as ResizeSmall
    from kauldron.data.transforms import InceptionCrop as InceptionCrop
