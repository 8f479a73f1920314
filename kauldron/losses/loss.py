"""The base class of losses (weight, mask, normalisation), their sum, the usual losses."""

from __future__ import annotations

import abc
import dataclasses
import inspect
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.batch_mask import batch_mask_of
from kauldron.kontext.annotations import get_annotated
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.metrics.averages import (
    AllReduceMean,
    align_mask,
    as_real,
    broadcast_mask,
    check_normalize_by,
)
from kauldron.metrics.metric import Metric, naming, reads_batch

Schedule = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Loss(Metric):
    """Base class of losses.

    Subclasses implement `get_values`, which gives the loss of every element before it
    is masked, averaged and weighted. A loss is a metric: it can be logged as one.

    Attributes:
      step: Where to find the step; looked up only if the weight is a schedule.
      mask: Weights in [0, 1], broadcastable to the values; `b` fits `b 1` and `b t`.
      weight: Number by which the loss is multiplied, or a function of the step.
      normalize_by: Divide by the sum of the `"mask"`, or by the number of `"values"`.

    Example:
      >>> import numpy as np
      >>> from kauldron import losses
      >>> loss = losses.L2(preds="preds.x", targets="batch.x", weight=2.0)
      >>> context = {"preds": {"x": np.ones((4, 3))}, "batch": {"x": np.zeros((4, 3))}}
      >>> float(loss(context=context))
      2.0
    """

    step: kontext.Key = "step"
    mask: kontext.Key | None = None
    weight: float | Schedule = 1.0
    normalize_by: str = "mask"

    State = AllReduceMean

    def __post_init__(self) -> None:
        check_normalize_by(self.normalize_by)
        is_number = isinstance(self.weight, numbers.Real | jax.core.Tracer)
        if not is_number and not callable(self.weight):
            raise TypeError(
                f"{type(self).__qualname__}: weight must be a number or a function of"
                f" the step, not {self.weight!r}."
            )

    @abc.abstractmethod
    def get_values(self, **kwargs: Any) -> jax.Array:
        """Return the loss of every element, not averaged."""

    def get_state(
        self,
        *args: Any,
        mask: Any = None,
        step: Any = None,
        record_mask: Any = None,
        **kwargs: Any,
    ) -> AllReduceMean:
        """Return the state of one batch; traceable.

        Args:
          *args: Those of `get_values`.
          mask: Weights of the values.
          step: Needed if the weight is a schedule.
          record_mask: Weights of the records, `b`, in place of `mask`. They go with the
            first dimension of the values, even if their shape also fits the last one.
          **kwargs: Those of `get_values`.
        """
        fit = broadcast_mask
        if record_mask is not None:
            mask, fit = record_mask, align_mask
        if mask is not None:
            args = tuple(_drop_masked(value, mask, fit) for value in args)
            kwargs = {name: _drop_masked(v, mask, fit) for name, v in kwargs.items()}
        values = self.get_values(*args, **kwargs)
        return AllReduceMean.from_values(
            values,
            mask=None if mask is None else fit(mask, jnp.shape(values)),
            weight=self.get_weight(step),
            normalize_by=self.normalize_by,
        )

    def get_state_from_context(self, context: Any) -> Any:
        state: Any = super().get_state_from_context(context)
        mask = batch_mask_of(context)
        if mask is None or self.normalize_by == "mask" or not reads_batch(self):
            return state
        # All values count, but for those of filler.
        return state.replace(count=state.count * jnp.mean(mask, dtype=jnp.float32))

    def _with_mask(self, inputs: dict[str, Any], mask: Any) -> dict[str, Any]:
        is_own = type(self).get_state is not Loss.get_state
        return {**inputs, ("mask" if is_own else "record_mask"): mask}

    def get_weight(self, step: Any = None) -> jax.Array:
        """Return the weight at a step, as a float32 scalar.

        Args:
          step: The train step; needed if the weight is a schedule.

        Raises:
          ValueError: If the weight is a schedule and there is no step.
        """
        weight = self.weight
        if callable(weight):
            if step is None:
                raise ValueError(
                    f"The weight of {type(self).__qualname__} is a schedule: pass the"
                    " step (`step=...`, or a context that has one)."
                )
            weight = weight(step)
        return jnp.asarray(weight, jnp.float32)

    def __kontext_keys__(self) -> dict[str, Any]:
        names = get_annotated(type(self), kontext.Key)
        if not callable(self.weight):
            names = [name for name in names if name != "step"]
        return {name: getattr(self, name) for name in names}

    def _inputs_function(self) -> Callable[..., Any]:
        """Return what the keys must fit: `get_values` with a mask and a step."""
        if type(self).get_state is not Loss.get_state:
            return self.get_state
        parameters = dict(inspect.signature(self.get_values).parameters)
        kinds = {parameter.kind for parameter in parameters.values()}
        if inspect.Parameter.VAR_KEYWORD in kinds:
            return self.get_values
        for name in ("mask", "step"):
            parameters[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None
            )

        def get_values(**kwargs: Any) -> None: ...

        get_values.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        return get_values


def _drop_masked(value: Any, mask: Any, fit: Callable[..., Any]) -> Any:
    """Put 0 where a masked-out element is not finite.

    Such a value leaves the loss as it is, but makes its gradient NaN: 0 times infinity.
    """
    is_float = hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)
    if not is_float:
        return value
    try:
        is_masked = fit(mask, jnp.shape(value)) == 0
    except ValueError:
        return value
    return jnp.where(is_masked & ~jnp.isfinite(value), 0, value)


#
# All losses of a context
#


def compute_losses(losses: Any, context: Any) -> tuple[jax.Array, Any]:
    """Compute every loss and their sum; traceable and differentiable.

    Args:
      losses: A tree of losses, usually a dict; or a single loss.
      context: Where their keys find the inputs.

    Returns:
      The float32 sum of all losses, and the tree of their states.

    Raises:
      Exception: What a loss raises, with the name of the loss in front.

    Example:
      >>> import numpy as np
      >>> from kauldron.losses import L1, L2
      >>> losses = {
      ...     "l1": L1(preds="x", targets="y"),
      ...     "l2": L2(preds="x", targets="y", weight=0.5),
      ... }
      >>> total, states = compute_losses(losses, {"x": np.ones(3), "y": -np.ones(3)})
      >>> float(total), float(states["l2"].compute())
      (4.0, 2.0)
    """
    paths_and_losses, structure = jax.tree_util.tree_flatten_with_path(losses)
    states, total = [], jnp.zeros((), jnp.float32)
    with jax.named_scope("losses"):
        for path, loss in paths_and_losses:
            name = jax.tree_util.keystr(path, simple=True, separator="/") or "loss"
            with naming(lambda: f"In loss {name!r}: "), jax.named_scope(name):  # noqa: B023
                state = _get_state(loss, context)
                # A loss that was switched off computes `{}`.
                total += sum(jax.tree.leaves(state.compute()))
            states.append(state)
    return total.astype(jnp.float32), structure.unflatten(states)


def _get_state(loss: Any, context: Any) -> Any:
    if not isinstance(loss, Metric):
        raise TypeError(f"a loss was expected, not {loss!r}.")
    loss.check_padding(context)
    return loss.get_state_from_context(context)


#
# Regression
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Value(Loss):
    """The values themselves, such as a loss that the model computes.

    Attributes:
      values: Values of any shape.
    """

    values: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, values: Float["*a"]) -> Float["*a"]:
        return as_real(values)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class AbsoluteValue(Loss):
    """Absolute values, such as a penalty on activations.

    Attributes:
      values: Values of any shape.
    """

    values: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, values: Float["*a"]) -> Float["*a"]:
        return jnp.abs(as_real(values))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class L1(Loss):
    """Absolute error.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        return jnp.abs(as_real(preds) - as_real(targets))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class L2(Loss):
    """Squared error.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.

    Example:
      >>> import numpy as np
      >>> float(L2()(preds=np.array([1.0, 5.0]), targets=np.array([1.0, 3.0])))
      2.0
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        return jnp.square(as_real(preds) - as_real(targets))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Huber(Loss):
    """Squared error near zero, absolute error beyond.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
      delta: Where the one turns into the other.

    References:
      Huber, Robust estimation of a location parameter (1964).
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    delta: float = 1.0

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        error = jnp.abs(as_real(preds) - as_real(targets))
        quadratic = jnp.minimum(error, self.delta)
        return 0.5 * quadratic**2 + self.delta * (error - quadratic)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class NegativeCosineSimilarity(Loss):
    """Minus the cosine of the angle between two vectors.

    Attributes:
      preds: Vectors of shape `*a c`.
      targets: Vectors of the same shape.
      eps: Added to lengths before dividing by them.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    eps: float = 1e-8

    @typechecked
    def get_values(self, preds: Float["*a c"], targets: Float["*a c"]) -> Float["*a 1"]:
        preds, targets = (_normalize(as_real(x), self.eps) for x in (preds, targets))
        return -jnp.sum(preds * targets, axis=-1, keepdims=True)


def _normalize(vectors: jax.Array, eps: float) -> jax.Array:
    """Scale to length 1; a zero vector stays zero, with a finite gradient."""
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    lengths = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return vectors / (lengths + eps)


#
# Classification
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SoftmaxCrossEntropy(Loss):
    """Cross entropy with a distribution over classes.

    Attributes:
      logits: Scores of shape `*a n`.
      labels: Probabilities, or one-hot classes, of the same shape.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Float["*a n"], labels: Float["*a n"]) -> Float["*a 1"]:
        log_probs = jax.nn.log_softmax(as_real(logits), axis=-1)
        return -jnp.sum(as_real(labels) * log_probs, axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SoftmaxCrossEntropyWithIntLabels(Loss):
    """Cross entropy with the right class.

    Attributes:
      logits: Scores of shape `*a n`.
      labels: Right classes, integers of shape `*a 1`. The loss of a label outside of
        the classes is NaN, unless it is masked out.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Float["*a n"], labels: Int["*a 1"]) -> Float["*a 1"]:
        log_probs = jax.nn.log_softmax(as_real(logits), axis=-1)
        # A mask instead of an index: `checkify.index_checks` cannot differentiate the
        # latter, and negative labels would count from the end.
        classes = jnp.arange(log_probs.shape[-1])
        log_prob = jnp.where(classes == labels, log_probs, 0).sum(-1, keepdims=True)
        last = min(classes.size - 1, jnp.iinfo(labels.dtype).max)  # whatever the dtype
        is_class = (labels >= 0) & (labels <= last)
        return -jnp.where(is_class, log_prob, jnp.nan)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SigmoidBinaryCrossEntropy(Loss):
    """Cross entropy of independent yes-or-no decisions.

    Attributes:
      logits: Scores of shape `*a n`.
      labels: 0, 1 or a probability, of the same shape and any dtype.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Float["*a n"], labels: Array["*a n"]) -> Float["*a n"]:
        logits, labels = as_real(logits), as_real(labels)
        return -labels * jax.nn.log_sigmoid(logits) - (1 - labels) * jax.nn.log_sigmoid(
            -logits
        )
