"""The mask that a batch carries along when some of its records are filler.

Data that fills up its last batch adds an entry, `bool[batch]`, that is true for real
records. Losses and metrics find it there by themselves; models do not see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kauldron.errors import a_type

BATCH_MASK = "_batch_mask"


class UnmaskableError(ValueError):
    """A loss or metric that would count the filler of a padded batch."""


def batch_mask_of(context: Any) -> Any:
    """Return the mask of the batch in a context; `None` if all records are real.

    >>> batch_mask_of({"batch": {"x": [1, 0], BATCH_MASK: [True, False]}})
    [True, False]
    """
    if isinstance(context, Mapping):
        batch = context.get("batch")
    else:
        batch = getattr(context, "batch", None)
    return batch.get(BATCH_MASK) if isinstance(batch, Mapping) else None


def without_mask(batch: Any) -> Any:
    """Return the batch as a model gets it."""
    if not isinstance(batch, Mapping) or BATCH_MASK not in batch:
        return batch
    return {name: value for name, value in batch.items() if name != BATCH_MASK}


def with_mask_of(batch: Any, changed: Any) -> Any:
    """Return what was made of a batch, with the mask that the batch had.

    Raises:
      UnmaskableError: It is not a dict, so that the mask has no place.
    """
    if not isinstance(batch, Mapping) or BATCH_MASK not in batch:
        return changed
    if not isinstance(changed, Mapping):
        raise UnmaskableError(
            f"a padded batch became {a_type(changed)}, which cannot carry the "
            "mask of its filler: return a dict."
        )
    return {**changed, BATCH_MASK: batch[BATCH_MASK]}
