"""Errors that say for which inputs, or in which loss, they happened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from kauldron.ktyping import KTypeCheckError
from kauldron.utils.error_context import error_prefix


@contextlib.contextmanager
def naming(
    prefix: Callable[[], str], type_hint: Callable[[], str] = str
) -> Iterator[None]:
    """Put `prefix()` in front of the message of what is raised inside.

    Below a failed type check comes `type_hint()`.

    Like `error_prefix`, also for failed type checks: their text is not made from their
    arguments, so that `error_prefix` could only add a note.
    """
    try:
        yield
    except KTypeCheckError as error:
        renamed = type(error)(f"{prefix()}{error}{type_hint()}")
        raise renamed.with_traceback(error.__traceback__) from None
    except Exception:
        with error_prefix(prefix):
            raise
