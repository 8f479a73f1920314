"""Which mistake was made where the parser could not go on."""

from __future__ import annotations

import re

from kauldron.ktyping.shapes import spec_errors as errors

_MODIFIERS_BEFORE = re.compile(r"[*#]*$")
_MODIFIERS_AFTER = re.compile(r"[*#]*")
_NAME_BEFORE = re.compile(r"(?<![A-Za-z0-9_])_?[A-Za-z][A-Za-z0-9_]*$")
_OPERATORS = "+-*/%|?"


def diagnose(
    text: str, position: int, depth: int, expected: str
) -> errors.ShapeSpecSyntaxError:
    """Make the error for the place where the parser stopped.

    Args:
      text: The whole spec.
      position: Where the parser stopped; may be the end of the text.
      depth: How many parentheses are open there.
      expected: What could have come next, in words.
    """
    at = text[position : position + 1]
    before = text[position - 1 : position] if position else ""
    if at == "," and not (depth and expected.startswith("a dimension")):
        return errors.InvalidCommaError(
            text, position, "separate dims with spaces, not with commas"
        )
    modifier = _misplaced_modifier(text, position)
    if modifier is not None:
        reason = "modifiers go in front of the name: `*b`, `#c`, `*#b`"
        return errors.PostModifierError(text, modifier, reason)
    if before == "_" and at.isdigit():
        reason = (
            "an axis cannot be both fixed and anonymous: drop the `_` or the number"
        )
        return errors.AnonymousFixedDimError(text, position, reason)
    if (before, at) in (("#", "_"), ("_", "#")) or _anonymous_name_before(
        text, position
    ):
        reason = "a broadcastable anonymous axis is the same as `_`, so write that"
        return errors.AnonymousBroadcastableDimError(text, position, reason)
    if _is_whitespace_mistake(text, position, depth):
        reason = (
            "whitespace only separates dims: write `a+b` without spaces; "
            "einops-style `(a b)` is not allowed"
        )
        return errors.WhiteSpaceError(text, position, reason)
    found = f"{at!r}" if at else "the end of the spec"
    return errors.ShapeSpecSyntaxError(
        text, position, f"found {found}, expected {expected}"
    )


def _misplaced_modifier(text: str, position: int) -> int | None:
    """Where a run of `*` and `#` behind a name starts, if the parser stopped at it."""
    start = _MODIFIERS_BEFORE.search(text, 0, position)
    assert start is not None
    end = _MODIFIERS_AFTER.match(text, position)
    assert end is not None
    if start.start() == end.end():
        return None
    following = text[end.end() : end.end() + 1]
    ends_there = not following or following.isspace() or following in ",)"
    name = _NAME_BEFORE.search(text, 0, start.start())
    if not ends_there or name is None:
        return None
    return start.start()


def _anonymous_name_before(text: str, position: int) -> bool:
    """`_foo#...`"""
    name = _NAME_BEFORE.search(text, 0, position)
    return bool(
        name and name[0].startswith("_") and text[position : position + 1] == "#"
    )


def _is_whitespace_mistake(text: str, position: int, depth: int) -> bool:
    at, before = text[position : position + 1], text[position - 1 : position]
    if at.isspace():
        return depth > 0 or (bool(before) and before in _OPERATORS)
    if at and at in _OPERATORS:
        after = text[position + 1 : position + 2]
        return before.isspace() or after.isspace()
    # `a +`: the operator was read as the sigil of a dim that never came.
    return not at and bool(before) and before in _OPERATORS and text[-2:-1].isspace()
