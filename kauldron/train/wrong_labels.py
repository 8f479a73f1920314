"""Labels that are not among the classes, which make a loss NaN."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from kauldron.losses import SoftmaxCrossEntropyWithIntLabels
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

_MOST_BATCHES = 10


def describe_wrong_labels(trainer: Trainer) -> str:
    """A sentence about labels outside of the classes, if the data has any.

    Reads the first batches again, which is why it is done only for a run that went
    wrong.
    """
    losses = jax.tree_util.tree_leaves_with_path(trainer.train_losses)
    losses = [
        (jax.tree_util.keystr(path, simple=True, separator="/"), loss)
        for path, loss in losses
        if isinstance(loss, SoftmaxCrossEntropyWithIntLabels)
    ]
    if not losses:
        return ""
    batches = iter(trainer.train_ds)
    try:
        for batch in itertools.islice(batches, _MOST_BATCHES):
            context = trainer.context_specs.replace(batch=batch)
            for name, loss in losses:
                inputs = loss.resolve_inputs(context)
                size = inputs["logits"].shape[-1]
                wrong = _labels_outside(size, inputs["labels"], inputs.get("mask"))
                if wrong is not None:
                    return (
                        f" Labels of the loss {name!r} are wrong: {loss.labels!r} holds "
                        f"{wrong}, but {loss.logits!r} has the classes 0 to {size - 1}."
                    )
    except Exception as error:  # the run has trouble enough
        status.log_warning(f"The labels could not be looked at: {error}")
    finally:
        getattr(batches, "close", lambda: None)()
    return ""


def _labels_outside(size: int, labels: Any, mask: Any) -> int | None:
    """A label that is not in `range(size)`, of those that count."""
    arrays = np.ndarray | jax.Array
    if not isinstance(labels, arrays) or not isinstance(mask, arrays | None):
        return None  # the model computes them
    labels = np.asarray(labels)
    is_wrong = (labels < 0) | (labels >= size)
    if mask is not None:
        mask = np.asarray(mask)
        is_wrong &= mask.reshape(mask.shape + (1,) * (labels.ndim - mask.ndim)) != 0
    return int(labels[is_wrong][0]) if is_wrong.any() else None
