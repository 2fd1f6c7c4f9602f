"""Let this machine take part in the distributed stages of another one, the leader's (docs/cluster.md).

    python -m pipeline worker --join 10.0.0.1          # the leader runs: NODES=2 dvc repro
    DEVICES=gpu python -m pipeline worker --join 10.0.0.1:29400

It takes part in each stage that the leader's machine opens, and waits between them, until Ctrl-C. It ends with status 1
if this machine differs from the leader's in data, code or versions; both machines then print in what.

Reads   data/ as the stages do
Writes  nothing that is kept: the leader's machine writes all outs
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.shared.stage import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", required=True, metavar="HOST[:PORT]", help="the leader's machine; it prints this")
    given = parser.parse_args().join
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch prints 20 lines when a connection ends
    # torch is imported here, so that --help and a wrong option take no seconds
    from pipeline.shared.machines import PORT, parse_rendezvous_endpoint

    address, port = parse_rendezvous_endpoint(given, PORT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    left = ""  # run_id of the stage that this machine took part in last, if it is not to come back to it
    while True:
        left = take_part(address, port, left)


def take_part(address: str, port: int, left: str) -> str:
    """Wait for the next stage, other than `left`, and take part in it. Returns its run_id, or "" to come back to it.

    Raises ValueError if this machine cannot take part; the leader's machine then prints why, too.
    """
    from pipeline.shared.machines import LEADER_LOST, Invitation, connected, notify

    invitation = Invitation(address, port, os.getpid(), next_stage(address, port, left))
    name = invitation.stage.module.removeprefix("pipeline.")
    print(f"Stage {name} of {address} is open. This machine joins.", flush=True)
    with TemporaryDirectory() as folder:
        status, error = run_stage(invitation, Path(folder))
    if error:
        if store := connected(address, port):
            notify(store, error)
        raise ValueError(error)
    if status == LEADER_LOST:
        print(f"The stage of {address} has ended, or the connection to it.", flush=True)
        return ""
    if status:
        if store := connected(address, port):
            notify(store, f"{socket.gethostname()} takes no further part in this stage: its processes have failed.")
        print("This machine takes no further part in this stage.", flush=True)
    return invitation.stage.run_id


def next_stage(address: str, port: int, left: str):
    """Wait until the leader's machine opens a stage other than `left`, and return it."""
    from pipeline.shared.machines import STAGE, OpenStage, connected

    print(f"Waiting for a stage of {address}:{port}. Ctrl-C ends the wait.", flush=True)
    while True:
        try:
            if store := connected(address, port):
                stage = OpenStage.from_json(store.get(STAGE))
                if stage.run_id != left:
                    return stage
        except RuntimeError:  # the leader's machine has closed the stage
            pass
        time.sleep(1)


def run_stage(invitation, folder: Path) -> tuple[int, str]:
    """Run this machine's part of a stage. Returns its exit status, and the user's error that ended it, or "".

    folder: for temporary files.
    """
    from pipeline.shared.machines import INVITATION

    stage = invitation.stage
    invitation.save(folder / "invitation.json")
    (folder / "params.yaml").write_text(json.dumps(stage.params), encoding="utf-8")  # JSON is YAML
    paths = {INVITATION: str(folder / "invitation.json"), "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    command = [sys.executable, "-m", stage.module, *stage.options, "--params", str(folder / "params.yaml")]
    process = subprocess.Popen(command, env=os.environ | stage.environment | paths)
    try:
        status = process.wait()
    except (KeyboardInterrupt, SystemExit):
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    error = folder / "error.json"
    return status, json.loads(error.read_text(encoding="utf-8"))["message"] if error.exists() else ""


if __name__ == "__main__":
    run(main)
