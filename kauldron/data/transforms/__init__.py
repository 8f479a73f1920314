"""Transforms: what happens to records between the source and the batch."""

# ruff: noqa: I001  in the order a reader wants
# What users derive from.
from kauldron.data.transforms.transform_types import MapTransform as MapTransform
from kauldron.data.transforms.transform_types import FilterTransform as FilterTransform
from kauldron.data.transforms.transform_types import (
    RandomMapTransform as RandomMapTransform,
)
from kauldron.data.transforms.element_wise import (
    ElementWiseTransform as ElementWiseTransform,
)
from kauldron.data.transforms.element_wise import (
    ElementWiseRandomTransform as ElementWiseRandomTransform,
)

# Fields.
from kauldron.data.transforms.elements import Elements as Elements
from kauldron.data.transforms.add_constants import AddConstants as AddConstants
from kauldron.data.transforms.tree_flatten import (
    TreeFlattenWithPath as TreeFlattenWithPath,
)

# Values and axes.
from kauldron.data.transforms.cast import Cast as Cast
from kauldron.data.transforms.value_range import ValueRange as ValueRange
from kauldron.data.transforms.one_hot import OneHot as OneHot
from kauldron.data.transforms.rearrange import Rearrange as Rearrange
from kauldron.data.transforms.gather import Gather as Gather

# Images.
from kauldron.data.transforms.resize import Resize as Resize
from kauldron.data.transforms.resize_small import ResizeSmall as ResizeSmall
from kauldron.data.transforms.center_crop import CenterCrop as CenterCrop
from kauldron.data.transforms.random_crop import RandomCrop as RandomCrop
from kauldron.data.transforms.inception_crop import InceptionCrop as InceptionCrop
from kauldron.data.transforms.random_flip import (
    RandomFlipLeftRight as RandomFlipLeftRight,
)

# What pipelines ask.
from kauldron.data.transforms.batch_forms import batch_form as batch_form
from kauldron.data.transforms.batch_forms import jax_form as jax_form
from kauldron.data.transforms.batch_forms import warm_up as warm_up
