"""Check one array: class, dtype, shape."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from kauldron.ktyping import array_classes as ac
from kauldron.ktyping.array_type_meta import ArrayTypeMeta
from kauldron.ktyping.checkers import checker as c
from kauldron.ktyping.dtypes import dtype_name
from kauldron.ktyping.formatting import class_name, format_annotation
from kauldron.ktyping.missing import MISSING
from kauldron.ktyping.shapes.arithmetic import Pending
from kauldron.ktyping.shapes.explanation import explain_mismatch, format_shape
from kauldron.ktyping.shapes.matching import SpecMatcher, State, matcher_for
from kauldron.ktyping.shapes.sizes import Sizes, static_shape
from kauldron.ktyping.shapes.templates import SpecTemplate, parse_template

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope


class SpecSource:
    """The text of a spec, and its matcher once f-string parts are filled in."""

    __slots__ = ("matcher", "template", "text")

    def __init__(self, text: str):
        self.text = text
        self.template: SpecTemplate | None = None
        self.matcher: SpecMatcher | None = None
        if "{" in text:
            self.template = parse_template(text)
        else:
            self.matcher = matcher_for(text)

    def resolve(self, scope: ShapeScope) -> SpecMatcher:
        if self.matcher is not None:
            return self.matcher
        return matcher_for(self.render(scope))

    def render(self, scope: ShapeScope) -> str:
        """The text with its f-string parts filled in."""
        if self.template is None:
            return self.text
        return self.template.render(scope.lookup, scope.visible_names)

    def describe(self, scope: ShapeScope) -> str:
        """`'b {n}' (= 'b 4')`"""
        if self.template is None:
            return repr(self.text)
        return f"{self.text!r} (= {self.render(scope)!r})"

    def match(
        self, shape: Sizes | None, state: State, scope: ShapeScope
    ) -> State | None:
        matcher = self.matcher or self.resolve(scope)
        pending = Pending(scope.settle)
        result = matcher.match(shape, state, pending)
        if pending and result is None:
            scope.undetermined = True
        return result


class ArrayChecker(c.Checker):
    """An array type such as `Float["*b n"]`."""

    is_atomic = True

    def __init__(self, annotation: ArrayTypeMeta):
        super().__init__(annotation)
        self.alternatives = annotation._alternatives
        spec = annotation.shape_spec
        self.spec = None if spec is MISSING else SpecSource(spec)
        classes = annotation.array_types
        # Whether a value has the right class and dtype depends only on these two,
        # except that any object may carry the attributes of a spec.
        self._remember = ac.ArraySpecLike not in classes
        self._verdicts: dict[tuple[type, Any], bool] = {}
        if self.spec is None or self.spec.template is None:
            plain = set(classes) <= set(ac.ALL_LIBRARIES)
            self.memo_kind = c.BY_ARRAY if plain else c.BY_ANY
            if not self._remember:
                self.memo_kind = c.NOT_MEMOIZABLE

    def match(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        try:
            accepted = self._verdicts[type(value), value.dtype]
        except Exception:  # new, without a dtype, or not an array at all
            accepted = self._judge(value)
        if not accepted:
            return None
        return self.match_shape(value, state, scope)

    def match_shape(self, value: Any, state: State, scope: ShapeScope) -> State | None:
        """`match` for a value whose class and dtype are not in question."""
        if self.spec is None:
            return state
        shape = static_shape(getattr(value, "shape", ()))
        return self.spec.match(shape, state, scope)

    def _judge(self, value: Any) -> bool:
        accepted = any(
            _class_matches(value, alternative.classes)
            and (alternative.dtype is MISSING or alternative.dtype.matches(value))
            for alternative in self.alternatives
        )
        if self._remember and ac.library_marker(value) is not None:
            with contextlib.suppress(TypeError):  # a dtype that cannot be hashed
                self._verdicts[type(value), value.dtype] = accepted
        return accepted

    # The same questions one by one, for messages.

    def class_matches(self, value: Any) -> bool:
        return _class_matches(value, self.annotation.array_types)

    def dtype_matches(self, value: Any) -> bool:
        """Whether the dtype fits, judged by the alternatives whose class fits."""
        dtypes = self.dtypes_for(value)
        return any(dtype is MISSING or dtype.matches(value) for dtype in dtypes)

    def dtypes_for(self, value: Any) -> list[Any]:
        fitting = [
            alternative.dtype
            for alternative in self.alternatives
            if _class_matches(value, alternative.classes)
        ]
        return fitting or [alternative.dtype for alternative in self.alternatives]

    def shape_matches(self, value: Any, state: State, scope: ShapeScope) -> bool:
        return self.match_shape(value, state, scope) is not None

    def explain(self, value: Any, state: State, scope: ShapeScope) -> c.Failure:
        required = f" (required by {self.annotation.__name__})"
        detail = ""
        if not self.class_matches(value):
            reason = f"{class_reason(value, self.annotation.array_types)}{required}."
        elif not self.dtype_matches(value):
            reason = f"{dtype_reason(value, self.dtypes_for(value))}{required}"
        else:
            assert self.spec is not None
            reason = f"{shape_reason(value, [self.spec.describe(scope)])}{required}."
            detail = explain_mismatch(
                self.spec.resolve(scope), _shape_of(value), state, scope
            )
        return c.Failure(reason, detail=detail, state=state, scope=scope)


@functools.lru_cache(maxsize=4096)
def array_checker_for(annotation: ArrayTypeMeta) -> ArrayChecker:
    """The checker of an array type; made once."""
    return ArrayChecker(annotation)


def _class_matches(value: Any, classes: tuple[type, ...]) -> bool:
    return any(ac.is_of_class(value, cls) for cls in classes)


def _shape_of(value: Any) -> Sizes:
    return static_shape(getattr(value, "shape", ())) or ()


def class_reason(value: Any, classes: tuple[type, ...]) -> str:
    names = "|".join(sorted({format_annotation(cls) for cls in classes}))
    return c.wrong_class(value, f"an instance of {names}")


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
