"""Saving and restoring. Orbax is imported when something is read or written."""

# ruff: noqa: I001 (in the order a reader wants)

from kauldron.ckpts import compat as compat
from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    # Saving a run, and resuming it.
    from kauldron.ckpts.checkpointer import Checkpointer as Checkpointer
    from kauldron.ckpts.checkpointer_base import NoopCheckpointer as NoopCheckpointer
    from kauldron.ckpts.checkpointer_base import BaseCheckpointer as BaseCheckpointer
    from kauldron.ckpts import items as items
    from kauldron.ckpts.structure import StructureMismatch as StructureMismatch

    # Starting from the weights of another run, or of another tool.
    from kauldron.ckpts.init_transforms import InitTransform as InitTransform
    from kauldron.ckpts.init_transforms import NoopTransform as NoopTransform
    from kauldron.ckpts.init_transforms import MultiTransform as MultiTransform
    from kauldron.ckpts.partial_loader import (
        PartialKauldronLoader as PartialKauldronLoader,
    )
    from kauldron.ckpts.partial_loader import (
        SimpleCheckpointLoader as SimpleCheckpointLoader,
    )
    from kauldron.ckpts.weight_files import SafetensorsLoader as SafetensorsLoader
    from kauldron.ckpts.weight_files import MsgpackLoader as MsgpackLoader
    from kauldron.ckpts.pretrained import PretrainedLoader as PretrainedLoader
    from kauldron.ckpts.pretrained import load_pretrained as load_pretrained
    from kauldron.ckpts.pretrained import LoadReport as LoadReport
    from kauldron.nn.weight_layouts import LAYOUTS as LAYOUTS
    from kauldron.nn.weight_layouts import Weight as Weight

    # Other spellings.
    from kauldron.ckpts.partial_loader import PartialKauldronLoader as PartialLoader  # noqa: F401
    from kauldron.ckpts.compat import workdir_from_xid as workdir_from_xid
