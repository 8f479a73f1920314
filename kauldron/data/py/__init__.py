"""Random-access pipelines (`kd.data.py`): sources, mixtures, and their transforms.

Everything is imported when it is first used.
"""

# ruff: noqa: I001 (in the order a reader wants)

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    # Sources.
    from kauldron.data.py.py_grain_pipeline import PyGrainPipeline as PyGrainPipeline
    from kauldron.data.py.data_source import DataSourceBase as DataSourceBase
    from kauldron.data.py.data_source import DataSource as DataSource
    from kauldron.data.py.arrays import Arrays as Arrays
    from kauldron.data.py.npz import Npz as Npz
    from kauldron.data.py.idx import Idx as Idx
    from kauldron.data.py.image_folder import ImageFolder as ImageFolder
    from kauldron.data.py.json_records import Json as Json
    from kauldron.data.py.array_record import ArrayRecord as ArrayRecord
    from kauldron.data.py.tfds import Tfds as Tfds
    from kauldron.data.py.hugging_face import HuggingFace as HuggingFace

    # Mixtures.
    from kauldron.data.py.mixtures import Mix as Mix
    from kauldron.data.py.mixtures import SelectFromDatasets as SelectFromDatasets
    from kauldron.data.py.mixtures import Concatenate as Concatenate
    from kauldron.data.py.mixtures import ZipDatasets as ZipDatasets
    from kauldron.data.slice_dataset import SliceDataset as SliceDataset
    from kauldron.data.drop_remainder import DropRemainder as DropRemainder

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

_HERE = "kauldron.data.py"
_TRANSFORMS = (
    "Elements",
    "AddConstants",
    "TreeFlattenWithPath",
    "ElementWiseTransform",
    "Cast",
    "ValueRange",
    "Rearrange",
    "Gather",
    "Resize",
    "CenterCrop",
    "ElementWiseRandomTransform",
    "RandomCrop",
    "RandomFlipLeftRight",
    "OneHot",
    "ResizeSmall",
    "InceptionCrop",
)

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "PyGrainPipeline": f"{_HERE}.py_grain_pipeline:PyGrainPipeline",
        "DataSourceBase": f"{_HERE}.data_source:DataSourceBase",
        "DataSource": f"{_HERE}.data_source:DataSource",
        "Arrays": f"{_HERE}.arrays:Arrays",
        "Npz": f"{_HERE}.npz:Npz",
        "Idx": f"{_HERE}.idx:Idx",
        "ImageFolder": f"{_HERE}.image_folder:ImageFolder",
        "Json": f"{_HERE}.json_records:Json",
        "ArrayRecord": f"{_HERE}.array_record:ArrayRecord",
        "Tfds": f"{_HERE}.tfds:Tfds",
        "HuggingFace": f"{_HERE}.hugging_face:HuggingFace",
        "Mix": f"{_HERE}.mixtures:Mix",
        "SelectFromDatasets": f"{_HERE}.mixtures:SelectFromDatasets",
        "Concatenate": f"{_HERE}.mixtures:Concatenate",
        "ZipDatasets": f"{_HERE}.mixtures:ZipDatasets",
        "SliceDataset": "kauldron.data.slice_dataset:SliceDataset",
        "DropRemainder": "kauldron.data.drop_remainder:DropRemainder",
        **{name: f"kauldron.data.transforms:{name}" for name in _TRANSFORMS},
    },
)
