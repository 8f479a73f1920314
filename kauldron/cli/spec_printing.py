"""Shapes, and how long it took to find them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from kauldron.cli.terminal import print_table


def print_spec(obj: Any) -> None:
    """Print path and shape of everything in a tree, one line each.

    Example:
      >>> import numpy as np
      >>> print_spec({"x": np.zeros((2, 3), np.float32)})  # doctest: +NORMALIZE_WHITESPACE
      x    f32[2 3]
    """
    from kauldron import kontext
    from kauldron.inspect.specs import json_spec_like

    rows = [
        (path, str(json_spec_like(leaf)))
        for path, leaf in kontext.flatten_with_path(obj).items()
    ]
    print_table(rows, header=("path", "spec"))


@contextlib.contextmanager
def timed(action: str) -> Iterator[None]:
    """Say on stderr what is being done, and how long it took."""
    print(f"{action} ...", file=sys.stderr, flush=True)
    start = time.monotonic()
    yield
    print(f"{action}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
