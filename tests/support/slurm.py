"""A Slurm cluster of two nodes on this machine for tests: munge, the controller, and a daemon for each node."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.projects import PATHS
from support.servers import free_port
from support.stages import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "srun")
NODES = ("node1", "node2")
PATIENCE = 3600  # seconds; nothing is measured by it: a job that hangs ends the test
# Short: the timeout after which a silent node is down, and the life of credentials, which delays a requeued job.
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=5
MinJobAge=3600
ReturnToService=2
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """A running cluster. folder: of its configuration, logs and state."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen] = {}
        foreign = ("DVC_", "MLFLOW_", "SLURM")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.env |= {
            "PATH": PATHS,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "OMP_NUM_THREADS": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }

    def start(self) -> None:
        """Write the configuration, start the daemons, and wait until both nodes are idle."""
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        conf = CONF.format(host=platform.node(), port=free_port(), folder=self.folder)
        for name in NODES:
            conf += f"NodeName={name} NodeHostname={platform.node()} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1\n"
        (self.folder / "slurm.conf").write_text(conf)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        files = [f"--{name}={self.folder}/munge.{name[:3]}" for name in ("pid-file", "log-file", "seed-file")]
        socket = self.folder / "munge.socket"
        self._start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}", *files)
        self.wait_until(socket.exists)
        self._start("slurmctld", "-D")
        for node in NODES:
            self._start(node, "-D", "-N", node, program="slurmd")
        self.wait_until(lambda: self.run("sinfo", "--noheader", "--format=%T %D").split() == ["idle", "2"])

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Return when a condition holds; fail with the logs if it does not within PATIENCE."""
        wait_until(condition, PATIENCE, self.log, every=0.5)

    def _start(self, name: str, *options: str, program: str = "") -> None:
        """Start a daemon."""
        words = [shutil.which(program or name) or "", *options]
        with open(self.folder / f"{name}.out", "w") as output:
            self.daemons[name] = subprocess.Popen(words, env=self.env, stdout=output, stderr=output)

    def run(self, *words: str, folder: Path | None = None) -> str:
        """Run a command of Slurm, in a folder; returns what it printed, also if it fails."""
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(words, cwd=folder, env=self.env, **output).stdout

    def submit(self, folder: Path, *words: str) -> str:
        """Submit a batch job from a folder; returns its number."""
        return self.run("sbatch", "--parsable", *words, folder=folder).strip()

    def states(self, job: str) -> list[str]:
        """The states of a job, or of each task of an array that has begun."""
        return re.findall(r"JobState=(\w+)", self.run("scontrol", "show", "job", job))

    def wait(self, job: str) -> list[str]:
        """Wait until a job, or each task of an array, has ended; returns the states."""
        self.wait_until(lambda: not self.run("squeue", "--noheader", f"--jobs={job}").strip())
        return self.states(job)

    def stop(self) -> None:
        """End all jobs and daemons."""
        self.run("scancel", "--user=root")
        self.wait_until(lambda: not self.run("squeue", "--noheader").strip())
        for process in self.daemons.values():
            process.kill()
            process.wait()

    def log(self) -> str:
        """What the daemons have printed and written."""
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in self.folder.glob("*.[lo]*"))


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """Start a Slurm cluster of two nodes; skips the test without Slurm, munge or root."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed (Debian: apt-get install slurm-wlm munge)")
    if os.getuid():
        pytest.skip("Slurm's daemons need root to start jobs")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a short path: a socket's name has at most 107 characters
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)
