"""Older module paths and where their names live now."""

from kauldron.losses import all_reduce_mean, loss, total_loss
from kauldron.metrics.compat import module_alias

base = module_alias("kauldron.losses.base", loss, all_reduce_mean, total_loss)
