"""Faults as data: what happens, where, and how the run must come out of it.

`FIXED` is the short set of `make test`; `draw` gives any fault by chance.
"""

import dataclasses
import random
import signal
from collections.abc import Mapping
from typing import Any

from tests.faults import experiments

#
# How it ends
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expected:
    """What must come of a fault.

    Attributes:
      exit_codes: Of the disturbed process. 0 is right as well if the run is complete.
      words: What it says, whatever else it says.
      ending: `"identical"`: after as many starts as needed, state, logged values and
        kept checkpoints are those of the undisturbed run, to the bit. `"close"`: values
        agree to 1e-6. `"same state"`: the log has what was written after the damage.
        `"refuses"`: nothing was changed, and nothing goes on.
      may_refuse: Whether refusing with the words is right as well.
    """

    exit_codes: tuple[int, ...] = (0,)
    words: tuple[str, ...] = ()
    ending: str = "identical"
    may_refuse: bool = False


KILLED = Expected(exit_codes=(-signal.SIGKILL,))
STOPPED = {
    signal.SIGTERM: Expected(exit_codes=(143,), words=("Received SIGTERM",)),
    signal.SIGUSR1: Expected(exit_codes=(0,), words=("Received SIGUSR1",)),
    signal.SIGINT: Expected(exit_codes=(-signal.SIGINT,), words=("Received SIGINT",)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One disturbance of one run.

    Attributes:
      kind: A name in `rounds.KINDS`.
      place: Where it happens, for the table.
      setup: A name in `experiments.SETUPS`.
      details: What the kind must know besides.
      expected: What must come of it.
    """

    kind: str
    place: str
    setup: str = "plain"
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    expected: Expected = KILLED

    @property
    def needs_disk(self) -> bool:
        """Whether the round takes place on a small disk of its own."""
        stages = self.details.get("stages", (self,))
        return any("disk" in x.kind or x.kind == "read-only folder" for x in stages)

    def __str__(self) -> str:
        return f"{self.kind}: {self.place} ({self.setup})"


#
# Kinds
#


def kill(instant, count, setup="plain"):
    """SIGKILL at the `count`-th time that the run reaches an instant."""
    return _at_instant("killed", instant, count, signal.SIGKILL, setup, KILLED)


def stop(number, instant, count, setup="plain"):
    """A signal that asks to stop, at an instant."""
    number = signal.Signals(number)
    kind = f"asked to stop, {number.name}"
    return _at_instant(kind, instant, count, number, setup, STOPPED[number])


def _at_instant(kind, instant, count, number, setup, expected):
    return Fault(
        kind=kind,
        place=f"{instant} {count}",
        setup=setup,
        details={"instant": (instant, count, int(number))},
        expected=expected,
    )


def kill_at(moments, setup="plain"):
    """SIGKILL after parts of the time that a run takes, one per start."""
    return Fault(
        kind="killed at any time",
        place=", ".join(f"{moment:.0%}" for moment in moments),
        setup=setup,
        details={"moments": tuple(moments)},
    )


def damage(path, how, setup="plain", *, stopped_in_evaluation=False):
    """A file of the latest checkpoint, or of the run, is changed between two starts."""
    in_checkpoint = path.startswith("checkpoints/")
    if in_checkpoint:
        expected = Expected()
    elif path.endswith("scalars.jsonl") and how not in ("link", "directory"):
        expected = Expected(ending="same state")
    else:
        name = path.rpartition("/")[2]
        ending = "same state" if name == "scalars.jsonl" else "identical"
        expected = Expected(words=(name,), ending=ending, may_refuse=True)
    return Fault(
        kind="damaged checkpoint" if in_checkpoint else "damaged side file",
        place=f"{how} {path}",
        setup=setup,
        details={
            "path": path,
            "how": how,
            "stopped_in_evaluation": stopped_in_evaluation,
        },
        expected=expected,
    )


def change_world(before, after, instant, count):
    """Killed, and continued on other devices, with other workers or dispatches."""
    return Fault(
        kind="other world",
        place=f"{instant} {count}, then {after}",
        setup=before,
        details={
            "instant": (instant, count, int(signal.SIGKILL)),
            "after": after,
            "reference": "plain",  # records come in the same order
        },
        expected=dataclasses.replace(KILLED, ending="close"),
    )


def full_disk(count, *, on_save_error="raise"):
    """The disk is full from the `count`-th save on."""
    is_told = on_save_error == "raise"
    return Fault(
        kind=f"full disk, on_save_error={on_save_error}",
        place=f"saving {count}",
        details={"count": count, "on_save_error": on_save_error},
        expected=Expected(
            exit_codes=(1,), words=("No space left", "ckpt_") if is_told else ("ckpt_",)
        ),
    )


def kill_evaluator(batch):
    """The evaluating process is killed at a batch, and training as well."""
    return Fault(
        kind="evaluator killed",
        place=f"batch {batch}",
        details={"batch": batch},
    )


READ_ONLY = Fault(
    kind="read-only folder",
    place="between two starts",
    expected=Expected(exit_codes=(1,), words=("cannot be written",)),
)
SECOND_TRAINER = Fault(
    kind="second trainer",
    place="while the first one trains",
    expected=Expected(exit_codes=(1,), words=("Another training job uses", "process")),
)
NO_CHECKPOINTS = Fault(
    kind="checkpoints removed",
    place="after the end",
    expected=Expected(exit_codes=(1, 2), words=("checkpoint",), ending="refuses"),
)


def one_after_the_other(*stages, ending="identical", begins=None):
    """Several faults of one run, which is started again after each of them.

    Args:
      *stages: The faults, in order. The last start is as that of the last one.
      ending: What must come of them.
      begins: A run of the lab that they begin with, if any.
    """
    return Fault(
        kind="one after the other",
        place="; ".join(f"{x.kind}: {x.place}" for x in stages),
        setup=stages[-1].details.get("after", stages[-1].setup),
        details={"stages": stages, "begins": begins},
        expected=Expected(ending=ending),
    )


#
# By chance
#


CHECKPOINT_FILES = (
    "_CHECKPOINT_METADATA",
    "default/_METADATA",
    "default/array_metadatas/process_0",
    "default/manifest.ocdbt",
    "default/ocdbt.process_0/manifest.ocdbt",
    "default/d/*",
    "default/ocdbt.process_0/d/*",
    "ds_iter",
    "ds_iter/*",
    "timer/*",
    "",
)
SIDE_FILES = (
    "config.json",
    "run_info.json",
    "element_spec.json",
    "train.lock",
    "train/scalars.jsonl",
    "eval/scalars.jsonl",
    "train/events*",
)
DAMAGES = ("truncate", "empty", "remove", "flip", "directory", "link")
LATEST = "checkpoints/ckpt_15"  # of `Lab.killed`
OLDER = "checkpoints/ckpt_10"  # is removed before the end
INTERRUPTED = "checkpoints/ckpt_16"  # of `Lab.stopped_in_evaluation`
_STOPS = tuple(STOPPED)


def draw(rng: random.Random) -> Fault:
    """Return a fault, by chance."""
    return rng.choice(_DRAWS)(rng)


def _draw_instant(rng):
    instant = rng.choice(tuple(experiments.INSTANTS))
    most = {"start": 1, "started": 1, "cleaning": 1, "end": 1, "ended": 1}
    return instant, rng.randint(1, most.get(instant, MOST_COUNTS.get(instant, 4)))


# How often a run reaches an instant.
MOST_COUNTS = {
    "step": 24,
    "in a step": 24,
    "metadata": 20,
    "renamed": 20,
    "evaluation": 16,
    "evaluated": 4,
    "logging": 9,
    "saving": 6,
    "saved": 6,
    "noting": 6,
    "removing": 3,
}


def is_late(instant, count):
    """Whether a run may have nothing left to do when it gets there."""
    return instant in ("end", "ended") or count > 0.8 * MOST_COUNTS.get(instant, 4)


def _draw_setup(rng):
    return rng.choice([name for name, x in experiments.SETUPS.items() if x.is_drawn])


def _draw_kill(rng):
    return kill(*_draw_instant(rng), _draw_setup(rng))


def _draw_kill_at(rng):
    moments = [rng.random() for _ in range(rng.randint(1, 3))]
    return kill_at(moments, _draw_setup(rng))


def _draw_stop(rng):
    return stop(rng.choice(_STOPS), *_draw_instant(rng), _draw_setup(rng))


def _draw_checkpoint_damage(rng):
    if rng.random() < 0.1:
        how = rng.choice(DAMAGES[:-1])
        path = f"{INTERRUPTED}/_CHECKPOINT_METADATA"
        return damage(path, how, stopped_in_evaluation=True)
    path = f"{LATEST}/{rng.choice(CHECKPOINT_FILES)}".rstrip("/")
    path = rng.choice((path, path, path, OLDER))
    setup = rng.choice(("plain", "large file", "data in memory"))
    return damage(path, rng.choice(DAMAGES), setup)


def _draw_side_damage(rng):
    return damage(rng.choice(SIDE_FILES), rng.choice(DAMAGES))


def _draw_world(rng):
    return change_world(
        *rng.choice(experiments.SAME_VALUES), "step", rng.randint(1, 23)
    )


def _draw_rare(rng):
    return rng.choice(
        [
            lambda: full_disk(rng.randint(1, 5)),
            lambda: full_disk(1, on_save_error="warn"),
            lambda: READ_ONLY,
            lambda: SECOND_TRAINER,
            lambda: NO_CHECKPOINTS,
        ]
    )()


_DRAWS = (
    _draw_kill,
    _draw_kill,
    _draw_kill_at,
    _draw_kill_at,
    _draw_stop,
    _draw_stop,
    _draw_checkpoint_damage,
    _draw_checkpoint_damage,
    _draw_side_damage,
    _draw_world,
    lambda rng: kill_evaluator(rng.randint(1, 19)),
    _draw_rare,
)

#
# The short set
#


FIXED = [
    one_after_the_other(
        kill("start", 1),
        kill("metadata", 2),
        stop(signal.SIGINT, "step", 9),
        kill("step", 4),
        stop(signal.SIGTERM, "evaluation", 2),
        damage(f"{INTERRUPTED}/_CHECKPOINT_METADATA", "truncate"),
        kill("evaluation", 2),
        stop(signal.SIGUSR1, "step", 1),
        kill("saving", 1),
        kill("removing", 1),
        kill("end", 1),
    ),
    one_after_the_other(
        stop(signal.SIGTERM, "evaluation", 6, "much at once"),
        kill("before saving", 3, "much at once"),
        damage(f"{LATEST}/default/ocdbt.process_0/d/*", "flip", "much at once"),
        kill("step", 3, "much at once"),
    ),
    one_after_the_other(
        damage(f"{LATEST}/default/d/*", "flip"),
        damage(f"{OLDER}/ds_iter", "remove"),
        damage("config.json", "flip"),
        damage("run_info.json", "truncate"),
        begins="killed",
    ),
    one_after_the_other(
        damage(OLDER, "link"),
        damage("train/scalars.jsonl", "flip"),
        SECOND_TRAINER,
        ending="same state",
        begins="killed",
    ),
    one_after_the_other(
        change_world(
            "two workers, groups of steps", "records, eight devices", "step", 4
        ),
        change_world("records, eight devices", "records", "step", 7),
        change_world("records", "records, two processes", "step", 6),
        change_world("records, two processes", "records", "step", 6),
        ending="close",
    ),
    one_after_the_other(full_disk(3), READ_ONLY, full_disk(1, on_save_error="warn")),
    NO_CHECKPOINTS,
]
