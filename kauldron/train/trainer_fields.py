"""The fields of a `Trainer`: what they may hold, what `None` means, and their specs.

Everything that is particular about a field stands in one table, `_FIELDS`.
"""

from __future__ import annotations

import dataclasses
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

import jax

from kauldron import ckpts, config_base, metrics, writers
from kauldron import sharding as kd_sharding
from kauldron.data import model_inputs
from kauldron.errors import did_you_mean
from kauldron.immutabledict import ImmutableDict, freeze
from kauldron.sharding import ShardingStrategy
from kauldron.sharding.tree import flatten_with_shardings, replace_shape_dtype_struct
from kauldron.train import train_step
from kauldron.train.hooks import Hook
from kauldron.train.rng_streams import RngStreams
from kauldron.train.run.profiler import NoopProfiler, Profiler
from kauldron.train.setup import ModelExporter, NoopExporter, Setup
from kauldron.train.train_step import TrainStep

if TYPE_CHECKING:
    from kauldron.train.state import Context, TrainState
    from kauldron.train.trainer import Trainer


def _is_anything(value: Any) -> bool:
    del value
    return True


@dataclasses.dataclass(frozen=True)
class _Field:
    """What is particular about a field of the trainer.

    Attributes:
      expected: What the value must be, for the error; of a mapping, each of its members.
      is_right: Whether it is that. Otherwise it could only fail later.
      none_means: Makes the value that `None` stands for; without it `None` is kept,
        and not checked.
      is_mapping: Whether the field holds parts by name, possibly nested. It is made
        immutable.
      is_type_right: Whether errors show the value alone, without its type.
    """

    expected: str = ""
    is_right: Callable[[Any], bool] = _is_anything
    none_means: Callable[[], Any] | None = None
    is_mapping: bool = False
    is_type_right: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise an error unless the value is right."""
        if not self.is_mapping:
            members: Iterable[tuple[str, Any]] = [("", value)]
        elif isinstance(value, Mapping):
            members = _leaves(value)
        else:
            raise TypeError(
                f"`trainer.{name}` must be a mapping from names, got {_describe(value)}"
            )
        for path, member in members:
            if not self.is_right(member):
                got = f"{member!r}." if self.is_type_right else _describe(member)
                raise ValueError(
                    f"`trainer.{name}{path}` must be {self.expected}, got {got}"
                )


class _Integer(_Field):
    """An integer, which is not negative if something is expected of it."""

    def check(self, name: str, value: Any) -> None:
        _INTEGER.check(name, value)
        if self.expected:
            not_negative = _value(self.expected, lambda number: number >= 0)
            not_negative.check(name, operator.index(value))


def _value(expected: str, is_right: Callable[[Any], bool]) -> _Field:
    return _Field(expected, is_right, is_type_right=True)


def _part(*types: type, none_means: Callable[[], Any]) -> _Field:
    """Return the row of a field that holds an object of one of our classes."""
    article = "an" if types[0].__name__.startswith("I") else "a"
    expected = f"{article} {' or '.join(t.__name__ for t in types)}"
    return _Field(expected, lambda value: isinstance(value, types), none_means)


def _part_that_has(*methods: str, expected: str) -> _Field:
    """Return the row of a field that holds an object of another library."""

    def has_methods(value: Any) -> bool:
        # Only the class is asked: the object might read its data to answer.
        has_all = all(hasattr(type(value), method) for method in methods)
        return has_all and not isinstance(value, type)

    return _Field(expected, has_methods)


def _mapping(
    expected: str = "", is_member: Callable[[Any], bool] = _is_anything
) -> _Field:
    return _Field(expected, is_member, dict, is_mapping=True)


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def _is_metric(value: Any) -> bool:
    return isinstance(value, metrics.Metric)


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


_INTEGER = _Field("an integer", _is_integer)
_PIPELINE = _part_that_has(
    "__iter__", "element_spec", expected="a pipeline, such as `kd.data.py.Arrays`"
)

# In this order parts inherit from the trainer: each may need what the parts before it
# have inherited.
_FIELDS: dict[str, _Field] = {
    "seed": _INTEGER,
    "num_train_steps": _Integer("at least 0"),
    "stop_after_steps": _Integer("at least 0"),
    "log_metrics_every": _Integer("at least 1 (None or 0 for never)"),
    "log_summaries_every": _Integer("at least 1 (None or 0 for never)"),
    "steps_per_dispatch": _value(
        "'auto' or at least 1",
        lambda value: value == "auto" or _is_positive_integer(value),
    ),
    "num_microbatches": _value("at least 1", _is_positive_integer),
    "on_nonfinite": _value(
        "'ignore', 'warn' or 'raise'",
        lambda value: value in ("ignore", "warn", "raise"),
    ),
    "checkify_error_categories": _Field(
        "a set of checks, such as `jax.experimental.checkify.float_checks`",
        lambda value: isinstance(value, frozenset),
        frozenset,
    ),
    "train_losses": _mapping("a loss, such as `kd.losses.L2(...)`", _is_metric),
    "train_metrics": _mapping(
        "a metric, such as `kd.metrics.Accuracy(...)`", _is_metric
    ),
    "train_summaries": _mapping(
        "a summary, such as `kd.summaries.ShowImages(...)`", _is_metric
    ),
    "schedules": _mapping(
        "a function of the step, such as `optax.cosine_decay_schedule(...)`",
        callable,
    ),
    "evals": _mapping(),
    "hooks": _mapping(
        "a hook, such as `kd.train.EarlyStopping(...)`",
        lambda value: isinstance(value, Hook),
    ),
    "aux": _Field(none_means=dict),
    "model": _part_that_has(
        "init", "apply", expected="a flax module, such as `MyModel(x='batch.image')`"
    ),
    "optimizer": _part_that_has(
        "init", "update", expected="an optax transformation, such as `optax.adam(1e-3)`"
    ),
    "setup": _part(Setup, none_means=Setup),
    "sharding": _part(ShardingStrategy, none_means=ShardingStrategy),
    "rng_streams": _part(RngStreams, none_means=RngStreams),
    "train_ds": _PIPELINE,
    "eval_ds": _PIPELINE,
    "checkpointer": _part(
        ckpts.BaseCheckpointer, none_means=lambda: ckpts.NoopCheckpointer()
    ),
    "init_transform": _part(
        ckpts.InitTransform, none_means=lambda: ckpts.NoopTransform()
    ),
    "exporter": _part(ModelExporter, none_means=NoopExporter),
    "profiler": _part(Profiler, NoopProfiler, none_means=NoopProfiler),
    "writer": _part(writers.WriterBase, none_means=writers.NoopWriter),
    "trainstep": _part(TrainStep, none_means=TrainStep),
}


def normalize(trainer: Trainer, *, losses: Any, train_loss: Any) -> None:
    """Check the fields of a trainer under construction; bring them to their final form."""
    _use_aliases(trainer, losses=losses, train_loss=train_loss)
    for name, field in _FIELDS.items():
        if getattr(trainer, name) is None and field.none_means is not None:
            _set(trainer, name, field.none_means())
        value = getattr(trainer, name)
        if value is not None:
            field.check(name, value)
        if field.is_mapping:
            _set(trainer, name, freeze(value))
    _warn_of_hidden_loss(trainer)
    _inherit(trainer)
    _set(trainer, "evals", _named_evals(trainer))
    _set(trainer, "writer", writers.with_collection(trainer.writer, "train"))


def _set(trainer: Trainer, name: str, value: Any) -> None:
    object.__setattr__(trainer, name, value)


def _use_aliases(trainer: Trainer, *, losses: Any, train_loss: Any) -> None:
    given = {"losses": losses, "train_loss": train_loss}
    used = [name for name, value in given.items() if value is not None]
    if trainer.train_losses:
        used.append("train_losses")
    if len(used) > 1:
        raise ValueError(f"Give the losses once: {' and '.join(used)} are both set.")
    value = losses if losses is not None else train_loss
    if value is None:
        return
    if not isinstance(value, Mapping):
        value = {"loss": value}
    _set(trainer, "train_losses", value)


def _warn_of_hidden_loss(trainer: Trainer) -> None:
    if "total" in trainer.train_losses:
        warnings.warn(
            "The loss 'total' of `trainer.train_losses` is hidden in the logs, where "
            "`losses/total` is the sum of all losses: give it another name.",
            stacklevel=5,
        )


def _inherit(trainer: Trainer) -> None:
    others = [field.name for field in dataclasses.fields(trainer)]
    for name in dict.fromkeys((*_FIELDS, *others)):
        value = getattr(trainer, name)
        if isinstance(value, config_base.UpdateFromRootCfg):
            _set(trainer, name, value.update_from_root_cfg(trainer))
        elif name == "train_summaries":
            _set(trainer, name, config_base.update_members(value, trainer))


def _named_evals(trainer: Trainer) -> Mapping[str, Any]:
    evals = {}
    for name, evaluator in trainer.evals.items():
        if not hasattr(evaluator, "maybe_eval"):
            raise TypeError(
                f"`trainer.evals[{name!r}]` must be an evaluator (a subclass of "
                f"kd.evals.EvaluatorBase), got {type(evaluator).__name__}: {evaluator!r}"
            )
        run = evaluator.run
        if isinstance(run, type) or not hasattr(run, "should_eval_in_train"):
            raise ValueError(
                f"`trainer.evals[{name!r}].run` must say when to run, such as "
                f"`kd.evals.EveryNSteps(100)`, got {_describe(run)}"
            )
        evals[name] = evaluator.with_name(name).update_from_root_cfg(trainer)
    return ImmutableDict(evals)


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
    if isinstance(value, tuple) and len(value) == 1:  # lists of a config are tuples too
        return f"a tuple of one {type(value[0]).__name__}: is there a comma after it?"
    return f"{type(value).__name__}: {value!r:.200}"


#
# Asking a trainer
#


def require(trainer: Trainer, name: str) -> Any:
    """Return the field, or an error that says how to set it."""
    value = getattr(trainer, name)
    if value is None:
        raise ValueError(not_set_message(name))
    return value


def not_set_message(name: str) -> str:
    """Return what to say about a field that is needed and is not set."""
    return f"`trainer.{name}` is not set; set `cfg.{name} = ...`."


def select_evaluators(trainer: Trainer, names: str | list[str]) -> dict[str, Any]:
    """Return the evaluators with these names, or in the job groups of these names."""
    names = [names] if isinstance(names, str) else list(names)
    groups: dict[str, list[str]] = {}
    for name, evaluator in trainer.evals.items():
        group = getattr(evaluator.run, "job_group", None)
        if group is not None:
            groups.setdefault(group, []).append(name)
    selected: dict[str, Any] = {}
    for name in names:
        members = [name] if name in trainer.evals else groups.get(name)
        if members is None:
            raise ValueError(
                f"There is no evaluator or job group called {name!r}."
                f"{did_you_mean(name, [*trainer.evals, *groups])} Evaluators: "
                f"{', '.join(trainer.evals) or 'none'}. Job groups: "
                f"{', '.join(groups) or 'none'}."
            )
        selected |= {member: trainer.evals[member] for member in members}
    if not trainer.evals:
        raise ValueError("There is no evaluator; set `cfg.evals = {...}`.")
    if not selected:
        raise ValueError(
            f"No evaluator was named. Evaluators: {', '.join(trainer.evals)}."
        )
    return selected


#
# Specs
#


def state_specs(
    trainer: Trainer, *, element_spec: Any = None, with_optimizer: bool = True
) -> TrainState:
    """Return the state as `jax.ShapeDtypeStruct`s with shardings."""
    return kd_sharding.eval_shape_with_sharding(
        lambda: trainer.init_state(
            skip_transforms=True,
            skip_optimizer=not with_optimizer,
            element_spec=element_spec,
        )
    )


def batch_specs(trainer: Trainer) -> Any:
    """Return a global batch of `train_ds` as `jax.ShapeDtypeStruct`s."""
    train_ds = require(trainer, "train_ds")
    train_step.check_numbers(train_ds.element_spec)
    return global_batch_specs(train_ds.element_spec, trainer.sharding.batch)


def global_batch_specs(element_spec: Any, sharding: Any) -> Any:
    """Return a batch over all processes as `jax.ShapeDtypeStruct`s."""
    spec = model_inputs.get_global_elem_spec(element_spec, sharding)
    structs = jax.eval_shape(
        lambda: model_inputs.mock_batch_from_elem_spec(spec, sharding)
    )
    default = kd_sharding.FIRST_DIM
    leaves = flatten_with_shardings(structs, default if sharding is None else sharding)
    return jax.tree.unflatten(
        jax.tree.structure(structs),
        [
            replace_shape_dtype_struct(leaf.value, sharding=leaf.sharding or default)
            for leaf in leaves
        ],
    )


def context_specs(trainer: Trainer) -> Context:
    """Return the context after one train step as `jax.ShapeDtypeStruct`s."""
    with trainer.sharding.set_global_mesh():
        _, context = jax.eval_shape(
            trainer.trainstep._checked_step, trainer.state_specs, batch_specs(trainer)
        )
    return context
