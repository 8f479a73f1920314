"""What jax compiles for a trainer: methods, and the initialisation of large models."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxpr_as_fun
from jax.interpreters import partial_eval
from jax.sharding import Sharding

_PREFIX = "_program_of_"


class jit_method:
    """Compile a method with `jax.jit`, once per object.

    `jax.jit` with a static `self` keeps every object that was ever used in a global
    cache, with all that it refers to. Here the object owns its programs, so that both
    are freed together. On an object, the method has what jitted functions have, such
    as `.lower`.

    Args:
      **jit_options: Options of `jax.jit`; `self` is not an argument.

    Example:
      >>> class Scaler:
      ...     factor = 3
      ...     @jit_method()
      ...     def scale(self, x):
      ...         return self.factor * x
      >>> int(Scaler().scale(2))
      6
    """

    def __init__(self, **jit_options: Any):
        self._options = jit_options
        self._fn: Callable[..., Any]

    def __call__(self, fn: Callable[..., Any]) -> Any:
        """Decorate `fn`."""
        self._fn = fn
        functools.update_wrapper(self, fn)
        return self

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"{_PREFIX}{owner.__name__}_{name}"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        programs = vars(instance)
        if self._key not in programs:
            method = types.MethodType(self._fn, instance)
            programs[self._key] = jax.jit(method, **self._options)
        return programs[self._key]


def free_programs(owner: object) -> None:
    """Free what methods of an object were compiled to; a later call compiles again."""
    for name, program in vars(owner).items():
        if name.startswith(_PREFIX):
            program.clear_cache()


#
# Compute the initial values of a large model without compiling a large program.
#
# Compiled as one function, the initialisation of a transformer takes minutes on a GPU: each
# random parameter becomes a kernel of its own, although all layers are alike, because the
# constants that its key derives from are compiled into it. So the keys are computed first,
# on the host, where they cost nothing. What remains falls apart into groups of equations
# that share no values, one for each parameter of most models, and groups that differ only
# in their keys share one program. Each program places its results where they belong, so
# that a sharded array is never held whole by one device.
#


_Tree = TypeVar("_Tree")
_Values = dict[Var, Any]

_MOST_KEY_NUMBERS = 64
_FEW_RESULTS = 8  # a program of so few is compiled sooner than its parts are told apart


def compute_in_parts(
    traced: jax.stages.Traced, shardings_of: Callable[[Any], Sequence[Sharding]]
) -> Any:
    """Return what a function gives, computed by as few and small programs as possible.

    Args:
      traced: The function without arguments, as `jax.jit(fn).trace()`.
      shardings_of: From the result, as `jax.ShapeDtypeStruct`s, to a sharding for each
        of its leaves.

    Returns:
      The result, the same as that of `jax.jit(fn)()`.
    """
    closed, specs = traced.jaxpr, traced.out_info
    structure, shardings = jax.tree.structure(specs), shardings_of(specs)
    is_small = len(shardings) <= _FEW_RESULTS and jax.default_backend() == "cpu"
    if (
        is_small and jax.device_count() == 1
    ):  # several may each hold a whole array in it
        return jax.tree.unflatten(structure, _compute_whole(closed, shardings))
    jaxpr, _ = partial_eval.dce_jaxpr(
        closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True
    )
    values: _Values = dict(zip(closed.jaxpr.constvars, closed.consts))
    equations = list(jaxpr.eqns)
    if not jaxpr.effects:
        equations = _compute_keys(equations, jaxpr.outvars, values)
    sharding_of = {
        variable: sharding
        for variable, sharding in zip(jaxpr.outvars, shardings)
        if isinstance(variable, Var)
    }
    for group in _groups(equations, sharding_of, together=bool(jaxpr.effects)):
        _compute_group(group, sharding_of, values)
    leaves = [
        jax.device_put(_value(variable, values), sharding)
        for variable, sharding in zip(jaxpr.outvars, shardings)
    ]
    return jax.tree.unflatten(structure, leaves)


def _compute_whole(closed: ClosedJaxpr, shardings: Sequence[Sharding]) -> list[Any]:
    """Compute all results by one program, which equal models share."""
    if closed.consts or closed.effects:
        return jax.jit(jaxpr_as_fun(closed), out_shardings=list(shardings))()
    program = _Program(
        text=str(closed.jaxpr),
        shardings=tuple(shardings),
        key_types=(),
        jaxpr=closed.jaxpr,
    )
    return program.compiled()()


def is_tracing() -> bool:
    """Return whether a function is being traced, so that there are no values."""
    return isinstance(jax.device_put(0), jax.core.Tracer)


#
# Keys
#


def _compute_keys(
    equations: list[Any], results: Iterable[Any], values: _Values
) -> list[Any]:
    """Compute what depends on few integers, on the host; return what is left."""
    known, ours, rest = set(values), [], []
    for equation in equations:
        if all(v in known for v in _variables(equation.invars)) and all(
            _is_key(v.aval) for v in equation.outvars
        ):
            ours.append(equation)
            known.update(equation.outvars)
        else:
            rest.append(equation)
    needed = {v for e in rest for v in _variables(e.invars)} | set(_variables(results))
    border = [v for e in ours for v in e.outvars if v in needed]
    if border:
        inputs = list(values)
        program = jaxpr_as_fun(ClosedJaxpr(_make_jaxpr(inputs, border, ours), ()))
        with _on_host():
            computed = program(*(values[v] for v in inputs))
        values |= zip(border, computed)
    return rest


def _is_key(aval: Any) -> bool:
    is_exact = jax.dtypes.issubdtype(aval.dtype, np.integer) or _is_typed_key(aval)
    return is_exact and aval.size <= _MOST_KEY_NUMBERS


def _on_host() -> contextlib.AbstractContextManager[Any]:
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # `JAX_PLATFORMS` leaves the CPU out
        return contextlib.nullcontext()
    return jax.default_device(device)


#
# Groups
#


@dataclasses.dataclass(frozen=True, eq=False)
class _Group:
    """Equations that share no values with others, and those of their results we want."""

    equations: list[Any] = dataclasses.field(default_factory=list)
    results: list[Var] = dataclasses.field(default_factory=list)


def _groups(
    equations: Sequence[Any], results: Iterable[Var], *, together: bool
) -> list[_Group]:
    """Divide equations into groups without common values, unless wanted `together`."""
    if together:
        return [_Group(list(equations), list(results))]
    group_of: dict[Var, _Group] = {}
    for equation in equations:
        used = (group_of.get(variable) for variable in _variables(equation.invars))
        first, *others = [*dict.fromkeys(g for g in used if g), _Group()]
        for other in others:
            first.equations.extend(other.equations)
            for merged in other.equations:
                group_of |= dict.fromkeys(merged.outvars, first)
        first.equations.append(equation)
        group_of |= dict.fromkeys(equation.outvars, first)
    for variable in results:
        if variable in group_of:
            group_of[variable].results.append(variable)
    return [group for group in dict.fromkeys(group_of.values()) if group.results]


def _compute_group(
    group: _Group, sharding_of: dict[Var, Sharding], values: _Values
) -> None:
    """Add the results of a group to `values`."""
    used = (v for equation in group.equations for v in _variables(equation.invars))
    inputs = list(dict.fromkeys(variable for variable in used if variable in values))
    jaxpr = _make_jaxpr(inputs, group.results, group.equations)
    program = _Program(
        text=str(jaxpr),
        shardings=tuple(sharding_of[variable] for variable in group.results),
        key_types=tuple(_key_type(values[variable]) for variable in inputs),
        jaxpr=jaxpr,
    )
    compute = program.compiled()
    results = compute(*(_raw(values[variable]) for variable in inputs))
    values |= zip(group.results, results)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Program:
    """A group's program; two with the same text compute the same."""

    text: str
    shardings: tuple[Sharding, ...]
    key_types: tuple[Any, ...]
    jaxpr: Jaxpr = dataclasses.field(compare=False)

    @property
    def is_told_by_text(self) -> bool:
        """Whether the text shows everything: it hides no arrays and no Python functions."""
        is_shown = " at 0x" not in self.text and "..." not in self.text
        return is_shown and not _has_constants(self.jaxpr)

    def compiled(self) -> Callable[..., Any]:
        """Return the function that computes it; equal programs are compiled once."""
        compile_ = _compile if self.is_told_by_text else _compile.__wrapped__
        return compile_(self)


@functools.lru_cache(maxsize=512)
def _compile(program: _Program) -> Callable[..., Any]:
    function = jaxpr_as_fun(ClosedJaxpr(program.jaxpr, ()))

    def compute(*raw: Any) -> list[Any]:
        inputs = [
            x if key_type is None else jax.random.wrap_key_data(x, impl=key_type)
            for x, key_type in zip(raw, program.key_types)
        ]
        return function(*inputs)

    return jax.jit(compute, out_shardings=list(program.shardings))


def _has_constants(jaxpr: Jaxpr) -> bool:
    """Return whether a function that is called inside holds arrays."""
    for value in (v for equation in jaxpr.eqns for v in equation.params.values()):
        for inner in value if isinstance(value, tuple | list) else (value,):
            if isinstance(inner, ClosedJaxpr):
                if inner.consts or _has_constants(inner.jaxpr):
                    return True
            elif isinstance(inner, Jaxpr) and _has_constants(inner):
                return True
    return False


#
# Values
#


def _make_jaxpr(
    inputs: Sequence[Var], results: Sequence[Var], equations: Sequence[Any]
) -> Jaxpr:
    return Jaxpr((), inputs, results, equations, debug_info=no_names())


@functools.cache
def no_names() -> Any:
    """Return the debugging information of a program whose variables have no names."""
    return jax.make_jaxpr(lambda: ())().jaxpr.debug_info.with_unknown_names()


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _value(atom: Any, values: _Values) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _is_typed_key(array: Any) -> bool:
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def _raw(value: Any) -> Any:
    """Return the numbers of a key, as every process and device can take them."""
    if not isinstance(value, jax.Array):
        return value
    if _is_typed_key(value):
        return np.asarray(jax.random.key_data(value))
    return np.asarray(value) if value.size <= _MOST_KEY_NUMBERS else value


def _key_type(value: Any) -> Any:
    """Return what turns `_raw(value)` back into a key; `None` if it is not a key."""
    is_key = isinstance(value, jax.Array) and _is_typed_key(value)
    return jax.random.key_impl(value) if is_key else None
