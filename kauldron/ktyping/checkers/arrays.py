"""Checkers of arrays (class, dtype, shape), of shapes, and of unions with them."""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any

from kauldron.ktyping import values
from kauldron.ktyping.array_type_meta import ArrayTypeMeta, ShapeMeta, is_shape_value
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.config import MISSING
from kauldron.ktyping.shapes.matching import (
    SpecSource,
    explain_mismatch,
    format_shape,
)
from kauldron.ktyping.shapes.sizes import Sizes, State, merged, static_shape
from kauldron.ktyping.values import (
    class_name,
    dtype_name,
    format_annotation,
    format_value,
)

if TYPE_CHECKING:
    from kauldron.ktyping.scopes import ShapeScope


class ArrayChecker(c.Checker):
    """An array type such as `Float["*b n"]`."""

    is_atomic = True

    def __init__(self, annotation: ArrayTypeMeta):
        super().__init__(annotation)
        spec = annotation.shape_spec
        self.spec = None if spec is MISSING else SpecSource(spec)
        self.alternatives = [(x.classes, x.dtype) for x in annotation._alternatives]
        self.classes = classes = annotation.array_types
        # Whether a value has the right class and dtype depends only on these two,
        # except that any object may carry the attributes of a spec.
        self._remember = values.ArraySpecLike not in classes
        self._verdicts: dict[tuple[type, Any], bool] = {}
        if self.spec is None or self.spec.template is None:
            plain = set(classes) <= set(values.ALL_LIBRARIES)
            self.memo_kind = c.BY_ARRAY if plain else c.BY_ANY
            if not self._remember:
                self.memo_kind = c.NOT_MEMOIZABLE

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        return self.match_shape(value, state, scope) if self.accepts(value) else None

    def accepts(self, value: Any) -> bool:
        """Return whether class and dtype fit."""
        try:
            return self._verdicts[type(value), value.dtype]
        except Exception:  # new, without a dtype, or not an array at all
            return self._judge(value)

    def match_shape(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        """`match` for a value whose class and dtype are not in question."""
        if self.spec is None:
            return state
        shape = static_shape(getattr(value, "shape", ()))
        return self.spec.match(shape, state, scope)

    def _judge(self, value: Any) -> bool:
        accepted = any(
            _class_matches(value, classes)
            and (dtype is MISSING or dtype.matches(value))
            for classes, dtype in self.alternatives
        )
        if self._remember and values.library_marker(value) is not None:
            with contextlib.suppress(TypeError):  # a dtype that cannot be hashed
                self._verdicts[type(value), value.dtype] = accepted
        return accepted

    # The same questions one by one, for messages.

    def class_matches(self, value: Any) -> bool:
        return _class_matches(value, self.classes)

    def dtype_matches(self, value: Any) -> bool:
        """Return whether the dtype fits an alternative whose class fits."""
        dtypes = self.dtypes_for(value)
        return any(dtype is MISSING or dtype.matches(value) for dtype in dtypes)

    def dtypes_for(self, value: Any) -> list[Any]:
        fitting = [
            dtype
            for classes, dtype in self.alternatives
            if _class_matches(value, classes)
        ]
        return fitting or [dtype for _, dtype in self.alternatives]

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        required = f" (required by {self.annotation.__name__})"
        detail = ""
        if self.accepts(value):
            assert self.spec is not None
            reason = f"{shape_reason(value, [self.spec.describe(scope)])}{required}."
            detail = explain_mismatch(
                self.spec.resolve(scope), _shape_of(value), state, scope
            )
        elif self.class_matches(value):
            reason = f"{dtype_reason(value, self.dtypes_for(value))}{required}"
        else:
            reason = f"{class_reason(value, self.classes)}{required}."
        return c.Failure(reason, state, detail=detail)


@functools.lru_cache(maxsize=4096)
def array_checker_for(annotation: ArrayTypeMeta) -> ArrayChecker:
    """Return the checker of an array type; made once."""
    return ArrayChecker(annotation)


def _class_matches(value: Any, classes: tuple[type, ...]) -> bool:
    return any(values.is_of_class(value, cls) for cls in classes)


def _shape_of(value: Any) -> Sizes:
    return static_shape(getattr(value, "shape", ())) or ()


def class_reason(value: Any, classes: tuple[type, ...]) -> str:
    names = "|".join(sorted({format_annotation(cls) for cls in classes}))
    found = class_name(type(value))
    return f"was of type {found} which is not an instance of {names}"


def dtype_reason(value: Any, dtypes: list[Any]) -> str:
    dtype = getattr(value, "dtype", None)
    found = class_name(type(value)) if dtype is None else dtype_name(dtype)
    names = "|".join(
        sorted({part for dtype in dtypes for part in str(dtype).split("|")})
    )
    return f"has dtype {found!r} which is not dtype-compatible with {names}"


def shape_reason(value: Any, specs: list[str]) -> str:
    ordered = sorted(specs, key=lambda text: text.strip("'"))
    wanted = specs[0] if len(specs) == 1 else f"any of [{', '.join(ordered)}]"
    return (
        f"has shape {format_shape(_shape_of(value))} "
        f"which is not shape-compatible with {wanted}"
    )


#
# Shapes as values
#


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
            return c.Failure(reason, state)
        shape = static_shape(tuple(value)) or ()
        reason = (
            f"has shape {format_shape(shape)} which is not shape-compatible with "
            f"{self.spec.describe(scope)} (required by {self.annotation!r})."
        )
        detail = explain_mismatch(self.spec.resolve(scope), shape, state, scope)
        return c.Failure(reason, state, detail=detail)


#
# Unions: every alternative is tried from the same state, all that match are kept
#


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
            member for member in self.members if isinstance(member, ArrayChecker)
        ]
        known = (ArrayChecker, c.ClassChecker)
        if not array_members or not all(isinstance(m, known) for m in self.members):
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
        return c.Failure(text, state)

    def _explain_arrays(
        self,
        members: list[ArrayChecker],
        value: Any,
        state: State,
        scope: ShapeScope,
    ) -> c.Failure:
        """Blame the first of class, dtype and shape that no member accepts."""
        required = f" (required by {format_annotation(self.annotation)})"
        of_class = [member for member in members if member.class_matches(value)]
        of_dtype = [member for member in of_class if member.dtype_matches(value)]
        of_shape = [m for m in of_class if m.match_shape(value, state, scope)]
        detail = ""
        if not of_class:
            reason = f"{class_reason(value, self._all_classes())}{required}."
        elif not of_dtype:
            dtypes = [
                dtype for member in of_class for dtype in member.dtypes_for(value)
            ]
            reason = f"{dtype_reason(value, dtypes)}{required}"
        elif not of_shape:
            specs = {m.spec.describe(scope): m for m in of_class if m.spec is not None}
            reason = f"{shape_reason(value, list(specs))}{required}."
            if len(specs) == 1:
                detail = next(iter(specs.values())).explain(value, state, scope).detail
        else:
            reason = self._combination(members, value, state, scope)
        return c.Failure(reason, state, detail=detail)

    def _all_classes(self) -> tuple[type, ...]:
        members = (
            member.classes
            for member in self.members
            if isinstance(member, ArrayChecker | c.ClassChecker)
        )
        return tuple(itertools.chain(*members))

    def _combination(
        self,
        members: list[ArrayChecker],
        value: Any,
        state: State,
        scope: ShapeScope,
    ) -> str:
        lines = ["did not match any of its annotations due to a combination of:"]
        for member in members:
            dtype_fits = member.dtype_matches(value)
            shape_fits = member.match_shape(value, state, scope) is not None
            if member.class_matches(value):
                interesting = dtype_fits or shape_fits
            else:
                interesting = dtype_fits and shape_fits
            if interesting:
                lines.append(f"  - {member.explain(value, state, scope).reason}")
        return "\n".join(lines)


def _accepts_none(member: c.Checker) -> bool:
    return isinstance(member, c.ClassChecker) and member.classes == (type(None),)
