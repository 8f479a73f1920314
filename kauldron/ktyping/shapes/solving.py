"""Dims that are computed: their values, and what they say about an unknown name.

`solve(dim, size, dims)` finds all ways to extend an assignment so that an expression
equals the size of an axis. A name that occurs once can be found (`2*a+1` on
an axis of 7 gives `a = 3`); where two are missing, or one under `%` or `**`, the
expression is put aside.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

from kauldron.ktyping.shapes import spec as s
from kauldron.ktyping.shapes.sizes import (
    UNKNOWN_DIM,
    UNSIZED_DIM,
    Dims,
    Pending,
    ShapeError,
    Size,
    Sizes,
    State,
    UnknownDim,
    bind,
    compatible,
    format_sizes,
    is_symbolic,
    provably_negative,
)

# No axis is that long; without a limit `9**9**9` would never end.
_MAX_BITS = 128
_MAX_ALTERNATIVES = 1000


#
# Choices inside an expression: `(a|b)+1` means `(a+1)|(b+1)`
#


@functools.lru_cache(maxsize=1024)
def alternatives(dim: s.Dim) -> tuple[s.Dim, ...]:
    """Return the expressions without choices that `dim` stands for.

    >>> from kauldron.ktyping.shapes.parsing import parse
    >>> alternatives(parse("(a|b)*(2|3)").dims[0])
    (a*2, a*3, b*2, b*3)
    """
    if isinstance(dim, s.ChoiceDim):
        return alternatives(dim.left) + alternatives(dim.right)
    parts = [alternatives(child) for child in dim.children()]
    if math.prod(map(len, parts)) > _MAX_ALTERNATIVES:
        raise ShapeError(f"{dim!r} is too ambiguous; name or fix some dims")
    rows = itertools.product(*parts)
    if isinstance(dim, s.BinaryOpDim):
        return tuple(s.BinaryOpDim(dim.op, *row) for row in rows)
    if isinstance(dim, s.NegatedDim):
        return tuple(s.NegatedDim(*row) for row in rows)
    if isinstance(dim, s.FunctionDim):
        return tuple(s.FunctionDim(dim.name, row) for row in rows)
    return (dim,)


#
# Known values
#


def possible_values(dim: s.Dim, dims: Dims) -> list[Size] | None:
    """Return the sizes that `dim` may have, `None` if a name in it is unknown."""
    if isinstance(dim, s.IntDim):
        return [dim.value, 1] if dim.broadcastable else [dim.value]
    if isinstance(dim, s.NamedDims):
        return _named_values(dim, dims)
    if isinstance(dim, s.NegatedDim):
        values = possible_values(dim.child, dims)
        return None if values is None else [-value for value in values]
    if isinstance(dim, s.BinaryOpDim):
        left, right = possible_values(dim.left, dims), possible_values(dim.right, dims)
        if left is None or right is None:
            return None
        return _combine(functools.partial(apply, dim.op), left, right)
    if isinstance(dim, s.FunctionDim):
        return _function_values(dim, dims)
    return None  # anonymous


def _named_values(dim: s.NamedDims, dims: Dims) -> list[Size] | None:
    sizes = dims.get(dim.name)
    if sizes is None:
        return None
    if len(sizes) != 1:
        return []  # several axes are not a number
    return [sizes[0], 1] if dim.broadcastable else [sizes[0]]


def _function_values(dim: s.FunctionDim, dims: Dims) -> list[Size] | None:
    options: list[list[Size]] = []
    for argument in dim.arguments:
        if isinstance(argument, s.NamedDims):
            sizes = dims.get(argument.name)
            if sizes is None:
                return None
            if not argument.accepts(len(sizes)):
                return []
            options += [[x, 1] if argument.broadcastable else [x] for x in sizes]
        else:
            values = possible_values(argument, dims)
            if values is None:
                return None
            options.append(values)
    return _call(dim.name, options)


def _call(function: str, options: list[list[Size]]) -> list[Size]:
    """Return the possible results of `min`, `max`, `sum` or `prod`.

    `options` are the sizes that each argument may have.
    """
    if function in _NEUTRAL:
        op, start = _NEUTRAL[function]
        step, options = functools.partial(apply, op), [[start], *options]
    else:
        step = functools.partial(_extreme, function)
    if not options:
        return []
    return functools.reduce(functools.partial(_combine, step), options)


_NEUTRAL = {"sum": ("+", 0), "prod": ("*", 1)}


def _combine(function: Any, left: list[Size], right: list[Size]) -> list[Size]:
    """Return the distinct results of a function of two sizes that are defined."""
    results = dict.fromkeys(function(a, b) for a in left for b in right)
    results.pop(None, None)
    if len(results) > _MAX_ALTERNATIVES:
        raise ShapeError("an expression is too ambiguous; name or fix some dims")
    return list(results)


_OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def apply(op: str, left: Size, right: Size) -> Size | None:
    """Return the result of an operation, `None` if it has none that is an integer."""
    if op in ("/", "//", "%") and isinstance(right, int) and right == 0:
        return None
    if op == "/":
        quotient = apply("//", left, right)
        exact = quotient is not None and compatible(quotient * right, left)
        return quotient if exact else None
    if op == "**" and isinstance(left, int) and isinstance(right, int):
        return _power(left, right)
    return _attempt(_OPERATIONS[op], left, right)


def _power(base: int, exponent: int) -> int | None:
    """`base**exponent`, `None` if it is a fraction or larger than any axis."""
    if abs(base) == 1:
        return base ** abs(exponent)
    if exponent < 0 or exponent * base.bit_length() > _MAX_BITS:
        return None
    return base**exponent


def _extreme(function: str, left: Size, right: Size) -> Size:
    for size in (left, right):
        if isinstance(size, UnknownDim):
            return size
    if is_symbolic(left) or is_symbolic(right):
        import jax  # symbolic sizes come from there, so it is loaded

        pick = jax.core.min_dim if function == "min" else jax.core.max_dim
        return _attempt(pick, left, right)
    return min(left, right) if function == "min" else max(left, right)


def _attempt(function: Any, *args: Any) -> Any:
    """JAX refuses some operations on symbolic sizes: their result is not known."""
    try:
        return function(*args)
    except ArithmeticError:
        return None
    except Exception:
        return UNKNOWN_DIM


#
# Solving
#


def solve(dim: s.Dim, size: Size, dims: Dims, pending: Pending) -> Iterator[Dims]:
    """Yield all extensions of `dims` under which the expression `dim` equals `size`.

    The expression has no choices. What cannot be determined yet goes to `pending`.
    """
    if isinstance(dim, s.NamedDims):
        yield from _solve_name(dim, size, dims)
    elif isinstance(dim, s.NegatedDim):
        yield from solve(dim.child, -size, dims, pending)
    elif isinstance(dim, s.AnonDims):
        if not provably_negative(size):
            yield dims
    else:
        values = possible_values(dim, dims)
        if values is not None:
            if any(compatible(value, size) for value in values):
                yield dims
        elif isinstance(size, UnknownDim):
            yield dims
        elif isinstance(dim, s.BinaryOpDim):
            yield from _solve_operation(dim, size, dims, pending)
        else:
            pending.append(dim)


def _solve_name(dim: s.NamedDims, size: Size, dims: Dims) -> Iterator[Dims]:
    if provably_negative(size):
        return
    bound = bind(dim, (size,), dims)
    if bound is not None:
        yield bound


def _solve_operation(
    dim: s.BinaryOpDim, size: Size, dims: Dims, pending: Pending
) -> Iterator[Dims]:
    left, right = possible_values(dim.left, dims), possible_values(dim.right, dims)
    is_rounded = dim.op == "//" and left is None and right != [1]
    if (
        dim.op in ("%", "**")
        or (left is None and right is None)
        or (is_rounded and not pending.settle)
    ):
        pending.append(dim)
        return
    if left is None:
        assert right is not None
        unknown, known, solutions = dim.left, right, _left_solutions
    else:
        unknown, known, solutions = dim.right, left, _right_solutions
    for value in known:
        for solution in solutions(dim.op, size, value):
            if isinstance(solution, UnknownDim):  # whatever it is, it fits
                yield dims
            else:
                yield from solve(unknown, solution, dims, pending)


def _left_solutions(op: str, size: Size, right: Size) -> Iterator[Any]:
    """Yield every `x` with `x op right == size`."""
    if op == "+":
        yield size - right
    elif op == "-":
        yield size + right
    elif op == "*":
        yield from _factors(size, right)
    elif right != 0:
        yield size * right  # of `//` only the exact multiple


def _right_solutions(op: str, size: Size, left: Size) -> Iterator[Any]:
    """Yield every `x` with `left op x == size`."""
    if op == "+":
        yield size - left
    elif op == "-":
        yield left - size
    elif op == "*":
        yield from _factors(size, left)
    else:
        quotient = apply("//", left, size)
        result = None if quotient is None else apply(op, left, quotient)
        if result is not None and compatible(result, size):
            yield quotient


def _factors(size: Size, known: Size) -> Iterator[Any]:
    if isinstance(known, int) and known == 0:
        if compatible(size, 0):
            yield UNKNOWN_DIM
        return
    quotient = apply("/", size, known)
    if quotient is not None:
        yield quotient


#
# Evaluation: what `kt.shape` returns
#


def evaluate(spec: s.ShapeSpec, state: State, *, take_first: bool = False) -> Sizes:
    """Return the shape that `spec` describes under the candidates of `state`.

    Candidates under which it has no value are ignored. If the others disagree, the
    first is taken, or else it is an error.
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
            sizes.append(_evaluate_expression(dim, dims))
    return tuple(sizes)


def _evaluate_name(dim: s.NamedDims, dims: Dims) -> Sizes:
    if dim.broadcastable:
        raise _not_evaluable(dim, "a broadcastable dim")
    sizes = dims.get(dim.name)
    if sizes is None:
        known = sorted(name for name in dims if not name.startswith("$"))
        raise ShapeError(f"No value known for {dim.name!r}. Known dims: {known}")
    if not dim.accepts(len(sizes)):
        raise ShapeError(f"'{dim!r}' does not fit {dim.name!r} of length {len(sizes)}")
    if any(size is UNSIZED_DIM for size in sizes):
        raise ShapeError(f"size of {dim.name!r} is not statically known")
    # What was only seen broadcast was 1 wherever it was seen.
    return tuple(1 if size is UNKNOWN_DIM else size for size in sizes)


def _evaluate_expression(dim: s.Dim, dims: Dims) -> Size:
    known: dict[str, Sizes] = {}
    for node in dim.walk():
        if isinstance(node, s.NamedDims):
            known[node.name] = _evaluate_name(node, dims)
        elif isinstance(node, s.IntDim) and node.broadcastable:
            raise _not_evaluable(node, "a broadcastable dim")
        elif type(node) in _NOT_EVALUABLE:
            raise _not_evaluable(node, _NOT_EVALUABLE[type(node)])
    values = possible_values(dim, known)
    if values and (isinstance(values[0], int) or is_symbolic(values[0])):
        return values[0]
    given = ", ".join(f"{name} = {format_sizes(x)}" for name, x in known.items())
    reason = f"'{dim!r}' is not an integer size{f' for {given}' if given else ''}"
    if any(len(sizes) != 1 for sizes in known.values()):
        reason += ": arithmetic needs exactly one axis for each name"
    raise ShapeError(reason)


def _not_evaluable(dim: s.Dim, what: str) -> ShapeError:
    return ShapeError(f"'{dim!r}' cannot be evaluated: it is {what}")


_NOT_EVALUABLE: dict[type[s.Dim], str] = {
    s.AnonDims: "an anonymous dim",
    s.OptionalDim: "an optional dim",
    s.ChoiceDim: "a choice (OR operator)",
}
