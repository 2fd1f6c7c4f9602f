"""Two network namespaces, joined by a cable (a veth pair), as two machines; a project folder on each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.stages import wait_until
from support.tiny import ROOT

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PATIENCE = 600  # seconds; on a busy machine torch alone takes a minute to import


def ip(*words: str) -> subprocess.CompletedProcess:
    """Run the command ip."""
    return subprocess.run(["ip", *words], capture_output=True, text=True)


def why_no_hosts() -> str:
    """Why this machine can have no network namespaces; "" if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"try{os.getpid()}"
    try:
        done = ip("netns", "add", name)
    except FileNotFoundError:
        return "network namespaces need the command ip (Debian: iproute2)"
    ip("netns", "delete", name)
    return f"network namespaces cannot be made: {done.stderr.strip()}" if done.returncode else ""


class Host:
    """A machine: a network namespace and a folder. address: in the network of both."""

    def __init__(self, name: str, address: str, folder: Path):
        self.name, self.address, self.folder = name, address, folder
        self.logs = folder.parent / f"{folder.name}.logs"
        self.logs.mkdir()

    def start(self, *command: str, paths: tuple[Path, ...] = (ROOT,), **env: str) -> subprocess.Popen:
        """Start `python -m COMMAND` in the folder of this machine. What it prints goes to a file; see `printed`.

        paths: folders that Python imports from first. env: additions to the environment.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GLOO", "TORCH", "MLFLOW"))}
        env = {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "DVC_ROOT": "", "OMP_NUM_THREADS": "1", **env}
        log = open(self.logs / f"{len(list(self.logs.iterdir())):03d}", "w")  # noqa: SIM115 (its process has it)
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-u", "-m", *command],
            cwd=self.folder,
            env=env,
            stdout=log,
            stderr=log,
        )

    def printed(self) -> str:
        """All that the commands of this machine have printed."""
        return "".join(path.read_text() for path in sorted(self.logs.iterdir()))

    def cut(self, off: bool = True) -> None:
        """Pull the cable of this machine, or plug it in again."""
        assert not ip("-n", self.name, "link", "set", "cable", "down" if off else "up").returncode

    def kill(self) -> None:
        """End all processes of this machine at once, as a power cut does."""
        for pid in map(int, ip("netns", "pids", self.name).stdout.split()):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def two_hosts(folders: tuple[Path, Path]) -> Iterator[tuple[Host, Host]]:
    """Two machines with these folders. All their processes end with the block."""
    hosts = tuple(
        Host(f"host{number}-{os.getpid()}", address, folder)
        for number, (address, folder) in enumerate(zip(ADDRESSES, folders, strict=True))
    )
    one, two = hosts
    try:
        for host in hosts:
            assert not ip("netns", "add", host.name).returncode
        ip("link", "add", "cable", "netns", one.name, "type", "veth", "peer", "name", "cable", "netns", two.name)
        for host in hosts:
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "cable")
            ip("-n", host.name, "link", "set", "lo", "up")
            host.cut(off=False)
        yield one, two
    finally:
        for host in hosts:
            host.kill()
            ip("netns", "delete", host.name)


def losses(folder: Path) -> list[float]:
    """The losses of all updates, in the newest state of the only training in a folder."""
    newest = max(folder.glob("work/train-*/state-*.json"))
    return json.loads(newest.read_text())["state"]["losses"]


def wait_for(path: Path, *processes: subprocess.Popen) -> None:
    """Wait until a file is there; fail if a process ends before."""

    def there() -> bool:
        assert path.exists() or all(process.poll() is None for process in processes)
        return path.exists()

    wait_until(there, PATIENCE)
