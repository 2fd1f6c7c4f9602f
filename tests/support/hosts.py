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
        self.rank = ADDRESSES.index(address)
        self.log = folder.parent / f"{folder.name}.log"

    def train(self, **env: str) -> subprocess.Popen:
        """Start the stage train with both machines. Its output is appended to the log. env: to the environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GLOO", "TORCH", "MLFLOW"))}
        joint = {
            "NODES": "2",
            "NODE_RANK": str(self.rank),
            "RENDEZVOUS": ADDRESSES[0],
            "OMP_NUM_THREADS": "1",
            "DVC_ROOT": "",
        }
        with open(self.log, "a") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, sys.executable, "-u", "-m", "pipeline.train"],
                cwd=self.folder,
                env={**kept, **joint, "PYTHONPATH": str(ROOT), **env},
                stdout=log,
                stderr=log,
            )

    def processes(self) -> list[int]:
        """The numbers of all processes of this machine."""
        return list(map(int, ip("netns", "pids", self.name).stdout.split()))

    def kill(self) -> None:
        """End all processes of this machine at once, as a power cut does."""
        for number in self.processes():
            os.kill(number, signal.SIGKILL)


@contextmanager
def two_hosts(folders: tuple[Path, Path]) -> Iterator[tuple[Host, Host]]:
    """Two machines with these folders. All their processes end with the block."""
    first, second = hosts = tuple(
        Host(f"host{number}-{os.getpid()}", address, folder)
        for number, (address, folder) in enumerate(zip(ADDRESSES, folders, strict=True))
    )
    try:
        for host in hosts:
            assert not ip("netns", "add", host.name).returncode
        ip("link", "add", "cable", "netns", first.name, "type", "veth", "peer", "name", "cable", "netns", second.name)
        for host in hosts:
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                assert not ip("-n", host.name, "link", "set", device, "up").returncode
        yield first, second
    finally:
        for host in hosts:
            host.kill()
            ip("netns", "delete", host.name)


def losses(folder: Path) -> list[float]:
    """The losses of all updates, in the newest state of the only training in a folder; [] without a state."""
    newest = max(folder.glob("work/train-*/state-*.json"), default=None)
    return json.loads(newest.read_text())["state"]["losses"] if newest else []
