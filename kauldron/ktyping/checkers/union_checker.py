"""`X | Y`: every alternative is tried from the same state, all that match are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kauldron.ktyping.checkers import array_checker as arrays
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.formatting import format_annotation
from kauldron.ktyping.shapes.matching import State, merged

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope


class UnionChecker(c.Checker):
    """`X | Y`, `Optional[X]`, and the constraints of a TypeVar."""

    def __init__(self, annotation: Any, members: list[c.Checker]):
        super().__init__(annotation)
        self.members = members
        self.is_atomic = all(
            member.is_atomic and not _accepts_none(member) for member in members
        )
        kinds = {member.memo_kind for member in members}
        if c.UNCHECKED in kinds or c.NOT_MEMOIZABLE in kinds:
            self.memo_kind = c.NOT_MEMOIZABLE
        else:
            self.memo_kind = kinds.pop() if len(kinds) == 1 else c.BY_ANY

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        found: list[State] = []
        undetermined = False
        for member in self.members:
            scope.undetermined = False
            after = member.check(value, state, scope)
            if after is not None:
                found.append(after)
            undetermined |= scope.undetermined
        scope.undetermined = undetermined and not found
        if len(found) <= 1:
            return found[0] if found else None
        return merged(dims for after in found for dims in after)

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        array_members = [
            member for member in self.members if isinstance(member, arrays.ArrayChecker)
        ]
        inner = [
            member.explain(value, state, scope)
            for member in self.members
            if not isinstance(member, (arrays.ArrayChecker, c.ClassChecker))
        ]
        if not array_members or inner:
            return self._explain_each(value, state, scope)
        return self._explain_arrays(array_members, value, state, scope)

    def _explain_each(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        lines = []
        for member in self.members:
            failure = member.explain(value, state, scope)
            steps = " of ".join(failure.path)
            reason = f"{steps} {failure.reason}" if steps else failure.reason
            lines.append(f"  {format_annotation(member.annotation)}: {reason}")
        text = "\n".join(["did not match any element in the union:", *lines])
        return c.Failure(text, state=state, scope=scope)

    def _explain_arrays(
        self,
        members: list[arrays.ArrayChecker],
        value: Any,
        state: State,
        scope: ShapeScope,
    ) -> c.Failure:
        """Blame the first of class, dtype and shape that no member accepts."""
        required = f" (required by {format_annotation(self.annotation)})"
        of_class = [member for member in members if member.class_matches(value)]
        of_dtype = [member for member in of_class if member.dtype_matches(value)]
        of_shape = [m for m in of_class if m.shape_matches(value, state, scope)]
        detail = ""
        if not of_class:
            reason = f"{arrays.class_reason(value, self._all_classes())}{required}."
        elif not of_dtype:
            dtypes = [
                dtype for member in of_class for dtype in member.dtypes_for(value)
            ]
            reason = f"{arrays.dtype_reason(value, dtypes)}{required}"
        elif not of_shape:
            specs = {m.spec.describe(scope): m for m in of_class if m.spec is not None}
            reason = f"{arrays.shape_reason(value, list(specs))}{required}."
            if len(specs) == 1:
                detail = next(iter(specs.values())).explain(value, state, scope).detail
        else:
            reason = self._combination(members, value, state, scope)
        return c.Failure(reason, detail=detail, state=state, scope=scope)

    def _all_classes(self) -> tuple[type, ...]:
        classes: list[type] = []
        for member in self.members:
            if isinstance(member, arrays.ArrayChecker):
                classes += member.annotation.array_types
            elif isinstance(member, c.ClassChecker):
                classes += (
                    member.classes
                    if isinstance(member.classes, tuple)
                    else (member.classes,)
                )
        return tuple(classes)

    def _combination(
        self,
        members: list[arrays.ArrayChecker],
        value: Any,
        state: State,
        scope: ShapeScope,
    ) -> str:
        lines = ["did not match any of its annotations due to a combination of:"]
        for member in members:
            dtype_fits = member.dtype_matches(value)
            shape_fits = member.shape_matches(value, state, scope)
            if member.class_matches(value):
                interesting = dtype_fits or shape_fits
            else:
                interesting = dtype_fits and shape_fits
            if interesting:
                lines.append(f"  - {member.explain(value, state, scope).reason}")
        return "\n".join(lines)


def _accepts_none(member: c.Checker) -> bool:
    return isinstance(member, c.ClassChecker) and member.classes is type(None)
