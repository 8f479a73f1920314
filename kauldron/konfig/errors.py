"""Exceptions of configs, and how an error is given the words of the config."""

from __future__ import annotations

from collections.abc import Iterable

from ml_collections import config_dict as _ml_config_dict

from kauldron.errors import ReadableKeyError
from kauldron.errors import raise_reworded as raise_reworded
from kauldron.errors import reworded as reworded


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


def key_error(message: str) -> KeyError:
    """A `KeyError` whose text is readable."""
    return ReadableKeyError(message)
