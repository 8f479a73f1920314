"""The errors of failed checks, and their text: what, where, the arguments, the dims."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

from kauldron.errors import ReadableKeyError
from kauldron.ktyping.checkers.checker import Checker, Failure
from kauldron.ktyping.config import MISSING
from kauldron.ktyping.scopes import NOWHERE, DimValues, ShapeScope, format_dims
from kauldron.ktyping.shapes.sizes import State
from kauldron.ktyping.values import format_annotation, format_value


class TypeCheckError(Exception):
    """The base of all failed checks.

    If typeguard is loaded, what is raised is also a `typeguard.TypeCheckError`.
    """


class AmbiguousDimensionError(ReadableKeyError):
    """A dim has several possible values."""


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
        Exception.__init__(self)  # typeguard's class may come next, and needs a text
        self._failed = failed

    def __str__(self) -> str:
        failed = self._failed
        text = failed if isinstance(failed, str) else failed.text
        # A prefix that says where this happened is put into the arguments.
        return "".join(map(str, self.args)) + text

    def __reduce__(self) -> Any:
        return KTypeCheckError, (str(self),)

    def __getattr__(self, name: str) -> Any:
        if name not in _ATTRIBUTES:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        if isinstance(self._failed, str):  # came from another process as plain text
            return MISSING
        return _ATTRIBUTES[name](self._failed)


def make_error(failed: FailedCheck) -> KTypeCheckError:
    """Return the error to raise; honours `except typeguard.TypeCheckError`."""
    typeguard = sys.modules.get("typeguard")
    base = getattr(typeguard, "TypeCheckError", None)
    if base is None:
        return KTypeCheckError(failed)
    return _typeguard_subclass(base)(failed)


@functools.cache
def _typeguard_subclass(base: type) -> type[KTypeCheckError]:
    attributes = {"__module__": __name__, "__doc__": KTypeCheckError.__doc__}
    return type("KTypeCheckError", (KTypeCheckError, base), attributes)


class NoActiveScopeError(RuntimeError):
    """Dims were asked for where no scope is active."""


#
# The text of a failed check
#


_MAX_CANDIDATES = 10


@dataclasses.dataclass
class FailedCheck:
    """Everything that is needed to say what went wrong.

    Attributes:
      what: `argument`, `return value`, `value`, `yielded value`, `sent value`, `field`.
      name: Of the argument or field, else ''.
      value: What was checked.
      checker: Against what.
      state: The candidates before the check.
      scope: The scope of the check.
      reason: Set if the checker cannot give it.
    """

    what: str
    name: str
    value: Any
    checker: Checker
    state: State
    scope: ShapeScope
    reason: str = ""

    @functools.cached_property
    def failure(self) -> Failure:
        """Why it failed; found by walking the same way again."""
        if self.reason:
            return Failure(self.reason, self.state)
        try:
            return self.checker.explain(self.value, self.state, self.scope)
        except Exception as error:  # the value changed since, or its code raises
            annotation = format_annotation(self.checker.annotation)
            reason = (
                f"does not match {annotation} ({type(error).__name__} while looking)"
            )
            return Failure(reason, self.state)

    @functools.cached_property
    def text(self) -> str:
        blocks = (
            self.message_block,
            self.origin_block,
            self.arguments_block,
            self.return_block,
            self.candidates_block,
        )
        return "\n\n".join(block for block in blocks if block)

    @property
    def message_block(self) -> str:
        if self.what == "call":
            return self.failure.reason
        message = (
            f"{' of '.join([*self.failure.path, self._root()])} {self.failure.reason}"
        )
        return f"{message}\n  {self.failure.detail}" if self.failure.detail else message

    def _root(self) -> str:
        if self.what == "field":
            return f"value of field {self.name!r}"
        suffix, value = self.failure.subject or ("", self.value)
        shown = format_value(value)
        if self.what == "argument":
            return f"argument {self.name}{suffix} = {shown}"
        return f"{self.what} {shown}"

    @property
    def origin_block(self) -> str:
        if self.scope.source is NOWHERE:
            return ""
        text = f"Origin: {self.scope.source}"
        active = self.scope.active_scope
        if active is not self.scope:
            text += f"\n        uses scope from {active.source}"
        return text

    @property
    def arguments_block(self) -> str:
        arguments, defaults = self.scope.arguments, self.scope.default_args
        given = [self._argument(name) for name in arguments if name not in defaults]
        default = [self._argument(name) for name in arguments if name in defaults]
        lines = [*given, *([""] if given and default else []), *default]
        if not lines and not self.failure.fields:
            return ""
        return "\n".join(["Arguments:", *lines, *self.failure.fields])

    def _argument(self, name: str) -> str:
        mark = "> " if name == self.highlight else "  "
        annotation = self.scope.annotations.get(name, MISSING)
        typed = "" if annotation is MISSING else f": {format_annotation(annotation)}"
        return f"{mark}{name}{typed} = {format_value(self.scope.arguments[name])}"

    @property
    def return_block(self) -> str:
        annotation = self.scope.return_annotation
        if annotation is MISSING:
            return ""
        text = f"Return: {format_annotation(annotation)}"
        if self.return_value is not MISSING:
            text += f" = {format_value(self.return_value)}"
        return text

    @property
    def candidates_block(self) -> str:
        state = self.failure.state
        title = "Dim Assignments:"
        if len(state) > 1:
            title = "Multiple Dim Assignment Candidates:"
        lines = [
            title,
            *(f" - {format_dims(dims)}" for dims in state[:_MAX_CANDIDATES]),
        ]
        if len(state) > _MAX_CANDIDATES:
            lines.append(f" ... and {len(state) - _MAX_CANDIDATES} more")
        structures = {
            f"  {name}: {structure}": None
            for dims in state
            for name, structure in dims.items()
            if name.startswith("$")
        }
        if structures:
            lines += ["Tree Structures:", *structures]
        return "\n".join(lines)

    @property
    def highlight(self) -> str | None:
        return self.name or None

    @property
    def return_value(self) -> Any:
        return self.value if self.what == "return value" else MISSING

    @property
    def arg_info(self) -> dict[str, tuple[str, Any, bool]]:
        scope = self.scope
        return {
            name: (
                format_value(value),
                scope.annotations.get(name, MISSING),
                name in scope.default_args,
            )
            for name, value in scope.arguments.items()
        }


# What can be read off an error. The last rows are the names of `kauldron.typing`.
_ATTRIBUTES: dict[str, Callable[[FailedCheck], Any]] = {
    "highlight": lambda failed: failed.highlight,
    "arg_info": lambda failed: failed.arg_info,
    "candidates": lambda failed: frozenset(map(DimValues, failed.state)),
    "return_annotation": lambda failed: failed.scope.return_annotation,
    "return_value": lambda failed: failed.return_value,
    "definition_source": lambda failed: failed.scope.source,
    "entry_source": lambda failed: failed.scope.active_scope.source,
    "message_block": lambda failed: failed.message_block,
    "origin_block": lambda failed: failed.origin_block,
    "arguments_block": lambda failed: failed.arguments_block,
    "return_block": lambda failed: failed.return_block,
    "candidates_block": lambda failed: failed.candidates_block,
    "arguments": lambda failed: failed.scope.arguments,
    "annotations": lambda failed: failed.scope.annotations,
    "memo": lambda failed: failed.state[0],
    "fn_name": lambda failed: failed.scope.source.description.split("'")[1],
    "file": lambda failed: failed.scope.source.file,
}
