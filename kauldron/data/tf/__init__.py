"""Pipelines on top of `tf.data` (`kd.data.tf`), for `pip install "kauldron[tf]"`.

Names can be used in configs without TensorFlow; pipelines need it once they are built.
"""

# ruff: noqa: I001  in the order a reader wants

# Pipelines.
from kauldron.data.tf.pipeline import TFDataPipeline as TFDataPipeline
from kauldron.data.tf.pipeline import WithShuffleBuffer as WithShuffleBuffer
from kauldron.data.tf.tfds import Tfds as Tfds
from kauldron.data.tf.tfds import TfdsLegacy as TfdsLegacy
from kauldron.data.tf.seqio import SeqIOTask as SeqIOTask
from kauldron.data.tf.seqio import SeqIOMixture as SeqIOMixture
from kauldron.data.tf.mixtures import SampleFromDatasets as SampleFromDatasets
from kauldron.data.tf.mixtures import ZipDatasets as ZipDatasets
from kauldron.data.in_memory import ElementSpecDataset as ElementSpecDataset

# Transforms of tensors.
from kauldron.data.tf.transforms import Resize as Resize
from kauldron.data.tf.transforms import (
    ElementWiseRandomTransform as ElementWiseRandomTransform,
)
from kauldron.data.tf.transforms import InceptionCrop as InceptionCrop
from kauldron.data.tf.transforms import RandomCrop as RandomCrop
from kauldron.data.tf.transforms import RandomFlipLeftRight as RandomFlipLeftRight

# Transforms of any arrays.
from kauldron.data.transforms import ElementWiseTransform as ElementWiseTransform
from kauldron.data.transforms import Elements as Elements
from kauldron.data.transforms import AddConstants as AddConstants
from kauldron.data.transforms import TreeFlattenWithPath as TreeFlattenWithPath
from kauldron.data.transforms import Cast as Cast
from kauldron.data.transforms import ValueRange as ValueRange
from kauldron.data.transforms import OneHot as OneHot
from kauldron.data.transforms import Rearrange as Rearrange
from kauldron.data.transforms import Gather as Gather
from kauldron.data.transforms import CenterCrop as CenterCrop
from kauldron.data.transforms import ResizeSmall as ResizeSmall
