"""Work units on a real Slurm, which the tests start themselves."""

import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import types

import jax
import numpy as np
import pytest

from kauldron import kd, kxm
from kauldron.cli.main import main
from kauldron.kxm import records
from tests.kxm.conftest import PRETEND_TRAINER
from tests.kxm.engines.mini_slurm import command_output, mini_slurm, missing
from tests.kxm.waiting import poll, text

LONG = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster, with a job whose end the last test waits for.

    Slurm looks at time limits every thirty seconds. The other tests need not wait.
    """
    if reason := missing():
        pytest.skip(reason)
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("submitit is not installed: pip install 'kauldron[slurm]'")
    folder = tmp_path_factory.mktemp("limited")
    trainer = folder / "trainer.py"
    trainer.write_text(PRETEND_TRAINER)
    limits = {"time_limit": 1, "signal_delay_s": 40, "grace_s": 20}
    with mini_slurm(tmp_path_factory.mktemp("slurm")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KAULDRON_HOME", str(folder / "home"))
            patch.setenv("KAULDRON_ROOT_DIR", str(folder / "runs"))
            patch.setenv("PYTHONPATH", import_path())
            patch.chdir(folder)
            xp = trainings(str(trainer), folder, count=1, partition="apart", **limits)
            limited = xp.launch()
        yield types.SimpleNamespace(limited=limited, release=folder / "release")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let jobs find this repository, as the test does."""
    monkeypatch.setenv("PYTHONPATH", import_path())


def import_path():
    here = str(pathlib.Path(__file__).parents[3])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def asks_often(monkeypatch):
    """Ask Slurm what became of jobs five times a second, instead of every five."""
    monkeypatch.setattr(kxm.handle, "_ASK_SECONDS", 0.2)


def trainings(trainer, tmp_path, *, count, until=True, **options):
    """A sweep of the pretend trainer; with `until`, they run until a file is there."""
    args = {"out": f"{kxm.WU_DIR_PROXY}/out"}
    if until:
        args["until"] = str(tmp_path / "release")
    return kxm.Experiment(
        jobs={"train": kxm.Job(target=trainer, args=args)},
        sweep_info=kxm.SimpleSweep([{"a": a} for a in range(count)]),
        executor=kxm.Slurm(**{"partition": "low", "time_limit": 30, **options}),
    )


def engine_ids(handle):
    path = records.private(handle.xp_dir) / "slurm" / "jobs.json"
    return [job_id for _, _, job_id in records.read_json(path)["jobs"]]


def out(unit, name="ready"):
    return pathlib.Path(unit.folder) / "out" / name


def is_training(unit):
    return unit.jobs["train"]["state"] == records.RUNNING and out(unit).exists()


def start_soon(job_id):
    """Skip most of the two minutes that Slurm waits before it starts a requeued job.

    A node refuses a job that comes back in the second in which it left.
    """
    state = ("squeue", "-h", "-o", "%T", "-j", job_id)
    poll(lambda: command_output(" ".join(state)) == "PENDING", seconds=LONG)
    command_output(f"scontrol update jobid={job_id} StartTime=now+2")


#
# On the cluster
#


@pytest.mark.slow
def test_a_sweep_is_one_array(cluster, trainer, tmp_path, capfd):
    xp = trainings(trainer, tmp_path, count=2, until=False, max_parallel=1)
    handle = xp.launch()
    first, *_ = ids = engine_ids(handle)
    array = first.partition("_")[0]
    assert ids == [f"{array}_{index}" for index in range(2)]
    assert "ArrayTaskThrottle=1" in command_output(f"scontrol show job {array}")
    found = kxm.get_experiment(handle.xid)  # as another process would
    assert found.wait(timeout=LONG)
    assert found.status() == {"succeeded": 2}
    assert found.work_units[1].jobs["train"]["engine_id"] == ids[1]
    assert text(found.work_units[1].log_path()).endswith("starts at 0\ndone\n")
    assert main(["xp", "status", str(handle.xid)]) == 0
    assert "succeeded" in capfd.readouterr().out


@pytest.mark.slow
def test_a_preempted_job_goes_on_and_a_cancelled_one_does_not(
    cluster, trainer, tmp_path
):
    handle = trainings(trainer, tmp_path, count=2).launch()
    preempted, cancelled = handle.work_units
    poll(lambda: is_training(preempted) and is_training(cancelled), seconds=LONG)
    subprocess.run(["scancel", engine_ids(handle)[1]], check=True)
    poll(lambda: cancelled.state == records.STOPPED, seconds=LONG)
    assert cancelled.jobs["train"]["reason"] == "cancelled in Slurm"
    command = "srun --partition=high --nodes=2 --exclusive true"
    subprocess.run(command.split(), check=True, capture_output=True)
    assert preempted.jobs["train"]["reason"] == "preempted"
    count = int(text(out(preempted, "count")))
    assert count > 0
    start_soon(engine_ids(handle)[0])
    poll(lambda: f"starts at {count}\n" in text(preempted.log_path()), seconds=LONG)
    (tmp_path / "release").touch()
    assert not handle.wait(timeout=LONG)  # one was cancelled
    assert handle.status() == {"succeeded": 1, "stopped": 1}
    assert preempted.jobs["train"]["attempt"] == 2
    assert cancelled.jobs["train"]["attempt"] == 1
    assert int(text(out(preempted, "count"))) > count


@pytest.mark.slow
def test_a_program_that_is_killed_is_started_again_within_limits(cluster, python_job):
    code = "import os; os.environ['KXM_ATTEMPT'] == '1' and os.kill(os.getpid(), 9)"
    again, limited = (
        kxm.Experiment(jobs={"train": python_job(code)}, executor=engine).launch()
        for engine in (
            kxm.Slurm(time_limit=10),
            kxm.Slurm(time_limit=10, max_requeues=0),
        )
    )
    [unit] = again.work_units
    poll(lambda: unit.jobs["train"]["restarts"] == 1, seconds=LONG)
    start_soon(engine_ids(again)[0])
    assert again.wait(timeout=LONG), unit.jobs
    assert unit.jobs["train"]["attempt"] == 2
    assert not limited.wait(timeout=LONG)
    assert "max_requeues is 0" in limited.work_units[0].jobs["train"]["reason"]


@pytest.mark.slow
def test_stop_lets_programs_save_and_resume_goes_on(cluster, trainer, tmp_path):
    handle = trainings(trainer, tmp_path, count=2, max_parallel=1).launch()
    running, queued = handle.work_units
    poll(lambda: is_training(running), seconds=LONG)
    with pytest.raises(RuntimeError, match="is queued or running"):
        handle.resume()
    before = engine_ids(handle)
    assert handle.stop() == [1, 2]
    assert queued.state == records.STOPPED
    assert handle.wait(timeout=LONG) is False
    assert handle.status() == {"stopped": 2}
    count = int(text(out(running, "count")))
    (tmp_path / "release").touch()
    handle.resume()
    assert not set(engine_ids(handle)) & set(before)
    assert handle.wait(timeout=LONG)
    assert f"starts at {count}\n" in text(running.log_path())
    assert queued.jobs["train"]["attempt"] == 1


@pytest.mark.slow
def test_an_evaluator_waits_for_the_training_of_its_own_unit(cluster, python_job):
    train = python_job("import os, sys; sys.exit(os.environ['KXM_WID'] == '1')")
    after = python_job("print('evaluates')", after={"train": "succeeded"})
    handle = kxm.Experiment(
        jobs={"train": train, "eval": after},
        sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}]),
        executor=kxm.Slurm(time_limit=10),
    ).launch()
    assert not handle.wait(timeout=LONG)
    failed, good = handle.work_units
    assert (failed.state, good.state) == ("failed", "succeeded")
    assert failed.jobs["train"]["reason"] == "exit code 1"
    assert failed.jobs["eval"]["state"] == records.SKIPPED
    assert not failed.log_path("eval").exists()
    assert text(good.log_path("eval")).endswith("evaluates\n")


@pytest.mark.slow
def test_a_job_that_is_killed_outright_is_seen_to_have_failed(
    cluster, trainer, tmp_path
):
    handle = trainings(trainer, tmp_path, count=1).launch()
    [unit] = handle.work_units
    poll(lambda: is_training(unit), seconds=LONG)
    status = unit.jobs["train"]
    os.kill(status["pid"], signal.SIGKILL)
    os.killpg(status["program_pid"], signal.SIGKILL)
    assert not handle.wait(timeout=LONG)
    assert unit.jobs["train"]["reason"] == "Slurm: FAILED"
    assert handle.status() == {"failed": 1}


def test_jobs_that_slurm_refuses_leave_nothing_in_the_queue(cluster, python_job):
    xp = kxm.Experiment(
        jobs={"a": python_job(""), "b": python_job("", platform="gpu=7")},
        executor=kxm.Slurm(time_limit=10),
    )
    with pytest.raises(RuntimeError, match=r"Slurm refused .*\.sh"):
        xp.launch()
    poll(lambda: not command_output("squeue -h -n kd-1-a"), seconds=LONG)


def test_no_such_partition_names_the_nearest(cluster, trainer, tmp_path):
    with pytest.raises(ValueError, match=r"'hihg'.*'high'"):
        trainings(trainer, tmp_path, count=1, partition="hihg").launch()


def test_the_time_limit_is_that_of_the_partition(cluster, python_job, capfd):
    for partition, minutes in {"low": 120, "high": 0}.items():
        engine = kxm.Slurm(partition=partition)
        kxm.Experiment(jobs={"a": python_job("")}, executor=engine).launch(dry=True)
        assert f"#SBATCH --time={minutes}\n" in capfd.readouterr().out


#
# Without a cluster
#


def nodes(count):
    return kxm.JobRequirements(replicas=count)


def unit_of(xp):
    [unit] = xp.work_units()
    return unit


def options(engine, **params):
    """What a job asks `sbatch` for."""
    xp = kxm.Experiment(jobs={"a": kxm.Job(target=["fit"], **params)}, executor=engine)
    return engine.options(unit_of(xp).jobs["a"])


def test_resources_become_options():
    engine = kxm.Slurm(
        partition="gpu",
        time_limit="2h",
        gpu_type_as_gres=True,
        extra={"mail_type": "FAIL"},
    )
    wanted = kxm.JobRequirements(cpu=3.5, ram="16GiB", replicas=2)
    assert options(engine, platform="a100=8", requirements=wanted) == {
        "partition": "gpu",
        "time": 120,
        "nodes": 2,
        "ntasks-per-node": 1,
        "gpus-per-node": "a100:8",
        "cpus-per-task": 4,
        "mem": "16384M",
        "signal": "TERM@120",
        "requeue": True,
        "mail-type": "FAIL",
    }


@pytest.mark.parametrize(
    "engine, params, message",
    [
        ({"nodes": 2}, {"requirements": nodes(3)}, "nodes=2.*asks for 3"),
        ({"gpus_per_node": 4}, {"platform": "gpu=8"}, "gpus_per_node=4.*asks for 8"),
        ({}, {"platform": "v4=8"}, "no TPUs"),
    ],
)
def test_what_contradicts_is_refused(engine, params, message):
    with pytest.raises(ValueError, match=message):
        options(kxm.Slurm(time_limit=1, **engine), **params)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"grace_s": 300}, "signal_delay_s"),
        ({"max_parallel": 0}, "max_parallel"),
        ({"extra": {"array": "0-3"}}, "array"),
        ({"time_limit": "soon"}, "soon"),
    ],
)
def test_bad_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        kxm.Slurm(**wrong)


def test_without_slurm_the_launch_is_refused(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"no `sbatch`.*local"):
        trainings(trainer, tmp_path, count=1).launch()
    assert not records.registry().exists()


def test_without_submitit_the_extra_is_named(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"kauldron\[slurm\]"):
        trainings(trainer, tmp_path, count=1).launch()


def test_arrays_follow_resources_and_stay_below_the_limit(python_job):
    from kauldron.kxm.engines.slurm import plan_arrays

    jobs = {
        "train": python_job(""),
        "eval": python_job("", after={"train": "succeeded"}),
    }
    xp = kxm.Experiment(
        jobs=jobs, sweep_info=kxm.SimpleSweep([{"a": a} for a in range(5)])
    )
    units = xp.work_units()
    arrays = plan_arrays(units, lambda job: {"name": job.name}, 2)
    assert [array.keys for array in arrays] == [
        [(1, "train"), (2, "train")],
        [(3, "train"), (4, "train")],
        [(5, "train")],
        [(1, "eval"), (2, "eval")],
        [(3, "eval"), (4, "eval")],
        [(5, "eval")],
    ]
    ids = {
        key: f"{i}_{k}" for i, a in enumerate(arrays) for k, key in enumerate(a.keys)
    }
    ids[5, "train"] = "7"
    assert [array.dependency(ids) for array in arrays[3:]] == [
        "aftercorr:0",
        "aftercorr:1",
        "afterok:7",
    ]

    def by_unit(job):
        return {"name": job.name, "big": job is units[1].jobs["eval"]}

    arrays = plan_arrays(units, by_unit, 1000)
    assert [array.keys[0] for array in arrays if array.needs] == [
        (1, "eval"), (3, "eval"), (4, "eval"), (5, "eval"), (2, "eval"),
    ]  # fmt: skip
    ids = {key: f"9_{index}" for index, key in enumerate(arrays[0].keys)}
    assert [array.dependency(ids) for array in arrays[1:3]] == [
        "afterok:9_0",
        "afterok:9_2",
    ]


#
# Training on two nodes
#

CONFIG = """
from kauldron import konfig

with konfig.imports():
    import optax
    from kauldron import kd
    from tests.kxm.engines import gated_records
    from tests.train import toy

def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.train_ds = kd.data.py.DataSource(
        gated_records.GatedRecords(gate="GATE"),
        shuffle=True, num_epochs=None, batch_size=16, num_workers=0)
    cfg.model = toy.Linear(x="batch.x", rate=0.3)
    cfg.num_train_steps = 16
    cfg.log_metrics_every = 1
    cfg.log_summaries_every = None
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.y", targets="batch.y")}
    cfg.optimizer = optax.adam(learning_rate=1e-2)
    cfg.profiler = None
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=100)
    cfg.aux = {"run": 0}
    return cfg
"""


@pytest.mark.slow
def test_a_preempted_training_on_two_nodes_ends_as_an_undisturbed_one(
    cluster, tmp_path, monkeypatch, fast_python
):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    gate = tmp_path / "gate"
    (tmp_path / "config.py").write_text(CONFIG.replace("GATE", str(gate)))
    command = "sweep --cfg=config.py --sweep.aux.run=0,1 --xp.executor=slurm"
    options = "--xp.executor.nodes=2 --xp.executor.time_limit=30"
    assert main([*command.split(), *options.split()]) == 0
    handle = kxm.get_experiment(1)
    disturbed, undisturbed = handle.work_units
    poll(lambda: all(map(waits_at_the_gate, handle.work_units)), seconds=2 * LONG)
    preempted = engine_ids(handle)[0]
    logs = [records.log_path(disturbed.folder, "train", rank) for rank in (0, 1)]
    subprocess.run(["scancel", "--signal=TERM", preempted], check=True)
    poll(lambda: all("SIGTERM" in text(log) for log in logs), seconds=LONG)
    gate.touch()
    poll(lambda: disturbed.jobs["train"].get("reason") == "preempted", seconds=LONG)
    start_soon(preempted)
    assert handle.wait(timeout=2 * LONG), text(disturbed.log_path())
    assert disturbed.jobs["train"]["attempt"] == 2
    assert undisturbed.jobs["train"]["attempt"] == 1
    steps = [re.findall(r"Stopped at step (\d+)", text(log)) for log in logs]
    assert steps[0] == steps[1]
    [step] = steps[0]
    assert 0 < int(step) < 16
    assert parameters(disturbed) == parameters(undisturbed)


def waits_at_the_gate(unit):
    return all((unit.folder / f"waits-{rank}").exists() for rank in (0, 1))


def parameters(unit):
    """The bytes of the parameters in the last checkpoint."""
    state = kd.from_workdir.get_state(unit.workdir)
    assert int(state.step) == 16
    leaves = jax.tree_util.tree_leaves_with_path(state.params)
    return {str(path): np.asarray(leaf).tobytes() for path, leaf in leaves}


#
# At last, what was launched first
#


@pytest.mark.slow
def test_at_the_time_limit_a_job_saves_and_goes_on(cluster):
    handle = cluster.limited
    [unit] = handle.work_units
    poll(lambda: unit.jobs["train"].get("reason") == "preempted", seconds=LONG)
    count = int(text(out(unit, "count")))
    start_soon(engine_ids(handle)[0])
    cluster.release.touch()
    assert handle.wait(timeout=LONG)
    assert text(unit.log_path()).endswith(f"starts at {count}\ndone\n")
