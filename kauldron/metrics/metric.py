"""`Metric`: the base class of every metric, loss and summary."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from kauldron import kontext
from kauldron.batch_mask import UnmaskableError, batch_mask_of
from kauldron.errors import ExplainedArguments, ReadableKeyError, error_prefix
from kauldron.immutabledict import ImmutableDict
from kauldron.ktyping import KTypeCheckError
from kauldron.metrics.state import EMPTY, EmptyState, State, is_equal


def _set_parent(method: Callable[..., State]) -> Callable[..., State]:
    """Make the method's state belong to its metric."""

    @functools.wraps(method)
    def wrapper(self: Metric, *args: Any, **kwargs: Any) -> State:
        state = method(self, *args, **kwargs)
        if not isinstance(state, State):
            raise TypeError(
                f"{type(self).__qualname__}.{method.__name__}() must return a state, but"
                f" returned {type(state).__qualname__}."
            )
        return state.replace(parent=self) if state.parent is EMPTY else state

    return wrapper


class Metric(ExplainedArguments, abc.ABC):
    """Base class of every metric, loss and summary.

    A metric is a frozen, hashable description without data. Subclasses are decorated
    with `@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)` and have:

    - a `kontext.Key` field for each argument of `get_state`, plus plain options;
    - a nested `State`, decorated with `@flax.struct.dataclass`;
    - `get_state`, which turns a batch into a state.

    What is finally computed belongs to the state, which finds the metric's options
    under `self.parent`.

    Example:
      >>> from kauldron import metrics
      >>> accuracy = metrics.Accuracy(logits="preds.logits", labels="batch.label")
      >>> context = {
      ...     "preds": {"logits": np.array([[1.0, 2.0], [3.0, 0.0]])},
      ...     "batch": {"label": np.array([[1], [1]])},
      ... }
      >>> float(accuracy(context=context))
      0.5
    """

    State: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_state_class(cls)
        if "compute" in cls.__dict__:
            raise ValueError(
                f"{cls.__qualname__} defines `compute`. Put it on the state"
                f" (`{cls.__qualname__}.State.compute`) and use `self.parent` there to"
                " reach the metric's options."
            )
        for name in ("get_state", "empty"):
            if name in cls.__dict__:
                setattr(cls, name, _set_parent(cls.__dict__[name]))
        if "__post_init__" in cls.__dict__:
            cls.__post_init__ = _freeze_before(cls.__dict__["__post_init__"])  # type: ignore[attr-defined]

    def __post_init__(self) -> None:
        freeze_options(self)

    def __eq__(self, other: Any) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, others = vars(self), vars(other)
        return mine.keys() == others.keys() and all(
            is_equal(mine[name], others[name]) for name in mine
        )

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self))))

    @abc.abstractmethod
    def get_state(self, **kwargs: Any) -> State:
        """Return the state of one batch; traceable."""

    @_set_parent
    def empty(self) -> State:
        """Return the state of no data."""
        if not hasattr(type(self), "State"):
            raise NotImplementedError(
                f"{type(self).__qualname__} has no nested `State` class. Define one, or"
                " override `empty`."
            )
        return self.State.empty()

    def get_state_from_context(self, context: Any) -> State:
        """Return the state of the values that the metric's keys find in a context.

        If the batch is padded and the metric takes a `mask` that is not set, it gets
        the mask of the batch.

        Args:
          context: Anything that paths can point into.

        Raises:
          ValueError: If a required key is not set.
          KeyError: If a path leads nowhere, with the closest ones.
          TypeError: If the keys do not fit the arguments of `get_state`.
          UnmaskableError: If the mask of the batch does not fit the metric's values.
        """
        inputs = self.resolve_inputs(context)
        with naming(
            lambda: f"{_describe_inputs(self, inputs)}: ",
            type_hint=lambda: input_hints(kontext.get_keypaths(self), inputs),
        ):
            mask = self._mask_of_batch(context, inputs)
            if mask is None:
                return self.get_state(**inputs)
            try:
                return self.get_state(**self._with_mask(inputs, mask))
            except Exception as error:
                self.get_state(**inputs)  # raises, if it is not because of the mask
                raise UnmaskableError(
                    f"the filler of a padded batch cannot be left out: {error}\n"
                    f"{_MASK_ADVICE}"
                ) from error

    def check_padding(self, context: Any) -> None:
        """Raise `UnmaskableError` if filler of a padded batch would count."""
        if batch_mask_of(context) is None or not reads_batch(self):
            return
        if not self.takes_mask:
            raise UnmaskableError(
                f"{type(self).__qualname__}.get_state takes no `mask`, so that the "
                f"filler of a padded batch would count.\n{_MASK_ADVICE}"
            )

    @property
    def takes_mask(self) -> bool:
        """Whether `get_state` can leave out filler."""
        return "mask" in inspect.signature(self.get_state).parameters

    def _mask_of_batch(self, context: Any, inputs: dict[str, Any]) -> Any:
        """Return the mask to pass on, if there is one and the user gave none."""
        if inputs.get("mask") is not None or not self.takes_mask:
            return None
        return batch_mask_of(context) if reads_batch(self) else None

    def _with_mask(self, inputs: dict[str, Any], mask: Any) -> dict[str, Any]:
        return {**inputs, "mask": mask}

    def resolve_inputs(self, context: Any) -> dict[str, Any]:
        """Return the arguments of `get_state` that the keys find in a context."""
        function = self._inputs_function()
        inputs = kontext.resolve_from_keyed_obj(context, self, func=function)
        required = _required_arguments(function)
        missing = [n for n, value in inputs.items() if value is None and n in required]
        if missing:
            raise ReadableKeyError(none_message(self, missing))
        return inputs

    def _inputs_function(self) -> Callable[..., Any]:
        """Return the function whose arguments the keys must fit."""
        return self.get_state

    def merge_leaf_states(self, states: Sequence[State]) -> State:
        """Return one state for the states of a tree's leaves; used by `TreeReduce`."""
        return functools.reduce(lambda a, b: a.merge(b), states, self.empty())

    def __call__(self, *, context: Any = None, **kwargs: Any) -> Any:
        """Compute the value of one batch.

        Args:
          context: Where the keys find the inputs; or
          **kwargs: the inputs themselves.

        Returns:
          What `State.compute` returns.
        """
        if context is not None and kwargs:
            raise TypeError(
                f"{type(self).__qualname__} takes either a context or the inputs"
                f" themselves, but got a context and {sorted(kwargs)}."
            )
        if context is not None:
            state = self.get_state_from_context(context)
        else:
            state = self.get_state(**kwargs)
        return state.compute()

    def __metric_names__(self) -> list[str] | None:
        """Return the names of the parts of the value; `None` if it is a scalar."""
        return None


#
# Checks and wrappers at class creation
#


def _check_state_class(cls: type[Metric]) -> None:
    state = cls.__dict__.get("State")
    if not (isinstance(state, type) and issubclass(state, State)):
        return
    if "_flax_dataclass" not in state.__dict__:
        raise TypeError(
            f"{cls.__qualname__}.State ({state.__qualname__}) must be decorated with"
            " `@flax.struct.dataclass`."
        )


def _freeze_before(post_init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(post_init)
    def wrapper(self: Metric, *args: Any) -> None:
        freeze_options(self)
        post_init(self, *args)

    return wrapper


def check_inner_metric(wrapper: Metric, metric: Any) -> None:
    """Raise `TypeError` unless `metric` is one."""
    if not isinstance(metric, Metric):
        raise TypeError(
            f"{type(wrapper).__qualname__} takes a metric, not"
            f" {type(metric).__qualname__}."
        )


#
# Inputs
#

_OF_BATCH = ("batch", "preds", "interms")
_MASK_ADVICE = (
    "Give the metric a `mask` of one weight per record (its `mask=` key says which), or "
    'choose another `batch_drop_remainder` of the data than "pad".'
)


def reads_batch(metric: Metric) -> bool:
    """Return whether a key leads to values of the records, not to parameters."""
    keys = [str(key) for key in kontext.get_keypaths(metric).values() if key]
    return any(key.split(".")[0].split("[")[0] in _OF_BATCH for key in keys)


def _required_arguments(function: Callable[..., Any]) -> set[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in named and parameter.default is inspect.Parameter.empty
    }


def none_message(metric: Metric, names: list[str]) -> str:
    """Return the text of the error about keys that found `None`."""
    paths = kontext.get_keypaths(metric)
    found = ", ".join(f"{name}={str(paths.get(name))!r}" for name in names)
    return (
        f"Error for {type(metric).__qualname__}: the value is None for {found}, but it"
        " is required."
    )


def _describe_inputs(metric: Metric, inputs: dict[str, Any]) -> str:
    """`L2(preds='preds.x': float32 (4, 3), targets='batch.x': float32 (4, 1))`."""
    paths = kontext.get_keypaths(metric)
    parts = [
        f"{name}={str(paths.get(name))!r}: {_describe(value)}"
        for name, value in inputs.items()
    ]
    return f"{type(metric).__qualname__}({', '.join(parts)})"


def _describe(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} {tuple(np.shape(value))}"
    return type(value).__qualname__


#
# The smallest metric
#


class NoopMetric(Metric):
    """Accepts anything and computes `{}`: takes the place of a metric to remove it."""

    State = EmptyState

    def get_state(self, **kwargs: Any) -> EmptyState:
        return EmptyState()


#
# Hints about inputs of the wrong type
#


_MAX_PATHS = 4


def input_hints(keys: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """Return lines to put below the message of a failed type check."""
    hints = [*_tree_hints(keys, inputs), *_label_hints(keys, inputs)]
    return "".join(f"\n{hint}" for hint in hints)


def _tree_hints(keys: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    for name, value in inputs.items():
        if isinstance(value, Mapping | list | tuple):
            below = list(kontext.flatten_with_path(value, prefix=str(keys[name])))
            some = ", ".join(map(repr, below[:_MAX_PATHS]))
            more = ", ..." if len(below) > _MAX_PATHS else ""
            yield (
                f"{name}={str(keys[name])!r} is a tree: name one of its arrays "
                f"({some}{more}), or apply the metric to all of them with "
                "kd.metrics.TreeMap or kd.metrics.TreeReduce."
            )


def _label_hints(keys: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    """Find class numbers that lack the axis of size 1 in place of the classes."""
    logits, labels = inputs.get("logits"), inputs.get("labels")
    if getattr(labels, "shape", None) == getattr(logits, "shape", (None,))[:-1]:
        yield (
            f"labels={str(keys['labels'])!r} lacks the last axis, of size 1. Add it in "
            'the data, with kd.data.Rearrange(key=..., pattern="... -> ... 1").'
        )
    elif _are_class_numbers(labels, logits):
        yield (
            f"labels={str(keys['labels'])!r} holds numbers of classes, not a "
            "distribution over them: kd.losses.SoftmaxCrossEntropyWithIntLabels takes "
            "those."
        )


def _are_class_numbers(labels: Any, logits: Any) -> bool:
    if not (hasattr(labels, "dtype") and hasattr(logits, "dtype")):
        return False
    do_shapes_fit = labels.shape == (*logits.shape[:-1], 1) != logits.shape
    is_integer = jax.dtypes.issubdtype(labels.dtype, np.integer)
    return (
        do_shapes_fit
        and is_integer
        and jax.dtypes.issubdtype(logits.dtype, np.floating)
    )


#
# Options, made hashable
#


NOT_FROZEN = {"kauldron_not_frozen": True}
"""Metadata of a field that takes care of its own hash."""


def freeze_options(metric: Any) -> None:
    """Turn lists, dicts, sets and arrays among the fields into immutable ones.

    Metrics travel as static data through `jit` and must have a hash, also those built
    by hand with `columns=["a", "b"]`.
    """
    if not dataclasses.is_dataclass(metric):
        return
    for field in dataclasses.fields(metric):
        if field.metadata.keys() & NOT_FROZEN.keys() or not hasattr(metric, field.name):
            continue
        value = getattr(metric, field.name)
        frozen = freeze(value)
        if frozen is not value:
            object.__setattr__(metric, field.name, frozen)


def freeze(value: Any) -> Any:
    """Make hashable: list to tuple, dict to `ImmutableDict`, array to nested tuple."""
    if isinstance(value, jax.core.Tracer):
        return value
    if isinstance(value, np.ndarray | jax.Array):
        return freeze(np.asarray(value).tolist())
    if isinstance(value, Mapping):
        return ImmutableDict({name: freeze(item) for name, item in value.items()})
    if isinstance(value, list) or type(value) is tuple:
        return tuple(freeze(item) for item in value)
    if isinstance(value, set):
        return frozenset(freeze(item) for item in value)
    return value


#
# Errors that name the metric or loss
#


@contextlib.contextmanager
def naming(
    prefix: Callable[[], str], type_hint: Callable[[], str] = str
) -> Iterator[None]:
    """Put `prefix()` in front of the message of what is raised inside.

    Below a failed type check comes `type_hint()`.

    Like `error_prefix`, also for failed type checks: their text is not made from their
    arguments, so that `error_prefix` could only add a note.
    """
    try:
        yield
    except KTypeCheckError as error:
        renamed = type(error)(f"{prefix()}{error}{type_hint()}")
        raise renamed.with_traceback(error.__traceback__) from None
    except Exception:
        with error_prefix(prefix):
            raise
