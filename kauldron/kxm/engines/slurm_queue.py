"""What Slurm says about jobs in its queue, and what it is told."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from kauldron.kxm import records

_WAITING = (
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "RESV_DEL_HOLD", "SPECIAL_EXIT",
)  # fmt: skip
_ALIVE = (
    "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING",
    "STAGE_OUT",
)  # fmt: skip


def queue_states(ids: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Ask Slurm for the states of jobs, and why they ended.

    Returns:
      State and reason by job id, without the jobs that Slurm does not say enough about.
    """
    if not ids or shutil.which("squeue") is None:
        return {}
    bases = ",".join(base_ids(ids))
    done = run("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%i|%T|%r", "-j", bases)
    if done.returncode and "Invalid job id" not in done.stderr:
        return {}  # the controller does not answer
    answers = {}
    for line in done.stdout.splitlines():
        job_id, state, reason = line.split("|", 2)
        answers[job_id] = (state, reason)
    if any(job_id not in answers for job_id in ids) and shutil.which("sacct"):
        done = run("sacct", "-n", "-X", "-P", "-o", "JobID,State", "-j", bases)
        for line in done.stdout.splitlines():
            job_id, _, state = line.partition("|")
            answers.setdefault(job_id, (state.split()[0], ""))
    unknown = ("gone: Slurm has forgotten it", "")
    read = {job_id: _read_state(*answers.get(job_id, unknown)) for job_id in ids}
    return {job_id: state for job_id, state in read.items() if state is not None}


def _read_state(state: str, reason: str) -> tuple[str, str | None] | None:
    if state in _WAITING:
        return records.PENDING, None
    if state in _ALIVE:
        return records.RUNNING, None
    if state == "COMPLETED":
        return None  # what the runner wrote is on its way through the file system
    if state == "CANCELLED":
        if reason.startswith("Dependency"):
            return records.SKIPPED, "a job that it comes after did not succeed"
        return records.STOPPED, "cancelled in Slurm"
    return records.FAILED, f"Slurm: {state}"


def max_array_size() -> int:
    """Return how many tasks an array may have."""
    found = re.search(
        r"MaxArraySize\s*=\s*(\d+)", run("scontrol", "show", "config").stdout
    )
    return max(1, int(found[1]) - 1) if found else 1000


def cancel(ids: Iterable[str], *options: str) -> None:
    """Cancel jobs, or those of them that the options choose."""
    chosen = list(ids)
    if chosen:
        run("scancel", *options, *chosen)


def base_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids of arrays, in order, each once."""
    return list(dict.fromkeys(job_id.partition("_")[0] for job_id in ids))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm."""
    return subprocess.run(command, capture_output=True, text=True)
