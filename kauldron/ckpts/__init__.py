"""Saving and restoring. Orbax is imported when something is read or written."""

from kauldron.ckpts import items as items
from kauldron.ckpts.checkpointer import Checkpointer as Checkpointer
from kauldron.ckpts.checkpointer_base import BaseCheckpointer as BaseCheckpointer
from kauldron.ckpts.checkpointer_base import NoopCheckpointer as NoopCheckpointer
from kauldron.ckpts.init_transforms import InitTransform as InitTransform
from kauldron.ckpts.init_transforms import MultiTransform as MultiTransform
from kauldron.ckpts.init_transforms import NoopTransform as NoopTransform
from kauldron.ckpts.partial_loader import PartialKauldronLoader as PartialKauldronLoader
from kauldron.ckpts.partial_loader import PartialKauldronLoader as PartialLoader
from kauldron.ckpts.partial_loader import (
    SimpleCheckpointLoader as SimpleCheckpointLoader,
)
from kauldron.ckpts.structure import StructureMismatch as StructureMismatch
