"""Errors about shape specs, each with the words that help to fix it."""

from __future__ import annotations


class ShapeError(ValueError):
    """A shape spec cannot be evaluated or is too ambiguous to be matched."""


class ShapeSpecSyntaxError(ValueError):
    """A shape spec is not written in the shape language.

    Attributes:
      spec: The whole spec.
      position: Index of the offending character, from 0.
      where: What the spec belongs to, such as `argument 'x' of f()`; may be empty.
    """

    label = "Invalid shape spec"

    def __init__(self, spec: str, position: int, reason: str, where: str = ""):
        super().__init__(spec, position, reason, where)
        self.spec = spec
        self.position = position
        self.reason = reason
        self.where = where

    def at(self, where: str) -> ShapeSpecSyntaxError:
        """The same error, saying what the spec belongs to."""
        return type(self)(self.spec, self.position, self.reason, where)

    def __str__(self) -> str:
        where = f" of {self.where}" if self.where else ""
        shown = "".join(" " if char.isspace() else char for char in self.spec)
        return (
            f"{self.label}{where} at position {self.position + 1}: {self.reason}\n"
            f"  {shown}\n"
            f"  {' ' * self.position}^"
        )


class WhiteSpaceError(ShapeSpecSyntaxError):
    """Whitespace inside a dim."""

    label = "Unexpected whitespace in shape spec"


class InvalidCommaError(ShapeSpecSyntaxError):
    """A comma between dims."""

    label = "Unexpected comma in shape spec"


class PostModifierError(ShapeSpecSyntaxError):
    """`b*` where `*b` is meant."""

    label = "Misplaced modifier in shape spec"


class AnonymousFixedDimError(ShapeSpecSyntaxError):
    """`_3`: anonymous and fixed."""

    label = "Anonymous dim with a fixed size in shape spec"


class AnonymousBroadcastableDimError(ShapeSpecSyntaxError):
    """`#_`: anonymous and broadcastable."""

    label = "Anonymous broadcastable dim in shape spec"
