"""What constructing a `Trainer` does with its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kauldron import ckpts, writers
from kauldron.konfig.immutabledict import ImmutableDict, freeze
from kauldron.sharding import ShardingStrategy
from kauldron.train import trainer_checks
from kauldron.train.exporter import NoopExporter
from kauldron.train.profiler import NoopProfiler
from kauldron.train.rng_streams import RngStreams
from kauldron.train.setup import Setup
from kauldron.train.train_step import TrainStep
from kauldron.utils import config_util

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

_NO_OPS: dict[str, Callable[[], Any]] = {
    "evals": dict,
    "checkpointer": ckpts.NoopCheckpointer,
    "init_transform": ckpts.NoopTransform,
    "profiler": NoopProfiler,
    "writer": writers.NoopWriter,
    "exporter": NoopExporter,
    "schedules": dict,
    "train_losses": dict,
    "train_metrics": dict,
    "train_summaries": dict,
    "aux": dict,
    "checkify_error_categories": frozenset,
    "setup": Setup,
    "rng_streams": RngStreams,
    "sharding": ShardingStrategy,
    "trainstep": TrainStep,
}
# Each part may need what the parts before it inherited.
_INHERITANCE_ORDER = (
    "rng_streams",
    "train_ds",
    "eval_ds",
    "checkpointer",
    "init_transform",
    "exporter",
    "profiler",
    "writer",
    "trainstep",
)


def normalize(trainer: Trainer, *, losses: Any, train_loss: Any) -> None:
    """Bring the fields of a trainer under construction into their final form."""
    _use_aliases(trainer, losses=losses, train_loss=train_loss)
    for name, make in _NO_OPS.items():
        if getattr(trainer, name) is None:
            _set(trainer, name, make())
    trainer_checks.check_mappings(trainer)
    for name in trainer_checks.FROZEN_DICTS:
        _set(trainer, name, freeze(getattr(trainer, name)))
    trainer_checks.check(trainer)
    _inherit(trainer)
    _set(trainer, "evals", _named_evals(trainer))
    _set(trainer, "writer", writers.with_collection(trainer.writer, "train"))


def require(trainer: Trainer, name: str) -> Any:
    """The field, or an error that says how to set it."""
    value = getattr(trainer, name)
    if value is None:
        raise ValueError(not_set_message(name))
    return value


def not_set_message(name: str) -> str:
    """What to say about a field that is needed and is not set."""
    return f"`trainer.{name}` is not set; set `cfg.{name} = ...`."


def select_evaluators(trainer: Trainer, names: str | list[str]) -> dict[str, Any]:
    """The evaluators with these names, or in the job groups of these names."""
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
                f"There is no evaluator or job group called {name!r}. Evaluators: "
                f"{', '.join(trainer.evals) or 'none'}. Job groups: "
                f"{', '.join(groups) or 'none'}."
            )
        selected |= {member: trainer.evals[member] for member in members}
    if not selected:
        raise ValueError("No evaluator was named.")
    return selected


#
# Details
#


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


def _inherit(trainer: Trainer) -> None:
    others = [field.name for field in dataclasses.fields(trainer)]
    for name in dict.fromkeys((*_INHERITANCE_ORDER, *others)):
        value = getattr(trainer, name)
        if isinstance(value, config_util.UpdateFromRootCfg):
            _set(trainer, name, value.update_from_root_cfg(trainer))


def _named_evals(trainer: Trainer) -> Mapping[str, Any]:
    evals = {}
    for name, evaluator in trainer.evals.items():
        if not hasattr(evaluator, "maybe_eval"):
            raise TypeError(
                f"`trainer.evals[{name!r}]` must be an evaluator (a subclass of "
                f"kd.evals.EvaluatorBase), got {type(evaluator).__name__}: {evaluator!r}"
            )
        trainer_checks.check_run(name, evaluator.run)
        evals[name] = evaluator.with_name(name).update_from_root_cfg(trainer)
    if evals == dict(trainer.evals) and isinstance(trainer.evals, ImmutableDict):
        return trainer.evals
    return ImmutableDict(evals)
