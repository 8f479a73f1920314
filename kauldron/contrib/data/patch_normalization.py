"""Normalisation of the patches of a video."""

from __future__ import annotations

import dataclasses
from typing import Any

import einops
import numpy as np

from kauldron.contrib.data.tensor_fields import takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import as_array, cast


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoMAENormalization(ElementWiseTransform):
    """Gives each patch of a video zero mean and unit variance, channel by channel.

    What a masked autoencoder has to predict in Z. Tong et al., "VideoMAE: masked
    autoencoders are data-efficient learners for self-supervised video pre-training".

    Attributes:
      key: The field or fields, `(..., t, h, w, c)`.
      patch_size: Of a patch, `(t, h, w)`; must divide the sizes of the video.
      epsilon: Added to the standard deviation.
    """

    patch_size: tuple[int, int, int] = (2, 16, 16)
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "patch_size", tuple(self.patch_size))

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        sizes = dict(zip("abd", self.patch_size))
        split, together = "(t a) (h b) (w d) c", "t h w a b d c"
        video = cast(as_array(element), np.dtype(np.float32))
        patches = einops.rearrange(video, f"... {split} -> ... {together}", **sizes)
        mean = patches.mean((-4, -3, -2), keepdims=True)
        deviation = patches.std((-4, -3, -2), ddof=1, keepdims=True)
        patches = (patches - mean) / (deviation + self.epsilon)
        return einops.rearrange(patches, f"... {together} -> ... {split}")
