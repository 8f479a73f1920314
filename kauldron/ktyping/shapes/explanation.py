"""Which axis of a shape disagrees with a spec, and who said otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.arithmetic import Dims, Pending, possible_values
from kauldron.ktyping.shapes.matching import SpecMatcher, State
from kauldron.ktyping.shapes.sizes import Sizes, UnknownDim, format_size, format_sizes

if TYPE_CHECKING:
    from kauldron.ktyping.scopes.scope import ShapeScope


def format_shape(shape: Sizes) -> str:
    """A shape as Python prints it, with `_` for unknown sizes."""
    texts = ["_" if isinstance(size, UnknownDim) else str(size) for size in shape]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def explain_mismatch(
    matcher: SpecMatcher, shape: Sizes, state: State, scope: ShapeScope
) -> str:
    """One line about the attempt that got furthest; '' if there is nothing to add."""
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
    """Why no candidate has the right number of axes, '' if some candidate has."""
    wanted: dict[str, None] = {}
    for dims in state:
        lowest, highest = 0, 0
        known: list[str] = []
        for dim in spec.dims:
            low, high = dim.lengths
            if isinstance(dim, s.NamedDims) and dim.name in dims and low != high:
                low = high = len(dims[dim.name])
                known.append(f"*{dim.name} = {_tuple_text(dims[dim.name])}")
            lowest += low
            highest = None if highest is None or high is None else highest + high
        if lowest <= len(shape) and (highest is None or len(shape) <= highest):
            return ""
        given = f" with {', '.join(dict.fromkeys(known))}" if known else ""
        wanted[f"'{spec!r}'{given} needs {_rank_text(lowest, highest)}"] = None
    return f"rank {len(shape)}, but {next(iter(wanted))}"


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
    seen = _tuple_text(shape[axis : axis + max(1, len(known))])
    bound = f"*{dim.name} = {_tuple_text(known)}"
    return f"axis {axis}: {dim!r} is {seen}, but {bound} was bound {source}"


def _tuple_text(sizes: Sizes) -> str:
    texts = [format_size(size) for size in sizes]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
