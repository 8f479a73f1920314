"""The errors of failed checks."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from kauldron.ktyping import error_report
from kauldron.ktyping.missing import MISSING

if TYPE_CHECKING:
    from kauldron.ktyping.error_report import FailedCheck


class TypeCheckError(Exception):
    """The base of all failed checks.

    If typeguard is loaded, what is raised is also a `typeguard.TypeCheckError`.
    """


class AmbiguousDimensionError(KeyError):
    """A dim has several possible values."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0]) if self.args else ""


class KTypeCheckError(TypeCheckError):
    """A value does not match its annotation. The text is made when it is asked for.

    Attributes:
      highlight: Name of the offending argument or field, `None` if it is another value.
      arg_info: From name to (formatted value, annotation, is it the default).
      candidates: The possible assignments of dims when the check failed.
      return_annotation: Annotation of the result, `MISSING` if there is none.
      return_value: The result, `MISSING` if it is not the result that failed.
      definition_source: Where the checked function or class is defined.
      entry_source: Where the scope that holds the dims was opened.
    """

    def __init__(self, failed: FailedCheck | str):
        Exception.__init__(self)  # typeguard's may be in between and wants a text
        self._failed = failed

    def __str__(self) -> str:
        failed = self._failed
        text = failed if isinstance(failed, str) else failed.text
        # Whoever knows where this happened may have said so in the arguments.
        return "".join(map(str, self.args)) + text

    def __reduce__(self) -> Any:
        return KTypeCheckError, (str(self),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(self._failed, str):  # came from another process as plain text
            if name in _ATTRIBUTES:
                return MISSING
            raise AttributeError(name)
        reader = _ATTRIBUTES.get(name)
        if reader is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return reader(self._failed)


_ATTRIBUTES = error_report.ATTRIBUTES


def make_error(failed: FailedCheck) -> KTypeCheckError:
    """The error to raise; honours `except typeguard.TypeCheckError`."""
    typeguard = sys.modules.get("typeguard")
    base = getattr(typeguard, "TypeCheckError", None)
    if base is None:
        return KTypeCheckError(failed)
    return _typeguard_subclass(base)(failed)


@functools.cache
def _typeguard_subclass(base: type) -> type[KTypeCheckError]:
    attributes = {"__module__": __name__, "__doc__": KTypeCheckError.__doc__}
    return type("KTypeCheckError", (KTypeCheckError, base), attributes)
