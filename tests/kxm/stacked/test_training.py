"""Many trainings in one program: each leaves the workdir that it would leave alone."""

import json
import os
import shutil
import signal
import threading

import jax
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, konfig
from kauldron.train.stacked import loop, plan
from tests import compilation, processes
from tests.kxm.stacked import config as stacked_config
from tests.kxm.waiting import poll


def set_at(cfg, path, value):
    *parents, last = path.split(".")
    for parent in parents:
        cfg = cfg[parent]
    cfg[last] = value


def make(workdir, changes):
    cfg = stacked_config.get_config()
    cfg.workdir = str(workdir)
    for path, value in changes.items():
        set_at(cfg, path, value)
    return konfig.resolve(cfg)


# Fewer programs: each step is logged, and nothing evaluated.
LOGGED = {"evals": {}, "log_metrics_every": 1}
UNWATCHED = {"checkpointer": None, **LOGGED}
SWEEP = [
    {"log_metrics_every": 1, **changes}
    for changes in (
        {"seed": 0},
        {"seed": 1, "aux.lr": 3e-2, "aux.rate": 0.5},
        {"seed": 0, "aux.weight": 0.5, "num_train_steps": 8},
    )
]


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


def final_state(workdir):
    return kd.from_workdir.get_state(workdir)


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Folders of the same trainings: alone, and together as users compile them."""
    alone, together = (tmp_path_factory.mktemp(n) for n in ("alone", "together"))
    for number, changes in enumerate(SWEEP):
        make(alone / str(number), changes).train()
    with compilation.as_for_users():
        trainers = [make(together / str(n), c) for n, c in enumerate(SWEEP)]
        endings = loop.train(trainers)
    assert [ending.kind for ending in endings] == ["complete"] * 3
    return alone, together


@pytest.mark.parametrize("number", range(3))
def test_results_agree_with_those_of_separate_runs(both, number):
    one, two = (final_state(folder / str(number)) for folder in both)
    assert int(one.step) == int(two.step)
    for left, right in zip(leaves(one), leaves(two), strict=True):
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


def test_a_finished_stack_has_nothing_left_to_do(both):
    _, together = both
    trainers = [make(together / str(n), c) for n, c in enumerate(SWEEP)]
    before = scalars(together / "0", "train")
    assert [e.kind for e in loop.train(trainers)] == ["complete"] * 3
    assert scalars(together / "0", "train") == before


def test_trainings_on_the_same_data_read_it_once(tmp_path, monkeypatch):
    sources = []
    joined = loop.batches.JoinedIterator
    monkeypatch.setattr(
        loop.batches,
        "JoinedIterator",
        lambda found, **kw: sources.extend(found) or joined(found, **kw),
    )
    changes = [{"seed": 0}, {"seed": 0, "aux.lr": 0.1}, {"seed": 5}]
    changes = [{"num_train_steps": 1, **UNWATCHED, **c} for c in changes]
    loop.train([make(tmp_path / str(n), c) for n, c in enumerate(changes)])
    assert len(sources) == 2


def test_evaluations_that_are_the_same_program_are_compiled_once(tmp_path, monkeypatch):
    made = []

    class SharedJit(loop.programs.SharedJit):
        def __init__(self):
            super().__init__()
            made.append(self)

    monkeypatch.setattr(loop.programs, "SharedJit", SharedJit)
    changes = [{"seed": 0}, {"seed": 1}, {"seed": 2, "aux.weight": 0.5}]
    changes = [{"num_train_steps": 1, "checkpointer": None, **c} for c in changes]
    loop.train([make(tmp_path / str(n), c) for n, c in enumerate(changes)])
    [shared] = made
    assert len(shared.compiled) == 2  # one for each weight of the loss
    values = [scalars(tmp_path / str(n), "test") for n in range(3)]
    assert all([step for step, _ in found] == [0, 1] for found in values)
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


def transformed(number, seeds, **more):
    to_half, to_single = (
        stacked_config.kd.data.Cast(key="x", dtype=dtype)
        for dtype in ("float16", "float32")
    )
    changes = {
        "seed": seeds[number],
        "aux.lr": 0.01 * (number + 1),
        "num_train_steps": 9 - number,
        "train_ds.transforms": [to_half, to_single],
        **UNWATCHED,
        **more,
    }
    if seeds == SEEDS_WITH_CONVOLUTION:
        changes["model.layers"] = with_convolution()
    return changes


SEEDS_WITH_CONVOLUTION = (0, 1)


@pytest.fixture(scope="module")
def alone(request, tmp_path_factory):
    """The seeds of two trainings, and their folders when trained alone."""
    folders = [tmp_path_factory.mktemp("alone") for _ in range(2)]
    for number, folder in enumerate(folders):
        more = {"train_ds.device_transforms": False}
        make(folder, transformed(number, request.param, **more)).train()
    return request.param, folders


@pytest.mark.parametrize(
    ("alone", "field"),
    [
        (SEEDS_WITH_CONVOLUTION, "device_transforms"),
        ((0, 0), "device_transforms"),
        ((0, 0), "device_resident"),
    ],
    indirect=["alone"],
)
def test_what_runs_on_the_device_agrees(tmp_path, caplog, alone, field):
    seeds, folders_alone = alone
    more = {f"train_ds.{field}": True}
    more |= {"steps_per_dispatch": 3, "log_metrics_every": 4}
    trainers = [
        make(tmp_path / str(n), transformed(n, seeds, **more)) for n in range(2)
    ]
    with caplog.at_level("INFO", logger="kauldron"):
        loop.train(trainers)
    is_transformed = "inside the train step: transforms[1] Cast" in caplog.text
    assert is_transformed == (field == "device_transforms")
    for number, folder in enumerate(folders_alone):
        folders = (folder, tmp_path / str(number))
        one, two = ([s for s in scalars(f, "train") if s[1]] for f in folders)
        assert [step for step, _ in two] == [0, 4, 8 - number]
        assert_close_logs([one[step] for step, _ in two], two)


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
        return {ending.kind for ending in loop.train(trainers, observer=observer)}

    more = {"model.layers": with_convolution(), **LOGGED}
    changes = [{"seed": n, **more} for n in range(3)]
    changes[2] |= {"num_train_steps": 6}  # then, other threads take the others
    assert train(1) == {"complete"}
    assert train(2, StopsAll()) == {"stopped"}
    assert train(2) == {"complete"}
    running = {thread.name.removesuffix("_0") for thread in threading.enumerate()}
    assert {"stacked-steps-0", "stacked-steps-1"} <= running
    for number in range(3):
        one, two = (tmp_path / f"{count}-{number}" for count in (1, 2))
        for left, right in zip(
            leaves(final_state(one)), leaves(final_state(two)), strict=True
        ):
            np.testing.assert_array_equal(left, right)
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
        loop.train([make(tmp_path / str(n), {"seed": n, **changes}) for n in range(3)])
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


def test_a_loss_that_is_not_finite_ends_one_training_alone(tmp_path):
    changes = [
        {"seed": 0},
        {"seed": 0, "aux.weight": float("inf")},
        {"seed": 0, "aux.weight": float("inf"), "on_nonfinite": "raise"},
        {"seed": 0, "aux.weight": float("inf"), "on_nonfinite": "ignore"},
    ]
    changes = [{"num_train_steps": 8, "evals": {}, **c} for c in changes]
    trainers = [make(tmp_path / str(n), c) for n, c in enumerate(changes)]
    endings = loop.train(trainers)
    assert [e.kind for e in endings] == ["complete", "frozen", "failed", "complete"]
    assert endings[1].step == 0
    assert "not finite at step 0" in str(endings[2].error)
    assert json.loads((tmp_path / "1" / "nonfinite.json").read_text()) == {"step": 0}
    assert (tmp_path / "1" / "train_complete.txt").exists()
    assert not (tmp_path / "2" / "train_complete.txt").exists()

    make(tmp_path / "alone", changes[0]).train()
    one, two = final_state(tmp_path / "alone"), final_state(tmp_path / "0")
    for left, right in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)

    again = loop.train([make(tmp_path / str(n), c) for n, c in enumerate(changes)])
    assert [e.kind for e in again] == ["complete", "frozen", "failed", "complete"]


def test_an_evaluation_that_fails_ends_one_training_alone(tmp_path, monkeypatch):
    trainers = [make(tmp_path / str(n), {"seed": n}) for n in range(2)]
    evaluator = trainers[0].evals["test"]

    def fail(**kwargs):
        raise RuntimeError("no such data")

    monkeypatch.setitem(vars(evaluator), "maybe_eval", fail)
    endings = loop.train(trainers)
    assert [e.kind for e in endings] == ["failed", "complete"]
    assert "no such data" in str(endings[0].error)


def test_one_training_can_be_stopped(tmp_path):
    class StopsSecond(loop.Observer):
        ended = None

        def is_stopped(self, number):
            return number == 1

        def on_end(self, number, ending):
            self.ended = {**(self.ended or {}), number: ending.kind}

    changes = {"num_train_steps": 4, **LOGGED}
    trainers = [make(tmp_path / str(n), {"seed": n, **changes}) for n in range(2)]
    observer = StopsSecond()
    loop.train(trainers, observer=observer)
    assert observer.ended == {0: "complete", 1: "stopped"}


#
# Kill and resume
#

PROGRAM = """
import sys
from tests.kxm.stacked.test_training import LONG, make
from kauldron.train.stacked import loop, plan
import pathlib
folder = pathlib.Path(sys.argv[1])
loop.train([make(folder / str(n), c) for n, c in enumerate(LONG)])
"""
LONG = [
    {
        "seed": n,
        "aux.lr": 0.01 * (n + 1),
        "num_train_steps": 90 - 30 * (n == 1),
        "log_metrics_every": 1,
        "checkpointer.save_interval_steps": 20,
        "evals.test.run.0": 30,
    }
    for n in range(2)
]


def start(folder):
    quickly = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    return processes.python("-c", PROGRAM, folder, environment=quickly)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert start(folder).wait()[0] == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_stack_that_was_stopped_continues_bit_for_bit(tmp_path, undisturbed, signum):
    process = start(tmp_path)
    checkpoints = tmp_path / "1" / "checkpoints"
    poll(lambda: (checkpoints / "ckpt_20").exists(), seconds=200)
    process.send_signal(signum)
    code, output = process.wait()
    assert code == (143 if signum == signal.SIGTERM else -signum), output
    assert not (tmp_path / "0" / "train_complete.txt").exists()
    assert start(tmp_path).wait()[0] == 0
    for number in range(2):
        whole, parts = (folder / str(number) for folder in (undisturbed, tmp_path))
        for left, right in zip(
            leaves(final_state(whole)), leaves(final_state(parts)), strict=True
        ):
            np.testing.assert_array_equal(left, right)
        assert scalars(whole, "train") == scalars(parts, "train")
        assert scalars(whole, "test") == scalars(parts, "test")


def test_trainings_at_different_steps_catch_up(tmp_path):
    changes = [{"seed": n, **LOGGED} for n in range(2)]
    whole = tmp_path / "whole"
    loop.train([make(whole / str(n), c) for n, c in enumerate(changes)])
    shutil.copytree(whole, tmp_path / "parts")
    newest = tmp_path / "parts" / "1" / "checkpoints"
    for step in (8, 12):  # as if the process had been killed between two saves
        shutil.rmtree(newest / f"ckpt_{step}")
    endings = loop.train(
        [make(tmp_path / "parts" / str(n), c) for n, c in enumerate(changes)]
    )
    assert [e.kind for e in endings] == ["complete", "complete"]
    for number in range(2):
        one, two = (final_state(tmp_path / n / str(number)) for n in ("whole", "parts"))
        for left, right in zip(leaves(one), leaves(two), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)
