"""From a spec and known dims to concrete sizes: what `kt.shape` returns."""

from __future__ import annotations

from kauldron.ktyping.shapes import arithmetic
from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.arithmetic import Dims
from kauldron.ktyping.shapes.matching import State
from kauldron.ktyping.shapes.sizes import (
    UNKNOWN_DIM,
    UNSIZED_DIM,
    Size,
    Sizes,
    is_symbolic,
)
from kauldron.ktyping.shapes.spec_errors import ShapeError


def evaluate(spec: s.ShapeSpec, state: State, *, take_first: bool = False) -> Sizes:
    """The shape that `spec` describes under the candidates of `state`.

    Args:
      spec: A parsed spec.
      state: The candidates; those under which the spec has no value are ignored.
      take_first: On disagreement take the first candidate instead of raising.

    Raises:
      ShapeError: If no candidate gives a shape, or several give different ones.
    """
    if len(state) == 1:
        try:
            return _evaluate_dims(spec, state[0])
        except ShapeError as error:
            raise _impossible(spec, error) from None
    shapes: dict[Sizes, None] = {}
    last_error: ShapeError | None = None
    for dims in state:
        try:
            shapes[_evaluate_dims(spec, dims)] = None
        except ShapeError as error:
            last_error = error
    if not shapes:
        raise _impossible(spec, last_error)
    if len(shapes) > 1 and not take_first:
        texts = " | ".join(str(shape) for shape in shapes)
        raise ShapeError(f"Shape '{spec!r}' is ambiguous: {texts}")
    return next(iter(shapes))


def _impossible(spec: s.ShapeSpec, reason: ShapeError | None) -> ShapeError:
    return ShapeError(f"No possible shape found for '{spec!r}': {reason}")


def _evaluate_dims(spec: s.ShapeSpec, dims: Dims) -> Sizes:
    sizes: list[Size] = []
    for dim in spec.dims:
        if isinstance(dim, s.NamedDims):
            sizes += _evaluate_name(dim, dims)
        else:
            sizes.append(_evaluate_one(dim, dims))
    return tuple(sizes)


def _evaluate_name(dim: s.NamedDims, dims: Dims) -> Sizes:
    if dim.broadcastable:
        raise _not_evaluable(dim, "broadcastable")
    sizes = dims.get(dim.name)
    if sizes is None:
        known = sorted(name for name in dims if not name.startswith("$"))
        raise ShapeError(f"No value known for {dim.name!r}. Known dims: {known}")
    if not dim.accepts(len(sizes)):
        raise ShapeError(f"'{dim!r}' does not fit {dim.name!r} of length {len(sizes)}")
    for size in sizes:
        if size is UNSIZED_DIM:
            raise ShapeError(f"size of {dim.name!r} is not statically known")
    if any(
        size is UNKNOWN_DIM for size in sizes
    ):  # seen as 1 wherever it was broadcast
        return tuple(1 if size is UNKNOWN_DIM else size for size in sizes)
    return sizes


def _evaluate_one(dim: s.Dim, dims: Dims) -> Size:
    if isinstance(dim, s.IntDim):
        if dim.broadcastable:
            raise _not_evaluable(dim, "broadcastable")
        return dim.value
    if isinstance(dim, s.NamedDims):
        sizes = _evaluate_name(dim, dims)
        if len(sizes) != 1:
            raise ShapeError(
                f"'{dim!r}' has {len(sizes)} axes, arithmetic needs exactly one"
            )
        return sizes[0]
    if isinstance(dim, s.NegatedDim):
        return -_evaluate_one(dim.child, dims)
    if isinstance(dim, s.BinaryOpDim):
        return _evaluate_operation(dim, dims)
    if isinstance(dim, s.FunctionDim):
        return _evaluate_function(dim, dims)
    kinds = {s.AnonDims: "anonymous", s.OptionalDim: "optional"}
    raise _not_evaluable(dim, kinds.get(type(dim), "OR operator"))


def _evaluate_operation(dim: s.BinaryOpDim, dims: Dims) -> Size:
    left, right = _evaluate_one(dim.left, dims), _evaluate_one(dim.right, dims)
    result = arithmetic.apply(dim.op, left, right)
    if isinstance(result, int) or is_symbolic(result):
        return result
    raise ShapeError(f"'{dim!r}' = {left}{dim.op}{right} is not an integer size")


def _evaluate_function(dim: s.FunctionDim, dims: Dims) -> Size:
    sizes: list[Size] = []
    for argument in dim.arguments:
        if isinstance(argument, s.NamedDims):
            sizes += _evaluate_name(argument, dims)
        else:
            sizes.append(_evaluate_one(argument, dims))
    results = arithmetic.call(dim.name, [[size] for size in sizes])
    if not results:
        raise ShapeError(f"'{dim!r}' has no value: no sizes are given")
    return results[0]


def _not_evaluable(dim: s.Dim, kind: str) -> ShapeError:
    return ShapeError(f"'{dim!r}' cannot be evaluated: it is {_ARTICLES[kind]}")


_ARTICLES = {
    "broadcastable": "a broadcastable dim",
    "anonymous": "an anonymous dim",
    "optional": "an optional dim",
    "OR operator": "a choice (OR operator)",
}
