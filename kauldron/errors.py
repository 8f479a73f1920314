"""Errors that tell the person who reads them what to fix: the floor of all packages.

Here is how a message is put in front of, or in place of, another one without changing
what was raised, how the nearest right name is found, a `KeyError` whose text can be read,
and constructors that explain wrong arguments.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import heapq
import inspect
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self

_MOST_COMPARED = 200


class ReadableKeyError(KeyError):
    """A `KeyError` that shows its text as it is; Python's shows the `repr` of it.

    Example:
      >>> str(ReadableKeyError("nothing here")), str(KeyError("nothing here"))
      ('nothing here', "'nothing here'")
    """

    __str__ = Exception.__str__


class BeyondDataError(IndexError):
    """Data is shorter than the position that a saved run had in it."""


#
# The nearest name
#


def nearest(
    name: Any, candidates: Iterable[Any], *, count: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the candidates that look most like `name`, the best first.

    Example:
      >>> nearest("logit", ["labels", "logits"])
      ['logits']
    """
    name = str(name)
    names = [c for c in candidates if isinstance(c, str)]
    # Comparing is slow: of thousands of names, only those of similar length.
    compared = heapq.nsmallest(
        _MOST_COMPARED, names, key=lambda c: abs(len(c) - len(name))
    )
    close = difflib.get_close_matches(name, compared, count, cutoff)
    if close:
        return close
    return [c for c in names if c.lower() == name.lower()][:count]


def did_you_mean(
    name: Any, candidates: Iterable[Any], *, count: int = 1, cutoff: float = 0.6
) -> str:
    """Return ` Did you mean 'x'?` with the nearest names, or an empty text.

    Example:
      >>> did_you_mean("logit", ["labels", "logits"])
      " Did you mean 'logits'?"
      >>> did_you_mean("zzz", ["labels", "logits"])
      ''
    """
    close = nearest(name, candidates, count=count, cutoff=cutoff)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def a_type(value: Any) -> str:
    """Return the type of a value with its article.

    Example:
      >>> a_type([]), a_type(1)
      ('a list', 'an int')
    """
    name = type(value).__name__
    return f"an {name}" if name[:1] in "AEIOUaeiou" else f"a {name}"


#
# More words for an error
#


@contextlib.contextmanager
def error_prefix(prefix: str | Callable[[], str]) -> Iterator[None]:
    """Put `prefix` in front of the message of what is raised inside.

    Type, traceback and attributes of the exception stay. An exception whose text does
    not come from its arguments gets the prefix as a note instead.

    Args:
      prefix: The text, or a function giving it (called only on error).

    Example:
      >>> with error_prefix("In metric 'acc': "):
      ...     raise ValueError("wrong shape")
      Traceback (most recent call last):
      ValueError: In metric 'acc': wrong shape
    """
    try:
        yield
    except Exception as error:
        _add_prefix(error, prefix if isinstance(prefix, str) else prefix())
        raise


def message_with_notes(error: BaseException) -> str:
    """Return the message of an error and all that was added to it on the way.

    Example:
      >>> error = reworded(ReadableKeyError("no such field"), "--cfg.a=1: no such field")
      >>> message_with_notes(error)
      '--cfg.a=1: no such field'
    """
    message = str(error) or type(error).__name__
    if type(error).__str__ is KeyError.__str__ and len(error.args) == 1:
        text = str(error.args[0])  # sentences are not quoted, keys are
        message = text if " " in text else f"KeyError: {message}"
    notes = [
        note
        for note in getattr(error, "__notes__", ())
        if "JAX_TRACEBACK_FILTERING" not in note  # no traceback is shown
    ]
    return "\n".join([_TRACED_OPERATIONS.sub("", message), *notes])


# Of a value that is traced, jax prints the programs of all operations before it.
_TRACED_OPERATIONS = re.compile(
    r" This value became a tracer due to JAX operations.*?(?=\nSee https|\Z)", re.DOTALL
)


def _add_prefix(error: Exception, prefix: str) -> None:
    if isinstance(error, OSError) and error.strerror:
        error.strerror = f"{prefix}{error.strerror}"
        return
    if isinstance(error, ImportError) and error.msg:
        error.msg = f"{prefix}{error.msg}"
        return
    old_args = error.args
    message = str(old_args[0]) if old_args else ""
    kind = _Text if isinstance(error, KeyError) else str
    try:
        error.args = (kind(prefix + message), *old_args[1:])
        is_shown = prefix in str(error)
    except Exception:  # its class makes the text in its own way
        is_shown = False
    if not is_shown:
        error.args = old_args
        error.add_note(prefix.rstrip())


class _Text(str):
    """A message that `KeyError` shows as it is instead of quoting it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


#
# Other words for an error
#


def raise_reworded(error: Exception, text: str) -> NoReturn:
    """Raise `reworded(error, text)`; to be called where `error` was caught."""
    raise reworded(error, text)


def reworded(error: Exception, text: str) -> Exception:
    """Return `error` with another text; its type and what it carries stay the same.

    It is the very same object wherever Python allows that. Otherwise (an `OSError`, say)
    it is an equal one of a subclass that differs in `__str__` alone. Where even that
    cannot be done, the text becomes a note.

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
    error.__dict__["_kauldron_text"] = text
    return error


@functools.cache
def _kind_with_text(kind: type[Exception]) -> type[Exception]:
    if "_kauldron_kind" in vars(kind):
        return kind
    return type(
        kind.__name__,
        (kind,),
        {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__str__": lambda self: self.__dict__["_kauldron_text"],
            "__reduce__": lambda self: (
                _unpickle,
                (kind, self.args, dict(self.__dict__)),
            ),
            "_kauldron_kind": kind,
        },
    )


def _unpickle(
    kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]
) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return reworded(error, state["_kauldron_text"])


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


#
# Wrong arguments of a constructor: the nearest name, a missing decorator
#


class _SignatureOfInit:
    """Keeps `inspect.signature` true, which would take that of `__new__`."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is not None:  # an instance that is called has another one
            raise AttributeError("__signature__")
        return _signature(owner)


class ExplainedArguments:
    """Base of classes whose subclasses users write as dataclasses.

    Example:
      >>> import dataclasses
      >>> @dataclasses.dataclass(frozen=True, kw_only=True)
      ... class Sum(ExplainedArguments):
      ...     values: str
      >>> Sum(valeus="batch.x")
      Traceback (most recent call last):
      TypeError: Sum has no field 'valeus'. Did you mean 'values'?
      >>> class Mean(ExplainedArguments):
      ...     values: str
      >>> Mean(values="batch.x")
      Traceback (most recent call last):
      TypeError: Mean declares 'values', but does not take it: write `@dataclasses.dataclass(frozen=True, kw_only=True)` above `class Mean`.
    """

    if not TYPE_CHECKING:
        __signature__ = _SignatureOfInit()

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            if args or kwargs:
                _check(cls, args, kwargs)
            return super().__new__(cls)


def unknown_argument(cls: type, name: str) -> str:
    """Return what to say about a keyword that a class does not take."""
    is_field = name in getattr(cls, "__dataclass_fields__", ())
    owner = None if is_field else declaring_class(cls, name)
    if owner is not None:
        return (
            f"{cls.__qualname__} declares {name!r}, but does not take it: write "
            "`@dataclasses.dataclass(frozen=True, kw_only=True)` above "
            f"`class {owner.__name__}`."
        )
    accepted = [*_signature(cls).parameters]
    listed = f" Its fields: {', '.join(accepted) or 'none'}."
    hint = did_you_mean(name, accepted) or listed
    return f"{cls.__qualname__} has no field {name!r}.{hint}"


def _check(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    parameters = _signature(cls).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in kwargs:
        if name not in parameters:
            raise TypeError(unknown_argument(cls, name))
    if args and not parameters:
        names = list(inspect.get_annotations(cls))
        hint = f" {unknown_argument(cls, names[0])}" if names else ""
        raise TypeError(f"{cls.__qualname__} takes no arguments.{hint}")


def declaring_class(cls: type, name: str) -> type | None:
    """Return the class that annotates a name, among a class and its parents."""
    parents = (p for p in cls.__mro__ if name in inspect.get_annotations(p))
    return next(parents, None)


@functools.cache
def _signature(cls: Any) -> inspect.Signature:
    if cls.__init__ is object.__init__:
        return inspect.Signature()
    signature = inspect.signature(cls.__init__)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


#
# A reader of stdout that has read enough
#


def reader_is_gone() -> bool:
    """Return whether the reader of stdout, such as `head`, has stopped reading.

    If so, everything written from now on is discarded.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


@contextlib.contextmanager
def ignoring_gone_reader() -> Iterator[None]:
    """Let the block write to stdout; that nobody reads it any more is no error."""
    try:
        yield
    except BrokenPipeError:
        if not reader_is_gone():
            raise
