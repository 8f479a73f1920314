"""Programs that are the same up to constants, and their evaluation with other constants.

`jax.make_jaxpr` of a step has seen the real values of a config, so every Python branch was
taken as in a run of its own. What is left of a learning rate, a seed or a dropout rate are
literals and captured arrays. `describe` takes them out of a program: what remains, its
skeleton, is equal for programs that differ in constants alone. `evaluate` runs a program
with other values in the places where constants differ.

Functions that are the same program with the same constants are compiled once by `SharedJit`.

Constants inside inner programs (`jit`, `scan`, `cond`, `while`, ...) count as well. Those
inside primitives that this module does not know belong to the skeleton.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, DropVar, Jaxpr, Literal, Var, jaxpr_as_fun
from jax.extend.core import primitives as p
from jax.interpreters import partial_eval

from kauldron.train.programs import no_names

# Where a constant stands: numbers of equations and operands, from the outside inwards.
Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """A program in two parts.

    Attributes:
      skeleton: What the program does, without the values of constants; comparable.
      constants: The values, by place.
    """

    skeleton: Any
    constants: Mapping[Path, np.ndarray]

    def is_same_program(self, other: Description) -> bool:
        """Return whether two programs differ in constants alone."""
        return self.skeleton == other.skeleton


def describe(program: ClosedJaxpr) -> Description:
    """Return a program's skeleton and constants.

    Example:
      >>> one = describe(jax.make_jaxpr(lambda x: 2.0 * x)(1.0))
      >>> two = describe(jax.make_jaxpr(lambda x: 3.0 * x)(1.0))
      >>> one.is_same_program(two), list(map(float, two.constants.values()))
      (True, [3.0])
    """
    constants: dict[Path, np.ndarray] = {}
    skeleton = _skeleton(program.jaxpr, program.consts, (), constants)
    return Description(skeleton=skeleton, constants=constants)


def differing(descriptions: Sequence[Description]) -> dict[Path, list[np.ndarray]]:
    """Return the values of constants that are not the same in all programs, by place."""
    first = descriptions[0].constants
    return {
        path: [d.constants[path] for d in descriptions]
        for path, value in first.items()
        if any(not _equal(value, d.constants[path]) for d in descriptions[1:])
    }


def has_operation(program: ClosedJaxpr | Jaxpr, primitive: Any) -> bool:
    """Return whether a program, or one inside it, has an operation.

    Example:
      >>> program = jax.make_jaxpr(jax.jit(jax.numpy.sin))(1.0)
      >>> has_operation(program, p.sin_p), has_operation(program, p.cos_p)
      (True, False)
    """
    jaxpr, _ = _opened(program)
    return any(
        equation.primitive is primitive
        or any(
            has_operation(inner, primitive)
            for value in equation.params.values()
            for inner in _as_tuple(value)
            if isinstance(inner, ClosedJaxpr | Jaxpr)
        )
        for equation in jaxpr.eqns
    )


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()  # NaN is itself, 0.0 is not -0.0


#
# Taking constants out
#


# Inner programs that `evaluate` can enter, by the parameters that hold them.
_ENTERED = {
    p.jit_p: ("jaxpr",),
    p.closed_call_p: ("call_jaxpr",),
    p.custom_jvp_call_p: ("call_jaxpr",),
    p.custom_vjp_call_p: ("call_jaxpr",),
    p.remat_p: ("jaxpr",),
    p.cond_p: ("branches",),
    p.scan_p: ("jaxpr",),
    p.while_p: ("cond_jaxpr", "body_jaxpr"),
}
# Derivatives are taken before a program is described: their rules have no effect.
_WITHOUT_EFFECT = {
    p.custom_jvp_call_p: ("jvp_jaxpr_fun", "jvp_jaxpr_thunk"),
    p.custom_vjp_call_p: ("fwd_jaxpr_thunk", "bwd", "out_trees", "num_consts"),
}


def _skeleton(
    jaxpr: Jaxpr, consts: Iterable[Any], path: Path, constants: dict[Path, Any]
) -> Any:
    numbers: dict[Var, int] = {}

    def bind(variable: Var) -> Any:
        numbers[variable] = len(numbers)
        return _type_of(variable.aval)

    def use(atom: Any, place: Path) -> Any:
        if isinstance(atom, Literal):
            constants[(*path, *place)] = np.asarray(atom.val)
            return _type_of(atom.aval)
        return numbers[atom]

    for index, value in enumerate(consts):
        constants[(*path, "const", index)] = _host_value(value)
    inputs = [bind(v) for v in (*jaxpr.constvars, *jaxpr.invars)]
    equations = []
    for index, equation in enumerate(jaxpr.eqns):
        operands = [use(a, (index, n)) for n, a in enumerate(equation.invars)]
        params = _params(equation, (*path, index), constants)
        results = [bind(v) for v in equation.outvars]
        equations.append((equation.primitive.name, operands, params, results))
    outputs = [use(a, ("out", n)) for n, a in enumerate(jaxpr.outvars)]
    return (inputs, equations, outputs)


def _params(equation: Any, path: Path, constants: dict[Path, Any]) -> Any:
    """Return parameters in a form that can be compared."""
    entered = _ENTERED.get(equation.primitive, ())
    ignored = _WITHOUT_EFFECT.get(equation.primitive, ())
    found = []
    for name, value in sorted(equation.params.items()):
        if name in ignored:
            continue
        if name in entered:
            value = [
                _skeleton(*_opened(inner), (*path, name, n), constants)
                for n, inner in enumerate(_as_tuple(value))
            ]
        else:
            value = _comparable(value)
        found.append((name, value))
    return found


def _comparable(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr | Jaxpr):
        own: dict[Path, Any] = {}
        skeleton = _skeleton(*_opened(value), (), own)
        return skeleton, [(path, v.tobytes()) for path, v in own.items()]
    if isinstance(value, np.ndarray | jax.Array):
        value = _host_value(value)
        return value.dtype, value.shape, value.tobytes()
    if type(value) in (tuple, list):
        return tuple(map(_comparable, value))
    return value


def _type_of(aval: Any) -> Any:
    return str(getattr(aval, "dtype", aval)), getattr(aval, "shape", None)


def _opened(program: Any) -> tuple[Jaxpr, Sequence[Any]]:
    if isinstance(program, ClosedJaxpr):
        return program.jaxpr, program.consts
    return program, ()


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _host_value(value: Any) -> np.ndarray:
    if jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(value))
    return np.asarray(value)


#
# Evaluation
#


def evaluate(
    program: ClosedJaxpr, changed: Mapping[Path, Any], *args: Any
) -> list[Any]:
    """Return the results of a program with other constants.

    Args:
      program: The program.
      changed: Values for some of its constants, by place; may be traced.
      *args: The flat inputs.

    Example:
      >>> program = jax.make_jaxpr(lambda x: 2.0 * x)(1.0)
      >>> (place,) = describe(program).constants
      >>> float(evaluate(program, {place: 5.0}, 1.0)[0])
      5.0
    """
    return _evaluate(program.jaxpr, program.consts, changed, args)


def _evaluate(
    jaxpr: Jaxpr,
    consts: Iterable[Any],
    changed: Mapping[Path, Any],
    args: Sequence[Any],
) -> list[Any]:
    values: dict[Var, Any] = dict(zip(jaxpr.invars, args, strict=True))
    for index, (variable, const) in enumerate(zip(jaxpr.constvars, consts)):
        new = changed.get(("const", index))
        values[variable] = const if new is None else _like(const, new)

    def read(atom: Any, place: Path) -> Any:
        if place in changed:
            return changed[place]
        return atom.val if isinstance(atom, Literal) else values[atom]

    below = _by_equation(changed)
    for index, equation in enumerate(jaxpr.eqns):
        operands = [read(atom, (index, n)) for n, atom in enumerate(equation.invars)]
        inner = below.get(index)
        if inner:
            enter = _ENTER.get(equation.primitive, _enter_call)
            results = enter(equation, inner, operands)
        else:
            results = _run_equation(equation, operands)
        values |= zip(equation.outvars, results, strict=True)
    return [read(atom, ("out", n)) for n, atom in enumerate(jaxpr.outvars)]


def _by_equation(changed: Mapping[Path, Any]) -> dict[Any, dict[Path, Any]]:
    """Return constants inside inner programs by the numbers of their equations."""
    grouped: dict[Any, dict[Path, Any]] = {}
    for (first, *rest), value in changed.items():
        if len(rest) > 1:
            grouped.setdefault(first, {})[tuple(rest)] = value
    return grouped


def _run_equation(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Return the results of one equation, evaluated as a program of its own."""
    values: dict[Var, Any] = {}
    atoms = []
    for atom, value in zip(equation.invars, operands, strict=True):
        if not isinstance(atom, Literal):
            values[atom] = value
        elif value is not atom.val:
            atom = _new_variable(atom.aval)
            values[atom] = value
        atoms.append(atom)
    results = [v for v in equation.outvars if not isinstance(v, DropVar)]
    jaxpr = Jaxpr(
        (),
        list(values),
        results,
        [equation.replace(invars=atoms)],
        effects=equation.effects,
        debug_info=no_names(),
    )
    found = iter(jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))(*values.values()))
    return [None if isinstance(v, DropVar) else next(found) for v in equation.outvars]


def _new_variable(aval: Any) -> Var:
    spec = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return jax.make_jaxpr(lambda x: x)(spec).jaxpr.invars[0]


def _like(const: Any, new: Any) -> Any:
    """Return a constant as what it stands for: a key is stored as its numbers."""
    if jax.dtypes.issubdtype(getattr(const, "dtype", None), jax.dtypes.prng_key):
        return jax.random.wrap_key_data(new, impl=jax.random.key_impl(const))
    return new


def _function(
    params: Mapping[str, Any], inner: Mapping[Path, Any], name: str, number: int = 0
) -> Callable[..., list[Any]]:
    """Return an inner program with its changed constants as a function."""
    jaxpr, consts = _opened(_as_tuple(params[name])[number])
    start = (name, number)
    own = {path[2:]: value for path, value in inner.items() if path[:2] == start}
    return lambda *args: _evaluate(jaxpr, consts, own, args)


def _enter_call(equation: Any, inner: Any, operands: Sequence[Any]) -> list[Any]:
    [name] = _ENTERED[equation.primitive]
    return _function(equation.params, inner, name)(*operands)


def _enter_cond(equation: Any, inner: Any, operands: Sequence[Any]) -> list[Any]:
    params = equation.params
    index, *rest = operands
    count = len(params["branches"])
    branches = [_function(params, inner, "branches", n) for n in range(count)]
    return jax.lax.switch(index, branches, *rest)


def _enter_scan(equation: Any, inner: Any, operands: Sequence[Any]) -> list[Any]:
    params = equation.params
    body = _function(params, inner, "jaxpr")
    # Versions of jax name the counts differently. What is sliced has one more axis.
    jaxpr, _ = _opened(params["jaxpr"])
    num_xs = _count_sliced(equation.invars, jaxpr.invars)
    num_carry = len(equation.outvars) - _count_sliced(equation.outvars, jaxpr.outvars)
    num_consts = len(operands) - num_carry - num_xs
    consts, carry, xs = _split(operands, num_consts, num_carry)

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        results = body(*consts, *carry, *x)
        return results[: len(carry)], results[len(carry) :]

    carry, ys = jax.lax.scan(
        step,
        carry,
        xs,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *ys]


def _count_sliced(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    pairs = zip(outside, inside, strict=True)
    return sum(len(out.aval.shape) > len(own.aval.shape) for out, own in pairs)


def _enter_while(equation: Any, inner: Any, operands: Sequence[Any]) -> list[Any]:
    params = equation.params
    is_on = _function(params, inner, "cond_jaxpr")
    body = _function(params, inner, "body_jaxpr")
    of_cond, of_body, start = _split(
        operands, params["cond_nconsts"], params["body_nconsts"]
    )
    return jax.lax.while_loop(
        lambda carry: is_on(*of_cond, *carry)[0],
        lambda carry: body(*of_body, *carry),
        start,
    )


def _split(values: Sequence[Any], *sizes: int) -> list[list[Any]]:
    parts, rest = [], list(values)
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    return [*parts, rest]


_ENTER: dict[Any, Callable[..., list[Any]]] = {
    p.cond_p: _enter_cond,
    p.scan_p: _enter_scan,
    p.while_p: _enter_while,
}


#
# Compiled once
#


class SharedJit:
    """Compiles functions like `jax.jit`, but once for all that are the same program.

    Results have the structure that each function gives them, with its own metadata. What
    results do not depend on, such as a random key that nothing uses, may differ.

    Example:
      >>> shared = SharedJit()
      >>> one, two = shared(lambda _, x: 2 * x), shared(lambda _, x: {"y": 2 * x})
      >>> one(None, np.float32(3)), two(None, np.float32(3))
      (Array(6., dtype=float32), {'y': Array(6., dtype=float32)})
      >>> len(shared.compiled)
      1
    """

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, Description, Callable[..., Any]]] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the compiled function; its first argument is static."""
        own = jax.jit(function, static_argnums=0)
        found: dict[Any, tuple[Callable[..., Any], Any]] = {}

        def call(static: Any, *args: Any) -> Any:
            leaves, structure = jax.tree.flatten(args)
            types = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
            key = (static, structure, types)
            if key not in found:
                traced = own.trace(static, *args)
                outputs = jax.tree.structure(traced.out_info)
                found[key] = self._same_or(own, key, traced.jaxpr), outputs
            compiled, outputs = found[key]
            results = jax.tree.leaves(compiled(static, *args))
            return jax.tree.unflatten(outputs, results)

        return call

    def _same_or(self, own: Any, key: Any, program: ClosedJaxpr) -> Any:
        """Return a compiled function that is this program; the own one if there is none."""
        jaxpr = program.jaxpr
        used, _ = partial_eval.dce_jaxpr(
            jaxpr, [True] * len(jaxpr.outvars), instantiate=True
        )
        description = describe(ClosedJaxpr(used, program.consts))
        for other_key, other, compiled in self.compiled:
            if (
                other_key == key
                and description.is_same_program(other)
                and not differing([description, other])
            ):
                return compiled
        self.compiled.append((key, description, own))
        return own
