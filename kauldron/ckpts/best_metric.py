"""Is the metric that checkpoints are ranked by ever there?"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kauldron import kontext
from kauldron.ckpts import metric_values

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer

_MOST_STEPS_LOOKED_AT = 10_000
_TRAIN = "train"


def owner_of(path: str) -> str:
    """The evaluator that a path such as `my_eval.accuracy` begins with."""
    return str(kontext.Path.from_str(path)[0])


def missing_message(path: str, values: Mapping[str, Any]) -> str:
    """What to tell about a checkpoint without the metric."""
    known = metric_values.paths(values)
    close = difflib.get_close_matches(path, known, n=1)
    return (
        f"This checkpoint has no metric {path!r}, by which the best are kept: it counts "
        f"as the worst. It has: {', '.join(known) or 'none'}."
        + (f" Did you mean {close[0]!r}?" if close else "")
        + f" {_ADVICE}"
    )


_ADVICE = (
    "Use the metric of an evaluator that runs in the training job at the steps that are "
    "saved; metrics of training are there only if the step before was logged."
)


def never_there(checkpointer: Checkpointer, trainer: Any) -> str | None:
    """What to say about a config whose evaluations and saves never meet."""
    path = checkpointer.best_metric_path
    name = owner_of(path) if path is not None else _TRAIN
    if name == _TRAIN:
        return None
    evaluator = (getattr(trainer, "evals", None) or {}).get(name)
    run = getattr(evaluator, "run", None)
    if getattr(run, "includes_last_step", False):
        return None  # the last step is saved as well
    due = getattr(run, "should_eval_in_train", None)
    try:
        if due is not None and any(due(s) for s in _saved_steps(checkpointer, trainer)):
            return None
    except NotImplementedError:  # a strategy that says nothing of its steps
        return None
    return (
        f"{path!r} is ranked by, but the evaluator {name!r} never runs in the training "
        f"job at a saved step: no checkpoint will have the metric. {_ADVICE}"
    )


def _saved_steps(checkpointer: Checkpointer, trainer: Any) -> Iterable[int]:
    ends = [getattr(trainer, n, None) for n in ("num_train_steps", "stop_after_steps")]
    last = min((end for end in ends if end is not None), default=None)
    regular = itertools.count(0, checkpointer.save_interval_steps)
    if last is not None:
        regular = itertools.takewhile(lambda step: step <= last, regular)
        yield last
    yield from checkpointer.save_on_steps or ()
    yield from itertools.islice(regular, _MOST_STEPS_LOOKED_AT)
