"""Flax modules that know their mode, and the pieces to write your own.

Members are imported when they are first used: `import kauldron.nn` loads neither jax
nor flax. Once flax is loaded, its modules take `is_training_property=`.
"""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports
from kauldron.nn import compat as compat
from kauldron.nn import flax_hook

with lazy_imports(__name__):
    from kauldron.nn.adapters import ExternalModule as ExternalModule
    from kauldron.nn.adapters import MixedPrecision as MixedPrecision
    from kauldron.nn.adapters import WrapperModule as WrapperModule
    from kauldron.nn.attention import (
        ImprovedMultiHeadDotProductAttention as ImprovedMultiHeadDotProductAttention,
    )
    from kauldron.nn.attention import (
        MultiHeadDotProductAttention as MultiHeadDotProductAttention,
    )
    from kauldron.nn.attention import dot_product_attention as dot_product_attention
    from kauldron.nn.attention import (
        dot_product_attention_weights as dot_product_attention_weights,
    )
    from kauldron.nn.embeddings import AddEmbedding as AddEmbedding
    from kauldron.nn.embeddings import AddLearnedEmbedding as AddLearnedEmbedding
    from kauldron.nn.embeddings import FourierEmbedding as FourierEmbedding
    from kauldron.nn.embeddings import LearnedEmbedding as LearnedEmbedding
    from kauldron.nn.embeddings import Patchify as Patchify
    from kauldron.nn.embeddings import PatchifyEmbed as PatchifyEmbed
    from kauldron.nn.embeddings import ZeroEmbedding as ZeroEmbedding
    from kauldron.nn.embeddings import (
        convert_to_fourier_features as convert_to_fourier_features,
    )
    from kauldron.nn.layer_stack import Remat as Remat
    from kauldron.nn.layer_stack import ScannedLayers as ScannedLayers
    from kauldron.nn.layer_stack import stack_layers as stack_layers
    from kauldron.nn.layer_stack import unstack_layers as unstack_layers
    from kauldron.nn.layers import Dropout as Dropout
    from kauldron.nn.layers import Identity as Identity
    from kauldron.nn.layers import Rearrange as Rearrange
    from kauldron.nn.layers import Reduce as Reduce
    from kauldron.nn.layers import Sequential as Sequential
    from kauldron.nn.models import DummyModel as DummyModel
    from kauldron.nn.models import FlatAutoencoder as FlatAutoencoder
    from kauldron.nn.properties import interms_property as interms_property
    from kauldron.nn.properties import set_train_property as set_train_property
    from kauldron.nn.properties import train_property as train_property
    from kauldron.nn.protocols import ActivationFunction as ActivationFunction
    from kauldron.nn.protocols import AttentionModule as AttentionModule
    from kauldron.nn.protocols import ImageTokenizer as ImageTokenizer
    from kauldron.nn.protocols import Initializer as Initializer
    from kauldron.nn.protocols import NormModule as NormModule
    from kauldron.nn.protocols import PositionEmbedding as PositionEmbedding
    from kauldron.nn.protocols import TransformerBlock as TransformerBlock
    from kauldron.nn.transformers import (
        ParallelAttentionBlock as ParallelAttentionBlock,
    )
    from kauldron.nn.transformers import PostNormBlock as PostNormBlock
    from kauldron.nn.transformers import PreNormBlock as PreNormBlock
    from kauldron.nn.transformers import TransformerMLP as TransformerMLP
    from kauldron.nn.vit import Vit as Vit
    from kauldron.nn.vit import VitAutoEncoder as VitAutoEncoder
    from kauldron.nn.vit import VitEncoder as VitEncoder
    from kauldron.nn.vit import ViTSpec as ViTSpec

flax_hook.install()
