"""Exceptions of configs, and where the code of this package is."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ml_collections import config_dict as _ml_config_dict

# Frames of files below this folder act on behalf of the code that called them.
PACKAGE_FOLDER = os.path.dirname(__file__) + os.sep


class CycleError(ValueError):
    """A config, or a reference in it, contains itself."""


class RequiredValueError(_ml_config_dict.RequiredValueError, ValueError):
    """A field that must be set is not set.

    Attributes:
      paths: The expressions of all unset fields, such as `cfg.model.width`.
    """

    def __init__(self, message: str, paths: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)


class NotAllowedError(ValueError):
    """`resolve(allow=...)` met symbols from elsewhere.

    Attributes:
      paths: The expressions of all nodes that name such symbols.
    """

    def __init__(self, message: str, paths: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)
