"""What happens at events of the training loop besides training: `trainer.hooks`.

A hook is configuration, and frozen. What it has to remember from one event to the next is
in `event.memory`, a dict that is saved with each checkpoint: a run that was killed continues
from its newest checkpoint, sees the events after it once more, and decides as if it had never
been stopped.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from kauldron import config_base
from kauldron.ckpts import retention
from kauldron.errors import did_you_mean, error_prefix

if TYPE_CHECKING:
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in the training loop.

    Attributes:
      trainer: The experiment.
      step: Number of updates so far.
      state: The state after them. The next step consumes it: copy what is to be kept.
      values: What was measured, by collection: `{"test": {"accuracy": 0.5, "losses":
        {"xent": 0.7, "total": 0.7}}}`; of a train step, under `"train"`. Empty at other
        events.
      memory: What the hook remembers; it may hold what JSON can.
      is_resumed: Whether this start continues an earlier one.
    """

    trainer: Trainer
    step: int
    state: TrainState
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_resumed: bool = False
    _stop: Callable[[str], None] = dataclasses.field(
        default=lambda reason: None, repr=False
    )

    def stop(self, reason: str) -> None:
        """Ask that training ends here, as it would at its last step.

        Args:
          reason: Why, for the log and `train_complete.txt`.
        """
        self._stop(reason)

    def find(self, metric: str) -> float | None:
        """Return a value, or `None` if it was not measured now.

        Args:
          metric: Its path, as `best_metric_path` names it: `"test.losses.xent"`.

        Returns:
          The number.

        Raises:
          ValueError: Its evaluator ran, but did not measure it.
        """
        owner = retention.metric_owner(metric)
        if owner not in self.values:
            return None
        values = retention.metrics_to_json({owner: self.values[owner]})
        value = retention.find_metric(values, metric)
        if value is None:
            known = retention.metric_paths(values)
            raise ValueError(
                f"{metric!r} was not measured.{did_you_mean(metric, known)} There are: "
                f"{', '.join(known) or 'none'}."
            )
        return value


class Hook(config_base.BaseConfig):
    """Acts on events of the training loop; override the methods that you need.

    Subclasses are frozen keyword-only dataclasses without decorator. With several
    processes, every method is called in all of them. What a hook does should depend on
    its fields, the event and `event.memory` alone: then a resumed run does the same.

    Example:
      >>> class StopAtLoss(Hook):
      ...     loss: float
      ...
      ...     def wants_values(self, step):
      ...         return step % 10 == 0
      ...
      ...     def on_step(self, event):
      ...         if event.find("train.losses.total") < self.loss:
      ...             event.stop(f"the loss is below {self.loss}")
    """

    def on_start(self, event: Event) -> None:
        """Act at each start of the run, before its first step."""

    def wants_values(self, step: int) -> bool:
        """Return whether `on_step` is called after the update `step`.

        Steps run in the background and in groups. At those that a hook wants to see,
        the loop waits for the device: ask for few.
        """
        del step
        return False

    def on_step(self, event: Event) -> None:
        """Act after an update; `event.values["train"]` is what it measured.

        `event.step` is the number of updates so far: one more than the number of the
        update that `wants_values` was asked about.
        """

    def on_evaluation(self, event: Event) -> None:
        """Act after the evaluators that were due at a step."""

    def on_checkpoint(self, event: Event) -> None:
        """Act before a checkpoint is saved, unless an interruption is the reason."""

    def on_end(self, event: Event) -> None:
        """Act when all is trained, evaluated and saved.

        A run that is killed meanwhile calls it again when it is started again.
        """

    @property
    def needed_metrics(self) -> dict[str, str]:
        """Metrics of evaluators that the hook needs, by the field that names them."""
        return {}


class EarlyStopping(Hook):
    """Stop when a metric of an evaluator has not become better for some evaluations.

    A value that is not finite is not better than any other.

    Attributes:
      metric: Path of the metric, as of `best_metric_path`: `"test.losses.xent"`,
        `"test.accuracy"`.
      patience: How many evaluations in a row may pass without improvement; training
        stops at the next one. With 0, it stops at the first that is not better.
      min_delta: By how much a value must be better to count.
      mode: Whether lower (`"min"`) or higher (`"max"`) is better.

    Example:
      >>> EarlyStopping(metric="test.losses.xent", patience=5).mode
      'min'
    """

    metric: str
    patience: int = 3
    min_delta: float = 0.0
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if not isinstance(self.patience, int) or self.patience < 0:
            raise ValueError(
                f"EarlyStopping.patience must be an integer, at least 0, got "
                f"{self.patience!r}."
            )
        if not self.min_delta >= 0:
            raise ValueError(
                f"EarlyStopping.min_delta must be at least 0, got {self.min_delta!r}."
            )
        if self.mode not in ("min", "max"):
            raise ValueError(
                f"EarlyStopping.mode must be 'min' or 'max', got {self.mode!r}."
            )
        if retention.metric_owner(self.metric) == "train":
            raise ValueError(
                f"EarlyStopping.metric is {self.metric!r}, which is measured on one "
                "batch of training. Name a metric of an evaluator, such as "
                "'test.losses.total'."
            )

    @property
    def needed_metrics(self) -> dict[str, str]:
        return {"metric": self.metric}

    def on_evaluation(self, event: Event) -> None:
        value = event.find(self.metric)
        if value is None:
            return
        memory = event.memory
        if self._is_better(value, memory.get("best")):
            memory.update(best=value, best_step=event.step, waited=0)
            return
        memory["waited"] = memory.get("waited", 0) + 1
        if memory["waited"] > self.patience:
            event.stop(self._reason(memory))

    def _is_better(self, value: float, best: float | None) -> bool:
        if not math.isfinite(value):
            return False
        if best is None:
            return True
        gain = best - value if self.mode == "min" else value - best
        return gain > self.min_delta

    def _reason(self, memory: Mapping[str, Any]) -> str:
        waited = memory["waited"]
        times = "1 evaluation" if waited == 1 else f"{waited} evaluations"
        if "best" not in memory:
            return f"{self.metric} was not finite in {times}"
        how = f" by more than {self.min_delta:.4g}" if self.min_delta else ""
        return (
            f"{self.metric} did not improve{how} in the {times} since step "
            f"{memory['best_step']} ({memory['best']:.4g})"
        )


#
# The hooks of one run
#


@dataclasses.dataclass(frozen=True)
class Stop:
    """Which hook ended the run, and why."""

    hook: str
    description: str
    reason: str


class ActiveHooks:
    """The hooks of one `train()` call, with what they remember.

    Args:
      trainer: The experiment.
      saved: What `to_json` gave when the checkpoint was saved that the run resumes from.
    """

    def __init__(self, trainer: Trainer, saved: Mapping[str, Any] | None = None):
        self._trainer = trainer
        saved = saved or {}
        memory = saved.get("memory", {})
        self._memory = {name: dict(memory.get(name, {})) for name in trainer.hooks}
        self.stop = _still_valid(saved.get("stop"), trainer)
        self._before_evaluation: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self._trainer.hooks)

    def start(self, step: int, state: TrainState, *, is_resumed: bool) -> None:
        self._call("on_start", step=step, state=state, is_resumed=is_resumed)

    def after_step(self, step: int, state: TrainState, values: Any) -> None:
        hooks = self._trainer.hooks
        wanting = {n: h for n, h in hooks.items() if h.wants_values(step - 1)}
        self._call("on_step", wanting, step=step, state=state, values=values)

    def after_evaluation(self, step: int, state: TrainState, values: Any) -> None:
        # A run that is interrupted before it can save evaluates again.
        self._before_evaluation = self.to_json()
        self._call("on_evaluation", step=step, state=state, values=values)

    def before_checkpoint(self, step: int, state: TrainState) -> None:
        self._call("on_checkpoint", step=step, state=state)

    def end(self, step: int, state: TrainState) -> None:
        self._call("on_end", step=step, state=state)

    def _call(self, method: str, hooks: Any = None, **event: Any) -> None:
        hooks = self._trainer.hooks if hooks is None else hooks
        for name, hook in hooks.items():

            def stop(reason: str, name: str = name, hook: Hook = hook) -> None:
                self.stop = self.stop or Stop(name, _describe(hook), reason)

            with error_prefix(f"Hook {name} failed at step {event['step']}: "):
                memory = self._memory[name]
                getattr(hook, method)(
                    Event(trainer=self._trainer, memory=memory, _stop=stop, **event)
                )
                self._memory[name] = _as_saved(memory)

    @property
    def vote(self) -> int:
        """The index of the hook that asks to stop; the number of hooks if none does."""
        names = list(self._trainer.hooks)
        return len(names) if self.stop is None else names.index(self.stop.hook)

    def agree(self, vote: int) -> Stop | None:
        """Stop if a hook asks for it in any process; `vote` is the smallest of all."""
        names = list(self._trainer.hooks)
        if self.stop is None and vote < len(names):
            name = names[vote]
            reason = "another process asks for it"
            self.stop = Stop(name, _describe(self._trainer.hooks[name]), reason)
        return self.stop

    def to_json(self, *, evals_pending: bool = False) -> dict[str, Any]:
        """Return a copy to save with a checkpoint, which takes a while to write.

        Args:
          evals_pending: Whether a start from it evaluates the step (again).
        """
        if evals_pending and self._before_evaluation is not None:
            return self._before_evaluation
        stop = None if self.stop is None else dataclasses.asdict(self.stop)
        return _as_saved({"memory": self._memory, "stop": stop})

    def next_step(self) -> None:
        """Forget the evaluations of the step before."""
        self._before_evaluation = None


def stopped_before(trainer: Trainer, saved: Mapping[str, Any] | None) -> bool:
    """Return whether a hook, which has not changed since, ended the run that was saved."""
    return _still_valid((saved or {}).get("stop"), trainer) is not None


def _still_valid(saved: Mapping[str, Any] | None, trainer: Trainer) -> Stop | None:
    """Return the end that a hook asked for, unless the hook was changed or removed."""
    if saved is None:
        return None
    stop = Stop(**saved)
    hook = trainer.hooks.get(stop.hook)
    is_same = hook is not None and _describe(hook) == stop.description
    return stop if is_same else None


def _describe(hook: Hook) -> str:
    """Return the hook as text that is the same in another process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(hook))


def _as_saved(memory: dict[str, Any]) -> dict[str, Any]:
    """Return what a run that resumes finds in its place."""
    try:
        return json.loads(json.dumps(memory))
    except TypeError as error:
        raise TypeError(
            f"`event.memory` is saved as JSON, but holds {memory!r:.200}: {error}"
        ) from None
