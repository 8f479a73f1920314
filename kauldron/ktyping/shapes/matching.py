"""Match a shape against a spec: every way is kept, not only the first.

A state is a tuple of candidates ("one of these is true"), a candidate a dict from name
to sizes. Neither is ever changed in place: they are shared between calls.

Most specs are simple (numbers, names, at most one variable-length dim): then each
candidate has at most one extension, found without a search.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.parsing import parse
from kauldron.ktyping.shapes.sizes import (
    Dims,
    Pending,
    ShapeError,
    Sizes,
    State,
    UnknownDim,
    bind,
    compatible,
    format_size,
    format_sizes,
    merged,
    too_ambiguous,
)
from kauldron.ktyping.shapes.solving import alternatives, possible_values, solve
from kauldron.ktyping.shapes.templates import SpecTemplate, parse_template

if TYPE_CHECKING:
    from kauldron.ktyping.scopes import ShapeScope


_MAX_STEPS = 200_000

OnFailure = Callable[[int, s.Dim, Dims], None]


class SpecMatcher:
    """A parsed spec, ready to be matched. Made once per text by `matcher_for`."""

    __slots__ = ("_dims", "_edges", "_extend", "_ranks_after", "spec")

    def __init__(self, spec: s.ShapeSpec):
        self.spec = spec
        self._dims = spec.dims
        self._extend = _simple_extender(spec) if spec.is_simple else None
        self._edges = _fixed_axes(spec.dims)
        self._ranks_after = [
            s.total_lengths(spec.dims[i:]) for i in range(len(spec.dims) + 1)
        ]

    def match(
        self, shape: Sizes | None, state: State, pending: Pending
    ) -> State | None:
        """Return the candidates under which `shape` fits, `None` if there are none.

        A shape of `None` (not even the rank is known) fits every spec. Expressions that
        could not be determined go to `pending`.
        """
        if shape is None:
            return state
        if self._extend is None:
            return merged(self._search_all(shape, state, pending))
        if len(state) == 1:
            extended = self._extend(shape, state[0])
            if extended is None:
                return None
            return state if extended is state[0] else (extended,)
        found = (self._extend(shape, dims) for dims in state)
        return merged(dims for dims in found if dims is not None)

    def failures(self, shape: Sizes, state: State) -> list[tuple[int, s.Dim, Dims]]:
        """Return where each attempt got stuck: (axis, dim of the spec, candidate)."""
        stuck: list[tuple[int, s.Dim, Dims]] = []
        search = _Search(
            shape, Pending(settle=True), lambda *failure: stuck.append(failure)
        )
        with contextlib.suppress(ShapeError):  # enough attempts have been seen
            for dims in state:
                for _ in self._walk(search, 0, 0, dims):
                    pass
        return stuck

    def _search_all(
        self, shape: Sizes, state: State, pending: Pending
    ) -> Iterator[Dims]:
        lowest, highest = self._ranks_after[0]
        if len(shape) < lowest or (highest is not None and len(shape) > highest):
            return
        search = _Search(shape, pending, None)
        for dims in state:
            if self._edges_fit(shape, dims):
                yield from self._walk(search, 0, 0, dims)

    def _edges_fit(self, shape: Sizes, dims: Dims) -> bool:
        """Cheap look at the axes whose dim is certain, before any search."""
        for axis, dim in self._edges:
            sizes = dims.get(dim.name) if isinstance(dim, s.NamedDims) else (dim.value,)
            if sizes is not None and not (
                len(sizes) == 1 and compatible(sizes[0], shape[axis])
            ):
                return False
        return True

    def _walk(
        self, search: _Search, index: int, axis: int, dims: Dims
    ) -> Iterator[Dims]:
        """Consume `shape[axis:]` with `dims[index:]`, depth first."""
        search.count_step()
        if index == len(self._dims):
            if axis == len(search.shape):
                yield dims
            return
        lowest, highest = self._ranks_after[index + 1]
        available = len(search.shape) - axis
        most = available - lowest
        least = 0 if highest is None else max(0, available - highest)
        stuck = True
        for length, extended in search.options(self._dims[index], axis, most, dims):
            if least <= length <= most:
                stuck = False
                yield from self._walk(search, index + 1, axis + length, extended)
        if stuck and search.on_failure is not None:
            search.on_failure(axis, self._dims[index], dims)


@functools.lru_cache(maxsize=4096)
def matcher_for(text: str) -> SpecMatcher:
    """Return the matcher of a spec without f-string parts.

    >>> matcher_for("*p *q d").match((4, 5, 6), ({},), Pending())
    ({'p': (), 'q': (4, 5), 'd': (6,)}, {'p': (4,), 'q': (5,), 'd': (6,)}, {'p': (4, 5), 'q': (), 'd': (6,)})
    """
    return SpecMatcher(parse(text))


#
# Simple specs
#


def _simple_extender(spec: s.ShapeSpec) -> Callable[[Sizes, Dims], Dims | None]:
    """Return a function that extends one candidate, without a search."""
    lowest, highest = spec.ranks
    varying = [i for i, dim in enumerate(spec.dims) if dim.lengths != s.SINGLE]
    split = varying[0] if varying else len(spec.dims)
    after = len(spec.dims) - split - 1  # dims behind the variable one
    numbers: list[tuple[int, int]] = []
    singles: list[tuple[int, s.NamedDims]] = []
    for i, dim in enumerate(spec.dims):
        axis = i if i < split else i - len(spec.dims)
        if isinstance(dim, s.IntDim):
            numbers.append((axis, dim.value))
        elif isinstance(dim, s.NamedDims) and i != split:
            singles.append((axis, dim))
    variable = spec.dims[split] if varying else None
    if not isinstance(variable, s.NamedDims):
        variable = None

    def extend(shape: Sizes, dims: Dims) -> Dims | None:
        rank = len(shape)
        if rank < lowest or (highest is not None and rank > highest):
            return None
        for axis, value in numbers:
            if shape[axis] != value and not compatible(shape[axis], value):
                return None
        bound: Dims | None = dims
        if variable is not None:
            bound = bind(variable, shape[split : rank - after], bound)
        for axis, dim in singles:
            if bound is None:
                return None
            bound = bind(dim, (shape[axis],), bound)
        return bound

    return extend


#
# The other specs
#


def _fixed_axes(dims: tuple[s.Dim, ...]) -> list[tuple[int, s.IntDim | s.NamedDims]]:
    """Return the numbers and single names outside of the varying dims."""
    varying = [i for i, dim in enumerate(dims) if dim.lengths != s.SINGLE]
    first, last = (varying[0], varying[-1]) if varying else (len(dims), -1)
    edges = [(i, dim) for i, dim in enumerate(dims) if i < first]
    if varying:
        edges += [(i - len(dims), dim) for i, dim in enumerate(dims) if i > last]
    return [
        (axis, dim)
        for axis, dim in edges
        if isinstance(dim, (s.IntDim, s.NamedDims)) and not dim.broadcastable
    ]


class _Search:
    """One search over the ways to match one shape."""

    __slots__ = ("on_failure", "pending", "shape", "steps")

    def __init__(self, shape: Sizes, pending: Pending, on_failure: OnFailure | None):
        self.shape = shape
        self.pending = pending
        self.on_failure = on_failure
        self.steps = 0

    def count_step(self) -> None:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise too_ambiguous()

    def options(
        self, dim: s.Dim, axis: int, most: int, dims: Dims
    ) -> Iterator[tuple[int, Dims]]:
        """Yield the ways to go on with `dim` at `axis`: (axes consumed, candidate)."""
        if isinstance(dim, s.OptionalDim):
            yield 0, dims
            yield from self.options(dim.child, axis, most, dims)
        elif isinstance(dim, s.ChoiceDim):
            yield from self.options(dim.left, axis, most, dims)
            yield from self.options(dim.right, axis, most, dims)
        elif isinstance(dim, s.AnonDims):
            yield from ((length, dims) for length in _lengths(dim.lengths, most))
        elif isinstance(dim, s.NamedDims):
            yield from self._named(dim, axis, most, dims)
        elif most > 0:
            for expression in alternatives(dim):
                size = self.shape[axis]
                for extended in solve(expression, size, dims, self.pending):
                    yield 1, extended

    def _named(
        self, dim: s.NamedDims, axis: int, most: int, dims: Dims
    ) -> Iterator[tuple[int, Dims]]:
        known = dims.get(dim.name)
        lengths = _lengths(dim.lengths, most)
        if known is not None:
            lengths = [len(known)] if len(known) in lengths else []
        for length in lengths:
            extended = bind(dim, self.shape[axis : axis + length], dims)
            if extended is not None:
                yield length, extended


def _lengths(allowed: s.Lengths, most: int) -> range:
    lowest, highest = allowed
    return range(lowest, (most if highest is None else min(highest, most)) + 1)


#
# Specs as written, f-string parts included
#


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
        return self.matcher or matcher_for(self._render(scope))

    def describe(self, scope: ShapeScope) -> str:
        """Return `'b {n}' (= 'b 4')`."""
        if self.template is None:
            return repr(self.text)
        return f"{self.text!r} (= {self._render(scope)!r})"

    def _render(self, scope: ShapeScope) -> str:
        """Return the text with its f-string parts filled in."""
        assert self.template is not None
        return self.template.render(scope.lookup, scope.visible_names)

    def match(
        self, shape: Sizes | None, state: State, scope: ShapeScope
    ) -> State | None:
        matcher = self.matcher or self.resolve(scope)
        pending = Pending(scope.settle)
        result = matcher.match(shape, state, pending)
        if pending and result is None:
            scope.undetermined = True
        return result


#
# For messages: which axis disagrees with a spec, and what bound the expected size
#


def format_shape(shape: Sizes) -> str:
    """Return a shape as Python prints it, with `_` for unknown sizes."""
    return _tuple_text(
        "_" if isinstance(size, UnknownDim) else str(size) for size in shape
    )


def explain_mismatch(
    matcher: SpecMatcher, shape: Sizes, state: State, scope: ShapeScope
) -> str:
    """Return a line about the attempt that got furthest; '' if there is none."""
    pending = Pending(settle=True)
    matcher.match(shape, state, pending)
    if pending:
        return _undetermined(pending[-1], state[0])
    rank = _rank_mismatch(matcher.spec, shape, state)
    if rank:
        return rank
    failures = matcher.failures(shape, state)
    if not failures:
        return ""
    axis, dim, dims = max(failures, key=lambda failure: failure[0])
    return _explain_axis(axis, dim, dims, shape, scope)


def _undetermined(dim: s.Dim, dims: Dims) -> str:
    names = dict.fromkeys(
        repr(node.name)
        for node in dim.walk()
        if isinstance(node, s.NamedDims) and node.name not in dims
    )
    return f"cannot determine '{dim!r}': {', '.join(names)} unknown"


def _rank_mismatch(spec: s.ShapeSpec, shape: Sizes, state: State) -> str:
    """Return why no candidate has the right rank, '' if one has."""
    wanted: list[str] = []
    for dims in state:
        lowest, highest = 0, 0
        known: list[str] = []
        for dim in spec.dims:
            low, high = dim.lengths
            if isinstance(dim, s.NamedDims) and dim.name in dims and low != high:
                low = high = len(dims[dim.name])
                sizes = _tuple_text(map(format_size, dims[dim.name]))
                known.append(f"*{dim.name} = {sizes}")
            lowest += low
            highest = None if highest is None or high is None else highest + high
        if lowest <= len(shape) and (highest is None or len(shape) <= highest):
            return ""
        given = f" with {', '.join(dict.fromkeys(known))}" if known else ""
        wanted.append(f"'{spec!r}'{given} needs {_rank_text(lowest, highest)}")
    return f"rank {len(shape)}, but {wanted[0]}"


def _rank_text(lowest: int, highest: int | None) -> str:
    if highest is None:
        return f"rank {lowest} or more"
    return f"rank {lowest}" if lowest == highest else f"rank {lowest} to {highest}"


def _explain_axis(
    axis: int, dim: s.Dim, dims: Dims, shape: Sizes, scope: ShapeScope
) -> str:
    if axis >= len(shape):
        return f"no axis is left for '{dim!r}'"
    size = format_size(shape[axis])
    if isinstance(dim, s.NamedDims) and dim.name in dims:
        return _explain_name(axis, dim, dims, shape, scope)
    if isinstance(dim, s.IntDim):
        return f"axis {axis}: expected {dim!r}, got {size}"
    values = possible_values(dim, dims) if dim.lengths == s.SINGLE else None
    if values:
        texts = " or ".join(format_size(value) for value in values)
        return f"axis {axis}: '{dim!r}' is {texts}, got {size}"
    return f"axis {axis}: '{dim!r}' cannot be {size}"


def _explain_name(
    axis: int, dim: s.NamedDims, dims: Dims, shape: Sizes, scope: ShapeScope
) -> str:
    known = dims[dim.name]
    source = scope.describe_binding(dim.name, known)
    if dim.lengths == s.SINGLE and len(known) == 1:
        seen = format_size(shape[axis])
        bound = f"{dim.name} = {format_sizes(known)}"
        return f"axis {axis}: {dim.name} is {seen}, but {bound} was bound {source}"
    seen = _tuple_text(map(format_size, shape[axis : axis + max(1, len(known))]))
    bound = f"*{dim.name} = {_tuple_text(map(format_size, known))}"
    return f"axis {axis}: {dim!r} is {seen}, but {bound} was bound {source}"


def _tuple_text(texts: Iterable[str]) -> str:
    parts = list(texts)
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
