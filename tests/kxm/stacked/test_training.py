"""Many trainings in one program: each leaves the workdir that it would leave alone."""

import json
import os
import pathlib
import shutil
import signal
import threading
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, konfig
from kauldron.ckpts import items
from kauldron.train.stacked import loop, plan
from tests import compilation, processes
from tests.kxm.stacked import config as stacked_config
from tests.kxm.waiting import poll


def set_at(cfg, path, value):
    *parents, last = path.split(".")
    for parent in parents:
        cfg = cfg[parent]
    cfg[last] = value


STEP_FIELDS = (
    *("model", "optimizer", "schedules", "trainstep", "rng_streams", "sharding"),
    *("train_losses", "train_metrics", "train_summaries", "init_transform"),
)
_steps = {}


def make(workdir, changes):
    """Return a trainer; those with equal steps share them, and so their programs."""
    cfg = stacked_config.get_config()
    cfg.workdir = str(workdir)
    for path, value in changes.items():
        set_at(cfg, path, value)
    trainer = konfig.resolve(cfg)
    names = ("seed", "aux", "model", "num_train_steps")
    key = json.dumps({name: cfg[name] for name in names}, default=repr)
    step = {name: getattr(trainer, name) for name in STEP_FIELDS}
    return trainer.replace(**_steps.setdefault(key, step))


# Fewer programs: each step is logged, and nothing evaluated.
LOGGED = {"evals": {}, "log_metrics_every": 1}
UNWATCHED = {"checkpointer": None, **LOGGED}


def casts():
    """Return transforms that the host or the device can do."""
    cast = stacked_config.kd.data.Cast
    return [cast(key="x", dtype=dtype) for dtype in ("float16", "float32")]


def sweep_changes():
    """Return what sets three trainings apart: two read the same data, one ends sooner."""
    common = {
        "log_metrics_every": 1,
        "num_train_steps": 10,
        "train_ds.device_transforms": False,
        "checkpointer.save_interval_steps": 5,
    }
    own = [
        {"seed": 0},
        {"seed": 1, "aux.lr": 3e-2, "aux.rate": 0.5},
        {"seed": 0, "aux.lr": 2e-2, "aux.weight": 0.5, "num_train_steps": 9},
    ]
    return [{"train_ds.transforms": casts(), **common, **c} for c in own]


def make_sweep(folder):
    """Return the trainers of the sweep, with folders of their numbers."""
    return [make(folder / str(n), c) for n, c in enumerate(sweep_changes())]


def scalars(workdir, collection):
    lines = (workdir / collection / "scalars.jsonl").read_text().splitlines()
    keep = ("losses/", "metrics/", "schedules/")
    return [
        (
            line["step"],
            {k: v for k, v in line["values"].items() if k.startswith(keep)},
        )
        for line in map(json.loads, lines)
    ]


def assert_close_logs(one, two):
    assert [step for step, _ in one] == [step for step, _ in two]
    for (_, left), (_, right) in zip(one, two):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_allclose(left[name], right[name], rtol=2e-4, atol=1e-6)


def leaves(workdir):
    """Return the arrays of the newest checkpoint, as they are stored."""
    checkpointer = kd.ckpts.Checkpointer(workdir=str(workdir), save_interval_steps=1)
    return jax.tree.leaves(checkpointer.restore(items.StandardCheckpointItem()))


def assert_close_states(one, two):
    for left, right in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


def assert_same_states(one, two):
    for left, right in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_array_equal(left, right)


class Trained(NamedTuple):
    """Folders of the sweep trained alone and together, and what the stack made."""

    alone: pathlib.Path
    together: pathlib.Path
    traced: list[loop.steps.TracedStep]
    sources: list[Any]
    eval_jits: list[Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    alone, together = (tmp_path_factory.mktemp(n) for n in ("alone", "together"))
    for trainer in make_sweep(alone):
        trainer.train()
    sources, eval_jits = [], []
    joined = loop.batches.JoinedIterator

    class SharedJit(loop.programs.SharedJit):
        def __init__(self):
            super().__init__()
            eval_jits.append(self)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(
            loop.batches,
            "JoinedIterator",
            lambda found, **kw: sources.extend(found) or joined(found, **kw),
        )
        monkeypatch.setattr(loop.programs, "SharedJit", SharedJit)
        trainers = make_sweep(together)
        traced = [loop.steps.TracedStep.of(trainer) for trainer in trainers]
        endings = loop.train(trainers, traced)
    assert [ending.kind for ending in endings] == ["complete"] * 3
    return Trained(alone, together, traced, sources, eval_jits)


@pytest.fixture
def both(trained):
    """Folders of the same trainings: alone, and together."""
    return trained.alone, trained.together


@pytest.mark.parametrize("number", range(3))
def test_results_agree_with_those_of_separate_runs(both, number):
    one, two = (kd.from_workdir.get_state(folder / str(number)) for folder in both)
    assert int(one.step) == int(two.step)
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    for left, right in pairs:
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("collection", ["train", "test"])
def test_logs_have_the_same_steps_and_values(both, number, collection):
    one, two = (scalars(folder / str(number), collection) for folder in both)
    assert one
    assert_close_logs(one, two)


@pytest.mark.parametrize("number", range(3))
def test_the_workdir_holds_what_that_of_any_run_holds(both, number):
    one, two = (folder / str(number) for folder in both)
    assert sorted(p.name for p in one.iterdir()) == sorted(
        p.name for p in two.iterdir()
    )
    folders = [sorted(os.listdir(f / "checkpoints")) for f in (one, two)]
    assert folders[0] == folders[1]
    markers = [json.loads((f / "train_complete.txt").read_text()) for f in (one, two)]
    assert markers[0] == markers[1]
    configs = [json.loads((f / "config.json").read_text()) for f in (one, two)]
    assert configs[0] | {"workdir": None} == configs[1] | {"workdir": None}


def test_results_agree_when_compiled_as_for_users(tmp_path, trained):
    changes = sweep_changes()[:2]
    for number in range(2):
        folder = tmp_path / str(number)
        shutil.copytree(trained.alone / str(number), folder)
        shutil.rmtree(folder / "checkpoints" / "ckpt_10")
    with compilation.as_for_users():
        trainers = [
            make(tmp_path / str(n), {**own, "evals": {}})
            for n, own in enumerate(changes)
        ]
        endings = loop.train(trainers, trained.traced[:2])
    assert [ending.kind for ending in endings] == ["complete"] * 2
    for number in range(2):
        folders = [f / str(number) for f in (trained.alone, tmp_path)]
        assert_close_states(*folders)
        assert_close_logs(*(scalars(folder, "train") for folder in folders))


def test_a_finished_stack_has_nothing_left_to_do(trained):
    before = scalars(trained.together / "0", "train")
    endings = loop.train(make_sweep(trained.together), trained.traced)
    assert [ending.kind for ending in endings] == ["complete"] * 3
    assert scalars(trained.together / "0", "train") == before


def test_trainings_on_the_same_data_read_it_once(trained):
    assert len(trained.sources) == 2


def test_evaluations_that_are_the_same_program_are_compiled_once(trained):
    [shared] = trained.eval_jits
    assert len(shared.compiled) == 2  # one for each weight of the loss
    values = [scalars(trained.together / str(n), "test") for n in range(3)]
    steps = [[step for step, _ in found] for found in values]
    assert steps == [[0, 6, 10], [0, 6, 10], [0, 6, 9]]
    assert values[0] != values[1]  # each has evaluated its own parameters


def with_convolution():
    """Return the layers of a model whose stack runs lane by lane on a CPU."""
    kd, nn = stacked_config.kd, stacked_config.nn
    return [
        kd.nn.Rearrange("b x -> b x 1"),
        nn.Conv(features=3, kernel_size=(3,)),
        kd.nn.Rearrange("b x c -> b (x c)"),
        kd.nn.Dropout(rate=0.2),
        nn.Dense(features=2),
    ]


def convolution_changes():
    """Return what sets two trainings of such a model apart."""
    return [
        {
            "seed": number,
            "aux.lr": 0.01 * (number + 1),
            "num_train_steps": 10 - number,
            "model.layers": with_convolution(),
            "train_ds.transforms": casts(),
            "train_ds.device_transforms": False,
            **UNWATCHED,
        }
        for number in range(2)
    ]


@pytest.fixture(scope="module")
def convolutions_alone(tmp_path_factory):
    """Folders of these trainings, trained alone."""
    folders = [tmp_path_factory.mktemp("alone") for _ in range(2)]
    for folder, changes in zip(folders, convolution_changes()):
        make(folder, changes).train()
    return folders


def assert_agrees_on_the_device(tmp_path, caplog, folders_alone, changes, field):
    more = {f"train_ds.{field}": True, **UNWATCHED}
    more |= {"steps_per_dispatch": 3, "log_metrics_every": 4}
    trainers = [
        make(tmp_path / str(n), {**own, **more}) for n, own in enumerate(changes)
    ]
    with caplog.at_level("INFO", logger="kauldron"):
        loop.train(trainers)
    is_transformed = "inside the train step: transforms[1] Cast" in caplog.text
    assert is_transformed == (field == "device_transforms")
    logged_steps = []
    for number, folder in enumerate(folders_alone):
        folders = (folder, tmp_path / str(number))
        one, two = ([s for s in scalars(f, "train") if s[1]] for f in folders)
        logged_steps.append([step for step, _ in two])
        assert_close_logs([one[step] for step, _ in two], two)
    assert logged_steps == [[0, 4, 8, 9], [0, 4, 8]]


@pytest.mark.parametrize("field", ["device_transforms", "device_resident"])
def test_what_runs_on_the_device_agrees(tmp_path, caplog, trained, field):
    first, _, last = sweep_changes()
    folders = [trained.alone / "0", trained.alone / "2"]
    assert_agrees_on_the_device(tmp_path, caplog, folders, [first, last], field)


def test_what_runs_on_the_device_lane_by_lane_agrees(
    tmp_path, caplog, convolutions_alone
):
    assert_agrees_on_the_device(
        tmp_path,
        caplog,
        convolutions_alone,
        convolution_changes(),
        "device_transforms",
    )


def test_programs_with_convolutions_run_lane_by_lane_on_a_cpu(tmp_path):
    for layers, width in [(with_convolution(), 1), ([], 3)]:
        more = {"model.layers": layers} if layers else {}
        traced = [loop.steps.TracedStep.of(make(tmp_path, more))] * 3
        assert loop.steps.lanes_per_run(traced) == width


@pytest.fixture
def threads(monkeypatch):
    """Have steps called from new threads, as if there were so many cores."""

    def use(count):
        monkeypatch.setattr(loop.steps, "num_usable_cores", lambda: count)
        loop.steps._threads.cache_clear()

    yield use
    loop.steps._threads.cache_clear()


def test_steps_from_several_threads_give_the_same_bits(tmp_path, threads):
    class StopsAll(loop.Observer):
        asked = 0

        def is_stopped(self, number):
            self.asked += 1
            return self.asked > 3 * len(changes)

    def train(count, observer=None):
        threads(count)
        trainers = [make(tmp_path / f"{count}-{n}", c) for n, c in enumerate(changes)]
        return {ending.kind for ending in loop.train(trainers, traced, observer)}

    more = {"model.layers": with_convolution(), "num_train_steps": 6, **LOGGED}
    more |= {"checkpointer.save_interval_steps": 100}  # at the end, and when stopped
    changes = [{"seed": n, **more} for n in range(3)]
    changes[2] |= {"num_train_steps": 4}  # then, other threads take the others
    traced = [loop.steps.TracedStep.of(make(tmp_path, own)) for own in changes]
    assert train(1) == {"complete"}
    assert train(2, StopsAll()) == {"stopped"}
    assert train(2) == {"complete"}
    running = {thread.name.removesuffix("_0") for thread in threading.enumerate()}
    assert {"stacked-steps-0", "stacked-steps-1"} <= running
    for number in range(3):
        one, two = (tmp_path / f"{count}-{number}" for count in (1, 2))
        assert_same_states(one, two)
        assert scalars(one, "train") == scalars(two, "train")


def test_threads_share_a_program_made_under_the_settings_of_the_caller(
    tmp_path, threads, monkeypatch
):
    threads(2)
    used = []
    update = loop.steps.StackedStep._update

    def note(self, *args):
        used.append(jax.config.jax_default_matmul_precision)
        return update(self, *args)

    monkeypatch.setattr(loop.steps.StackedStep, "_update", note)
    changes = {"model.layers": with_convolution(), "num_train_steps": 2, **UNWATCHED}
    with jax.default_matmul_precision("highest"):
        loop.train([make(tmp_path / str(n), {"seed": n, **changes}) for n in range(2)])
    assert used == ["highest"]


def test_what_cannot_be_stacked_is_planned_to_be_trained_alone(tmp_path):
    trainers = [make(tmp_path / str(n), {"seed": n}) for n in range(4)]
    checks = checkify.nan_checks
    trainers[1] = trainers[1].replace(checkify_error_categories=checks)
    stacks = plan.make_stacks(trainers, max_units=2)
    assert [list(stack.numbers) for stack in stacks] == [[0, 2], [1], [3]]
    assert stacks[1].obstacle == "checkify looks at every step"
    again = plan.make_stacks(trainers, max_units=2, together=[0, None, 0, 0])
    assert [list(stack.numbers) for stack in again] == [[0, 2, 3], [1]]


def test_other_programs_are_refused(tmp_path):
    trainers = [make(tmp_path / str(w), {"aux.width": w}) for w in (4, 8)]
    with pytest.raises(ValueError, match="cannot be stacked"):
        loop.train(trainers)


#
# Losses that are not finite
#


def test_a_loss_that_is_not_finite_ends_one_training_alone(tmp_path, trained):
    changes = [
        {},
        {"aux.weight": float("inf")},
        {"aux.weight": float("inf"), "on_nonfinite": "raise"},
        {"aux.weight": float("inf"), "on_nonfinite": "ignore"},
    ]

    def train():
        trainers = [
            make(tmp_path / str(n), sweep_changes()[2] | {"evals": {}, **own})
            for n, own in enumerate(changes)
        ]
        traced.extend(map(loop.steps.TracedStep.of, trainers[len(traced) :]))
        return loop.train(trainers, traced)

    traced = []
    endings = train()
    assert [e.kind for e in endings] == ["complete", "frozen", "failed", "complete"]
    assert endings[1].step == 0
    assert "not finite at step 0" in str(endings[2].error)
    assert json.loads((tmp_path / "1" / "nonfinite.json").read_text()) == {"step": 0}
    assert (tmp_path / "1" / "train_complete.txt").exists()
    assert not (tmp_path / "2" / "train_complete.txt").exists()

    assert_close_states(trained.alone / "2", tmp_path / "0")

    assert [e.kind for e in train()] == ["complete", "frozen", "failed", "complete"]


def test_an_evaluation_that_fails_ends_one_training_alone(tmp_path, monkeypatch):
    changes = {"num_train_steps": 2, "log_metrics_every": 1, "checkpointer": None}
    trainers = [make(tmp_path / str(n), {"seed": n, **changes}) for n in range(2)]
    evaluator = trainers[0].evals["test"]

    def fail(**kwargs):
        raise RuntimeError("no such data")

    monkeypatch.setitem(vars(evaluator), "maybe_eval", fail)
    endings = loop.train(trainers)
    assert [e.kind for e in endings] == ["failed", "complete"]
    assert "no such data" in str(endings[0].error)


def test_a_training_that_cannot_start_is_named_in_the_log(tmp_path, caplog):
    (tmp_path / "0").write_text("in the way")
    changes = {"num_train_steps": 2, **UNWATCHED}
    trainers = [make(tmp_path / str(n), {"seed": n, **changes}) for n in range(2)]
    with caplog.at_level("WARNING", logger="kauldron"):
        endings = loop.train(trainers)
    assert [e.kind for e in endings] == ["failed", "complete"]
    assert f"{type(endings[0].error).__name__}: " in caplog.text


def test_one_training_can_be_stopped(tmp_path):
    class StopsSecond(loop.Observer):
        ended = None

        def is_stopped(self, number):
            return number == 1

        def on_end(self, number, ending):
            self.ended = {**(self.ended or {}), number: ending.kind}

    changes = {"num_train_steps": 2, **LOGGED}
    trainers = [make(tmp_path / str(n), {"seed": n, **changes}) for n in range(2)]
    observer = StopsSecond()
    loop.train(trainers, observer=observer)
    assert observer.ended == {0: "complete", 1: "stopped"}


#
# Kill and resume
#


class SignalsItself(loop.Observer):
    """Sends a signal to its own process after some steps, when a checkpoint is there."""

    def __init__(self, folder, signum, steps, saved):
        names = [f"{number}/checkpoints/ckpt_{saved}" for number in range(3)]
        self.checkpoints = [folder / name for name in names]
        self.signum = signum
        self.steps = steps
        self.asked = 0

    def is_stopped(self, number):
        self.asked += 1
        if self.asked == 3 * self.steps:
            poll(lambda: all(path.exists() for path in self.checkpoints))
            os.kill(os.getpid(), self.signum)
        return False


def train_until(folder, *when):
    loop.train(make_sweep(folder), observer=SignalsItself(folder, *when))


@pytest.mark.slow
def test_a_stack_that_was_killed_and_then_stopped_continues_bit_for_bit(
    tmp_path, trained
):
    quickly = compilation.quick_environment()

    def train(*when):
        process = processes.Process(train_until, tmp_path, *when, environment=quickly)
        code, output = process.wait()
        for number in range(3):
            assert not (tmp_path / str(number) / "train_complete.txt").exists()
            checkpoints = os.listdir(tmp_path / str(number) / "checkpoints")
            newest[number] = max(
                int(name.removeprefix("ckpt_")) for name in checkpoints
            )
        return code, output

    newest = {}
    code, output = train(signal.SIGKILL, 7, 5)
    assert code == -signal.SIGKILL, output
    assert set(newest.values()) == {5}
    code, output = train(signal.SIGTERM, 2, 5)
    assert code == 143, output
    assert set(newest.values()) < {6, 7, 8}  # saved when it was told to stop
    loop.train(make_sweep(tmp_path), trained.traced)
    for number in range(3):
        whole, parts = (folder / str(number) for folder in (trained.together, tmp_path))
        assert_same_states(whole, parts)
        assert scalars(whole, "train") == scalars(parts, "train")
        assert scalars(whole, "test") == scalars(parts, "test")


def test_trainings_at_different_steps_catch_up(tmp_path, trained):
    parts = tmp_path / "parts"
    shutil.copytree(trained.together, parts)
    for number, steps in enumerate([(10,), (5, 10), ()]):
        for step in steps:  # as if the process had been killed between two saves
            shutil.rmtree(parts / str(number) / "checkpoints" / f"ckpt_{step}")
    endings = loop.train(make_sweep(parts), trained.traced)
    assert [ending.kind for ending in endings] == ["complete"] * 3
    for number in range(2):
        one, two = (leaves(f / str(number)) for f in (trained.together, parts))
        for left, right in zip(one, two, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)
