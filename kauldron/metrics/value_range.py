"""Value ranges of images."""

from __future__ import annotations


def check_vrange(vrange: tuple[float, float] | None, *, name: str) -> None:
    """Raise `ValueError` unless it is `None` or a pair (low, high), low < high.

    Args:
      vrange: What was given.
      name: Of the option, for the message.
    """
    if vrange is not None and not (len(vrange) == 2 and vrange[0] < vrange[1]):
        raise ValueError(f"{name} must be (low, high) with low < high, not {vrange}.")
