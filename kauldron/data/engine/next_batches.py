"""Several batches of any iterator at once."""

from __future__ import annotations

from typing import Any

from kauldron.data.engine import stacking


def stack_next(iterator: Any, count: int) -> Any:
    """The next batches stacked on a new leading axis.

    Args:
      iterator: With `get_state` and `set_state`.
      count: How many. Fewer come at the end of the data, and before a batch that does
        not look like the others (the last one, if it is smaller).

    Raises:
      StopIteration: There is none left.
    """
    batches = [next(iterator)]
    form = stacking.form(batches[0])
    while len(batches) < count:
        before = iterator.get_state()
        try:
            batch = next(iterator)
        except StopIteration:
            break
        if stacking.form(batch) != form:
            iterator.set_state(before)  # it comes on its own, next time
            break
        batches.append(batch)
    return stacking.stack(batches)
