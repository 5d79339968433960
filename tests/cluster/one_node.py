"""A real Slurm of one small node, without systemd, cgroups or accounting: munged, slurmctld and slurmd in one folder.

    python tests/cluster/one_node.py start FOLDER     # then: . FOLDER/environment
    python tests/cluster/one_node.py stop FOLDER

Needs the Debian packages slurm-wlm and munge. Nothing outside the folder is touched, and
ports are free ones of this machine.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
# A small node: what does not fit waits for ever, and the tests with it.
CPUS = 2
MEMORY_MB = 4000
PATIENCE_SECONDS = 60
SYSTEM = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def missing() -> list[str]:
    """Return the programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM)]


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which commands talk to the Slurm in `folder`."""
    return {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}{os.pathsep}{SYSTEM}"}


def start(folder: Path) -> dict[str, str]:
    """Start the daemons and return the variables to use them with; on failure nothing goes on running."""
    if missing():
        raise RuntimeError(f"{', '.join(missing())} not found: install slurm-wlm and munge")
    folder = folder.resolve()
    _write_files(folder)
    try:
        _start_daemon(folder, "munged", "--foreground", f"--key-file={folder}/munge.key", *_munge_files(folder))
        _wait(folder, lambda: (folder / "munge.socket").exists(), "munged")
        _start_daemon(folder, "slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf")
        _wait(folder, lambda: "UP" in _answer(folder, "scontrol", "ping"), "slurmctld")
        _start_daemon(folder, "slurmd", "-D", "-c", "-f", f"{folder}/slurm.conf")
        _wait(folder, lambda: _answer(folder, "sinfo", "-h", "-o", "%T").startswith("idle"), "slurmd")
    except BaseException:
        stop(folder)
        raise
    variables = environment(folder)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    (folder / "environment").write_text("".join(lines), encoding="utf-8")
    return variables


def stop(folder: Path) -> None:
    """End the jobs, then the daemons that `start` recorded, each only if it still is what it was."""
    pids = _recorded(folder)
    if "slurmctld" in pids and _runs("slurmctld", pids["slurmctld"]):
        _answer(folder, "scancel", f"--user={getpass.getuser()}")
        deadline = time.monotonic() + 10
        while _answer(folder, "squeue", "--noheader").strip() and time.monotonic() < deadline:
            time.sleep(0.2)
    for name in ("slurmd", "slurmctld", "munged"):
        if name in pids:
            _end(name, pids[name])
    (folder / "pids.json").unlink(missing_ok=True)


def _write_files(folder: Path) -> None:
    for name in ("bin", "state", "spool", "log"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    key = folder / "munge.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
    (folder / "slurm.conf").write_text(_slurm_conf(folder), encoding="utf-8")
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n", encoding="utf-8")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="utf-8")
    # Snakemake's plugin for Slurm drops SLURM_CONF before it calls srun inside a job.
    srun = folder / "bin" / "srun"
    real = shutil.which("srun", path=SYSTEM)
    srun.write_text(
        f'#!/bin/sh\nSLURM_CONF={shlex.quote(str(folder / "slurm.conf"))} exec {real} "$@"\n', encoding="utf-8"
    )
    srun.chmod(0o755)


def _slurm_conf(folder: Path) -> str:
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    control, node = _free_ports(2)
    cpus = min(CPUS, os.cpu_count() or 1)
    settings = {
        "ClusterName": "dprepro",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": control,
        "SlurmdPort": node,
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge.socket",
        "CredType": "cred/munge",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd.pid",
        # Processes are followed by their parents, for want of cgroups; memory is handed out, not enforced.
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SchedulerParameters": "sched_interval=2,bf_interval=2",
        "ReturnToService": 2,
        # How long squeue remembers a job that has ended: until the tests have looked at all of them.
        "MinJobAge": 7200,
        "GresTypes": "gpu",
    }
    return "".join(
        [
            *(f"{key}={value}\n" for key, value in settings.items()),
            f"NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={MEMORY_MB} Gres=gpu:1 State=UNKNOWN\n",
            f"PartitionName=main Nodes={host} Default=YES MaxTime=1-00:00:00 State=UP\n",
        ]
    )


def _munge_files(folder: Path) -> list[str]:
    files = {
        "socket": "munge.socket",
        "pid-file": "munged.pid",
        "seed-file": "munge.seed",
        "log-file": "log/munged.log",
    }
    return ["--force", *(f"--{option}={folder / name}" for option, name in files.items())]


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _start_daemon(folder: Path, name: str, *arguments: str) -> None:
    program = shutil.which(name, path=SYSTEM)
    assert program is not None
    with (folder / "log" / f"{name}.out").open("ab") as out:
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")},
            start_new_session=True,
        )
    (folder / "pids.json").write_text(json.dumps({**_recorded(folder), name: process.pid}), encoding="utf-8")


def _recorded(folder: Path) -> dict[str, int]:
    file = folder / "pids.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _answer(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment(folder)}, timeout=60, check=False
    )
    return done.stdout


def _wait(folder: Path, ready: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        if time.monotonic() > deadline or not _runs(name, _recorded(folder)[name]):
            log = (folder / "log" / f"{name}.out").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{name} did not come up:\n{log[-3000:]}")
        time.sleep(0.1)


def _runs(name: str, pid: int) -> bool:
    """Say whether a process still is the daemon that it was: numbers are used again. A dead child is gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    command, _, rest = state.partition("(")[2].rpartition(")")
    return command == name and not rest.split()[0].startswith("Z")


def _end(name: str, pid: int) -> None:
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        if not _runs(name, pid):
            return
        os.kill(pid, number)
        deadline = time.monotonic() + patience
        while _runs(name, pid) and time.monotonic() < deadline:
            time.sleep(0.05)


def main() -> None:
    """Start or stop from a shell."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit("usage: one_node.py start|stop FOLDER")
    try:
        {"start": start, "stop": stop}[sys.argv[1]](Path(sys.argv[2]))
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
