"""Names of files as people want to read them."""

from __future__ import annotations

import os


def short_file(file: str) -> str:
    """A path relative to the working directory if it is below it, else as it is."""
    if not os.path.isabs(file):
        return file
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
