"""The local engine: real processes that are started, restarted, stopped and resumed."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from kauldron import kxm
from kauldron.kxm import records
from kauldron.kxm.engines.local import Machine
from kauldron.kxm.engines.work_units import WorkUnitJob
from tests.kxm.waiting import poll, text

OUT = {"out": kxm.WU_DIR_PROXY}


def launch(jobs, *, items=None, wait=None, **options):
    """Launch jobs on the local engine, showing nothing."""
    options = {"stream": False, "backoff_s": 0.0, **options}
    sweep = kxm.SimpleSweep(items) if items else kxm.NoSweep()
    xp = kxm.Experiment(
        jobs=jobs if isinstance(jobs, dict) else {"main": jobs},
        sweep_info=sweep,
        executor=kxm.Local(**options),
    )
    return xp.launch(wait=wait)


def states(handle):
    return [unit.state for unit in handle.work_units]


def test_never_more_than_asked_for_run_at_once_and_all_end(python_job):
    code = (
        "import os, pathlib, time\n"
        "wid = os.environ['KXM_WID']\n"
        "pathlib.Path('up' + wid).touch()\n"
        "for _ in range(1000):  # the first two see each other\n"
        "    if pathlib.Path('up1').exists() and pathlib.Path('up2').exists(): break\n"
        "    time.sleep(0.02)\n"
        "print('unit', wid)"
    )
    items = [{"i": i} for i in range(5)]
    handle = launch(python_job(code), items=items, max_parallel=2)
    assert states(handle) == ["succeeded"] * 5
    running, most, order = 0, 0, []
    for event in records.read_events(handle.xp_dir):
        if event["event"] == "started":
            running += 1
            order.append(event["wid"])
        elif event["event"] == "succeeded":
            running -= 1
        most = max(most, running)
    assert most == 2
    assert sorted(order) == [1, 2, 3, 4, 5]
    for unit in handle.work_units:
        assert text(unit.log_path()).splitlines()[-1] == f"unit {unit.wid}"


def test_a_killed_program_is_started_again_and_one_that_fails_is_not(python_job):
    code = (
        "import os, signal, sys\n"
        "print('attempt', os.environ['KXM_ATTEMPT'])\n"
        "sys.stdout.flush()\n"
        "if os.environ['KXM_ATTEMPT'] != '3': os.kill(os.getpid(), signal.SIGKILL)"
    )
    handle = launch(python_job(code))
    assert states(handle) == ["succeeded"]
    assert handle.work_units[0].jobs["main"]["attempt"] == 3
    log = text(handle.work_units[0].log_path())
    assert [line for line in log.splitlines() if line.startswith("attempt")] == [
        "attempt 1",
        "attempt 2",
        "attempt 3",
    ]
    fails = python_job("import sys; sys.exit(1)")
    assert launch(fails).work_units[0].jobs["main"]["attempt"] == 1
    again = launch(fails, restart="on_failure", max_restarts=2)
    assert again.work_units[0].jobs["main"]["attempt"] == 3
    assert states(again) == ["failed"]
    never = launch(python_job(code), restart="never")
    assert never.work_units[0].jobs["main"]["attempt"] == 1
    assert never.work_units[0].jobs["main"]["reason"] == "signal 9"


def test_the_reason_of_a_failure_is_the_exception(python_job, capfd):
    handle = launch(python_job("raise ValueError('too small')"))
    status = handle.work_units[0].jobs["main"]
    assert (status["state"], status["returncode"]) == ("failed", 1)
    assert status["reason"] == "ValueError: too small"
    out = capfd.readouterr().out
    assert "ValueError: too small" in out
    assert str(handle.work_units[0].log_path()) in out


def test_a_program_that_cannot_be_started_fails(tmp_path):
    handle = launch(kxm.Job(target=[str(tmp_path / "nothing")]))
    assert states(handle) == ["failed"]
    assert "nothing" in handle.work_units[0].jobs["main"]["reason"]


def test_a_single_job_shows_what_it_prints(python_job, capfd):
    kxm.Experiment(jobs={"main": python_job("print('hel' + 'lo')")}).launch()
    assert "hello\n" in capfd.readouterr().out


#
# Dependencies
#


def test_jobs_start_after_those_they_wait_for(python_job):
    until_seen = (
        "import pathlib, time\n"
        "for _ in range(1000):\n"
        "    if pathlib.Path('seen').exists(): break\n"
        "    time.sleep(0.02)\n"
    )
    jobs = {
        "eval": python_job("", after={"train": "succeeded"}),
        "beside": python_job(
            "import pathlib; pathlib.Path('seen').touch()", after={"train": "started"}
        ),
        "train": python_job(until_seen),
    }
    handle = launch(jobs, max_parallel=1)
    assert states(handle) == ["succeeded"]
    order = [(e["job"], e["event"]) for e in records.read_events(handle.xp_dir)]
    assert order.index(("train", "succeeded")) < order.index(("eval", "started"))
    assert order.index(("train", "started")) < order.index(("beside", "started"))
    assert order.index(("beside", "started")) < order.index(("train", "succeeded"))


def test_a_failure_skips_what_waits_for_it_and_what_runs_beside_it(
    python_job, trainer, tmp_path
):
    failing = (
        "import pathlib, time\n"
        f"ready = pathlib.Path({str(tmp_path / 'runs/1/1/ready')!r})\n"
        "for _ in range(1000):\n"
        "    if ready.exists(): break\n"
        "    time.sleep(0.02)\n"
        "raise SystemExit(3)\n"
    )
    jobs = {
        "train": python_job(failing),
        "last": python_job("", after={"train": "succeeded"}),
        "beside": kxm.Job(
            target=trainer, args={**OUT, "until": "never"}, after={"train": "started"}
        ),
    }
    handle = launch(jobs)
    got = {name: s["state"] for name, s in handle.work_units[0].jobs.items()}
    assert got == {"train": "failed", "last": "skipped", "beside": "skipped"}
    assert states(handle) == ["failed"]
    log = text(handle.work_units[0].log_path("beside"))
    assert "saved" in log


def test_fail_fast_stops_the_rest(python_job):
    code = "import os; raise SystemExit(os.environ['KXM_WID'] == '1')"
    items = [{"i": i} for i in range(3)]
    handle = launch(python_job(code), items=items, max_parallel=1, fail_fast=True)
    assert states(handle) == ["failed", "stopped", "stopped"]


#
# Devices
#


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")


def test_gpus_are_disjoint_and_given_back(python_job, four_gpus):
    code = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(0.3)"
    items = [{"i": i} for i in range(4)]
    handle = launch(python_job(code, platform="gpu=2"), items=items)
    got = [text(unit.log_path()).splitlines()[1] for unit in handle.work_units]
    assert set(got) == {"4,5", "6,7"}
    times = [unit.jobs["main"] for unit in handle.work_units]
    for i, a in enumerate(times):
        for b, gpus in zip(times[i + 1 :], got[i + 1 :]):
            if gpus == got[i]:
                assert b["started"] >= a["ended"] or a["started"] >= b["ended"]


def test_a_job_on_the_cpu_sees_no_gpu(python_job, four_gpus):
    code = "import os; print([os.environ['CUDA_VISIBLE_DEVICES'], os.environ['JAX_PLATFORMS']])"
    handle = launch(python_job(code, platform="cpu"))
    assert text(handle.work_units[0].log_path()).endswith("['', 'cpu']\n")


@pytest.mark.parametrize(
    "params, message",
    [
        ({"platform": "gpu=5"}, "asks for 5 GPUs, but this machine has 4"),
        ({"requirements": kxm.JobRequirements(cpu=10000)}, "10000 cores"),
        ({"requirements": kxm.JobRequirements(ram="900TB")}, "900000.0 GB"),
        ({"platform": "v4=2x2"}, "--xp.platform=gpu=1"),
        ({"requirements": kxm.JobRequirements(replicas=2)}, "2 nodes"),
    ],
)
def test_impossible_requests_fail_before_anything_starts(
    python_job, four_gpus, params, message
):
    with pytest.raises(ValueError, match=message):
        launch(python_job("", **params))
    assert records.known_xids() == []


def test_platform_and_requirements_must_agree(python_job, four_gpus):
    job = python_job("", platform="gpu=1", requirements=kxm.JobRequirements(gpus=2))
    with pytest.raises(ValueError, match="contradict"):
        launch(job)


def test_jobs_without_a_request_get_all_gpus_or_a_core_each(monkeypatch):
    job = WorkUnitJob(name="a", argv=("a",))
    with_gpus = Machine(gpus=("0", "1"), cores=8, memory=1)
    assert with_gpus.gpus_for(job) == 2
    without = Machine(gpus=(), cores=8, memory=1)
    assert (without.gpus_for(job), without.cores_for(job)) == (0, 1)
    two = dataclasses.replace(job, requirements=kxm.JobRequirements(cpu=1.5))
    assert without.cores_for(two) == 2


def test_a_job_of_several_processes_is_restarted_as_a_whole(python_job):
    code = (
        "import os, pathlib, sys, time\n"
        "rank, attempt = os.environ['KXM_PROCESS_ID'], os.environ['KXM_ATTEMPT']\n"
        "printed = pathlib.Path(os.environ['KXM_WU_DIR'], 'printed')\n"
        "print('rank', rank, os.environ['KXM_NUM_PROCESSES'], flush=True)\n"
        "if attempt == '1':\n"
        "    if rank == '0': printed.touch()\n"
        "    while not printed.exists(): time.sleep(0.01)\n"
        "    if rank == '1': sys.exit(4)\n"
        "    time.sleep(60)\n"
    )
    handle = launch(python_job(code), processes=2, restart="on_failure")
    assert states(handle) == ["succeeded"]
    folder = handle.work_units[0].folder
    assert text(records.log_path(folder, "main")).count("rank 0 2") == 2
    assert "rank 1 2" in text(records.log_path(folder, "main", 1))


#
# Stopping and resuming
#

COMMAND = [
    *[sys.executable, "-m", "kauldron.main", "sweep", "--xp=single"],
    *[f"--xp.args.out={kxm.WU_DIR_PROXY}", "--xp.args.until=released"],
    *["--sweep.i=0:3", "--xp.executor.max_parallel=2"],
    "--xp.subdir_format.wu_dirname={wid}",
]


@pytest.fixture
def launcher(trainer, tmp_path):
    """A process that runs three units, of which two are running."""
    process = subprocess.Popen(
        [*COMMAND, f"--xp.target={trainer}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    units = [tmp_path / "runs" / "1" / str(i) for i in (1, 2)]
    poll(lambda: all((unit / "ready").exists() for unit in units))
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def program_pids(handle):
    statuses = [unit.jobs["main"] for unit in handle.work_units]
    pids = [s.get(key) for s in statuses for key in ("pid", "program_pid")]
    return [pid for pid in pids if pid]


def is_gone(pid):
    return not pathlib.Path(f"/proc/{pid}").exists() or (
        pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        == "Z"
    )


@pytest.mark.parametrize(
    "signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_let_programs_save_and_resume_finishes(launcher, signum, code):
    handle = kxm.get_experiment(1)
    pids = program_pids(handle)
    launcher.send_signal(signum)
    out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == code
    assert "kauldron xp resume 1" in out
    assert all(map(is_gone, pids))
    assert states(handle) == ["stopped"] * 3
    first = handle.work_units[0]
    assert "saved" in text(first.log_path())
    saved = int(text(first.folder / "count"))
    pathlib.Path("released").touch()
    handle.resume()
    assert states(handle) == ["succeeded"] * 3
    assert f"starts at {saved}" in text(first.log_path())
    assert first.jobs["main"]["attempt"] == 2


def test_nothing_survives_a_launcher_that_is_killed(launcher):
    handle = kxm.get_experiment(1)
    pids = program_pids(handle)
    launcher.kill()
    launcher.communicate()
    poll(lambda: all(map(is_gone, pids)))
    poll(lambda: states(handle) == ["stopped"] * 3)
    assert "saved" in text(handle.work_units[0].log_path())
    pathlib.Path("released").touch()
    handle.resume(wids=[1, 3])
    assert states(handle) == ["succeeded", "stopped", "succeeded"]


def test_a_launcher_under_nohup_survives_the_terminal(trainer, tmp_path):
    process = subprocess.Popen(
        [*COMMAND, f"--xp.target={trainer}"],
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        start_new_session=True,
    )
    poll((tmp_path / "runs" / "1" / "1" / "ready").exists)
    process.send_signal(signal.SIGHUP)
    (tmp_path / "released").touch()
    assert process.wait(timeout=60) == 0
    assert states(kxm.get_experiment(1)) == ["succeeded"] * 3


def test_a_second_ctrl_c_kills(trainer, tmp_path):
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: pathlib.Path('told').touch())\n"
        "pathlib.Path('ready').touch()\n"
        "while True: time.sleep(0.1)\n"
    )
    script = tmp_path / "launcher.py"
    script.write_text(
        "from kauldron import kxm\n"
        "kxm.Experiment(jobs={'main': kxm.Job(target='stubborn.py')}).launch()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, start_new_session=True
    )
    poll((tmp_path / "ready").exists)
    pids = program_pids(kxm.get_experiment(1))
    process.send_signal(signal.SIGINT)
    poll((tmp_path / "told").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert all(map(is_gone, pids))
    assert states(kxm.get_experiment(1)) == ["stopped"]


def test_another_process_can_stop_a_unit_but_not_launch_it_while_it_runs(launcher):
    handle = kxm.get_experiment(1)
    with pytest.raises(RuntimeError, match=f"process {launcher.pid} on"):
        handle.resume()
    handle.stop([1])
    poll(lambda: states(handle)[0] == "stopped")
    pathlib.Path("released").touch()
    launcher.communicate(timeout=60)
    assert states(handle) == ["stopped", "succeeded", "succeeded"]
    with pytest.raises(LookupError, match="no work unit 9"):
        handle.stop([9])


def test_a_program_that_does_not_stop_is_killed_after_the_grace_time(python_job):
    code = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    handle = launch(python_job(code), wait=False, grace_s=0.3)
    poll(pathlib.Path("ready").exists)
    handle.stop()
    poll(handle.is_done)
    assert states(handle) == ["stopped"]
    assert handle.work_units[0].jobs["main"]["returncode"] == -9
    handle.session.join(10, lambda: None, 0.1)


def test_a_runner_that_is_killed_does_not_leave_its_program_behind(trainer):
    job = kxm.Job(target=trainer, args={**OUT, "until": "released"})
    handle = launch(job, wait=False)
    folder = handle.work_units[0].folder
    poll((folder / "ready").exists)
    status = poll(
        lambda: (s := records.read_status(folder, "main"))["state"] == "running" and s
    )
    os.kill(status["pid"], signal.SIGKILL)
    poll(lambda: is_gone(status["program_pid"]))
    pathlib.Path("released").touch()
    assert handle.wait()
    assert handle.work_units[0].jobs["main"]["attempt"] == 2


def test_launching_in_the_background_returns_at_once(trainer):
    job = kxm.Job(target=trainer, args={**OUT, "until": "released"})
    handle = launch(job, wait=False)
    assert states(handle)[0] in ("pending", "running")
    assert handle.wait(timeout=0.0) is False
    pathlib.Path("released").touch()
    assert handle.wait() is True
    assert handle.status() == {"succeeded": 1}


def test_programs_report_numbers(python_job):
    code = (
        "from kauldron import kxm; import sys; kxm.report(loss=float(sys.argv[1][4:]))"
    )
    items = [{"x": x} for x in (3.0, 1.0, 2.0)]
    handle = launch(python_job(code), items=items)
    assert handle.best("loss")["wid"] == 2
    assert handle.best("loss", goal="max")["value"] == 3.0
    assert [row["sweep"]["x"] for row in handle.results("loss")] == [3.0, 1.0, 2.0]
    with pytest.raises(LookupError, match=r"'los'.*loss"):
        handle.results("los")


def test_handles_are_shown_as_text_and_as_a_table(python_job):
    handle = launch(python_job(""))
    assert "1 succeeded" in repr(handle)
    assert "<table>" in handle._repr_html_()
