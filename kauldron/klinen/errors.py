"""Flax's errors in terms of klinen: what to do with a bound model."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import flax.core
import flax.errors
import flax.linen as nn


class _OwnText(Exception):
    """The constructors of flax's errors compose their own text; ours take it."""

    def __init__(self, message: str):
        Exception.__init__(self, message)


class UnboundModelError(_OwnText, flax.errors.CallCompactUnboundModuleError):
    """A module was called that has no parameters yet."""


class MissingRngError(_OwnText, flax.errors.InvalidRngError):
    """A module asked for a random stream that the model does not have."""


class WrongShapeError(_OwnText, flax.errors.ScopeParamShapeError):
    """The inputs do not have the shape that the parameters were made for."""


class FrozenModelError(_OwnText, flax.errors.SetAttributeFrozenModuleError):
    """An attribute of a bound model was written or deleted."""


def before_init_bind(module: nn.Module, what: str) -> ValueError:
    """Return the error about `module.what` for a module without parameters."""
    name = type(module).__name__
    return ValueError(
        f"`{name}.{what}` cannot be used before calling `.init_bind()`: this {name} has "
        f"no parameters yet. First `model = model.init_bind(key, *example_inputs)`."
    )


def inside_a_call(module: nn.Module, what: str) -> RuntimeError:
    """Return the error about `self.what` inside a method of a module."""
    return RuntimeError(
        f"`{type(module).__name__}.{what}` cannot be used inside a method of the model, "
        "while flax runs it: it belongs to the finished model, outside. To run a "
        "sub-module in another mode, call it inside "
        "`with kd.nn.set_train_property(False):`; random keys come from "
        "`self.make_rng('dropout')`."
    )


def unbound_call(module: nn.Module) -> UnboundModelError:
    """Return the error about calling a module without parameters."""
    name = type(module).__name__
    return UnboundModelError(
        f"This {name} has no parameters yet, so it cannot be called. Make them first: "
        f"`model = model.init_bind(key, *example_inputs)`, then `model(...)`. (Or use it "
        "as a plain flax module: `model.init(...)` and `model.apply(...)`.)"
    )


def with_init_bind_hint(error: AttributeError) -> str:
    """Add to flax's text about attributes of `setup()` how to get them."""
    return f"{error} A model has them after `model = model.init_bind(key, *inputs)`."


def frozen(model: nn.Module, name: str) -> FrozenModelError:
    """Return the error about writing (or deleting) an attribute of a bound model."""
    return FrozenModelError(
        f"Cannot change `{name}` of this {type(model).__name__}: a model with parameters "
        "never changes. For another definition, `dataclasses.replace(model, "
        f"{name}=...)` followed by `.init_bind(...)`; for other weights, "
        "`model.with_params(...)`."
    )


def missing_rng(
    error: flax.errors.InvalidRngError, available: Iterable[str], streams: Iterable[str]
) -> MissingRngError:
    """Return the error about a random key that a call lacks."""
    where, name = _where(error), _stream(error)
    have = ", ".join(map(repr, available)) or "none"
    message = (
        f"{where} needs a random key for the stream {name!r}; the model has {have}."
    )
    if name == "params":
        return MissingRngError(
            f"{message} Most likely it makes a parameter that `init_bind` did not make: "
            "initialise through the method that you call, `init_bind(..., method=...)`."
        )
    if name in streams:
        return MissingRngError(f"{message} Give it one: `model = model.with_rng(key)`.")
    return MissingRngError(
        f"{message} `.with_rng(key)` makes keys for {tuple(streams)} only: give this one "
        f"by name, `model = model.with_rng({{{name!r}: key}})`, or declare it, "
        f"`init_bind(..., streams=({name!r}, ...))`."
    )


def missing_init_rng(
    error: flax.errors.InvalidRngError, available: Iterable[str]
) -> MissingRngError:
    """Return the error about a random key that `init_bind` lacks."""
    name = _stream(error)
    have = ", ".join(map(repr, available)) or "none"
    return MissingRngError(
        f"{_where(error)} needs a random key for the stream {name!r} to be initialised, "
        f"but `init_bind` got {have}. Pass a single key (it serves every stream), or "
        f"add the missing one: `init_bind({{{name!r}: key, ...}}, ...)`."
    )


def wrong_shape(error: flax.errors.ScopeParamShapeError) -> WrongShapeError:
    """Return the error about inputs that do not fit the parameters."""
    text = str(error).split(" (https://")[0]
    return WrongShapeError(
        f"{text} The inputs of this call have another shape than those given to "
        "`init_bind`: pass inputs of that shape, or make parameters for these with "
        "`model.init_bind(key, *example_inputs)`."
    )


def not_a_key_of_programs(model: nn.Module) -> TypeError:
    """Return the error about a model that JAX is to tell from others by equality."""
    return TypeError(
        f"JAX cannot tell `{type(model).__name__}` models apart when they are functions "
        "or static arguments: models are equal if their definitions are, whatever their "
        "arrays and mode. Pass the model as an argument, "
        "`jax.jit(lambda model, x: model(x))(model, x)`, or in a function, "
        "`jax.jit(lambda x: model(x))`."
    )


def _stream(error: flax.errors.InvalidRngError) -> str:
    """Return the stream in flax's `... needs PRNG for "dropout"`."""
    parts = str(error).split('needs PRNG for "')
    return parts[1].split('"')[0] if len(parts) > 1 else "?"


def _where(error: BaseException) -> str:
    """Return the innermost running module: `Dropout at 'encoder/Dropout_0'`."""
    module: Any = None
    scope: Any = None
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        this: Any = traceback.tb_frame.f_locals.get("self")
        if isinstance(this, nn.Module) and this.scope is not None:
            module = this
        elif isinstance(this, flax.core.Scope):
            scope = this
        traceback = traceback.tb_next
    if module is None:
        return "A module"
    path = module.path if scope is None else scope.path
    place = repr("/".join(path)) if path else "the root of the model"
    return f"{type(module).__name__} at {place}"
