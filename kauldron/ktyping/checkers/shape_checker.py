"""Check a shape value against `Shape` or `Shape["spec"]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.checkers.array_checker import SpecSource
from kauldron.ktyping.formatting import format_value
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.shape_type import ShapeMeta, is_shape_value
from kauldron.ktyping.shapes.explanation import explain_mismatch, format_shape
from kauldron.ktyping.shapes.matching import State
from kauldron.ktyping.shapes.sizes import static_shape

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope


class ShapeChecker(c.Checker):
    """`Shape["*b n"]`"""

    def __init__(self, annotation: ShapeMeta):
        super().__init__(annotation)
        spec = annotation.shape_spec
        self.spec = None if spec is MISSING else SpecSource(spec)

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        if not is_shape_value(value):
            return None
        if self.spec is None:
            return state
        return self.spec.match(static_shape(tuple(value)), state, scope)

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        if self.spec is None or not is_shape_value(value):
            reason = (
                "is not a valid shape (expected a Sequence of ints, "
                f"got {format_value(value)})"
            )
            return c.Failure(reason, state=state, scope=scope)
        shape = static_shape(tuple(value)) or ()
        reason = (
            f"has shape {format_shape(shape)} which is not shape-compatible with "
            f"{self.spec.describe(scope)} (required by {self.annotation!r})."
        )
        detail = explain_mismatch(self.spec.resolve(scope), shape, state, scope)
        return c.Failure(reason, detail=detail, state=state, scope=scope)
