"""What `python -m pipeline worker` does: it waits for stages of a leader's machine, and takes part in each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.stage import MAKES_IT
from pipeline.training.machines import INVITATION, STAGE, Invitation, connected, endpoint, notify, shown
from pipeline.training.open_stage import OpenStage
from transformer.training.hosts import LEADER_LOST


def work(leader: str) -> None:
    """Take part in the stages of the machine at HOST or HOST:PORT until SIGTERM or Ctrl-C.

    Raises ValueError if this machine cannot take part in one.
    """
    if not leader.strip():
        raise ValueError("--join needs the address of the leader's machine, HOST or HOST:PORT.")
    address, port = endpoint(leader, f"--join {leader}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    left = ""  # run_id of the stage that this machine has left and does not join again
    while True:
        left = take_part(address, port, left)


def take_part(address: str, port: int, left: str) -> str:
    """Wait for a stage whose run_id is not `left`, and take part in it. Returns the next value of `left`.

    That is the run_id of this stage; "" if only the connection was lost, so that this machine may join the stage again.
    Raises ValueError if this machine cannot take part; the leader's machine then prints why, too.
    """
    invitation = Invitation(address, port, os.getpid(), next_stage(address, port, left))
    name = invitation.stage.module.removeprefix("pipeline.")
    print(f"Stage {name} of {address} is open. This machine joins.", flush=True)
    with TemporaryDirectory() as folder:
        status, error = run_stage(invitation, Path(folder))
    if error:
        error = explained(error)
        notify(address, port, error)
        raise ValueError(error)
    if status == LEADER_LOST:
        print(f"The stage of {address} has ended, or the connection to it was lost.", flush=True)
        return ""
    if status:
        text = f"{socket.gethostname()} takes no further part in this stage: its processes have failed."
        notify(address, port, text, failed=True)
        print("This machine takes no further part in this stage.", flush=True)
    return invitation.stage.run_id


def explained(error: str) -> str:
    """A stage's error to what both machines print: with this machine's name, and how it gets data that it lacks."""
    host = socket.gethostname()
    here = "On this machine, run `dvc pull` or `dvc repro back_translate` (docs/cluster.md says when which)."
    return error if error.startswith(f"{host} ") else f"{host}: {error.replace(MAKES_IT, here)}"


def next_stage(address: str, port: int, left: str) -> OpenStage:
    """Wait until the leader's machine opens a stage other than `left`, and return it."""
    print(f"Waiting for a stage of {shown(address, port)}. Ctrl-C ends the wait.", flush=True)
    try:
        socket.getaddrinfo(address, port)
    except socket.gaierror as error:  # in a cluster, the leader's name may be known only when it has started
        print(f"The name {address} is not known here yet ({error.strerror}). This machine tries on.", flush=True)
    while True:
        try:
            if store := connected(address, port):
                stage = OpenStage.from_json(store.get(STAGE))
                if stage.run_id != left:
                    return stage
        except RuntimeError:  # the leader's machine has closed the stage
            pass
        time.sleep(1)


def run_stage(invitation: Invitation, folder: Path) -> tuple[int, str]:
    """Run this machine's part of a stage. Returns its exit status, and the user's error that ended it, or "".

    folder: for temporary files.
    """
    stage = invitation.stage
    invitation.save(folder / "invitation.json")
    (folder / "params.yaml").write_text(json.dumps(stage.params), encoding="utf-8")  # JSON is YAML
    paths = {INVITATION: str(folder / "invitation.json"), "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    command = [sys.executable, "-m", stage.module, *stage.options, "--params", str(folder / "params.yaml")]
    # In a session of its own: Ctrl-C reaches this process only, which then sends one SIGTERM.
    process = subprocess.Popen(command, env=os.environ | paths, start_new_session=True)
    try:
        status = process.wait()
    except (KeyboardInterrupt, SystemExit):
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    error = folder / "error.json"
    return status, json.loads(error.read_text(encoding="utf-8"))["message"] if error.exists() else ""
