"""A real Slurm with three nodes on this machine, in one folder, on loopback only."""

import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from kauldron.kxm.runner import free_port

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
_SECONDS = 60

# No cgroups, no accounting, no other user, no address but 127.0.0.1. Nodes claim two cores
# each, whatever there is, and two GPUs that are none. Jobs in `low` give way to those in
# `high` and have twenty seconds to save; both have two nodes. A third is left alone.
_CONFIG = """
ClusterName=mini
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge/socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=20
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} {size}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port2} {size}
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={port3} {size}
PartitionName=high Nodes=n1,n2 Default=YES State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=apart Nodes=n3 State=UP PreemptMode=OFF
PartitionName=low Nodes=n1,n2 State=UP PriorityTier=1 GraceTime=20 PreemptMode=REQUEUE MaxTime=2:00:00
"""


def missing():
    """Why there can be no Slurm here; None if there can."""
    absent = [name for name in _PROGRAMS if _which(name) is None]
    if absent:
        return f"Slurm is not installed: no {', '.join(absent)}"
    return None if os.geteuid() == 0 else "the daemons of Slurm need root"


@contextlib.contextmanager
def mini_slurm(folder):
    """Start the cluster in a folder, set SLURM_CONF, and stop everything at the end."""
    folder = pathlib.Path(folder)
    host = socket.gethostname().partition(".")[0]
    ports = {name: free_port() for name in ("port", "port1", "port2", "port3")}
    size = "CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN"
    for name in ("munge", "state", "log", "run", "spool/n1", "spool/n2", "spool/n3"):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o700)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    config = folder / "slurm.conf"
    names = {"folder": folder, "host": host, "user": getpass.getuser(), "size": size}
    config.write_text(_CONFIG.format(**names, **ports))
    (folder / "gres.conf").write_text("Name=gpu File=/dev/tty[0-1]\n")
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(config)
    daemons = []
    try:
        daemons.append(_start_munge(folder))
        _until(lambda: (folder / "munge" / "socket").exists(), folder)
        for command in (["slurmctld", "-D", "-c"], *_slurmds()):
            daemons.append(_start(command, folder))
        _until(lambda: _num_idle() == 3, folder)
        yield config
    finally:
        if len(daemons) > 1:
            command_output(f"scancel -u {getpass.getuser()}")
            with contextlib.suppress(TimeoutError):
                _until(lambda: not command_output("squeue -h"), folder)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def command_output(line):
    """What a command prints, with surrounding space removed."""
    done = subprocess.run(line.split(), capture_output=True, text=True)
    return done.stdout.strip()


def _slurmds():
    return [["slurmd", "-D", "-N", name] for name in ("n1", "n2", "n3")]


def _num_idle():
    return len(command_output("sinfo -h -N -p high,apart -t idle").splitlines())


def _start_munge(folder):
    options = {name: folder / "munge" / name for name in ("socket",)}
    options |= {
        f"{n}-file": folder / "munge" / n for n in ("key", "pid", "log", "seed")
    }
    flags = [f"--{name}={path}" for name, path in options.items()]
    return _start(["munged", "--foreground", "--force", *flags], folder)


def _start(command, folder):
    with (folder / "log" / "daemons.log").open("ab") as log:
        program = _which(command[0])
        return subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _which(program):
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _until(condition, folder):
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > deadline:
            logs = {p.name: p.read_text()[-2000:] for p in (folder / "log").iterdir()}
            raise TimeoutError(f"Slurm is not ready: {logs}")
        time.sleep(0.1)
