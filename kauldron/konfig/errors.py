"""Exceptions of configs, and how an error is given the words of the config."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NoReturn

from ml_collections import config_dict as _ml_config_dict


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


class _Text(str):
    """A message that `KeyError` shows as it is instead of quoting it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def key_error(message: str) -> KeyError:
    """A `KeyError` whose text is readable."""
    return KeyError(_Text(message))


# ------------------------------------------------------------------------------------
# Another text for an exception
# ------------------------------------------------------------------------------------


def raise_reworded(error: Exception, text: str) -> NoReturn:
    """Raises `reworded(error, text)`. To be called where `error` was caught."""
    raise reworded(error, text)


def reworded(error: Exception, text: str) -> Exception:
    """`error` with another text; what it is and carries stays the same.

    The very same object wherever Python allows it. Otherwise (an `OSError`, say) an
    equal one of a subclass that differs in `__str__` alone. Where even that cannot be
    done, the text becomes a note.

    Args:
      error: The exception, as caught.
      text: What `str()` of the result gives.

    Returns:
      The exception to raise; its cause, context and traceback are those of `error`.
    """
    kind = type(error)
    plain = kind.__str__ in (BaseException.__str__, KeyError.__str__)
    if plain and kind.__module__ == "builtins" and len(error.args) <= 1:
        error.args = (_Text(text),)
        return error
    if kind.__str__ is ImportError.__str__:
        error.msg = text  # pyright: ignore[reportAttributeAccessIssue]
        error.args = (text,)
        return error
    try:
        return _with_shown_text(error, text)
    except Exception:
        error.add_note(text)
        return error


def _with_shown_text(error: Exception, text: str) -> Exception:
    kind = _kind_with_text(type(error))
    try:
        error.__class__ = kind
    except TypeError:  # built-in exceptions cannot change their class
        if type(error).__module__ != "builtins":
            raise
        error = _copied(error, kind)
    error.__dict__["_konfig_text"] = text
    return error


@functools.cache
def _kind_with_text(kind: type[Exception]) -> type[Exception]:
    if "_konfig_kind" in vars(kind):
        return kind
    return type(
        kind.__name__,
        (kind,),
        {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__str__": lambda self: self.__dict__["_konfig_text"],
            "__reduce__": lambda self: (
                _unpickle,
                (kind, self.args, dict(self.__dict__)),
            ),
            "_konfig_kind": kind,
        },
    )


def _unpickle(
    kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]
) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return reworded(error, state["_konfig_text"])


def _copied(error: Exception, kind: type[Exception]) -> Exception:
    copied = kind.__new__(kind, *error.args)
    copied.__init__(*error.args)
    copied.__dict__.update(error.__dict__)
    for name in ("filename", "filename2"):  # of an OSError, not in its args
        if getattr(error, name, None) is not None:
            setattr(copied, name, getattr(error, name))
    copied.__traceback__ = error.__traceback__
    # Raising the copy makes `error` its context, which is not to be shown twice.
    hidden = error.__cause__ is not None or error.__suppress_context__
    copied.__cause__ = error.__cause__ if hidden else error.__context__
    copied.__suppress_context__ = True
    return copied
