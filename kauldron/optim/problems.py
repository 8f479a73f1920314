"""Optimizers that would train, but not what was meant.

Nothing is computed: `init` and `update` are traced, and looked at.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.extend import core as jax_core

from kauldron.errors import error_prefix, nearest
from kauldron.immutabledict import ImmutableDict
from kauldron.optim.masks import PathMask, recorded
from kauldron.optim.transforms import EmaParamsState
from kauldron.optim.updates import update

_MOST_NAMES = 4


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something wrong with an optimizer.

    Attributes:
      message: What, and how to fix it.
      is_error: Whether it is certain.
    """

    message: str
    is_error: bool = True


@contextlib.contextmanager
def explained_optimizer_init() -> Iterator[None]:
    """Say what failed, and what to write instead of a dict that optax cannot use."""
    try:
        with error_prefix("Initialising `trainer.optimizer` failed: "):
            yield
    except ValueError as error:
        if ImmutableDict.__name__ in str(error):
            error.add_note(
                "A dict of a config reaches optax as an `ImmutableDict`, which does not "
                "match the dict of the parameters. Choose parameters with "
                "`kd.optim.select(...)`; for an optimizer for each part of a model, "
                "chain `optax.masked(optimizer, kd.optim.select(...))`."
            )
        raise


def find_problems(
    optimizer: optax.GradientTransformation, params: Any
) -> Iterator[Problem]:
    """Yield what can only be a mistake; shapes and dtypes of the parameters suffice."""
    if not jax.tree.leaves(params):
        return
    with recorded() as records, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the true `init` says the same
        # Of a function that it has traced before, jax would not call the masks again.
        opt_state = jax.eval_shape(lambda params: optimizer.init(params), params)
    masks = [value for kind, value in records if kind == "mask"]
    yield from _misspelt_patterns(dict.fromkeys(masks), params)
    is_followed = _is_followed(opt_state)
    if not (is_followed or _has_masked(opt_state)):
        return  # tracing an update takes tenths of a second for a large model
    program, is_average_of_updates = _trace_update(optimizer, opt_state, params)
    yield from _gradients_as_updates(program, params)
    if is_followed and not is_average_of_updates:
        yield Problem(
            "`ema_params` averages something other than the parameters, since the parts "
            "of the chain after it change the updates. Put it last."
        )


#
# Masks
#


def _misspelt_patterns(masks: Any, params: Any) -> Iterator[Problem]:
    """Find a `select` that selects nothing, and patterns that nearly match a name."""
    names = {name for path in _paths(params) for name in path.split(".")}
    for mask in masks:
        unmatched = [
            pattern
            for pattern in mask.patterns
            if not any(jax.tree.leaves(PathMask((pattern,))(params)))
        ]
        selects_nothing = not mask.negated and len(unmatched) == len(mask.patterns)
        for pattern in unmatched:
            close = nearest(pattern, names, cutoff=0.75)
            if selects_nothing or close:
                hint = f" Parameters: {_listed(_paths(params))}."
                if close:
                    hint = f" Did you mean {close[0]!r}?"
                yield Problem(
                    f"{pattern!r} of {mask!r} matches no parameter.{hint}",
                    is_error=False,
                )


def _listed(paths: list[str]) -> str:
    rest = len(paths) - _MOST_NAMES
    return ", ".join(paths[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _paths(params: Any) -> list[str]:
    return [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, _ in jax.tree_util.tree_leaves_with_path(params)
    ]


#
# Updates
#


def _trace_update(
    optimizer: optax.GradientTransformation, opt_state: Any, params: Any
) -> tuple[Any, bool]:
    """Trace an update: the program from gradients to updates, and whether each
    `ema_params` got those very updates."""
    is_average_of_updates = True

    def traced(grads: Any, opt_state: Any, params: Any, value: Any) -> Any:
        nonlocal is_average_of_updates
        with recorded() as records:
            updates, _ = update(
                optimizer,
                *(grads, opt_state, params),
                value=value,
                grad=grads,
                value_fn=lambda params: value,
            )
        final = {id(leaf) for leaf in jax.tree.leaves(updates)}
        is_average_of_updates = not any(
            final.isdisjoint(map(id, jax.tree.leaves(averaged)))
            for kind, averaged in records
            if kind == "averaged"
        )
        return updates

    grads = jax.tree.map(
        lambda p: p if _is_float(p) else jax.ShapeDtypeStruct(p.shape, jnp.float32),
        params,
    )
    value = jax.ShapeDtypeStruct((), jnp.float32)
    program = jax.make_jaxpr(traced)(grads, opt_state, params, value)
    return program.jaxpr, is_average_of_updates


def _gradients_as_updates(program: Any, params: Any) -> Iterator[Problem]:
    leaves = jax.tree.leaves(params)
    is_gradient = [index < len(leaves) for index in range(len(program.invars))]
    untaken = [
        path
        for path, leaf, is_one in zip(
            _paths(params), leaves, _passed_on(program, is_gradient)
        )
        if is_one and _is_float(leaf)
    ]
    if untaken:
        yield Problem(
            f"It adds the bare gradients of {_listed(untaken)} to these parameters, since "
            "no part of it takes them: `optax.masked` passes on what its mask leaves out. "
            "To freeze the rest, use `kd.optim.partial_updates(optimizer, mask)`; to "
            "train it in another way, `optax.multi_transform`."
        )


# Some elements of what these return are those of an operand.
_PASSING_ON = {"convert_element_type", "copy", "select_n", "max", "min", "clamp"}


def _passed_on(program: Any, is_gradient: list[bool]) -> list[bool]:
    """Return which results are (clipped) gradients, given which arguments are."""
    gradients = {var for var, is_one in zip(program.invars, is_gradient) if is_one}

    def are_gradients(variables: Any) -> list[bool]:
        return [
            not isinstance(var, jax_core.Literal) and var in gradients
            for var in variables
        ]

    for equation in program.eqns:
        given = are_gradients(equation.invars)
        if not any(given):
            continue
        name = equation.primitive.name
        results = [name in _PASSING_ON] * len(equation.outvars)
        if name == "cond":
            branches = equation.params["branches"]
            found = [_passed_on(branch.jaxpr, given[1:]) for branch in branches]
            results = [any(column) for column in zip(*found)]
        elif name in ("jit", "pjit"):
            results = _passed_on(equation.params["jaxpr"].jaxpr, given)
        gradients.update(v for v, is_one in zip(equation.outvars, results) if is_one)
    return are_gradients(program.outvars)


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


#
# States
#


def _has_masked(state: Any) -> bool:
    """Return whether there is an `optax.masked` that `multi_transform` did not make."""
    if isinstance(state, optax.PartitionState):
        inner_states: Any = state.inner_states.values()
        return any(_has_masked(inner.inner_state) for inner in inner_states)
    return isinstance(state, optax.MaskedState) or any(map(_has_masked, _parts(state)))


def _is_followed(state: Any) -> bool:
    """Return whether another part of a chain comes after an `ema_params`."""
    parts = _parts(state)
    # The states of `optax.chain` and of `optax.named_chain`.
    if type(state) in (tuple, collections.OrderedDict):
        averages = [_has_average(part) for part in parts]
        if True in averages and not all(averages[averages.index(True) :]):
            return True
    return any(map(_is_followed, parts))


def _parts(state: Any) -> list[Any]:
    if isinstance(state, EmaParamsState) or not isinstance(state, tuple | dict):
        return []
    return list(state.values() if isinstance(state, dict) else state)


def _has_average(state: Any) -> bool:
    return isinstance(state, EmaParamsState) or any(map(_has_average, _parts(state)))
