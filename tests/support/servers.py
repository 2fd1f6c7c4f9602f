"""Real servers on loopback for tests: PostgreSQL, MLflow over it, and a relay that can hold back a server's answers."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


def free_port() -> int:
    """A port of this machine that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def postgres_program(name: str) -> str:
    """The path of a program of PostgreSQL; skips the test if PostgreSQL is not installed."""
    places = [shutil.which(name), *sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)]
    found = next((str(place) for place in places if place), None)
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return found


@contextmanager
def postgres() -> Iterator[str]:
    """Start a new, empty PostgreSQL server; yields its address for SQLAlchemy, password included."""
    initdb, server = postgres_program("initdb"), postgres_program("postgres")
    # PostgreSQL refuses to run as root.
    user = pwd.getpwnam("postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
    who = {"user": user.pw_uid, "group": user.pw_gid} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    secret, port = folder / "secret", free_port()
    secret.write_text("hunter2")
    os.chown(secret, user.pw_uid, user.pw_gid)
    command = [initdb, "-D", folder / "data", "-U", "mlflow", "-A", "scram-sha-256", "--pwfile", secret, "-N"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **who)
    options = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-p", str(port), "-k", str(folder)]
    process = subprocess.Popen([server, "-D", folder / "data", *options], cwd=folder, stderr=subprocess.DEVNULL, **who)
    try:
        wait_for_port(port, process)
        yield f"postgresql+psycopg://mlflow:hunter2@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(2)  # fast shutdown
        process.wait()
        shutil.rmtree(folder)


def wait_for_port(port: int, process: subprocess.Popen) -> None:
    """Return when a process listens on the port."""
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None
        time.sleep(0.05)


@contextmanager
def mlflow_server(folder: Path, backend: str) -> Iterator[str]:
    """Start `mlflow server` as compose.yaml does, with proxied artifacts; yields its address."""
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "mlflow", "server", "--artifacts-destination", str(folder / "files"),
               "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]  # fmt: skip
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    env |= {"MLFLOW_BACKEND_STORE_URI": backend, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(log, "w") as output:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait()


class Relay:
    """A port in front of a server. Until open() is called, it accepts connections and never answers.

    address: of the server.
    """

    def __init__(self, address: str):
        self._target = int(address.rpartition(":")[2])
        self._open = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        self._open.wait()
        with suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=copy_bytes, args=(server, client), daemon=True).start()
            copy_bytes(client, server)


def copy_bytes(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes from one connection to the other until the first one ends."""
    with suppress(OSError):
        while block := source.recv(1 << 16):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
