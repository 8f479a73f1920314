"""Where something is defined, for the `Origin:` line of messages."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from types import CodeType, FrameType


@dataclasses.dataclass(frozen=True)
class CodeLocation:
    """What is defined where.

    Attributes:
      description: `function 'f'`, `dataclass 'D'`, `typechecked context`, ...
      file: The source file.
      line: The first line of the definition, decorators included.
      module_name: The module; decides which configuration applies.
      qualified_name: `Encoder.__call__` for a method, else ''.
    """

    description: str
    file: str
    line: int
    module_name: str = ""
    qualified_name: str = ""

    def __str__(self) -> str:
        name = f" ({self.qualified_name})" if self.qualified_name else ""
        return f"{self.description}{name} at {self.file}:{self.line}"


NOWHERE = CodeLocation("check without a scope", "<unknown>", 0)


def locate_code(code: CodeType, description: str, module_name: str) -> CodeLocation:
    """The location of a function by its code: nothing is read from disk."""
    tail = code.co_qualname.rsplit("<locals>.", 1)[-1]
    return CodeLocation(
        description=description,
        file=code.co_filename,
        line=code.co_firstlineno,
        module_name=module_name,
        qualified_name=tail if "." in tail else "",
    )


def locate_frame(frame: FrameType, description: str) -> CodeLocation:
    """The location of the line that a frame is executing."""
    module_name = frame.f_globals.get("__name__", "")
    return CodeLocation(
        description, frame.f_code.co_filename, frame.f_lineno, module_name
    )


def locate_class(cls: type, description: str) -> CodeLocation:
    """The location of a class; reads its source file, so only for messages."""
    try:
        file = inspect.getsourcefile(cls) or "<unknown>"
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):  # typed into a prompt, or built by a program
        module = sys.modules.get(cls.__module__)
        file, line = getattr(module, "__file__", None) or "<unknown>", 0
    return CodeLocation(description, file, line, cls.__module__)
