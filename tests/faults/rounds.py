"""Rounds: a run is disturbed, started again until it is complete, and compared."""

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import jax
import numpy as np

from kauldron import writers
from kauldron.ckpts import Checkpointer, items
from tests.evals import worker as evals_worker
from tests.evals.experiments import steps as evaluated_steps
from tests.faults import experiments, faults
from tests.processes import Group, Process, free_port, wait_until

MOST_STARTS = 6
MOST_LINES = 70  # of a run whose saves fail, with a traceback or warnings


class Lab:
    """A folder with undisturbed runs, made when they are first asked for.

    Args:
      root: The folder.
      cache: Folder of compiled programs; one in `root` if there is none.
      environment: Variables of all processes.
    """

    def __init__(self, root, cache=None, environment=None):
        self.root = pathlib.Path(root)
        self.environment = environment or {}
        self.cache = cache or str(self.root / "compiled")
        self._locks = {}
        self._lock = threading.RLock()
        self._count = 0
        self._runs = {}

    def folder(self):
        """A new folder."""
        with self._lock:
            self._count += 1
            folder = self.root / f"round{self._count}"
        folder.mkdir(parents=True)
        return folder

    def start(self, workdir, setup, **options):
        """Start training in one process, or several that train together."""
        together = experiments.SETUPS[setup].num_processes
        if together == 1:
            return self._start(workdir, setup, {}, options)
        common = {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
            "KXM_NUM_PROCESSES": str(together),
        }
        return Group(
            self._start(workdir, setup, {**common, "KXM_PROCESS_ID": str(k)}, options)
            for k in range(together)
        )

    def _start(self, workdir, setup, environment, options):
        environment = {**self.environment, **environment}
        for name, value in experiments.SETUPS[setup].environment.items():
            environment[name] = f"{environment.get(name, '')} {value}"  # both flags
        return Process(
            experiments.train,
            str(workdir),
            setup,
            options.get("instant"),
            options.get("changes", ()),
            environment=environment,
            cache=self.cache,
        )

    def train(self, workdir, setup, **options):
        """Train; return exit code and output."""
        return self.start(workdir, setup, **options).wait()

    def finish(self, workdir, setup):
        """Start again, as an operator would, until the run is complete."""
        for _ in range(MOST_STARTS):
            code, output = self.train(workdir, setup)
            if code == 0:
                return output
        raise AssertionError(f"The run did not finish:\n{output}")

    def reference(self, setup):
        """An undisturbed run."""
        return self._made(("reference", setup), self._make_reference)

    def seconds(self, setup):
        """How long an undisturbed run takes when its programs are compiled."""
        return self._made(("seconds", setup), self._measure_seconds)

    def killed(self, setup):
        """A run that was killed when it was to save step 20; it has saved step 15."""
        return self._made(("killed", setup), self._make_killed)

    def stopped_in_evaluation(self, setup):
        """A run that was asked to stop in the evaluation of step 16, and saved it."""
        return self._made(("stopped", setup), self._make_stopped)

    def _made(self, key, make):
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._runs:
                self._runs[key] = make(key[1])
            return self._runs[key]

    def _make_reference(self, setup):
        workdir = self.folder()
        self.finish(workdir, setup)
        return workdir

    def _measure_seconds(self, setup):
        reference, workdir = self.reference(setup), self.folder()
        begin = time.monotonic()
        self.finish(workdir, setup)
        seconds = time.monotonic() - begin
        assert_same_run(workdir, reference, setup)  # the same twice, to the bit
        return seconds

    def _make_killed(self, setup):
        workdir = self.folder()
        instant = ("before saving", 5, int(signal.SIGKILL))
        code, output = self.train(workdir, setup, instant=instant)
        assert code == -signal.SIGKILL, output
        assert kept(workdir) == ["ckpt_10", "ckpt_15", "ckpt_5"]
        return workdir

    def _make_stopped(self, setup):
        workdir = self.folder()
        instant = ("evaluation", 10, int(signal.SIGTERM))
        code, output = self.train(workdir, setup, instant=instant)
        assert code == 143, output
        return workdir


def run(fault, lab):
    """Run a round; raises `AssertionError` if it comes out wrong.

    Returns:
      What came of it, in a few words.
    """
    workdir = lab.folder() / "run"
    try:
        return KINDS[fault.kind](fault, workdir, lab)
    finally:
        shutil.rmtree(workdir, ignore_errors=True)


#
# Kinds
#


def _signalled(fault, workdir, lab):
    reference = lab.reference(fault.details.get("reference", fault.setup))
    instant = fault.details["instant"]
    code, output = lab.train(workdir, fault.setup, instant=instant)
    is_done = code == 0 and (workdir / "train_complete.txt").exists()
    if is_done:  # right if the signal came too late to matter
        assert experiments.SENT not in output or faults.is_late(*instant[:2]), output
    else:
        _check_said(fault.expected, code, output)
        lab.finish(workdir, fault.details.get("after", fault.setup))
    _check_ending(fault, workdir, reference)
    return "was complete" if is_done else fault.expected.ending


def _killed_at_any_time(fault, workdir, lab):
    reference, seconds = lab.reference(fault.setup), lab.seconds(fault.setup)
    kills = 0
    for moment in fault.details["moments"]:
        process = lab.start(workdir, fault.setup)
        if process.has_ended_within(moment * seconds):
            code, output = process.wait()
            assert code == 0, output
            break
        process.stop()
        kills += 1
    lab.finish(workdir, fault.setup)
    _check_ending(fault, workdir, reference)
    return f"identical after {kills} kills"


def _damaged(fault, workdir, lab):
    reference = lab.reference(fault.setup)
    is_stopped = fault.details["stopped_in_evaluation"]
    make = lab.stopped_in_evaluation if is_stopped else lab.killed
    shutil.copytree(make(fault.setup), workdir, symlinks=True)
    _damage(fault, workdir)
    before = logged_points(workdir, experiments.collections(fault.setup))
    code, output = lab.train(workdir, fault.setup)
    if code and fault.expected.may_refuse:
        for word in fault.expected.words:
            assert word in output, f"It did not say {word!r}:\n{output}"
        return f"refuses ({code})"
    assert code == 0, output
    is_cut = fault.expected.ending == "same state"
    _check_ending(fault, workdir, reference, damaged=before if is_cut else None)
    noticed = "" if "cannot be read" not in output else "noticed, "
    return noticed + fault.expected.ending


def _damage(fault, workdir, lab=None):
    found = sorted(workdir.glob(fault.details["path"]))
    assert found, f"There is no {fault.details['path']} to damage."
    for path in found:
        damage_file(path, fault.details["how"], workdir)


def _full_disk(fault, workdir, lab):
    reference = lab.reference(fault.setup)
    with small_disk(workdir):
        code = _train_on_a_full_disk(fault, workdir, lab)
        lab.finish(workdir, fault.setup)
        _check_ending(fault, workdir, reference)
    return f"says so, exits with {code}, {fault.expected.ending}"


def _train_on_a_full_disk(fault, workdir, lab):
    instant = ("full disk", fault.details["count"], 0)
    changes = (("checkpointer.on_save_error", fault.details["on_save_error"]),)
    code, output = lab.train(workdir, fault.setup, instant=instant, changes=changes)
    _check_said(fault.expected, code, output)
    # Newer versions of Python underline more lines of a traceback.
    lines = [line for line in output.splitlines() if line.strip(" ~^")]
    assert len(lines) < MOST_LINES, output
    (workdir / experiments.BALLAST).unlink()
    return code


def _read_only(fault, workdir, lab):
    reference = lab.reference(fault.setup)
    with small_disk(workdir):
        shutil.copytree(lab.killed(fault.setup), workdir, dirs_exist_ok=True)
        _train_in_a_read_only_folder(fault, workdir, lab)
        lab.finish(workdir, fault.setup)
        _check_ending(fault, workdir, reference)
    return f"refuses, then {fault.expected.ending}"


def _train_in_a_read_only_folder(fault, workdir, lab):
    with _read_only_disk(workdir):
        code, output = lab.train(workdir, fault.setup)
        _check_said(fault.expected, code, output)


def _second_trainer(fault, workdir, lab):
    reference = lab.reference(fault.setup)
    _train_twice_at_once(fault, workdir, lab)
    _check_ending(fault, workdir, reference)
    return "refuses; the first is identical"


def _train_twice_at_once(fault, workdir, lab):
    instant = ("step", 5, int(signal.SIGSTOP))
    first = lab.start(workdir, fault.setup, instant=instant)
    try:
        wait_until(lambda: _is_stopped(first.pid), first, what="step 5")
        code, output = lab.train(workdir, fault.setup)
        _check_said(fault.expected, code, output)
        assert f"process {first.pid} on" in output
        first.send_signal(signal.SIGCONT)
        code, output = first.wait()
        assert code == 0, output
    finally:
        first.stop()


def _is_stopped(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def _no_checkpoints(fault, workdir, lab):
    shutil.copytree(lab.reference(fault.setup), workdir)
    shutil.rmtree(workdir / "checkpoints")
    names = experiments.collections(fault.setup)
    before = logged_points(workdir, names)
    code, output = lab.train(workdir, fault.setup)
    _check_said(fault.expected, code, output)
    assert logged_points(workdir, names) == before
    return "refuses, the log stays"


def _evaluator_killed(fault, workdir, lab):
    def start(*arguments):
        return Process(
            evals_worker.main,
            arguments[0],
            str(workdir),
            *arguments[1:],
            cache=lab.cache,
        )

    training = start("train", "slowly")
    evaluation = None
    try:
        code, output = start("eval", str(fault.details["batch"])).wait()
        assert code == -signal.SIGKILL, output
        evaluation = start("eval")
        wait_until(lambda: 10 in evaluated_steps(workdir, "e"), evaluation, what="10")
        training.stop()
        code, output = start("train", "slowly").wait()
        assert code == 0, output
        code, output = evaluation.wait()
        assert code == 0, output
    finally:
        for process in (training, evaluation):
            if process is not None:
                process.stop()
    assert evaluated_steps(workdir, "e") == [0, 5, 10, 15, 20]
    return "each checkpoint once"


def _one_after_the_other(fault, workdir, lab):
    stages = fault.details["stages"]
    reference = lab.reference(stages[-1].details.get("reference", fault.setup))
    damaged = None
    with small_disk(workdir) if fault.needs_disk else contextlib.nullcontext():
        if fault.details["begins"] == "killed":
            begun = lab.killed(fault.setup)
            shutil.copytree(begun, workdir, symlinks=True, dirs_exist_ok=True)
        for stage in stages:
            STAGES[stage.kind](stage, workdir, lab)
            if stage.expected.ending == "same state":
                damaged = logged_points(workdir, experiments.collections(stage.setup))
        if not (workdir / "train_complete.txt").exists():
            code, output = lab.train(workdir, fault.setup)
            assert code == 0, output
        _check_ending(fault, workdir, reference, damaged=damaged)
    return fault.expected.ending


def _signal(fault, workdir, lab):
    instant = fault.details["instant"]
    code, output = lab.train(workdir, fault.setup, instant=instant)
    _check_said(fault.expected, code, output)


# What they do until the run is started again.
STAGES = {
    "killed": _signal,
    "asked to stop, SIGTERM": _signal,
    "asked to stop, SIGINT": _signal,
    "asked to stop, SIGUSR1": _signal,
    "damaged checkpoint": _damage,
    "damaged side file": _damage,
    "other world": _signal,
    "full disk, on_save_error=raise": _train_on_a_full_disk,
    "full disk, on_save_error=warn": _train_on_a_full_disk,
    "read-only folder": _train_in_a_read_only_folder,
    "second trainer": _train_twice_at_once,
}


KINDS = {
    "one after the other": _one_after_the_other,
    "killed": _signalled,
    "asked to stop, SIGTERM": _signalled,
    "asked to stop, SIGINT": _signalled,
    "asked to stop, SIGUSR1": _signalled,
    "killed at any time": _killed_at_any_time,
    "damaged checkpoint": _damaged,
    "damaged side file": _damaged,
    "other world": _signalled,
    "full disk, on_save_error=raise": _full_disk,
    "full disk, on_save_error=warn": _full_disk,
    "read-only folder": _read_only,
    "second trainer": _second_trainer,
    "checkpoints removed": _no_checkpoints,
    "evaluator killed": _evaluator_killed,
}


#
# Damages, small disks
#


def damage_file(path, how, workdir):
    """Change a file, or a folder, in one of the ways of `faults.DAMAGES`."""
    if how == "link":
        moved = workdir.parent / f"moved_{path.name}"
        shutil.rmtree(moved, ignore_errors=True)
        path.rename(moved)
        path.symlink_to(moved)
    elif how == "remove":
        _remove(path)
    elif how == "directory" and path.is_file():
        path.unlink()
        path.mkdir()
    elif path.is_dir():  # all of its files
        for child in sorted(path.rglob("*")):
            if child.is_file():
                damage_file(child, how, workdir)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncate":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "flip":
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 1] = b"\xff"
        path.write_bytes(content)


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def small_disk(folder):
    """Mount a disk of 4 MB."""
    folder.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def _read_only_disk(folder):
    _mount("-o", "remount,ro", str(folder))
    try:
        yield
    finally:
        _mount("-o", "remount,rw", str(folder))


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@functools.cache
def can_mount():
    """Whether this user may mount a small disk."""
    if os.geteuid() or not shutil.which("mount"):
        return False
    folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"mount-{os.getpid()}"
    try:
        with small_disk(folder):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        folder.rmdir()


#
# Comparing
#


def _check_said(expected, code, output):
    assert code in expected.exit_codes, f"It ended with {code}:\n{output}"
    for word in expected.words:
        assert word in output, f"It did not say {word!r}:\n{output}"


def _check_ending(fault, workdir, reference, *, damaged=None):
    ending = fault.expected.ending
    if ending == "close":
        return assert_close_run(workdir, reference, fault.setup)
    return assert_same_run(workdir, reference, fault.setup, damaged=damaged)


def assert_same_run(workdir, reference, setup, *, damaged=None):
    """State, log, completion and kept checkpoints are the same, to the bit.

    Args:
      workdir: The folder of a complete run.
      reference: That of another one.
      setup: Of both.
      damaged: What a damage left of the log, if it need not have more before step 15.
    """
    compare_states(workdir, reference, np.testing.assert_array_equal)
    names = experiments.collections(setup)
    points, expected = (logged_points(run, names) for run in (workdir, reference))
    if damaged is not None:
        expected = {
            name: [p for p in expected[name] if p in damaged[name] or p[0] >= 15]
            for name in names
        }
    assert points == expected, _differences(points, expected)
    _compare_files(workdir, reference)


def assert_close_run(workdir, reference, setup):
    """The same to 1e-6."""
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    compare_states(workdir, reference, close)
    names = experiments.collections(setup)
    assert_close_points(*(logged_points(run, names) for run in (workdir, reference)))
    _compare_files(workdir, reference)


def compare_states(workdir, reference, compare):
    """Compare all arrays of the newest checkpoints."""
    with _COMPARING:
        jax.tree.map(compare, final_state(workdir), final_state(reference))


def _compare_files(workdir, reference):
    markers = [(run / "train_complete.txt").read_text() for run in (workdir, reference)]
    assert markers[0] == markers[1], f"train_complete.txt: {markers}"
    found, expected = kept(workdir), kept(reference)
    assert found == expected, f"Kept are {found}, not {expected}."


_COMPARING = threading.Lock()


def _differences(points, expected):
    """What was logged and should not have been, and the reverse."""
    lines = []
    for name in points:
        lines += [f"+ {name} {p}" for p in points[name] if p not in expected[name]]
        lines += [f"- {name} {p}" for p in expected[name] if p not in points[name]]
    return "\n".join(lines) or f"The order or number differs: {points} {expected}"


def kept(workdir):
    """Names in the folder of checkpoints, but for those put aside as damaged."""
    names = (path.name for path in (workdir / "checkpoints").iterdir())
    return sorted(name for name in names if not name.endswith(".unreadable"))


def assert_close_points(points, expected):
    """The same values at the same steps, to 1e-6."""
    assert points.keys() == expected.keys()
    for name in points:
        assert [step for step, _ in points[name]] == [s for s, _ in expected[name]]
        for (_, values), (_, wanted) in zip(points[name], expected[name], strict=True):
            assert values.keys() == wanted.keys()
            for key, value in values.items():
                np.testing.assert_allclose(value, wanted[key], rtol=1e-6, atol=1e-6)


def logged_points(workdir, names):
    """All logged values without times: `{collection: [(step, values)]}`."""
    found = {}
    for name in names:
        try:
            lines = writers.read_scalars(pathlib.Path(workdir) / name)
        except (OSError, ValueError, KeyError):  # damaged
            lines = []
        found[name] = [
            (
                line["step"],
                {
                    key: value
                    for key, value in line["values"].items()
                    if not key.startswith("perf_stats/")
                },
            )
            for line in lines
        ]
    return found


def final_state(workdir):
    """The newest checkpoint as nested dicts."""
    checkpointer = Checkpointer(workdir=str(workdir), save_interval_steps=1)
    return checkpointer.restore(items.StandardCheckpointItem())
