"""Models on top of others: readouts, models of earlier runs, and NNX models."""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.contrib.nn import knnx as knnx
    from kauldron.contrib.nn import knnx_examples as knnx_examples
    from kauldron.contrib.nn.from_xid import (
        get_model_from_workdir as get_model_from_workdir,
    )
    from kauldron.contrib.nn.from_xid import get_model_from_xid as get_model_from_xid
    from kauldron.contrib.nn.nnx_wrapper import linen_from_nnx as linen_from_nnx
    from kauldron.contrib.nn.readout import ReadoutWrapper as ReadoutWrapper
