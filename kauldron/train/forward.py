"""Pure forward passes: a `Context` in, a fuller `Context` out."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import flax.errors
import jax
import jax.numpy as jnp
from jax.experimental import checkify

from kauldron import losses as kd_losses
from kauldron import status
from kauldron.data import model_inputs

if TYPE_CHECKING:
    import flax.linen as nn

    from kauldron.train.state import Context


def forward(
    context: Context,
    *,
    model: nn.Module,
    rngs: Mapping[str, Any],
    is_training: bool,
    method: Any = None,
) -> Context:
    """Apply the model to what its keys name in the context.

    Args:
      context: Holds the batch, the parameters and the collections.
      model: The model; without keys it gets the whole batch as its argument.
      rngs: Keys by stream name.
      is_training: Value of the `is_training` properties.
      method: Method (or its name) instead of `__call__`.

    Returns:
      The context with `preds`, `interms` and the new `collections`.
    """
    args, kwargs = model_inputs.get_model_inputs(model, context)
    return forward_on_inputs(
        context,
        args,
        kwargs,
        model=model,
        rngs=rngs,
        is_training=is_training,
        method=method,
    )


def forward_on_inputs(
    context: Context,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    model: nn.Module,
    rngs: Mapping[str, Any],
    is_training: bool,
    method: Any = None,
) -> Context:
    """`forward` with arguments of the model that were looked up already."""
    with model_hints():
        preds, variables = model.apply(
            {"params": context.params} | dict(context.collections or {}),
            *args,
            **kwargs,
            rngs=dict(rngs),
            mutable=True,
            capture_intermediates=True,
            is_training_property=is_training,
            method=method,
        )
    collections = dict(variables)
    collections.pop("params", None)
    interms = collections.pop("intermediates", {})
    return context.replace(preds=preds, interms=interms, collections=collections)


def forward_with_loss(
    context: Context,
    *,
    model: nn.Module,
    losses: Mapping[str, Any],
    rngs: Mapping[str, Any],
    is_training: bool,
) -> tuple[jax.Array, Context]:
    """`forward`, then the losses: `(total, context)`, as `jax.grad` wants it."""
    context = forward(context, model=model, rngs=rngs, is_training=is_training)
    total, states = kd_losses.compute_losses(losses, context)
    return total, context.replace(loss_states=states, loss_total=total)


def warn_if_constant(total: jax.Array, params: Any, name: str) -> None:
    """Warn about a loss that does not depend on the parameters.

    Called while `jax.grad` traces the loss. Then parameters are tracers of one type, and
    so is all that is computed of them and will be differentiated.
    """
    tracers = {
        type(leaf)
        for leaf in jax.tree.leaves(params)
        if isinstance(leaf, jax.core.Tracer) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    }
    if tracers and type(total) not in tracers:
        status.warn(
            f"{name} does not depend on any parameter, so its gradients are zero and it "
            "trains nothing. Is there a `stop_gradient` around the predictions?"
        )


#
# Models with checks
#


_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def checkify_ignore(fn: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Make `fn` run its `checkify.check` calls without effect.

    A function with such checks cannot be jitted as it is. This makes it possible, for
    example to initialise a model, at the price of dropping what the checks find.

    Args:
      fn: Any function of JAX arrays.

    Returns:
      The function, with the same signature and name.

    Example:
      >>> import jax
      >>> from jax.experimental import checkify
      >>> @jax.jit
      ... @checkify_ignore
      ... def root(x):
      ...     checkify.check(x >= 0, "negative")
      ...     return x**0.5
      >>> float(root(4.0))
      2.0
    """
    checked = checkify.checkify(fn, errors=checkify.user_checks)

    @functools.wraps(fn)
    def ignoring(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        _, result = checked(*args, **kwargs)
        return result

    return ignoring


#
# Advice for errors of flax
#


_HINTS = {
    "deterministic": "Use `kd.nn.Dropout`, which knows whether the model is training.",
    "use_running_average": (
        "Declare `is_training = kd.nn.train_property()` in the model, and call "
        "`nn.BatchNorm(use_running_average=not self.is_training)(x)`."
    ),
}


@contextlib.contextmanager
def model_hints() -> Iterator[None]:
    """Around calls of a model: add what to do to errors of flax."""
    try:
        yield
    except flax.errors.InvalidRngError as error:
        error.add_note(
            "The model asks for a random stream that it is not given here. Name it in "
            "`cfg.rng_streams = kd.train.RngStreams([kd.train.RngStream('...')])`, with "
            "`eval=True` if evaluations need it too."
        )
        raise
    except ValueError as error:
        missing = re.search(r'Parameter "(\w+)" must be passed', str(error))
        if missing and missing[1] in _HINTS:
            error.add_note(_HINTS[missing[1]])
        raise
