"""What happens to the records that do not fill the last batch."""

from __future__ import annotations

import enum
from typing import Any


class DropRemainder(enum.StrEnum):
    """What to do with the last, smaller batch.

    DROP leaves it out, KEEP yields it as it is, PAD fills it up with zeros, `False`
    and empty strings.

    >>> DropRemainder(True), DropRemainder("PAD")
    (<DropRemainder.DROP: 'drop'>, <DropRemainder.PAD: 'pad'>)
    """

    DROP = "drop"
    KEEP = "keep"
    PAD = "pad"

    @classmethod
    def _missing_(cls, value: Any) -> DropRemainder | None:
        if isinstance(value, bool):
            return cls.DROP if value else cls.KEEP
        if isinstance(value, str) and value.lower() in cls._value2member_map_:
            return cls(value.lower())
        legal = ", ".join(repr(member.value) for member in cls)
        raise ValueError(
            f"{value!r} is not a valid DropRemainder; use one of {legal}, True (drop) or"
            " False (keep)."
        )


def remainder_of(ds: Any) -> DropRemainder | None:
    """What data does with its last, smaller batch; `None` if it does not say."""
    for name in ("batch_drop_remainder", "drop_remainder"):
        if hasattr(ds, name):
            return DropRemainder(getattr(ds, name))
    parent = getattr(ds, "parent", None)
    return None if parent is None else remainder_of(parent)
