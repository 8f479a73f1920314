"""What is wrong with the fields of a trainer, found before anything runs."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kauldron import ckpts, metrics, writers
from kauldron.sharding import ShardingStrategy
from kauldron.train.exporter import ModelExporter
from kauldron.train.profiler import NoopProfiler, Profiler
from kauldron.train.rng_streams import RngStreams
from kauldron.train.setup import Setup
from kauldron.train.train_step import TrainStep

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

FROZEN_DICTS = ("train_losses", "train_metrics", "train_summaries", "schedules")

_TYPES: dict[str, type | tuple[type, ...]] = {
    "rng_streams": RngStreams,
    "sharding": ShardingStrategy,
    "checkpointer": ckpts.BaseCheckpointer,
    "init_transform": ckpts.InitTransform,
    "exporter": ModelExporter,
    "profiler": (Profiler, NoopProfiler),
    "writer": writers.WriterBase,
    "trainstep": TrainStep,
    "setup": Setup,
}
# Objects of other libraries are known by what they can do.
_METHODS: dict[str, tuple[tuple[str, ...], str]] = {
    "model": (("init", "apply"), "a flax module, such as `MyModel(x='batch.image')`"),
    "optimizer": (
        ("init", "update"),
        "an optax transformation, such as `optax.adam(1e-3)`",
    ),
    "train_ds": (
        ("__iter__", "element_spec"),
        "a pipeline, such as `kd.data.py.Arrays`",
    ),
    "eval_ds": (
        ("__iter__", "element_spec"),
        "a pipeline, such as `kd.data.py.Arrays`",
    ),
}
_MEMBERS = {
    "train_losses": "a loss, such as `kd.losses.L2(...)`",
    "train_metrics": "a metric, such as `kd.metrics.Accuracy(...)`",
    "train_summaries": "a summary, such as `kd.summaries.ShowImages(...)`",
}
_INTEGERS = {
    "seed": "an integer",
    "num_train_steps": "at least 0",
    "stop_after_steps": "at least 0",
    "log_metrics_every": "at least 1 (None or 0 for never)",
    "log_summaries_every": "at least 1 (None or 0 for never)",
}


def check_mappings(trainer: Trainer) -> None:
    """Refuse other containers where names are needed."""
    for name in (*FROZEN_DICTS, "evals"):
        value = getattr(trainer, name)
        if not isinstance(value, Mapping):
            raise TypeError(
                f"`trainer.{name}` must be a mapping from names, got {_describe(value)}"
            )


def check(trainer: Trainer) -> None:
    """Refuse values that could only fail later, naming the field."""
    _check_integers(trainer)
    _check_choices(trainer)
    _check_types(trainer)
    _check_members(trainer)
    if "total" in trainer.train_losses:
        warnings.warn(
            "A loss called 'total' is hidden in the logs: `losses/total` is the sum of "
            "all losses.",
            stacklevel=5,
        )


def check_run(name: str, run: Any) -> None:
    """Refuse an evaluator that does not know when to run."""
    if isinstance(run, type) or not hasattr(run, "should_eval_in_train"):
        raise ValueError(
            f"`trainer.evals[{name!r}].run` must say when to run, such as "
            f"`kd.evals.EveryNSteps(100)`, got {_describe(run)}"
        )


def _check_integers(trainer: Trainer) -> None:
    for name, expected in _INTEGERS.items():
        value = getattr(trainer, name)
        if value is None:
            continue
        try:
            number = operator.index(value)
        except TypeError:
            raise ValueError(
                f"`trainer.{name}` must be an integer, got {_describe(value)}"
            ) from None
        if number < 0 and name != "seed":
            raise ValueError(f"`trainer.{name}` must be {expected}, got {value}.")


def _check_choices(trainer: Trainer) -> None:
    chunk = trainer.steps_per_dispatch
    if chunk != "auto" and (not isinstance(chunk, int) or chunk < 1):
        raise ValueError(
            f"`trainer.steps_per_dispatch` must be 'auto' or at least 1, got {chunk!r}."
        )
    if trainer.on_nonfinite not in ("ignore", "warn", "raise"):
        raise ValueError(
            "`trainer.on_nonfinite` must be 'ignore', 'warn' or 'raise', got "
            f"{trainer.on_nonfinite!r}."
        )
    if not isinstance(trainer.checkify_error_categories, frozenset):
        raise ValueError(
            "`trainer.checkify_error_categories` must be a set of checks, such as "
            "`jax.experimental.checkify.float_checks`, got "
            f"{_describe(trainer.checkify_error_categories)}"
        )


def _check_types(trainer: Trainer) -> None:
    for name, expected in _TYPES.items():
        value = getattr(trainer, name)
        if not isinstance(value, expected):
            names = expected if isinstance(expected, tuple) else (expected,)
            raise ValueError(
                f"`trainer.{name}` must be a {' or '.join(t.__name__ for t in names)}, "
                f"got {_describe(value)}"
            )
    for name, (methods, expected) in _METHODS.items():
        value = getattr(trainer, name)
        if value is None:
            continue
        # Only the class is asked: the object might read its data to answer.
        has_all = all(hasattr(type(value), method) for method in methods)
        if isinstance(value, type) or not has_all:
            raise ValueError(
                f"`trainer.{name}` must be {expected}, got {_describe(value)}"
            )


def _check_members(trainer: Trainer) -> None:
    for field, expected in _MEMBERS.items():
        for path, value in _leaves(getattr(trainer, field)):
            if not isinstance(value, metrics.Metric):
                raise ValueError(
                    f"`trainer.{field}{path}` must be {expected}, got {_describe(value)}"
                )
    for path, value in _leaves(trainer.schedules):
        if not callable(value):
            raise ValueError(
                f"`trainer.schedules{path}` must be a function of the step, such as "
                f"`optax.cosine_decay_schedule(...)`, got {_describe(value)}"
            )


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        here = f"{path}[{name!r}]"
        if isinstance(value, Mapping):
            yield from _leaves(value, here)
        else:
            yield here, value


def _describe(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself: call it."
    if isinstance(value, FunctionType):
        return f"the function {getattr(value, '__qualname__', value)}."
    return f"{type(value).__name__}: {value!r:.200}"
