"""Hooks: what they see, how they end a run, and what survives a kill."""

import functools
import json
import math
import signal

import jax
import numpy as np
import pytest

from kauldron import kd, konfig, writers
from kauldron.cli import job
from kauldron.train import problems
from tests import compilation
from tests.faults import experiments
from tests.processes import Group, Process, free_port
from tests.train import toy
from tests.train.distributed import process_worker

with konfig.imports():
    from kauldron import kd as kd_cfg
    from tests.train.run import test_hooks as this_module


def _evaluator(every=2, **changes):
    ds = toy.make_ds(num_epochs=1, shuffle=False)
    return kd.evals.Evaluator(run=kd.evals.EveryNSteps(every), ds=ds, **changes)


def _trainer(workdir, hooks, **changes):
    return toy.make_trainer(
        workdir, **({"hooks": hooks, "evals": {"test": _evaluator()}} | changes)
    )


class Notes(kd.train.Hook):
    """Notes every event in its memory."""

    steps: tuple[int, ...] = ()

    def _note(self, event, name, *values):
        event.memory.setdefault("events", []).append([name, event.step, *values])

    def on_start(self, event):
        self._note(event, "start", event.is_resumed)

    def wants_values(self, step):
        return step in self.steps

    def on_step(self, event):
        self._note(event, "step", event.find("train.losses.total"))

    def on_evaluation(self, event):
        self._note(event, "evaluation", sorted(event.values))

    def on_checkpoint(self, event):
        self._note(event, "checkpoint")

    def on_end(self, event):
        self._note(event, "end")
        path = event.trainer.workdir / "events.json"
        path.write_text(json.dumps(event.memory["events"]))


class StopAt(Notes):
    """Stops after an update that it sees."""

    def on_step(self, event):
        super().on_step(event)
        event.stop("it is enough")


def _events(workdir):
    return [event[:2] for event in json.loads((workdir / "events.json").read_text())]


def _marker(workdir):
    return json.loads((workdir / "train_complete.txt").read_text())


def _values(workdir, collection="train"):
    return {
        (line["step"], key): value
        for line in writers.read_scalars(workdir / collection)
        for key, value in line["values"].items()
        if not key.startswith("perf_stats")
    }


#
# Events
#


@pytest.mark.parametrize("steps_per_dispatch", [1, 3])
def test_a_hook_sees_the_events_in_order(tmp_path, steps_per_dispatch):
    trainer = _trainer(
        tmp_path,
        {"notes": Notes(steps=(2, 5))},
        evals={"test": _evaluator(4)},
        num_train_steps=6,
        steps_per_dispatch=steps_per_dispatch,
    )
    trainer.train()
    assert _events(tmp_path) == [
        ["start", 0],
        ["evaluation", 0],
        ["checkpoint", 0],
        ["step", 3],
        ["evaluation", 4],
        ["checkpoint", 4],
        ["step", 6],
        ["evaluation", 6],
        ["checkpoint", 6],
        ["end", 6],
    ]


def test_a_step_gives_the_values_that_are_logged(tmp_path):
    trainer = _trainer(
        tmp_path,
        {"notes": Notes(steps=(3, 5))},
        log_metrics_every=1,
        steps_per_dispatch=1,
        checkpointer=None,
    )
    trainer.train()
    seen = json.loads((tmp_path / "events.json").read_text())
    seen = {step - 1: value for name, step, *value in seen if name == "step"}
    logged = _values(tmp_path)
    assert seen == {s: [logged[s, "losses/total"]] for s in (3, 5)}


def test_hooks_do_not_change_what_is_trained(tmp_path):
    model = toy.Linear(x="batch.x", rate=0.3)
    changes = {"model": model, "steps_per_dispatch": 3, "checkpointer": None}
    plain, _ = toy.make_trainer(tmp_path / "a", **changes).train()
    hooks = {"notes": Notes(steps=(0, 5))}
    evals = {"test": _evaluator(4)}
    state, _ = _trainer(tmp_path / "b", hooks, evals=evals, **changes).train()
    np.testing.assert_array_equal(
        plain.params["dense"]["kernel"], state.params["dense"]["kernel"]
    )


def test_an_error_of_a_hook_names_it_and_the_step(tmp_path):
    class Broken(kd.train.Hook):
        def on_evaluation(self, event):
            raise RuntimeError("no such thing")

    with pytest.raises(RuntimeError, match="Hook mine failed at step 0: no such thing"):
        _trainer(tmp_path, {"mine": Broken()}).train()


def test_memory_that_cannot_be_saved_is_an_error_at_once(tmp_path):
    class Remembers(kd.train.Hook):
        def on_start(self, event):
            event.memory["array"] = np.zeros(2)

    with pytest.raises(TypeError, match="is saved as JSON"):
        _trainer(tmp_path, {"mine": Remembers()}).train()


#
# Stopping
#


def _early(patience=1, **changes):
    options = {"metric": "test.losses.l2", "patience": patience, "min_delta": 100.0}
    return kd.train.EarlyStopping(**(options | changes))


def test_early_stopping_ends_as_the_last_step_does(tmp_path, caplog):
    caplog.set_level("INFO", logger="kauldron")
    evals = {
        "test": _evaluator(2),
        "rare": _evaluator(100),
        "final": kd.evals.Evaluator(
            run=kd.evals.Final(free_memory=False),
            ds=toy.make_ds(num_epochs=1, shuffle=False),
        ),
    }
    trainer = _trainer(tmp_path, {"early": _early()}, evals=evals, num_train_steps=50)
    state, _ = trainer.train()
    assert int(state.step) == 4  # best at 0; not better at 2 and 4
    assert trainer.checkpointer.all_steps == [0, 4]
    assert {step for step, _ in _values(tmp_path, "rare")} == {0, 4}
    assert {step for step, _ in _values(tmp_path, "final")} == {4}
    reason = _marker(tmp_path)["stopped_because"]
    assert reason.startswith(
        "test.losses.l2 did not improve by more than 100 in the 2 evaluations since step 0 ("
    )
    assert f"Training stops at step 4: {reason} (hook early)." in caplog.text


def test_a_stopped_run_that_is_started_again_is_complete(tmp_path):
    hooks = {"early": _early()}
    _trainer(tmp_path, hooks, num_train_steps=50).train()
    before = _values(tmp_path, "test")
    state, aux = _trainer(tmp_path, hooks, num_train_steps=50).train()
    assert (int(state.step), aux) == (4, None)
    assert _values(tmp_path, "test") == before
    assert "stopped_because" in _marker(tmp_path)


def test_a_stopped_run_goes_on_with_more_patience(tmp_path):
    _trainer(tmp_path, {"early": _early(1)}, num_train_steps=50).train()
    state, _ = _trainer(tmp_path, {"early": _early(3)}, num_train_steps=50).train()
    assert int(state.step) == 8


def test_a_stopped_run_goes_on_without_the_hook(tmp_path):
    _trainer(tmp_path, {"early": _early(1)}).train()
    state, _ = _trainer(tmp_path, {}).train()
    assert int(state.step) == 10
    assert "stopped_because" not in _marker(tmp_path)


def test_a_hook_can_stop_after_a_step_within_a_group(tmp_path):
    trainer = _trainer(tmp_path, {"stop": StopAt(steps=(4,))}, steps_per_dispatch=4)
    state, _ = trainer.train()
    assert int(state.step) == 5
    assert trainer.checkpointer.all_steps == [0, 4, 5]
    assert max(_values(tmp_path, "test"))[0] == 5
    assert _marker(tmp_path)["stopped_because"] == "it is enough"


def _decisions(values, **options):
    """What early stopping says after each value."""
    hook = kd.train.EarlyStopping(**({"metric": "test.a"} | options))
    memory, stops = {}, []
    for step, value in enumerate(values):
        reasons = []
        hook.on_evaluation(
            kd.train.Event(
                trainer=None,
                step=step,
                state=None,
                values={"test": {"a": value}},
                memory=memory,
                _stop=reasons.append,
            )
        )
        stops.append(bool(reasons))
    return stops


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        ([3, 2, 1, 0], {"patience": 0}, [False] * 4),
        ([1, 1], {"patience": 0}, [False, True]),
        ([1, 2, 0.5, 2, 2], {"patience": 1}, [False] * 4 + [True]),
        ([1, 2, 3], {"patience": 0, "mode": "max"}, [False] * 3),
        ([2, 1.5], {"patience": 0, "min_delta": 0.5}, [False, True]),
        ([2, 1.4], {"patience": 0, "min_delta": 0.5}, [False, False]),
        ([math.nan, 1, math.nan, math.nan], {"patience": 1}, [False] * 3 + [True]),
        ([math.nan, math.nan], {"patience": 1}, [False, True]),
        ([1, -math.inf, 0.5], {"patience": 1}, [False, False, False]),
    ],
)
def test_patience_counts_evaluations_without_improvement(values, options, expected):
    assert _decisions(values, **options) == expected


#
# Mistakes
#


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": -1}, "patience must be an integer, at least 0, got -1"),
        ({"min_delta": -1.0}, "min_delta must be at least 0"),
        ({"mode": "best"}, "mode must be 'min' or 'max', got 'best'"),
        ({"metric": "train.losses.l2"}, "Name a metric of an evaluator"),
    ],
)
def test_options_that_cannot_be_meant(options, message):
    with pytest.raises(ValueError, match=message):
        _early(**options)


def test_an_unknown_metric_is_found_before_training(tmp_path):
    trainer = _trainer(tmp_path, {"early": _early(metric="test.losses.l3")})
    (problem,) = problems.find(trainer)
    assert problem.path == "hooks.early.metric"
    assert "nothing measures 'test.losses.l3'. Did you mean" in problem.message
    assert "test.losses.l2" in problem.message
    with pytest.raises(ValueError, match=r"cfg\.hooks\.early\.metric"):
        trainer.train()
    assert not (tmp_path / "config.json").exists()


def test_a_metric_that_is_known_only_after_training(tmp_path):
    ds = toy.make_ds(num_epochs=1, shuffle=False)
    evals = {"test": kd.evals.Evaluator(run=kd.evals.Final(free_memory=False), ds=ds)}
    (problem,) = problems.find(_trainer(tmp_path, {"early": _early()}, evals=evals))
    assert "the evaluator 'test' runs as Final" in problem.message


def test_something_that_is_not_a_hook(tmp_path):
    with pytest.raises(ValueError, match=r"`trainer.hooks\['x'\]` must be a hook"):
        _trainer(tmp_path, {"x": 3})


#
# Kills
#


def _disturbed_trainer(workdir):
    """The experiment of the fault tests, until a hook stops it."""
    cfg = experiments.make_config(workdir)
    cfg.hooks = {
        "notes": this_module.Notes(steps=(3, 10)),
        "early": kd_cfg.train.EarlyStopping(
            metric="eval.losses.l2", patience=1, min_delta=100.0
        ),
    }
    cfg.model.rate = 0.0  # dropout would make the programs of each process longer
    cfg.evals.final.run.free_memory = False  # nor what trainers in this process share
    return konfig.resolve(cfg)


@functools.cache
def _shared_step():
    """Trainers in this process share the programs of a step."""
    return toy.step_fields(_disturbed_trainer("unused"))


def _train_here(workdir):
    trainer = _disturbed_trainer(workdir)
    shared = _shared_step() | {"raw_cfg": trainer.raw_cfg}
    trainer.replace(**shared).train()


def train_and_be_killed(workdir, instant, count):
    """Train until the instant."""
    trainer = _disturbed_trainer(workdir)
    experiments.arm(instant, count, signal.SIGKILL)
    trainer.train()


class Nothing(kd.evals.EvaluatorBase):
    """Measures nothing, and takes no time."""

    def evaluate(self, state, step):
        return kd.train.AuxiliariesOutput()


class OneStops(kd.train.Hook):
    """Asks to stop in the second process only."""

    def on_evaluation(self, event):
        if event.step == 6 and jax.process_index() == 1:
            event.stop("the second process has seen enough")


def train_together(workdir):
    """Train in one of two processes."""
    job.start_distributed()
    process_worker.make(
        workdir,
        hooks={"stops": OneStops()},
        evals={"along": Nothing(run=kd.evals.EveryNSteps(6))},
        log_metrics_every=1,  # all steps are one program
        drops=False,
    ).train()


@pytest.mark.slow
def test_all_processes_stop_when_one_asks(tmp_path):
    common = {
        "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
        "KXM_NUM_PROCESSES": "2",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        **compilation.quick_environment(),
    }
    together = Group(
        Process(
            train_together, tmp_path, environment={**common, "KXM_PROCESS_ID": str(k)}
        )
        for k in range(2)
    )
    code, output = together.wait()
    assert code == 0, output
    assert _marker(tmp_path)["step"] == 6
    assert _marker(tmp_path)["stopped_because"] == "another process asks for it"
    assert (tmp_path / "checkpoints" / "ckpt_6").exists()
    assert "Training stops at step 6: " in output


def _outcome(workdir):
    starts = {"start", "end"}
    return {
        "marker": _marker(workdir),
        "steps": sorted(path.name for path in (workdir / "checkpoints").iterdir()),
        "events": [e for e in _events(workdir) if e[0] not in starts],
        "train": _values(workdir),
        "eval": _values(workdir, "eval"),
        "final": _values(workdir, "final"),
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("undisturbed")
    _train_here(workdir)
    return _outcome(workdir)


def test_the_undisturbed_run_stops_early(undisturbed):
    assert undisturbed["marker"]["step"] == 16  # of 24
    assert "ckpt_16" in undisturbed["steps"]


@pytest.mark.parametrize(
    ("instant", "count"),
    [
        ("evaluated", 3),  # evaluated at 16, not yet saved
        ("evaluated", 2),
        ("before saving", 5),  # stopped, not yet saved
        ("end", 1),  # saved, not yet complete
    ],
)
def test_a_killed_run_stops_as_if_never_disturbed(
    tmp_path, undisturbed, instant, count
):
    environment = compilation.quick_environment()
    killed = (train_and_be_killed, tmp_path, instant, count)
    code, output = Process(*killed, environment=environment).wait()
    assert code == -signal.SIGKILL, output
    _train_here(tmp_path)
    assert _outcome(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("instant", "count"),
    [
        ("evaluation", 9),  # while it evaluates at 16
        ("evaluated", 2),
        ("step", 4),
    ],
)
def test_a_run_that_is_asked_to_end_stops_as_if_never_disturbed(
    tmp_path, undisturbed, monkeypatch, instant, count
):
    owner, name, _ = experiments.INSTANTS[instant]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, getattr(owner, name))  # it is armed now, not later
        experiments.arm(instant, count, signal.SIGTERM)
        with pytest.raises(kd.train.Preempted) as stopped:
            _train_here(tmp_path)
    assert stopped.value.code == 143
    _train_here(tmp_path)
    assert _outcome(tmp_path) == undisturbed
