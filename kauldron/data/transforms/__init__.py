"""Transforms: what happens to records between the source and the batch."""

# ruff: noqa: I001  in the order a reader wants
# What users derive from.
from kauldron.data.transforms.transform_types import MapTransform as MapTransform
from kauldron.data.transforms.transform_types import FilterTransform as FilterTransform
from kauldron.data.transforms.transform_types import (
    RandomMapTransform as RandomMapTransform,
)
from kauldron.data.transforms.fields import ElementWiseTransform as ElementWiseTransform
from kauldron.data.transforms.fields import (
    ElementWiseRandomTransform as ElementWiseRandomTransform,
)

# Fields.
from kauldron.data.transforms.fields import Elements as Elements
from kauldron.data.transforms.structure import AddConstants as AddConstants
from kauldron.data.transforms.structure import (
    TreeFlattenWithPath as TreeFlattenWithPath,
)

# Values and axes.
from kauldron.data.transforms.values import Cast as Cast
from kauldron.data.transforms.values import ValueRange as ValueRange
from kauldron.data.transforms.values import OneHot as OneHot
from kauldron.data.transforms.axes import Rearrange as Rearrange
from kauldron.data.transforms.axes import Gather as Gather

# Images.
from kauldron.data.transforms.resize import Resize as Resize
from kauldron.data.transforms.resize import ResizeSmall as ResizeSmall
from kauldron.data.transforms.images import CenterCrop as CenterCrop
from kauldron.data.transforms.images import RandomCrop as RandomCrop
from kauldron.data.transforms.images import InceptionCrop as InceptionCrop
from kauldron.data.transforms.images import RandomFlipLeftRight as RandomFlipLeftRight

# What pipelines ask.
from kauldron.data.transforms.forms import batch_form as batch_form
from kauldron.data.transforms.forms import jax_form as jax_form
from kauldron.data.transforms.forms import warm_up as warm_up
