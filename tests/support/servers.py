"""Real servers on loopback for tests: PostgreSQL, and MLflow over it."""

from __future__ import annotations

import base64
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from support.tiny import ROOT


def free_port() -> int:
    """A port of this machine that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(folder: Path, *words: object) -> tuple[subprocess.Popen[str], str]:
    """Start `python -m` with these words and a free port, in a folder; its errors go to server.log there.

    Returns the process and the address that it prints.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    command = [sys.executable, "-m", *map(str, words), "--port", str(free_port())]
    log = folder / "server.log"
    with open(log, "w") as errors:
        env |= {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout
    address = process.stdout.readline().strip()
    assert address, log.read_text()
    return process, address


def postgres_program(name: str) -> str:
    """The path of a program of PostgreSQL; skips the test if PostgreSQL is not installed."""
    places = [shutil.which(name), *sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)]
    path = next((str(place) for place in places if place), None)
    if path is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return path


@contextmanager
def postgres(password: str = "hunter2") -> Iterator[str]:
    """Start a new, empty PostgreSQL server; yields its address for SQLAlchemy, password included."""
    initdb, server = postgres_program("initdb"), postgres_program("postgres")
    # PostgreSQL refuses to run as root.
    user = pwd.getpwnam("postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
    who = {"user": user.pw_uid, "group": user.pw_gid} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    secret, port = folder / "secret", free_port()
    secret.write_text(password)
    os.chown(secret, user.pw_uid, user.pw_gid)
    command = [initdb, "-D", folder / "data", "-U", "mlflow", "-A", "scram-sha-256", "--pwfile", secret, "-N"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **who)
    options = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-p", str(port), "-k", str(folder)]
    process = subprocess.Popen([server, "-D", folder / "data", *options], cwd=folder, stderr=subprocess.DEVNULL, **who)
    try:
        wait_for_port(port, process)
        yield f"postgresql+psycopg://mlflow:{quote(password, safe='')}@127.0.0.1:{port}/postgres"
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
    """Start `mlflow server` with proxied artifacts and without passwords; yields its address."""
    port, log = free_port(), folder / "server.log"
    options = ["--artifacts-destination", folder / "files", *f"--workers 1 --host 127.0.0.1 --port {port}".split()]
    command = [sys.executable, "-m", "mlflow", "server", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    env |= {"MLFLOW_BACKEND_STORE_URI": backend, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    address = f"http://127.0.0.1:{port}"
    with server_process(command, log, env) as process:
        wait_for_answer(f"{address}/health", process)
        yield address


DATABASE, ADMIN, SESSION = "hu/nt@er%2: 2", "admin's long p@ss/word", "key of sessions"


@contextmanager
def server_process(words: list, log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen]:
    """Run a server with all its workers, whose output is in a file. They end with the block."""
    with open(log, "w") as output:
        process = subprocess.Popen(words, cwd=log.parent, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for_answer(address: str, process: subprocess.Popen, authority: Path | None = None) -> None:
    """Return when a server answers. authority: the file of the certificate that its certificate is signed by."""
    while True:
        with suppress(OSError):
            context = ssl.create_default_context(cafile=authority)
            with urllib.request.urlopen(address, timeout=5, context=context):
                return
        assert process.poll() is None
        time.sleep(0.1)


class TeamServer(NamedTuple):
    """A closed server. authority: the file of the certificate that its certificate is signed by."""

    address: str
    authority: Path
    secrets: tuple[str, ...] = (DATABASE, ADMIN, SESSION)

    @staticmethod
    def login(name: str, password: str) -> str:
        """The header that sends name and password."""
        return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@contextmanager
def closed_server(folder: Path) -> Iterator[TeamServer]:
    """Start what deploy/ describes: MLflow with passwords over PostgreSQL, and Caddy in front; skips without Caddy."""
    if not shutil.which("caddy"):
        pytest.skip("Caddy is not installed (Debian: apt-get install caddy)")
    secrets, inner, outer = folder / "secrets", free_port(), free_port()
    secrets.mkdir(mode=0o700)
    for name, secret in (("database_password", DATABASE), ("admin_password", ADMIN), ("session_key", SESSION)):
        (secrets / name).write_text(f"{secret}\n")
    site, authority = f"localhost:{outer}", folder / "caddy/caddy/pki/authorities/local/root.crt"
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    env["TMPDIR"] = str(folder)
    with postgres(DATABASE) as database, ExitStack() as stack:
        place = f"mlflow@{database.rpartition('@')[2]}"
        options = ["--secrets", secrets, "--files", folder / "files", "--site", site, "--database", place]
        words = [sys.executable, ROOT / "deploy/mlflow_server.py", *options, "--port", str(inner)]
        wait_for_port(inner, stack.enter_context(server_process(words, folder / "mlflow.log", env)))
        config = ROOT / "deploy/Caddyfile"
        own = {"SITE": site, "MLFLOW": f"127.0.0.1:{inner}", "XDG_DATA_HOME": f"{folder}/caddy", "HOME": str(folder)}
        caddy = ["caddy", "run", "--adapter", "caddyfile", "--config", config]
        process = stack.enter_context(server_process(caddy, folder / "caddy.log", env | own))
        wait_for_answer(f"https://{site}/health", process, authority)
        yield TeamServer(f"https://{site}", authority)
