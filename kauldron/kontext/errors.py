"""What is raised when a path leads nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kauldron.path_grammar import Part

if TYPE_CHECKING:
    from kauldron.kontext.paths import Path


class _ReadableKeyError(KeyError):
    """A `KeyError` that prints its message instead of the message's `repr`."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PathNotFoundError(_ReadableKeyError):
    """A path does not lead to a value.

    Attributes:
      path: Text of the path that was asked for.
      failed_part: The part that could not be followed.
      resolved_parts: The parts before it, which could be followed.
      available: The names that exist where the path failed.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        failed_part: Any = None,
        resolved_parts: tuple[Part, ...] = (),
        available: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.path = path
        self.failed_part = failed_part
        self.resolved_parts = resolved_parts
        self.available = list(available)

    @property
    def resolved(self) -> Path:
        """The path up to the part that failed."""
        from kauldron.kontext.paths import Path  # Path raises this error itself

        # Keys of the user's dicts need not be valid parts: no check.
        return Path._from_valid(self.resolved_parts)


class PathIndexError(PathNotFoundError, IndexError):
    """An index of a path is out of range."""


class PathKeyTypeError(PathNotFoundError, TypeError):
    """A sequence is addressed with something that is not an index."""


class MissingKeysError(_ReadableKeyError):
    """Keys of an object lead nowhere in the context.

    Attributes:
      names: The names of these keys.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = list(names)
